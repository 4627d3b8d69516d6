"""The gradient of a rectified layer in one pass over it, on a GPU."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from pamc.ops.kernels import encoder

__all__ = ["sloped"]

# Rows and columns of a tile.
_ROWS, _COLUMNS = 32, 128

# Parts into which the rows are cut at most: each leaves its own sums of the columns.
_MOST_PARTS = 512


def sloped(grad: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Return what :func:`pamc.ops.slopes.sloped` does. O(N·k) time, O(k) memory beside the result.

    Sums are taken in float32, or float64 where the gradient is, in an order that depends on N alone.
    """
    grad, output = grad.contiguous(), output.contiguous()
    n_rows, n_columns = grad.shape
    through = torch.empty_like(grad)
    rows_per_part = _ROWS * triton.cdiv(n_rows, _ROWS * _MOST_PARTS)
    n_parts = triton.cdiv(n_rows, rows_per_part)
    accumulator = torch.float64 if grad.dtype == torch.float64 else torch.float32
    parts = torch.empty(n_parts, n_columns, dtype=accumulator, device=grad.device)
    encoder.slope_parts[(n_parts, triton.cdiv(n_columns, _COLUMNS))](
        grad, output, through, parts, n_rows, n_columns, rows_per_part, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=4
    )
    return through, parts.sum(dim=0).to(grad.dtype)
