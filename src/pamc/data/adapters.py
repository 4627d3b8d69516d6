"""Convert objects of other libraries to arrays or to an AttributedGraph.

A type is recognized by the package that defines it, so no optional package is imported for the check.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.attributed_graph import AttributedGraph, check_edges, check_sparse
from pamc.data.cells import cells_graph
from pamc.data.columns.encoding import TableEncoding
from pamc.data.columns.frames import as_frame, raw_table
from pamc.data.directed import DirectedEdges, directed_relations
from pamc.data.memberships import Memberships
from pamc.data.relations import Edges, joined, needs_relations
from pamc.data.rows import (
    MOST_NOTES,
    as_array,
    as_features,
    check_has_rows,
    comes_from,
    frame_graph,
    ids_of,
    index_ids,
    tensor_matrix,
)
from pamc.errors import DataError, DataWarning, warn


def as_edges(adjacency: Any, n_nodes: int, *, row_names: Any = None) -> Edges:
    """Return (2, E) edges and (E,) weights (None if all are 1) from any supported representation of a graph.

    Parameters
    ----------
    adjacency
        A scipy sparse, torch sparse or dense (N, N) matrix, whose nonzero entries are edges from row to column; an
        (E, 2) or (2, E) integer array; or a networkx graph whose nodes are the names of the rows, the integers 0 … N−1,
        or any N nodes in the order of the rows. Its edge weights are read from the attribute ``weight``. Or
        :class:`~pamc.data.memberships.Memberships` of the rows in groups.
    n_nodes
        Number of nodes, N.
    row_names
        (N,) names of the rows, such as the index of a data frame, or None.

    An ambiguous shape raises a DataError. O(E) time, O(N²) for a dense matrix.

    Examples
    --------
    >>> edges, weight = as_edges(np.array([[0, 1, 0], [1, 0, 2], [0, 2, 0]]), 3)
    >>> edges.tolist(), weight.tolist()
    ([[0, 1, 1, 2], [1, 0, 2, 1]], [1.0, 1.0, 2.0, 2.0])
    """
    if isinstance(adjacency, str | os.PathLike):
        raise DataError(
            f"adjacency is the text {os.fspath(adjacency)!r}, not a graph: read a file with "
            "pamc.data.readers.read_edges"
        )
    if isinstance(adjacency, Memberships):
        return adjacency.edges(n_nodes, row_names=row_names)
    if comes_from(adjacency, "networkx"):
        return _networkx_edges(adjacency, n_nodes, row_names)
    matrix = tensor_matrix(adjacency) if comes_from(adjacency, "torch") else adjacency
    if not sp.issparse(matrix):
        matrix = as_array(matrix, "adjacency")
        if not is_adjacency(matrix, n_nodes):
            return check_edges(orient_edge_list(matrix, n_nodes), n_nodes=n_nodes)
    return _adjacency_edges(matrix, n_nodes)


def from_object(obj: Any) -> AttributedGraph:
    """Return the graph of a networkx, torch_geometric or AnnData object, or the features that `as_features` accepts.

    From torch_geometric: x if there is one, edge_index, edge_weight or a one-column edge_attr, y; from a HeteroData
    with one type of nodes, the edges of each type as a relation. From AnnData: X, obs_names as ids, var_names,
    obsp["connectivities"] as edges. From networkx: as :func:`graph_alone`.

    Examples
    --------
    >>> from_object([[0.0, 1.0], [1.0, 0.0]]).n_nodes
    2
    """
    if isinstance(obj, AttributedGraph):
        return obj
    if comes_from(obj, "networkx"):
        return graph_alone(obj)
    check_has_rows(obj)
    if hasattr(obj, "edge_types") and comes_from(obj, "torch_geometric"):
        return _from_hetero(obj)
    if comes_from(obj, "torch_geometric") and not comes_from(obj, "torch"):
        return _from_torch_geometric(obj)
    if comes_from(obj, "anndata"):
        return cells_graph(obj)
    if (graph := frame_graph(obj)) is not None:
        return graph
    features, names, ids = as_features(obj)
    return AttributedGraph(features, ids=ids, feature_names=names)


def as_graph(
    X: Any,
    adjacency: Any = None,
    *,
    ids: Any = None,
    feature_names: Any = None,
    encoding: TableEncoding | None = None,
) -> AttributedGraph:
    """Return rows of any supported type as one graph without labels, with the given edges, ids and feature names.

    `encoding` is the encoding of a fitted model; it is applied to the columns of a data frame.
    """
    if encoding is not None and as_frame(X) is not None:
        table = raw_table(X, names={*encoding.raw_names, encoding.id_column or ""})
        about: dict[str, Any] = {"encoding": encoding, "cells": encoding.cells_of(table)}
        graph = AttributedGraph(encoding.encode(table), feature_names=encoding.feature_names, **about)
        if ids is None and encoding.id_column is not None and encoding.id_column in table:
            ids = ids_of(table, encoding.id_column)
        elif ids is None and comes_from(X, "pandas"):
            ids = index_ids(X)
    elif X is None:
        graph, adjacency = graph_alone(adjacency), None
    else:
        graph = from_object(X).without_labels()
    if adjacency is not None:
        if graph.edges is not None:
            raise DataError("X contains edges: leave out adjacency, or pass only the features as X")
        row_names = X.index if hasattr(X, "columns") and hasattr(X, "index") else None
        graph = with_adjacency(graph, adjacency, row_names=row_names)
    if ids is not None:
        graph = replace(graph, ids=np.asarray(ids))
    if feature_names is not None:
        graph = replace(graph, feature_names=tuple(feature_names))
    return graph


def with_adjacency(
    graph: AttributedGraph, adjacency: Any, *, row_names: Any = None, relation_weights: Any = None
) -> AttributedGraph:
    """Return the rows of a graph with the edges of `adjacency`, or of several relations if it is a dict.

    Parameters
    ----------
    graph
        The rows; their edges are replaced.
    adjacency
        A graph in any form that :func:`as_edges` accepts, or a dict of such graphs by the name of the relation, in
        which a relation may also be a pair of arrays (sources, targets). A
        :class:`~pamc.data.directed.DirectedEdges` gives several relations, whose names begin with the name in the dict.
    row_names
        (N,) names of the rows, or None.
    relation_weights
        A dict of the weights of the relations; None to find them from the data.
    """
    if isinstance(adjacency, DirectedEdges):
        adjacency = {"": adjacency}
    if not isinstance(adjacency, Mapping):
        if relation_weights is not None:
            raise needs_relations()
        edges, weight = as_edges(adjacency, graph.n_nodes, row_names=row_names)
        return replace(graph, edges=edges, edge_weight=weight, relations=None)
    parts: dict[str, Edges] = {}
    for name, part in adjacency.items():
        parts |= _relation_edges(name, part, graph.n_nodes, row_names)
    edges, weight, relations = joined(parts, relation_weights)
    return replace(graph, edges=edges, edge_weight=weight, relations=relations)


def _relation_edges(name: Any, adjacency: Any, n_nodes: int, row_names: Any) -> dict[str, Edges]:
    """Return the edges of one relation, or of the relations of directed edges, by name; an error names the relation."""
    try:
        if isinstance(adjacency, DirectedEdges):
            if comes_from(adjacency.adjacency, "networkx") and not adjacency.adjacency.is_directed():
                raise DataError("the networkx graph is undirected: pass it without DirectedEdges")
            ends = as_edges(adjacency.adjacency, n_nodes, row_names=row_names)
            found = directed_relations(*ends, n_nodes, kinds=adjacency.kinds)
            return {f"{name} {kind}".strip(): part for kind, part in found.items()}
        if isinstance(adjacency, tuple) and len(adjacency) == 2:
            sides = [np.ravel(tensor_matrix(end) if comes_from(end, "torch") else end) for end in adjacency]
            if len(sides[0]) != len(sides[1]):
                raise DataError(f"there are {len(sides[0])} sources for {len(sides[1])} targets")
            return {name: check_edges(np.stack(sides), n_nodes=n_nodes)}
        return {name: as_edges(adjacency, n_nodes, row_names=row_names)}
    except DataError as error:
        raise (DataError(f"relation {name!r}: {error}") if name else error) from error


def graph_alone(adjacency: Any) -> AttributedGraph:
    """Return a graph as rows without features, or with the numeric attributes of its nodes as features.

    Parameters
    ----------
    adjacency
        A networkx graph, whose nodes are the ids of the rows; a scipy sparse, torch sparse or dense (N, N) matrix; or
        an (E, 2) or (2, E) array of row indices, the largest of which is N − 1.

    Examples
    --------
    >>> graph = graph_alone([[0, 1], [1, 2], [0, 2]])
    >>> graph.n_nodes, graph.n_features, graph.n_edges
    (3, 0, 3)
    """
    if comes_from(adjacency, "networkx"):
        return _from_networkx(adjacency)
    if isinstance(adjacency, Mapping | DirectedEdges):
        raise DataError("several relations need the rows that they join: pass X, or combine them into one graph")
    matrix = tensor_matrix(adjacency) if comes_from(adjacency, "torch") else adjacency
    if not sp.issparse(matrix) and not isinstance(matrix, str | os.PathLike):
        matrix = as_array(matrix, "adjacency")
    n_nodes = 0
    if getattr(matrix, "ndim", 0) == 2:
        is_list = matrix.shape[0] != matrix.shape[1] and not sp.issparse(matrix)
        n_nodes = matrix.shape[0] if not is_list else int(matrix.max()) + 1 if matrix.size else 2
    edges, weight = as_edges(matrix, n_nodes)
    return AttributedGraph(np.empty((n_nodes, 0), dtype=np.float32), edges=edges, edge_weight=weight)


def _from_networkx(graph: Any) -> AttributedGraph:
    if len(graph) == 0:
        raise DataError("the networkx graph has no nodes: there are no rows to cluster")
    if graph.is_directed():
        warn(DataWarning("the graph is directed: every edge is used in both directions"), stacklevel=4)
    names = list(graph.nodes)
    edges, weight = _networkx_edges(graph, len(names), names)
    features, columns = _node_attributes([graph.nodes[name] for name in names])
    ids = None if names == list(range(len(names))) else np.array([str(name) for name in names])
    return AttributedGraph(features, edges=edges, edge_weight=weight, ids=ids, feature_names=columns or None)


def _node_attributes(nodes: Sequence[Mapping[Any, Any]]) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return the numeric attributes of nodes as columns, NaN where missing, and their names; warn about the others."""
    columns: dict[str, list[float]] = {}
    others = []
    for name in dict.fromkeys(name for node in nodes for name in node):
        values = [node.get(name) for node in nodes]
        if all(value is None or isinstance(value, int | float | np.number) for value in values):
            columns[str(name)] = [np.nan if value is None else float(value) for value in values]
        else:
            others.append(repr(name))
    if others:
        warn(
            DataWarning(
                f"node attributes that are not numbers are left out: {', '.join(others[:MOST_NOTES])}. To use them, "
                "pass a data frame with a row for each node as X"
            ),
            stacklevel=5,
        )
    return np.array(list(columns.values())).reshape(len(columns), len(nodes)).T, tuple(columns)


