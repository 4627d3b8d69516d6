"""Read features, and optionally edges, into a validated AttributedGraph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.columns.encoding import fit_encoding
from pamc.data.columns.raw import MISSING_NUMBERS, RawTable
from pamc.data.columns.types import Types, find_types
from pamc.data.database import connected, load_duckdb
from pamc.data.directed import directed_relations
from pamc.data.files import check_memory, existing_file, kind_of, naming
from pamc.data.readers.columns import (
    check_has_rows,
    feature_columns,
    id_texts,
    integers_if_all,
    label_texts,
    warn_about_columns,
    warn_about_points,
)
from pamc.data.readers.edges import read_edge_graph, read_edges, read_memberships
from pamc.data.readers.format import Matrix, format_of, open_table, wrong_ending
from pamc.data.readers.labels import codes_of
from pamc.data.readers.tables import Cell, Table, not_a_number
from pamc.data.relations import joined, needs_relations, same_name
from pamc.data.rows import table_graph
from pamc.errors import ConfigError, DataError


def read_graph(
    features_path: str | PathLike[str] | None = None,
    *,
    edges: str | PathLike[str] | Mapping[str, str | PathLike[str]] | None = None,
    members: Mapping[str, str | PathLike[str]] | None = None,
    directed: Mapping[str, str | PathLike[str]] | None = None,
    relation_weights: Mapping[str, float] | None = None,
    id_column: str | None = None,
    truth_column: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    types: Types | None = None,
    dtype: str = "float32",
) -> AttributedGraph:
    r"""Read the features of one file and the edges of another, or a graph without features from a file of edges alone.

    Edges refer to ids if the rows have ids, else to row numbers from 0. An edge file replaces the edges stored in an
    .npz file of features. For several relations, pass a dict of edge files by name; `members` is a dict of files of
    (row, group) pairs, which join rows that share a group. `directed` is a dict of edge files whose direction
    is used (:class:`~pamc.data.directed.DirectedEdges`). `relation_weights` are those of `PamCGC.fit`. The other
    options are those of `read_features`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     people, friends = Path(folder, "people.csv"), Path(folder, "friends.csv")
    ...     _ = people.write_text("name,age,size\nann,31,7\nbob,25,8\n")
    ...     _ = friends.write_text("source,target\nbob,ann\n")
    ...     graph = read_graph(people, edges=friends, id_column="name")
    >>> graph.ids.tolist(), graph.feature_names, graph.edges.tolist()
    (['ann', 'bob'], ('age', 'size'), [[1], [0]])
    """
    options: dict[str, Any] = {"columns": columns, "drop": drop, "types": types, "dtype": dtype}
    if features_path is None:
        if isinstance(edges, Mapping) or members or directed or relation_weights:
            raise ConfigError("several relations and memberships need a file of rows")
        if edges is None:
            raise ConfigError("there is nothing to read: give a file of rows, a file of edges, or both")
        roles: dict[str, Any] = {"--id": id_column, "--truth": truth_column}
        _refuse_columns({**roles, "--columns": columns, "--drop": drop, "--types": types})
        return read_edge_graph(edges)
    graph = read_features(features_path, id_column=id_column, truth_column=truth_column, **options)
    if not isinstance(edges, Mapping) and not members and not directed:
        if relation_weights is not None:
            raise needs_relations()
        if edges is None:
            return graph
        pairs, weight = read_edges(edges, graph.ids, graph.n_nodes)
        return replace(graph, edges=pairs, edge_weight=weight)
    of_name = {} if edges is None else edges if isinstance(edges, Mapping) else {"edges": edges}
    parts = {name: read_edges(path, graph.ids, graph.n_nodes) for name, path in of_name.items()}
    for name, path in (members or {}).items():
        if name in parts:
            raise same_name(name)
        parts[name] = read_memberships(path, graph.ids, graph.n_nodes)
    for name, path in (directed or {}).items():
        with naming(existing_file(path)):
            found = directed_relations(*read_edges(path, graph.ids, graph.n_nodes), graph.n_nodes)
        for kind, part in found.items():
            if f"{name} {kind}" in parts:
                raise same_name(f"{name} {kind}")
            parts[f"{name} {kind}"] = part
    pairs, weight, relations = joined(parts, relation_weights)
    return replace(graph, edges=pairs, edge_weight=weight, relations=relations)


def _refuse_columns(options: dict[str, Any]) -> None:
    """Raise ConfigError if an option is set that applies to the columns of rows."""
    named = [name for name, value in options.items() if value]
    if named:
        raise ConfigError(
            f"{', '.join(named)} applies to columns of rows, but there are only edges: add a file of rows"
        )


def read_features(
    path: str | PathLike[str],
    *,
    id_column: str | None = None,
    truth_column: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    types: Types | None = None,
    numbers_only: bool = False,
    dtype: str = "float32",
) -> AttributedGraph:
    r"""Read the rows of one file; raise DataError naming invalid cells and how to fix them.

    A table of numbers is read as it is, with NaN for missing cells. If a column is not numeric, the types of all
    columns are inferred from the cells (:func:`~pamc.data.columns.types.find_types`), and the table is encoded.

    Parameters
    ----------
    path
        A table or a matrix file. An .npz or svmlight file may also contain edges and labels.
    id_column
        Column with the ids of the rows (tables only).
    truth_column
        Column of known classes, strings or numbers, which is encoded as labels 0, 1, … in sorted order and never used
        as a feature. For an .npz file, the name of an array, "y" by default. For svmlight, "label" selects its targets,
        which are not labels by default.
    columns
        Feature columns (tables only); all remaining columns by default.
    drop
        Columns to ignore (tables only).
    types
        Types of columns by name, which override the inferred types (tables only).
    numbers_only
        Whether to raise an error for a cell that is neither a plain number nor missing, instead of inferring types.
    dtype
        Data type of the features, "float32" or "float64".

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
    file_format = format_of(path)
    if file_format is None or not file_format.gives("features"):
        raise wrong_ending(path, "features")
    if file_format.read_features is not None:
        for option, value in {"--id": id_column, "--columns": columns, "--drop": drop, "--types": types}.items():
            if value:
                raise DataError(f"{path}: {option} needs named columns, which a {kind_of(path)} file does not have")
        return _graph_of_matrix(path, file_format.read_features(path, truth_column), dtype)
    table = open_table(path)
    names = feature_columns(table, id_column, truth_column, columns, drop)
    graph = _graph_of_table(table, names, id_column, truth_column, types, dtype, numbers_only=numbers_only)
    if graph.encoding is None:
        warn_about_columns(table, names, explicit=columns is not None)
        warn_about_points(table, names)
    return graph


