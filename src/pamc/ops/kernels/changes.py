"""Device code of :mod:`pamc.ops.triton_changes`."""

import triton
import triton.language as tl


@triton.jit
def count_changes(labels, previous, parts, n_rows, n_tiles, ROWS: tl.constexpr):
    """One program per n_tiles·ROWS rows: how many labels are not the previous ones, which they then become."""
    program = tl.program_id(0).to(tl.int64)
    count = tl.zeros([ROWS], tl.int64)
    for tile in range(n_tiles):
        row = (program * n_tiles + tile) * ROWS + tl.arange(0, ROWS)
        there = row < n_rows
        label = tl.load(labels + row, mask=there, other=0)
        before = tl.load(previous + row, mask=there, other=0)
        tl.store(previous + row, label, mask=there)
        count += (label != before).to(tl.int64)
    tl.store(parts + program, tl.sum(count, axis=0))


@triton.jit
def append_sum(numbers, parts, result, n_numbers, n_parts, NUMBERS: tl.constexpr, PARTS: tl.constexpr):
    """One program: numbers, and behind them the sum of the parts."""
    at = tl.arange(0, NUMBERS)
    number = tl.load(numbers + at, mask=at < n_numbers, other=0.0)
    tl.store(result + at, number.to(result.dtype.element_ty), mask=at < n_numbers)
    part = tl.arange(0, PARTS)
    count = tl.sum(tl.load(parts + part, mask=part < n_parts, other=0), axis=0)
    tl.store(result + n_numbers, count.to(result.dtype.element_ty))