def is_adjacency(array: NDArray[Any], n_nodes: int) -> bool:
    """Return whether a dense array is an (N, N) adjacency matrix; N = 2 is ambiguous and returns False."""
    return array.shape == (n_nodes, n_nodes) and n_nodes != 2


def orient_edge_list(array: NDArray[Any], n_nodes: int) -> NDArray[Any]:
    """Return an (E, 2) or (2, E) array as (2, E); raise DataError if its shape cannot be an edge list.

    Examples
    --------
    >>> orient_edge_list(np.array([[0, 1], [1, 2], [2, 3]]), 4).tolist()
    [[0, 1, 2], [1, 2, 3]]
    """
    shape = array.shape
    if array.ndim != 2:
        raise DataError(f"a graph must be an (N, N) matrix or an (E, 2) or (2, E) array, got shape {shape}")
    if shape == (2, 2):
        raise DataError(
            "an array of shape (2, 2) could be an adjacency matrix or two edges: pass a scipy sparse matrix, "
            "or add another edge"
        )
    if 2 not in shape or _looks_sliced(array, n_nodes):
        raise _wrong_matrix_shape(shape, n_nodes)
    if array.dtype.kind not in "iuU":
        raise DataError(
            f"an edge list holds row indices (integers), got shape {shape} with dtype {array.dtype}; "
            "convert it with .astype(int)"
        )
    return array if shape[0] == 2 else array.T


