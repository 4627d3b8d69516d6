"""Device code of :mod:`pamc.ops.triton_ops`: what one program does with a row of the pairs.

In all of them: `unit` (N, STRIDE) holds the unit rows, padded, and `inverse` (N,) what z was multiplied with
to get them; `weight` is γ_ij over the largest γ of row i, `weight_t` γ_ji over the largest γ of row j. A row is a
tensor of length 1 here, of which COLUMNS entries are read at a time, and WIDTH ≥ DIMS numbers of each, a power of two.
Sums are taken in the type ACCUMULATOR. TAU is τ of Eq 3, a constant of the kernel, which float64 takes in full. Where
pairs are EVEN, all entries of a row weigh the same: 1, and no weight is read.
"""

import triton
import triton.language as tl


@triton.jit
def scale_rows(
    z,
    unit,
    inverse,
    n_rows,
    DIMS: tl.constexpr,
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """One program per ROWS rows: z (N, DIMS) scaled to length 1 and padded; zero rows stay zero."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = row < n_rows
    dims = tl.arange(0, WIDTH)
    own = tl.load(z + row[:, None] * DIMS + dims, mask=there[:, None] & (dims < DIMS), other=0.0).to(ACCUMULATOR)
    squared = tl.sum(own * own, axis=1)
    nothing = squared == 0
    scale = tl.where(nothing, 0.0, 1.0 / tl.sqrt(tl.where(nothing, 1.0, squared)))
    tl.store(inverse + row, scale, mask=there)
    tl.store(unit + row[:, None] * STRIDE + dims, own * scale[:, None], mask=there[:, None] & (dims < STRIDE))


@triton.jit
def own_row(unit, row, there, DIMS: tl.constexpr, STRIDE: tl.constexpr, WIDTH: tl.constexpr, ACCUMULATOR: tl.constexpr):
    """Return unit rows (1, WIDTH)."""
    dims = tl.arange(0, WIDTH)
    place = unit + row[:, None] * STRIDE + dims
    return tl.load(place, mask=there[:, None] & (dims < DIMS), other=0.0).to(ACCUMULATOR)


@triton.jit
def _entries(unit, indices, entry, there, own, DIMS: tl.constexpr, STRIDE: tl.constexpr, WIDTH: tl.constexpr):
    """Return columns (1, COLUMNS), unit rows there (1, COLUMNS, WIDTH), and their cosines with the own row.

    What is read once makes room for the unit rows, which are read again and again.
    """
    dims = tl.arange(0, WIDTH)
    column = tl.load(indices + entry, mask=there, other=0, eviction_policy="evict_first").to(tl.int64)
    place = unit + column[:, :, None] * STRIDE + dims
    other = tl.load(place, mask=there[:, :, None] & (dims < DIMS), other=0.0, eviction_policy="evict_last")
    other = other.to(own.dtype)
    return column, other, tl.sum(other * own[:, None, :], axis=2)


@triton.jit
def _share(weight, entry, there, own, EVEN: tl.constexpr):
    """Return the weights of entries, 0 where there is none, in the type of the own row."""
    if EVEN:
        share = there.to(own.dtype)
    else:
        share = tl.load(weight + entry, mask=there, other=0.0, eviction_policy="evict_first").to(own.dtype)
    return share


@triton.jit
def _mass(
    unit,
    own,
    indices,
    weight,
    begin,
    end,
    TAU: tl.constexpr,
    EVEN: tl.constexpr,
    DIMS: tl.constexpr,
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Return Σ_j w_ij·e^(τ·(cosine − 1)) and Σ_j w_ij·cosine over the entries [begin, end) of a row, (1,)."""
    mass = tl.zeros([1, COLUMNS], own.dtype)
    agreement = tl.zeros([1, COLUMNS], own.dtype)
    for first in range(0, tl.max(end - begin, axis=0), COLUMNS):
        entry = begin[:, None] + first + tl.arange(0, COLUMNS)[None, :]
        there = entry < end[:, None]
        share = _share(weight, entry, there, own, EVEN)
        _, _, cosine = _entries(unit, indices, entry, there, own, DIMS, STRIDE, WIDTH)
        mass += share * tl.exp(TAU * cosine - TAU)
        agreement += share * cosine
    return tl.sum(mass, axis=1), tl.sum(agreement, axis=1)


@triton.jit
def gradient_of_row(
    unit,
    own,
    indices,
    weight,
    weight_t,
    pull,
    own_pull,
    begin,
    end,
    TAU: tl.constexpr,
    EVEN: tl.constexpr,
    DIMS: tl.constexpr,
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Return Σ_j τ·e^(τ·(cosine − 1))·(w_ij·a_i + w_ji·a_j)·u_j over the entries [begin, end) of a row.

    (1, WIDTH); a is `pull`, the gradient of a row's log mass over that mass.
    """
    total = tl.zeros([1, COLUMNS, WIDTH], own.dtype)
    for first in range(0, tl.max(end - begin, axis=0), COLUMNS):
        entry = begin[:, None] + first + tl.arange(0, COLUMNS)[None, :]
        there = entry < end[:, None]
        share = _share(weight, entry, there, own, EVEN)
        share_t = _share(weight_t, entry, there, own, EVEN)
        column, other, cosine = _entries(unit, indices, entry, there, own, DIMS, STRIDE, WIDTH)
        other_pull = tl.load(pull + column, mask=there, other=0.0, eviction_policy="evict_last")
        slope = TAU * tl.exp(TAU * cosine - TAU) * (share * own_pull[:, None] + share_t * other_pull)
        total += slope[:, :, None] * other
    return tl.sum(total, axis=1)


@triton.jit
def row_of(indptr, PIECE: tl.constexpr):
    """Return the row of a program, whether it is not cut, and where its entries begin and end."""
    row = tl.program_id(0).to(tl.int64) + tl.arange(0, 1)
    begin = tl.load(indptr + row)
    end = tl.load(indptr + row + 1)
    there = end - begin <= PIECE
    return row, there, begin, tl.where(there, end, begin)


@triton.jit
def _store_mass(row, there, mass, agreement, top, log_mass, over_mass, agreements, TAU: tl.constexpr):
    """Store L_i = τ + log of the largest γ + log mass, one over the mass, and Σ_j γ_ij·cosine."""
    nothing = mass == 0
    known = tl.where(nothing, 1.0, mass)
    highest = tl.load(top + row, mask=there, other=0.0).to(mass.dtype)
    tl.store(log_mass + row, tl.where(nothing, float("-inf"), TAU + highest + tl.log(known)), mask=there)
    tl.store(over_mass + row, tl.where(nothing, 0.0, 1.0 / known), mask=there)
    tl.store(agreements + row, agreement * tl.exp(highest), mask=there)


@triton.jit
def forward_rows(
    unit,
    indptr,
    indices,
    weight,
    weight_self,
    top,
    log_mass,
    over_mass,
    agreements,
    TAU: tl.constexpr,
    PIECE: tl.constexpr,
    EVEN: tl.constexpr,
    DIMS: tl.constexpr,
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """One program per row; rows that are cut are left to the next kernels."""
    row, there, begin, end = row_of(indptr, PIECE)
    own = own_row(unit, row, there, DIMS, STRIDE, WIDTH, ACCUMULATOR)
    mass, agreement = _mass(unit, own, indices, weight, begin, end, TAU, EVEN, DIMS, STRIDE, WIDTH, COLUMNS)
    mass += tl.load(weight_self + row, mask=there, other=0.0).to(mass.dtype)
    _store_mass(row, there, mass, agreement, top, log_mass, over_mass, agreements, TAU)


@triton.jit
def _piece(piece_row, piece_begin, indptr, PIECE: tl.constexpr):
    """Return the row of a piece, and where its entries begin and end, each (1,)."""
    piece = tl.program_id(0) + tl.arange(0, 1)
    row = tl.load(piece_row + piece)
    begin = tl.load(piece_begin + piece)
    return piece.to(tl.int64), row, begin, tl.minimum(begin + PIECE, tl.load(indptr + row + 1))


@triton.jit
def forward_pieces(
    unit,
    indptr,
    indices,
    weight,
    piece_row,
    piece_begin,
    parts,
    TAU: tl.constexpr,
    PIECE: tl.constexpr,
    EVEN: tl.constexpr,
    DIMS: tl.constexpr,
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """One program per piece of a long row: its mass and agreement."""
    piece, row, begin, end = _piece(piece_row, piece_begin, indptr, PIECE)
    own = own_row(unit, row, row >= 0, DIMS, STRIDE, WIDTH, ACCUMULATOR)
    mass, agreement = _mass(unit, own, indices, weight, begin, end, TAU, EVEN, DIMS, STRIDE, WIDTH, COLUMNS)
    tl.store(parts + 2 * piece, mass)
    tl.store(parts + 2 * piece + 1, agreement)


@triton.jit
def join_forward(long_row, first_piece, parts, weight_self, top, log_mass, over_mass, agreements, TAU: tl.constexpr):
    """One program per long row: its pieces put together, in their order."""
    number = tl.program_id(0) + tl.arange(0, 1)
    row = tl.load(long_row + number)
    begin, end = tl.load(first_piece + tl.program_id(0)), tl.load(first_piece + tl.program_id(0) + 1)
    mass = tl.load(weight_self + row).to(parts.dtype.element_ty)
    agreement = tl.zeros_like(mass)
    for piece in range(begin, end):
        mass += tl.load(parts + 2 * piece)
        agreement += tl.load(parts + 2 * piece + 1)
    _store_mass(row, row >= 0, mass, agreement, top, log_mass, over_mass, agreements, TAU)


@triton.jit
def gradient_of_unit(row, there, total, own, inverse):
    """Return the gradient (1, WIDTH) of a row of z, given that of its unit row: what lies along the row is lost."""
    across = total - tl.sum(total * own, axis=1)[:, None] * own
    return across * tl.load(inverse + row, mask=there, other=0.0).to(own.dtype)[:, None]


@triton.jit
def _store_gradient(grad_z, row, there, total, own, inverse, DIMS: tl.constexpr, WIDTH: tl.constexpr):
    dims = tl.arange(0, WIDTH)
    grad = gradient_of_unit(row, there, total, own, inverse)
    tl.store(grad_z + row[:, None] * DIMS + dims, grad, mask=there[:, None] & (dims < DIMS))


@triton.jit
def backward_rows(
    unit,
    indptr,
    indices,
    weight,
    weight_t,
    pull,
    inverse,
    grad_z,
    TAU: tl.constexpr,
    PIECE: tl.constexpr,
    EVEN: tl.constexpr,
    DIMS: tl.constexpr,
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """One program per row: its row of the gradient; rows that are cut are left to the next kernels."""
    row, there, begin, end = row_of(indptr, PIECE)
    own = own_row(unit, row, there, DIMS, STRIDE, WIDTH, ACCUMULATOR)
    own_pull = tl.load(pull + row, mask=there, other=0.0)
    total = gradient_of_row(
        unit, own, indices, weight, weight_t, pull, own_pull, begin, end, TAU, EVEN, DIMS, STRIDE, WIDTH, COLUMNS
    )
    _store_gradient(grad_z, row, there, total, own, inverse, DIMS, WIDTH)


@triton.jit
def backward_pieces(
    unit,
    indptr,
    indices,
    weight,
    weight_t,
    pull,
    piece_row,
    piece_begin,
    parts,
    TAU: tl.constexpr,
    PIECE: tl.constexpr,
    EVEN: tl.constexpr,
    DIMS: tl.constexpr,
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """One program per piece of a long row: its part of that row of the gradient."""
    piece, row, begin, end = _piece(piece_row, piece_begin, indptr, PIECE)
    own = own_row(unit, row, row >= 0, DIMS, STRIDE, WIDTH, ACCUMULATOR)
    own_pull = tl.load(pull + row)
    total = gradient_of_row(
        unit, own, indices, weight, weight_t, pull, own_pull, begin, end, TAU, EVEN, DIMS, STRIDE, WIDTH, COLUMNS
    )
    tl.store(parts + piece[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], total)


@triton.jit
def join_backward(
    unit,
    long_row,
    first_piece,
    parts,
    inverse,
    grad_z,
    DIMS: tl.constexpr,
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """One program per long row: the sum of its pieces, in their order."""
    number = tl.program_id(0) + tl.arange(0, 1)
    row = tl.load(long_row + number)
    begin, end = tl.load(first_piece + tl.program_id(0)), tl.load(first_piece + tl.program_id(0) + 1)
    total = tl.zeros([1, WIDTH], ACCUMULATOR)
    for piece in range(begin, end):
        total += tl.load(parts + piece * WIDTH + tl.arange(0, WIDTH))[None, :]
    own = own_row(unit, row, row >= 0, DIMS, STRIDE, WIDTH, ACCUMULATOR)
    _store_gradient(grad_z, row, row >= 0, total, own, inverse, DIMS, WIDTH)
