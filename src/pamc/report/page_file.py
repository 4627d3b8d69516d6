"""One self-contained HTML page of an object, and the object back from the page."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pamc.errors import DataError
from pamc.report.packing import island

__all__ = ["PARTS", "page_html", "read_page", "write_page"]

_STYLES = ("page.css", "parts.css")
_SCRIPTS = ("base.js", "map_drawing.js", "map.js", "charts.js", "sections.js", "report.js", "comparison.js", "main.js")

# What stands around the object in a page.
_BEFORE, _AFTER = '<script type="application/json" id="pamc-data">', "</script>"

_LONGEST_TITLE = 120

_VERSION = 1

# What an object has to have, by its format; and what has to be in one of its parts.
PARTS = {
    "pamc-report": (
        "title", "written", "n_rows", "n_clusters", "record", "history", "map", "points", "density", "columns",
        "clusters", "features", "rows", "odd", "flows", "similarity", "truth", "story", "python", "notes",
    ),
    "pamc-comparison": (
        "title", "written", "n_rows", "ids", "runs", "agreement", "n_changed", "changed", "listed", "settings", "notes",
    ),
}  # fmt: skip
_WITHIN = {
    "points": ("n", "rows", "ids", "xy", "cluster", "confidence"),
    "map": ("method", "centers", "meta_nodes"),
    "clusters": ("cluster", "n_rows", "share", "confidence"),
    "record": ("method", "seed", "config", "facts"),
}


def page_html(data: dict[str, Any]) -> str:
    """Return the page of an object of :mod:`pamc.report.content` or :mod:`pamc.report.comparison`.

    It needs nothing but itself: styles, scripts and data are inside, and its policy forbids the browser to load
    anything. Text of the user's is data; scripts put it in place as text.
    """
    folder = files("pamc.report") / "page"
    parts = {
        "title": html.escape(str(data["title"])[:_LONGEST_TITLE]),
        "style": "\n".join((folder / name).read_text(encoding="utf-8") for name in _STYLES),
        "data": _BEFORE + island(data) + _AFTER,
        "script": "\n".join((folder / name).read_text(encoding="utf-8") for name in _SCRIPTS),
    }
    # Split once, so that nothing in a part is taken for the place of another.
    text, *rest = (folder / "page.html").read_text(encoding="utf-8").split("<!--put:")
    for piece in rest:
        name, _, after = piece.partition("-->")
        text += parts[name] + after
    return text


def write_page(path: Path, data: dict[str, Any]) -> None:
    """Write the page of an object; the file is whole or absent."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(page_html(data), encoding="utf-8")
    partial.replace(path)


def read_page(path: Path, *, formats: Sequence[str]) -> dict[str, Any]:
    """Return the object inside a page.

    Raises
    ------
    DataError
        The file is no page of pamc's, is damaged, or is of a newer version.
    """
    again = "write it again with `pamc report RUN --rebuild`"
    try:
        text = path.read_text(encoding="utf-8")
        begin = text.index(_BEFORE) + len(_BEFORE)
        data = json.loads(text[begin : text.index(_AFTER, begin)])
        known = data["format"] in formats
        if known and data.get("version") == _VERSION:
            _check_parts(data)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{path}: is not a page that pamc wrote, or is damaged ({error}): {again}") from None
    if not known or data.get("version") != _VERSION:
        raise DataError(
            f"{path}: holds a {data['format']} of version {data.get('version')}; this pamc reads {' or '.join(formats)}"
            f" of version {_VERSION}: {again}"
        )
    found: dict[str, Any] = data
    return found


def _check_parts(data: dict[str, Any]) -> None:
    """Raise a LookupError that names the first part that an object should have and has not."""
    missing = [name for name in PARTS[data["format"]] if name not in data]
    for part, names in _WITHIN.items():
        if part in PARTS[data["format"]] and part in data:
            own = data[part] if isinstance(data[part], dict) else {}
            missing += [f"{part}.{name}" for name in names if name not in own]
    if missing:
        raise LookupError(f"it has no {missing[0]}")
