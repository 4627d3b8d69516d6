"""The proxy over meta-nodes, and the uniformity of rows, in one kernel each."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from pamc.ops.kernels import proxy as kernels
from pamc.ops.torch import proxy as plain
from pamc.ops.triton.rows import accumulator_of

# One program holds a tile of clusters by clusters, and one of clusters by dimensions.
_MOST_CLUSTERS = 64
_MOST_NUMBERS = 64 * 128

# Rows and columns of the block of pairs whose uniformity one program computes.
_ROWS = 32


def proxy(meta_nodes: Tensor, mass: Tensor, *, tau: float, kind: str) -> Tensor:
    """Return the result of :func:`pamc.ops.torch.proxy.proxy`; one program computes value and gradient.

    More than 64 clusters, or many dimensions, are delegated to torch. The kernel computes in the dtype of the
    meta-nodes.
    """
    clusters, width = triton.next_power_of_2(len(meta_nodes)), triton.next_power_of_2(meta_nodes.shape[1])
    if clusters > _MOST_CLUSTERS or clusters * width > _MOST_NUMBERS:
        return plain.proxy(meta_nodes, mass, tau=tau, kind=kind)
    with torch.cuda.device_of(meta_nodes):  # type: ignore[no-untyped-call]
        result: Tensor = _Proxy.apply(meta_nodes, mass, tau, kind)  # type: ignore[no-untyped-call]
    return result


def uniformity(z: Tensor, *, step: int, n_rows: int) -> Tensor:
    """Return the result of :func:`pamc.ops.torch.proxy.uniformity`. O(n_rows²·d) time, O(n_rows²/1024) memory."""
    if n_rows < 2:
        return z.new_zeros(())
    return (potential(z, step=step, n_rows=n_rows).sum() / (n_rows * (n_rows - 1))).log()


def potential(z: Tensor, *, step: int, n_rows: int) -> Tensor:
    """Return the partial sums of Σ exp(−2‖u_i − u_j‖²) over i ≠ j of `n_rows` unit rows with stride `step`."""
    z = z if z.stride(1) == 1 else z.contiguous()
    n_blocks = triton.cdiv(n_rows, _ROWS)
    parts = z.new_empty(n_blocks, n_blocks, dtype=accumulator_of(z))
    with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
        kernels.potential_parts[(n_blocks, n_blocks)](
            z, parts, n_rows, step * z.stride(0), DIMS=z.shape[1], ROWS=_ROWS, num_warps=4, enable_fp_fusion=True
        )
    return parts


def constants(meta_nodes: Tensor, tau: float, kind: str) -> dict[str, Any]:
    """Return the constants and launch options of a kernel that contrasts the meta-nodes (C, d) in one program."""
    n_clusters, n_dims = meta_nodes.shape
    powers = {"WIDTH": triton.next_power_of_2(n_dims), "CLUSTERS": triton.next_power_of_2(n_clusters)}
    return {"TAU": tau, "EQ6": kind == "eq6", "DIMS": n_dims, **powers, "num_warps": 4, "enable_fp_fusion": True}


class _Proxy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, meta_nodes: Tensor, mass: Tensor, tau: float, kind: str) -> Tensor:
        n_clusters = len(meta_nodes)
        value, gradient = meta_nodes.new_empty(()), torch.empty_like(meta_nodes, memory_format=torch.contiguous_format)
        kernels.contrast_clusters[(1,)](
            meta_nodes.contiguous(), mass.contiguous(), value, gradient, n_clusters, **constants(meta_nodes, tau, kind)
        )
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad, None, None, None
