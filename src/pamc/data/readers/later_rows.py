"""Read rows that were added to a table later, with the columns of the model that was fitted to the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.columns.encoding import TableEncoding
from pamc.data.files import existing_file
from pamc.data.readers.columns import find_rows, id_texts, integers_if_all
from pamc.data.readers.edges import read_edges
from pamc.data.readers.features import raw_columns, read_features
from pamc.data.readers.format import is_table, open_table
from pamc.errors import DataError


@dataclass(frozen=True)
class FittedColumns:
    """The columns that a model was fitted to.

    Parameters
    ----------
    names
        Names of the feature columns, or None.
    id_column
        Column of the row ids, or None.
    encoding
        Encoding of a table of mixed types, None for plain numbers.
    """

    names: tuple[str, ...] | None = None
    id_column: str | None = None
    encoding: TableEncoding | None = None


def with_later_rows(
    first: AttributedGraph | None,
    paths: Sequence[str | PathLike[str]],
    columns: FittedColumns,
    edges: Sequence[str | PathLike[str]] = (),
) -> AttributedGraph:
    """Return rows together with the rows of later files; a later row replaces an earlier row with the same id.

    Parameters
    ----------
    first
        The earlier rows; None for the later rows alone.
    paths
        Files of rows, oldest first.
    columns
        The columns of the model.
    edges
        Files of additional edges, between any of the rows.
    """
    graph = first
    for path in paths:
        graph = _appended(graph, _read(Path(path), columns))
    if graph is None:
        raise DataError("no rows were given: name a file of new rows")
    for path in edges:
        graph = _with_edges(graph, Path(path))
    return graph


def _read(path: Path, columns: FittedColumns) -> AttributedGraph:
    """Return the rows of a file, with the columns of the model and without classes."""
    encoding = columns.encoding
    if not is_table(existing_file(path)):
        graph = read_features(path)
        return AttributedGraph(graph.features, feature_names=columns.names)
    table = open_table(path)
    if columns.id_column is not None and columns.id_column not in table:
        raise DataError(f"{path}: has no column {columns.id_column!r}, which holds the ids of the rows of the run")
    if encoding is None:
        names = list(columns.names or ()) or None
        graph = read_features(path, id_column=columns.id_column, columns=names, numbers_only=True)
        return replace(graph, feature_names=columns.names or graph.feature_names)
    raw = raw_columns(table, [name for name in encoding.raw_names if name in table] or table.names[:1])
    ids = None if columns.id_column is None else integers_if_all(id_texts(table, columns.id_column))
    about: dict[str, Any] = {"encoding": encoding, "cells": encoding.cells_of(raw), "name": path.stem}
    return AttributedGraph(encoding.encode(raw), ids=ids, feature_names=encoding.feature_names, **about)


def _appended(graph: AttributedGraph | None, later: AttributedGraph) -> AttributedGraph:
    """Return the rows of two graphs; later rows replace earlier ones with the same id."""
    if graph is None:
        return later
    if graph.n_features != later.n_features:
        raise DataError(f"the new rows have {later.n_features} features, but those of the run have {graph.n_features}")
    if graph.ids is None or later.ids is None:
        place, is_new = np.empty(later.n_nodes, dtype=np.int64), np.ones(later.n_nodes, dtype=bool)
        ids = None
    else:
        place, is_new = find_rows(later.ids, graph.ids)
        ids = _joined_ids(graph.ids, later.ids[is_new])

    def stacked(old: Any, new: Any) -> Any:
        values = old.copy()
        values[place[~is_new]] = new[~is_new]
        is_sparse = sp.issparse(old)
        return sp.vstack([values, new[is_new]], format="csr") if is_sparse else np.concatenate([values, new[is_new]])

    cells = graph.cells
    if cells is not None and later.cells is not None:
        cells = {name: stacked(values, later.cells[name]) for name, values in cells.items()}
    features = stacked(graph.features, later.features.astype(graph.features.dtype))
    return replace(graph, features=features, ids=ids, labels=None, cells=cells)


def _joined_ids(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    if (old.dtype.kind in "iu") != (new.dtype.kind in "iu"):
        old, new = old.astype(str), new.astype(str)
    return np.concatenate([old, new])


def _with_edges(graph: AttributedGraph, path: Path) -> AttributedGraph:
    """Return the graph with the edges of a file, which refer to ids or row numbers, added to its own."""
    pairs, weight = read_edges(path, graph.ids, graph.n_nodes)
    if graph.edges is None:
        return replace(graph, edges=pairs, edge_weight=weight)
    old_weight = np.ones(graph.n_edges) if graph.edge_weight is None else graph.edge_weight
    weights = np.concatenate([old_weight, np.ones(pairs.shape[1]) if weight is None else weight])
    return replace(graph, edges=np.concatenate([graph.edges, pairs], axis=1), edge_weight=weights)
