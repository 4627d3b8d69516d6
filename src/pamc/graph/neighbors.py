"""Nearest neighbors of rows, which form the graph of data without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from pamc.data.attributed_graph import Features
from pamc.errors import ConfigError, DataWarning, UnknownNameError, warn
from pamc.graph.adjacency import Adjacency, build_adjacency
from pamc.graph.distances import (
    SPACES,
    Space,
    SparseSpace,
    copies,
    inverse_power_of_two,
    is_crowded,
    nearest_of,
    spread_copies,
    without_self,
)
from pamc.graph.neighbor_index import search_index
from pamc.graph.smoothing import on_sphere
from pamc.runtime import seed_for

Integers: TypeAlias = "NDArray[np.int64]"

# Name of the metric that compares rows along their leading directions, and the number of these directions.
ANGLE = "angle"
DIRECTIONS = 50

# Name of the search method that compares all rows.
EXACT = "exact"

# Maximum number of rows for an exact search by angle. The number for a GPU is an estimate from the speed of products.
MOST_EXACT_ROWS = {"cpu": 50_000, "cuda": 300_000}

# Recall below which a warning is issued.
LEAST_RECALL = 0.9

# Fraction of nonzero features above which a dense product is faster than a sparse one.
_DENSE_SHARE = 0.1

_CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Nearest neighbors and their recall.

    Parameters
    ----------
    edges
        (2, N·k) directed edges from each row to its neighbors, nearest first.
    recall
        Fraction of the edges that lead to one of the k nearest rows; 1 for an exact search, else measured on a sample.
    method
        "exact", or the number of probed cells of an index.
    """

    edges: Integers
    recall: float
    method: str


def nearest(
    rows: Features,
    n_neighbors: int,
    *,
    metric: str = "euclidean",
    device: torch.device = _CPU,
    seed: int = 0,
    most_exact_rows: int | None = None,
) -> Neighbors:
    """Return directed edges from each row to its k nearest other rows, nearest first.

    An exact search compares all rows by a matrix product with a bound on its rounding error, and then the candidates by
    distances computed one by one in float64, so the result does not depend on the number of threads. Ties are broken
    by the lower index. Copies of a row are its neighbors; the row itself never is. With ``"cosine"``, a zero row has
    similarity 0 to every row. O(N²·d) time, O(N·(d + k)) memory and a few blocks of distances, never N × N.

    The angles of many rows are compared by an approximate index (:func:`~pamc.graph.neighbor_index.search_index`). A
    warning is issued if less than 90 % of the edges lead to one of the k nearest rows.

    Parameters
    ----------
    rows
        (N, d) finite features, dense or CSR; for ``"angle"``, a dense array of coordinates in leading directions.
    n_neighbors
        Number of neighbors, k, at least 1. If k ≥ N, all other rows are neighbors and a warning is issued.
    metric
        ``"euclidean"``, which orders rows like SDCN's "heat" kernel; ``"cosine"``; or ``"angle"`` between rows in
        their 50 leading directions (:func:`~pamc.graph.smoothing.on_sphere`).
    device
        Device on which dense rows are compared.
    seed
        Random seed of the index.
    most_exact_rows
        Maximum number of rows for which ``"angle"`` is exact; None for 50,000, or 300,000 on a GPU.

    Examples
    --------
    >>> nearest(np.array([[0.0], [1.0], [3.0], [9.0]]), 1).edges
    array([[0, 1, 2, 3],
           [1, 0, 1, 2]])
    """
    n_nodes = rows.shape[0]
    n_neighbors = _check_n_neighbors(n_neighbors, n_nodes)
    if metric not in (ANGLE, *SPACES):
        raise UnknownNameError("metric", metric, (ANGLE, *SPACES))
    most_exact_rows = MOST_EXACT_ROWS[device.type] if most_exact_rows is None else most_exact_rows
    is_approximate = metric == ANGLE and n_nodes > max(most_exact_rows, 1)
    if metric == ANGLE:
        rows, metric = on_sphere(np.asarray(rows[:, :DIRECTIONS])), "euclidean"
    if is_approximate:
        targets, recall, method = search_index(rows, n_neighbors, seed=seed_for(seed, "neighbors"), device=device)
        if recall < LEAST_RECALL:
            warning = DataWarning(
                f"only {recall:.0%} of the edges of the kNN graph lead to one of the {n_neighbors} nearest rows: "
                f"the {n_nodes} rows are spread too evenly. metric='euclidean' compares all rows, which is slow"
            )
            warn(warning, stacklevel=2)
    else:
        targets, recall, method = _compare_all(rows, n_neighbors, metric, device), 1.0, EXACT
    edges = np.stack([np.repeat(np.arange(n_nodes), n_neighbors), targets.ravel()])
    return Neighbors(edges, recall, method)


def knn_adjacency(
    rows: NDArray[np.float64], n_neighbors: int, device: torch.device = _CPU, *, seed: int = 0
) -> Adjacency:
    """Return the symmetric kNN graph of rows by angle."""
    edges = nearest(rows, n_neighbors, metric=ANGLE, device=device, seed=seed).edges
    return build_adjacency(edges, None, n_nodes=len(rows), expect_directed=True)


def _check_n_neighbors(n_neighbors: int, n_nodes: int) -> int:
    """Return min(k, N − 1), with a warning if k is too large."""
    if n_neighbors < 1:
        raise ConfigError(f"n_neighbors must be at least 1, got {n_neighbors}")
    if n_neighbors >= n_nodes:
        warning = DataWarning(
            f"n_neighbors={n_neighbors}, but each of the {n_nodes} rows has only {n_nodes - 1} others: all are used"
        )
        warn(warning, stacklevel=3)
    return min(n_neighbors, n_nodes - 1)


def _compare_all(features: Features, n_neighbors: int, metric: str, device: torch.device) -> Integers:
    """Return the (N, k) nearest other rows of each row, computed exactly."""
    rows = _scaled(features)
    copy_of, first = copies(rows)
    # One more than k, because a row may be its own nearest neighbor.
    n_wanted = n_neighbors + 1
    space = _space(rows[first], metric, n_wanted, device)
    index, distance = nearest_of(space, torch.arange(len(space), device=space.device), n_wanted)
    return without_self(spread_copies(index, distance, copy_of, n_wanted))


def _scaled(features: Features) -> Any:
    """Return the rows in float64, scaled to values of at most 1 so that no square overflows.

    Multiplication by a power of two is exact and preserves the order.
    """
    if isinstance(features, np.ndarray):
        return np.ascontiguousarray(features, dtype=np.float64) * _inverse_of_largest(features)
    rows = sp.csr_matrix(features, dtype=np.float64, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    rows.data *= _inverse_of_largest(rows.data)
    return rows.toarray() if rows.nnz > _DENSE_SHARE * rows.shape[0] * rows.shape[1] else rows


def _inverse_of_largest(values: NDArray[Any]) -> float:
    return inverse_power_of_two(max(float(values.max(initial=0.0)), -float(values.min(initial=0.0))))


def _space(rows: Any, metric: str, n_wanted: int, device: torch.device) -> Space:
    """Return the space of the rows, with fast distances in float32, or in float64 if float32 is too coarse."""
    if not isinstance(rows, np.ndarray):
        return SparseSpace(rows, cosine=metric == "cosine")
    on_device = torch.from_numpy(rows).to(device)
    if not torch.backends.cuda.matmul.allow_tf32:
        space = SPACES[metric](on_device, dtype=torch.float32)
        if not is_crowded(space, n_wanted):
            return space
    return SPACES[metric](on_device, dtype=torch.float64)
