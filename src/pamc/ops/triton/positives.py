"""The positive term of the PamC loss in fused kernels, which store nothing per pair in either pass.

One warp processes one row of the pairs, or several if there are very many, and reads tiles of columns, their weights
and their unit rows. Weights are relative to the largest of their row, and e^(τ·cosine) is relative to e^τ, so that no
value exceeds 1 and no significant value underflows. The gradient of row i depends on the entries of row i only, because
γ_ij and γ_ji are stored together: there are no atomic additions, and results are bitwise equal in every run.

A row with very many pairs would occupy one warp long after all others have finished, so it is split into pieces, each
processed by one program, and a second kernel combines their results in order.

Rows of z are gathered at random: each is scaled to length 1 once, stored in as few memory sectors as possible (in fixed
point if that takes fewer), and then read once per pair and pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from pamc.graph.positives import PositivePairs
from pamc.ops.kernels import positives as kernels
from pamc.ops.torch import positives as plain
from pamc.ops.torch import rows as plain_rows
from pamc.ops.triton.rows import Shape, unit_rows

Option = TypeVar("Option")
Result = TypeVar("Result")

# Rows with more pairs than this are split into pieces of this size.
PIECE = 1024

# Elements per warp of a tile of unit rows; halved for packed rows, and in the backward pass for long rows, which keeps
# a sum for each element.
_TILE = 1024
_LONG_ROW = 64
_LEAST_COLUMNS = 4

# A program for one row with few pairs keeps a GPU idle most of the time: if there are many rows, each program processes
# several narrow ones at once, a few entries of each at a time. They finish together, so longer rows are split.
_MANY_PROGRAMS = 1 << 13
_FEW_PAIRS = 32
_NARROW = 32
_SIDE_BY_SIDE, _COLUMNS_SIDE_BY_SIDE = 4, 8
_LONGEST_SIDE_BY_SIDE = 64

_MOST_NODES_IN_32_BITS = 2**31 - 1

# Beyond this τ, the smallest share of a neighbor, e^(−2τ), is negligible in float32.
MOST_TAU = 40.0


def positive_log_mass(z: Tensor, pairs: PositivePairs, *, tau: float, self_edges: str) -> tuple[Tensor, Tensor]:
    """Return the result of :func:`pamc.ops.torch.positives.positive_log_mass` for the unit rows of z.

    Unit rows are stored in the dtype of z; sums are accumulated in float32, or in float64 for float64 rows. Zero rows
    have cosine 0 and gradient 0. A τ above 40 is delegated to torch. O(E·d) time, O(N·d) memory beside the pairs.
    """
    if tau > MOST_TAU:
        return plain.positive_log_mass(plain_rows.unit_rows(z), pairs, tau=tau, self_edges=self_edges)
    with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
        result: tuple[Tensor, Tensor] = _PositiveLogMass.apply(z, pairs, tau, self_edges == "keep")  # type: ignore[no-untyped-call]
    return result


@dataclass(frozen=True, eq=False)
class Layout:
    """The pairs in the format of the kernels.

    Parameters
    ----------
    indices
        (E,) columns, int32 if they fit.
    top
        (N,) log of the largest γ of a row, 0 if it has none.
    weight, weight_t
        (E,) γ_ij divided by the largest γ of row i, and γ_ji divided by that of row j; (1,) for even pairs, of which
        the kernels read no weights.
    weight_self
        (N,) γ_ii divided by the largest γ of its row, 0 if self-loops are dropped.
    offset, scale
        () 2 and 2/Σγ_ij, which convert Σγ_ij·cosine to the alignment; 0 if all γ are 0.
    """

    indices: Tensor
    top: Tensor
    weight: Tensor
    weight_t: Tensor
    weight_self: Tensor
    offset: Tensor
    scale: Tensor


@dataclass(frozen=True, eq=False)
class Pieces:
    """The pieces of rows that are split.

    Parameters
    ----------
    piece_row, piece_begin
        (P,) row of each piece, and its first entry.
    long_row, first_piece
        (R,) rows that are split, and (R + 1,) offsets of their pieces.
    """

    piece_row: Tensor
    piece_begin: Tensor
    long_row: Tensor
    first_piece: Tensor

    def __len__(self) -> int:
        return len(self.piece_row)


def _cached(build: Callable[[PositivePairs, Option], Result]) -> Callable[[PositivePairs, Option], Result]:
    """Return the function with a cache that holds its results for as long as the pairs exist."""
    cache: WeakKeyDictionary[PositivePairs, dict[Option, Result]] = WeakKeyDictionary()

    @wraps(build)
    def cached(pairs: PositivePairs, option: Option) -> Result:
        results = cache.setdefault(pairs, {})
        if option not in results:
            results[option] = build(pairs, option)
        return results[option]

    return cached


@_cached
def layout_of(pairs: PositivePairs, keep_self: bool) -> Layout:
    """Return the layout of the pairs, with or without their self-loops."""
    top, weight, weight_t, weight_sum = _weights(pairs, keep_self)
    weight_self = (pairs.log_self_weight - top).exp() if keep_self else torch.zeros_like(top)
    return Layout(
        indices=pairs.indices.int() if pairs.n_nodes <= _MOST_NODES_IN_32_BITS else pairs.indices,
        top=top,
        weight=weight,
        weight_t=weight_t,
        weight_self=weight_self,
        offset=torch.where(weight_sum > 0, 2.0, 0.0).to(weight_sum),
        scale=torch.where(weight_sum > 0, 2 / weight_sum, 0.0),
    )


@_cached
def pieces_of(pairs: PositivePairs, longest: int) -> Pieces:
    """Return the pieces of rows with more than `longest` pairs."""
    n_entries = pairs.indptr.diff()
    (long_row,) = torch.nonzero(n_entries > longest, as_tuple=True)
    n_pieces = -(-n_entries[long_row] // PIECE)
    first_piece = torch.cat([n_pieces.new_zeros(1), n_pieces.cumsum(0)])
    piece_row = torch.repeat_interleave(long_row, n_pieces)
    number = torch.arange(len(piece_row), device=piece_row.device)
    number -= torch.repeat_interleave(first_piece[:-1], n_pieces)
    return Pieces(piece_row, pairs.indptr[piece_row] + PIECE * number, long_row, first_piece)


def _weights(pairs: PositivePairs, keep_self: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return `top`, `weight` and `weight_t` of the layout, and Σγ_ij."""
    if pairs.log_row_weight is not None:
        # The common weight of a row is its largest, and nothing is stored per pair.
        row = pairs.log_row_weight
        return row, row.new_ones(1), row.new_ones(1), (row.exp() * pairs.indptr.diff()).sum()
    row_of_entry = torch.repeat_interleave(pairs.indptr.diff())
    top = torch.full_like(pairs.log_self_weight, -math.inf)
    top = top.scatter_reduce(0, row_of_entry, pairs.log_weight, "amax")
    top = torch.maximum(top, pairs.log_self_weight) if keep_self else top
    top = torch.where(top == -math.inf, 0.0, top)
    weight = (pairs.log_weight - top[row_of_entry]).exp_()
    return top, weight, (pairs.log_weight_t - top[pairs.indices]).exp_(), pairs.log_weight.exp().sum()


