"""The graph representation of pamc: a symmetric CSR matrix of float64 weights without diagonal."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.errors import DataWarning, warn

Adjacency: TypeAlias = "sp.csr_matrix[np.float64]"

# Relative difference up to which two weights are considered equal.
_ROUNDING = 1e-9


def build_adjacency(
    edges: NDArray[np.int64],
    edge_weight: NDArray[np.floating[Any]] | None = None,
    *,
    n_nodes: int,
    expect_directed: bool = False,
) -> Adjacency:
    """Return the (N, N) symmetric adjacency of an edge list, which may hold one or both directions of each pair.

    Self-loops are removed. A repeated edge counts once or, if there are weights, with the sum of its weights. Both
    directions of a pair then get the larger of their two weights. A warning reports how many edges this changes, except
    for an edge list with one direction of every pair, the usual way to store an undirected graph. A graph may have no
    edges. O(E log E) time, O(E) memory.

    Parameters
    ----------
    edges
        (2, E) row indices within 0 … N−1, as :func:`pamc.data.attributed_graph.check_edges` returns them.
    edge_weight
        (E,) positive weights, or None for all ones.
    n_nodes
        Number of nodes, N.
    expect_directed
        True for a nearest-neighbor list, in which one-way edges are expected: disables the warning about directions.

    Examples
    --------
    >>> build_adjacency(np.array([[0, 1], [1, 2]]), n_nodes=3).toarray()
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    """
    source, target = edges
    loops = source == target
    if n_loops := int(loops.sum()):
        _warn(f"{n_loops} of {len(source)} edges join a row with itself; these self-loops are left out")
    weight = np.ones(len(source)) if edge_weight is None else edge_weight.astype(np.float64)
    source, target, weight = source[~loops], target[~loops], weight[~loops]
    directed = sp.csr_matrix((weight, (source, target)), shape=(n_nodes, n_nodes))
    if n_repeated := len(source) - directed.nnz:
        rule = "count once" if edge_weight is None else "are merged, and their weights are added"
        _warn(f"{n_repeated} of {len(source)} edges repeat an earlier one of the same direction; repeated edges {rule}")
    if edge_weight is None:
        directed.data[:] = 1.0
    if not expect_directed and (n_one_way := _count_one_way(directed)):
        _warn(
            f"the edges are directed: {n_one_way} pairs have one direction only or two different weights, while others "
            "have both directions with equal weights; every edge is used in both directions, with the larger weight"
        )
    return symmetrize(directed)


def symmetrize(matrix: Adjacency) -> Adjacency:
    """Return the elementwise maximum of a weight matrix and its transpose. O(E) time and memory.

    Examples
    --------
    >>> symmetrize(sp.csr_matrix([[0.0, 2.0], [1.0, 0.0]])).toarray()
    array([[0., 2.],
           [2., 0.]])
    """
    return _canonical(matrix.maximum(matrix.T.tocsr()))


def merged_copies(adjacency: Adjacency, origin: NDArray[np.int64], n_nodes: int) -> Adjacency:
    """Return the mean weights (N, N) between the copies of any two rows; the diagonal is between copies of one row.

    O(E) time and memory.

    Parameters
    ----------
    adjacency
        (M, M) symmetric weights between copies of rows, with a zero diagonal.
    origin
        (M,) row that each copy belongs to.
    n_nodes
        Number of rows, N.

    Examples
    --------
    >>> copies = sp.csr_matrix([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    >>> merged_copies(copies, np.array([0, 0, 1]), 2).toarray()
    array([[1. , 0.5],
           [0.5, 0. ]])
    """
    ends: Any = adjacency.tocoo()
    i, j = origin[ends.row], origin[ends.col]
    counts = np.bincount(origin, minlength=n_nodes)
    n_pairs = counts[i] * (counts[j] - (i == j))
    return _canonical(sp.csr_matrix((ends.data / n_pairs, (i, j)), shape=(n_nodes, n_nodes)))


def with_self_loops(adjacency: Adjacency) -> Adjacency:
    """Return the matrix with every diagonal entry set to 1. O(E) time and memory.

    Examples
    --------
    >>> with_self_loops(sp.csr_matrix([[0.0, 2.0], [2.0, 0.0]])).toarray()
    array([[1., 2.],
           [2., 1.]])
    """
    off_diagonal = adjacency - sp.diags_array(adjacency.diagonal(), format="csr")
    return _canonical(off_diagonal + sp.eye_array(adjacency.shape[0], format="csr"))


def row_normalize(adjacency: Adjacency) -> Adjacency:
    """Return D⁻¹A, whose rows sum to 1; rows without entries stay empty. O(E) time and memory.

    Examples
    --------
    >>> row_normalize(sp.csr_matrix([[1.0, 3.0], [0.0, 0.0]])).toarray()
    array([[0.25, 0.75],
           [0.  , 0.  ]])
    """
    return _scale(adjacency, _inverse(_degrees(adjacency)), None)


def symmetric_normalize(adjacency: Adjacency) -> Adjacency:
    """Return D^(−½) A D^(−½); rows without entries stay empty. O(E) time and memory.

    Examples
    --------
    >>> symmetric_normalize(sp.csr_matrix([[0.0, 4.0], [4.0, 0.0]])).toarray()
    array([[0., 1.],
           [1., 0.]])
    """
    scale = _inverse(np.sqrt(_degrees(adjacency)))
    return _scale(adjacency, scale, scale)


def _count_one_way(directed: Adjacency) -> int:
    """Count the pairs whose two directions differ; 0 if no pair lists both, because the graph is then undirected."""
    reverse = directed.T.tocsr()
    if directed.multiply(reverse).nnz == 0:
        return 0
    difference = abs(directed - reverse) - _ROUNDING * directed.maximum(reverse)
    return int((difference.data > 0).sum()) // 2


def _degrees(matrix: Adjacency) -> NDArray[np.float64]:
    return np.asarray(matrix.sum(axis=1)).ravel()


def _inverse(values: NDArray[np.float64]) -> NDArray[np.float64]:
    # The inverse of a subnormal number overflows.
    return np.divide(1.0, values, out=np.zeros_like(values), where=values >= np.finfo(np.float64).tiny)


def _scale(matrix: Adjacency, row_scale: NDArray[np.float64], column_scale: NDArray[np.float64] | None) -> Adjacency:
    data = matrix.data * np.repeat(row_scale, np.diff(matrix.indptr))
    if column_scale is not None:
        data *= column_scale[matrix.indices]
    return sp.csr_matrix((data, matrix.indices.copy(), matrix.indptr.copy()), shape=matrix.shape)


def _canonical(matrix: Any) -> Adjacency:
    result = sp.csr_matrix(matrix, dtype=np.float64)
    result.sum_duplicates()
    result.eliminate_zeros()
    return result


def _warn(message: str) -> None:
    warn(DataWarning(message), stacklevel=3)
