"""The gradient of a ReLU layer, and a transposed copy."""

from __future__ import annotations

import torch
from torch import Tensor

from pamc.ops.torch.rows import column_sums


def relu_backward(grad: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient (N, k), zeroed where the ReLU's output is 0, and its column sums (k,). O(N·k) time.

    The sums are the gradient of the bias.

    Examples
    --------
    >>> relu_backward(torch.ones(2, 2), torch.tensor([[0.0, 1.0], [2.0, 3.0]]))
    (tensor([[0., 1.],
            [1., 1.]]), tensor([1., 2.]))
    """
    masked = torch.ops.aten.threshold_backward(grad, output, 0)
    return masked, column_sums(masked)


def transposed(x: Tensor) -> Tensor:
    """Return a contiguous copy of xᵀ (m, n) for x (n, m).

    Examples
    --------
    >>> transposed(torch.tensor([[1, 2], [3, 4]]))
    tensor([[1, 3],
            [2, 4]])
    """
    return x.T.contiguous()
