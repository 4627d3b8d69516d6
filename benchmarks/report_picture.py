"""The README's picture, from the report of a run: `python -m benchmarks.report_picture RUN`.

RUN is what `pamc fit --dataset usps --n-clusters 10` wrote. Needs the package playwright and a Chromium, named in
PAMC_CHROMIUM or found on the path.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

__all__ = ["PICTURE", "take"]

PICTURE = Path(__file__).parent.parent / "docs" / "report" / "report.png"

_WIDTH, _HEIGHT = 1360, 1790


def main() -> None:
    """Take the picture."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("--out", type=Path, default=PICTURE, metavar="FILE")
    arguments = parser.parse_args()
    take(arguments.run / "report.html", arguments.out)
    print(arguments.out)


def take(page_file: Path, out: Path) -> None:
    """Draw the top of a page, with a row of the first cluster kept beside the map, and its cards."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("PAMC_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
        page.goto(page_file.resolve().as_uri())
        page.wait_for_selector("html[data-ready]")
        page.locator(".members .link").first.click()
        page.evaluate("window.scrollTo(0, 0)")
        page.mouse.move(0, 0)
        page.wait_for_timeout(500)
        page.screenshot(path=out)
        browser.close()


if __name__ == "__main__":
    main()
