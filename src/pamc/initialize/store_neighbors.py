"""The neighbors of a store that came without edges: nearly the nearest rows, by angle in its leading directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pamc.data.store import Store
from pamc.data.store.store import StoreFeatures
from pamc.graph.adjacency import build_adjacency
from pamc.graph.neighbors import ANGLE, DIRECTIONS, nearest

__all__ = ["WithNeighbors", "with_neighbors"]

# Rows that are turned into the directions in which they are compared, at a time.
_TURNED_AT_A_TIME = 1 << 14


class WithNeighbors:
    """A store, and neighbors of its rows that were found instead of given. In all else it is that store."""

    has_edges = True
    weight = None

    def __init__(self, store: Store, indptr: NDArray[np.int64], indices: NDArray[Any], recall: float) -> None:
        self._store, self.indptr, self.indices = store, indptr, indices
        self.recall = recall

    @property
    def n_stored(self) -> int:
        """The number of stored neighbors."""
        return len(self.indices)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def with_neighbors(
    store: Store,
    rows: StoreFeatures,
    numbers: NDArray[np.int64],
    n_neighbors: int,
    *,
    seed: int,
    device: torch.device,
) -> WithNeighbors:
    """Return the store with the nearest rows of each, and the recall that was measured.

    O(N·√N) time, O(N·(50 + k)) memory.

    Parameters
    ----------
    rows
        All rows, prepared.
    numbers
        Rows of a sample: the directions are theirs.
    """
    sample = np.asarray(rows[numbers], dtype=np.float64)
    mean = sample.mean(axis=0)
    centered = sample - mean
    _, vectors = np.linalg.eigh(centered.T @ centered)
    leading = vectors[:, ::-1][:, :DIRECTIONS]
    turned = np.empty((len(rows), leading.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), _TURNED_AT_A_TIME):
        own = slice(start, start + _TURNED_AT_A_TIME)
        turned[own] = (rows[own] - mean) @ leading
    # Half the memory of float64, in which such rows are kept otherwise.
    placed: Any = turned
    found = nearest(placed, n_neighbors, metric=ANGLE, device=device, seed=seed)
    adjacency = build_adjacency(found.edges, None, n_nodes=len(rows), expect_directed=True)
    return WithNeighbors(store, adjacency.indptr.astype(np.int64), adjacency.indices, found.recall)
