"""Exact nearest rows: a fast matrix product with an error bound selects candidates, float64 distances order them."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
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

# Number of columns that are reduced to their minimum, if a row has many more columns than requested neighbors.
_COLUMNS_PER_GROUP = 16

# Number of rows whose candidates are counted, and candidates per neighbor above which a product is too coarse.
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

    def quick(self, asking: Tensor, candidates: Tensor | None) -> Tensor:
        """Return (m, M) fast distances from the rows `asking` (m,) to `candidates` (M,), or to all rows if None."""
        queries = self.lifted[asking] * -2
        queries[:, -1] = 1
        return queries @ (self.lifted if candidates is None else self.lifted[candidates]).T

    def exact(self, i: Tensor, j: Tensor) -> Tensor:
        """Return order-preserving transforms of the distances between pairs of rows; the indices are broadcast."""
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
        norm = self._squares.sqrt()
        if cosine:
            self._squares[self._squares == 0] = 1.0
            norm = self._squares.sqrt()
            rows = sp.csr_matrix(sp.diags_array(1 / norm.numpy()) @ rows)
        self._points, self._transposed = rows, rows.T.tocsr()
        longest = torch.ones_like(norm) if cosine else norm
        self.error = _rounding(rows) * (longest + longest.max()).square()

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def quick(self, asking: Tensor, candidates: Tensor | None) -> Tensor:
        """Return (m, N) fast distances from the rows `asking` (m,) to all rows."""
        product = torch.from_numpy((self._points[asking.numpy()] @ self._transposed).toarray())
        product *= -2
        return product if self._is_cosine else product.add_(self._squares)

    def exact(self, i: Tensor, j: Tensor) -> Tensor:
        """Return (P,) increasing transforms of the distances between pairs of rows."""
        one, other = self._rows[i.numpy()], self._rows[j.numpy()]
        if self._is_cosine:
            return _negated_cosine(_sparse_row_products(one, other), self._squares[j])
        return _sparse_row_products(one - other, one - other)


Space: TypeAlias = DenseSpace | SparseSpace

# Constructors of a space from dense rows, by metric.
SPACES: dict[str, Callable[..., DenseSpace]] = {"cosine": DenseSpace.cosine, "euclidean": DenseSpace.euclidean}


def nearest_of(space: Space, asked: Tensor, n_wanted: int, *, spare: int | None = None) -> tuple[Integers, Floats]:
    """Return the (m, n) nearest of all rows to the rows `asked`, including themselves, and their exact distances."""
    tasks = [partial(nearest_among, space, block, None, n_wanted, spare=spare) for block in blocks(asked, len(space))]
    results = side_by_side(tasks, space.device) if len(tasks) > 1 else [tasks[0]()]
    index, distance = zip(*results, strict=True)
    return torch.cat(index).cpu().numpy(), torch.cat(distance).cpu().numpy()


def blocks(asked: Tensor, n_columns: int) -> tuple[Tensor, ...]:
    """Split row indices into parts whose distances to `n_columns` rows form one block."""
    return torch.split(asked, max(1, _BLOCK_ENTRIES[asked.device.type] // n_columns))


def nearest_among(
    space: Space, asking: Tensor, candidates: Tensor | None, n_wanted: int, *, spare: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the (m, n) nearest candidates of each row, and their distances, sorted by distance and index.

    Parameters
    ----------
    asking
        (m,) indices of the query rows.
    candidates
        (M,) ascending indices of the rows to search; None for all.
    n_wanted
        Number of neighbors, n, at most M.
    spare
        Number of additional candidates beyond n that are compared exactly; None compares all that rounding may affect.
    """
    quick = space.quick(asking, candidates)
    n_columns = quick.shape[1]
    n_wanted = min(n_wanted, n_columns)
    # Columns are ascending, so that a stable sort puts the lower index of equally near rows first.
    if spare is None:
        columns = _within_reach(quick, n_wanted, 2 * space.error[asking]).sort(dim=1).values
        inside = columns < n_columns
        others = columns if candidates is None else candidates[columns.clamp(max=n_columns - 1)]
        far = torch.full(columns.shape, torch.inf, dtype=torch.float64, device=columns.device)
        far[inside] = _exact_distances(space, asking.repeat_interleave(inside.sum(dim=1)), others[inside])
    else:
        columns = _smallest(quick, min(n_wanted + spare, n_columns)).sort(dim=1).values
        others = columns if candidates is None else candidates[columns]
        far = space.exact(asking[:, None], others)
    order = far.argsort(dim=1, stable=True)[:, :n_wanted]
    return others.gather(1, order), far.gather(1, order)


