"""Matrix products that are, on a CPU, the same bits for any number of threads.

A BLAS divides a product among its threads and rounds by the division. How it divides differs by processor:

- Intel's MKL on an Intel processor divides rows, columns and inner sums. There a product is cut here, into blocks whose
  size depends on nothing but the shape, and each block is left to one thread. That is slower than one whole product.
- On other processors it divides columns, and rounds differently only where a share of them is not a whole number of
  vectors: narrow matrices are filled up with zero columns, which costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import pad

from pamc.ops.dispatch import transposed
from pamc.runtime import cpu_name

__all__ = ["MIN_ROWS", "aligned", "column_product", "products_in_tf32", "row_product"]

_CUT_HERE = "intel" in cpu_name().lower()

# Blocks of a product that is cut here: more than the threads of most machines, or a block would be divided after all.
_N_BLOCKS = 32

# Blocks of fewer rows are slow.
_ROWS_PER_BLOCK = 8

# With at least this many rows, the bits of a row of a product do not depend on how many other rows there are: below 16
# rows at a time a BLAS takes other paths.
MIN_ROWS = 16 * (_N_BLOCKS if _CUT_HERE else 1)

# Below this width, and for all widths in float64, columns are filled up to a multiple of 16.
_WIDE = 320
_VECTOR = 16

# Tensor cores read matrices whose rows begin at multiples of so many bytes; others take a much slower way.
_ALIGNMENT_BYTES = 16

# Rows over columns of a weight from which on a GPU wants it transposed in memory.
_TALL = 2


def aligned(x: Tensor, *, rows: bool = False) -> Tensor:
    """Return x with zero columns, and rows where asked for, up to sizes that a GPU's matrix products like.

    Itself on a CPU.
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

    With `rectified`, what is below 0 is 0. With `tensor_cores`, a GPU may round float32 factors to the 10 bits of TF32;
    sums are taken in float32.
    """
    if x.device.type != "cpu":
        if len(weight) >= _TALL * weight.shape[1] and weight.is_contiguous():
            # Long sums are taken faster along memory; the copy is small beside x.
            weight = transposed(weight).T
        with products_in_tf32(tensor_cores):
            if rectified and bias is not None and x.dtype == torch.float32:
                # One kernel: the product's own last step adds the bias and cuts at 0.
                return torch._addmm_activation(bias, x, weight)
            product = x @ weight if bias is None else torch.addmm(bias, x, weight)
    else:
        product = _row_product_on_cpu(x, weight, bias)
    return product.relu_() if rectified else product


def _row_product_on_cpu(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
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
    """Return xᵀ @ y, (k, m), for tall x (n, k) and y (n, m). O(n·k·m) time. As :func:`row_product`."""
    n_rows, n_columns = x.shape[1], y.shape[1]
    if x.device.type != "cpu":
        with products_in_tf32(tensor_cores):
            return x.T @ y
    if n_rows < n_columns:
        # The wider matrix first: the other way round the sum over n would be divided.
        return column_product(y, x).T.contiguous()
    if _CUT_HERE:
        size = -(-n_rows // _N_BLOCKS)
        blocks = pad(x, (0, -n_rows % size)).view(len(x), -1, size).permute(1, 2, 0)
        return torch.bmm(blocks, y.expand(len(blocks), -1, -1)).flatten(0, 1)[:n_rows]
    return (_filled(x, columns=True).T @ _filled(y, columns=True))[:n_rows, :n_columns].contiguous()


@contextmanager
def products_in_tf32(allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 for the products inside, whatever the rest of the program has set."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def _filled(x: Tensor, *, rows: bool = False, columns: bool = False) -> Tensor:
    """Return x with zero rows and columns up to sizes that are divided evenly."""
    more_rows = _missing(x.shape[0], x.dtype) if rows else 0
    more_columns = _missing(x.shape[1], x.dtype) if columns else 0
    return pad(x, (0, more_columns, 0, more_rows)) if more_rows or more_columns else x


def _missing(width: int, dtype: torch.dtype) -> int:
    return 0 if width >= _WIDE and dtype == torch.float32 else -width % _VECTOR
