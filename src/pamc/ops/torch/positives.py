"""The positive term of the PamC loss from edge lists, in O(E·d) time on CPU and GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pamc.graph.positives import PairShard, PositivePairs
from pamc.ops.group import SINGLE_PROCESS, ProcessGroup, wide_sum
from pamc.ops.torch.rows import csr_view, ordered_sum

# Pairs per block: on a CPU the temporaries of a block fit in the cache; a GPU processes all pairs at once.
_PAIRS_PER_BLOCK = {"cpu": 1 << 20}
_PAIRS_PER_BLOCK_ELSEWHERE = 1 << 28

# Columns from which on products of rows are vectorized.
_LEAST_COLUMNS = 8

# Logarithms of shares are clamped to this value: smaller shares of a sum are lost to rounding, and exp of −∞ or of
# values that underflow is many times slower.
_LEAST_LOG_SHARE = -80.0


def positive_log_mass(
    unit: Tensor, pairs: PositivePairs | PairShard, *, tau: float, self_edges: str, group: ProcessGroup = SINGLE_PROCESS
) -> tuple[Tensor, Tensor]:
    r"""Return the log of the inner sum of Eq 3 for each node, and the alignment of the positives.

    .. math:: L_i = \log\sum_{j \ne i}\gamma_{ij}\exp(\tau\,u_i \cdot u_j)

    This follows the paper; with ``self_edges="keep"`` the sum also has the term γ_ii·e⁰, as in the released program. L
    is differentiable in `unit`; γ is constant. O(E·d) time; O(E) memory, of which one number per pair is saved for the
    backward pass.

    In a process group, each process has some of the rows and their pairs. The rows and L of all processes are
    gathered, because row i contributes to L_j of its neighbors j; the gradient needs no further communication.

    Parameters
    ----------
    unit
        (N, d) rows of length 1 or 0, or those of this process.
    pairs
        Weights γ of these rows, on the device and with the floating-point dtype of `unit`.
    group
        Processes that share the rows.

    Returns
    -------
    log_mass
        (N,) L of all rows, −∞ (with gradient 0) for a node without positives of nonzero weight.
    alignment
        () Mean of ‖u_i − u_j‖² = 2 − 2·u_i·u_j over the pairs i ≠ j, weighted by γ; 0 without pairs. It has no
        gradient.

    Examples
    --------
    >>> pairs = PositivePairs.from_edges(torch.tensor([[0], [1]]), n_nodes=2)
    >>> positive_log_mass(torch.eye(2), pairs, tau=1.0, self_edges="drop")
    (tensor([0., -inf]), tensor(2.))
    """
    result: tuple[Tensor, Tensor] = _PositiveLogMass.apply(  # type: ignore[no-untyped-call]
        unit, pairs, tau, self_edges == "keep", group
    )
    return result


def _log_mass_of_rows(
    rows: Tensor, unit: Tensor, pairs: PositivePairs | PairShard, *, tau: float, keep_self: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the cosines, log masses and sums of the rows of the pairs: all rows, or those of one process.

    `rows` (n, d) are the unit rows of the pairs, contiguous, and `unit` (N, d) those of all processes. The results are
    (E,) u_i · u_j of each pair; (n,) L of :func:`positive_log_mass`, for even pairs without the common weight of the
    row; and (2,) Σγ_ij and Σγ_ij·u_i·u_j over these rows, i ≠ j. O(E·d) time, O(E) memory.
    """
    cosine = _pair_cosines(rows, unit, pairs)
    log_mass = rows.new_empty(len(rows))
    sums = rows.new_zeros(2)
    row_weight = pairs.log_row_weight
    log_self = pairs.log_self_weight if row_weight is None else pairs.log_self_weight - row_weight
    for block in _row_blocks(pairs):
        block_cosine = cosine[block.entries]
        log_weight = pairs.log_weight[block.entries]
        score = (block_cosine * tau).add_(log_weight)
        top = block.reduce(score, "max")
        if keep_self:
            top = torch.maximum(top, log_self[block.rows])
        is_empty = top == -math.inf
        top = torch.where(is_empty, 0.0, top)
        mass = block.reduce(_exp_(score.sub_(top.index_select(0, block.row_of_entry()))), "sum")
        if keep_self:
            mass += (log_self[block.rows] - top).exp()
        log_mass[block.rows] = torch.where(is_empty, -math.inf, top + mass.log())
        if row_weight is None:
            weight = torch.exp(log_weight, out=score)
        else:
            weight = torch.index_select(row_weight[block.rows].exp(), 0, block.row_of_entry(), out=score)
        sums[0] += ordered_sum(weight)
        sums[1] += ordered_sum(weight.mul_(block_cosine))
    return cosine, log_mass, sums


def _log_mass_gradient(
    unit: Tensor, pairs: PositivePairs | PairShard, cosine: Tensor, log_mass: Tensor, grad: Tensor, *, tau: float
) -> Tensor:
    """Return the (n, d) gradient in the rows of the pairs, given all unit rows (N, d) and the pairs' cosines (E,).

    L and its gradient, (N,), are those of all rows, because row i contributes to L_j of its neighbors j. O(E·d) time,
    O(E) memory.
    """
    first = pairs.first_row
    # With +∞, a node without positives contributes nothing, and −∞ − (−∞) never occurs.
    log_mass = torch.where(log_mass == -math.inf, math.inf, log_mass)
    gradient = unit.new_empty(len(pairs.indptr) - 1, unit.shape[1])
    for block in _row_blocks(pairs):
        rows, columns = block.row_of_entry(), pairs.indices[block.entries].long()
        block_rows = slice(first + block.rows.start, first + block.rows.stop)
        score = cosine[block.entries] * tau
        pair_grad = score + pairs.log_weight[block.entries]
        _exp_(pair_grad.sub_(log_mass[block_rows].index_select(0, rows))).mul_(grad[block_rows].index_select(0, rows))
        pair_grad_t = score.add_(pairs.log_weight_t[block.entries])
        _exp_(pair_grad_t.sub_(log_mass.index_select(0, columns))).mul_(grad.index_select(0, columns))
        gradient[block.rows] = _block_matrix(pairs, block, pair_grad.add_(pair_grad_t).mul_(tau)) @ unit
    return gradient


