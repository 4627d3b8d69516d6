"""The sum of the parts that the programs of a kernel leave, in one small kernel."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from pamc.ops.kernels import encoder

__all__ = ["sum_parts"]

_PARTS, _COLUMNS = 64, 16


def sum_parts(parts: Tensor) -> Tensor:
    """Return the sum of parts (P, …) over the first dimension, in an order that depends on the shape alone.

    Torch's own sum over few long rows leaves most of a GPU without work.
    """
    total = parts.new_empty(parts.shape[1:])
    with torch.cuda.device_of(parts):  # type: ignore[no-untyped-call]
        encoder.sum_parts[(triton.cdiv(total.numel(), _COLUMNS),)](
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