def _looks_sliced(array: NDArray[Any], n_nodes: int) -> bool:
    """Return whether two rows or columns of an adjacency are more likely than N edges between nodes 0 and 1."""
    return n_nodes > 2 and n_nodes in array.shape and array.dtype.kind in "iufb" and bool(np.isin(array, (0, 1)).all())


def _wrong_matrix_shape(shape: tuple[int, ...], n_nodes: int) -> DataError:
    n_rows, n_columns = shape
    if n_rows == n_columns:
        return DataError(
            f"the adjacency matrix is {n_rows} × {n_columns}, but the features have {n_nodes} rows: it needs one "
            "row and one column for each of them, in the same order"
        )
    if n_nodes in shape:
        return DataError(
            f"a matrix of shape {shape} for {n_nodes} rows of features looks like a row-sliced adjacency: "
            "slice rows and columns alike, A[rows][:, rows]"
        )
    return DataError(
        f"a graph on {n_nodes} rows must be a ({n_nodes}, {n_nodes}) matrix or an (E, 2) or (2, E) array, "
        f"got shape {shape}"
    )


def _adjacency_edges(matrix: Any, n_nodes: int) -> Edges:
    if matrix.shape != (n_nodes, n_nodes):
        raise _wrong_matrix_shape(matrix.shape, n_nodes)
    if matrix.dtype.kind not in "fiub":
        raise DataError(f"an adjacency matrix must hold real numbers, got dtype {matrix.dtype}")
    if sp.issparse(matrix):
        check_sparse(matrix, what="the adjacency matrix")
        # The constructor drops entries after the last row, which tocoo would read as edges.
        stored = type(matrix)(matrix).tocoo()
        edges, weight = np.stack([stored.row, stored.col]), stored.data
    else:
        edges = np.stack(np.nonzero(matrix))
        weight = matrix[tuple(edges)]
    present = weight != 0
    edges, weight = edges[:, present], weight[present]
    return check_edges(edges, None if (weight == 1).all() else weight, n_nodes=n_nodes)


