"""Adam (Kingma and Ba 2015) in one kernel for up to ten tensors, with all of its state on the device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from pamc.ops.kernels import adam as kernels

_NUMBERS_PER_PROGRAM = 1024

# Maximum number of tensors per launch, fixed by the kernel's parameters.
_TENSORS_PER_LAUNCH = 10


class Constants(NamedTuple):
    """Compile-time constants of the kernel: those of Adam, and the number of elements per program."""

    lr: float
    beta_1: float
    beta_2: float
    epsilon: float
    numbers: int


class KernelAdam:
    r"""Adam with a step that does not synchronize with the device and can be captured in a CUDA graph.

    .. math:: m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
              \theta \leftarrow \theta - lr\,\frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}

    As in its paper. Torch's fused Adam assigns 65,536 elements to one thread block, which leaves most of a GPU idle for
    an encoder with a million weights.

    Parameters
    ----------
    parameters
        Contiguous tensors of one dtype on one GPU. A step skips those without a gradient.
    """

    def __init__(self, parameters: Sequence[Tensor], *, lr: float, betas: tuple[float, float], epsilon: float) -> None:
        self._constants = Constants(lr, *betas, epsilon, _NUMBERS_PER_PROGRAM)
        self._parameters = list(parameters)
        self._groups = [
            _Group(self._parameters[first : first + _TENSORS_PER_LAUNCH])
            for first in range(0, len(self._parameters), _TENSORS_PER_LAUNCH)
        ]

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the optimizer's state by name: the tensors themselves, which may be read or written."""
        groups = enumerate(self._groups)
        return {f"{number}.{name}": tensor for number, group in groups for name, tensor in group.state.items()}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients to None."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters."""
        with torch.cuda.device_of(self._parameters[0]):  # type: ignore[no-untyped-call]
            for group in self._groups:
                group.step(self._constants)


class _Group:
    """Tensors that are updated together, and their concatenated moments, each aligned to the start of a program."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self._parameters = parameters
        n_programs = [triton.cdiv(p.numel(), _NUMBERS_PER_PROGRAM) for p in parameters]
        self._ends = list(accumulate(n_programs))
        first = parameters[0]
        mean, square = (first.new_zeros(self._ends[-1] * _NUMBERS_PER_PROGRAM) for _ in range(2))
        # β₁ᵗ and β₂ᵗ are float64: 1 − 0.999 would have few significant digits in float32.
        powers = torch.ones(self._ends[-1], 2, dtype=torch.float64, device=first.device)
        self.state = {"mean": mean, "square": square, "powers": powers}

    def step(self, constants: Constants) -> None:
        """Update the tensors."""
        # Without a gradient nothing is read, so any address is valid.
        grads = [p if p.grad is None else p.grad.contiguous() for p in self._parameters]
        sizes = [0 if p.grad is None else p.numel() for p in self._parameters]
        n_missing = _TENSORS_PER_LAUNCH - len(self._parameters)
        tensors = [tensor for pair in zip(self._parameters, grads, strict=True) for tensor in pair]
        # The kernel has a fixed number of arguments: tensors that are missing have no programs.
        tensors += [tensors[0]] * (2 * n_missing)
        ends, sizes = self._ends + self._ends[-1:] * n_missing, sizes + [0] * n_missing
        kernels.adam_step[(self._ends[-1],)](
            *tensors, *self.state.values(), *ends, *sizes, ADAM=constants, num_warps=4, enable_fp_fusion=True
        )
