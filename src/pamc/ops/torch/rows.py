"""Rows scaled to length 1, sums and products of rows in a fixed order, and random masks.

On a CPU every result is bitwise equal for any number of threads. Torch and its BLAS split long reductions and tall
matrix products by the number of threads; these functions first split both into blocks of fixed size. On a GPU, and for
work that always runs on one thread, they call torch directly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from pamc.runtime import is_on_one_thread, quiet_libraries

# Number of elements, or rows, that are summed by one thread.
ROWS_PER_BLOCK = 1024

# Minimum number of matrix products in a batch: with fewer products than threads, torch would split single products.
_MIN_BLOCKS = 64

# SplitMix64 (Steele, Lea and Flood 2014): its increment and the multipliers of its mixing, as signed 64-bit integers.
_GOLDEN = -7046029254386353131
_FIRST, _SECOND = -4658895280553007687, -7723592293110705685

# Number of random bits that decide whether a value is masked.
_BITS = 24


def unit_rows(z: Tensor) -> Tensor:
    """Return z (N, d) with rows scaled to length 1. Zero rows stay zero, with zero gradient. O(N·d) time.

    Examples
    --------
    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    squared = z.square().sum(dim=1, keepdim=True)
    # The inner `where` excludes the infinite derivative of √0 from the gradient.
    inverse = 1 / torch.where(squared == 0, 1.0, squared).sqrt()
    return z * torch.where(squared == 0, 0.0, inverse)


def row_product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x @ weight, (N, m), for tall x (N, k) and weight (k, m), bitwise equal for any number of threads.

    Examples
    --------
    >>> row_product(torch.ones(2, 3), torch.eye(3))
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """
    if x.device.type != "cpu" or is_on_one_thread():
        return x @ weight
    blocks = _in_blocks(x)
    return torch.bmm(blocks, weight.expand(len(blocks), -1, -1)).flatten(0, 1)[: len(x)]


def gram(x: Tensor, y: Tensor) -> Tensor:
    """Return xᵀ @ y, (k, m), for tall x (N, k) and y (N, m), bitwise equal for any number of threads."""
    if x.device.type != "cpu" or is_on_one_thread():
        return x.T @ y
    return torch.bmm(_in_blocks(x).transpose(1, 2), _in_blocks(y)).sum(dim=0)


def column_sums(x: Tensor) -> Tensor:
    """Return the column sums (k,) of x (N, k), added in an order that does not depend on the number of threads.

    Examples
    --------
    >>> column_sums(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([4., 6.])
    """
    while x.device.type == "cpu" and len(x) > ROWS_PER_BLOCK and not is_on_one_thread():
        n_in_blocks = len(x) - len(x) % ROWS_PER_BLOCK
        blocks = x[:n_in_blocks].view(-1, ROWS_PER_BLOCK, x.shape[1]).sum(dim=1)
        x = torch.cat([blocks, x[n_in_blocks:].sum(dim=0, keepdim=True)])
    return x.sum(dim=0)


def ordered_sum(x: Tensor) -> Tensor:
    """Return the sum of all elements, added in an order that does not depend on the number of threads.

    Examples
    --------
    >>> ordered_sum(torch.ones(3, 5))
    tensor(15.)
    """
    result: Tensor = _OrderedSum.apply(x)  # type: ignore[no-untyped-call]
    return result


def csr_tensor(matrix: Any, *, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return a copy of a scipy CSR matrix as a torch CSR tensor.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> csr_tensor(sp.eye(2, format="csr"), device=torch.device("cpu"), dtype=torch.float32).to_dense()
    tensor([[1., 0.],
            [0., 1.]])
    """
    indptr, indices = (torch.tensor(index, device=device) for index in (matrix.indptr, matrix.indices))
    return csr_view(indptr, indices, torch.tensor(matrix.data, device=device, dtype=dtype), matrix.shape)


def csr_view(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a CSR tensor that shares memory with its parts, without torch's warning that such tensors are in beta.

    Some versions of torch also warn that they do not check the indices, although the argument disables the check.
    """
    with quiet_libraries:
        return torch.sparse_csr_tensor(indptr, indices, values, size=shape, check_invariants=False)


class _OrderedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape = x.shape
        return column_sums(x.reshape(-1, 1))[0] if x.device.type == "cpu" else x.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.expand(ctx.shape)


def _in_blocks(x: Tensor) -> Tensor:
    """Return x (N, k) as (blocks, rows per block, k), padded with zero rows; the blocks depend on N only."""
    n_rows = min(ROWS_PER_BLOCK, max(1, -(-len(x) // _MIN_BLOCKS)))
    n_blocks = max(_MIN_BLOCKS, -(-len(x) // n_rows))
    return pad(x, (0, 0, 0, n_blocks * n_rows - len(x))).view(n_blocks, n_rows, x.shape[1])


def hidden_values(step: Tensor, rows: Tensor, n_columns: int, *, share: float, seed: int) -> Tensor:
    """Return an (n, n_columns) random mask that is True for a share of the values, different in each step.

    An entry depends on seed, step, row and column only, so it is the same on any device and in any batch.
    O(n·n_columns) time.

    Parameters
    ----------
    step
        () int64 step number 0, 1, 2, … on the device.
    rows
        (n,) int64 row numbers.
    share
        Fraction of the values that are masked.

    Examples
    --------
    >>> hidden = hidden_values(torch.tensor(0), torch.arange(1000), 100, share=0.2, seed=7)
    >>> round(hidden.double().mean().item(), 2)
    0.2
    """
    columns = torch.arange(n_columns, device=rows.device)
    return hidden_entries(step, rows[:, None], columns, share=share, seed=seed)


def uniform_values(step: Tensor, rows: Tensor, n_columns: int, *, seed: int) -> Tensor:
    """Return (n, n_columns) random float32 numbers in [0, 1), different in each step; see :func:`hidden_values`.

    Examples
    --------
    >>> values = uniform_values(torch.tensor(0), torch.arange(1000), 10, seed=7)
    >>> round(values.mean().item(), 1), bool((values < 1).all())
    (0.5, True)
    """
    columns = torch.arange(n_columns, device=rows.device)
    return _shifted(_numbers_of(step, rows[:, None], columns, seed), 64 - _BITS) / 2.0**_BITS


def hidden_entries(step: Tensor, rows: Tensor, columns: Tensor, *, share: float, seed: int) -> Tensor:
    """Return the entries of :func:`hidden_values` at the given rows and columns, which are broadcast together."""
    return _shifted(_numbers_of(step, rows, columns, seed), 64 - _BITS) < int(share * 2**_BITS)


def _numbers_of(step: Tensor, rows: Tensor, columns: Tensor, seed: int) -> Tensor:
    """Return random 64-bit numbers for rows and columns, which are broadcast together."""
    of_step = _mixed(step * _GOLDEN + seed)
    return _mixed(_mixed(rows * _GOLDEN + of_step) + columns * _GOLDEN)


def _mixed(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * _FIRST
    x = (x ^ _shifted(x, 27)) * _SECOND
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, by: int) -> Tensor:
    """Return the logical right shift of x; torch's operator is an arithmetic shift."""
    return (x >> by) & ((1 << (64 - by)) - 1)