def is_crowded(space: Space, n_wanted: int) -> bool:
    """Return whether fast distances are too coarse to separate rows: many candidates per requested neighbor."""
    asking = torch.arange(0, len(space), -(-len(space) // _ROWS_COUNTED), device=space.device)
    n_wanted = min(n_wanted, len(space))
    columns = _within_reach(space.quick(asking, None), n_wanted, 2 * space.error[asking])
    return int((columns < len(space)).sum()) > _MOST_CANDIDATES * n_wanted * len(asking)


def _within_reach(quick: Tensor, n: int, margin: Tensor) -> Tensor:
    """Return (m, c) columns of all values that may be among the n smallest of their row, padded with M.

    The n-th smallest of the minima of column groups is at least the n-th smallest value. Values that exceed it by more
    than the margin (m,) are too large, so only groups whose minimum does not exceed it are searched.
    """
    minima, steps = _minima_of_groups(quick, n)
    reach = minima.topk(n, dim=1, largest=False).values[:, -1] + margin
    owner, group = (minima <= reach[:, None]).nonzero(as_tuple=True)
    columns = group[:, None] + steps
    n_columns = quick.shape[1]
    near = quick[owner[:, None], columns.clamp(max=n_columns - 1)] <= reach[owner, None]
    position, step = (near & (columns < n_columns)).nonzero(as_tuple=True)
    owner = owner[position]
    count = torch.bincount(owner, minlength=len(quick))
    position_in_row = torch.arange(len(owner), device=owner.device) - (count.cumsum(0) - count)[owner]
    result = columns.new_full((len(quick), int(count.max())), n_columns)
    result[owner, position_in_row] = columns[position, step]
    return result


def _smallest(quick: Tensor, n: int) -> Tensor:
    """Return (m, n) columns of the n smallest values of each row, with ties broken arbitrarily.

    They lie in the n column groups with the smallest minima.
    """
    minima, steps = _minima_of_groups(quick, n)
    values, columns = minima.topk(n, dim=1, largest=False)
    if len(steps) > 1:
        columns = (columns[:, :, None] + steps).flatten(1)
        values = quick.gather(1, columns.clamp(max=quick.shape[1] - 1)).masked_fill_(
            columns >= quick.shape[1], torch.inf
        )
        columns = columns.gather(1, values.topk(n, dim=1, largest=False).indices)
    return columns


def _minima_of_groups(quick: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return (m, G) minima of G ≥ n column groups, and the offsets of a group's columns from its first column."""
    n_columns = quick.shape[1]
    n_groups = n_columns // _COLUMNS_PER_GROUP
    if n_groups < max(4 * n, _COLUMNS_PER_GROUP):
        return quick, torch.zeros(1, dtype=torch.int64, device=quick.device)
    n_grouped = n_groups * _COLUMNS_PER_GROUP
    minima = quick[:, :n_grouped].view(len(quick), _COLUMNS_PER_GROUP, n_groups).amin(dim=1)
    remainder = minima[:, : n_columns - n_grouped]
    torch.minimum(remainder, quick[:, n_grouped:], out=remainder)
    return minima, torch.arange(0, n_grouped + 1, n_groups, device=quick.device)


def _exact_distances(space: Space, i: Tensor, j: Tensor) -> Tensor:
    n_columns = space.rows.shape[1] if isinstance(space, DenseSpace) else 1
    step = max(1, _BLOCK_ENTRIES[space.device.type] // n_columns)
    return torch.cat([space.exact(*pair) for pair in zip(torch.split(i, step), torch.split(j, step), strict=True)])


def _negated_cosine(product: Tensor, squares: Tensor) -> Tensor:
    # −cos·|cos|·‖x_i‖²: in the order of −cos within a row, and exact for small integers.
    return -product * product.abs() / squares


def _row_sums(values: Tensor) -> Tensor:
    """Return sums over the last dimension, on the CPU by NumPy, whose order depends only on the size."""
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
    """Return the power of two whose product with a number ≥ 0 lies in (0.5, 1], or comes as close as possible.

    Such a product is exact.
    """
    return math.ldexp(1.0, min(-math.frexp(largest)[1], sys.float_info.max_exp - 1))


def copies(rows: Any) -> tuple[Integers, Integers]:
    """Return (N,) indices of distinct rows, in order of appearance, and (U,) the first position of each.

    Duplicates are compared once, so that repeated rows do not slow down the search.
    """
    numbers: dict[bytes, int] = {}
    digests = (hashlib.blake2b(content, digest_size=16).digest() for content in _contents(rows))
    copy_of = np.array([numbers.setdefault(digest, len(numbers)) for digest in digests])
    return copy_of, np.unique(copy_of, return_index=True)[1]


def _contents(rows: Any) -> Iterator[bytes]:
    if isinstance(rows, np.ndarray):
        yield from (row.tobytes() for row in rows)
    else:
        for start, stop in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
            yield rows.indices[start:stop].tobytes() + rows.data[start:stop].tobytes()


def spread_copies(index: Integers, distance: Floats, copy_of: Integers, n_wanted: int) -> Integers:
    """Return the (N, n) nearest rows of each row, including itself, given the (U, n) nearest distinct rows.

    Of m equally near distinct rows, the n rows with the lowest index are copies of the n that appear first.
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
    owner = np.repeat(np.arange(len(index)), n_taken.sum(axis=1))
    order = np.lexsort((row, np.repeat(distance.ravel(), repeats), owner))
    first = order[np.searchsorted(owner, np.arange(len(index)))[:, None] + np.arange(n_wanted)]
    spread: Integers = row[first][copy_of]
    return spread


def without_self(nearest: Integers) -> Integers:
    """Return (N, n − 1) neighbors: drop each row from its own neighbors, or the last one if it is not among them."""
    dropped = nearest == np.arange(len(nearest))[:, None]
    dropped[~dropped.any(axis=1), -1] = True
    neighbors: Integers = nearest[~dropped].reshape(len(nearest), -1)
    return neighbors
