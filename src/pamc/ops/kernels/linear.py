"""Device code of :mod:`pamc.ops.triton.linear`."""

import triton
import triton.language as tl


@triton.jit
def relu_backward_parts(
    grad,
    output,
    through,
    parts,
    n_rows,
    rows_per_part,
    N_COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Mask the gradient where the output is 0, and sum its columns, one program per part of the rows and column block.

    N_COLUMNS is a constant because its divisibility determines how many elements a thread can move at a time.
    """
    part = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    first = part * rows_per_part
    end = tl.minimum(first + rows_per_part, n_rows)
    total = tl.zeros([COLUMNS], parts.dtype.element_ty)
    for start in range(first, end, ROWS):
        row = start + tl.arange(0, ROWS)
        valid = (row < end)[:, None] & (column < N_COLUMNS)[None, :]
        at = row[:, None] * N_COLUMNS + column[None, :]
        passed = tl.where(
            tl.load(output + at, mask=valid, other=0.0) > 0, tl.load(grad + at, mask=valid, other=0.0), 0.0
        )
        tl.store(through + at, passed, mask=valid)
        total += tl.sum(passed.to(total.dtype), axis=0)
    tl.store(parts + part * N_COLUMNS + column, total, mask=column < N_COLUMNS)


@triton.jit
def relu_linear_backward_parts(
    grad,
    weight,
    output,
    through,
    parts,
    n_rows,
    rows_per_part,
    grad_stride,
    part_stride,
    N_COLUMNS: tl.constexpr,
    N_IN: tl.constexpr,
    DEPTH: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Mask the gradient grad (N, DEPTH) @ weight (DEPTH, N_IN) where the output is 0, and sum its columns.

    The unmasked product is never stored. The last N_COLUMNS − N_IN columns of the output are padding. A row of `parts`
    is the concatenation of the column sums (N_COLUMNS), gradᵀ @ output (DEPTH, N_IN), and the column sums of grad
    (DEPTH).
    """
    part = tl.program_id(0).to(tl.int64)
    stride = tl.zeros([], tl.int64) + grad_stride
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < N_COLUMNS
    depth = tl.arange(0, WIDTH)
    known = (depth < DEPTH)[:, None] & (column < N_IN)[None, :]
    entry = depth[:, None] * N_IN + column[None, :]
    weight_tile = tl.load(weight + entry, mask=known, other=0.0)
    first = part * rows_per_part
    end = tl.minimum(first + rows_per_part, n_rows)
    total = tl.zeros([COLUMNS], parts.dtype.element_ty)
    product = tl.zeros([WIDTH, COLUMNS], parts.dtype.element_ty)
    sums = tl.zeros([WIDTH], parts.dtype.element_ty)
    for start in range(first, end, ROWS):
        row = start + tl.arange(0, ROWS)
        valid = (row < end)[:, None] & inside[None, :]
        at = row[:, None] * N_COLUMNS + column[None, :]
        value = tl.load(output + at, mask=valid, other=0.0)
        known_row = (row < end)[:, None] & (depth < DEPTH)[None, :]
        grad_tile = tl.load(grad + row[:, None] * stride + depth[None, :], mask=known_row, other=0.0)
        passed = tl.where(value > 0, tl.dot(grad_tile, weight_tile, input_precision="tf32"), 0.0)
        tl.store(through + at, passed, mask=valid)
        total += tl.sum(passed, axis=0)
        product += tl.dot(tl.trans(grad_tile), value, input_precision="tf32")
        sums += tl.sum(grad_tile.to(sums.dtype), axis=0)
    place = parts + part * part_stride
    tl.store(place + column, total, mask=inside)
    tl.store(place + N_COLUMNS + entry, product, mask=known)
    if tl.program_id(1) == 0:
        tl.store(place + N_COLUMNS + DEPTH * N_IN + depth, sums, mask=depth < DEPTH)


@triton.jit
def narrow_product(
    x,
    weight,
    bias,
    y,
    n_rows,
    N_COLUMNS: tl.constexpr,
    N_IN: tl.constexpr,
    DEPTH: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute x (N, N_COLUMNS) @ weight (DEPTH, N_IN)ᵀ + bias, one program per ROWS rows, in blocks of COLUMNS."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    valid = row < n_rows
    depth = tl.arange(0, WIDTH)
    inside = depth < DEPTH
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for first in range(0, N_IN, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        known = column < N_IN
        value = tl.load(x + row[:, None] * N_COLUMNS + column[None, :], mask=valid[:, None] & known[None, :], other=0.0)
        weight_tile = tl.load(
            weight + depth[None, :] * N_IN + column[:, None], mask=inside[None, :] & known[:, None], other=0.0
        )
        total += tl.dot(value, weight_tile, input_precision="tf32")
    total += tl.load(bias + depth, mask=inside, other=0.0)[None, :]
    tl.store(y + row[:, None] * DEPTH + depth[None, :], total, mask=valid[:, None] & inside[None, :])


@triton.jit
def transpose_tiles(x, y, n_rows, n_columns, SIZE: tl.constexpr):
    """Copy one SIZE × SIZE tile of x (n, m), transposed, to y (m, n) per program."""
    row = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    column = tl.program_id(1).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    valid = (row < n_rows)[:, None] & (column < n_columns)[None, :]
    tile = tl.load(x + row[:, None] * n_columns + column[None, :], mask=valid, other=0.0)
    turned = (column < n_columns)[:, None] & (row < n_rows)[None, :]
    tl.store(y + column[:, None] * n_rows + row[None, :], tl.trans(tile), mask=turned)