def _networkx_edges(graph: Any, n_nodes: int, row_names: Any) -> Edges:
    if len(graph) != n_nodes:
        raise DataError(f"the networkx graph has {len(graph)} nodes, but the features have {n_nodes} rows")
    position = _rows_of_nodes(list(graph.nodes), [] if row_names is None else list(row_names))
    listed_edges = [(position[a], position[b], weight) for a, b, weight in graph.edges(data="weight", default=1)]
    edges = np.array([(a, b) for a, b, _ in listed_edges], dtype=np.int64).reshape(-1, 2).T
    try:
        weight = np.array([weight for _, _, weight in listed_edges], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"the edge attribute 'weight' of the networkx graph must be numbers ({error})") from error
    return check_edges(edges, None if (weight == 1).all() else weight, n_nodes=n_nodes)


def _rows_of_nodes(nodes: list[Any], row_names: list[Any]) -> dict[Any, int]:
    """Return the row of each node, matched by row names, else by integer, else by order (with a warning)."""
    if set(nodes) == set(row_names):
        return {name: row for row, name in enumerate(row_names)}
    if set(nodes) == set(range(len(nodes))):
        return {node: node for node in nodes}
    warnings.warn(
        f"the nodes of the networkx graph are neither row numbers nor row names; they are matched to rows by order: "
        f"{nodes[0]!r} is row 0, {nodes[-1]!r} row {len(nodes) - 1}",
        DataWarning,
        stacklevel=5,
    )
    return {node: row for row, node in enumerate(nodes)}


