"""Writes pages, the README's tables and figures anew: `python -m pamc.lab.pages [NAME …]`, all without a name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from pamc.errors import UnknownNameError
from pamc.lab.pages import DOCS, replace, write
from pamc.lab.pages.choosing import choosing_page
from pamc.lab.pages.pictures import draw
from pamc.lab.pages.readme import PARAMETERS, README, rewritten, rivals_page, with_settings
from pamc.lab.pages.reproduce import QUALITY, REPRODUCE
from pamc.lab.pages.scale import scale_page
from pamc.lab.pages.speed import speed_page

PAGES: dict[str, Callable[[], object]] = {
    "reproduce": partial(write, REPRODUCE),
    "quality": partial(write, QUALITY),
    "speed": partial(replace, "speed", speed_page),
    "scale": partial(replace, "scale", scale_page),
    "rivals": partial(replace, "rivals", rivals_page),
    "choosing": partial(replace, "choosing", choosing_page),
    "README": lambda: README.write_text(rewritten(README.read_text(encoding="utf-8")), encoding="utf-8"),
    "parameters": lambda: PARAMETERS.write_text(
        with_settings(PARAMETERS.read_text(encoding="utf-8")), encoding="utf-8"
    ),
    "pictures": lambda: draw(DOCS / "pictures"),
}


def main() -> None:
    """Write what is named."""
    for name in sys.argv[1:] or PAGES:
        if name not in PAGES:
            raise UnknownNameError("page", name, PAGES)
        PAGES[name]()


if __name__ == "__main__":
    main()
