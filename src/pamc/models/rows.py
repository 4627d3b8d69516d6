"""Feature rows as an encoder takes them: dense, or sparse with the transposed copy that its gradient needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from pamc.data.attributed_graph import Features
from pamc.models.products import MIN_ROWS
from pamc.ops.torch_ops import csr_tensor

__all__ = ["FeatureRows", "SparseRows"]

# Above this share of nonzeros a dense product is the faster one.
_SPARSE_BELOW = 0.1

# Up to this size all rows are held dense on the device while batches of them are drawn.
_HELD_DENSE_BYTES = 1 << 30


@dataclass(frozen=True)
class SparseRows:
    """n rows of sparse features.

    Parameters
    ----------
    matrix
        (n, d) CSR tensor.
    transposed
        (d, n) CSR tensor of the same entries: the gradient of the first layer's weights is a product with it.
    """

    matrix: Tensor
    transposed: Tensor

    @classmethod
    def from_scipy(cls, block: sp.csr_matrix, *, device: torch.device, dtype: torch.dtype) -> SparseRows:
        """Return rows of a scipy matrix on a device."""
        return cls(*(csr_tensor(m, device=device, dtype=dtype) for m in (block, block.T.tocsr())))

    def __len__(self) -> int:
        return int(self.matrix.shape[0])


class FeatureRows:
    """The features of all rows, handed out in blocks on the device.

    Features stay where they are (an array, a memory-mapped file, a scipy matrix); a block travels when it is asked for.
    The last block is kept, so that all rows in one chunk travel once.

    Parameters
    ----------
    features
        (N, d) array or CSR matrix.
    device, dtype
        Of the blocks.
    sparse
        Hand out sparse blocks; None decides by the share of nonzeros.
    """

    def __init__(
        self, features: Features, *, device: torch.device, dtype: torch.dtype, sparse: bool | None = None
    ) -> None:
        self._features = features
        self.device = device
        self._dtype = dtype
        self.sparse = not isinstance(features, np.ndarray) and (_is_thin(features) if sparse is None else sparse)
        self._kept: tuple[tuple[int, int], Tensor | SparseRows] | None = None
        self._all_dense: Tensor | None = None

    def __len__(self) -> int:
        return int(self._features.shape[0])

    @property
    def n_features(self) -> int:
        """The number of columns, d."""
        return int(self._features.shape[1])

    def chunks(self, chunk_size: int | None) -> Iterator[tuple[slice, Tensor | SparseRows]]:
        """Yield (rows, block) over all rows in order; one block when `chunk_size` is None."""
        size = chunk_size or max(1, len(self))
        for start in range(0, len(self), size):
            stop = min(start + size, len(self))
            yield slice(start, stop), self.block(start, stop)

    def block(self, start: int, stop: int) -> Tensor | SparseRows:
        """Return rows start … stop−1, filled up with zero rows where they are few.

        So a row's embedding is the same bits whatever rows stand beside it.
        """
        if self._kept is not None and self._kept[0] == (start, stop):
            return self._kept[1]
        rows = self._features[start:stop]
        block = self._sparse_block(rows) if self.sparse else self._dense(rows, at_least=MIN_ROWS)
        self._kept = ((start, stop), block)
        return block

    def whole(self) -> Tensor | SparseRows:
        """Return all rows, none filled up: what a network that mixes rows takes."""
        if len(self) >= MIN_ROWS:
            return self.block(0, len(self))
        dense = self._dense(self._features)
        return SparseRows.from_scipy(self._features, device=self.device, dtype=self._dtype) if self.sparse else dense

    @property
    def holds_batches(self) -> bool:
        """Whether all rows fit on the device while batches of them are drawn: a gibibyte, dense."""
        return len(self) * self.n_features * self._dtype.itemsize <= _HELD_DENSE_BYTES

    def dense_batch(self, index: Tensor) -> Tensor:
        """Return the rows at `index` (n,), which is on the device, as a dense (n, d) tensor.

        Rows that fit there travel once; others, batch by batch.
        """
        if not self.holds_batches:
            return self._dense(self._features[index.cpu().numpy()])
        if self._all_dense is None:
            self._all_dense = self._dense(self._features)
        return self._all_dense[index]

    def release_batches(self) -> None:
        """Forget the dense copy that :meth:`dense_batch` holds."""
        self._all_dense = None

    def _sparse_block(self, rows: Any) -> SparseRows:
        missing = MIN_ROWS - rows.shape[0]
        if missing > 0:
            rows = sp.vstack([rows, sp.csr_matrix((missing, rows.shape[1]), dtype=rows.dtype)], format="csr")
        return SparseRows.from_scipy(rows, device=self.device, dtype=self._dtype)

    def _dense(self, rows: Any, at_least: int = 0) -> Tensor:
        array = rows.toarray() if sp.issparse(rows) else np.ascontiguousarray(rows)
        if len(array) < at_least:
            array = np.vstack([array, np.zeros((at_least - len(array), array.shape[1]), array.dtype)])
        return torch.tensor(array, device=self.device, dtype=self._dtype)


def _is_thin(matrix: sp.csr_matrix) -> bool:
    n_rows, n_columns = matrix.shape
    return bool(matrix.nnz < _SPARSE_BELOW * n_rows * n_columns)
