"""The sums of the PamC loss from edge lists, in O(E·d + N·d) on CPU and GPU.

On a CPU every result is the same bits for any number of threads. Torch and the BLAS behind it split long reductions and
tall matrix products by the number of threads; here both are cut into blocks of fixed size first. On a GPU they are left
to torch. What the functions compute, and its gradient, is compared with :mod:`pamc.ops.reference`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from pamc.graph.positives import PairShard, PositivePairs

__all__ = [
    "RowMass",
    "cluster_sums",
    "column_sums",
    "csr_tensor",
    "gram",
    "log_mass_gradient",
    "log_mass_of_rows",
    "ordered_sum",
    "positive_log_mass",
    "row_product",
    "squared_distances",
    "unit_rows",
]

# Elements, or rows, that are added up by one thread.
_ROWS_PER_BLOCK = 1024

# A batch of fewer matrix products than there are threads would be split inside a product.
_MIN_BLOCKS = 64

# On a CPU the temporaries of a block of pairs stay in the cache; a GPU wants all pairs at once.
_PAIRS_PER_BLOCK = {"cpu": 1 << 20}
_PAIRS_PER_BLOCK_ELSEWHERE = 1 << 28


# A share of e^-80 of a sum is lost in its rounding; exp of -∞ or of what underflows takes many times as long.
_LEAST_LOG_SHARE = -80.0


def unit_rows(z: Tensor) -> Tensor:
    """Return z (N, d) with rows scaled to length 1. Zero rows stay zero, with gradient zero. O(N·d).

    Examples
    --------
    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    squared = z.square().sum(dim=1, keepdim=True)
    # The inner `where` keeps the infinite slope of √0 out of the gradient.
    inverse = 1 / torch.where(squared == 0, 1.0, squared).sqrt()
    return z * torch.where(squared == 0, 0.0, inverse)


def positive_log_mass(unit: Tensor, pairs: PositivePairs, *, tau: float, self_edges: str) -> tuple[Tensor, Tensor]:
    r"""Return the inner sum of Eq 3 for each node, and how far positives are apart.

    .. math:: L_i = \log\sum_{j \ne i}\gamma_{ij}\exp(\tau\,u_i \cdot u_j)

    As in the paper; with ``self_edges="keep"`` the sum has the term γ_ii·e⁰ too, as in the released program. The
    gradient reaches `unit` through L; γ is a constant. O(E·d) time; O(E) memory, one number per pair of which is kept
    for the backward pass.

    Parameters
    ----------
    unit
        (N, d) rows of length 1 or 0.
    pairs
        γ, on the device and with the floating-point type of `unit`.

    Returns
    -------
    log_mass
        (N,) L, −∞ (with gradient 0) for a node that has no positive of weight above 0.
    alignment
        () Mean of ‖u_i − u_j‖² = 2 − 2·u_i·u_j over the pairs i ≠ j, weighted by γ; 0 without pairs. No gradient.

    Examples
    --------
    >>> pairs = PositivePairs.from_edges(torch.tensor([[0], [1]]), n_nodes=2)
    >>> positive_log_mass(torch.eye(2), pairs, tau=1.0, self_edges="drop")
    (tensor([0., -inf]), tensor(2.))
    """
    result: tuple[Tensor, Tensor] = _PositiveLogMass.apply(unit, pairs, tau, self_edges == "keep")  # type: ignore[no-untyped-call]
    return result


