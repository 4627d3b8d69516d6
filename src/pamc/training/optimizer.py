"""Adam (Kingma and Ba 2015), in a single kernel for all tensors on a GPU, and its state for checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from pamc.ops.dispatch import resolve_backend

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8


class Optimizer(Protocol):
    """The interface that training needs from an optimizer."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients."""

    def step(self) -> object:
        """Update the parameters."""


def adam(parameters: Iterable[Tensor], *, lr: float) -> Optimizer:
    """Return Adam with the constants of its paper; on a GPU its step can be captured in a CUDA graph."""
    learned = list(parameters)
    on_gpu = any(p.device.type == "cuda" for p in learned)
    # The kernel needs contiguous parameters of one type on one device; torch's Adam takes all others.
    plain = all(p.is_contiguous() and (p.device, p.dtype) == (learned[0].device, learned[0].dtype) for p in learned)
    if on_gpu and plain and resolve_backend("auto", learned[0].device).name == "triton":
        from pamc.ops.triton.adam import KernelAdam  # imported where it is used: triton need not be installed

        return KernelAdam(learned, lr=lr, betas=_BETAS, epsilon=_EPSILON)
    return torch.optim.Adam(learned, lr=lr, betas=_BETAS, eps=_EPSILON, fused=True, capturable=on_gpu)


def optimizer_state(optimizer: Any) -> dict[str, Tensor]:
    """Return the moments and steps of an optimizer, keyed by parameter number and name."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        state: dict[str, Tensor] = optimizer.state_tensors()
        return state
    by_number = optimizer.state_dict()["state"]
    return {f"{number}.{name}": value for number, values in by_number.items() for name, value in values.items()}


def load_optimizer_state(optimizer: Any, state: Mapping[str, Tensor]) -> None:
    """Load a state that :func:`optimizer_state` returned."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        for name, tensor in optimizer.state_tensors().items():
            tensor.copy_(state[name])
        return
    by_number: dict[int, dict[str, Tensor]] = {}
    for key, value in state.items():
        number, name = key.split(".", 1)
        by_number.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({"state": by_number, "param_groups": optimizer.state_dict()["param_groups"]})
