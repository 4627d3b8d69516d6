"""The product of a narrow layer, the gradient of a ReLU layer in one pass, and a transposed copy, on a GPU."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from pamc.ops.kernels import linear as kernels
from pamc.ops.triton.rows import accumulator_of, share_out, sum_parts

# Rows and columns of a tile: few rows make many programs, which saturate the memory bandwidth.
_ROWS, _COLUMNS = 32, 128
_STAGES = 4

# Constants and launch options of all kernels except the transposition.
_LAUNCH = {"ROWS": _ROWS, "COLUMNS": _COLUMNS, "num_warps": 4, "enable_fp_fusion": True}

# Rows and columns of a transposed tile.
_SIZE = 32

# Maximum number of parts of the rows with separate partial sums. For narrow layers there may be more parts, as long as
# there are no more than this number of programs.
_MOST_PARTS = 64
_PROGRAMS = 2048

# Minimum width of a product on tensor cores.
_LEAST_WIDTH = 16


def relu_backward(grad: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Return the result of :func:`pamc.ops.torch.linear.relu_backward`. O(N·k) time, O(k) additional memory.

    Sums are accumulated in float32 (float64 for a float64 gradient), in an order that depends on the shape only.
    """
    grad, output = grad.contiguous(), output.contiguous()
    n_rows, n_columns = output.shape
    through = torch.empty_like(output)
    n_blocks = triton.cdiv(n_columns, _COLUMNS)
    n_parts, n_tiles = share_out(n_rows, _ROWS, max(_MOST_PARTS, _PROGRAMS // n_blocks))
    parts = torch.empty(n_parts, n_columns, dtype=accumulator_of(output), device=output.device)
    with torch.cuda.device_of(output):  # type: ignore[no-untyped-call]
        kernels.relu_backward_parts[(n_parts, n_blocks)](
            grad, output, through, parts, n_rows, _ROWS * n_tiles, N_COLUMNS=n_columns, **_LAUNCH
        )
    return through, sum_parts(parts)


def relu_linear_backward(grad: Tensor, weight: Tensor, output: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return all gradients of a narrow layer in one pass over its input, the ReLU output (N, n) of the layer below.

    The products use tensor cores, and the propagated gradient is written once. O(N·k·n) time, O(k·m) additional memory
    for each part of the rows.

    Parameters
    ----------
    grad
        (N, k) gradient of the output of the narrow layer.
    weight
        (k, m) weights of the layer.
    output
        (N, n) input of the layer, the output of a ReLU layer, whose last n − m columns are zeros.

    Returns
    -------
    through, sums
        :func:`relu_backward` of grad @ weight.
    weight_grad
        (k, m) gradᵀ @ output.
    bias_grad
        (k,) column sums of grad.

    sums, weight_grad and bias_grad are float32 if the inputs are bfloat16.
    """
    grad = grad if grad.stride(1) == 1 else grad.contiguous()
    weight, output = weight.contiguous(), output.contiguous()
    (n_rows, n_columns), (depth, n_in) = output.shape, weight.shape
    through = torch.empty_like(output)
    n_parts, n_tiles = share_out(n_rows, _ROWS, _MOST_PARTS)
    ends = (n_columns, n_columns + depth * n_in, n_columns + depth * n_in + depth)
    parts = torch.empty(n_parts, ends[-1], dtype=accumulator_of(output), device=output.device)
    with torch.cuda.device_of(output):  # type: ignore[no-untyped-call]
        tensors = (grad, weight, output, through, parts)
        sizes = (n_rows, _ROWS * n_tiles, grad.stride(0), parts.stride(0))
        kernels.relu_linear_backward_parts[(n_parts, triton.cdiv(n_columns, _COLUMNS))](
            *tensors, *sizes, **_narrow_constants(output, weight)
        )
    total = sum_parts(parts)
    return through, total[: ends[0]], total[ends[0] : ends[1]].view(depth, n_in), total[ends[1] : ends[2]]


def narrow_product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x Wᵀ + b, (N, k), of float32 rows x (N, n), for few outputs: W (k, m) and b (k,).

    The last n − m columns of x are padding. A product of cuBLAS requires padded sizes and a copy of its result; this
    kernel accepts any size, reads x once, and uses tensor cores. O(N·k·m) time.
    """
    x, weight = x.contiguous(), weight.contiguous()
    y = x.new_empty(len(x), len(weight))
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        kernels.narrow_product[(triton.cdiv(len(x), _ROWS),)](
            x, weight, bias.contiguous(), y, len(x), num_stages=_STAGES, **_narrow_constants(x, weight)
        )
    return y


def _narrow_constants(x: Tensor, weight: Tensor) -> dict[str, int]:
    """Return the constants and launch options of a kernel for a layer with few outputs and padded input x (N, n)."""
    depth, n_in = weight.shape
    width = max(_LEAST_WIDTH, triton.next_power_of_2(depth))
    return {"N_COLUMNS": x.shape[1], "N_IN": n_in, "DEPTH": depth, "WIDTH": width, **_LAUNCH}


def transposed(x: Tensor) -> Tensor:
    """Return the result of :func:`pamc.ops.torch.linear.transposed`, computed by a kernel."""
    x = x.contiguous()
    n_rows, n_columns = x.shape
    y = x.new_empty(n_columns, n_rows)
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        kernels.transpose_tiles[(triton.cdiv(n_rows, _SIZE), triton.cdiv(n_columns, _SIZE))](
            x, y, n_rows, n_columns, SIZE=_SIZE, num_warps=4
        )
    return y
