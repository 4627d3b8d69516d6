"""Device code of :mod:`pamc.ops.triton.positives`: the work of one program on rows of the pairs.

In all kernels, `unit` (N, STRIDE) holds the unit rows in WIDTH slots, as :mod:`~pamc.ops.kernels.rows` describes, and
`inverse` (N,) the factors by which z was scaled; `weight` is γ_ij divided by the largest γ of row i, `weight_t` is γ_ji
divided by the largest γ of row j. A program processes ROWS rows at once, or one piece of a long row, and reads COLUMNS
entries of each at a time, starting at entry `begin`, `length` in all. Sums have the type ACCUMULATOR. TAU is τ of Eq 3,
a compile-time constant, which keeps full precision in float64. If pairs are EVEN, all entries of a row have weight 1,
and no weights are read.
ROWS, COLUMNS, TAU and EVEN are the fields of TILES, a :class:`~pamc.ops.triton.positives.Tiles`; STRIDE, WIDTH and
ACCUMULATOR those of SHAPE, a :class:`~pamc.ops.triton.rows.Shape`.
"""

import triton
import triton.language as tl

from pamc.ops.kernels.rows import dims_of_slots, own_rows, unit_rows


@triton.jit
def _share(weight, entry, valid, program_rows, EVEN: tl.constexpr):
    """Return the weights of entries, 0 for masked ones, in the dtype of the program's rows."""
    if EVEN:
        share = valid.to(program_rows.dtype)
    else:
        share = tl.load(weight + entry, mask=valid, other=0.0, eviction_policy="evict_first").to(program_rows.dtype)
    return share


@triton.jit
def _entries(unit, indices, entry, valid, program_rows, TILES: tl.constexpr, SHAPE: tl.constexpr):
    """Return columns (ROWS, COLUMNS), their unit rows (ROWS, COLUMNS, WIDTH), and cosines with the program's rows."""
    column = tl.load(indices + entry, mask=valid, other=0, eviction_policy="evict_first").to(tl.int64)
    other = unit_rows(unit, column, valid, TILES.rows, TILES.columns, SHAPE)
    return column, other, tl.sum(other * program_rows[:, None, :], axis=2)


@triton.jit
def _mass(unit, program_rows, indices, weight, begin, length, TILES: tl.constexpr, SHAPE: tl.constexpr):
    """Return Σ_j w_ij·e^(τ·(cosine − 1)) and Σ_j w_ij·cosine over entries of each row, (ROWS,)."""
    # Some compilers treat a field of a constant as constant only if it is assigned to a constexpr.
    ROWS: tl.constexpr = TILES.rows
    COLUMNS: tl.constexpr = TILES.columns
    mass = tl.zeros([ROWS, COLUMNS], SHAPE.accumulator)
    agreement = tl.zeros([ROWS, COLUMNS], SHAPE.accumulator)
    for first in range(0, tl.max(length, axis=0), TILES.columns):
        number = first + tl.arange(0, TILES.columns)[None, :]
        entry, valid = begin[:, None] + number, number < length[:, None]
        share = _share(weight, entry, valid, program_rows, TILES.even)
        _, _, cosine = _entries(unit, indices, entry, valid, program_rows, TILES, SHAPE)
        mass += share * tl.exp(TILES.tau * cosine - TILES.tau)
        agreement += share * cosine
    return tl.sum(mass, axis=1), tl.sum(agreement, axis=1)


