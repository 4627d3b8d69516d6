"""The positive term of the PamC loss in fused kernels: nothing per pair is stored, in neither direction.

One warp takes one row of the pairs and reads, tile by tile, the columns, their weights and their unit rows. The mass of
a row is summed with the largest score so far taken off, so that no τ and no γ overflows. The gradient of row i needs
its own entries only, because γ_ij and γ_ji stand side by side: no atomics, and the same bits in every run.

A row of very many pairs would keep one warp busy long after all others are done, so it is cut into pieces, each a
program of its own, whose results are put together in their order by a second kernel.

Rows of z are gathered at random: each is scaled to length 1 and padded to whole sectors of 32 bytes once, and then read
once per pair and pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from pamc.graph.pairs import PositivePairs
from pamc.ops.kernels import positives

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


def positive_log_mass(z: Tensor, pairs: PositivePairs, *, tau: float, self_edges: str) -> tuple[Tensor, Tensor]:
    """Return what :func:`pamc.ops.torch_ops.positive_log_mass` does of the unit rows of z.

    Unit rows are kept in the type of z; those in float32 or bfloat16 are summed in float32, those in float64 in
    float64. Zero rows have cosine 0 and gradient 0. O(E·d) time, O(N·d) memory beside the pairs.
    """
    with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
        result: tuple[Tensor, Tensor] = _PositiveLogMass.apply(z, pairs, tau, self_edges == "keep")  # type: ignore[no-untyped-call]
    return result


@dataclass(frozen=True, eq=False)
class _Layout:
    """What the kernels want of the pairs beside the pairs themselves.

    Parameters
    ----------
    indices
        (E,) columns, in 32 bits where they fit.
    offset, scale
        () 2 and 2/Σγ_ij, which make the alignment of Σγ_ij·cosine; 0 where all γ are 0.
    piece_row, piece_begin
        (P,) the row of each piece of a long row, and its first entry.
    long_row, first_piece
        (R,), (R + 1,) the long rows, and where the pieces of each begin.
    """

    indices: Tensor
    offset: Tensor
    scale: Tensor
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
        weight_sum = pairs.log_weight.exp().sum()
        found = _LAYOUTS[pairs] = _Layout(
            indices=pairs.indices.int() if pairs.n_nodes <= _MOST_NODES_IN_32_BITS else pairs.indices,
            offset=torch.where(weight_sum > 0, 2.0, 0.0).to(weight_sum),
            scale=torch.where(weight_sum > 0, 2 / weight_sum, 0.0),
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
    def of(cls, z: Tensor) -> _Shape:
        dims = z.shape[1]
        numbers_per_sector = _SECTOR // z.element_size()
        stride = -(-dims // numbers_per_sector) * numbers_per_sector
        width = triton.next_power_of_2(stride)
        columns = min(_MOST_COLUMNS, max(_LEAST_COLUMNS, _TILE // width))
        n_warps = min(8, max(1, columns * width // _TILE))
        return cls(dims, stride, width, columns, n_warps, tl.float64 if z.dtype == torch.float64 else tl.float32)

    def constants(self, **further: Any) -> dict[str, Any]:
        return {
            "STRIDE": self.stride,
            "WIDTH": self.width,
            "COLUMNS": self.columns,
            "ACCUMULATOR": self.accumulator,
            "num_warps": self.n_warps,
            "enable_fp_fusion": True,
            **further,
        }


class _PositiveLogMass(torch.autograd.Function):
    """As in :mod:`pamc.ops.torch_ops`; both passes read the unit rows and keep nothing per pair."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, pairs: PositivePairs, tau: float, keep_self: bool) -> tuple[Tensor, Tensor]:
        layout, shape, n_rows = _layout(pairs), _Shape.of(z), len(z)
        constants = shape.constants(TAU=tau, PIECE=PIECE)
        log_mass = z.new_empty(n_rows, dtype=torch.float64 if z.dtype == torch.float64 else torch.float32)
        agreement, inverse = torch.empty_like(log_mass), torch.empty_like(log_mass)
        unit = z.new_empty(n_rows, shape.stride)
        positives.scale_rows[(triton.cdiv(n_rows, shape.columns),)](
            z.contiguous(), unit, inverse, n_rows, **shape.constants(DIMS=shape.dims)
        )
        weights = (unit, pairs.indptr, layout.indices, pairs.log_weight)
        positives.forward_rows[(n_rows,)](
            *weights, pairs.log_self_weight, log_mass, agreement, KEEP_SELF=keep_self, **constants
        )
        n_pieces = len(layout.piece_row)
        if n_pieces:
            parts = log_mass.new_empty(n_pieces, 3)
            positives.forward_pieces[(n_pieces,)](*weights, layout.piece_row, layout.piece_begin, parts, **constants)
            positives.join_forward[(len(layout.long_row),)](
                layout.long_row,
                layout.first_piece,
                parts,
                pairs.log_self_weight,
                log_mass,
                agreement,
                KEEP_SELF=keep_self,
                num_warps=1,
                enable_fp_fusion=True,
            )
        ctx.save_for_backward(unit, inverse, log_mass)
        ctx.pairs, ctx.tau, ctx.shape = pairs, tau, shape
        alignment = torch.addcmul(layout.offset.to(log_mass), agreement.sum(), layout.scale.to(log_mass), value=-1)
        ctx.mark_non_differentiable(alignment)
        return log_mass, alignment

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        unit, inverse, log_mass = ctx.saved_tensors
        pairs, shape, layout = ctx.pairs, ctx.shape, _layout(ctx.pairs)
        constants = shape.constants(TAU=ctx.tau, PIECE=PIECE)
        mass_and_grad = torch.stack([log_mass, grad], dim=1)
        grad_z = unit.new_empty(len(unit), shape.dims)
        weights = (unit, pairs.indptr, layout.indices, pairs.log_weight, pairs.log_weight_t, mass_and_grad)
        positives.backward_rows[(len(unit),)](*weights, inverse, grad_z, DIMS=shape.dims, **constants)
        n_pieces = len(layout.piece_row)
        if n_pieces:
            parts = log_mass.new_empty(n_pieces, shape.width)
            positives.backward_pieces[(n_pieces,)](*weights, layout.piece_row, layout.piece_begin, parts, **constants)
            positives.join_backward[(len(layout.long_row),)](
                unit,
                layout.long_row,
                layout.first_piece,
                parts,
                inverse,
                grad_z,
                DIMS=shape.dims,
                STRIDE=shape.stride,
                WIDTH=shape.width,
                ACCUMULATOR=shape.accumulator,
                num_warps=1,
                enable_fp_fusion=True,
            )
        return grad_z, None, None, None
