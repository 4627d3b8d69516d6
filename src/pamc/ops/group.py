"""The processes that share the rows of a loss; one process alone is the special case of size 1."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from pamc.errors import ConfigError

__all__ = [
    "SINGLE_PROCESS",
    "ProcessGroup",
    "SingleProcess",
    "count_rows",
    "row_range",
    "rows_per_rank",
    "sum_over",
    "wide_sum",
]


class ProcessGroup(Protocol):
    """What training asks of the processes that share the rows."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""

    @property
    def size(self) -> int:
        """The number of processes."""

    def gather_rows(self, own: Tensor, n_rows: int) -> Tensor:
        """Return (n_rows, …): the rows of all processes in order, of which `own` are this one's."""

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum of the tensors of all processes, the same bits everywhere."""


class SingleProcess:
    """One process: nothing to gather, nothing to add."""

    rank, size = 0, 1

    def gather_rows(self, own: Tensor, n_rows: int) -> Tensor:
        """Return the rows."""
        return own

    def sum(self, values: Tensor) -> Tensor:
        """Return the values."""
        return values


SINGLE_PROCESS = SingleProcess()


def rows_per_rank(n_nodes: int, size: int) -> int:
    """Return how many rows every process but the last has.

    The last one has what is left, so that gathered blocks of equal size are the rows in order, with nothing to move.

    Examples
    --------
    >>> rows_per_rank(401, 3)
    134
    """
    each = -(-n_nodes // size)
    if each * (size - 1) >= n_nodes:
        raise ConfigError(f"{n_nodes} rows are too few for {size} processes: start fewer of them (--nproc-per-node)")
    return each


def row_range(n_nodes: int, rank: int, size: int) -> slice:
    """Return the rows of one process.

    Examples
    --------
    >>> [row_range(401, rank, 3) for rank in range(3)]
    [slice(0, 134, None), slice(134, 268, None), slice(268, 401, None)]
    """
    each = rows_per_rank(n_nodes, size)
    return slice(rank * each, min((rank + 1) * each, n_nodes))


def count_rows(n_rows: int, group: ProcessGroup) -> int:
    """Return the number of rows that all processes have together, of which this one has `n_rows`."""
    return int(group.sum(torch.tensor([n_rows])))


def wide_sum(values: Tensor, group: ProcessGroup) -> Tensor:
    """Return the sum over all processes of a few numbers, added in float64, in their own type."""
    return values if group.size == 1 else group.sum(values.double()).to(values.dtype)


def sum_over(values: Tensor, group: ProcessGroup) -> Tensor:
    """Return :func:`wide_sum` with a gradient.

    Every process computes the same loss of the sum, so the gradient of its own summand is the gradient of the sum.
    """
    if group.size == 1:
        return values
    result: Tensor = _SumOver.apply(values, group)  # type: ignore[no-untyped-call]
    return result


class _SumOver(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, group: ProcessGroup) -> Tensor:
        return wide_sum(values, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None
