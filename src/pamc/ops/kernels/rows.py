"""Storage of unit rows in the kernels: `unit` (N, STRIDE), of which a program reads WIDTH values per row.

Memory is read in sectors of 32 bytes, and rows are gathered at random. Ten float32 values take two sectors; PACKED rows
take one. Values of a unit row are at most 1, so fixed point with a sign and 24 fractional bits has the absolute
precision of float32. A 32-bit word holds one value in its upper 25 bits; the remaining 7 bits of four consecutive words
hold a fifth value. A row has STRIDE words and WIDTH = 2·STRIDE slots: the even slots hold the first value of each word,
the first odd slot of every four words holds the fifth value, and the other odd slots are empty.

Rows that are not packed are stored as values padded to STRIDE, and WIDTH is the next power of two. DIMS, STRIDE, WIDTH,
PACKED and ACCUMULATOR are the fields of SHAPE, a :class:`~pamc.ops.triton.rows.Shape`.
"""

import triton
import triton.language as tl

_ONE = tl.constexpr(16777215.0)

# From this value on, every float32 is an integer.
_WHOLE = tl.constexpr(8388608.0)


@triton.jit
def dims_of_slots(SHAPE: tl.constexpr):
    """Return the dimension of each of the WIDTH slots of a row, and the mask of slots that have a dimension."""
    slot = tl.arange(0, SHAPE.width)
    if SHAPE.packed:
        is_even = slot % 2 == 0
        dim = tl.where(is_even, slot // 2, SHAPE.stride + slot // 8)
        valid = (is_even | (slot % 8 == 1)) & (dim < SHAPE.dims)
    else:
        dim = slot
        valid = slot < SHAPE.dims
    return dim, valid


@triton.jit
def _fixed(number):
    """Convert values of a unit row to 25-bit fixed point."""
    scaled = tl.minimum(tl.maximum(number.to(tl.float32) * _ONE, -_ONE), _ONE)
    return tl.where(tl.abs(scaled) < _WHOLE, tl.floor(scaled + 0.5), scaled).to(tl.int32)


@triton.jit
def packed_word(number, fifth, word):
    """Return words that each hold their own value and 7 bits of the fifth value of their group of four."""
    return (_fixed(number) << 7) | (((_fixed(fifth) << 3) >> (7 * (word % 4))) & 127)


@triton.jit
def _unpacked(word, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STRIDE: tl.constexpr):
    """Return the values (ROWS, COLUMNS, 2·STRIDE) of words (ROWS, COLUMNS, STRIDE)."""
    number = tl.arange(0, STRIDE) % 4
    part = (word & 127) << (7 * number)[None, None, :]
    fifth = tl.sum(tl.reshape(part, [ROWS, COLUMNS, STRIDE // 4, 4]), axis=3)
    # The sign is the highest of 28 bits.
    fifth = tl.broadcast_to(((fifth << 4) >> 7)[:, :, :, None], [ROWS, COLUMNS, STRIDE // 4, 4])
    fifth = tl.where((number == 0)[None, None, :], tl.reshape(fifth, [ROWS, COLUMNS, STRIDE]), 0)
    both = tl.join((word >> 7).to(tl.float32), fifth.to(tl.float32))
    return tl.reshape(both, [ROWS, COLUMNS, 2 * STRIDE]) * (1.0 / _ONE)


@triton.jit
def unit_rows(unit, row, valid, ROWS: tl.constexpr, COLUMNS: tl.constexpr, SHAPE: tl.constexpr):
    """Return the slots (ROWS, COLUMNS, WIDTH) of rows (ROWS, COLUMNS), 0 for masked rows.

    Unit rows are read repeatedly and stay in the cache; values that are read once are evicted first.
    """
    place = unit + row[:, :, None] * SHAPE.stride
    if SHAPE.packed:
        place += tl.arange(0, SHAPE.stride)
        word = tl.load(place, mask=valid[:, :, None], other=0, eviction_policy="evict_last")
        slots = _unpacked(word, ROWS, COLUMNS, SHAPE.stride)
    else:
        slot = tl.arange(0, SHAPE.width)
        inside = valid[:, :, None] & (slot < SHAPE.dims)
        slots = tl.load(place + slot, mask=inside, other=0.0, eviction_policy="evict_last").to(SHAPE.accumulator)
    return slots


@triton.jit
def own_rows(unit, inverse, row, valid, ROWS: tl.constexpr, SHAPE: tl.constexpr):
    """Return the slots (ROWS, WIDTH) of the program's own rows (ROWS,).

    Fixed point cannot represent NaN: a row with NaN is marked by a NaN in its scale factor, `inverse`.
    """
    slots = unit_rows(unit, row[:, None], valid[:, None], ROWS, 1, SHAPE)
    WIDTH: tl.constexpr = SHAPE.width
    values = tl.reshape(slots, [ROWS, WIDTH])
    if SHAPE.packed:
        values += (tl.load(inverse + row, mask=valid, other=0.0) * 0.0)[:, None]
    return values


@triton.jit
def scale_rows(z, unit, inverse, n_rows, ROWS: tl.constexpr, SHAPE: tl.constexpr):
    """Scale ROWS rows of z (N, DIMS) to length 1 per program; zero rows stay zero."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    valid = row < n_rows
    dim = tl.arange(0, SHAPE.width)
    place = z + row[:, None] * SHAPE.dims
    values = tl.load(place + dim, mask=valid[:, None] & (dim < SHAPE.dims), other=0.0).to(SHAPE.accumulator)
    squared = tl.sum(values * values, axis=1)
    nothing = squared == 0
    scale = tl.where(nothing, 0.0, 1.0 / tl.sqrt(tl.where(nothing, 1.0, squared)))
    # NaN stays NaN.
    tl.store(inverse + row, scale + tl.sum(values * scale[:, None], axis=1) * 0.0, mask=valid)
    if SHAPE.packed:
        word = tl.arange(0, SHAPE.stride)
        number = tl.load(place + word, mask=valid[:, None] & (word < SHAPE.dims), other=0.0)
        dim = SHAPE.stride + word // 4
        fifth = tl.load(place + dim, mask=valid[:, None] & (dim < SHAPE.dims), other=0.0)
        words = packed_word(number * scale[:, None], fifth * scale[:, None], word)
        tl.store(unit + row[:, None] * SHAPE.stride + word, words, mask=valid[:, None])
    else:
        tl.store(
            unit + row[:, None] * SHAPE.stride + dim,
            values * scale[:, None],
            mask=valid[:, None] & (dim < SHAPE.stride),
        )


@triton.jit
def sum_parts(parts, total, n_parts, n_columns, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """Sum COLUMNS columns of parts (P, k) per program, in the order of the parts."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < n_columns
    tile = tl.zeros([PARTS, COLUMNS], parts.dtype.element_ty)
    for first in range(0, n_parts, PARTS):
        part = (first + tl.arange(0, PARTS)).to(tl.int64)
        valid = (part < n_parts)[:, None] & inside[None, :]
        tile += tl.load(parts + part[:, None] * n_columns + column[None, :], mask=valid, other=0.0)
    tl.store(total + column, tl.sum(tile, axis=0), mask=inside)
