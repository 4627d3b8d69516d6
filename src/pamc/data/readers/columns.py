"""Columns of a table: ids, classes and features, and warnings about columns that do not look like features."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import NOT_LABELS
from pamc.data.readers.tables import Table
from pamc.errors import ConfigError, DataError, DataWarning


def integers_if_all(texts: NDArray[Any]) -> NDArray[Any]:
    """Return strings as int64 if each is an integer in canonical form, else unchanged.

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
    """Return the row of each name (any shape), and a mask of the names that match no row. O((N + M) log N) time.

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


_NOT_FEATURES = {"id": "--id", "label": "--truth", "class": "--truth", "target": "--truth", "y": "--truth"}
# SQL patterns: integers, with points between the thousands if 1,000 or above; and only those with one such point.
_WHOLE_WITH_POINTS = r"[+-]?([0-9]{1,3}|[1-9][0-9]{0,2}(\.[0-9]{3})+)"
_WITH_POINTS = r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}"
# Number of cells, from the first rows, that are inspected to find columns that may have points between thousands.
_CELLS_INSPECTED = 200_000


def listed(names: Sequence[str] | None) -> list[str] | None:
    """Return names as a list; a single string is one name."""
    return [names] if isinstance(names, str) else None if names is None else list(names)


def feature_columns(
    table: Table,
    id_column: str | None,
    truth_column: str | None,
    columns: Sequence[str] | None,
    drop: Sequence[str] | None,
) -> list[str]:
    """Return the names of a table's feature columns; raise DataError if an option names a missing column."""
    columns = listed(columns)
    role: dict[str, str] = {}
    options = [("--id", [id_column]), ("--truth", [truth_column]), ("--columns", columns), ("--drop", listed(drop))]
    for option, names in options:
        for name in names or []:
            if name is None:
                continue
            if role.setdefault(known_column(table, name, option), option) != option:
                raise ConfigError(f"column {name!r} is named by both {role[name]} and {option}")
    features = columns if columns is not None else [name for name in table.names if name not in role]
    if not features:
        raise DataError(f"{table.path}: no feature column is left; its columns are {short_list(table.names)}")
    return list(dict.fromkeys(features))


def known_column(table: Table, name: str, option: str) -> str:
    """Return the name of a column; raise DataError if the table has no such column."""
    if name in table:
        return name
    near = difflib.get_close_matches(name, table.names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise DataError(f"{table.path}: {option} names {name!r}, but the columns are {short_list(table.names)}{hint}")


def short_list(names: Sequence[str]) -> str:
    """Format up to ten names for a message."""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


def id_texts(table: Table, column: str, what: str = "an id") -> NDArray[np.str_]:
    """Return a column as strings; raise DataError naming the first empty cell."""
    texts, empty = table.texts(column)
    if empty is not None:
        raise DataError(f"{table.path}: {empty.where}: the cell is empty; every row needs {what}")
    return texts


def label_texts(table: Table, column: str, what: str) -> NDArray[np.str_]:
    """Return a column of class labels as strings; raise DataError naming the first cell without a class."""
    texts = id_texts(table, column, what)
    wrong = np.flatnonzero(np.isin(np.char.lower(texts), NOT_LABELS))
    if len(wrong):
        cell = table.cell(int(wrong[0]), column)
        raise DataError(f"{table.path}: {cell.where}: {cell.text!r} is not a class; every row needs {what}")
    return texts


def check_has_rows(table: Table, n_rows: int) -> None:
    """Raise DataError if a table has no rows."""
    if n_rows == 0:
        raise DataError(f"{table.path}: has a header but no rows; add a line per row")


def warn_about_columns(table: Table, names: Sequence[str], *, explicit: bool) -> None:
    """Warn about selected feature columns that do not look like features."""
    if not table.has_header:
        columns = short_list(table.names)
        _warn(f"{table.path}: the first line contains only numbers, so it is read as data; columns are named {columns}")
        return
    unnamed = {table.names[position] for position in table.unnamed}
    for name in () if explicit else names:
        if option := _NOT_FEATURES.get(name.lower()):
            _warn(
                f"{table.path}: column {name!r} is used as a feature; otherwise pass {option} {name} or --drop {name}"
            )
        elif name in unnamed:
            _warn(f"{table.path}: a column without a name is used as feature {name!r}; otherwise pass --drop {name}")


def warn_about_points(table: Table, names: Sequence[str]) -> None:
    """Warn about text columns whose points may separate thousands because three digits follow each of them.

    The same cells may be numbers with three decimals, so they are read with a decimal point. O(N) time for such columns
    only.
    """
    first_rows = table.first_rows(max(20, _CELLS_INSPECTED // len(table.names)))
    suspects = [name for name in names if _may_have_points(first_rows[name])]
    for name, example in table.examples_if_all(suspects, _WHOLE_WITH_POINTS, example=_WITH_POINTS).items():
        _warn(
            f"{table.path}: column {name!r}: {example} is read as {float(example):.15g}. If its point separates "
            f"thousands ({example.replace('.', '')}), remove the points: every cell of the column has this form"
        )


def _may_have_points(cells: Sequence[str]) -> bool:
    """Return whether, judging by its first cells, all points of a column may be thousands separators."""
    has_points = any(re.fullmatch(_WITH_POINTS, cell) for cell in cells)
    return has_points and all(re.fullmatch(_WHOLE_WITH_POINTS, cell) for cell in cells if cell)


def _warn(message: str) -> None:
    warnings.warn(message, DataWarning, stacklevel=4)
