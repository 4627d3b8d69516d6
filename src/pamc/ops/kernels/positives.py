"""Device code of :mod:`pamc.ops.triton_ops`: what one program does with one row of the pairs.

In all of them: `unit` (N, STRIDE) holds the unit rows, padded with zeros, and `inverse` (N,) what z was multiplied with
to get them; WIDTH ≥ STRIDE is a power of two; COLUMNS
entries of a row are read at a time; sums are taken in the type ACCUMULATOR. TAU is τ of Eq 3, a constant
of the compiled kernel, which float64 takes in full.
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
    COLUMNS: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """One program per COLUMNS rows: z (N, DIMS) scaled to length 1 and padded; zero rows stay zero."""
    row = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    there = row < n_rows
    dims = tl.arange(0, WIDTH)
    own = tl.load(z + row[:, None] * DIMS + dims, mask=there[:, None] & (dims < DIMS), other=0.0).to(ACCUMULATOR)
    squared = tl.sum(own * own, axis=1)
    nothing = squared == 0
    scale = tl.where(nothing, 0.0, 1.0 / tl.sqrt(tl.where(nothing, 1.0, squared)))
    tl.store(inverse + row, scale, mask=there)
    tl.store(unit + row[:, None] * STRIDE + dims, own * scale[:, None], mask=there[:, None] & (dims < STRIDE))


@triton.jit
def _through_scaling(grad, own, inverse, row):
    """Return the gradient (WIDTH,) of a row of z, given that of its unit row: what lies along the row is lost."""
    return (grad - tl.sum(grad * own, axis=0) * own) * tl.load(inverse + row)


@triton.jit
def _mass(
    unit,
    own,
    indices,
    log_weight,
    begin,
    end,
    TAU: tl.constexpr,
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Return, of the entries [begin, end) of one row: the largest score, Σ e^(score − largest), and Σ γ·cosine.

    score = τ·u_i·u_j + log γ_ij, Eq 3.
    """
    dims = tl.arange(0, WIDTH)
    top = tl.full([], float("-inf"), own.dtype)
    mass = tl.zeros([], own.dtype)
    agreement = tl.zeros([], own.dtype)
    for first in range(begin, end, COLUMNS):
        entry = first + tl.arange(0, COLUMNS)
        there = entry < end
        column = tl.load(indices + entry, mask=there, other=0).to(tl.int64)
        weight = tl.load(log_weight + entry, mask=there, other=float("-inf")).to(own.dtype)
        other = tl.load(unit + column[:, None] * STRIDE + dims, mask=there[:, None] & (dims < STRIDE), other=0.0)
        cosine = tl.sum(other.to(own.dtype) * own, axis=1)
        score = TAU * cosine + weight
        higher = tl.maximum(top, tl.max(score, axis=0))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        mass = mass * tl.exp(top - shift) + tl.sum(tl.exp(score - shift), axis=0)
        agreement += tl.sum(tl.exp(weight) * cosine, axis=0)
        top = higher
    return top, mass, agreement


@triton.jit
def _log(top, mass):
    """Return the logarithm of a mass whose scores had `top` taken off: −∞ for nothing."""
    nothing = top == float("-inf")
    return tl.where(nothing, float("-inf"), tl.where(nothing, 0.0, top) + tl.log(tl.where(nothing, 1.0, mass)))


@triton.jit
def _or_infinite(log_mass):
    """Return +∞ for the −∞ of a node without positives: no share in anything, and never −∞ − (−∞)."""
    return tl.where(log_mass == float("-inf"), float("inf"), log_mass)


