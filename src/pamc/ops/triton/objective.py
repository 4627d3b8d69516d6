"""Eq 12 from z to its gradient in eight kernels; computing its parts separately takes dozens.

There are four passes over the rows: to assign them, to sum their positives, to sharpen their assignment, and, in the
backward pass, once more over their positives, where all parts of a row's gradient are combined and written once.
Between the passes a kernel adds the partial sums, and one program computes all scalars. There are no atomic additions,
and results are bitwise equal in every run; the distribution of rows depends on the shapes only. No values are stored
for each pair, or for each row and cluster.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from pamc.graph.positives import PositivePairs
from pamc.ops.dispatch import NUMBERS, ObjectiveValues
from pamc.ops.kernels import objective as kernels
from pamc.ops.triton import proxy
from pamc.ops.triton.positives import (
    MOST_TAU,
    gradient_of_pieces,
    layout_of,
    longest_row,
    masses,
    pieces_of,
    row_tiles,
)
from pamc.ops.triton.rows import Shape, share_out, sum_parts

# One program holds a tile of clusters by clusters, and one of clusters by dimensions.
_MOST_CLUSTERS = 64
_MOST_DIMS = 128

# Elements per warp of a tile of clusters by rows, and bounds on its rows.
_TILE = 512
_LEAST_ROWS, _MOST_ROWS = 16, 128

# Maximum number of programs with partial sums over rows: enough to saturate a GPU, few enough to add their sums fast.
_MOST_PARTS = 4096


def objective(
    z: Tensor,
    centers: Tensor,
    pairs: PositivePairs,
    config: Any,
    *,
    watched: tuple[int, int],
    known_labels: Tensor | None = None,
) -> ObjectiveValues | None:
    """Return Eq 12 with hard labels, or None if its parts must be computed separately.

    That is the case for more than 64 clusters or 128 dimensions, τ above 40, half precision, and inputs of different
    dtypes or devices. The target p and the labels are constant. O(E·d + N·C·d) time, O(N·d) memory beside the pairs.

    Parameters
    ----------
    z, centers, pairs
        (N, d) embedding, (C, d) centers μ, and positive pairs γ of the N rows.
    config
        Settings that contain the constants of Eq 12.
    watched
        Stride and number of the sampled rows whose uniformity is monitored.
    known_labels
        (N,) int64 known cluster of each row, −1 if unknown; known labels replace the computed ones in the meta-nodes.
    """
    if not _fits(z, centers, pairs, config.tau):
        return None
    with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
        values = _Objective.apply(z, centers, pairs, config, watched, known_labels)  # type: ignore[no-untyped-call]
    return ObjectiveValues(*values)


def _fits(z: Tensor, centers: Tensor, pairs: PositivePairs, tau: float) -> bool:
    is_small = len(centers) <= _MOST_CLUSTERS and z.shape[1] <= _MOST_DIMS and tau <= MOST_TAU
    same_dtype = z.dtype in (torch.float32, torch.float64) and z.dtype == centers.dtype == pairs.log_weight.dtype
    matches = 0 not in z.shape and pairs.n_nodes == len(z) and pairs.indices.device == z.device == centers.device
    return is_small and same_dtype and matches


class Weights(NamedTuple):
    """α and β of Eq 12, and whether KL is a mean over rows: a compile-time constant of the kernels."""

    alpha: float
    beta: float
    mean: bool


class _Objective(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        centers: Tensor,
        pairs: PositivePairs,
        config: Any,
        watched: tuple[int, int],
        known_labels: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        z, centers = z if z.stride(1) == 1 else z.contiguous(), centers.contiguous()
        (n_rows, n_dims), n_clusters = z.shape, len(centers)
        keep_self = config.self_edges == "keep"
        layout, shape = layout_of(pairs, keep_self), Shape.of(z)
        clusters = triton.next_power_of_2(n_clusters)
        rows = max(_LEAST_ROWS, min(_MOST_ROWS, _TILE // clusters))
        # The partial sums of all programs take no more memory than z.
        n_programs, n_tiles = share_out(n_rows, rows, max(1, min(_MOST_PARTS, n_rows // n_clusters)))
        constants = shape.constants(ETA=config.eta, CLUSTERS=clusters, ROWS=rows, num_warps=1)
        sizes = (n_rows, n_clusters, n_tiles, z.stride(0))

        labels = torch.empty(n_rows, dtype=torch.int64, device=z.device)
        members = labels if known_labels is None else torch.empty_like(labels)
        known = labels if known_labels is None else known_labels.contiguous()
        unit, inverse = shape.empty(z), z.new_empty(n_rows)
        parts = z.new_empty(n_programs, n_clusters * (n_dims + 2))
        tensors = (z, centers, known, labels, members, unit, inverse, parts)
        kernels.assign_rows[(n_programs,)](*tensors, *sizes, KNOWN=known_labels is not None, **constants)
        assigned = sum_parts(parts)
        log_mass, over_mass, agreements = masses(unit, inverse, pairs, shape, tau=config.tau, keep_self=keep_self)
        kl_grad = z.new_empty(n_rows, n_dims)
        parts = z.new_empty(n_programs, n_clusters * n_dims + 3)
        kernels.sharpen_rows[(n_programs,)](
            z, centers, assigned, log_mass, agreements, kl_grad, parts, *sizes, **constants
        )
        ctx.weights = Weights(config.alpha, config.beta, config.kl_reduction == "mean")
        step, n_watched = watched
        potential = proxy.potential(z, step=step, n_rows=n_watched)
        total, numbers = z.new_empty(()), z.new_empty(len(NUMBERS))
        gradients = (torch.empty_like(centers), torch.empty_like(centers))
        sums = (assigned, sum_parts(parts), potential, layout.offset, layout.scale)
        sizes = (n_rows, n_clusters, potential.numel(), n_watched)
        constants = proxy.constants(centers, config.tau, config.proxy)
        constants |= {"WEIGHTS": ctx.weights, "POTENTIAL": triton.next_power_of_2(potential.numel())}
        kernels.finish[(1,)](centers, *sums, total, numbers, *gradients, *sizes, **constants)
        ctx.save_for_backward(unit, inverse, over_mass, kl_grad, members, *gradients)
        ctx.pairs, ctx.layout, ctx.shape, ctx.tau = pairs, layout, shape, config.tau
        ctx.mark_non_differentiable(numbers, labels)
        # These outputs receive no gradient, not even zeros.
        ctx.set_materialize_grads(False)
        return total, numbers, labels

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        unit, inverse, over_mass, kl_grad, members, node_gradient, center_gradient = ctx.saved_tensors
        shape, layout, n_rows = ctx.shape, ctx.layout, len(unit)
        grad_z = torch.empty_like(kl_grad)
        pairs, pieces = ctx.pairs, pieces_of(ctx.pairs, longest_row(shape, ctx.pairs))
        tiles = row_tiles(shape, pairs, tau=ctx.tau, backward=True)
        weights = (pairs.indptr, layout.indices, layout.weight, layout.weight_t, over_mass)
        together = (inverse, kl_grad, members, node_gradient, grad, grad_z, n_rows)
        n_programs = triton.cdiv(n_rows, tiles["TILES"].rows)
        kernels.backward_rows[(n_programs,)](unit, *weights, *together, WEIGHTS=ctx.weights, **tiles)
        if len(pieces):
            parts = gradient_of_pieces(unit, inverse, weights, pairs, shape, tau=ctx.tau)
            split = (unit, pieces.long_row, pieces.first_piece, parts)
            constants = shape.constants(WEIGHTS=ctx.weights, num_warps=1)
            kernels.join_backward[(len(pieces.long_row),)](*split, *together, **constants)
        return grad_z, center_gradient * grad, None, None, None, None
