"""Adam (Kingma and Ba 2015), in one kernel for many tensors on a GPU, and its state for checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from pamc.ops.dispatch import resolve_backend

__all__ = ["Optimizer", "adam", "load_optimizer_state", "optimizer_state"]

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


def optimizer_state(optimizer: Any) -> dict[str, Tensor]:
    """Return the moments and steps of an optimizer by the number of their parameter and their name."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        kernels: dict[str, Tensor] = optimizer.state_tensors()
        return kernels
    by_number = optimizer.state_dict()["state"]
    return {f"{number}.{name}": value for number, values in by_number.items() for name, value in values.items()}


def load_optimizer_state(optimizer: Any, state: Mapping[str, Tensor]) -> None:
    """Put back what :func:`optimizer_state` returned."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        for name, tensor in optimizer.state_tensors().items():
            tensor.copy_(state[name])
        return
    by_number: dict[int, dict[str, Tensor]] = {}
    for key, value in state.items():
        number, name = key.split(".", 1)
        by_number.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({"state": by_number, "param_groups": optimizer.state_dict()["param_groups"]})
