"""Self-training, meta-node sums and label changes in fused kernels.

Self-training takes three kernels, where torch launches dozens. The first one computes the distances of every row to
every center, its label and its part of the frequencies. From the distances the second one computes the target and the
divergence, and overwrites the distances with the weights of the gradient. The third one, in the backward pass, computes
the gradient. Each program sums over its rows, and the partial sums are then added: there are no atomic additions, and
results are bitwise equal in every run. The distribution of rows to programs depends on the shapes only.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from pamc.ops.kernels import clustering as kernels
from pamc.ops.torch import clustering as plain
from pamc.ops.triton.rows import accumulator_of, language_type, share_out, sum_parts

# Elements per warp of a tile of distances or of rows of z: 16 per thread, in one or two registers each.
_TILE = 512
_MOST_CLUSTERS = 16
_MOST_ROWS = 128

# Maximum number of programs that store partial sums over rows.
_MOST_PARTS = 2048

# Above this number of clusters torch computes the sums: the kernel's time is proportional to rows times clusters.
MOST_CLUSTERS_SUMMED = 256

# Labels per tile that a program compares, and maximum number of programs whose counts are then added by one program.
_ROWS_COUNTED = 512
_MOST_COUNTS = 1024


def self_training(z: Tensor, centers: Tensor, *, eta: float) -> tuple[Tensor, Tensor]:
    r"""Return the sum over rows of KL(P ‖ Q), Eq 11, and the labels, the argmax of q.

    Value and gradient are those of :func:`pamc.ops.torch.clustering.soft_self_training`; ties between centers are
    broken by the lower index. Distances are sums of squared differences, so no offset loses precision. The kernels
    compute in float32 for float32 or bfloat16 rows, in float64 for float64 rows. O(N·C·d) time; O(N·(C + d)) memory, of
    which one number per row and cluster is saved for the backward pass.
    """
    with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
        result: tuple[Tensor, Tensor] = _SelfTraining.apply(z, centers, eta)  # type: ignore[no-untyped-call]
    return result


def cluster_sums(z: Tensor, assignment: Tensor, n_clusters: int) -> tuple[Tensor, Tensor]:
    """Return the result of :func:`pamc.ops.torch.clustering.cluster_sums`, for labels computed by a kernel.

    A soft assignment, and labels of more than :data:`MOST_CLUSTERS_SUMMED` clusters, are delegated to torch. O(N·C·d)
    time, O(N·d) memory.
    """
    if assignment.ndim == 2 or n_clusters > MOST_CLUSTERS_SUMMED:
        return plain.cluster_sums(z, assignment, n_clusters)
    with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
        result: tuple[Tensor, Tensor] = _ClusterSums.apply(z, assignment, n_clusters)  # type: ignore[no-untyped-call]
    return result


def with_changes(numbers: Tensor, labels: Tensor, previous: Tensor) -> Tensor:
    """Return the result of :func:`pamc.ops.torch.clustering.with_changes`, computed by two kernels."""
    n_rows = len(labels)
    n_parts, n_tiles = share_out(n_rows, _ROWS_COUNTED, _MOST_COUNTS)
    parts = torch.empty(n_parts, dtype=torch.int64, device=labels.device)
    result = torch.empty(len(numbers) + 1, dtype=torch.float64, device=labels.device)
    with torch.cuda.device_of(labels):  # type: ignore[no-untyped-call]
        kernels.count_changes[(n_parts,)](
            labels.contiguous(), previous, parts, n_rows, n_tiles, ROWS=_ROWS_COUNTED, num_warps=4
        )
        widths = {"NUMBERS": triton.next_power_of_2(len(numbers)), "PARTS": triton.next_power_of_2(n_parts)}
        kernels.append_sum[(1,)](numbers.contiguous(), parts, result, len(numbers), n_parts, num_warps=1, **widths)
    return result


def _shares(z: Tensor, n_clusters: int) -> tuple[int, int, dict[str, Any]]:
    """Return programs, tiles per program, and constants, such that the partial sums take no more memory than z."""
    width = triton.next_power_of_2(z.shape[1])
    rows = max(1, min(_MOST_ROWS, _TILE // width))
    constants = {"DIMS": z.shape[1], "WIDTH": width, "ROWS": rows, "ACCUMULATOR": language_type(z)}
    constants |= {"num_warps": min(8, max(1, width // _TILE)), "enable_fp_fusion": True}
    return *share_out(len(z), rows, max(1, min(_MOST_PARTS, len(z) // n_clusters))), constants


class _SelfTraining(torch.autograd.Function):
    """Self-training; b of :func:`pamc.ops.torch.clustering.soft_self_training`, (C, N), overwrites the distances."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, centers: Tensor, eta: float) -> tuple[Tensor, Tensor]:
        z, centers = z.contiguous(), centers.contiguous()
        (n_rows, n_dims), n_clusters = z.shape, len(centers)
        accumulator = accumulator_of(z)
        clusters = min(_MOST_CLUSTERS, triton.next_power_of_2(n_clusters))
        rows = min(_MOST_ROWS, _TILE // clusters)
        sizes = {"ETA": eta, "CLUSTERS": clusters, "ROWS": rows, "num_warps": 1, "enable_fp_fusion": True}
        n_programs = triton.cdiv(n_rows, rows)

        squared = z.new_empty(n_clusters, n_rows, dtype=accumulator)
        log_total = z.new_empty(n_rows, dtype=accumulator)
        labels = z.new_empty(n_rows, dtype=torch.int64)
        frequencies = z.new_empty(n_programs, n_clusters, dtype=accumulator)
        tensors = (z, centers, squared, log_total, labels, frequencies)
        kernels.assign_rows[(n_programs,)](
            *tensors, n_rows, n_clusters, DIMS=n_dims, ACCUMULATOR=language_type(z), **sizes
        )
        divergence = z.new_empty(n_programs, dtype=accumulator)
        kernels.sharpen_rows[(n_programs,)](
            squared, log_total, sum_parts(frequencies), divergence, n_rows, n_clusters, **sizes
        )
        ctx.save_for_backward(z, centers, squared)
        ctx.mark_non_differentiable(labels)
        return divergence.sum(), labels

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
        z, centers, weight = ctx.saved_tensors
        n_programs, n_tiles, constants = _shares(z, len(centers))
        grad_z = torch.empty_like(z)
        parts = weight.new_empty(n_programs, *centers.shape)
        kernels.gradient_rows[(n_programs,)](
            z, centers, weight, grad, grad_z, parts, len(z), len(centers), n_tiles, **constants
        )
        return grad_z, sum_parts(parts).to(centers.dtype), None


class _ClusterSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, labels: Tensor, n_clusters: int) -> tuple[Tensor, Tensor]:
        z, labels = z.contiguous(), labels.contiguous()
        n_programs, n_tiles, constants = _shares(z, n_clusters)
        parts = z.new_empty(n_programs, n_clusters, z.shape[1] + 1, dtype=accumulator_of(z))
        kernels.sum_rows[(n_programs,)](z, labels, parts, len(z), n_clusters, n_tiles, **constants)
        ctx.save_for_backward(labels)
        total = sum_parts(parts).to(z.dtype)
        sums, mass = total[:, :-1], total[:, -1]
        ctx.mark_non_differentiable(mass)
        return sums, mass

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        (labels,) = ctx.saved_tensors
        return grad.index_select(0, labels), None, None
