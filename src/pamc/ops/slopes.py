"""The gradient of a rectified layer: what a ReLU lets through, and its column sums, which are the bias's gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from pamc.ops.dispatch import resolve_backend
from pamc.ops.torch_ops import column_sums

__all__ = ["sloped"]


def sloped(grad: Tensor, output: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the gradient (N, k) where the ReLU's output is above 0, and the sums of its columns (k,). O(N·k).

    On a GPU both come of one pass. Without an output there was no ReLU.

    Examples
    --------
    >>> sloped(torch.ones(2, 2), torch.tensor([[0.0, 1.0], [2.0, 3.0]]))
    (tensor([[0., 1.],
            [1., 1.]]), tensor([1., 2.]))
    """
    if output is None:
        return grad, column_sums(grad)
    if resolve_backend("auto", grad.device).name == "triton":
        from pamc.ops import triton_slopes  # imported where it is used: triton need not be installed

        return triton_slopes.sloped(grad, output)
    through = torch.ops.aten.threshold_backward(grad, output, 0)
    return through, column_sums(through)
