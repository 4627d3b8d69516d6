"""How many labels changed since they were last looked at."""

from __future__ import annotations

import torch
from torch import Tensor

from pamc.ops.dispatch import resolve_backend

__all__ = ["with_changes"]


def with_changes(numbers: Tensor, labels: Tensor, previous: Tensor) -> Tensor:
    """Return numbers (k,) and then how many labels (N,) differ from `previous` (N,), which holds the labels afterwards.

    (k + 1,) in float64, where counts of any size are whole. Nothing travels to the host. O(N).

    Examples
    --------
    >>> previous = torch.tensor([0, 1, 1])
    >>> with_changes(torch.tensor([0.5]), torch.tensor([0, 2, 1]), previous)
    tensor([0.5000, 1.0000], dtype=torch.float64)
    >>> previous
    tensor([0, 2, 1])
    """
    if resolve_backend("auto", labels.device).name == "triton":
        from pamc.ops import triton_changes  # imported where it is used: triton need not be installed

        return triton_changes.with_changes(numbers, labels, previous)
    changed = (labels != previous).sum()
    previous.copy_(labels)
    return torch.cat([numbers.double(), changed.double()[None]])
