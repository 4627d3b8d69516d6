"""Adam (Kingma and Ba 2015), in one kernel for many tensors on a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor

from pamc.ops.dispatch import resolve_backend

__all__ = ["Optimizer", "adam"]

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8


class Optimizer(Protocol):
    """What training asks of an optimizer."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""

    def step(self) -> object:
        """Move the parameters."""


def adam(parameters: Iterable[Tensor], *, lr: float) -> Optimizer:
    """Return Adam with the constants of its paper, which can be captured on a GPU."""
    learnt = list(parameters)
    on_gpu = any(p.device.type == "cuda" for p in learnt)
    # A kernel walks through memory: what lies there in another order, in another type or elsewhere is torch's.
    plain = all(p.is_contiguous() and (p.device, p.dtype) == (learnt[0].device, learnt[0].dtype) for p in learnt)
    if on_gpu and plain and resolve_backend("auto", learnt[0].device).name == "triton":
        from pamc.ops.triton.adam import KernelAdam  # imported where it is used: triton need not be installed

        return KernelAdam(learnt, lr=lr, betas=_BETAS, epsilon=_EPSILON)
    return torch.optim.Adam(learnt, lr=lr, betas=_BETAS, eps=_EPSILON, fused=True, capturable=on_gpu)
