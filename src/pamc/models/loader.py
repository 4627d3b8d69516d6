"""Feature rows as an encoder takes them: dense, or sparse with the transposed copy that its gradient needs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from pamc.data.attributed_graph import Features
from pamc.models.products import MIN_ROWS
from pamc.ops.torch.rows import csr_tensor

__all__ = ["FeatureLoader", "SparseBlock", "encode_chunk", "encode_rows", "made_ahead", "on_device", "sent_to"]

Key = TypeVar("Key")
Block = TypeVar("Block")

# Above this share of nonzeros a dense product is the faster one.
_SPARSE_BELOW = 0.1

# Up to this size all rows are held dense on the device while batches of them are drawn.
_HELD_DENSE_BYTES = 1 << 30


@dataclass(frozen=True)
class SparseBlock:
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
    def from_scipy(cls, block: sp.csr_matrix, *, device: torch.device, dtype: torch.dtype) -> SparseBlock:
        """Return rows of a scipy matrix on a device."""
        return cls(*(csr_tensor(m, device=device, dtype=dtype) for m in (block, block.T.tocsr())))

    def __len__(self) -> int:
        return int(self.matrix.shape[0])


class FeatureLoader:
    """The features of all rows, handed out in blocks on the device.

    Features stay where they are (an array, a memory-mapped file, a scipy matrix, a tensor of the device); a block
    travels when it is asked for. Of several chunks the next one is read while one is worked on. All rows in one chunk
    are kept, so that they travel once.

    Parameters
    ----------
    features
        (N, d) array, CSR matrix or tensor; or anything of that shape whose slices of rows are arrays.
    device, dtype
        Of the blocks.
    sparse
        Hand out sparse blocks; None decides by the share of nonzeros.
    """

    def __init__(
        self, features: Features | Tensor, *, device: torch.device, dtype: torch.dtype, sparse: bool | None = None
    ) -> None:
        self._features: Any = features
        self.device = device
        self._dtype = dtype
        self.sparse = bool(sp.issparse(features) and (_is_thin(features) if sparse is None else sparse))
        self._kept: tuple[tuple[int, int], Tensor | SparseBlock] | None = None
        self._all_dense: Tensor | None = None

    def __len__(self) -> int:
        return int(self._features.shape[0])

    @property
    def n_features(self) -> int:
        """The number of columns, d."""
        return int(self._features.shape[1])

    def chunks(self, chunk_size: int | None) -> Iterator[tuple[slice, Tensor | SparseBlock]]:
        """Yield (rows, block) over all rows in order; one block when `chunk_size` is None."""
        size = chunk_size or max(1, len(self))
        if size >= len(self):
            yield slice(0, len(self)), self.block(0, len(self))
            return
        chunks = (slice(start, min(start + size, len(self))) for start in range(0, len(self), size))
        if isinstance(self._features, Tensor) and self._features.device == self.device:
            yield from ((chunk, self._block(chunk.start, chunk.stop)) for chunk in chunks)
        else:
            yield from made_ahead(chunks, lambda chunk: self._block(chunk.start, chunk.stop))

    def block(self, start: int, stop: int) -> Tensor | SparseBlock:
        """Return rows start … stop−1, filled up with zero rows where they are few.

        So a row's embedding is the same bits whatever rows stand beside it.
        """
        if self._kept is not None and self._kept[0] == (start, stop):
            return self._kept[1]
        block = self._block(start, stop)
        self._kept = ((start, stop), block)
        return block

    def _block(self, start: int, stop: int) -> Tensor | SparseBlock:
        rows = self._features[start:stop]
        return self._sparse_block(rows) if self.sparse else self._dense(rows, at_least=MIN_ROWS)

    def whole(self) -> Tensor | SparseBlock:
        """Return all rows, none filled up: what a network that mixes rows takes."""
        if len(self) >= MIN_ROWS:
            return self.block(0, len(self))
        dense = self._dense(self._features)
        return SparseBlock.from_scipy(self._features, device=self.device, dtype=self._dtype) if self.sparse else dense

    @property
    def holds_batches(self) -> bool:
        """Whether all rows fit on the device while batches of them are drawn: a gibibyte, dense."""
        return len(self) * self.n_features * self._dtype.itemsize <= _HELD_DENSE_BYTES

    def dense_batch(self, index: Tensor) -> Tensor:
        """Return the rows at `index` (n,), which is on the device, as a dense (n, d) tensor.

        Rows that fit there travel once; others, batch by batch.
        """
        if isinstance(self._features, Tensor):
            return self._features[index.to(self._features.device)].to(device=self.device, dtype=self._dtype)
        if not self.holds_batches:
            return self._dense(self._features[index.cpu().numpy()])
        if self._all_dense is None:
            self._all_dense = self._dense(self._features)
        return self._all_dense[index]

    def release_batches(self) -> None:
        """Forget the dense copy that :meth:`dense_batch` holds."""
        self._all_dense = None

    def _sparse_block(self, rows: Any) -> SparseBlock:
        missing = MIN_ROWS - rows.shape[0]
        if missing > 0:
            rows = sp.vstack([rows, sp.csr_matrix((missing, rows.shape[1]), dtype=rows.dtype)], format="csr")
        return SparseBlock.from_scipy(rows, device=self.device, dtype=self._dtype)

    def _dense(self, rows: Any, at_least: int = 0) -> Tensor:
        """Return rows on the device, filled up with zero rows; a tensor that lies there already is not copied."""
        if isinstance(rows, Tensor):
            block = rows.to(device=self.device, dtype=self._dtype)
        else:
            array = rows.toarray() if sp.issparse(rows) else np.ascontiguousarray(rows)
            block = sent_to(torch.tensor(array, dtype=self._dtype), self.device)
        missing = at_least - len(block)
        return torch.cat([block, block.new_zeros(missing, block.shape[1])]) if missing > 0 else block


def _is_thin(matrix: sp.csr_matrix) -> bool:
    n_rows, n_columns = matrix.shape
    return bool(matrix.nnz < _SPARSE_BELOW * n_rows * n_columns)


@torch.no_grad()
def encode_rows(encoder: nn.Module, rows: FeatureLoader, *, chunk_size: int | None = None) -> Tensor:
    """Return z (N, n_dims) of all rows, encoded `chunk_size` rows at a time."""
    return torch.cat([encode_chunk(encoder, chunk, block) for chunk, block in rows.chunks(chunk_size)])


def encode_chunk(encoder: nn.Module, chunk: slice, block: Tensor | SparseBlock) -> Tensor:
    """Return z of one chunk, without the zero rows that filled up its block."""
    z: Tensor = encoder(block)
    n_rows = chunk.stop - chunk.start
    # The gradient of a part is a copy of it in zeros, which the whole does not need.
    return z if len(z) == n_rows else z[:n_rows]


def on_device(encoder: nn.Module, device: torch.device) -> nn.Module:
    """Return a network on a device: itself where it is there already, else a copy, so that nobody's own one moves."""
    if all(tensor.device == device for tensor in encoder.state_dict().values()):
        return encoder
    return copy.deepcopy(encoder).to(device)


def made_ahead(keys: Iterable[Key], make: Callable[[Key], Block]) -> Iterator[tuple[Key, Block]]:
    """Yield each key with what is made of it, in order; a thread makes the next one meanwhile.

    Two blocks are held at a time. What goes wrong in the thread is raised here.

    Examples
    --------
    >>> list(made_ahead([1, 2, 3], lambda key: key * key))
    [(1, 1), (2, 4), (3, 9)]
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="pamc-ahead") as pool:
        waiting: tuple[Key, Any] | None = None
        for key in keys:
            following = (key, pool.submit(make, key))
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = following
        if waiting is not None:
            yield waiting[0], waiting[1].result()


def sent_to(block: Tensor, device: torch.device) -> Tensor:
    """Return a block of host memory on a device.

    A GPU's copy goes from page-locked memory and on a stream of its own, beside the work on others; it has arrived when
    this returns, so that whoever is given the block need not know.
    """
    if device.type != "cuda":
        return block.to(device)
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        there = block.pin_memory().to(device, non_blocking=True)
    stream.synchronize()
    return there
