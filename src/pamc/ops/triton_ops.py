"""The positive term of the PamC loss in fused kernels: nothing per pair is stored, in neither direction.

One warp takes one row of the pairs and reads, tile by tile, the columns, their weights and their unit rows. The mass of
a row is summed with the largest score so far taken off, so that no τ and no γ overflows. The gradient of row i needs
its own entries only, because γ_ij and γ_ji stand side by side: no atomics, and the same bits in every run.

A row of very many pairs would keep one warp busy long after all others are done, so it is cut into pieces, each a
program of its own, whose results are put together in their order by a second kernel.

Rows of z are gathered at random: each is padded to whole sectors of 32 bytes, and read once per pair and pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from pamc.graph.pairs import PositivePairs
from pamc.ops import triton_kernels

__all__ = ["positive_log_mass"]

# Rows of more pairs than this are cut.
PIECE = 4096

# Numbers of a tile of unit rows, columns times width, for one warp.
_TILE = 1024
_MOST_COLUMNS = 32
_LEAST_COLUMNS = 4

_MOST_NODES_IN_32_BITS = 2**31 - 1

# Bytes that memory hands out at a time.
_SECTOR = 32


def positive_log_mass(unit: Tensor, pairs: PositivePairs, *, tau: float, self_edges: str) -> tuple[Tensor, Tensor]:
    """Return what :func:`pamc.ops.torch_ops.positive_log_mass` does. O(E·d) time, O(N·d) memory beside the pairs.

    Rows in float32 or bfloat16 are summed in float32, rows in float64 in float64.
    """
    result: tuple[Tensor, Tensor] = _PositiveLogMass.apply(unit, pairs, tau, self_edges == "keep")  # type: ignore[no-untyped-call]
    return result


@dataclass(frozen=True, eq=False)
class _Layout:
    """What the kernels want of the pairs beside the pairs themselves.

    Parameters
    ----------
    indices
        (E,) columns, in 32 bits where they fit.
    weight_sum
        () Σ γ_ij over all pairs.
    piece_row, piece_begin
        (P,) the row of each piece of a long row, and its first entry.
    long_row, first_piece
        (R,), (R + 1,) the long rows, and where the pieces of each begin.
    """

    indices: Tensor
    weight_sum: Tensor
    piece_row: Tensor
    piece_begin: Tensor
    long_row: Tensor
    first_piece: Tensor


_LAYOUTS: WeakKeyDictionary[PositivePairs, _Layout] = WeakKeyDictionary()


def _layout(pairs: PositivePairs) -> _Layout:
    """Return the layout of the pairs, made once for each."""
    found = _LAYOUTS.get(pairs)
    if found is None:
        n_entries = pairs.indptr.diff()
        (long_row,) = torch.nonzero(n_entries > PIECE, as_tuple=True)
        n_pieces = -(-n_entries[long_row] // PIECE)
        first_piece = torch.cat([n_pieces.new_zeros(1), n_pieces.cumsum(0)])
        piece_row = torch.repeat_interleave(long_row, n_pieces)
        number = torch.arange(len(piece_row), device=piece_row.device)
        number -= torch.repeat_interleave(first_piece[:-1], n_pieces)
        found = _LAYOUTS[pairs] = _Layout(
            indices=pairs.indices.int() if pairs.n_nodes <= _MOST_NODES_IN_32_BITS else pairs.indices,
            weight_sum=pairs.log_weight.exp().sum(),
            piece_row=piece_row,
            piece_begin=pairs.indptr[piece_row] + PIECE * number,
            long_row=long_row,
            first_piece=first_piece,
        )
    return found


@dataclass(frozen=True)
class _Shape:
    """Sizes that the kernels are compiled for."""

    dims: int
    stride: int
    width: int
    columns: int
    n_warps: int
    accumulator: Any

    @classmethod
    def of(cls, unit: Tensor) -> _Shape:
        dims = unit.shape[1]
        numbers_per_sector = _SECTOR // unit.element_size()
        stride = -(-dims // numbers_per_sector) * numbers_per_sector
        width = triton.next_power_of_2(stride)
        columns = min(_MOST_COLUMNS, max(_LEAST_COLUMNS, _TILE // width))
        n_warps = min(8, max(1, columns * width // _TILE))
        return cls(dims, stride, width, columns, n_warps, tl.float64 if unit.dtype == torch.float64 else tl.float32)

    def constants(self, tau: float) -> dict[str, Any]:
        return {
            "TAU": tau,
            "PIECE": PIECE,
            "STRIDE": self.stride,
            "WIDTH": self.width,
            "COLUMNS": self.columns,
            "ACCUMULATOR": self.accumulator,
            "num_warps": self.n_warps,
        }


class _PositiveLogMass(torch.autograd.Function):
    """As in :mod:`pamc.ops.torch_ops`; both passes read the unit rows and keep nothing per pair."""

    @staticmethod
    def forward(ctx: Any, unit: Tensor, pairs: PositivePairs, tau: float, keep_self: bool) -> tuple[Tensor, Tensor]:
        layout, shape = _layout(pairs), _Shape.of(unit)
        constants = shape.constants(tau)
        accumulator = torch.float64 if unit.dtype == torch.float64 else torch.float32
        padded = torch.nn.functional.pad(unit, (0, shape.stride - shape.dims)).contiguous()
        log_mass = unit.new_empty(len(unit), dtype=accumulator)
        agreement = torch.empty_like(log_mass)
        weights = (padded, pairs.indptr, layout.indices, pairs.log_weight)
        triton_kernels.forward_rows[(len(unit),)](
            *weights, pairs.log_self_weight, log_mass, agreement, KEEP_SELF=keep_self, **constants
        )
        n_pieces = len(layout.piece_row)
        if n_pieces:
            parts = log_mass.new_empty(n_pieces, 3)
            triton_kernels.forward_pieces[(n_pieces,)](
                *weights, layout.piece_row, layout.piece_begin, parts, **constants
            )
            triton_kernels.join_forward[(len(layout.long_row),)](
                layout.long_row,
                layout.first_piece,
                parts,
                pairs.log_self_weight,
                log_mass,
                agreement,
                KEEP_SELF=keep_self,
                num_warps=1,
            )
        ctx.save_for_backward(padded, log_mass)
        ctx.pairs, ctx.tau, ctx.shape, ctx.dtype = pairs, tau, shape, unit.dtype
        total = layout.weight_sum.to(accumulator)
        alignment = torch.where(total > 0, 2 - 2 * agreement.sum() / total, 0.0)
        ctx.mark_non_differentiable(alignment)
        return log_mass, alignment

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        padded, log_mass = ctx.saved_tensors
        pairs, shape, layout = ctx.pairs, ctx.shape, _layout(ctx.pairs)
        constants = shape.constants(ctx.tau)
        # At +∞ a node without positives has no share in anything, and −∞ − (−∞) never happens.
        known = torch.where(log_mass == -math.inf, math.inf, log_mass)
        mass_and_grad = torch.stack([known, grad], dim=1)
        grad_unit = log_mass.new_empty(len(padded), shape.dims)
        weights = (padded, pairs.indptr, layout.indices, pairs.log_weight, pairs.log_weight_t, mass_and_grad)
        triton_kernels.backward_rows[(len(padded),)](*weights, grad_unit, DIMS=shape.dims, **constants)
        n_pieces = len(layout.piece_row)
        if n_pieces:
            parts = log_mass.new_empty(n_pieces, shape.width)
            triton_kernels.backward_pieces[(n_pieces,)](
                *weights, layout.piece_row, layout.piece_begin, parts, **constants
            )
            triton_kernels.join_backward[(len(layout.long_row),)](
                layout.long_row, layout.first_piece, parts, grad_unit, DIMS=shape.dims, WIDTH=shape.width, num_warps=1
            )
        return grad_unit.to(ctx.dtype), None, None, None
