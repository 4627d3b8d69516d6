"""The gradient of a rectified layer: what a ReLU lets through, and its column sums, which are the bias's gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from pamc.ops.dispatch import resolve_backend
from pamc.ops.torch_ops import column_sums

__all__ = ["is_narrow", "relu_backward", "relu_linear_backward"]

# Up to this width a product with a gradient takes as long as writing it: a kernel does all in one pass.
_NARROW = 64


def relu_backward(grad: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient (N, k) where the ReLU's output is above 0, and the sums of its columns (k,). O(N·k).

    On a GPU both come of one pass.

    Examples
    --------
    >>> relu_backward(torch.ones(2, 2), torch.tensor([[0.0, 1.0], [2.0, 3.0]]))
    (tensor([[0., 1.],
            [1., 1.]]), tensor([1., 2.]))
    """
    if _has_kernels(grad):
        from pamc.ops import triton_relu_linear  # imported where it is used: triton need not be installed

        return triton_relu_linear.relu_backward(grad, output)
    through = torch.ops.aten.threshold_backward(grad, output, 0)
    return through, column_sums(through)


def is_narrow(x: Tensor) -> bool:
    """Return whether a layer with such an output, or gradient of it, (N, k), is faster by kernels of its own."""
    return x.shape[1] <= _NARROW and x.dtype in (torch.float32, torch.bfloat16) and _has_kernels(x)


def relu_linear_backward(grad: Tensor, weight: Tensor, output: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return all that a narrow layer on a GPU hands down, in one pass over the output (N, n) that it was given.

    The products are taken on tensor cores; what goes on is written once. O(N·k·n) time.

    Parameters
    ----------
    grad
        (N, k) gradient of the layer, narrow.
    weight
        (k, m) its weights.
    output
        (N, n) what it was given, a rectified layer's output, whose last n − m columns are zeros.

    Returns
    -------
    through, sums
        :func:`sloped` of grad @ weight.
    weight_gradient
        (k, m) gradᵀ @ output.
    bias_gradient
        (k,) the sums of the columns of grad.

    Sums, and the last two, are float32 where the rest is bfloat16.
    """
    from pamc.ops import triton_relu_linear  # imported where it is used: triton need not be installed

    return triton_relu_linear.relu_linear_backward(grad, weight, output)


def _has_kernels(grad: Tensor) -> bool:
    return resolve_backend("auto", grad.device).name == "triton"
