"""Groups of processes that share the rows of a loss; a single process is the special case of size 1."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from pamc.errors import ConfigError


class ProcessGroup(Protocol):
    """Interface of the processes that share the rows."""

    @property
    def rank(self) -> int:
        """Rank of this process, from 0."""

    @property
    def size(self) -> int:
        """Number of processes."""

    def gather_rows(self, rows: Tensor, n_rows: int) -> Tensor:
        """Return the (n_rows, …) rows of all processes, in the order of their ranks, given those of this process."""

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum of the tensors of all processes, bitwise equal on every process."""


class SingleProcess:
    """A group of one process, in which nothing is communicated."""

    rank, size = 0, 1

    def gather_rows(self, rows: Tensor, n_rows: int) -> Tensor:
        """Return the rows unchanged."""
        return rows

    def sum(self, values: Tensor) -> Tensor:
        """Return the values unchanged."""
        return values


SINGLE_PROCESS = SingleProcess()


def rows_per_rank(n_nodes: int, size: int) -> int:
    """Return the number of rows of every process except the last.

    The last one has the remainder, so that gathered blocks of equal size are the rows in order, without copying.

    Examples
    --------
    >>> rows_per_rank(401, 3)
    134
    """
    n_rows = -(-n_nodes // size)
    if n_rows * (size - 1) >= n_nodes:
        raise ConfigError(f"{n_nodes} rows are too few for {size} processes: start fewer of them (--nproc-per-node)")
    return n_rows


def row_range(n_nodes: int, rank: int, size: int) -> slice:
    """Return the range of rows of one process.

    Examples
    --------
    >>> [row_range(401, rank, 3) for rank in range(3)]
    [slice(0, 134, None), slice(134, 268, None), slice(268, 401, None)]
    """
    n_rows = rows_per_rank(n_nodes, size)
    return slice(rank * n_rows, min((rank + 1) * n_rows, n_nodes))


def count_rows(n_rows: int, group: ProcessGroup) -> int:
    """Return the total number of rows of all processes, of which this one has `n_rows`."""
    return int(group.sum(torch.tensor([n_rows])))


def wide_sum(values: Tensor, group: ProcessGroup) -> Tensor:
    """Return the sum over all processes of a few values, accumulated in float64, in the dtype of the values."""
    return values if group.size == 1 else group.sum(values.double()).to(values.dtype)


def sum_over(values: Tensor, group: ProcessGroup) -> Tensor:
    """Return the differentiable :func:`wide_sum`.

    Every process computes the same loss of the sum, so the gradient of its summand is the gradient of the sum.
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
