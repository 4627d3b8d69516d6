"""Files in, one checked AttributedGraph out.

Tables (.csv, .tsv, .txt, .parquet; text also with .gz) name their columns, and options say which column is an id, a
truth or no feature. Matrix files (.npy, .npz, .mtx, svmlight) hold features alone or the whole graph. Features are
stored as float32 unless told otherwise; text is parsed in double precision and rounded once.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import NOT_LABELS, AttributedGraph, check_labels, label_codes
from pamc.data.edge_files import read_edges
from pamc.data.files import existing_file, kind_of, naming
from pamc.data.matrices import MATRIX_KINDS, load_arrays, load_matrix, read_matrix
from pamc.data.tables import TABLE_KINDS, Cell, Table, is_number_text, open_table
from pamc.errors import ConfigError, DataError, DataWarning

__all__ = [
    "MISSING",
    "LabelColumn",
    "feature_columns",
    "integers_if_all",
    "listed",
    "not_a_number",
    "read_features",
    "read_graph",
    "read_label_pairs",
    "read_labels",
    "warn_about_columns",
    "warn_about_points",
]

_NOT_FEATURES = {"id": "--id", "label": "--truth", "class": "--truth", "target": "--truth", "y": "--truth"}
_LABEL_NAMES = ("cluster", "label", "class", "target", "y")
# Words for a cell without a value.
MISSING = {"nan", "na", "n/a", "null", "none", "?", "-"}
# Numbers as other countries and spreadsheets write them.
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)?,\d+")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}([.,])\d{3}(\1\d{3})*")
_THOUSANDS_COMMA = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
# In SQL: whole numbers below 1,000 and above, with points between the thousands; and the latter alone.
_WHOLE_WITH_POINTS = r"[+-]?([0-9]{1,3}|[1-9][0-9]{0,2}(\.[0-9]{3})+)"
_WITH_POINTS = r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}"
# Cells of a text file, from its first rows, that say which columns may have points between thousands.
_CELLS_LOOKED_AT = 200_000
_NO_FILL = (
    "pamc does not fill in values (there is no --impute): drop those rows or columns, or fill them as you see fit"
)


class LabelColumn(NamedTuple):
    """Labels as (N,) integers, and the ids of their rows where the file has them."""

    labels: NDArray[np.int64]
    ids: NDArray[Any] | None


def read_graph(
    features_path: str | PathLike[str],
    *,
    edges: str | PathLike[str] | None = None,
    id_column: str | None = None,
    truth_column: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    dtype: str = "float32",
) -> AttributedGraph:
    r"""Return the features of one file and the edges of another.

    Ends of edges are ids where the rows have ids, else row numbers from 0. A file of edges takes the place of edges
    that an .npz file of features holds. The other options are those of `read_features`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     people, friends = Path(folder, "people.csv"), Path(folder, "friends.csv")
    ...     _ = people.write_text("name,age,city\nann,31,7\nbob,25,8\n")
    ...     _ = friends.write_text("source,target\nbob,ann\n")
    ...     graph = read_graph(people, edges=friends, id_column="name")
    >>> graph.ids.tolist(), graph.feature_names, graph.edges.tolist()
    (['ann', 'bob'], ('age', 'city'), [[1], [0]])
    """
    graph = read_features(
        features_path, id_column=id_column, truth_column=truth_column, columns=columns, drop=drop, dtype=dtype
    )
    if edges is None:
        return graph
    pairs, weight = read_edges(edges, graph.ids, graph.n_nodes)
    return replace(graph, edges=pairs, edge_weight=weight)


def read_features(
    path: str | PathLike[str],
    *,
    id_column: str | None = None,
    truth_column: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    dtype: str = "float32",
) -> AttributedGraph:
    r"""Return the rows of one file, or say which cell is wrong and what to do.

    Parameters
    ----------
    path
        A table or a matrix file.
    id_column
        Column that names the rows (tables only).
    truth_column
        Column of known classes, text or numbers, kept as labels 0, 1, … in sorted order and never a feature. For an
        .npz file the name of an array; for svmlight "label".
    columns
        The feature columns (tables only), all that are left over by default.
    drop
        Columns to leave out (tables only).
    dtype
        "float32" or "float64".

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "flowers.csv")
    ...     _ = path.write_text("width,height,species\n1,2.5,rose\n3,4,lily\n")
    ...     graph = read_features(path, truth_column="species")
    >>> graph.features.tolist(), graph.labels.tolist()
    ([[1.0, 2.5], [3.0, 4.0]], [1, 0])
    """
    path = existing_file(path)
    if dtype not in ("float32", "float64"):
        raise ConfigError(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    kind = kind_of(path)
    if kind in MATRIX_KINDS:
        _refuse_column_options(path, id_column, columns, drop)
        return read_matrix(path, truth=truth_column, dtype=dtype)
    if kind not in TABLE_KINDS:
        known = ", ".join((*TABLE_KINDS, *MATRIX_KINDS))
        ending = f"the ending {kind!r} is not known" if kind else "the name has no ending"
        raise DataError(f"{path}: cannot tell what it holds: {ending}; known are {known}")
    table = open_table(path)
    names = feature_columns(table, id_column, truth_column, listed(columns), listed(drop))
    features, wrong = table.numbers(names, dtype=dtype)
    if wrong is not None:
        raise DataError(not_a_number(path, wrong, dtype))
    if len(features) == 0:
        raise DataError(f"{path}: has a header but no rows; add a line per row")
    ids = None if id_column is None else integers_if_all(_texts(table, id_column, "an id"))
    labels = None if truth_column is None else _codes(_label_texts(table, truth_column, "a truth"))
    warn_about_columns(table, names, explicit=columns is not None)
    warn_about_points(table, names)
    with naming(path):
        name = path.name.partition(".")[0]
        return AttributedGraph(features, ids=ids, labels=labels, feature_names=tuple(names), name=name)


def read_labels(path: str | PathLike[str], *, column: str | None = None, id_column: str | None = None) -> LabelColumn:
    r"""Return the labels of a file, for comparing two clusterings or a clustering with the truth.

    A table has one column, or a column named cluster, label, class, target or y, or the one named by ``column``; a
    column named id gives the ids. A .npy file holds a 1-D array, an .npz file its y. Integers stay as they are, other
    labels become 0, 1, … in sorted order.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "labels.csv")
    ...     _ = path.write_text("id,cluster,confidence\na,1,0.9\nb,0,0.8\n")
    ...     found = read_labels(path)
    >>> found.labels.tolist(), found.ids.tolist()
    ([1, 0], ['a', 'b'])
    """
    path = existing_file(path)
    if kind_of(path) in (".npy", ".npz"):
        return LabelColumn(_label_array(path, column), None)
    table = open_table(path)
    column = _known(table, column, "column") if column is not None else _label_column(table)
    if id_column is None and "id" in table.names and column != "id":
        id_column = "id"
    ids = None if id_column is None else _texts(table, _known(table, id_column, "id column"), "an id")
    values = integers_if_all(_label_texts(table, column, "a label"))
    if len(values) == 0:
        raise DataError(f"{path}: has a header but no rows; add a line per row")
    if ids is not None and len(np.unique(ids)) < len(ids):
        raise DataError(f"{path}: column {id_column!r} names some rows more than once")
    return LabelColumn(values if values.dtype == np.int64 else _codes(values), ids)


def read_label_pairs(
    truth: str | PathLike[str], predicted: str | PathLike[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    r"""Return the labels of two files row by row: joined by ids where both have them, else by order.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     truth, found = Path(folder, "truth.csv"), Path(folder, "found.csv")
    ...     _ = truth.write_text("id,class\na,cat\nb,dog\n")
    ...     _ = found.write_text("id,cluster\nb,7\na,5\n")
    ...     [labels.tolist() for labels in read_label_pairs(truth, found)]
    [[1, 0], [7, 5]]
    """
    known, found = read_labels(truth), read_labels(predicted)
    if len(known.labels) != len(found.labels):
        raise DataError(
            f"{truth} has {len(known.labels)} labels and {predicted} has {len(found.labels)}: both must label the same "
            "rows"
        )
    if known.ids is None or found.ids is None:
        return known.labels, found.labels
    ids, asked = known.ids.astype(str), found.ids.astype(str)
    strange = asked[~np.isin(asked, ids)]
    if len(strange):
        first = ", ".join(repr(str(name)) for name in strange[:3])
        ids_are = "1 id is" if len(strange) == 1 else f"{len(strange)} ids are"
        raise DataError(
            f"{predicted}: {ids_are} not in {truth}; the first: {first}. "
            f"Ids there look like {str(ids[0])!r}: both files must name the same rows alike"
        )
    order = np.argsort(ids)
    return known.labels[order[np.searchsorted(ids, asked, sorter=order)]], found.labels


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


def listed(names: Sequence[str] | None) -> list[str] | None:
    """Return names as a list; one name may stand alone."""
    return [names] if isinstance(names, str) else None if names is None else list(names)


def _refuse_column_options(path: Path, id_column: str | None, columns: Any, drop: Any) -> None:
    given = {"--id": id_column, "--columns": columns, "--drop": drop}
    for option, value in given.items():
        if value is not None:
            raise DataError(f"{path}: {option} needs named columns, which a {kind_of(path)} file has not; use a table")


def feature_columns(
    table: Table, id_column: str | None, truth_column: str | None, columns: list[str] | None, drop: list[str] | None
) -> list[str]:
    """Return the names of a table's feature columns, or say which option names a column that is not there."""
    role: dict[str, str] = {}
    named = [("--id", [id_column]), ("--truth", [truth_column]), ("--columns", columns), ("--drop", drop)]
    for option, names in named:
        for name in names or []:
            if name is None:
                continue
            if role.setdefault(_known(table, name, option), option) != option:
                raise ConfigError(f"column {name!r} is named by both {role[name]} and {option}")
    kept = columns if columns is not None else [name for name in table.names if name not in role]
    if not kept:
        raise DataError(f"{table.path}: no feature column is left; its columns are {_shown(table.names)}")
    return list(dict.fromkeys(kept))


def _known(table: Table, name: str, option: str) -> str:
    if name in table:
        return name
    near = difflib.get_close_matches(name, table.names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise DataError(f"{table.path}: {option} names {name!r}, but the columns are {_shown(table.names)}{hint}")


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


def warn_about_columns(table: Table, names: Sequence[str], *, explicit: bool) -> None:
    """Warn about columns that are about to become features and do not look like features."""
    if not table.has_header:
        shown = _shown(table.names)
        _warn(f"{table.path}: the first line is all numbers, so it is read as data and the columns are named {shown}")
        return
    unnamed = {table.names[position] for position in table.unnamed}
    for name in () if explicit else names:
        if option := _NOT_FEATURES.get(name.lower()):
            _warn(f"{table.path}: column {name!r} is used as a feature; else say {option} {name} or --drop {name}")
        elif name in unnamed:
            _warn(f"{table.path}: a column without a name is used as feature {name!r}; else say --drop {name}")


def _warn(message: str) -> None:
    warnings.warn(message, DataWarning, stacklevel=4)


def not_a_number(path: Path, cell: Cell, dtype: str) -> str:
    """Return what is wrong with a cell that should be a feature, and what to do about it."""
    text, where = cell.text, f"{path}: {cell.where}"
    if text is None or text.lower() in MISSING:
        what = "is empty" if text is None else f"is {text!r}"
        return f"{where}: the cell {what}. {_NO_FILL}"
    if is_number_text(text) and not np.isfinite(float(text)):
        return f"{where}: the cell is {text!r}, not finite. {_NO_FILL}"
    if is_number_text(text) and abs(float(text)) > float(np.finfo(dtype).max):
        return f"{where}: {text} is too large for {dtype}; rescale the column"
    if readings := _readings(text):
        return f"{where}: {readings}. Write numbers with a decimal point and nothing between the thousands"
    return (
        f"{where}: {text!r} is not a number. Leave a text column out (--drop {cell.column}), "
        f"use it to name the rows (--id {cell.column}), or encode it as numbers"
    )


def _readings(text: str) -> str | None:
    """Return how a number with separators can be read, None where it is not such a number.

    Examples
    --------
    >>> _readings("70,600")
    "'70,600' is 70600 if the comma separates thousands, 70.6 if it is a decimal comma"
    >>> _readings("3,5")
    "'3,5' has a decimal comma: 3.5"
    """
    grouped = text.replace(",", "")
    decimal = text.replace(".", "").replace(",", ".")
    is_grouped, is_decimal = _THOUSANDS_COMMA.fullmatch(text) is not None, _DECIMAL_COMMA.fullmatch(text) is not None
    if is_grouped and is_decimal:
        return (
            f"{text!r} is {float(grouped):.15g} if the comma separates thousands, {float(decimal):.15g} if it is a "
            "decimal comma"
        )
    if is_decimal:
        return f"{text!r} has a decimal comma: {float(decimal):.15g}"
    if is_grouped:
        return f"{text!r} has commas between its thousands: {float(grouped):.15g}"
    if _THOUSANDS.fullmatch(text):
        return f"{text!r} has points between its thousands: {float(decimal):.15g}"
    return None


def warn_about_points(table: Table, names: Sequence[str]) -> None:
    """Warn about columns of text whose points may separate thousands: every one stands before three digits.

    Other tables write three decimals, so these cells are read with a decimal point; O(N) time for such columns alone.
    """
    if table.delimiter is None:
        suspects = [name for name, numeric in zip(table.names, table.numeric, strict=True) if not numeric]
        suspects = [name for name in names if name in suspects]
    else:
        seen = table.first_rows(max(20, _CELLS_LOOKED_AT // len(table.names)))
        suspects = [name for name in names if any(re.fullmatch(_WITH_POINTS, cell) for cell in seen[name])]
    for name in suspects:
        if (example := table.cell_if_all(name, _WHOLE_WITH_POINTS, example=_WITH_POINTS)) is not None:
            _warn(
                f"{table.path}: column {name!r}: {example} is read as {float(example):.15g}. If its point separates "
                f"thousands ({example.replace('.', '')}), remove the points: every cell of the column looks like that"
            )


def _texts(table: Table, column: str, what: str) -> NDArray[np.str_]:
    texts, empty = table.texts(column)
    if empty is not None:
        raise DataError(f"{table.path}: {empty.where}: the cell is empty; every row needs {what}")
    return texts


def _label_texts(table: Table, column: str, what: str) -> NDArray[np.str_]:
    texts = _texts(table, column, what)
    wrong = np.flatnonzero(np.isin(np.char.lower(texts), NOT_LABELS))
    if len(wrong):
        cell = table.cell(int(wrong[0]), column)
        raise DataError(f"{table.path}: {cell.where}: {cell.text!r} is not a class; every row needs {what}")
    return texts


def _codes(texts: NDArray[Any]) -> NDArray[np.int64]:
    return np.unique(integers_if_all(texts), return_inverse=True)[1].astype(np.int64)


def _label_column(table: Table) -> str:
    if len(table.names) == 1:
        return table.names[0]
    found = [name for name in table.names if name.lower() in _LABEL_NAMES]
    if len(found) == 1:
        return found[0]
    raise DataError(
        f"{table.path}: which column holds the labels? Expected one column, or one named {', '.join(_LABEL_NAMES)}; "
        f"found {_shown(table.names)}"
    )


def _label_array(path: Path, column: str | None) -> NDArray[np.int64]:
    if kind_of(path) == ".npy":
        values = np.asarray(load_matrix(path))
    else:
        arrays = load_arrays(path)
        name = column or ("y" if len(arrays) != 1 else next(iter(arrays)))
        if name not in arrays:
            raise DataError(f"{path}: has no array {name!r} of labels; found {', '.join(arrays) or 'none'}")
        values = arrays[name]
    if values.ndim != 1 or len(values) == 0:
        raise DataError(f"{path}: labels must be a 1-D array with a value per row, got shape {values.shape}")
    if values.dtype.kind in "iub":
        return values.astype(np.int64)
    check_labels(values, what=f"{path}: labels")
    return label_codes(integers_if_all(values), what=f"{path}: labels")