@triton.jit
def gradient_of_rows(
    unit,
    program_rows,
    indices,
    weight,
    weight_t,
    mass_grad,
    row_mass_grad,
    begin,
    length,
    TILES: tl.constexpr,
    SHAPE: tl.constexpr,
):
    """Return Σ_j τ·e^(τ·(cosine − 1))·(w_ij·a_i + w_ji·a_j)·u_j over entries of each row.

    The result is (ROWS, WIDTH); a is `mass_grad`, the gradient of a row's log mass divided by that mass.
    """
    ROWS: tl.constexpr = TILES.rows
    COLUMNS: tl.constexpr = TILES.columns
    WIDTH: tl.constexpr = SHAPE.width
    total = tl.zeros([ROWS, COLUMNS, WIDTH], SHAPE.accumulator)
    for first in range(0, tl.max(length, axis=0), TILES.columns):
        number = first + tl.arange(0, TILES.columns)[None, :]
        entry, valid = begin[:, None] + number, number < length[:, None]
        share = _share(weight, entry, valid, program_rows, TILES.even)
        share_t = _share(weight_t, entry, valid, program_rows, TILES.even)
        column, other, cosine = _entries(unit, indices, entry, valid, program_rows, TILES, SHAPE)
        other_mass_grad = tl.load(mass_grad + column, mask=valid, other=0.0, eviction_policy="evict_last")
        cosine_grad = (
            TILES.tau
            * tl.exp(TILES.tau * cosine - TILES.tau)
            * (share * row_mass_grad[:, None] + share_t * other_mass_grad)
        )
        total += cosine_grad[:, :, None] * other
    return tl.sum(total, axis=1)


@triton.jit
def rows_of(indptr, n_rows, TILES: tl.constexpr):
    """Return the rows of a program, the mask of rows that are not split, and each row's first entry and entry count."""
    row = tl.program_id(0).to(tl.int64) * TILES.rows + tl.arange(0, TILES.rows)
    valid = row < n_rows
    begin = tl.load(indptr + row, mask=valid, other=0)
    length = tl.load(indptr + row + 1, mask=valid, other=0) - begin
    valid = valid & (length <= TILES.longest)
    return row, valid, begin, tl.where(valid, length, 0).to(tl.int32)


@triton.jit
def _store_mass(row, valid, mass, agreement, top, log_mass, over_mass, agreements, TAU: tl.constexpr):
    """Store L_i = τ + log of the largest γ + log mass, the inverse mass, and Σ_j γ_ij·cosine."""
    nothing = mass == 0
    known = tl.where(nothing, 1.0, mass)
    highest = tl.load(top + row, mask=valid, other=0.0).to(mass.dtype)
    tl.store(log_mass + row, tl.where(nothing, float("-inf"), TAU + highest + tl.log(known)), mask=valid)
    tl.store(over_mass + row, tl.where(nothing, 0.0, 1.0 / known), mask=valid)
    tl.store(agreements + row, agreement * tl.exp(highest), mask=valid)


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
    inverse,
    n_rows,
    TILES: tl.constexpr,
    SHAPE: tl.constexpr,
):
    """Compute the masses of ROWS rows per program; the following kernels process rows that are split."""
    row, valid, begin, length = rows_of(indptr, n_rows, TILES)
    program_rows = own_rows(unit, inverse, row, valid, TILES.rows, SHAPE)
    mass, agreement = _mass(unit, program_rows, indices, weight, begin, length, TILES, SHAPE)
    mass += tl.load(weight_self + row, mask=valid, other=0.0).to(mass.dtype)
    _store_mass(row, valid, mass, agreement, top, log_mass, over_mass, agreements, TILES.tau)


@triton.jit
def _piece(piece_row, piece_begin, indptr, TILES: tl.constexpr):
    """Return a piece, its row, first entry and number of entries, each of shape (1,)."""
    piece = tl.program_id(0) + tl.arange(0, 1)
    row = tl.load(piece_row + piece)
    begin = tl.load(piece_begin + piece)
    return piece.to(tl.int64), row, begin, tl.minimum(tl.load(indptr + row + 1) - begin, TILES.longest).to(tl.int32)


@triton.jit
def forward_pieces(
    unit, indptr, indices, weight, piece_row, piece_begin, parts, inverse, TILES: tl.constexpr, SHAPE: tl.constexpr
):
    """Compute the mass and agreement of one piece of a long row per program."""
    piece, row, begin, length = _piece(piece_row, piece_begin, indptr, TILES)
    program_rows = own_rows(unit, inverse, row, row >= 0, 1, SHAPE)
    mass, agreement = _mass(unit, program_rows, indices, weight, begin, length, TILES, SHAPE)
    tl.store(parts + 2 * piece, mass)
    tl.store(parts + 2 * piece + 1, agreement)


