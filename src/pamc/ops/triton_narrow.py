"""The product of a narrow layer, and a transposed copy, in a kernel each."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from pamc.ops.kernels import narrow

__all__ = ["narrow_product", "transposed"]

# Rows of a program, and columns that it reads at a time: few rows make many programs, which keep memory busy.
_ROWS, _COLUMNS = 32, 128
_STAGES = 4

# Of a product on tensor cores.
_LEAST_WIDTH = 16

# Rows and columns of a tile that is turned.
_SIZE = 32


def narrow_product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return what :func:`pamc.ops.narrow.narrow_product` does."""
    x, weight = x.contiguous(), weight.contiguous()
    (n_rows, n_columns), (depth, n_in) = x.shape, weight.shape
    y = x.new_empty(n_rows, depth)
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        narrow.narrow_product[(triton.cdiv(n_rows, _ROWS),)](
            x,
            weight,
            bias.contiguous(),
            y,
            n_rows,
            N_COLUMNS=n_columns,
            N_IN=n_in,
            DEPTH=depth,
            WIDTH=max(_LEAST_WIDTH, triton.next_power_of_2(depth)),
            ROWS=_ROWS,
            COLUMNS=_COLUMNS,
            num_warps=4,
            num_stages=_STAGES,
            enable_fp_fusion=True,
        )
    return y


def transposed(x: Tensor) -> Tensor:
    """Return what :func:`pamc.ops.narrow.transposed` does."""
    x = x.contiguous()
    n_rows, n_columns = x.shape
    y = x.new_empty(n_columns, n_rows)
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        narrow.transpose_tiles[(triton.cdiv(n_rows, _SIZE), triton.cdiv(n_columns, _SIZE))](
            x, y, n_rows, n_columns, SIZE=_SIZE, num_warps=4
        )
    return y