class Tiles(NamedTuple):
    """The tiling of the pairs, a compile-time constant of the kernels that read them.

    Parameters
    ----------
    tau
        Inverse temperature τ of Eq 3.
    even
        Whether all entries of a row have the same weight; weights are then not read.
    rows, columns
        Number of rows that a program processes at once, and of entries of each that it reads at a time.
    longest
        Number of pairs above which a row is split, or size of the pieces.
    """

    tau: float
    even: bool
    rows: int
    columns: int
    longest: int


def side_by_side(shape: Shape, pairs: PositivePairs) -> int:
    """Return the number of rows that a program processes at once."""
    if shape.width > _NARROW or _mean_entries(pairs) > _FEW_PAIRS:
        return 1
    rows = max(1, min(_SIDE_BY_SIDE, pairs.n_nodes // _MANY_PROGRAMS))
    return 1 << (rows.bit_length() - 1)


def longest_row(shape: Shape, pairs: PositivePairs) -> int:
    """Return the number of pairs above which a row is split."""
    return PIECE if side_by_side(shape, pairs) == 1 else min(PIECE, _LONGEST_SIDE_BY_SIDE)


def row_tiles(shape: Shape, pairs: PositivePairs, *, tau: float, backward: bool = False) -> dict[str, Any]:
    """Return the constants of a kernel that processes whole rows."""
    constants = piece_tiles(shape, pairs, tau=tau, backward=backward)
    rows, tiles = side_by_side(shape, pairs), constants["TILES"]._replace(longest=longest_row(shape, pairs))
    if rows > 1:
        tiles = tiles._replace(rows=rows, columns=_COLUMNS_SIDE_BY_SIDE)
        constants |= {"num_warps": 1}
    return {**constants, "TILES": tiles}


def piece_tiles(shape: Shape, pairs: PositivePairs, *, tau: float, backward: bool = False) -> dict[str, Any]:
    """Return the constants of a kernel that processes pieces of long rows.

    The number of entries read at a time is about the mean number of entries of a row.
    """
    tile = _TILE // 2 if shape.packed or (backward and shape.width >= _LONG_ROW) else _TILE
    columns = max(_LEAST_COLUMNS, min(_mean_entries(pairs), tile // shape.width))
    n_warps = min(8, max(1, columns * shape.width // _TILE))
    even = pairs.log_row_weight is not None
    return shape.constants(TILES=Tiles(tau, even, 1, columns, PIECE), num_warps=n_warps)


def _mean_entries(pairs: PositivePairs) -> int:
    """Return the mean number of pairs of a row, rounded up to a power of two."""
    mean: int = triton.next_power_of_2(max(1, pairs.n_pairs // max(1, pairs.n_nodes)))
    return mean


def masses(
    unit: Tensor, inverse: Tensor, pairs: PositivePairs, shape: Shape, *, tau: float, keep_self: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return each row's log mass, inverse mass relative to its largest γ, and Σ_j γ_ij·cosine, all of shape (N,).

    `unit` (N, stride) are the unit rows, and `inverse` (N,) the factors by which z was scaled.
    """
    n_rows, layout, pieces = len(unit), layout_of(pairs, keep_self), pieces_of(pairs, longest_row(shape, pairs))
    log_mass, agreements, over_mass = (torch.empty_like(inverse) for _ in range(3))
    # The term γ_ii·e⁰ of the released program, also relative to e^τ.
    weight_self = layout.weight_self * math.exp(-tau) if keep_self else layout.weight_self
    results = (weight_self, layout.top, log_mass, over_mass, agreements)
    tiles = row_tiles(shape, pairs, tau=tau)
    weights = (pairs.indptr, layout.indices, layout.weight)
    n_programs = triton.cdiv(n_rows, tiles["TILES"].rows)
    kernels.forward_rows[(n_programs,)](unit, *weights, *results, inverse, n_rows, **tiles)
    if len(pieces):
        parts = log_mass.new_empty(len(pieces), 2)
        kernels.forward_pieces[(len(pieces),)](
            unit, *weights, pieces.piece_row, pieces.piece_begin, parts, inverse, **piece_tiles(shape, pairs, tau=tau)
        )
        kernels.join_forward[(len(pieces.long_row),)](
            pieces.long_row, pieces.first_piece, parts, *results, TAU=tau, num_warps=1, enable_fp_fusion=True
        )
    return log_mass, over_mass, agreements


def gradient_of_pieces(
    unit: Tensor, inverse: Tensor, weights: tuple[Tensor, ...], pairs: PositivePairs, shape: Shape, *, tau: float
) -> Tensor:
    """Return the contribution (P, width) of each piece of a long row to that row of the gradient.

    `weights` are `indptr`, columns, both weights, and the gradient of each log mass divided by its mass.
    """
    pieces = pieces_of(pairs, longest_row(shape, pairs))
    parts = inverse.new_empty(len(pieces), shape.width)
    tiles = piece_tiles(shape, pairs, tau=tau, backward=True)
    kernels.backward_pieces[(len(pieces),)](
        unit, *weights, pieces.piece_row, pieces.piece_begin, parts, inverse, **tiles
    )
    return parts


class _PositiveLogMass(torch.autograd.Function):
    """As in :mod:`pamc.ops.torch.positives`; both passes read the unit rows and store nothing per pair."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, pairs: PositivePairs, tau: float, keep_self: bool) -> tuple[Tensor, Tensor]:
        layout, shape = layout_of(pairs, keep_self), Shape.of(z)
        unit, inverse = unit_rows(z, shape)
        log_mass, over_mass, agreements = masses(unit, inverse, pairs, shape, tau=tau, keep_self=keep_self)
        ctx.save_for_backward(unit, inverse, over_mass)
        ctx.pairs, ctx.layout, ctx.tau, ctx.shape, ctx.dtype = pairs, layout, tau, shape, z.dtype
        alignment = torch.addcmul(layout.offset.to(log_mass), agreements.sum(), layout.scale.to(log_mass), value=-1)
        ctx.mark_non_differentiable(alignment)
        return log_mass, alignment

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        unit, inverse, over_mass = ctx.saved_tensors
        shape, layout, n_rows = ctx.shape, ctx.layout, len(unit)
        pairs, pieces = ctx.pairs, pieces_of(ctx.pairs, longest_row(shape, ctx.pairs))
        grad_z = inverse.new_empty(n_rows, shape.dims, dtype=ctx.dtype)
        tiles = row_tiles(shape, pairs, tau=ctx.tau, backward=True)
        weights = (pairs.indptr, layout.indices, layout.weight, layout.weight_t, grad * over_mass)
        n_programs = triton.cdiv(n_rows, tiles["TILES"].rows)
        kernels.backward_rows[(n_programs,)](unit, *weights, inverse, grad_z, n_rows, **tiles)
        if len(pieces):
            parts = gradient_of_pieces(unit, inverse, weights, pairs, shape, tau=ctx.tau)
            kernels.join_backward[(len(pieces.long_row),)](
                unit, pieces.long_row, pieces.first_piece, parts, inverse, grad_z, num_warps=1, **shape.constants()
            )
        return grad_z, None, None, None