@triton.jit
def join_forward(long_row, first_piece, parts, weight_self, top, log_mass, over_mass, agreements, TAU: tl.constexpr):
    """Combine the pieces of a long row in order, one program per long row."""
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
def gradient_of_unit(row, valid, total, program_rows, inverse):
    """Return the gradient (ROWS, WIDTH) in z, given that in unit rows, by removing the component along each row."""
    across = total - tl.sum(total * program_rows, axis=1)[:, None] * program_rows
    return across * tl.load(inverse + row, mask=valid, other=0.0).to(program_rows.dtype)[:, None]


@triton.jit
def _store_gradient(grad_z, row, valid, total, program_rows, inverse, SHAPE: tl.constexpr):
    dim, exists = dims_of_slots(SHAPE)
    grad = gradient_of_unit(row, valid, total, program_rows, inverse)
    tl.store(grad_z + row[:, None] * SHAPE.dims + dim, grad, mask=valid[:, None] & exists)


@triton.jit
def rows_of_gradient(
    unit, indptr, indices, weight, weight_t, mass_grad, inverse, n_rows, TILES: tl.constexpr, SHAPE: tl.constexpr
):
    """Return the rows of a program, the mask of rows that are not split, their unit rows, and the gradient in those."""
    row, valid, begin, length = rows_of(indptr, n_rows, TILES)
    program_rows = own_rows(unit, inverse, row, valid, TILES.rows, SHAPE)
    row_mass_grad = tl.load(mass_grad + row, mask=valid, other=0.0)
    total = gradient_of_rows(
        unit, program_rows, indices, weight, weight_t, mass_grad, row_mass_grad, begin, length, TILES, SHAPE
    )
    return row, valid, program_rows, total


@triton.jit
def joined_pieces(unit, long_row, first_piece, parts, inverse, SHAPE: tl.constexpr):
    """Return the long row of a program, its unit row, and the gradient in that, the ordered sum of its pieces."""
    number = tl.program_id(0) + tl.arange(0, 1)
    row = tl.load(long_row + number)
    begin, end = tl.load(first_piece + tl.program_id(0)), tl.load(first_piece + tl.program_id(0) + 1)
    WIDTH: tl.constexpr = SHAPE.width
    total = tl.zeros([1, WIDTH], SHAPE.accumulator)
    for piece in range(begin, end):
        total += tl.load(parts + piece * SHAPE.width + tl.arange(0, SHAPE.width))[None, :]
    return row, own_rows(unit, inverse, row, row >= 0, 1, SHAPE), total


@triton.jit
def backward_rows(
    unit,
    indptr,
    indices,
    weight,
    weight_t,
    mass_grad,
    inverse,
    grad_z,
    n_rows,
    TILES: tl.constexpr,
    SHAPE: tl.constexpr,
):
    """Compute ROWS rows of the gradient per program; the following kernels process rows that are split."""
    row, valid, program_rows, total = rows_of_gradient(
        unit, indptr, indices, weight, weight_t, mass_grad, inverse, n_rows, TILES, SHAPE
    )
    _store_gradient(grad_z, row, valid, total, program_rows, inverse, SHAPE)


@triton.jit
def backward_pieces(
    unit,
    indptr,
    indices,
    weight,
    weight_t,
    mass_grad,
    piece_row,
    piece_begin,
    parts,
    inverse,
    TILES: tl.constexpr,
    SHAPE: tl.constexpr,
):
    """Compute the contribution of one piece of a long row to that row of the gradient, per program."""
    piece, row, begin, length = _piece(piece_row, piece_begin, indptr, TILES)
    program_rows = own_rows(unit, inverse, row, row >= 0, 1, SHAPE)
    row_mass_grad = tl.load(mass_grad + row)
    total = gradient_of_rows(
        unit, program_rows, indices, weight, weight_t, mass_grad, row_mass_grad, begin, length, TILES, SHAPE
    )
    tl.store(parts + piece[:, None] * SHAPE.width + tl.arange(0, SHAPE.width)[None, :], total)


@triton.jit
def join_backward(unit, long_row, first_piece, parts, inverse, grad_z, SHAPE: tl.constexpr):
    """Sum the pieces of a long row in order, one program per long row."""
    row, program_rows, total = joined_pieces(unit, long_row, first_piece, parts, inverse, SHAPE)
    _store_gradient(grad_z, row, row >= 0, total, program_rows, inverse, SHAPE)
