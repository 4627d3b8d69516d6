"""Nearest rows, exactly: a quick product with a bound on its error finds candidates, float64 distances order them."""

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

__all__ = [
    "SPACES",
    "DenseSpace",
    "Space",
    "SparseSpace",
    "blocks",
    "copies",
    "inverse_power_of_two",
    "is_crowded",
    "nearest_among",
    "nearest_of",
    "spread_copies",
    "without_self",
]

Floats: TypeAlias = "NDArray[np.float64]"
Integers: TypeAlias = "NDArray[np.int64]"
SparseRows: TypeAlias = "sp.csr_matrix[np.float64]"

# Entries of one block of distances, and of the rows gathered for one round of exact distances.
_BLOCK_ENTRIES = {"cpu": 1 << 22, "cuda": 1 << 26}

# Columns of a block that are reduced to the nearest one, where each row has many more columns than it wants.
_COLUMNS_PER_GROUP = 16

# Rows of which the candidates are counted, and candidates for each row wanted beyond which a product is too coarse.
_ROWS_COUNTED = 16
_MOST_CANDIDATES = 4


@dataclass(frozen=True, eq=False)
class DenseSpace:
    """Rows and two distances between them: a quick one, which is a product of matrices, and an exact one.

    Parameters
    ----------
    rows
        (N, r) rows whose differences or products give the exact distances.
    lifted
        (N, r + 1) points y and an offset: the product of [−2x, 1] with it is the quick distance.
    error
        (N,) bound on the rounding error of the quick distances from each row.
    squares
        (N,) squared lengths of the rows for cosine similarity; None for euclidean distances.
    """

    rows: Tensor
    lifted: Tensor
    error: Tensor
    squares: Tensor | None = None

    @classmethod
    def euclidean(cls, rows: Tensor, *, dtype: torch.dtype = torch.float32) -> DenseSpace:
        """Return euclidean distances between rows whose values lie within [−1, 1]."""
        # Moving and scaling all rows changes no order, and near the origin a product loses fewer digits.
        points = rows - rows.mean(dim=0)
        points *= inverse_power_of_two(float(points.norm(dim=1).max()))
        return cls.around_origin(rows, points, dtype=dtype)

    @classmethod
    def around_origin(cls, rows: Tensor, points: Tensor, *, dtype: torch.dtype = torch.float32) -> DenseSpace:
        """Return euclidean distances between rows whose quick form is taken of points of about length 1."""
        squares = points.square().sum(dim=1, keepdim=True)
        norm = squares.sqrt().flatten()
        lifted = torch.cat([points, squares], dim=1).to(dtype)
        return cls(rows, lifted, (_rounding(lifted) * (norm + norm.max()).square()).to(dtype))

    @classmethod
    def cosine(cls, rows: Tensor, *, dtype: torch.dtype = torch.float32) -> DenseSpace:
        """Return distances in the order of cosine similarity; that of a row of zeros to every row is 0."""
        squares = _row_sums(rows * rows)
        squares[squares == 0] = 1.0
        lifted = torch.cat([rows / squares.sqrt()[:, None], torch.zeros_like(squares)[:, None]], dim=1).to(dtype)
        return cls(rows, lifted, torch.full_like(squares, 2 * _rounding(lifted), dtype=dtype), squares)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.rows.device

    def quick(self, asking: Tensor, candidates: Tensor | None) -> Tensor:
        """Return (m, M) quick distances from some rows (m,) to others (M,), None for all."""
        turned = self.lifted[asking] * -2
        turned[:, -1] = 1
        return turned @ (self.lifted if candidates is None else self.lifted[candidates]).T

    def exact(self, i: Tensor, j: Tensor) -> Tensor:
        """Return distances between pairs of rows, in any form that keeps their order; the indices are broadcast."""
        if self.squares is None:
            return _row_sums((self.rows[i] - self.rows[j]).double().square_())
        return _negated_cosine(_row_sums(self.rows[i] * self.rows[j]), self.squares[j])


