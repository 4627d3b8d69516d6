"""Adam (Kingma and Ba 2015), in a single kernel for all tensors on a GPU, and its state for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pamc.ops.dispatch import resolve_backend
from pamc.ops.torch.adam import BETAS, EPSILON, fused_adam


def adam(parameters: Sequence[Tensor], *, lr: float) -> Any:
    """Return Adam with the constants of its paper, torch's or :class:`~pamc.ops.triton.adam.KernelAdam`.

    On a GPU, its step can be captured in a CUDA graph.
    """
    on_gpu = any(p.device.type == "cuda" for p in parameters)
    # The kernel needs contiguous parameters of one type on one device; torch's Adam takes all others.
    kinds = {(p.device, p.dtype, p.is_contiguous()) for p in parameters}
    has_kernel = len(kinds) == 1 and parameters[0].is_contiguous()
    if on_gpu and has_kernel and resolve_backend("auto", parameters[0].device).name == "triton":
        from pamc.ops.triton.adam import KernelAdam  # imported where it is used: triton need not be installed

        return KernelAdam(parameters, lr=lr, betas=BETAS, epsilon=EPSILON)
    return fused_adam(parameters, lr=lr)


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
