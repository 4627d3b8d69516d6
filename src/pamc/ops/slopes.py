"""The gradient of a rectified layer: what a ReLU lets through, and its column sums, which are the bias's gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from pamc.ops.dispatch import resolve_backend
from pamc.ops.torch_ops import column_sums

__all__ = ["is_narrow", "sloped", "sloped_product"]

# Up to this width a product with a gradient takes as long as writing it: a kernel does all in one pass.
_NARROW = 64


def sloped(grad: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient (N, k) where the ReLU's output is above 0, and the sums of its columns (k,). O(N·k).

    On a GPU both come of one pass.

    Examples
    --------
    >>> sloped(torch.ones(2, 2), torch.tensor([[0.0, 1.0], [2.0, 3.0]]))
    (tensor([[0., 1.],
            [1., 1.]]), tensor([1., 2.]))
    """
    if _has_kernels(grad):
        from pamc.ops import triton_slopes  # imported where it is used: triton need not be installed

        return triton_slopes.sloped(grad, output)
    through = torch.ops.aten.threshold_backward(grad, output, 0)
    return through, column_sums(through)


def is_narrow(grad: Tensor) -> bool:
    """Return whether :func:`sloped_product` is the fastest way down from a layer with this gradient."""
    return grad.shape[1] <= _NARROW and grad.dtype in (torch.float32, torch.bfloat16) and _has_kernels(grad)


def sloped_product(grad: Tensor, weight: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Return :func:`sloped` of grad @ weight, for a narrow grad (N, k) on a GPU. O(N·k·m) time for m columns.

    The product is taken on tensor cores and is written once.
    """
    from pamc.ops import triton_slopes  # imported where it is used: triton need not be installed

    return triton_slopes.sloped_product(grad, weight, output)


def _has_kernels(grad: Tensor) -> bool:
    return resolve_backend("auto", grad.device).name == "triton"