@triton.jit
def _gradient(
    unit,
    own,
    indices,
    log_weight,
    log_weight_t,
    mass_and_grad,
    row,
    begin,
    end,
    TAU: tl.constexpr,
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Return (WIDTH,) Σ_j τ·(g_i·w_ij + g_j·w_ji)·u_j over the entries [begin, end) of row i, w of Eq 3's softmax."""
    dims = tl.arange(0, WIDTH)
    log_mass = _or_infinite(tl.load(mass_and_grad + 2 * row))
    grad = tl.load(mass_and_grad + 2 * row + 1)
    total = tl.zeros([WIDTH], own.dtype)
    for first in range(begin, end, COLUMNS):
        entry = first + tl.arange(0, COLUMNS)
        there = entry < end
        column = tl.load(indices + entry, mask=there, other=0).to(tl.int64)
        weight = tl.load(log_weight + entry, mask=there, other=float("-inf")).to(own.dtype)
        weight_t = tl.load(log_weight_t + entry, mask=there, other=float("-inf")).to(own.dtype)
        log_mass_t = _or_infinite(tl.load(mass_and_grad + 2 * column, mask=there, other=float("inf")))
        grad_t = tl.load(mass_and_grad + 2 * column + 1, mask=there, other=0.0)
        other = tl.load(unit + column[:, None] * STRIDE + dims, mask=there[:, None] & (dims < STRIDE), other=0.0)
        other = other.to(own.dtype)
        score = TAU * tl.sum(other * own, axis=1)
        share = grad * tl.exp(score + weight - log_mass) + grad_t * tl.exp(score + weight_t - log_mass_t)
        total += tl.sum((TAU * share)[:, None] * other, axis=0)
    return total


@triton.jit
def _own_row(unit, row, STRIDE: tl.constexpr, WIDTH: tl.constexpr, ACCUMULATOR: tl.constexpr):
    dims = tl.arange(0, WIDTH)
    return tl.load(unit + row * STRIDE + dims, mask=dims < STRIDE, other=0.0).to(ACCUMULATOR)


@triton.jit
def forward_rows(
    unit,
    indptr,
    indices,
    log_weight,
    log_self,
    log_mass,
    agreement,
    TAU: tl.constexpr,
    PIECE: tl.constexpr,
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
    KEEP_SELF: tl.constexpr,
):
    """One program per row: L_i and Σ_j γ_ij·cosine; rows that are cut are left to the next kernels."""
    row = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    if end - begin <= PIECE:
        own = _own_row(unit, row, STRIDE, WIDTH, ACCUMULATOR)
        top, mass, agrees = _mass(unit, own, indices, log_weight, begin, end, TAU, STRIDE, WIDTH, COLUMNS)
        if KEEP_SELF:
            # The term γ_ii·e⁰ of the released program.
            top, mass = _joined(top, mass, tl.load(log_self + row).to(ACCUMULATOR), 1.0)
        tl.store(log_mass + row, _log(top, mass))
        tl.store(agreement + row, agrees)


@triton.jit
def _joined(top, mass, other_top, other_mass):
    """Return largest score and mass of two parts of a row."""
    higher = tl.maximum(top, other_top)
    shift = tl.where(higher == float("-inf"), 0.0, higher)
    return higher, mass * tl.exp(top - shift) + other_mass * tl.exp(other_top - shift)


@triton.jit
def forward_pieces(
    unit,
    indptr,
    indices,
    log_weight,
    piece_row,
    piece_begin,
    parts,
    TAU: tl.constexpr,
    PIECE: tl.constexpr,
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """One program per piece of a long row: its largest score, mass and agreement."""
    piece = tl.program_id(0).to(tl.int64)
    row, begin = tl.load(piece_row + piece), tl.load(piece_begin + piece)
    end = tl.minimum(begin + PIECE, tl.load(indptr + row + 1))
    own = _own_row(unit, row, STRIDE, WIDTH, ACCUMULATOR)
    top, mass, agrees = _mass(unit, own, indices, log_weight, begin, end, TAU, STRIDE, WIDTH, COLUMNS)
    tl.store(parts + 3 * piece, top)
    tl.store(parts + 3 * piece + 1, mass)
    tl.store(parts + 3 * piece + 2, agrees)


@triton.jit
def join_forward(long_row, first_piece, parts, log_self, log_mass, agreement, KEEP_SELF: tl.constexpr):
    """One program per long row: its pieces put together, in their order."""
    number = tl.program_id(0)
    row = tl.load(long_row + number)
    begin, end = tl.load(first_piece + number), tl.load(first_piece + number + 1)
    top = tl.load(parts + 3 * begin)
    mass = tl.load(parts + 3 * begin + 1)
    agrees = tl.load(parts + 3 * begin + 2)
    for piece in range(begin + 1, end):
        top, mass = _joined(top, mass, tl.load(parts + 3 * piece), tl.load(parts + 3 * piece + 1))
        agrees += tl.load(parts + 3 * piece + 2)
    if KEEP_SELF:
        # The term γ_ii·e⁰ of the released program.
        top, mass = _joined(top, mass, tl.load(log_self + row).to(top.dtype), 1.0)
    tl.store(log_mass + row, _log(top, mass))
    tl.store(agreement + row, agrees)


@triton.jit
def backward_rows(
    unit,
    indptr,
    indices,
    log_weight,
    log_weight_t,
    mass_and_grad,
    inverse,
    grad_z,
    TAU: tl.constexpr,
    DIMS: tl.constexpr,
    PIECE: tl.constexpr,
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """One program per row: its row of the gradient; rows that are cut are left to the next kernels."""
    row = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    if end - begin <= PIECE:
        own = _own_row(unit, row, STRIDE, WIDTH, ACCUMULATOR)
        total = _gradient(
            unit, own, indices, log_weight, log_weight_t, mass_and_grad, row, begin, end, TAU, STRIDE, WIDTH, COLUMNS
        )
        dims = tl.arange(0, WIDTH)
        tl.store(grad_z + row * DIMS + dims, _through_scaling(total, own, inverse, row), mask=dims < DIMS)


@triton.jit
def backward_pieces(
    unit,
    indptr,
    indices,
    log_weight,
    log_weight_t,
    mass_and_grad,
    piece_row,
    piece_begin,
    parts,
    TAU: tl.constexpr,
    PIECE: tl.constexpr,
    STRIDE: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    """One program per piece of a long row: its part of that row of the gradient."""
    piece = tl.program_id(0).to(tl.int64)
    row, begin = tl.load(piece_row + piece), tl.load(piece_begin + piece)
    end = tl.minimum(begin + PIECE, tl.load(indptr + row + 1))
    own = _own_row(unit, row, STRIDE, WIDTH, ACCUMULATOR)
    total = _gradient(
        unit, own, indices, log_weight, log_weight_t, mass_and_grad, row, begin, end, TAU, STRIDE, WIDTH, COLUMNS
    )
    tl.store(parts + piece * WIDTH + tl.arange(0, WIDTH), total)


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
    number = tl.program_id(0)
    row = tl.load(long_row + number)
    begin, end = tl.load(first_piece + number), tl.load(first_piece + number + 1)
    dims = tl.arange(0, WIDTH)
    total = tl.load(parts + begin * WIDTH + dims)
    for piece in range(begin + 1, end):
        total += tl.load(parts + piece * WIDTH + dims)
    own = _own_row(unit, row, STRIDE, WIDTH, ACCUMULATOR)
    tl.store(grad_z + row * DIMS + dims, _through_scaling(total, own, inverse, row), mask=dims < DIMS)
