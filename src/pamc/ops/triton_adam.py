"""Adam (Kingma and Ba 2015) in one kernel per tensor, all of its state on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
from torch import Tensor

from pamc.ops.kernels import encoder

__all__ = ["KernelAdam"]

_NUMBERS_PER_PROGRAM = 1024


class KernelAdam:
    r"""Adam, whose step does not wait for the device and can be captured.

    .. math:: m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
              \theta \leftarrow \theta - lr\,\frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}

    As in its paper. Torch's own fused Adam gives 65,536 numbers to one block of threads, which leaves most of a GPU
    without work where an encoder has a million weights.

    Parameters
    ----------
    parameters
        Contiguous tensors on one GPU. Those without a gradient are left alone.
    """

    def __init__(self, parameters: Sequence[Tensor], *, lr: float, betas: tuple[float, float], epsilon: float) -> None:
        self._parameters = list(parameters)
        self._lr, self._betas, self._epsilon = lr, betas, epsilon
        self._moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self._parameters]
        device = self._parameters[0].device
        # β₁ᵗ and β₂ᵗ in float64: 1 − 0.999 has few digits left in float32.
        self._powers = torch.ones(2, dtype=torch.float64, device=device)
        self._factors = torch.tensor(betas, dtype=torch.float64, device=device)

    def state_tensors(self) -> dict[str, Tensor]:
        """Return all that steps to come depend on, by name: the tensors themselves, to be read or written."""
        named = {"powers": self._powers}
        for number, (mean, square) in enumerate(self._moments):
            named |= {f"{number}.exp_avg": mean, f"{number}.exp_avg_sq": square}
        return named

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move the parameters by their gradients."""
        self._powers.mul_(self._factors)
        with torch.cuda.device_of(self._powers):  # type: ignore[no-untyped-call]
            self._move()

    def _move(self) -> None:
        for parameter, (mean, square) in zip(self._parameters, self._moments, strict=True):
            if parameter.grad is None:
                continue
            size = parameter.numel()
            encoder.adam_step[(triton.cdiv(size, _NUMBERS_PER_PROGRAM),)](
                parameter,
                parameter.grad.contiguous(),
                mean,
                square,
                self._powers,
                size,
                LR=self._lr,
                BETA_1=self._betas[0],
                BETA_2=self._betas[1],
                EPSILON=self._epsilon,
                NUMBERS=_NUMBERS_PER_PROGRAM,
                num_warps=4,
                enable_fp_fusion=True,
            )