class _PositiveLogMass(torch.autograd.Function):
    """Computes cosines of the pairs and a row-wise logsumexp; the backward pass reads γ_ij and γ_ji together.

    With L_i of :func:`positive_log_mass`, ∂L_i/∂u_i = τ·Σ_j w_ij·u_j and ∂L_i/∂u_j = τ·w_ij·u_i, where
    w_ij = exp(τ·u_i·u_j + log γ_ij − L_i). The pattern is symmetric, so the gradient of row i depends only on the
    entries of row i: Σ_j τ·(g_i·w_ij + g_j·w_ji)·u_j, which is one sparse product.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, pairs: PositivePairs | PairShard, tau: float, keep_self: bool, group: ProcessGroup
    ) -> tuple[Tensor, Tensor]:
        rows = rows.contiguous()
        unit = group.gather_rows(rows, pairs.n_nodes)
        cosine, log_mass, sums = _log_mass_of_rows(rows, unit, pairs, tau=tau, keep_self=keep_self)
        log_mass = group.gather_rows(log_mass, pairs.n_nodes)
        ctx.save_for_backward(unit, cosine, log_mass)
        if pairs.log_row_weight is not None:
            # A common factor of a row changes L, but no gradient.
            log_mass = log_mass + pairs.log_row_weight
        ctx.pairs, ctx.tau = pairs, tau
        total, agreement = wide_sum(sums, group)
        alignment = torch.where(total > 0, 2 - 2 * agreement / total, 0.0)
        ctx.mark_non_differentiable(alignment)
        return log_mass, alignment

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None, None, None]:
        unit, cosine, log_mass = ctx.saved_tensors
        return _log_mass_gradient(unit, ctx.pairs, cosine, log_mass, grad, tau=ctx.tau), None, None, None, None


class _RowBlock(NamedTuple):
    """Consecutive rows of the pairs: the rows, their entries, and the offsets of the rows among these entries."""

    rows: slice
    entries: slice
    indptr: Tensor

    def row_of_entry(self) -> Tensor:
        """Return the row of each entry, relative to the first row of the block."""
        n_entries = self.entries.stop - self.entries.start
        return torch.repeat_interleave(self.indptr.diff(), output_size=n_entries)

    def reduce(self, values: Tensor, how: str) -> Tensor:
        """Return the sum or the max of the entries of each row, 0 or −∞ for a row without entries."""
        return torch.segment_reduce(values, how, offsets=self.indptr, axis=0, unsafe=True)


def _row_blocks(pairs: PositivePairs | PairShard) -> Iterator[_RowBlock]:
    """Yield consecutive blocks of rows with about the same number of pairs."""
    size = _PAIRS_PER_BLOCK.get(pairs.indptr.device.type, _PAIRS_PER_BLOCK_ELSEWHERE)
    cuts = {0: 0, len(pairs.indptr) - 1: pairs.n_pairs}
    if pairs.n_pairs > size:
        boundaries = torch.arange(size, pairs.n_pairs, size, device=pairs.indptr.device)
        rows = torch.searchsorted(pairs.indptr, boundaries)
        cuts.update(zip(rows.tolist(), pairs.indptr[rows].tolist(), strict=True))
    for (row, entry), (next_row, next_entry) in pairwise(sorted(cuts.items())):
        yield _RowBlock(slice(row, next_row), slice(entry, next_entry), pairs.indptr[row : next_row + 1] - entry)


def _block_matrix(pairs: PositivePairs | PairShard, block: _RowBlock, values: Tensor) -> Tensor:
    """Return an (n, N) CSR tensor with the given values at the pairs of a block of n rows."""
    indices = pairs.indices[block.entries].long()
    return csr_view(block.indptr, indices, values, (len(block.indptr) - 1, pairs.n_nodes))


def _pair_cosines(rows: Tensor, unit: Tensor, pairs: PositivePairs | PairShard) -> Tensor:
    """Return (E,) u_i · u_j of each pair."""
    cosine = unit.new_zeros(pairs.n_pairs)
    # With fewer columns, the sampled product of a CPU takes ten times as long as with columns of zeros.
    n_missing = max(0, _LEAST_COLUMNS - unit.shape[1])
    rows, unit = (torch.nn.functional.pad(each, (0, n_missing)) for each in (rows, unit))
    for block in _row_blocks(pairs):
        matrix = _block_matrix(pairs, block, cosine[block.entries])
        # Computed in place: otherwise the product would copy the indices.
        torch.sparse.sampled_addmm(matrix, rows[block.rows], unit.T, beta=0.0, out=matrix)
    return cosine


def _exp_(log_share: Tensor) -> Tensor:
    """Compute exp in place for logarithms of shares, which are at most 0 up to rounding."""
    return log_share.clamp_(min=_LEAST_LOG_SHARE).exp_()
