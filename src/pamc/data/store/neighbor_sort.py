"""External sorting of neighbors: every pair is stored once in each direction, ordered by row.

Pairs are partitioned by row into buckets, which are files small enough to be sorted in memory one at a time. Memory
does not grow with the size of the graph.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pamc.data.store.store import index_dtype
from pamc.data.store.writer import StoreWriter
from pamc.errors import DataError
from pamc.progress import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")

# A 64-bit key holds a row and its neighbor.
_MOST_NODES = 2**32
# Maximum number of bucket files; a file is opened only while it is written.
_MOST_BUCKETS = 4096


@dataclass(frozen=True)
class _Bucket:
    """A range of rows, and the files of their neighbors and weights."""

    start: int
    stop: int
    keys: Path
    weights: Path


class NeighborSorter:
    """Sorts pairs given in any order and writes them as ``indptr``, ``indices`` and ``weight`` of a store.

    As in :func:`pamc.graph.adjacency.build_adjacency`, self-loops are removed; a repeated line counts once, or with the
    sum of its weights; and the two directions of a pair are merged by their maximum. Buckets are files in `folder`;
    `starts` is the first row of each bucket, from :func:`bucket_starts`.
    """

    def __init__(self, folder: Path, n_nodes: int, starts: NDArray[np.int64], *, weighted: bool) -> None:
        if n_nodes > _MOST_NODES:
            raise DataError(f"{n_nodes} rows are too many for a store with edges, which can have at most {_MOST_NODES}")
        self.n_nodes = n_nodes
        self.weighted = weighted
        self._starts = starts
        self._shift = np.uint64(max(1, (n_nodes - 1).bit_length()))
        self._lock = threading.Lock()
        stops = [*starts[1:].tolist(), n_nodes]
        self._buckets = [
            _Bucket(start, stop, folder / f"bucket-{number}", folder / f"bucket-{number}-weights")
            for number, (start, stop) in enumerate(zip(starts.tolist(), stops, strict=True))
        ]

    def start(self) -> None:
        """Delete bucket files left by an earlier attempt."""
        for bucket in self._buckets:
            bucket.keys.unlink(missing_ok=True)
            bucket.weights.unlink(missing_ok=True)

    def add(self, source: NDArray[Any], target: NDArray[Any], weight: NDArray[Any] | None = None) -> None:
        """Add (M,) pairs; thread-safe. O(M log M) time, O(M) memory."""
        source, target = source.astype(np.uint64), target.astype(np.uint64)
        keys = np.concatenate([source << self._shift | target, target << self._shift | source])
        is_pair = np.tile(source != target, 2)
        signed = None
        if weight is None:
            keys = keys[is_pair]
            keys.sort()
            keys = keys[_first_of_equals(keys)]
        else:
            # The sign encodes the direction in which a line lists the pair.
            order = np.argsort(keys)
            order = order[is_pair[order]]
            keys = keys[order]
            signed = np.concatenate([weight, -weight]).astype(np.float32)[order]
        ends = np.searchsorted(keys, self._starts[1:].astype(np.uint64) << self._shift)
        bounds = [0, *ends.tolist(), len(keys)]
        with self._lock:
            for bucket, first, last in zip(self._buckets, bounds, bounds[1:], strict=False):
                if first == last:
                    continue
                with bucket.keys.open("ab") as file:
                    file.write(keys[first:last].data)
                if signed is not None:
                    with bucket.weights.open("ab") as file:
                        file.write(signed[first:last].data)

    def write(self, writer: StoreWriter, *, progress: Progress, n_threads: int = 2, suffix: str = "") -> int:
        """Write the arrays of the store and return the number of stored neighbors; holds one bucket per thread.

        `suffix` is appended to the names of the arrays.
        """
        indptr = writer.create(f"indptr{suffix}", self.n_nodes + 1, np.int64)
        n_stored = 0
        indices = writer.grow(f"indices{suffix}", index_dtype(self.n_nodes))
        weights = writer.grow(f"weight{suffix}", np.float32) if self.weighted else None
        with ThreadPoolExecutor(n_threads) as pool, progress.phase("neighbors", len(self._buckets)) as phase:
            sorted_buckets = in_order(pool, self._sorted, self._buckets, ahead=n_threads)
            for bucket, (degrees, neighbors, weight) in zip(self._buckets, sorted_buckets, strict=True):
                indptr[bucket.start + 1 : bucket.stop + 1] = n_stored + np.cumsum(degrees)
                n_stored += len(neighbors)
                indices.append(neighbors)
                if weights is not None and weight is not None:
                    weights.append(weight)
                phase.advance()
        indices.close()
        if weights is not None:
            weights.close()
        return n_stored

    def _sorted(self, bucket: _Bucket) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float32] | None]:
        """Return the degrees, neighbors and weights of a bucket's rows."""
        keys = _from_file(bucket.keys, np.uint64)
        weight = None
        if self.weighted:
            signed = _from_file(bucket.weights, np.float32)
            order = np.argsort(keys, kind="stable")
            keys, signed = keys[order], signed[order]
            first = _first_of_equals(keys)
            weight = _merged(signed, first)
        else:
            keys.sort()
            first = _first_of_equals(keys)
        keys = keys[first]
        rows = (keys >> self._shift).astype(np.int64) - bucket.start
        degrees = np.bincount(rows, minlength=bucket.stop - bucket.start)
        neighbors = (keys & ((np.uint64(1) << self._shift) - np.uint64(1))).astype(index_dtype(self.n_nodes))
        return degrees, neighbors, weight


def bucket_starts(n_nodes: int, counts: NDArray[np.int64], *, memory_bytes: int, weighted: bool) -> NDArray[np.int64]:
    """Return the first rows of buckets such that two at a time can be sorted within the given memory.

    `counts` (R,) is the number of neighbors, including repeated ones, of the rows in each of R equal ranges. A bucket
    consists of whole ranges.

    Examples
    --------
    >>> bucket_starts(100, np.array([10, 1000, 1000, 10]), memory_bytes=65_000, weighted=False).tolist()
    [0, 50]
    """
    # Keys, their sorted order or distinct values, rows and neighbors, of two buckets that are sorted at once.
    per_entry = 2 * (72 if weighted else 32)
    max_entries = max(1, memory_bytes // per_entry, int(counts.sum()) // _MOST_BUCKETS)
    width = -(-n_nodes // len(counts))
    starts, n_entries = [0], 0
    for number, count in enumerate(counts.tolist()):
        if n_entries and n_entries + count > max_entries and number * width < n_nodes:
            starts.append(number * width)
            n_entries = 0
        n_entries += count
    return np.array(starts, dtype=np.int64)


def in_order(
    pool: ThreadPoolExecutor, function: Callable[[Item], Result], items: Iterable[Item], *, ahead: int
) -> Iterator[Result]:
    """Yield the results of a function in the order of its items, with at most `ahead` pending calls."""
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
            waiting.append(pool.submit(function, item))
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _first_of_equals(keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    first = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return first


def _merged(signed: NDArray[np.float32], first: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return one weight per pair: the larger of the sums of its two directions."""
    if len(signed) == 0:
        return signed
    begins = np.flatnonzero(first)
    sums = [np.add.reduceat(np.maximum(part, 0).astype(np.float64), begins) for part in (signed, -signed)]
    return np.maximum(*sums).astype(np.float32)


def _from_file(path: Path, dtype: type[Any]) -> NDArray[Any]:
    return np.fromfile(path, dtype=dtype) if path.exists() else np.zeros(0, dtype=dtype)