def _graph_of_matrix(path: Path, matrix: Matrix, dtype: str) -> AttributedGraph:
    features = matrix.features
    if features.ndim == 2:
        check_memory(path, *features.shape)
    if features.dtype.kind in "fiub":
        # Values that overflow float32 become inf, which AttributedGraph rejects with row and column.
        with np.errstate(over="ignore"):
            features = features.astype(dtype, copy=False)
    with naming(path):
        return AttributedGraph(features, name=_name_of(path), **dict(list(matrix._asdict().items())[1:]))


def _graph_of_table(
    table: Table,
    names: list[str],
    id_column: str | None,
    truth_column: str | None,
    types: Types | None,
    dtype: str,
    *,
    numbers_only: bool,
) -> AttributedGraph:
    features, wrong = table.numbers(names, dtype=dtype)
    check_has_rows(table, len(features))
    others: dict[str, Any] = {"name": _name_of(table.path)}
    others["ids"] = None if id_column is None else integers_if_all(id_texts(table, id_column))
    others["labels"] = None if truth_column is None else codes_of(label_texts(table, truth_column, "a true class"))
    text = None if wrong is None else _first_text(table, names, dtype)
    if text is not None and numbers_only:
        raise not_a_number(table.path, text, dtype)
    if types or text is not None:
        return table_graph(raw_columns(table, names), types, **others)
    with naming(table.path):
        return AttributedGraph(features, feature_names=tuple(names), **others)


def _first_text(table: Table, names: Sequence[str], dtype: str) -> Cell | None:
    """Return the first cell that is neither a plain number nor missing; raise DataError for a number out of range."""
    for name in names:
        texts, numbers = table.cells(name)
        is_number = np.abs(numbers) <= np.finfo(dtype).max
        for row in np.flatnonzero(~is_number & (texts != None)):  # noqa: E711
            if np.isfinite(numbers[row]):
                raise not_a_number(table.path, table.cell(int(row), name), dtype)
            if texts[row].lower() not in MISSING_NUMBERS:
                return table.cell(int(row), name)
    return None


def raw_columns(table: Table, names: Sequence[str]) -> RawTable:
    """Return columns of a file as raw columns, whose types are not inferred yet."""
    load_duckdb("tables are read")
    with connected() as connection:
        columns = [table.raw_column(name, connection) for name in names]

    def where(row: int) -> str:
        line = table.cell(row, table.names[0]).line
        return f"row {row}" if line is None else f"line {line}"

    return RawTable(columns, len(columns[0]), str(table.path), where)


def describe_table(
    path: str | PathLike[str],
    *,
    id_column: str | None = None,
    truth_column: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    types: Types | None = None,
) -> list[dict[str, Any]]:
    """Describe the columns of a file: name, type, encoding, share of missing cells, example and note of each.

    Types are inferred for every table, even for a table of plain numbers, which a fit would use as it is. The options
    are those of `read_features`.
    """
    table = open_table(path)
    names = feature_columns(table, id_column, truth_column, columns, drop)
    raw = raw_columns(table, names)
    return list(fit_encoding(raw, find_types(raw, types))[0].table)


def _name_of(path: Path) -> str:
    return path.name.partition(".")[0]
