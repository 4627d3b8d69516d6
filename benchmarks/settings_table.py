"""The table of settings on `docs/parameters.md`, made of the code: `python -m benchmarks.settings_table`."""

from __future__ import annotations

from pathlib import Path

from pamc.config import FitConfig
from pamc.results.table import Table

__all__ = ["PAGE", "rewritten", "settings_table"]

PAGE = Path(__file__).parents[1] / "docs" / "parameters.md"


def settings_table() -> str:
    """Return a line for each setting, parameters first: its name, its default, what it does, what it may be."""
    settings = FitConfig.settings().items()
    body = []
    for name, declared in sorted(settings, key=lambda setting: setting[1].expert):
        default = list(declared.default) if isinstance(declared.default, tuple) else declared.default
        allowed = ", ".join(f"`{choice}`" for choice in declared.choices) or declared.describe()
        where = "`advanced`" if declared.expert else "parameter"
        body.append([f"`{name}`", where, f"`{default}`", declared.about, allowed])
    return Table(["setting", "in Python", "default", "what it does", "may be"], body, "lllll").markdown()


def rewritten(text: str) -> str:
    """Return the page with its table made anew."""
    before, after = "<!-- table settings -->\n", "<!-- end settings -->"
    start, end = text.index(before) + len(before), text.index(after)
    return text[:start] + settings_table().strip() + "\n" + text[end:]


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