def cluster_sums(z: Tensor, assignment: Tensor, n_clusters: int) -> tuple[Tensor, Tensor]:
    """Return the sum of the rows assigned to each cluster, and how much is assigned to it: N times Eq 8.

    Differentiable in z and in a soft assignment. O(N·d) for labels, O(N·C·d) time and O(N·(C + d)) memory for a soft
    assignment. On a GPU the labels' sums repeat bit by bit under ``torch.use_deterministic_algorithms``.

    Parameters
    ----------
    z
        (N, d) rows.
    assignment
        (N,) labels 0 … C−1, or (N, C) soft assignment.
    n_clusters
        C.

    Returns
    -------
    sums
        (C, d).
    mass
        (C,) number of rows, or sum of the assignment. No gradient.

    Examples
    --------
    >>> cluster_sums(torch.eye(2), torch.tensor([1, 1]), 2)
    (tensor([[0., 0.],
            [1., 1.]]), tensor([0., 2.]))
    """
    if assignment.ndim == 2:
        return gram(assignment, z), column_sums(assignment.detach())
    # Sums of sums: rounding grows with the rows of a block and with the blocks, not with N.
    n_blocks = -(-len(z) // _ROWS_PER_BLOCK)
    block = torch.arange(len(z), device=z.device) // _ROWS_PER_BLOCK
    sums = z.new_zeros(n_blocks * n_clusters, z.shape[1]).index_add(0, block * n_clusters + assignment, z)
    counts = torch.zeros(n_clusters, dtype=torch.int64, device=z.device)
    counts = counts.index_add(0, assignment, torch.ones_like(assignment))
    return sums.view(n_blocks, n_clusters, -1).sum(dim=0), counts.to(z.dtype)


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return (N, C) ‖x_i − y_u‖² for x (N, d) and y (C, d), of Eq 9. O(N·C·d) time, O(N·(C + d)) memory.

    Computed as ‖x‖² + ‖y‖² − 2·x·y after both are moved by the mean of y, so that a common offset costs no precision.

    Examples
    --------
    >>> squared_distances(torch.zeros(1, 2), torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[25.,  0.]])
    """
    result: Tensor = _SquaredDistances.apply(x, y)  # type: ignore[no-untyped-call]
    return result


def row_product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x @ weight, (N, m), for tall x (N, k) and weight (k, m), the same bits for any number of threads.

    Examples
    --------
    >>> row_product(torch.ones(2, 3), torch.eye(3))
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """
    if x.device.type != "cpu":
        return x @ weight
    blocks = _in_blocks(x)
    return torch.bmm(blocks, weight.expand(len(blocks), -1, -1)).flatten(0, 1)[: len(x)]


def ordered_sum(x: Tensor) -> Tensor:
    """Return the sum of all elements, added in an order that does not depend on the number of threads.

    Examples
    --------
    >>> ordered_sum(torch.ones(3, 5))
    tensor(15.)
    """
    result: Tensor = _OrderedSum.apply(x)  # type: ignore[no-untyped-call]
    return result


def column_sums(x: Tensor) -> Tensor:
    """Return (k,) the sums of the columns of x (N, k), added in an order that does not depend on the number of threads.

    Examples
    --------
    >>> column_sums(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([4., 6.])
    """
    while x.device.type == "cpu" and len(x) > _ROWS_PER_BLOCK:
        whole = len(x) - len(x) % _ROWS_PER_BLOCK
        blocks = x[:whole].view(-1, _ROWS_PER_BLOCK, x.shape[1]).sum(dim=1)
        x = torch.cat([blocks, x[whole:].sum(dim=0, keepdim=True)])
    return x.sum(dim=0)


