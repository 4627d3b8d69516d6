"""Exact nearest rows: a fast matrix product with an error bound selects candidates, float64 distances order them."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamc.runtime import side_by_side

Floats: TypeAlias = "NDArray[np.float64]"
Integers: TypeAlias = "NDArray[np.int64]"
SparseRows: TypeAlias = "sp.csr_matrix[np.float64]"

# Number of entries of one block of distances, and of the rows gathered for one round of exact distances.
_BLOCK_ENTRIES = {"cpu": 1 << 22, "cuda": 1 << 26}

# Number of columns in a group. If there are many more columns than requested neighbors, only the minimum of each group
# is compared first.
_COLUMNS_PER_GROUP = 16

# Number of rows whose candidates are counted, and the number of candidates per requested neighbor above which fast
# distances in float32 are too coarse.
_ROWS_COUNTED = 16
_MOST_CANDIDATES = 4


@dataclass(frozen=True, eq=False)
class DenseSpace:
    """Rows with two distances between them: a fast one, computed as a matrix product, and an exact one.

    Parameters
    ----------
    rows
        (N, r) rows, whose differences or products give the exact distances.
    lifted
        (N, r + 1) points y with an additional offset column; its product with [−2x, 1] is the fast distance.
    error
        (N,) bound on the rounding error of the fast distances from each row.
    squares
        (N,) squared norms of the rows for cosine similarity; None for Euclidean distances.
    """

    rows: Tensor
    lifted: Tensor
    error: Tensor
    squares: Tensor | None = None

    @classmethod
    def euclidean(cls, rows: Tensor, *, dtype: torch.dtype = torch.float32) -> DenseSpace:
        """Return the space of Euclidean distances between rows with values in [−1, 1]."""
        # Translation and scaling preserve the order, and a product loses fewer digits near the origin.
        points = rows - rows.mean(dim=0)
        points *= inverse_power_of_two(float(points.norm(dim=1).max()))
        return cls.around_origin(rows, points, dtype=dtype)

    @classmethod
    def around_origin(cls, rows: Tensor, points: Tensor, *, dtype: torch.dtype = torch.float32) -> DenseSpace:
        """Return the space of Euclidean distances between rows, whose fast form uses points of norm about 1."""
        squares = points.square().sum(dim=1, keepdim=True)
        norm = squares.sqrt().flatten()
        lifted = torch.cat([points, squares], dim=1).to(dtype)
        return cls(rows, lifted, (_rounding(lifted) * (norm + norm.max()).square()).to(dtype))

    @classmethod
    def cosine(cls, rows: Tensor, *, dtype: torch.dtype = torch.float32) -> DenseSpace:
        """Return the space ordered by cosine similarity; a zero row has similarity 0 to every row."""
        squares = _row_sums(rows * rows)
        squares[squares == 0] = 1.0
        lifted = torch.cat([rows / squares.sqrt()[:, None], torch.zeros_like(squares)[:, None]], dim=1).to(dtype)
        return cls(rows, lifted, torch.full_like(squares, 2 * _rounding(lifted), dtype=dtype), squares)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def device(self) -> torch.device:
        """Device of the rows."""
        return self.rows.device

    def fast(self, queries: Tensor, candidates: Tensor | None) -> Tensor:
        """Return (m, M) fast distances from query rows (m,) to candidates (M,), or to all rows if None."""
        lifted = self.lifted[queries] * -2
        lifted[:, -1] = 1
        return lifted @ (self.lifted if candidates is None else self.lifted[candidates]).T

    def exact(self, i: Tensor, j: Tensor) -> Tensor:
        """Return increasing transforms of the distances between rows i and j; the indices are broadcast."""
        if self.squares is None:
            return _row_sums((self.rows[i] - self.rows[j]).double().square_())
        return _negated_cosine(_row_sums(self.rows[i] * self.rows[j]), self.squares[j])


class SparseSpace:
    """Sparse rows with the two distances of :class:`DenseSpace`, on the CPU and in float64."""

    device = torch.device("cpu")

    def __init__(self, rows: SparseRows, *, cosine: bool) -> None:
        self._rows = rows
        self._squares = _sparse_row_products(rows, rows)
        self._is_cosine = cosine
        if cosine:
            self._squares[self._squares == 0] = 1.0
            rows = sp.csr_matrix(sp.diags_array(1 / self._squares.sqrt().numpy()) @ rows)
        self._points, self._transposed = rows, rows.T.tocsr()
        norm = torch.ones_like(self._squares) if cosine else self._squares.sqrt()
        self.error = _rounding(rows) * (norm + norm.max()).square()

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def fast(self, queries: Tensor, candidates: Tensor | None) -> Tensor:
        """Return (m, N) fast distances from query rows (m,) to all rows."""
        product = torch.from_numpy((self._points[queries.numpy()] @ self._transposed).toarray())
        product *= -2
        return product if self._is_cosine else product.add_(self._squares)

    def exact(self, i: Tensor, j: Tensor) -> Tensor:
        """Return (P,) increasing transforms of the distances between rows i and j, (P,)."""
        one, other = self._rows[i.numpy()], self._rows[j.numpy()]
        if self._is_cosine:
            return _negated_cosine(_sparse_row_products(one, other), self._squares[j])
        return _sparse_row_products(one - other, one - other)


Space: TypeAlias = DenseSpace | SparseSpace

# Constructors of a space from dense rows, by metric.
SPACES: dict[str, Callable[..., DenseSpace]] = {"cosine": DenseSpace.cosine, "euclidean": DenseSpace.euclidean}


def nearest_of(space: Space, queries: Tensor, n_wanted: int, *, spare: int | None = None) -> tuple[Integers, Floats]:
    """Return the (m, n) nearest rows of each query row (m,), including itself, and their exact distances."""
    tasks = [partial(nearest_among, space, block, None, n_wanted, spare=spare) for block in blocks(queries, len(space))]
    results = side_by_side(tasks, space.device) if len(tasks) > 1 else [tasks[0]()]
    index, distance = zip(*results, strict=True)
    return torch.cat(index).cpu().numpy(), torch.cat(distance).cpu().numpy()


def blocks(queries: Tensor, n_columns: int) -> tuple[Tensor, ...]:
    """Split row indices into parts whose distances to `n_columns` rows form one block."""
    return torch.split(queries, max(1, _BLOCK_ENTRIES[queries.device.type] // n_columns))


def nearest_among(
    space: Space, queries: Tensor, candidates: Tensor | None, n_wanted: int, *, spare: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the (m, n) nearest candidates of each row, and their distances, sorted by distance and index.

    Parameters
    ----------
    queries
        (m,) indices of the query rows.
    candidates
        (M,) ascending indices of the rows to search; None for all.
    n_wanted
        Number of neighbors, n, at most M.
    spare
        Number of candidates beyond n that are also compared exactly; None compares all that rounding errors in the
        fast distances could place among the n nearest.
    """
    fast = space.fast(queries, candidates)
    n_columns = fast.shape[1]
    n_wanted = min(n_wanted, n_columns)
    # Columns are ascending, so that a stable sort puts the lower index of equally near rows first.
    if spare is None:
        columns = _within_reach(fast, n_wanted, 2 * space.error[queries]).sort(dim=1).values
        inside = columns < n_columns
        others = columns if candidates is None else candidates[columns.clamp(max=n_columns - 1)]
        distance = torch.full(columns.shape, torch.inf, dtype=torch.float64, device=columns.device)
        distance[inside] = _exact_distances(space, queries.repeat_interleave(inside.sum(dim=1)), others[inside])
    else:
        columns = _smallest(fast, min(n_wanted + spare, n_columns)).sort(dim=1).values
        others = columns if candidates is None else candidates[columns]
        distance = space.exact(queries[:, None], others)
    order = distance.argsort(dim=1, stable=True)[:, :n_wanted]
    return others.gather(1, order), distance.gather(1, order)


