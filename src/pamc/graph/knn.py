"""Exact nearest neighbors, block by block: the graph of data that come without one."""

from __future__ import annotations

import hashlib
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.attributed_graph import Features
from pamc.errors import ConfigError, DataWarning, UnknownNameError

__all__ = ["check_n_neighbors", "copies", "inverse_power_of_two", "knn_edges", "spread_copies", "without_self"]

Floats: TypeAlias = "NDArray[np.float64]"
Integers: TypeAlias = "NDArray[np.int64]"
Rows: TypeAlias = "Floats | sp.csr_matrix[np.float64]"

# Entries of one block of distances, and of the rows gathered for one round of exact distances: 32 MB each.
_BLOCK_ENTRIES = 1 << 22
# Most columns of a block that are reduced to the nearest one when the k-th distance is bounded.
_COLUMNS_PER_GROUP = 64
# Share of nonzero features from which a dense product is faster than a sparse one.
_DENSE_SHARE = 0.1


def knn_edges(features: Features, n_neighbors: int, *, metric: str = "euclidean") -> Integers:
    """Return (2, N·k) directed edges from each row to its k nearest other rows, the nearest first.

    Exact: a matrix product with a bound on its rounding error finds the candidates, which are then compared by
    distances computed one by one in float64. So the answer is the same for any number of threads. Of equally near rows
    the one with the lower index comes first. Copies of a row are its neighbors; the row itself never is. Under
    ``"cosine"`` a row of zeros has similarity 0 to every row. O(N²·d) time, O(N·(d + k)) memory and one block of
    distances, never N × N.

    Parameters
    ----------
    features
        (N, d) finite features, dense or CSR.
    n_neighbors
        k, at least 1. From N on, every other row is a neighbor, and a warning says so.
    metric
        ``"euclidean"``, the order in which SDCN's "heat" kernel puts the rows, or ``"cosine"``.

    Examples
    --------
    >>> import numpy as np
    >>> knn_edges(np.array([[0.0], [1.0], [3.0], [9.0]]), 1)
    array([[0, 1, 2, 3],
           [1, 0, 1, 2]])
    """
    n_nodes = features.shape[0]
    n_neighbors = check_n_neighbors(n_neighbors, n_nodes)
    if metric not in _SPACES:
        raise UnknownNameError("metric", metric, _SPACES)
    rows = _scaled_rows(features)
    copy_of, first = copies(rows)
    space = _SPACES[metric](rows[first])
    # One more than k, because a row may be among its own nearest.
    nearest = spread_copies(*_nearest(space, n_neighbors + 1), copy_of, n_neighbors + 1)
    targets = without_self(nearest[copy_of])
    return np.stack([np.repeat(np.arange(n_nodes), n_neighbors), targets.ravel()])


def check_n_neighbors(n_neighbors: int, n_nodes: int) -> int:
    """Return k, or N − 1 where that is less, with a warning at the caller's caller."""
    if n_neighbors < 1:
        raise ConfigError(f"n_neighbors must be at least 1, got {n_neighbors}")
    if n_neighbors >= n_nodes:
        warnings.warn(
            f"n_neighbors={n_neighbors}, but each of the {n_nodes} rows has only {n_nodes - 1} others: all are taken",
            DataWarning,
            stacklevel=3,
        )
    return min(n_neighbors, n_nodes - 1)


