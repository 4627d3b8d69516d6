"""Render pages, the tables of the README and figures: `python -m pamc.lab.pages [NAME …]`, by default all."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pamc.errors import UnknownNameError
from pamc.lab.pages import DOCS, filled
from pamc.lab.pages.contents import PAGES, path_of
from pamc.lab.pages.pictures import draw


def main() -> None:
    """Write the named pages."""
    for name in sys.argv[1:] or [*PAGES, "pictures"]:
        if name == "pictures":
            draw(DOCS / "pictures")
        elif name in PAGES:
            _write(name)
        else:
            raise UnknownNameError("page", name, [*PAGES, "pictures"])


def _write(name: str) -> None:
    """Replace the generated parts of a page, and its figures."""
    with tempfile.TemporaryDirectory() as folder:
        path, figures = path_of(name), DOCS / name
        text = filled(path.read_text(encoding="utf-8"), PAGES[name], Path(folder))
        for old in figures.glob("*.png"):
            old.unlink()
        for figure in Path(folder).glob("*.png"):
            figures.mkdir(exist_ok=True)
            (figures / figure.name).write_bytes(figure.read_bytes())
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