def csr_tensor(matrix: Any, *, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return a scipy CSR matrix as a torch CSR tensor of its own memory.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> csr_tensor(sp.eye(2, format="csr"), device=torch.device("cpu"), dtype=torch.float32).to_dense()
    tensor([[1., 0.],
            [0., 1.]])
    """
    indptr, indices = (torch.tensor(index, device=device) for index in (matrix.indptr, matrix.indices))
    return _csr(indptr, indices, torch.tensor(matrix.data, device=device, dtype=dtype), matrix.shape)


class _RowBlock(NamedTuple):
    """Some consecutive rows of the pairs: which rows, which entries, where each row begins among these entries."""

    rows: slice
    entries: slice
    indptr: Tensor

    def row_of_entry(self) -> Tensor:
        """Return, for each entry of the block, its row, counted from the first of the block."""
        n_entries = self.entries.stop - self.entries.start
        return torch.repeat_interleave(self.indptr.diff(), output_size=n_entries)

    def reduce(self, values: Tensor, how: str) -> Tensor:
        """Return the sum or the max of the entries of each row: 0 or −∞ for a row without entries."""
        return torch.segment_reduce(values, how, offsets=self.indptr, axis=0, unsafe=True)


class _PositiveLogMass(torch.autograd.Function):
    """Cosines of the pairs, then a logsumexp per row; the backward pass takes γ_ij and γ_ji side by side.

    With L_i of :func:`positive_log_mass`, ∂L_i/∂u_i = τ·Σ_j w_ij·u_j and ∂L_i/∂u_j = τ·w_ij·u_i, where
    w_ij = exp(τ·u_i·u_j + log γ_ij − L_i). The pattern is symmetric, so the gradient of row i needs its own entries
    only: Σ_j τ·(g_i·w_ij + g_j·w_ji)·u_j, one sparse product.
    """

    @staticmethod
    def forward(ctx: Any, unit: Tensor, pairs: PositivePairs, tau: float, keep_self: bool) -> tuple[Tensor, Tensor]:
        unit = unit.contiguous()
        found = log_mass_of_rows(unit, unit, pairs, tau=tau, keep_self=keep_self)
        ctx.save_for_backward(unit, found.cosine, found.log_mass)
        if pairs.log_row_weight is not None:
            # A factor of a whole row moves its L, and no gradient.
            found = found._replace(log_mass=found.log_mass + pairs.log_row_weight)
        ctx.pairs, ctx.tau = pairs, tau
        alignment = torch.where(found.total > 0, 2 - 2 * found.agreement / found.total, 0.0)
        ctx.mark_non_differentiable(alignment)
        return found.log_mass, alignment

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        unit, cosine, log_mass = ctx.saved_tensors
        return log_mass_gradient(unit, ctx.pairs, cosine, log_mass, grad, tau=ctx.tau), None, None, None


class RowMass(NamedTuple):
    """The inner sums of Eq 3 of some rows, and what their gradient needs.

    Parameters
    ----------
    cosine
        (E,) u_i · u_j of each pair of these rows.
    log_mass
        (n,) L of these rows, −∞ without positives; for even pairs without the weight that a whole row has.
    total, agreement
        () Σγ_ij and Σγ_ij·u_i·u_j over these rows, i ≠ j.
    """

    cosine: Tensor
    log_mass: Tensor
    total: Tensor
    agreement: Tensor


def log_mass_of_rows(
    own: Tensor, unit: Tensor, pairs: PositivePairs | PairShard, *, tau: float, keep_self: bool
) -> RowMass:
    """Return L of :func:`positive_log_mass` for the rows that the pairs belong to: all, or those of one process.

    O(E·d) time, O(E) memory.

    Parameters
    ----------
    own
        (n, d) these rows, of length 1 or 0, contiguous.
    unit
        (N, d) all rows.
    """
    cosine = _pair_cosines(own, unit, pairs)
    log_mass = own.new_empty(len(own))
    total, agreement = own.new_zeros(2)
    of_row = pairs.log_row_weight if isinstance(pairs, PositivePairs) else None
    log_self = pairs.log_self_weight if of_row is None else pairs.log_self_weight - of_row
    for block in _row_blocks(pairs):
        of_block = cosine[block.entries]
        log_weight = pairs.log_weight[block.entries]
        score = (of_block * tau).add_(log_weight)
        top = block.reduce(score, "max")
        if keep_self:
            top = torch.maximum(top, log_self[block.rows])
        nothing = top == -math.inf
        top = torch.where(nothing, 0.0, top)
        mass = block.reduce(_exp_(score.sub_(top.index_select(0, block.row_of_entry()))), "sum")
        if keep_self:
            mass += (log_self[block.rows] - top).exp()
        log_mass[block.rows] = torch.where(nothing, -math.inf, top + mass.log())
        if of_row is None:
            weight = torch.exp(log_weight, out=score)
        else:
            weight = torch.index_select(of_row[block.rows].exp(), 0, block.row_of_entry(), out=score)
        total += ordered_sum(weight)
        agreement += ordered_sum(weight.mul_(of_block))
    return RowMass(cosine, log_mass, total, agreement)


def log_mass_gradient(
    unit: Tensor,
    pairs: PositivePairs | PairShard,
    cosine: Tensor,
    log_mass: Tensor,
    grad: Tensor,
    *,
    tau: float,
) -> Tensor:
    """Return (n, d) the gradient in u of the rows that the pairs belong to. O(E·d) time, O(E) memory.

    Parameters
    ----------
    unit
        (N, d) all rows, of length 1 or 0.
    cosine
        (E,) of the pairs of these rows.
    log_mass, grad
        (N,) L of all rows, and the gradient of each: what row i means to its neighbor j has L_j in it.
    """
    first = pairs.first_row if isinstance(pairs, PairShard) else 0
    # At +∞ a node without positives has no share in anything, and −∞ − (−∞) never happens.
    log_mass = torch.where(log_mass == -math.inf, math.inf, log_mass)
    gradient = unit.new_empty(len(pairs.indptr) - 1, unit.shape[1])
    for block in _row_blocks(pairs):
        rows, columns = block.row_of_entry(), pairs.indices[block.entries].long()
        own = slice(first + block.rows.start, first + block.rows.stop)
        score = cosine[block.entries] * tau
        there = score + pairs.log_weight[block.entries]
        _exp_(there.sub_(log_mass[own].index_select(0, rows))).mul_(grad[own].index_select(0, rows))
        back = score.add_(pairs.log_weight_t[block.entries])
        _exp_(back.sub_(log_mass.index_select(0, columns))).mul_(grad.index_select(0, columns))
        gradient[block.rows] = _block_matrix(pairs, block, there.add_(back).mul_(tau)) @ unit
    return gradient


class _SquaredDistances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        origin = y.mean(dim=0)
        x, y = x - origin, y - origin
        ctx.save_for_backward(x, y)
        squared = row_product(x, y.T).mul_(-2)
        squared += x.square().sum(dim=1, keepdim=True)
        squared += y.square().sum(dim=1)
        return squared.clamp_(min=0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        grad_x = x * grad.sum(dim=1, keepdim=True) - row_product(grad, y)
        grad_y = y * column_sums(grad)[:, None] - gram(grad, x)
        return 2 * grad_x, 2 * grad_y


class _OrderedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape = x.shape
        return column_sums(x.reshape(-1, 1))[0] if x.device.type == "cpu" else x.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.expand(ctx.shape)


def _exp_(log_share: Tensor) -> Tensor:
    """Return exp in place, of logarithms of shares, which are at most 0 up to rounding."""
    return log_share.clamp_(min=_LEAST_LOG_SHARE).exp_()


def _pair_cosines(own: Tensor, unit: Tensor, pairs: PositivePairs | PairShard) -> Tensor:
    """Return (E,) u_i · u_j of each pair."""
    cosine = unit.new_zeros(pairs.n_pairs)
    for block in _row_blocks(pairs):
        matrix = _block_matrix(pairs, block, cosine[block.entries])
        # In place: the product would otherwise copy the indices.
        torch.sparse.sampled_addmm(matrix, own[block.rows], unit.T, beta=0.0, out=matrix)
    return cosine


def _block_matrix(pairs: PositivePairs | PairShard, block: _RowBlock, values: Tensor) -> Tensor:
    """Return (n, N) a CSR tensor with values at the pairs of a block of n rows."""
    indices = pairs.indices[block.entries].long()
    return _csr(block.indptr, indices, values, (len(block.indptr) - 1, pairs.n_nodes))


def _row_blocks(pairs: PositivePairs | PairShard) -> Iterator[_RowBlock]:
    """Yield the rows of the pairs in order, in blocks of about the same number of pairs."""
    size = _PAIRS_PER_BLOCK.get(pairs.indptr.device.type, _PAIRS_PER_BLOCK_ELSEWHERE)
    cuts = {0: 0, len(pairs.indptr) - 1: pairs.n_pairs}
    if pairs.n_pairs > size:
        wanted = torch.arange(size, pairs.n_pairs, size, device=pairs.indptr.device)
        rows = torch.searchsorted(pairs.indptr, wanted)
        cuts.update(zip(rows.tolist(), pairs.indptr[rows].tolist(), strict=True))
    for (row, entry), (next_row, next_entry) in pairwise(sorted(cuts.items())):
        yield _RowBlock(slice(row, next_row), slice(entry, next_entry), pairs.indptr[row : next_row + 1] - entry)


def gram(x: Tensor, y: Tensor) -> Tensor:
    """Return xᵀ @ y, (k, m), for tall x (N, k) and y (N, m), the same bits for any number of threads."""
    if x.device.type != "cpu":
        return x.T @ y
    return torch.bmm(_in_blocks(x).transpose(1, 2), _in_blocks(y)).sum(dim=0)


def _in_blocks(x: Tensor) -> Tensor:
    """Return x (N, k) as (blocks, rows of a block, k), with zero rows at the end; the cut depends on N alone."""
    n_rows = min(_ROWS_PER_BLOCK, max(1, -(-len(x) // _MIN_BLOCKS)))
    n_blocks = max(_MIN_BLOCKS, -(-len(x) // n_rows))
    return pad(x, (0, 0, 0, n_blocks * n_rows - len(x))).view(n_blocks, n_rows, x.shape[1])


def _csr(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a CSR tensor that shares the given memory, without torch's word that such tensors are in beta.

    Some versions of torch also warn that they do not check the indices, though that is what is asked for.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled", UserWarning)
        return torch.sparse_csr_tensor(indptr, indices, values, size=shape, check_invariants=False)