class SparseSpace:
    """Sparse rows and the two distances of :class:`DenseSpace`, on the CPU and in float64."""

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
        """Return (m, N) quick distances from some rows (m,) to all."""
        product = torch.from_numpy((self._points[asking.numpy()] @ self._transposed).toarray())
        product *= -2
        return product if self._is_cosine else product.add_(self._squares)

    def exact(self, i: Tensor, j: Tensor) -> Tensor:
        """Return (P,) distances between pairs of rows; any increasing map of the distance from a row serves."""
        one, other = self._rows[i.numpy()], self._rows[j.numpy()]
        if self._is_cosine:
            return _negated_cosine(_sparse_row_products(one, other), self._squares[j])
        return _sparse_row_products(one - other, one - other)


Space: TypeAlias = DenseSpace | SparseSpace

# From dense rows to a space, by metric.
SPACES: dict[str, Callable[..., DenseSpace]] = {"cosine": DenseSpace.cosine, "euclidean": DenseSpace.euclidean}


def nearest_of(space: Space, asked: Tensor, n_wanted: int, *, spare: int | None = None) -> tuple[Integers, Floats]:
    """Return (m, n) the nearest of all rows to some of them, themselves included, and their exact distances."""
    tasks = [partial(nearest_among, space, each, None, n_wanted, spare=spare) for each in blocks(asked, len(space))]
    found = side_by_side(tasks, space.device) if len(tasks) > 1 else [tasks[0]()]
    index, distance = zip(*found, strict=True)
    return torch.cat(index).cpu().numpy(), torch.cat(distance).cpu().numpy()


