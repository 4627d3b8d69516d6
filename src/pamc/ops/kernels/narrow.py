"""Device code of :mod:`pamc.ops.triton_narrow`."""

import triton
import triton.language as tl


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
    """One program per ROWS rows: x (N, N_COLUMNS) @ weight (DEPTH, N_IN)ᵀ + bias, COLUMNS columns at a time."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = row < n_rows
    depth = tl.arange(0, WIDTH)
    inside = depth < DEPTH
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for first in range(0, N_IN, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        known = column < N_IN
        value = tl.load(x + row[:, None] * N_COLUMNS + column[None, :], mask=there[:, None] & known[None, :], other=0.0)
        pull = tl.load(
            weight + depth[None, :] * N_IN + column[:, None], mask=inside[None, :] & known[:, None], other=0.0
        )
        total += tl.dot(value, pull, input_precision="tf32")
    total += tl.load(bias + depth, mask=inside, other=0.0)[None, :]
    tl.store(y + row[:, None] * DEPTH + depth[None, :], total, mask=there[:, None] & inside[None, :])


@triton.jit
def transpose_tiles(x, y, n_rows, n_columns, SIZE: tl.constexpr):
    """One program per SIZE × SIZE tile of x (n, m): its place in y (m, n)."""
    row = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    column = tl.program_id(1).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    there = (row < n_rows)[:, None] & (column < n_columns)[None, :]
    tile = tl.load(x + row[:, None] * n_columns + column[None, :], mask=there, other=0.0)
    turned = (column < n_columns)[:, None] & (row < n_rows)[None, :]
    tl.store(y + column[:, None] * n_rows + row[None, :], tl.trans(tile), mask=turned)
