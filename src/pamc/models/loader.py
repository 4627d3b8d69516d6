"""Feature rows in the encoder's format: dense, or sparse with the transposed copy that the gradient needs."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from pamc.data.attributed_graph import Features
from pamc.models.products import MIN_ROWS
from pamc.ops.torch.rows import csr_tensor

# Fraction of nonzero entries above which a dense product is faster.
_SPARSE_BELOW = 0.1

# Up to this size, a dense copy of all rows stays on the device while batches are drawn.
_HELD_DENSE_BYTES = 1 << 30


@dataclass(frozen=True)
class SparseBlock:
    """A block of n rows of sparse features.

    Parameters
    ----------
    matrix
        (n, d) CSR tensor.
    transposed
        (d, n) CSR tensor of the same entries, from which the gradient of the first layer's weights is computed.
    """

    matrix: Tensor
    transposed: Tensor

    @classmethod
    def from_scipy(cls, block: sp.csr_matrix, *, device: torch.device, dtype: torch.dtype) -> SparseBlock:
        """Copy rows of a scipy matrix to a device."""
        return cls(*(csr_tensor(m, device=device, dtype=dtype) for m in (block, block.T.tocsr())))

    def __len__(self) -> int:
        return int(self.matrix.shape[0])


class FeatureLoader:
    """The features of all rows, loaded in blocks to the device.

    The features themselves (an array, a memory-mapped file, a scipy matrix, a tensor on the device) are not moved; a
    block is copied on request. With several chunks, the next one is read while one is processed. A single chunk of all
    rows is cached, so that it is copied once.

    Parameters
    ----------
    features
        (N, d) array, CSR matrix or tensor; or any object of that shape whose slices of rows are arrays.
    device, dtype
        Device and dtype of the blocks.
    sparse
        Whether to load sparse blocks; None decides by the fraction of nonzeros.
    """

    def __init__(
        self, features: Features | Tensor, *, device: torch.device, dtype: torch.dtype, sparse: bool | None = None
    ) -> None:
        self._features: Any = features
        self.device = device
        self.dtype = dtype
        if sparse is None:
            sparse = getattr(features, "nnz", 0) < _SPARSE_BELOW * len(self) * self.n_features
        self.sparse = bool(sp.issparse(features) and sparse)
        self._cached: tuple[tuple[int, int], Tensor | SparseBlock] | None = None
        self._all_dense: Tensor | None = None

    def __len__(self) -> int:
        return int(self._features.shape[0])

    @property
    def features(self) -> Any:
        """The features as they were passed."""
        return self._features

    @property
    def n_features(self) -> int:
        """Number of columns, d."""
        return int(self._features.shape[1])

    def chunks(self, chunk_size: int | None) -> Iterator[tuple[slice, Tensor | SparseBlock]]:
        """Yield (rows, block) over all rows in order; a single block if `chunk_size` is None."""
        size = chunk_size or max(1, len(self))
        if size >= len(self):
            yield slice(0, len(self)), self.block(0, len(self))
            return
        chunks = (slice(start, min(start + size, len(self))) for start in range(0, len(self), size))
        if isinstance(self._features, Tensor) and self._features.device == self.device:
            yield from ((chunk, self._block(chunk.start, chunk.stop)) for chunk in chunks)
        else:
            yield from self._read_ahead(chunks)

    def _read_ahead(self, chunks: Iterable[slice]) -> Iterator[tuple[slice, Tensor | SparseBlock]]:
        """Yield (rows, block) in order while a thread reads the next block; at most two blocks are in memory."""
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="pamc-ahead") as pool:
            current: tuple[slice, Future[Tensor | SparseBlock]] | None = None
            for chunk in chunks:
                following = (chunk, pool.submit(self._block, chunk.start, chunk.stop))
                if current is not None:
                    yield current[0], current[1].result()
                current = following
            if current is not None:
                yield current[0], current[1].result()

    def block(self, start: int, stop: int) -> Tensor | SparseBlock:
        """Return rows start … stop−1, padded with zero rows if they are few.

        The embedding of a row is therefore bitwise independent of the other rows in its block.
        """
        if self._cached is not None and self._cached[0] == (start, stop):
            return self._cached[1]
        block = self._block(start, stop)
        self._cached = ((start, stop), block)
        return block

    def _block(self, start: int, stop: int) -> Tensor | SparseBlock:
        rows = self._features[start:stop]
        return self._sparse_block(rows) if self.sparse else self._dense(rows, at_least=MIN_ROWS)

    def whole(self) -> Tensor | SparseBlock:
        """Return all rows without padding, as a network that mixes rows needs them."""
        if len(self) >= MIN_ROWS:
            return self.block(0, len(self))
        if self.sparse:
            return SparseBlock.from_scipy(self._features, device=self.device, dtype=self.dtype)
        return self._dense(self._features)

    @property
    def holds_batches(self) -> bool:
        """Whether a dense copy of all rows, of at most 1 GiB, stays on the device while batches are drawn."""
        return len(self) * self.n_features * self.dtype.itemsize <= _HELD_DENSE_BYTES

    def dense_batch(self, index: Tensor) -> Tensor:
        """Return the rows at `index` (n,), a tensor on the device, as a dense (n, d) tensor.

        All rows are copied to the device once if :attr:`holds_batches`, else batch by batch.
        """
        if isinstance(self._features, Tensor):
            return self._features[index.to(self._features.device)].to(device=self.device, dtype=self.dtype)
        if not self.holds_batches:
            return self._dense(self._features[index.cpu().numpy()])
        if self._all_dense is None:
            self._all_dense = self._dense(self._features)
        return self._all_dense[index]

    def sparse_batch(self, index: Tensor) -> sp.csr_matrix:
        """Return a copy of the rows at `index` (n,) of sparse features, in host memory."""
        return self._features[index.cpu().numpy()]

    def release_batches(self) -> None:
        """Free the dense copy that :meth:`dense_batch` made."""
        self._all_dense = None

    def _sparse_block(self, rows: Any) -> SparseBlock:
        missing = MIN_ROWS - rows.shape[0]
        if missing > 0:
            rows = sp.vstack([rows, sp.csr_matrix((missing, rows.shape[1]), dtype=rows.dtype)], format="csr")
        return SparseBlock.from_scipy(rows, device=self.device, dtype=self.dtype)

    def _dense(self, rows: Any, at_least: int = 0) -> Tensor:
        """Return rows on the device, padded with zero rows; a tensor that is already on the device is not copied."""
        if isinstance(rows, Tensor):
            block = rows.to(device=self.device, dtype=self.dtype)
        else:
            array = rows.toarray() if sp.issparse(rows) else np.ascontiguousarray(rows)
            block = sent_to(torch.tensor(array, dtype=self.dtype), self.device)
        missing = at_least - len(block)
        return torch.cat([block, block.new_zeros(missing, block.shape[1])]) if missing > 0 else block


@torch.no_grad()
def encode_rows(encoder: nn.Module, rows: FeatureLoader, *, chunk_size: int | None = None) -> Tensor:
    """Return z (N, n_dims) of all rows, encoded `chunk_size` rows at a time."""
    return torch.cat([encode_chunk(encoder, chunk, block) for chunk, block in rows.chunks(chunk_size)])


def encode_chunk(encoder: nn.Module, chunk: slice, block: Tensor | SparseBlock) -> Tensor:
    """Return z of one chunk, without the zero rows that pad its block."""
    z: Tensor = encoder(block)
    n_rows = chunk.stop - chunk.start
    # The gradient of a slice is a zero-padded copy, which the full tensor does not need.
    return z if len(z) == n_rows else z[:n_rows]


def on_device(encoder: nn.Module, device: torch.device) -> nn.Module:
    """Return the network itself if it is on the device, else a copy on the device; the original is not moved."""
    if all(tensor.device == device for tensor in encoder.state_dict().values()):
        return encoder
    return copy.deepcopy(encoder).to(device)


def sent_to(block: Tensor, device: torch.device) -> Tensor:
    """Copy a block of host memory to a device.

    For a GPU the copy uses page-locked memory and a separate stream, so that it runs concurrently with other work. It
    is complete when this function returns, so that no further synchronization is needed.
    """
    if device.type != "cuda":
        return block.to(device)
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        copied = block.pin_memory().to(device, non_blocking=True)
    stream.synchronize()
    return copied
