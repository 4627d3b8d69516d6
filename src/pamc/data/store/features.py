"""Prepared rows of a store: read from its files when they are asked for, and never all at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.blocks import row_blocks
from pamc.data.preprocessing import Preprocessing
from pamc.data.store.store import Store

__all__ = ["StoreFeatures", "neighborhood_means"]

# Neighbors of a row that its neighborhood is made of, and rows whose neighborhoods are read at a time.
_MOST_NEIGHBORS = 16
_READ_AT_A_TIME = 2048


@dataclass(frozen=True, eq=False)
class StoreFeatures:
    """(N, d) rows of a memory-mapped table, prepared when they are read.

    Parameters
    ----------
    raw
        (N, d) array, or a slice of one, in a file or in memory.
    preprocessing
        How each row is prepared.
    """

    raw: NDArray[Any]
    preprocessing: Preprocessing

    @property
    def shape(self) -> tuple[int, int]:
        """N and d."""
        n_rows, n_features = self.raw.shape
        return n_rows, n_features

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, rows: Any) -> NDArray[np.floating[Any]]:
        prepared: Any = self.preprocessing.apply(np.array(self.raw[rows], dtype=np.float32))
        dense: NDArray[np.floating[Any]] = prepared
        return dense


def neighborhood_means(store: Store, rows: StoreFeatures, numbers: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
    """Return (n, d) the mean of each numbered row and its neighbors, of which at most 16, spread evenly, are read.

    O(n·d) time, O(d) memory beside the result.
    """
    means = np.empty((len(numbers), store.n_features), dtype=np.float32)
    for block in row_blocks(len(numbers), _READ_AT_A_TIME):
        asked = numbers[block]
        begin, n_all = store.indptr[asked], store.indptr[asked + 1] - store.indptr[asked]
        n_read = np.minimum(n_all, _MOST_NEIGHBORS)
        owner = np.repeat(np.arange(len(asked)), n_read)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(n_read) - n_read, n_read)
        entry = begin[owner] + place * n_all[owner] // np.maximum(n_read[owner], 1)
        total = rows[asked]
        # Rows of a file are read in the order in which they lie there.
        neighbors, order = np.unique(np.asarray(store.indices[entry]), return_inverse=True)
        np.add.at(total, owner, rows[neighbors][order])
        means[block] = total / (n_read + 1)[:, None]
    return means
