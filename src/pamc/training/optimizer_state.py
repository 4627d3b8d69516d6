"""What an optimizer remembers, as tensors by name, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["load_optimizer_state", "optimizer_state"]


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
