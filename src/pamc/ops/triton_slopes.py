"""The gradient of a rectified layer in one pass over it, on a GPU."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from pamc.ops.kernels import encoder
from pamc.ops.triton_sums import sum_parts

__all__ = ["sloped", "sloped_product"]

# Rows and columns of a tile.
_ROWS, _COLUMNS = 32, 128

# Parts into which the rows are cut at most: each leaves its own sums of the columns.
_MOST_PARTS = 64

# Of a product on tensor cores.
_LEAST_DEPTH = 16


def sloped(grad: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Return what :func:`pamc.ops.slopes.sloped` does. O(N·k) time, O(k) memory beside the result.

    Sums are taken in float32, or float64 where the gradient is, in an order that depends on N alone.
    """
    return _run(encoder.slope_parts, (grad.contiguous(),), output)


def sloped_product(grad: Tensor, weight: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Return what :func:`pamc.ops.slopes.sloped_product` does."""
    depth = grad.shape[1]
    width = max(_LEAST_DEPTH, triton.next_power_of_2(depth))
    factors = (grad.contiguous(), weight.contiguous())
    return _run(encoder.slope_product_parts, factors, output, DEPTH=depth, WIDTH=width)


def _run(kernel: Any, factors: tuple[Tensor, ...], output: Tensor, **constants: int) -> tuple[Tensor, Tensor]:
    output = output.contiguous()
    n_rows, n_columns = output.shape
    through = torch.empty_like(output)
    rows_per_part = _ROWS * triton.cdiv(n_rows, _ROWS * _MOST_PARTS)
    n_parts = triton.cdiv(n_rows, rows_per_part)
    accumulator = torch.float64 if output.dtype == torch.float64 else torch.float32
    parts = torch.empty(n_parts, n_columns, dtype=accumulator, device=output.device)
    with torch.cuda.device_of(output):  # type: ignore[no-untyped-call]
        kernel[(n_parts, triton.cdiv(n_columns, _COLUMNS))](
            *factors,
            output,
            through,
            parts,
            n_rows,
            n_columns,
            rows_per_part,
            ROWS=_ROWS,
            COLUMNS=_COLUMNS,
            num_warps=4,
            enable_fp_fusion=True,
            **constants,
        )
    return through, sum_parts(parts)
