"""The sum of the parts that the programs of a kernel leave, in one small kernel."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from pamc.ops.kernels import rows as kernels

__all__ = ["accumulator_of", "language_type", "sum_parts"]

_PARTS, _COLUMNS = 64, 16


def sum_parts(parts: Tensor) -> Tensor:
    """Return the sum of parts (P, …) over the first dimension, in an order that depends on the shape alone.

    Torch's own sum over few long rows leaves most of a GPU without work.
    """
    total = parts.new_empty(parts.shape[1:])
    with torch.cuda.device_of(parts):  # type: ignore[no-untyped-call]
        kernels.sum_parts[(triton.cdiv(total.numel(), _COLUMNS),)](
            parts,
            total,
            len(parts),
            total.numel(),
            PARTS=_PARTS,
            COLUMNS=_COLUMNS,
            num_warps=4,
            enable_fp_fusion=True,
        )
    return total


def accumulator_of(x: Tensor) -> torch.dtype:
    """Return the type that numbers like those of x are summed in."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def language_type(x: Tensor) -> Any:
    """Return :func:`accumulator_of` as kernels name it."""
    return tl.float64 if x.dtype == torch.float64 else tl.float32