def blocks(asked: Tensor, n_columns: int) -> tuple[Tensor, ...]:
    """Return the rows asked for in parts whose distances to `n_columns` rows are one block."""
    return torch.split(asked, max(1, _BLOCK_ENTRIES[asked.device.type] // n_columns))


def nearest_among(
    space: Space, asking: Tensor, candidates: Tensor | None, n_wanted: int, *, spare: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return (m, n) the nearest of some rows to each of the rows asking, and their distances, by distance and index.

    Parameters
    ----------
    asking
        (m,) rows.
    candidates
        (M,) rows among which to look, ascending; None for all.
    n_wanted
        n, cut to M.
    spare
        How many rows more than n are compared exactly, whatever rounding may have changed; None for all that it may.
    """
    quick = space.quick(asking, candidates)
    n_columns = quick.shape[1]
    n_wanted = min(n_wanted, n_columns)
    # Columns ascend, so that a stable sort leaves the lower of equally near rows first.
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
    """Return whether quick distances are too coarse to tell rows apart: many candidates for each row wanted."""
    asking = torch.arange(0, len(space), -(-len(space) // _ROWS_COUNTED), device=space.device)
    n_wanted = min(n_wanted, len(space))
    columns = _within_reach(space.quick(asking, None), n_wanted, 2 * space.error[asking])
    return int((columns < len(space)).sum()) > _MOST_CANDIDATES * n_wanted * len(asking)


def _within_reach(quick: Tensor, n: int, margin: Tensor) -> Tensor:
    """Return (m, c) columns of all values that may be among the n smallest of their row, filled up with M.

    The n-th smallest minimum of groups of columns is no less than the n-th smallest value. Values beyond it by more
    than the margin (m,) are too large, so only groups whose minimum is not are looked through.
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
    place = torch.arange(len(owner), device=owner.device) - (count.cumsum(0) - count)[owner]
    result = columns.new_full((len(quick), int(count.max())), n_columns)
    result[owner, place] = columns[position, step]
    return result


def _smallest(quick: Tensor, n: int) -> Tensor:
    """Return (m, n) columns of the n smallest values of each row; of equal values any may be taken.

    They lie in the n groups of columns whose minima are smallest.
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
    """Return (m, G) the minima of G ≥ n groups of columns, and the steps from a group's first column to all of its."""
    n_columns = quick.shape[1]
    n_groups = n_columns // _COLUMNS_PER_GROUP
    if n_groups < max(4 * n, _COLUMNS_PER_GROUP):
        return quick, torch.zeros(1, dtype=torch.int64, device=quick.device)
    whole = n_groups * _COLUMNS_PER_GROUP
    minima = quick[:, :whole].view(len(quick), _COLUMNS_PER_GROUP, n_groups).amin(dim=1)
    rest = minima[:, : n_columns - whole]
    torch.minimum(rest, quick[:, whole:], out=rest)
    return minima, torch.arange(0, whole + 1, n_groups, device=quick.device)


def _exact_distances(space: Space, i: Tensor, j: Tensor) -> Tensor:
    n_columns = space.rows.shape[1] if isinstance(space, DenseSpace) else 1
    step = max(1, _BLOCK_ENTRIES[space.device.type] // n_columns)
    return torch.cat([space.exact(*pair) for pair in zip(torch.split(i, step), torch.split(j, step), strict=True)])


def _negated_cosine(product: Tensor, squares: Tensor) -> Tensor:
    # −cos·|cos|·‖x_i‖²: ordered like −cos inside a row, and exact for small integers.
    return -product * product.abs() / squares


def _row_sums(values: Tensor) -> Tensor:
    """Return sums over the last dimension: on the CPU by NumPy, in an order that depends on nothing but its size."""
    if values.device.type == "cpu":
        return torch.from_numpy(values.numpy().sum(axis=-1))
    return values.sum(dim=-1)


def _sparse_row_products(a: SparseRows, b: SparseRows) -> Tensor:
    return torch.from_numpy(np.asarray(a.multiply(b).sum(axis=1), dtype=np.float64).ravel())


def _rounding(points: Any) -> float:
    """Return a bound on the relative error of a product of the points' columns, its factors rounded too."""
    eps = torch.finfo(points.dtype).eps if isinstance(points, Tensor) else float(np.finfo(points.dtype).eps)
    return 2 * float(points.shape[1] + 8) * eps


def inverse_power_of_two(largest: float) -> float:
    """Return the power of two whose product with a number ≥ 0 lies within (0.5, 1], as near to it as it goes.

    Such a product is exact.
    """
    return math.ldexp(1.0, min(-math.frexp(largest)[1], sys.float_info.max_exp - 1))


def copies(rows: Any) -> tuple[Integers, Integers]:
    """Return (N,) the number of each row's content, in order of appearance, and (U,) where each content is first.

    Copies are compared once, so that no amount of repetition makes the search slow.
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
    """Return (N, n) the nearest rows of each row, itself included, given the nearest contents (U, n) of each content.

    Of m equally near contents, the n rows with the lowest index are copies of the n contents that appear first.
    """
    if len(index) == len(copy_of):
        return index
    n_copies = np.bincount(copy_of)
    by_content = np.argsort(copy_of, kind="stable")
    begin = np.cumsum(n_copies) - n_copies
    taken = np.minimum(n_copies, n_wanted)[index]
    each = taken.ravel()
    position = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    row: Integers = by_content[np.repeat(begin[index].ravel(), each) + position]
    owner = np.repeat(np.arange(len(index)), taken.sum(axis=1))
    order = np.lexsort((row, np.repeat(distance.ravel(), each), owner))
    first = order[np.searchsorted(owner, np.arange(len(index)))[:, None] + np.arange(n_wanted)]
    spread: Integers = row[first][copy_of]
    return spread


def without_self(nearest: Integers) -> Integers:
    """Return (N, n − 1) neighbors: each row loses itself, or its last where it is not among its own nearest."""
    dropped = nearest == np.arange(len(nearest))[:, None]
    dropped[~dropped.any(axis=1), -1] = True
    kept: Integers = nearest[~dropped].reshape(len(nearest), -1)
    return kept
