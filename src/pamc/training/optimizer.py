"""Adam (Kingma and Ba 2015), in a single kernel for all tensors on a GPU, and its state for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from pamc.ops.dispatch import resolve_backend
from pamc.ops.torch.adam import BETAS, EPSILON, FusedAdam


def adam(parameters: Sequence[Tensor], *, lr: float) -> Any:
    """Return Adam with the constants of its paper: torch's fused kernels or :class:`~pamc.ops.triton.adam.KernelAdam`.

    On a GPU, its step can be captured in a CUDA graph.
    """
    on_gpu = any(p.device.type == "cuda" for p in parameters)
    # The kernel needs contiguous parameters of one type on one device; torch's kernels take all others.
    kinds = {(p.device, p.dtype, p.is_contiguous()) for p in parameters}
    has_kernel = len(kinds) == 1 and parameters[0].is_contiguous()
    if on_gpu and has_kernel and resolve_backend("auto", parameters[0].device).name == "triton":
        from pamc.ops.triton.adam import KernelAdam  # imported where it is used: triton need not be installed

        return KernelAdam(parameters, lr=lr, betas=BETAS, epsilon=EPSILON)
    return FusedAdam(parameters, lr=lr)


def load_optimizer_state(optimizer: Any, state: Mapping[str, Tensor]) -> None:
    """Load a state that was returned by the method `state_tensors` of an optimizer."""
    for name, tensor in optimizer.state_tensors().items():
        tensor.copy_(state[name])
