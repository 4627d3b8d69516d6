"""Approximate nearest neighbors of many rows by an inverted file, which probes as many cells as the recall requires."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamc.graph.distances import (
    DenseSpace,
    blocks,
    copies,
    inverse_power_of_two,
    nearest_among,
    nearest_of,
    spread_copies,
    without_self,
)
from pamc.runtime import seed_for, side_by_side

Integers: TypeAlias = "NDArray[np.int64]"

# Number of cells per √N: more cells make the search more precise but assigning rows to them slower.
_CELLS_PER_ROOT = 2.0
_LEAST_ROWS_PER_CELL = 8

# A cell larger than this multiple of the mean size is split; otherwise nearly identical rows would take N² time.
_MOST_SHARES = 8

# Number of rows per cell in the sample of K-means, and its number of iterations; common values that were not tuned.
_SAMPLED_PER_CELL = 32
_ITERATIONS = 8

# Recall for which the number of probed cells is chosen, slightly above the target of 0.95 because it is estimated on
# other rows. Each row is compared with at most this multiple of √N rows on average, whatever the recall.
_WANTED_RECALL = 0.97
_MOST_COMPARED = 128

# Number of rows whose neighbors are computed exactly, to choose the number of cells and to measure the recall.
_CHOSEN_BY = 512
_MEASURED_BY = 1024

# Number of additional candidates that are compared exactly, because rounding may have changed their order.
_SPARE = 4

# Number of rows that are assigned to cells at a time.
_ROWS_AT_A_TIME = {"cpu": 256, "cuda": 2048}

# Number of rows of a file that are read at a time.
_ROWS_READ = 1 << 14

# Values in [−1, 1] times this unit are rounded to int64, whose sums are exact and hence independent of the order.
_UNIT = 2.0**30


def search_index(
    rows: NDArray[np.floating[Any]], n_neighbors: int, *, seed: int, device: torch.device
) -> tuple[Integers, float, str]:
    """Return (N, k) approximate nearest neighbors by Euclidean distance, their recall, and the method.

    K-means on a sample assigns the rows to about 2·√N cells, and the rows of a cell are compared with those of the
    cells with the nearest centers. The number of these cells is chosen to find 95 % of the true neighbors of sampled
    rows, which are computed exactly, but a row is compared with at most 128·√N rows on average. The recall is then
    measured on another sample. Copies of a row are compared once. Ties are broken by the lower index; distances are
    those of rows rounded to float32, so nearly equal distances may be swapped. The result depends on the seed but not
    on the number of threads. O(N·√N·r) time, O(N·(r + k)) memory and a few blocks of distances.

    Parameters
    ----------
    rows
        (N, r) finite coordinates with a few dozen columns; a memory-mapped array is read, not modified.
    n_neighbors
        Number of neighbors, k, from 1 to N − 1.
    seed
        Random seed of the samples.
    device
        Device on which distances are computed.

    Examples
    --------
    >>> line = np.array([[0.0], [1.0], [3.0], [9.0]])
    >>> targets, recall, method = search_index(line, 1, seed=0, device=torch.device("cpu"))
    >>> targets.ravel(), recall, method
    (array([1, 0, 1, 2]), 1.0, '1 of 1 cells')
    """
    rows = np.asarray(rows)
    copy_of, first = copies(rows)
    all_rows = _placed(rows, device)
    distinct = all_rows
    if len(first) < len(rows):
        points = all_rows.rows[torch.from_numpy(first).to(device)]
        distinct = DenseSpace.around_origin(points, points)
    shuffled = np.random.default_rng(seed_for(seed, "rows whose neighbors are known")).permutation(len(rows))
    index = _Index.of(distinct, _n_cells(len(first)), seed)
    # One more than k, because a row may be its own nearest neighbor.
    n_wanted = n_neighbors + 1
    sample = np.sort(shuffled[:_CHOSEN_BY])
    true_neighbors, _ = nearest_of(all_rows, torch.from_numpy(sample).to(device), n_wanted, spare=_SPARE)
    n_probes = index.enough_probes(copy_of[sample], copy_of[true_neighbors])
    targets = without_self(spread_copies(*index.nearest(n_probes, n_wanted), copy_of, n_wanted))
    recall = _recall(all_rows, targets, np.sort(shuffled[-_MEASURED_BY:]))
    return targets, recall, f"{n_probes} of {index.n_cells} cells"


def _n_cells(n_rows: int) -> int:
    return max(1, min(round(_CELLS_PER_ROOT * math.sqrt(n_rows)), n_rows // _LEAST_ROWS_PER_CELL))


def _placed(rows: NDArray[np.floating[Any]], device: torch.device) -> DenseSpace:
    """Return the rows in float32, centered and scaled to values of at most 1, where products lose fewer digits.

    A common translation and scale preserves the order, and a power of two is exact.
    """
    placed = np.empty(rows.shape, dtype=np.float32)
    parts = [slice(start, start + _ROWS_READ) for start in range(0, len(rows), _ROWS_READ)]
    # Halve first: the sum of huge values would overflow.
    ends = np.array([[rows[part].min(axis=0), rows[part].max(axis=0)] for part in parts], dtype=np.float64)
    low, high = 0.5 * ends[:, 0].min(axis=0), 0.5 * ends[:, 1].max(axis=0)
    scale = inverse_power_of_two(float((high - low).max()))
    for part in parts:
        placed[part] = (rows[part] - (low + high)) * scale
    points = torch.from_numpy(placed).to(device)
    return DenseSpace.around_origin(points, points)


@dataclass(frozen=True, eq=False)
class _Index:
    """An inverted file: rows grouped by cell.

    Parameters
    ----------
    space
        Space of the n rows.
    members
        (n,) row indices, grouped by cell.
    begins
        (cells + 1,) offsets of the cells in `members`.
    cell_of
        (n,) cell of each row.
    order
        (cells, cells) cells sorted by distance from each cell, which itself comes first.
    """

    space: DenseSpace
    members: Tensor
    begins: Integers
    cell_of: Integers
    order: Integers

    @property
    def n_cells(self) -> int:
        return len(self.order)

    @classmethod
    def of(cls, space: DenseSpace, n_cells: int, seed: int) -> _Index:
        centers = _centers(space.rows, n_cells, seed)
        labels = _nearest_center(space.rows, centers).cpu().numpy()
        max_size = _MOST_SHARES * -(-len(space) // n_cells)
        members = np.argsort(labels, kind="stable")
        sizes = np.bincount(labels, minlength=n_cells)
        within = np.empty_like(labels)
        within[members] = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        # Drop empty cells, and split those that are too large in row order.
        pieces, cell_of = np.unique(np.stack([labels, within // max_size]), axis=1, return_inverse=True)
        cell_of = cell_of.reshape(-1)
        begins = np.concatenate([[0], np.cumsum(np.bincount(cell_of))])
        order = _near_to_far(centers[torch.from_numpy(pieces[0]).to(centers.device)])
        return cls(space, torch.from_numpy(members).to(space.device), begins, cell_of, order)

    def enough_probes(self, queries: Integers, neighbors: Integers) -> int:
        """Return the number of cells to probe to find most of the true neighbors (s, n) of query rows (s,)."""
        rank = np.empty_like(self.order)
        np.put_along_axis(rank, self.order, np.arange(self.n_cells)[None], axis=1)
        needed = rank[self.cell_of[queries][:, None], self.cell_of[neighbors]][neighbors != queries[:, None]]
        most = max(1, round(_MOST_COMPARED * self.n_cells / math.sqrt(len(self.space))))
        if len(needed) == 0:
            return 1
        enough = np.sort(needed)[math.ceil(_WANTED_RECALL * len(needed)) - 1] + 1
        return min(int(enough), most, self.n_cells)

    def nearest(self, n_probes: int, n_wanted: int) -> tuple[Integers, NDArray[np.float64]]:
        """Return the (n, n_wanted) nearest rows of each row, including itself, and their squared distances."""
        n_wanted = min(n_wanted, len(self.space))
        sizes = np.diff(self.begins)
        nearest = np.empty((len(self.space), n_wanted), dtype=np.int64)
        distance = np.empty((len(self.space), n_wanted))

        def of_cell(cell: int) -> None:
            near_cells = self.order[cell]
            # Small cells may contain fewer rows than requested.
            n_least = int(np.searchsorted(np.cumsum(sizes[near_cells]), n_wanted)) + 1
            rows = [self._rows(other) for other in near_cells[: max(n_probes, n_least)].tolist()]
            candidates = torch.cat(rows).sort().values
            for queries in blocks(rows[0], len(candidates)):
                result = nearest_among(self.space, queries, candidates, n_wanted, spare=_SPARE)
                index = queries.cpu().numpy()
                nearest[index], distance[index] = (part.cpu().numpy() for part in result)

        side_by_side((partial(of_cell, cell) for cell in range(self.n_cells)), self.space.device)
        return nearest, distance

    def _rows(self, cell: int) -> Tensor:
        return self.members[self.begins[cell] : self.begins[cell + 1]]


def _centers(points: Tensor, n_cells: int, seed: int) -> Tensor:
    """Return (cells, r) K-means centers of a sample; an empty cluster keeps its center."""
    rng = np.random.default_rng(seed_for(seed, "cells"))
    n_drawn = min(len(points), _SAMPLED_PER_CELL * n_cells)
    drawn = torch.from_numpy(rng.choice(len(points), n_drawn, replace=False)).to(points.device)
    sample = points[drawn]
    integers = (sample * _UNIT).to(torch.int64)
    centers = sample[:n_cells]
    for _ in range(_ITERATIONS):
        labels = _nearest_center(sample, centers)
        sums = torch.zeros((n_cells, points.shape[1]), dtype=torch.int64, device=points.device)
        sums.index_add_(0, labels, integers)
        counts = torch.bincount(labels, minlength=n_cells)[:, None]
        centers = torch.where(counts > 0, (sums / counts.clamp(min=1) / _UNIT).to(points.dtype), centers)
    return centers


def _nearest_center(points: Tensor, centers: Tensor) -> Tensor:
    """Return the (n,) nearest center of each row."""
    offset = centers.square().sum(dim=1)

    def of_block(block: Tensor) -> Tensor:
        return torch.addmm(offset, block, centers.T, alpha=-2).argmin(dim=1)

    device = points.device
    tasks = (partial(of_block, block) for block in torch.split(points, _ROWS_AT_A_TIME[device.type]))
    return torch.cat(side_by_side(tasks, device))


def _near_to_far(centers: Tensor) -> Integers:
    """Return (cells, cells) cells sorted by distance from each cell, itself first. O(cells²) = O(N) memory."""
    points = centers.double().cpu().numpy()
    squares = np.square(points).sum(axis=1)
    order = np.empty((len(points), len(points)), dtype=np.int64)
    for cell, center in enumerate(points):
        distance = squares - 2 * (points * center).sum(axis=1)
        distance[cell] = -np.inf
        order[cell] = np.argsort(distance, kind="stable")
    return order


def _recall(space: DenseSpace, targets: Integers, sample: Integers) -> float:
    """Return the fraction of the neighbors of sampled rows that are no farther than the true k-th nearest row."""
    queries, others = (torch.from_numpy(index).to(space.device) for index in (sample, targets[sample].ravel()))
    _, true_distance = nearest_of(space, queries, targets.shape[1] + 1, spare=_SPARE)
    distance = space.exact(queries.repeat_interleave(targets.shape[1]), others).cpu().numpy()
    return float((distance.reshape(len(sample), -1) <= true_distance[:, -1:]).mean())