def _from_torch_geometric(data: Any) -> AttributedGraph:
    x, edge_index = getattr(data, "x", None), getattr(data, "edge_index", None)
    if edge_index is None and getattr(data, "adj_t", None) is not None:
        raise DataError("the torch_geometric data has adj_t, not edge_index: leave out the ToSparseTensor transform")
    if x is None and edge_index is None:
        raise DataError(f"the torch_geometric {type(data).__name__} has neither x nor edge_index: nothing to cluster")
    features = _no_features(data) if x is None else tensor_matrix(x)
    labels = _attribute(data, ["y"], features.shape[0], "one label per node")
    if edge_index is None:
        return AttributedGraph(features, labels=labels)
    edges = tensor_matrix(edge_index)
    weight = _attribute(data, ["edge_weight", "edge_attr"], edges.shape[1], "one weight per edge")
    return AttributedGraph(features, edges=edges, edge_weight=weight, labels=labels)


def _no_features(data: Any) -> NDArray[np.float32]:
    """Return an (N, 0) array for torch_geometric data without x, where N is `num_nodes` or covers all edges."""
    edges = tensor_matrix(data.edge_index)
    n_nodes = data.num_nodes if "num_nodes" in data else int(edges.max(initial=-1)) + 1
    return np.empty((n_nodes, 0), dtype=np.float32)


def _from_hetero(data: Any) -> AttributedGraph:
    """Return the graph of a HeteroData with one type of nodes; its types of edges are relations."""
    if len(data.node_types) != 1:
        types = ", ".join(map(repr, data.node_types))
        raise DataError(f"the HeteroData has {len(data.node_types)} types of nodes ({types}): keep one of them")
    nodes = data[data.node_types[0]]
    if getattr(nodes, "x", None) is None:
        raise DataError("the HeteroData has no x: there are no features to cluster")
    features = tensor_matrix(nodes.x)
    graph = AttributedGraph(features, labels=_attribute(nodes, ["y"], features.shape[0], "one label per node"))
    parts = {}
    for edge_type in data.edge_types:
        store, name = data[edge_type], edge_type[1]
        edges = tensor_matrix(store.edge_index)
        weight = _attribute(store, ["edge_weight", "edge_attr"], edges.shape[1], "one weight per edge")
        parts[name] = check_edges(edges, weight, n_nodes=graph.n_nodes)
    if not parts:
        return graph
    edges, weight, relations = joined(parts)
    return replace(graph, edges=edges, edge_weight=weight, relations=relations)


def split_by_attribute(graph: Any, attribute: str) -> dict[Any, Any]:
    """Return a networkx graph of all nodes for each value of an edge attribute, to be passed to `fit` as relations.

    Examples
    --------
    >>> import networkx as nx
    >>> graph = nx.MultiGraph([(0, 1, {"kind": "cites"}), (0, 1, {"kind": "tags"}), (1, 2, {"kind": "tags"})])
    >>> {kind: part.number_of_edges() for kind, part in split_by_attribute(graph, "kind").items()}
    {'cites': 1, 'tags': 2}
    """
    parts: dict[Any, Any] = {}
    for source, target, values in graph.edges(data=True):
        if attribute not in values:
            raise DataError(f"the edge {source!r}–{target!r} of the networkx graph has no attribute {attribute!r}")
        kind = values[attribute]
        if kind not in parts:
            parts[kind] = graph.__class__()
            parts[kind].add_nodes_from(graph.nodes)
        parts[kind].add_edge(source, target, **values)
    return parts


def _attribute(data: Any, names: Sequence[str], size: int, meaning: str) -> NDArray[Any] | None:
    """Return the first attribute with `size` values, or None; warn about an attribute of another size."""
    for name in names:
        if getattr(data, name, None) is None:
            continue
        values = tensor_matrix(getattr(data, name))
        if values.size == size:
            return np.asarray(values).reshape(size)
        warnings.warn(f"{name} of shape {values.shape} is not {meaning} and is ignored", DataWarning, stacklevel=4)
    return None
