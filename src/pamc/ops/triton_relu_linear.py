"""The gradient of a rectified layer in one pass over it, on a GPU."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from pamc.ops.kernels import encoder
from pamc.ops.triton_sums import sum_parts

__all__ = ["relu_backward", "relu_linear_backward"]

# Rows and columns of a tile.
_ROWS, _COLUMNS = 32, 128

# Parts into which the rows are cut at most, each of which leaves its own sums: narrow layers are cut into more, until
# there are so many programs.
_MOST_PARTS = 64
_PROGRAMS = 2048

# Of a product on tensor cores.
_LEAST_DEPTH = 16


def relu_backward(grad: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Return what :func:`pamc.ops.relu_linear.sloped` does. O(N·k) time, O(k) memory beside the result.

    Sums are taken in float32, or float64 where the gradient is, in an order that depends on the shape alone.
    """
    grad, output = grad.contiguous(), output.contiguous()
    n_rows, n_columns = output.shape
    through = torch.empty_like(output)
    n_blocks = triton.cdiv(n_columns, _COLUMNS)
    n_parts, rows_per_part = _cut(n_rows, max(_MOST_PARTS, _PROGRAMS // n_blocks))
    parts = torch.empty(n_parts, n_columns, dtype=_accumulator(output), device=output.device)
    with torch.cuda.device_of(output):  # type: ignore[no-untyped-call]
        encoder.relu_backward_parts[(n_parts, n_blocks)](
            grad,
            output,
            through,
            parts,
            n_rows,
            rows_per_part,
            N_COLUMNS=n_columns,
            ROWS=_ROWS,
            COLUMNS=_COLUMNS,
            num_warps=4,
            enable_fp_fusion=True,
        )
    return through, sum_parts(parts)


def relu_linear_backward(grad: Tensor, weight: Tensor, output: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what :func:`pamc.ops.relu_linear.relu_linear_backward` does; O(k·m) memory beside the result per part."""
    grad = grad if grad.stride(1) == 1 else grad.contiguous()
    weight, output = weight.contiguous(), output.contiguous()
    (n_rows, n_columns), (depth, n_in) = output.shape, weight.shape
    through = torch.empty_like(output)
    n_parts, rows_per_part = _cut(n_rows, _MOST_PARTS)
    ends = (n_columns, n_columns + depth * n_in, n_columns + depth * n_in + depth)
    parts = torch.empty(n_parts, ends[-1], dtype=_accumulator(output), device=output.device)
    with torch.cuda.device_of(output):  # type: ignore[no-untyped-call]
        encoder.relu_linear_backward_parts[(n_parts, triton.cdiv(n_columns, _COLUMNS))](
            grad,
            weight,
            output,
            through,
            parts,
            n_rows,
            rows_per_part,
            grad.stride(0),
            parts.stride(0),
            N_COLUMNS=n_columns,
            N_IN=n_in,
            DEPTH=depth,
            WIDTH=max(_LEAST_DEPTH, triton.next_power_of_2(depth)),
            ROWS=_ROWS,
            COLUMNS=_COLUMNS,
            num_warps=4,
            enable_fp_fusion=True,
        )
    total = sum_parts(parts)
    return through, total[: ends[0]], total[ends[0] : ends[1]].view(depth, n_in), total[ends[1] : ends[2]]


def _cut(n_rows: int, most_parts: int) -> tuple[int, int]:
    """Return into how many parts rows are cut, and how many rows a part has."""
    rows_per_part = _ROWS * triton.cdiv(n_rows, _ROWS * most_parts)
    return triton.cdiv(n_rows, rows_per_part), rows_per_part


def _accumulator(output: Tensor) -> torch.dtype:
    return torch.float64 if output.dtype == torch.float64 else torch.float32
