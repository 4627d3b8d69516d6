"""Unit rows in the format of the kernels, and the addition of partial sums."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from pamc.ops.kernels import rows as kernels

_ALIGNMENT_BYTES = 16

# Elements of a tile of rows that one program scales.
_TILE = 1024

_PARTS, _COLUMNS = 64, 16


class Shape(NamedTuple):
    """The memory layout of unit rows, a compile-time constant of the kernels that read them.

    Parameters
    ----------
    dims
        Number of dimensions, d.
    stride
        Number of values (words if rows are packed) between the starts of consecutive rows.
    width
        Number of values of a row that a program holds, a power of two.
    packed
        Whether rows are in fixed point, as :mod:`pamc.ops.kernels.rows` describes.
    accumulator
        Triton dtype of sums.
    """

    dims: int
    stride: int
    width: int
    packed: bool
    accumulator: Any

    @classmethod
    def of(cls, z: Tensor) -> Shape:
        """Return the layout of the unit rows of z (N, d)."""
        dims, alignment = z.shape[1], _ALIGNMENT_BYTES // z.element_size()
        # Four words hold five values.
        words = 4 * triton.next_power_of_2(-(-dims // 5))
        if z.dtype == torch.float32 and words < dims:
            return cls(dims, words, 2 * words, True, language_type(z))
        stride = -(-dims // alignment) * alignment
        # The width includes the padding, which is written with the row.
        return cls(dims, stride, triton.next_power_of_2(stride), False, language_type(z))

    def empty(self, z: Tensor) -> Tensor:
        """Return an uninitialized tensor for the unit rows (N, stride) of z."""
        return z.new_empty(len(z), self.stride, dtype=torch.int32 if self.packed else z.dtype)

    def constants(self, **further: Any) -> dict[str, Any]:
        """Return the constants of every kernel that reads such rows, merged with `further` ones."""
        return {"SHAPE": self, "enable_fp_fusion": True, **further}


def unit_rows(z: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    """Return the rows of z scaled to length 1, (N, stride), and their scale factors, (N,). O(N·d) time."""
    unit, inverse = shape.empty(z), z.new_empty(len(z), dtype=accumulator_of(z))
    rows = max(1, _TILE // shape.width)
    kernels.scale_rows[(triton.cdiv(len(z), rows),)](
        z.contiguous(), unit, inverse, len(z), ROWS=rows, **shape.constants()
    )
    return unit, inverse


def share_out(n_rows: int, rows: int, most_parts: int) -> tuple[int, int]:
    """Return the number of programs, at most `most_parts`, and of tiles of `rows` rows that each processes."""
    n_tiles = triton.cdiv(n_rows, rows * most_parts)
    return triton.cdiv(n_rows, rows * n_tiles), n_tiles


def sum_parts(parts: Tensor) -> Tensor:
    """Return the sum of parts (P, …) over the first dimension, in an order that depends on the shape only.

    Torch's sum over few long rows leaves most of a GPU idle.
    """
    total = parts.new_empty(parts.shape[1:])
    with torch.cuda.device_of(parts):  # type: ignore[no-untyped-call]
        kernels.sum_parts[(triton.cdiv(total.numel(), _COLUMNS),)](
            parts, total, len(parts), total.numel(), PARTS=_PARTS, COLUMNS=_COLUMNS, num_warps=4, enable_fp_fusion=True
        )
    return total


def accumulator_of(x: Tensor) -> torch.dtype:
    """Return the dtype in which values like those of x are summed."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def language_type(x: Tensor) -> Any:
    """Return :func:`accumulator_of` as a Triton dtype."""
    return tl.float64 if x.dtype == torch.float64 else tl.float32
