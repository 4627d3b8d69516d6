"""Arrays and text as a page carries them: base64 of typed arrays, and JSON that nothing inside can end."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["cut_names", "island", "pack", "pack_ids", "plain", "quantized", "smallest", "unpack", "unpack_ids"]

# Little-endian number types that a browser has typed arrays of, by the name under which they travel.
_KINDS = {"u1": "<u1", "u2": "<u2", "u4": "<u4", "i4": "<i4", "f4": "<f4"}

# Characters that all names of a page may have together before long ones are cut, and what is always left of one.
_MOST_CHARACTERS, _LEAST_LEFT = 2_000_000, 48


def pack(values: NDArray[Any], kind: str) -> dict[str, Any]:
    """Return an array as a JSON object: number type, shape and base64 of its bytes.

    Parameters
    ----------
    values
        Of any shape.
    kind
        "u1", "u2", "u4", "i4" or "f4", which must hold the values.

    Examples
    --------
    >>> pack(np.array([1, 2, 3]), "u1")
    {'kind': 'u1', 'shape': [3], 'base64': 'AQID'}
    """
    array = np.ascontiguousarray(values, dtype=_KINDS[kind])
    return {"kind": kind, "shape": list(array.shape), "base64": base64.b64encode(array.tobytes()).decode("ascii")}


def unpack(packed: dict[str, Any]) -> NDArray[Any]:
    """Return the array of :func:`pack`.

    Examples
    --------
    >>> unpack(pack(np.array([[1, 2], [3, 4]]), "u2")).tolist()
    [[1, 2], [3, 4]]
    """
    array = np.frombuffer(base64.b64decode(packed["base64"]), dtype=_KINDS[packed["kind"]])
    return array.reshape(packed["shape"])


def smallest(largest: int) -> str:
    """Return the unsigned number type that holds 0 … largest.

    Examples
    --------
    >>> smallest(255), smallest(256), smallest(1 << 16)
    ('u1', 'u2', 'u4')
    """
    return "u1" if largest < 1 << 8 else "u2" if largest < 1 << 16 else "u4"


def quantized(values: NDArray[Any], low: float, high: float, kind: str) -> NDArray[np.int64]:
    """Return values between low and high as whole steps that fill the number type; what lies outside is at its ends.

    Examples
    --------
    >>> quantized(np.array([0.0, 0.5, 1.0, 7.0]), 0.0, 1.0, "u1").tolist()
    [0, 128, 255, 255]
    """
    steps = np.iinfo(_KINDS[kind]).max
    # Between the least and the largest float64 there is more than a float64 can hold.
    scaled = (np.asarray(values, dtype=np.float64) / 2 - low / 2) / max(high / 2 - low / 2, np.finfo(float).tiny)
    return np.rint(np.clip(scaled, 0.0, 1.0) * steps).astype(np.int64)


def pack_ids(ids: NDArray[Any]) -> dict[str, Any]:
    """Return the names of rows: whole numbers as an array, others as text.

    Where the text of all names together is too long for a page, long names are cut in the middle and get a part of
    their checksum, so that they stay distinct; `cut` says how many were.

    Examples
    --------
    >>> pack_ids(np.array(["a", "b"]))
    {'text': ['a', 'b'], 'cut': 0}
    """
    limits = np.iinfo(np.int32)
    if ids.dtype.kind in "iu" and len(ids) and limits.min <= ids.min() and ids.max() <= limits.max:
        return {"numbers": pack(ids, "i4"), "cut": 0}
    names = [str(name) for name in ids.tolist()]
    shown = cut_names(names)
    return {"text": shown, "cut": sum(a != b for a, b in zip(names, shown, strict=True))}


def unpack_ids(packed: dict[str, Any]) -> list[str]:
    """Return the names of :func:`pack_ids` as text."""
    return list(packed["text"]) if "text" in packed else [str(name) for name in unpack(packed["numbers"]).tolist()]


def cut_names(names: Sequence[str], *, most: int = _MOST_CHARACTERS) -> list[str]:
    """Return names whose characters are at most about `most` in all, the long ones cut in the middle.

    Examples
    --------
    >>> [len(name) for name in cut_names(["short", "x" * 5000], most=200)]
    [5, 100]
    """
    if sum(map(len, names)) <= most:
        return list(names)
    longest = max(most // max(len(names), 1), _LEAST_LEFT)
    return [name if len(name) <= longest else _cut(name, longest) for name in names]


def _cut(name: str, length: int) -> str:
    mark = f" … {hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]} … "
    left = length - len(mark)
    return name[: left - left // 3] + mark + name[len(name) - left // 3 :]


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: arrays as lists, numbers that are not finite as None.

    Examples
    --------
    >>> plain({"a": np.array([1.0, np.nan]), 2: (np.int64(3), "b")})
    {'a': [1.0, None], '2': [3, 'b']}
    """
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(each) for each in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


def island(value: Any) -> str:
    r"""Return JSON for a script element: nothing in it can end the element, begin a comment, or be no text at all.

    Examples
    --------
    >>> island({"name": "</script>"})
    '{"name":"\\u003c/script>"}'
    """
    text = json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    # Half of a surrogate pair, as file names may have one, is no character of any encoding.
    return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text) if not _encodes(text) else text


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
