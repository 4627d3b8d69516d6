"""Nearest neighbors of many rows: an inverted file, as many cells looked through as the recall asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController
from torch import Tensor

from pamc.graph.knn import check_n_neighbors, copies, inverse_power_of_two, spread_copies, without_self
from pamc.runtime import seed_for

__all__ = ["EXACT", "LEAST_RECALL", "MOST_EXACT_ROWS", "ApproximateNeighbors", "approximate_neighbors"]

Integers: TypeAlias = "NDArray[np.int64]"
Item = TypeVar("Item")
Result = TypeVar("Result")

# The method of a search that compares all rows.
EXACT = "exact"

# Up to this many rows neighbors are sought exactly.
MOST_EXACT_ROWS = 50_000

# Below this recall the user is warned.
LEAST_RECALL = 0.9

# Up to this many rows a GPU compares all pairs. An estimate from the number of products, not a measurement.
_MOST_EXACT_ROWS_ON_GPU = 300_000

# Cells for each √N rows: more cells are searched more precisely and take longer to be told apart.
_CELLS_PER_ROOT = 2.0
_LEAST_ROWS_PER_CELL = 8

# A cell that holds so many times its share is cut, or rows that are nearly all alike would take N² time.
_MOST_SHARES = 8

# K-means of a sample of so many rows per cell, and its rounds. Customary values, not tuned.
_SAMPLED_PER_CELL = 32
_ITERATIONS = 8

# The recall that the number of cells to look through is chosen for, a little beyond the 0.95 that is wanted, because
# other rows are asked then. At most this many times √N rows are compared with each row, whatever the recall.
_WANTED_RECALL = 0.97
_MOST_COMPARED = 128

# Rows whose neighbors are sought exactly, to choose by and to measure by.
_CHOSEN_BY = 512
_MEASURED_BY = 1024

# Candidates beyond those wanted, among which rounding may have changed the order.
_SPARE = 4

# Columns of which the smallest stands for all when a block of distances is looked through.
_COLUMNS_PER_GROUP = 16

# Rows and columns of one block of distances.
_CPU_BLOCK = (256, 8192)
_GPU_BLOCK = (2048, 1 << 17)

# Rows of a file that are read at a time.
_ROWS_READ = 1 << 14

# Rows lie within [−1, 1]: sums of their multiples of this are exact in int64, so they do not depend on the order.
_UNIT = 2.0**30


@dataclass(frozen=True, eq=False)
class ApproximateNeighbors:
    """Nearest neighbors that were found, and how many of the true ones they are.

    Parameters
    ----------
    edges
        (2, N·k) directed edges from each row to the nearest rows found, the nearest first.
    recall
        Share of these edges that lead to one of the k nearest rows, measured on a sample of the rows.
    method
        How they were found.
    """

    edges: Integers
    recall: float
    method: str


def approximate_neighbors(
    rows: NDArray[np.floating[Any]], n_neighbors: int, *, seed: int, device: torch.device
) -> ApproximateNeighbors:
    """Return directed edges from each row to nearly its k nearest other rows, by euclidean distance, nearest first.

    Rows are divided among about 2·√N cells by K-means of a sample. Those of a cell are compared with the rows of the
    cells whose centers are nearest to its own: as many cells as find 95 % of the true neighbors of some rows, which are
    known from comparing them with all, but never with more than 128·√N rows on average. The recall is then measured on
    other rows. Copies of a row are compared once. Of equally near rows that are found the one with the lower index
    comes first; distances are those of rows rounded to float32, so rows that differ by rounding may change places. The
    same seed gives the same edges for any number of threads. O(N·√N·r) time, O(N·(r + k)) memory and a few blocks of
    distances. On a GPU, up to a few hundred thousand rows are all compared with each other.

    Parameters
    ----------
    rows
        (N, r) finite coordinates in a few dozen columns; a memory-mapped array is read, not modified.
    n_neighbors
        k, at least 1. From N on, every other row is a neighbor, and a warning says so.
    seed
        Of the samples.
    device
        Where rows are compared.

    Examples
    --------
    >>> import numpy as np
    >>> line = np.array([[0.0], [1.0], [3.0], [9.0]])
    >>> found = approximate_neighbors(line, 1, seed=0, device=torch.device("cpu"))
    >>> found.edges
    array([[0, 1, 2, 3],
           [1, 0, 1, 2]])
    >>> found.recall
    1.0
    """
    n_nodes = len(rows)
    n_neighbors = check_n_neighbors(n_neighbors, n_nodes)
    if n_neighbors == 0:
        return ApproximateNeighbors(np.empty((2, 0), dtype=np.int64), 1.0, EXACT)
    rows = np.asarray(rows)
    copy_of, first = copies(rows)
    work = _Work(device)
    everyone = _Table.of(_placed(rows, device))
    distinct = everyone if len(first) == n_nodes else _Table.of(everyone.points[torch.from_numpy(first).to(device)])
    drawn = np.random.default_rng(seed_for(seed, "rows whose neighbors are known")).permutation(n_nodes)
    index = _Index.of(distinct, _n_cells(len(first), device), seed, work)
    n_probes = 1
    if index.n_cells > 1:
        asked = np.sort(drawn[:_CHOSEN_BY])
        known = _sought(everyone, asked, n_neighbors + 1, work)[0]
        n_probes = index.enough_probes(copy_of[asked], copy_of[known])
    # One more than k, because a row may be among its own nearest.
    nearest, distance = index.nearest(n_probes, n_neighbors + 1, work)
    if len(first) < n_nodes:
        nearest = spread_copies(nearest, distance, copy_of, n_neighbors + 1)[copy_of]
    targets = without_self(nearest)
    edges = np.stack([np.repeat(np.arange(n_nodes), n_neighbors), targets.ravel()])
    if index.n_cells == 1:
        return ApproximateNeighbors(edges, 1.0, EXACT)
    recall = _recall(everyone, targets, np.sort(drawn[-_MEASURED_BY:]), work)
    return ApproximateNeighbors(edges, recall, f"{n_probes} of {index.n_cells} cells")


def _n_cells(n_rows: int, device: torch.device) -> int:
    if device.type != "cpu" and n_rows <= _MOST_EXACT_ROWS_ON_GPU:
        return 1
    return max(1, min(round(_CELLS_PER_ROOT * math.sqrt(n_rows)), n_rows // _LEAST_ROWS_PER_CELL))


def _placed(rows: NDArray[np.floating[Any]], device: torch.device) -> Tensor:
    """Return (N, r) float32 rows around the origin with values of at most 1: near it a product loses fewer digits.

    The same shift and scale of all rows changes no order, and a power of two no digit.
    """
    placed = np.empty(rows.shape, dtype=np.float32)
    parts = [slice(start, start + _ROWS_READ) for start in range(0, len(rows), _ROWS_READ)]
    # Half the range first: the sum of huge values would overflow.
    ends = np.array([[rows[part].min(axis=0), rows[part].max(axis=0)] for part in parts], dtype=np.float64)
    middle = 0.5 * ends[:, 0].min(axis=0) + 0.5 * ends[:, 1].max(axis=0)
    scale = inverse_power_of_two(0.5 * ends[:, 1].max(axis=0) - 0.5 * ends[:, 0].min(axis=0))
    for part in parts:
        placed[part] = (rows[part] - middle) * scale
    return torch.from_numpy(placed).to(device)


class _Work:
    """Runs pieces of work: one after the other on a GPU; on a CPU side by side, each on one thread.

    What a piece gives then does not depend on how many there are at a time.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.block = _CPU_BLOCK if device.type == "cpu" else _GPU_BLOCK
        self._n_threads = torch.get_num_threads() if device.type == "cpu" else 1
        self._libraries = ThreadpoolController()

    def all(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        if self.device.type != "cpu":
            return [work(item) for item in items]

        def on_one_thread(item: Item) -> Result:
            # Asking makes torch set the number of threads of a new thread, which would undo a limit set before.
            torch.get_num_threads()
            with self._libraries.limit(limits=1, user_api="openmp"):
                return work(item)

        with ThreadPoolExecutor(max_workers=self._n_threads) as threads:
            return list(threads.map(on_one_thread, items))


@dataclass(frozen=True, eq=False)
class _Table:
    """Rows, and the form of them whose product with [−2x, 1] is the squared distance but for |x|².

    Parameters
    ----------
    points
        (n, r).
    lifted
        (n, r + 1): each row y and |y|².
    """

    points: Tensor
    lifted: Tensor

    @classmethod
    def of(cls, points: Tensor) -> _Table:
        return cls(points, torch.cat([points, points.square().sum(dim=1, keepdim=True)], dim=1))

    def __len__(self) -> int:
        return len(self.points)


def _nearest_among(
    asking: Tensor, table: _Table, candidates: Tensor | None, n_wanted: int, block: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Return (m, n) the nearest of some rows of a table to each of the rows asking, and their squared distances.

    Parameters
    ----------
    asking
        (m, r).
    candidates
        (M,) rows of the table, M ≥ n; None for all.
    """
    lifted = table.lifted if candidates is None else table.lifted[candidates]
    n_kept = min(n_wanted + _SPARE, len(lifted))
    found, far = [], []
    for own in torch.split(asking, block[0]):
        turned = torch.cat([own * -2, torch.ones_like(own[:, :1])], dim=1)
        value = turned.new_empty((len(own), 0))
        column = torch.empty((len(own), 0), dtype=torch.int64, device=own.device)
        for start in range(0, len(lifted), block[1]):
            values, columns = _smallest(turned @ lifted[start : start + block[1]].T, n_kept)
            value, column = torch.cat([value, values], dim=1), torch.cat([column, columns + start], dim=1)
            if value.shape[1] > n_kept:
                value, best = value.topk(n_kept, dim=1, largest=False)
                column = column.gather(1, best)
        index = (column if candidates is None else candidates[column]).sort(dim=1).values
        # The differences themselves: a product loses the digits in which near rows differ.
        distance = (table.points[index] - own[:, None]).double().square().sum(dim=2)
        order = distance.argsort(dim=1, stable=True)[:, :n_wanted]
        found.append(index.gather(1, order))
        far.append(distance.gather(1, order))
    return torch.cat(found), torch.cat(far)


def _smallest(values: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return (m, n) the smallest values of each row and their columns, all where there are no more.

    The n smallest lie in the n groups of columns whose smallest values are least: only those are sorted.
    """
    n_columns = values.shape[1]
    n_groups = n_columns // _COLUMNS_PER_GROUP
    if n_groups <= 2 * n:
        return values.topk(min(n, n_columns), dim=1, largest=False)
    whole = n_groups * _COLUMNS_PER_GROUP
    minima = values[:, :whole].view(len(values), _COLUMNS_PER_GROUP, n_groups).amin(dim=1)
    groups = minima.topk(n, dim=1, largest=False).indices
    steps = torch.arange(0, whole, n_groups, device=values.device)
    columns = (groups[:, :, None] + steps).flatten(1)
    rest = torch.arange(whole, n_columns, device=values.device).expand(len(values), -1)
    columns = torch.cat([columns, rest], dim=1)
    smallest, best = values.gather(1, columns).topk(n, dim=1, largest=False)
    return smallest, columns.gather(1, best)


@dataclass(frozen=True, eq=False)
class _Index:
    """Rows by cell.

    Parameters
    ----------
    table
        The n rows.
    members
        (n,) rows, those of a cell together.
    begins
        (cells + 1,) where each cell begins among them.
    cell_of
        (n,) cell of each row.
    order
        (cells, cells) for each cell the cells from near to far, itself first.
    """

    table: _Table
    members: Tensor
    begins: Integers
    cell_of: Integers
    order: Integers

    @property
    def n_cells(self) -> int:
        return len(self.order)

    @classmethod
    def of(cls, table: _Table, n_cells: int, seed: int, work: _Work) -> _Index:
        if n_cells == 1:
            centers = table.points[:1]
            labels = np.zeros(len(table), dtype=np.int64)
            most = len(table)
        else:
            centers = _centers(table, n_cells, seed, work)
            labels = _nearest_center(table.points, centers, work).cpu().numpy()
            most = _MOST_SHARES * -(-len(table) // n_cells)
        members = np.argsort(labels, kind="stable")
        sizes = np.bincount(labels, minlength=n_cells)
        within = np.empty_like(labels)
        within[members] = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        # Cells that are empty are left out, and those too large are cut in order of their rows.
        pieces, cell_of = np.unique(np.stack([labels, within // most]), axis=1, return_inverse=True)
        cell_of = cell_of.reshape(-1)
        begins = np.concatenate([[0], np.cumsum(np.bincount(cell_of))])
        order = _near_to_far(centers[torch.from_numpy(pieces[0]).to(centers.device)])
        return cls(table, torch.from_numpy(members).to(work.device), begins, cell_of, order)

    def enough_probes(self, asked: Integers, known: Integers) -> int:
        """Return through how many cells to look so that most of the known neighbors (s, n) of rows (s,) are found."""
        rank = np.empty_like(self.order)
        np.put_along_axis(rank, self.order, np.arange(self.n_cells)[None], axis=1)
        needed = rank[self.cell_of[asked][:, None], self.cell_of[known]][known != asked[:, None]]
        most = max(1, round(_MOST_COMPARED * self.n_cells / math.sqrt(len(self.table))))
        if len(needed) == 0:
            return 1
        enough = np.sort(needed)[math.ceil(_WANTED_RECALL * len(needed)) - 1] + 1
        return min(int(enough), most, self.n_cells)

    def nearest(self, n_probes: int, n_wanted: int, work: _Work) -> tuple[Integers, NDArray[np.float64]]:
        """Return (n, n_wanted) the nearest rows of each row, itself included, and their squared distances."""
        n_wanted = min(n_wanted, len(self.table))
        sizes = np.diff(self.begins)
        nearest = np.empty((len(self.table), n_wanted), dtype=np.int64)
        distance = np.empty((len(self.table), n_wanted))

        def one(cell: int) -> None:
            there = self.order[cell]
            # Small cells may hold fewer rows than are wanted.
            n_least = int(np.searchsorted(np.cumsum(sizes[there]), n_wanted)) + 1
            candidates = torch.cat([self._rows(other) for other in there[: max(n_probes, n_least)].tolist()])
            own = self._rows(cell)
            found = _nearest_among(self.table.points[own], self.table, candidates, n_wanted, work.block)
            at = own.cpu().numpy()
            nearest[at], distance[at] = (each.cpu().numpy() for each in found)

        work.all(one, range(self.n_cells))
        return nearest, distance

    def _rows(self, cell: int) -> Tensor:
        return self.members[self.begins[cell] : self.begins[cell + 1]]


def _centers(table: _Table, n_cells: int, seed: int, work: _Work) -> Tensor:
    """Return (cells, r) centers of K-means of a sample; a center without rows stays."""
    points = table.points
    order = np.random.default_rng(seed_for(seed, "cells"))
    n_drawn = min(len(points), _SAMPLED_PER_CELL * n_cells)
    drawn = torch.from_numpy(order.choice(len(points), n_drawn, replace=False)).to(points.device)
    sample = points[drawn]
    whole = (sample * _UNIT).to(torch.int64)
    centers = sample[:n_cells]
    for _ in range(_ITERATIONS):
        labels = _nearest_center(sample, centers, work)
        sums = torch.zeros((n_cells, points.shape[1]), dtype=torch.int64, device=points.device)
        sums.index_add_(0, labels, whole)
        counts = torch.bincount(labels, minlength=n_cells)[:, None]
        centers = torch.where(counts > 0, (sums / counts.clamp(min=1) / _UNIT).to(points.dtype), centers)
    return centers


def _nearest_center(points: Tensor, centers: Tensor, work: _Work) -> Tensor:
    """Return (n,) the nearest center of each row."""
    offset = centers.square().sum(dim=1)

    def one(block: Tensor) -> Tensor:
        return torch.addmm(offset, block, centers.T, alpha=-2).argmin(dim=1)

    return torch.cat(work.all(one, torch.split(points, work.block[0])))


def _near_to_far(centers: Tensor) -> Integers:
    """Return (cells, cells) the cells from near to far, each cell's own first. O(cells²) = O(N) memory."""
    where = centers.double().cpu().numpy()
    squares = np.square(where).sum(axis=1)
    order = np.empty((len(where), len(where)), dtype=np.int64)
    for cell, center in enumerate(where):
        distance = squares - 2 * (where * center).sum(axis=1)
        distance[cell] = -np.inf
        order[cell] = np.argsort(distance, kind="stable")
    return order


def _sought(table: _Table, asked: Integers, n_wanted: int, work: _Work) -> tuple[Integers, NDArray[np.float64]]:
    """Return (s, n) the nearest of all rows to some of them, themselves included, and their squared distances."""
    n_wanted = min(n_wanted, len(table))
    blocks = torch.split(torch.from_numpy(asked).to(table.points.device), work.block[0])
    found = work.all(lambda own: _nearest_among(table.points[own], table, None, n_wanted, work.block), blocks)
    index, distance = (torch.cat(each).cpu().numpy() for each in zip(*found, strict=True))
    return index, distance


def _recall(table: _Table, targets: Integers, asked: Integers, work: _Work) -> float:
    """Return the share of the neighbors found of some rows that are no farther than their k-th nearest."""
    farthest = _sought(table, asked, targets.shape[1] + 1, work)[1][:, -1:]
    device = table.points.device
    own, others = (torch.from_numpy(each).to(device) for each in (asked, targets[asked]))
    distance = (table.points[others] - table.points[own][:, None]).double().square().sum(dim=2)
    return float((distance.cpu().numpy() <= farthest).mean())