def _scaled_rows(features: Features) -> Rows:
    """Return the rows in float64, with values of at most 1 so that no square overflows.

    Division by a power of two is exact and changes no order.
    """
    if isinstance(features, np.ndarray):
        return np.ascontiguousarray(features, dtype=np.float64) * inverse_power_of_two(features)
    rows = sp.csr_matrix(features, dtype=np.float64, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    rows.data *= inverse_power_of_two(rows.data)
    return rows.toarray() if rows.nnz > _DENSE_SHARE * rows.shape[0] * rows.shape[1] else rows


def inverse_power_of_two(values: NDArray[np.floating[Any]]) -> float:
    """Return the power of two whose product with the values lies within [−1, 1], as near to the ends as it goes."""
    largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    return math.ldexp(1.0, min(-math.frexp(largest)[1], sys.float_info.max_exp - 1))


def copies(rows: Rows) -> tuple[Integers, Integers]:
    """Return (N,) the number of each row's content, in order of appearance, and (U,) where each content is first.

    Copies are compared once, so that no amount of repetition makes the search slow.
    """
    numbers: dict[bytes, int] = {}
    digests = (hashlib.blake2b(content, digest_size=16).digest() for content in _contents(rows))
    copy_of = np.array([numbers.setdefault(digest, len(numbers)) for digest in digests])
    return copy_of, np.unique(copy_of, return_index=True)[1]


def _contents(rows: Rows) -> Iterator[bytes]:
    if isinstance(rows, np.ndarray):
        yield from (row.tobytes() for row in rows)
    else:
        for start, stop in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
            yield rows.indices[start:stop].tobytes() + rows.data[start:stop].tobytes()


def spread_copies(index: Integers, distance: Floats, copy_of: Integers, n_wanted: int) -> Integers:
    """Return (U, n) the nearest rows of each content, given its nearest contents.

    Of m equally near contents, the n rows with the lowest index are copies of the n contents that appear first.
    """
    n_contents = len(index)
    n_copies = np.bincount(copy_of)
    by_content = np.argsort(copy_of, kind="stable")
    begin = np.cumsum(n_copies) - n_copies
    taken = np.minimum(n_copies, n_wanted)[index]
    each = taken.ravel()
    position = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    found: Integers = by_content[np.repeat(begin[index].ravel(), each) + position]
    owner = np.repeat(np.arange(n_contents), taken.sum(axis=1))
    first = _first_per_owner(owner, np.repeat(distance.ravel(), each), found, n_contents, n_wanted)
    return found[first]


def without_self(nearest: Integers) -> Integers:
    """Return (N, n − 1) neighbors: each row loses itself, or its last where it is not among its own nearest."""
    dropped = nearest == np.arange(len(nearest))[:, None]
    dropped[~dropped.any(axis=1), -1] = True
    kept: Integers = nearest[~dropped].reshape(len(nearest), -1)
    return kept


@dataclass(frozen=True)
class _Space:
    """Distances between rows in two forms.

    Parameters
    ----------
    points
        (N, d) of the quick form: scale · points_i · points_j + offset_j.
    scale
        Factor of the product.
    offset
        (N,) what is added to each column.
    error
        (N,) bound on the rounding error of the quick form in each row.
    exact
        From the indices of P pairs to P distances; any increasing map of the distance from a row serves.
    """

    points: Rows
    scale: float
    offset: Floats
    error: Floats
    exact: Callable[[Integers, Integers], Floats]


def _euclidean(rows: Rows) -> _Space:
    def exact(i: Integers, j: Integers) -> Floats:
        difference = rows[i] - rows[j]
        return _row_products(difference, difference)

    # Moving all rows changes no distance, and near the origin the product loses fewer digits.
    points = rows - rows.mean(axis=0) if isinstance(rows, np.ndarray) else rows
    squares = _row_products(points, points)
    norm = np.sqrt(squares)
    return _Space(points, -2.0, squares, _rounding(rows) * (norm + norm.max()) ** 2, exact)


def _cosine(rows: Rows) -> _Space:
    squares = _row_products(rows, rows)
    squares[squares == 0] = 1.0

    def exact(i: Integers, j: Integers) -> Floats:
        # −cos·|cos|·‖x_i‖²: ordered like −cos inside a row, and exact for small integers.
        product = _row_products(rows[i], rows[j])
        return -product * np.abs(product) / squares[j]

    norm = np.sqrt(squares)
    points = rows / norm[:, None] if isinstance(rows, np.ndarray) else sp.csr_matrix(sp.diags_array(1 / norm) @ rows)
    return _Space(points, -1.0, np.zeros_like(norm), np.full_like(norm, _rounding(rows)), exact)


_SPACES: dict[str, Callable[[Rows], _Space]] = {"euclidean": _euclidean, "cosine": _cosine}


def _nearest(space: _Space, n_wanted: int) -> tuple[Integers, Floats]:
    """Return (N, n) the nearest rows of each row, itself included, and their exact distances, by distance and index."""
    n_rows = len(space.offset)
    n_wanted = min(n_wanted, n_rows)
    index = np.empty((n_rows, n_wanted), dtype=np.int64)
    distance = np.empty((n_rows, n_wanted))
    points = space.points
    transposed = points.T if isinstance(points, np.ndarray) else points.T.tocsr()
    for start, stop in _ranges(n_rows, n_rows):
        product = points[start:stop] @ transposed
        quick: Floats = product if isinstance(product, np.ndarray) else product.toarray()
        quick *= space.scale
        quick += space.offset
        bound = _bound_nth(quick, n_wanted) + 2 * space.error[start:stop]
        i, j = np.nonzero(quick <= bound[:, None])
        exact = _exact_distances(space, i + start, j)
        first = _first_per_owner(i, exact, j, stop - start, n_wanted)
        index[start:stop], distance[start:stop] = j[first], exact[first]
    return index, distance


def _bound_nth(quick: Floats, n: int) -> Floats:
    """Return (B,) upper bounds of each row's n-th smallest value: the n-th smallest minimum of disjoint groups."""
    n_columns = quick.shape[1]
    per_group = min(max(n_columns // (8 * n), 1), _COLUMNS_PER_GROUP)
    n_groups = n_columns // per_group
    minima = quick[:, :n_groups].copy()
    for group in range(1, per_group):
        np.minimum(minima, quick[:, group * n_groups : (group + 1) * n_groups], out=minima)
    return np.partition(minima, n - 1, axis=1)[:, n - 1]


def _exact_distances(space: _Space, i: Integers, j: Integers) -> Floats:
    entries_per_row = -(-space.points.size // len(space.offset)) or 1
    pieces = [space.exact(i[start:stop], j[start:stop]) for start, stop in _ranges(len(i), entries_per_row)]
    return np.concatenate(pieces)


def _first_per_owner(owner: Integers, distance: Floats, row: Integers, n_owners: int, n_wanted: int) -> Integers:
    """Return (n_owners, n) positions of each owner's n nearest rows; of equal distances the lower row is first.

    ``owner`` ascends from 0 and each owner has at least n rows.
    """
    order: Integers = np.lexsort((row, distance, owner))
    begin = np.searchsorted(owner, np.arange(n_owners))
    first: Integers = order[begin[:, None] + np.arange(n_wanted)]
    return first


def _row_products(a: Rows, b: Rows) -> Floats:
    """Return (N,) a_i · b_i, added up in an order that depends on nothing but d."""
    if isinstance(a, np.ndarray):
        return np.asarray((a * b).sum(axis=1))
    return np.asarray(a.multiply(b).sum(axis=1)).ravel()


def _rounding(rows: Rows) -> float:
    """Return a bound on the relative error of a product of d terms, its factors rounded too."""
    return 2 * float(rows.shape[1] + 8) * float(np.finfo(np.float64).eps)


def _ranges(n: int, entries_per_item: int) -> Iterator[tuple[int, int]]:
    step = max(1, _BLOCK_ENTRIES // entries_per_item)
    for start in range(0, n, step):
        yield start, min(start + step, n)
