"""Random masks that are a function of seed, step, row and column: the same on any device and in any batches."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["hidden_values"]

# SplitMix64 (Steele, Lea and Flood 2014): its step, and the multipliers of its mixing, as signed numbers of 64 bits.
_GOLDEN = -7046029254386353131
_FIRST, _SECOND = -4658895280553007687, -7723592293110705685

# Bits of a number that are compared with the share.
_BITS = 24


def hidden_values(step: Tensor, rows: Tensor, n_columns: int, *, share: float, seed: int) -> Tensor:
    """Return (n, n_columns) whether a value is hidden: a share of them, drawn anew for each step.

    O(n·n_columns) time, no random state.

    Parameters
    ----------
    step
        () int64, on the device: 0, 1, 2, …
    rows
        (n,) int64 numbers of the rows.
    share
        Of the values that are hidden.

    Examples
    --------
    >>> hidden = hidden_values(torch.tensor(0), torch.arange(1000), 100, share=0.2, seed=7)
    >>> round(hidden.double().mean().item(), 2)
    0.2
    """
    of_step = _mixed(step * _GOLDEN + seed)
    of_row = _mixed(rows * _GOLDEN + of_step)
    columns = torch.arange(n_columns, device=rows.device)
    number = _mixed(of_row[:, None] + columns * _GOLDEN)
    return _shifted(number, 64 - _BITS) < int(share * 2**_BITS)


def _mixed(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * _FIRST
    x = (x ^ _shifted(x, 27)) * _SECOND
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, by: int) -> Tensor:
    """Return the bits moved to the right, with zeros coming in: torch's own shift repeats the sign."""
    return (x >> by) & ((1 << (64 - by)) - 1)
