"""The table of settings on `docs/parameters.md`, made of the code: `python -m benchmarks.settings_table`."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from pamc import PamCGC
from pamc.config import CHOICES, FitConfig
from pamc.results.table import Table

__all__ = ["PAGE", "rewritten", "settings_table"]

PAGE = Path(__file__).parents[1] / "docs" / "parameters.md"


def settings_table() -> str:
    """Return a line for each setting: its name, its default, what it may be, and what the estimator says of it."""
    said = _said()
    body = []
    for field in fields(FitConfig):
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        allowed = ", ".join(f"`{choice}`" for choice in CHOICES.get(field.name, ()))
        body.append([f"`{field.name}`", f"`{default}`", said[field.name], allowed])
    return Table(["setting", "default", "what it does", "choices"], body, "llll").markdown()


def _said() -> dict[str, str]:
    """Return what the docstring of the estimator says of each parameter."""
    text = (PamCGC.__doc__ or "").partition("Parameters\n")[2].partition("Attributes\n")[0]
    found: dict[str, str] = {}
    for names, about in re.findall(r"^    (\w[\w, ]*) : .*\n((?:        .*\n)+)", text, flags=re.MULTILINE):
        for name in names.split(", "):
            found[name] = " ".join(about.split())
    return found


def rewritten(text: str) -> str:
    """Return the page with its table made anew."""
    before, after = "<!-- table settings -->\n", "<!-- end settings -->"
    start, end = text.index(before) + len(before), text.index(after)
    return text[:start] + settings_table().strip() + "\n" + text[end:]


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
