"""The product of a narrow layer, the gradient of a ReLU layer in one pass, and a transposed copy, on a GPU."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from pamc.ops.kernels import linear as kernels
from pamc.ops.triton.rows import accumulator_of, share_out, sum_parts

# Launch options of all kernels.
_LAUNCH = {"num_warps": 4, "enable_fp_fusion": True}

# Rows and columns of a tile: few rows make many programs, which saturate the memory bandwidth.
_ROWS, _COLUMNS = 32, 128
_STAGES = 4

# Rows and columns of a transposed tile.
_SIZE = 32

# Maximum number of row parts, each with its own partial sums; for narrow layers there may be more, up to this number of
# programs.
_MOST_PARTS = 64
_PROGRAMS = 2048

# Minimum width of a product on tensor cores.
_LEAST_WIDTH = 16


def relu_backward(grad: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Return :func:`pamc.ops.torch.linear.relu_backward`. O(N·k) time, O(k) additional memory.

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
            grad,
            output,
            through,
            parts,
            n_rows,
            _ROWS * n_tiles,
            N_COLUMNS=n_columns,
            ROWS=_ROWS,
            COLUMNS=_COLUMNS,
            **_LAUNCH,
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
        kernels.relu_linear_backward_parts[(n_parts, triton.cdiv(n_columns, _COLUMNS))](
            grad,
            weight,
            output,
            through,
            parts,
            n_rows,
            _ROWS * n_tiles,
            grad.stride(0),
            parts.stride(0),
            N_COLUMNS=n_columns,
            N_IN=n_in,
            DEPTH=depth,
            WIDTH=max(_LEAST_WIDTH, triton.next_power_of_2(depth)),
            ROWS=_ROWS,
            COLUMNS=_COLUMNS,
            **_LAUNCH,
        )
    total = sum_parts(parts)
    return through, total[: ends[0]], total[ends[0] : ends[1]].view(depth, n_in), total[ends[1] : ends[2]]


def narrow_product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x Wᵀ + b, (N, k), of float32 rows x (N, n), for few outputs: W (k, m) and b (k,).

    The last n − m columns of x are padding. A library product needs padded sizes and a copy of its result; this kernel
    takes any size, reads x once, and uses tensor cores. O(N·k·m) time.
    """
    x, weight = x.contiguous(), weight.contiguous()
    (n_rows, n_columns), (depth, n_in) = x.shape, weight.shape
    y = x.new_empty(n_rows, depth)
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        kernels.narrow_product[(triton.cdiv(n_rows, _ROWS),)](
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
            num_stages=_STAGES,
            **_LAUNCH,
        )
    return y


def transposed(x: Tensor) -> Tensor:
    """Return :func:`pamc.ops.torch.linear.transposed`, computed by a kernel."""
    x = x.contiguous()
    n_rows, n_columns = x.shape
    y = x.new_empty(n_columns, n_rows)
    with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        kernels.transpose_tiles[(triton.cdiv(n_rows, _SIZE), triton.cdiv(n_columns, _SIZE))](
            x, y, n_rows, n_columns, SIZE=_SIZE, num_warps=4
        )
    return y
