"""Matrix products that are bitwise equal on a CPU for any number of threads.

A BLAS splits a product between threads, and rounding depends on the split, which differs by processor:

- On an Intel processor, MKL splits rows, columns and inner sums. This module therefore splits a product into blocks
  whose size depends only on the shape, and each block is computed by one thread, which is slower than one product.
- On other processors, a BLAS splits columns, and rounding differs only if a thread's share of them is not a multiple of
  the vector length: narrow matrices are padded with zero columns, at almost no cost.

Work that always runs on one thread (:func:`~pamc.runtime.one_thread`) needs neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import pad

from pamc.ops.dispatch import transposed
from pamc.runtime import cpu_name, is_on_one_thread

_CUT_HERE = "intel" in cpu_name().lower()

# Number of blocks: more than the threads of most machines, because otherwise a block would be split.
_N_BLOCKS = 32

# Minimum number of rows per block; smaller blocks are slow.
_ROWS_PER_BLOCK = 8

# With at least this many rows, a row of a product is bitwise independent of the number of other rows: below 16 rows at
# a time a BLAS uses different code paths.
MIN_ROWS = 16 * (_N_BLOCKS if _CUT_HERE else 1)

# Below this width, and for all widths in float64, columns are padded to a multiple of 16.
_WIDE = 320
_VECTOR = 16

# Tensor cores need matrices whose rows are aligned to this many bytes; other matrices are much slower.
_ALIGNMENT_BYTES = 16

# Ratio of rows to columns above which a weight matrix is transposed in memory for a GPU.
_TALL = 2


def aligned(x: Tensor, *, rows: bool = False) -> Tensor:
    """Pad x with zero columns, and with zero rows if `rows`, to sizes that suit a GPU's matrix products.

    On a CPU, x is returned unchanged.
    """
    if x.device.type == "cpu":
        return x
    size = _ALIGNMENT_BYTES // x.dtype.itemsize
    more_columns, more_rows = -x.shape[-1] % size, -len(x) % size if rows else 0
    if not more_columns and not more_rows:
        return x
    return pad(x, (0, more_columns) if x.ndim == 1 else (0, more_columns, 0, more_rows))


def row_product(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, rectified: bool = False, tensor_cores: bool = False
) -> Tensor:
    """Return x @ weight + bias, (n, m), for tall x (n, k), weight (k, m) and bias (m,). O(n·k·m) time.

    `rectified` applies a ReLU. With `tensor_cores`, a GPU may round float32 factors to the 10 bits of TF32; sums are
    accumulated in float32.
    """
    if x.device.type != "cpu":
        if len(weight) >= _TALL * weight.shape[1] and weight.is_contiguous():
            # Long sums are faster along contiguous memory; the copy is small compared to x.
            weight = transposed(weight).T
        with products_in_tf32(tensor_cores):
            if rectified and bias is not None and x.dtype == torch.float32:
                # A single kernel: the epilogue of the product adds the bias and applies the ReLU.
                return torch._addmm_activation(bias, x, weight)
            product = x @ weight if bias is None else torch.addmm(bias, x, weight)
    else:
        product = _row_product_on_cpu(x, weight, bias)
    return product.relu_() if rectified else product


def _row_product_on_cpu(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if is_on_one_thread():
        return x @ weight if bias is None else torch.addmm(bias, x, weight)
    if _CUT_HERE:
        size = max(_ROWS_PER_BLOCK, -(-len(x) // _N_BLOCKS))
        n_blocks = max(_N_BLOCKS, -(-len(x) // size))
        blocks = pad(x, (0, 0, 0, n_blocks * size - len(x))).view(n_blocks, size, x.shape[1])
        product = torch.bmm(blocks, weight.expand(n_blocks, -1, -1)).flatten(0, 1)[: len(x)]
        return product if bias is None else product + bias
    n_columns = weight.shape[1]
    x, weight = _filled(x, columns=True), _filled(weight, rows=True, columns=True)
    product = x @ weight if bias is None else torch.addmm(_filled(bias[None], columns=True)[0], x, weight)
    return product[:, :n_columns]


def column_product(x: Tensor, y: Tensor, *, tensor_cores: bool = False) -> Tensor:
    """Return xᵀ @ y, (k, m), for tall x (n, k) and y (n, m), as :func:`row_product`. O(n·k·m) time."""
    n_rows, n_columns = x.shape[1], y.shape[1]
    if x.device.type != "cpu":
        with products_in_tf32(tensor_cores):
            return x.T @ y
    if is_on_one_thread():
        return x.T @ y
    if n_rows < n_columns:
        # The wider matrix comes first: otherwise the sum over n would be split.
        return column_product(y, x).T.contiguous()
    if _CUT_HERE:
        size = -(-n_rows // _N_BLOCKS)
        blocks = pad(x, (0, -n_rows % size)).view(len(x), -1, size).permute(1, 2, 0)
        return torch.bmm(blocks, y.expand(len(blocks), -1, -1)).flatten(0, 1)[:n_rows]
    return (_filled(x, columns=True).T @ _filled(y, columns=True))[:n_rows, :n_columns].contiguous()


@contextmanager
def products_in_tf32(allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 for the products inside the context, regardless of the global setting."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def _filled(x: Tensor, *, rows: bool = False, columns: bool = False) -> Tensor:
    """Pad x with zero rows and columns to sizes that are split evenly."""
    more_rows = _missing(x.shape[0], x.dtype) if rows else 0
    more_columns = _missing(x.shape[1], x.dtype) if columns else 0
    return pad(x, (0, more_columns, 0, more_rows)) if more_rows or more_columns else x


def _missing(width: int, dtype: torch.dtype) -> int:
    return 0 if width >= _WIDE and dtype == torch.float32 else -width % _VECTOR
