"""Adam (Kingma and Ba 2015) by torch's fused kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class FusedAdam:
    """Adam with the constants of its paper; steps are bitwise equal to those of `torch.optim.Adam(fused=True)`.

    Creating the first `torch.optim` optimizer in a process imports torch's compiler, which takes seconds. On a GPU, a
    step can be captured in a CUDA graph.

    Parameters
    ----------
    parameters
        Tensors to optimize; tensors without a gradient are skipped.
    lr
        Learning rate.
    """

    def __init__(self, parameters: Sequence[Tensor], *, lr: float) -> None:
        self._parameters, self._lr = list(parameters), lr
        self._steps = [torch.zeros((), dtype=torch.float32, device=p.device) for p in self._parameters]
        self._means, self._squares = ([torch.zeros_like(p) for p in self._parameters] for _ in range(2))

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the optimizer's state by name: the tensors themselves, which may be read or written."""
        names = {"step": self._steps, "exp_avg": self._means, "exp_avg_sq": self._squares}
        return {f"{n}.{name}": tensors[n] for n in range(len(self._parameters)) for name, tensors in names.items()}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients to None."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters in place."""
        kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for number, parameter in enumerate(self._parameters):
            if parameter.grad is not None:
                kinds.setdefault((parameter.device, parameter.dtype), []).append(number)
        for numbers in kinds.values():
            self._step(numbers)

    def _step(self, numbers: Sequence[int]) -> None:
        """Update parameters of one type on one device."""
        steps = [self._steps[n] for n in numbers]
        grads: list[Any] = [self._parameters[n].grad for n in numbers]
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(
            [self._parameters[n] for n in numbers],
            grads,
            [self._means[n] for n in numbers],
            [self._squares[n] for n in numbers],
            [],
            steps,
            lr=self._lr,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=0.0,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )
