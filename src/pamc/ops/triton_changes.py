"""The number of labels that changed, in two small kernels."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from pamc.ops.kernels import changes

__all__ = ["with_changes"]

_ROWS = 512

# Programs that count for themselves: one more adds them up.
_MOST_PARTS = 1024


def with_changes(numbers: Tensor, labels: Tensor, previous: Tensor) -> Tensor:
    """Return what :func:`pamc.ops.changes.with_changes` does."""
    n_rows = len(labels)
    n_tiles = triton.cdiv(triton.cdiv(n_rows, _ROWS), _MOST_PARTS)
    n_parts = triton.cdiv(n_rows, _ROWS * n_tiles)
    parts = torch.empty(n_parts, dtype=torch.int64, device=labels.device)
    result = torch.empty(len(numbers) + 1, dtype=torch.float64, device=labels.device)
    with torch.cuda.device_of(labels):  # type: ignore[no-untyped-call]
        changes.count_changes[(n_parts,)](
            labels.contiguous(), previous, parts, n_rows, n_tiles, ROWS=_ROWS, num_warps=4
        )
        changes.append_sum[(1,)](
            numbers.contiguous(),
            parts,
            result,
            len(numbers),
            n_parts,
            NUMBERS=triton.next_power_of_2(len(numbers)),
            PARTS=triton.next_power_of_2(n_parts),
            num_warps=1,
        )
    return result
