"""Device code of :mod:`pamc.ops.triton_slopes`, :mod:`pamc.ops.triton_sums` and :mod:`pamc.ops.triton_adam`."""

import triton
import triton.language as tl


@triton.jit
def slope_parts(
    grad,
    output,
    through,
    parts,
    n_rows,
    n_columns,
    rows_per_part,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """One program per part of the rows and block of columns: the gradient where the output is above 0, and its sums."""
    part = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    first = part * rows_per_part
    end = tl.minimum(first + rows_per_part, n_rows)
    total = tl.zeros([COLUMNS], parts.dtype.element_ty)
    for start in range(first, end, ROWS):
        row = start + tl.arange(0, ROWS)
        there = (row < end)[:, None] & (column < n_columns)[None, :]
        at = row[:, None] * n_columns + column[None, :]
        passed = tl.where(
            tl.load(output + at, mask=there, other=0.0) > 0, tl.load(grad + at, mask=there, other=0.0), 0.0
        )
        tl.store(through + at, passed, mask=there)
        total += tl.sum(passed.to(total.dtype), axis=0)
    tl.store(parts + part * n_columns + column, total, mask=column < n_columns)


@triton.jit
def slope_product_parts(
    grad,
    weight,
    output,
    through,
    parts,
    n_rows,
    n_columns,
    rows_per_part,
    DEPTH: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """One program likewise, for the gradient grad (N, DEPTH) @ weight (DEPTH, n_columns), which is never stored."""
    part = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < n_columns
    depth = tl.arange(0, WIDTH)
    known = (depth < DEPTH)[:, None] & inside[None, :]
    pull = tl.load(weight + depth[:, None] * n_columns + column[None, :], mask=known, other=0.0)
    first = part * rows_per_part
    end = tl.minimum(first + rows_per_part, n_rows)
    total = tl.zeros([COLUMNS], parts.dtype.element_ty)
    for start in range(first, end, ROWS):
        row = start + tl.arange(0, ROWS)
        there = (row < end)[:, None] & inside[None, :]
        at = row[:, None] * n_columns + column[None, :]
        positive = tl.load(output + at, mask=there, other=0.0) > 0
        known_row = (row < end)[:, None] & (depth < DEPTH)[None, :]
        slope = tl.load(grad + row[:, None] * DEPTH + depth[None, :], mask=known_row, other=0.0)
        passed = tl.where(positive, tl.dot(slope, pull, input_precision="tf32"), 0.0)
        tl.store(through + at, passed, mask=there)
        total += tl.sum(passed, axis=0)
    tl.store(parts + part * n_columns + column, total, mask=inside)


@triton.jit
def sum_parts(parts, total, n_parts, n_columns, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """One program per COLUMNS columns of parts (P, k): their sums, in the order of the parts."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < n_columns
    tile = tl.zeros([PARTS, COLUMNS], parts.dtype.element_ty)
    for first in range(0, n_parts, PARTS):
        part = (first + tl.arange(0, PARTS)).to(tl.int64)
        there = (part < n_parts)[:, None] & inside[None, :]
        tile += tl.load(parts + part[:, None] * n_columns + column[None, :], mask=there, other=0.0)
    tl.store(total + column, tl.sum(tile, axis=0), mask=inside)


@triton.jit
def adam_step(
    parameter,
    grad,
    mean,
    square,
    powers,
    size,
    LR: tl.constexpr,
    BETA_1: tl.constexpr,
    BETA_2: tl.constexpr,
    EPSILON: tl.constexpr,
    NUMBERS: tl.constexpr,
):
    """One program per NUMBERS numbers of a tensor: its moments, and its step against them."""
    at = tl.program_id(0).to(tl.int64) * NUMBERS + tl.arange(0, NUMBERS)
    there = at < size
    kind = parameter.dtype.element_ty
    rate = (LR / (1.0 - tl.load(powers))).to(kind)
    spread = (1.0 / tl.sqrt(1.0 - tl.load(powers + 1))).to(kind)
    slope = tl.load(grad + at, mask=there, other=0.0)
    m = tl.load(mean + at, mask=there, other=0.0)
    v = tl.load(square + at, mask=there, other=0.0)
    m += (1.0 - BETA_1) * (slope - m)
    v += (1.0 - BETA_2) * (slope * slope - v)
    tl.store(mean + at, m, mask=there)
    tl.store(square + at, v, mask=there)
    step = rate * m / (tl.sqrt(v) * spread + EPSILON)
    tl.store(parameter + at, tl.load(parameter + at, mask=there, other=0.0) - step, mask=there)
