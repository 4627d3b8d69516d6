"""HTML pages with embedded data: arrays as base64, and JSON that cannot break out of its script element."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.errors import DataError

_STYLES = ("page.css", "parts.css")
_SCRIPTS = (
    "base.js", "map_drawing.js", "map.js", "charts.js", "clusters.js", "sections.js", "update.js", "report.js",
    "comparison.js", "main.js",
)  # fmt: skip

# Markup around the embedded data.
_BEFORE, _AFTER = '<script type="application/json" id="pamc-data">', "</script>"

_LONGEST_TITLE = 120

_VERSION = 1

# Required keys of the data by format, and required keys of its parts.
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
    "map": ("method", "centers"),
    "clusters": ("cluster", "n_rows", "share", "confidence"),
    "record": ("method", "seed", "config", "facts"),
}


def page_html(data: dict[str, Any]) -> str:
    """Return the HTML page for data from :mod:`pamc.report.content` or :mod:`pamc.report.comparison`.

    The page is self-contained: it includes styles, scripts and data, and its content security policy forbids loading
    anything else. User text is stored as data, which scripts insert as text.
    """
    folder = files("pamc.report") / "page"
    parts = {
        "title": html.escape(str(data["title"])[:_LONGEST_TITLE]),
        "style": "\n".join((folder / name).read_text(encoding="utf-8") for name in _STYLES),
        "data": _BEFORE + island(data) + _AFTER,
        "script": "\n".join((folder / name).read_text(encoding="utf-8") for name in _SCRIPTS),
    }
    # Split only once, so that no inserted part can contain a placeholder.
    text, *rest = (folder / "page.html").read_text(encoding="utf-8").split("<!--put:")
    for piece in rest:
        name, _, after = piece.partition("-->")
        text += parts[name] + after
    return text


def write_page(path: Path, data: dict[str, Any]) -> None:
    """Write the page of some data atomically."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(page_html(data), encoding="utf-8")
    partial.replace(path)


def read_page(path: Path, *, formats: Sequence[str]) -> dict[str, Any]:
    """Return the data embedded in a page; raise DataError if it is not such a page, damaged, or of another version."""
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
    return dict(data)


def _check_parts(data: dict[str, Any]) -> None:
    """Raise a LookupError that names the first missing part."""
    missing = [name for name in PARTS[data["format"]] if name not in data]
    for part, names in _WITHIN.items():
        missing += [f"{part}.{name}" for name in names if part in data and name not in data[part]]
    if missing:
        raise LookupError(f"it has no {missing[0]}")


# Little-endian types with a typed array in the browser, by their name in the JSON.
_KINDS = {"u1": "<u1", "u2": "<u2", "u4": "<u4", "i4": "<i4", "f4": "<f4"}

# Maximum total length of all names on a page before long ones are shortened, and minimum length of a name.
_MOST_CHARACTERS, _LEAST_LEFT = 2_000_000, 48


def pack(values: NDArray[Any], kind: str) -> dict[str, Any]:
    """Encode an array as a JSON object: its type `kind` ("u1", "u2", "u4", "i4" or "f4"), shape and base64.

    Examples
    --------
    >>> pack(np.array([1, 2, 3]), "u1")
    {'kind': 'u1', 'shape': [3], 'base64': 'AQID'}
    """
    array = np.ascontiguousarray(values, dtype=_KINDS[kind])
    return {"kind": kind, "shape": list(array.shape), "base64": base64.b64encode(array.tobytes()).decode("ascii")}


def unpack(packed: dict[str, Any]) -> NDArray[Any]:
    """Decode the result of :func:`pack`."""
    array = np.frombuffer(base64.b64decode(packed["base64"]), dtype=_KINDS[packed["kind"]])
    return array.reshape(packed["shape"])


def smallest(largest: int) -> str:
    """Return the smallest unsigned type that holds 0 … largest."""
    return "u1" if largest < 1 << 8 else "u2" if largest < 1 << 16 else "u4"


def quantized(values: NDArray[Any], low: float, high: float, kind: str) -> NDArray[np.int64]:
    """Quantize values between low and high to the full range of an integer type; values outside are clipped.

    Examples
    --------
    >>> quantized(np.array([0.0, 0.5, 1.0, 7.0]), 0.0, 1.0, "u1").tolist()
    [0, 128, 255, 255]
    """
    steps = np.iinfo(_KINDS[kind]).max
    # The difference of the smallest and largest float64 overflows.
    scaled = (np.asarray(values, dtype=np.float64) / 2 - low / 2) / max(high / 2 - low / 2, np.finfo(float).tiny)
    return np.rint(np.clip(scaled, 0.0, 1.0) * steps).astype(np.int64)


def pack_ids(ids: NDArray[Any]) -> dict[str, Any]:
    """Encode row ids: integers as an array, others as text.

    If the total text is too long for a page, long ids are shortened in the middle and get a part of their checksum, so
    that they stay distinct; `cut` is the number of shortened ids.
    """
    limits = np.iinfo(np.int32)
    if ids.dtype.kind in "iu" and len(ids) and limits.min <= ids.min() and ids.max() <= limits.max:
        return {"numbers": pack(ids, "i4"), "cut": 0}
    names = [str(name) for name in ids.tolist()]
    shortened = cut_names(names)
    return {"text": shortened, "cut": sum(a != b for a, b in zip(names, shortened, strict=True))}


def unpack_ids(packed: dict[str, Any]) -> list[str]:
    """Decode the result of :func:`pack_ids` as text."""
    return list(packed["text"]) if "text" in packed else [str(name) for name in unpack(packed["numbers"]).tolist()]


def cut_names(names: Sequence[str], *, most: int = _MOST_CHARACTERS) -> list[str]:
    """Shorten long names in the middle to a total length of about `most` characters.

    Examples
    --------
    >>> [len(name) for name in cut_names(["short", "x" * 5000], most=200)]
    [5, 100]
    """
    if sum(map(len, names)) <= most:
        return list(names)
    longest = max(most // max(len(names), 1), _LEAST_LEFT)

    def cut(name: str) -> str:
        mark = f" … {hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]} … "
        left = longest - len(mark)
        return name[: left - left // 3] + mark + name[len(name) - left // 3 :]

    return [name if len(name) <= longest else cut(name) for name in names]


def plain(value: Any) -> Any:
    """Convert a value to plain JSON types: arrays to lists, non-finite numbers to None.

    Examples
    --------
    >>> plain({"a": np.array([1.0, np.nan]), 2: (np.int64(3), "b")})
    {'a': [1.0, None], '2': [3, 'b']}
    """
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


def island(value: Any) -> str:
    r"""Return JSON for a script element, in which nothing can end the element, start a comment or be invalid text.

    Examples
    --------
    >>> island({"name": "</script>"})
    '{"name":"\\u003c/script>"}'
    """
    text = json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    # A lone surrogate, which file names may contain, cannot be encoded.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
