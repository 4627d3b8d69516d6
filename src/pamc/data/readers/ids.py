"""Ids of rows: read as text, taken for whole numbers where all are, and looked up by name."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["find_rows", "integers_if_all"]


def integers_if_all(texts: NDArray[Any]) -> NDArray[Any]:
    """Return strings as int64 when each is an integer written the usual way, else as they are.

    Examples
    --------
    >>> integers_if_all(np.array(["7", "12"])).tolist(), integers_if_all(np.array(["007", "12"])).tolist()
    ([7, 12], ['007', '12'])
    """
    try:
        numbers = texts.astype(np.int64)
    except (ValueError, OverflowError):
        return texts
    return numbers if (numbers.astype(str) == texts).all() else texts


def find_rows(names: NDArray[Any], ids: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the rows that names of any shape stand for, and which of the names no row has. O((N + M) log N).

    Examples
    --------
    >>> rows, is_unknown = find_rows(np.array(["b", "x"]), np.array(["a", "b"]))
    >>> int(rows[0]), is_unknown.tolist()
    (1, [False, True])
    """
    if names.dtype.kind not in "iu" or ids.dtype.kind not in "iu":
        names, ids = names.astype(str), ids.astype(str)
    order = np.argsort(ids)
    rows = order[np.minimum(np.searchsorted(ids, names, sorter=order), len(ids) - 1)].astype(np.int64)
    return rows, np.asarray(ids[rows] != names)