def is_crowded(space: Space, n_wanted: int) -> bool:
    """Return whether fast distances are too coarse, so that many candidates must be compared for each neighbor."""
    queries = torch.arange(0, len(space), -(-len(space) // _ROWS_COUNTED), device=space.device)
    n_wanted = min(n_wanted, len(space))
    columns = _within_reach(space.fast(queries, None), n_wanted, 2 * space.error[queries])
    return int((columns < len(space)).sum()) > _MOST_CANDIDATES * n_wanted * len(queries)


def _within_reach(fast: Tensor, n: int, margin: Tensor) -> Tensor:
    """Return (m, c) columns of all values that may be among the n smallest of their row, padded with M.

    The n-th smallest minimum of a group of columns is at least the n-th smallest value. Values that exceed it by more
    than the margin (m,) are too large, so only groups whose minimum lies within the margin are searched.
    """
    minima, steps = _minima_of_groups(fast, n)
    reach = minima.topk(n, dim=1, largest=False).values[:, -1] + margin
    row, group = (minima <= reach[:, None]).nonzero(as_tuple=True)
    columns = group[:, None] + steps
    n_columns = fast.shape[1]
    near = fast[row[:, None], columns.clamp(max=n_columns - 1)] <= reach[row, None]
    position, step = (near & (columns < n_columns)).nonzero(as_tuple=True)
    row = row[position]
    count = torch.bincount(row, minlength=len(fast))
    position_in_row = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]
    result = columns.new_full((len(fast), int(count.max())), n_columns)
    result[row, position_in_row] = columns[position, step]
    return result


def _smallest(fast: Tensor, n: int) -> Tensor:
    """Return (m, n) columns of the n smallest values of each row, with ties broken arbitrarily.

    They lie in the n column groups with the smallest minima.
    """
    minima, steps = _minima_of_groups(fast, n)
    values, columns = minima.topk(n, dim=1, largest=False)
    if len(steps) > 1:
        columns = (columns[:, :, None] + steps).flatten(1)
        values = fast.gather(1, columns.clamp(max=fast.shape[1] - 1)).masked_fill_(columns >= fast.shape[1], torch.inf)
        columns = columns.gather(1, values.topk(n, dim=1, largest=False).indices)
    return columns


def _minima_of_groups(fast: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return (m, G) minima of G ≥ n column groups, and the offsets of a group's columns from its first column."""
    n_columns = fast.shape[1]
    n_groups = n_columns // _COLUMNS_PER_GROUP
    if n_groups < max(4 * n, _COLUMNS_PER_GROUP):
        return fast, torch.zeros(1, dtype=torch.int64, device=fast.device)
    n_grouped = n_groups * _COLUMNS_PER_GROUP
    minima = fast[:, :n_grouped].view(len(fast), _COLUMNS_PER_GROUP, n_groups).amin(dim=1)
    remainder = minima[:, : n_columns - n_grouped]
    torch.minimum(remainder, fast[:, n_grouped:], out=remainder)
    return minima, torch.arange(0, n_grouped + 1, n_groups, device=fast.device)


def _exact_distances(space: Space, i: Tensor, j: Tensor) -> Tensor:
    n_columns = space.rows.shape[1] if isinstance(space, DenseSpace) else 1
    step = max(1, _BLOCK_ENTRIES[space.device.type] // n_columns)
    return torch.cat([space.exact(*pair) for pair in zip(torch.split(i, step), torch.split(j, step), strict=True)])


def _negated_cosine(product: Tensor, squares: Tensor) -> Tensor:
    # −cos·|cos|·‖x_i‖² has the order of −cos within a row, and is exact for small integers.
    return -product * product.abs() / squares


def _row_sums(values: Tensor) -> Tensor:
    """Return sums over the last dimension; on the CPU by NumPy, whose order of summation depends on the size only."""
    if values.device.type == "cpu":
        return torch.from_numpy(values.numpy().sum(axis=-1))
    return values.sum(dim=-1)


def _sparse_row_products(a: SparseRows, b: SparseRows) -> Tensor:
    return torch.from_numpy(np.asarray(a.multiply(b).sum(axis=1), dtype=np.float64).ravel())


def _rounding(points: Any) -> float:
    """Return a bound on the relative error of a product over the points' columns, including rounding of the inputs."""
    eps = torch.finfo(points.dtype).eps if isinstance(points, Tensor) else float(np.finfo(points.dtype).eps)
    return 2 * float(points.shape[1] + 8) * eps


def inverse_power_of_two(largest: float) -> float:
    """Return the power of two that scales a number ≥ 0 into [0.5, 1), or as close to it as floating point allows.

    The product is exact.
    """
    return math.ldexp(1.0, min(-math.frexp(largest)[1], sys.float_info.max_exp - 1))


def copies(rows: Any) -> tuple[Integers, Integers]:
    """Return the (N,) number of each row's content, in order of appearance, and the (U,) first row of each content.

    Equal rows are compared once, so that repeated rows do not slow down the search.
    """
    if isinstance(rows, np.ndarray):
        contents = (row.tobytes() for row in rows)
    else:
        entries = (slice(start, stop) for start, stop in pairwise(rows.indptr))
        contents = (rows.indices[part].tobytes() + rows.data[part].tobytes() for part in entries)
    numbers: dict[bytes, int] = {}
    digests = (hashlib.blake2b(content, digest_size=16).digest() for content in contents)
    copy_of = np.array([numbers.setdefault(digest, len(numbers)) for digest in digests])
    return copy_of, np.unique(copy_of, return_index=True)[1]


def spread_copies(index: Integers, distance: Floats, copy_of: Integers, n_wanted: int) -> Integers:
    """Return the (N, n) nearest rows of each row, including itself, given the (U, n) nearest distinct rows.

    Of many equally near distinct rows, the n that appear first suffice, because the n rows with the lowest indices are
    copies of these.
    """
    if len(index) == len(copy_of):
        return index
    n_copies = np.bincount(copy_of)
    by_content = np.argsort(copy_of, kind="stable")
    begin = np.cumsum(n_copies) - n_copies
    n_taken = np.minimum(n_copies, n_wanted)[index]
    repeats = n_taken.ravel()
    position = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    row: Integers = by_content[np.repeat(begin[index].ravel(), repeats) + position]
    query = np.repeat(np.arange(len(index)), n_taken.sum(axis=1))
    order = np.lexsort((row, np.repeat(distance.ravel(), repeats), query))
    first = order[np.searchsorted(query, np.arange(len(index)))[:, None] + np.arange(n_wanted)]
    nearest: Integers = row[first][copy_of]
    return nearest


def without_self(nearest: Integers) -> Integers:
    """Return (N, n − 1) neighbors: each row's n nearest rows without itself or, if it is not one of them, the last."""
    dropped = nearest == np.arange(len(nearest))[:, None]
    dropped[~dropped.any(axis=1), -1] = True
    neighbors: Integers = nearest[~dropped].reshape(len(nearest), -1)
    return neighbors
