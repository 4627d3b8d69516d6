"""The gradient of a rectified layer, and a transposed copy."""

from __future__ import annotations

import torch
from torch import Tensor

from pamc.ops.torch.rows import column_sums

__all__ = ["relu_backward", "transposed"]


def relu_backward(grad: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient (N, k) where the ReLU's output is above 0, and the sums of its columns (k,). O(N·k).

    The sums are the gradient of the bias.

    Examples
    --------
    >>> relu_backward(torch.ones(2, 2), torch.tensor([[0.0, 1.0], [2.0, 3.0]]))
    (tensor([[0., 1.],
            [1., 1.]]), tensor([1., 2.]))
    """
    through = torch.ops.aten.threshold_backward(grad, output, 0)
    return through, column_sums(through)


def transposed(x: Tensor) -> Tensor:
    """Return xᵀ (m, n) of x (n, m), a copy with whole rows.

    Examples
    --------
    >>> transposed(torch.tensor([[1, 2], [3, 4]]))
    tensor([[1, 3],
            [2, 4]])
    """
    return x.T.contiguous()
