"""Reconstruction of edges (Kipf and Welling 2016) and of features."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from pamc.ops.torch.rows import ordered_sum, row_product

# Pairs per block: on a CPU the temporaries of a block fit in the cache; a GPU processes many pairs at once.
_PAIRS_PER_BLOCK = {"cpu": 1 << 20}
_PAIRS_PER_BLOCK_ELSEWHERE = 1 << 24

# From this value on, log(1 + e^s) equals s even in float64, and e^s is still finite in float32.
_softplus = partial(softplus, threshold=40.0)


class _HasMatrix(Protocol):
    @property
    def matrix(self) -> Tensor: ...


def edge_reconstruction_loss(z: Tensor, pattern: Tensor, *, n_rows: int | None = None) -> Tensor:
    r"""Return the exact weighted cross entropy between σ(zzᵀ) and the graph over all N² pairs.

    .. math:: \frac{1}{2E}\sum_{(i,j) \in A+I} \log(1 + e^{-z_i \cdot z_j})
              + \frac{1}{2(N^2 - E)}\sum_{(i,j) \notin A+I} \log(1 + e^{z_i \cdot z_j})

    This equals ``norm * mean(weighted_cross_entropy_with_logits(...))`` in the program of Kipf and Welling (2016), with
    targets A + I, positive weight (N² − E)/E and norm N²/(2(N² − E)). As in that program, E counts the entries of A
    without the diagonal; a graph without edges uses E = N, the number of its self-loops. For a single node, which has
    no negatives, the second term is 0.

    Value and gradient are accumulated in blocks in the forward pass, without an N × N tensor. O(N²·d) time,
    O(N·d + nnz) memory and one block.

    Parameters
    ----------
    z
        (N, d) embedding.
    pattern
        (N, N) symmetric CSR tensor whose entries are those of A + I, without duplicates. Their values are ignored.
    n_rows
        Rows per block; None for blocks of about 2^20 pairs on a CPU and 2^24 elsewhere, with at least 64 rows.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from pamc.ops.torch.rows import csr_tensor
    >>> pattern = csr_tensor(sp.eye_array(2, format="csr"), device=torch.device("cpu"), dtype=torch.float32)
    >>> edge_reconstruction_loss(torch.zeros(2, 3), pattern).exp()
    tensor(2.)
    """
    if n_rows is None:
        n_pairs = _PAIRS_PER_BLOCK.get(z.device.type, _PAIRS_PER_BLOCK_ELSEWHERE)
        # A multiple of 64, because the rounding of narrower products depends on the number of threads.
        n_rows = max(64, n_pairs // max(1, len(z)) // 64 * 64)
    result: Tensor = _AllPairs.apply(z, pattern.crow_indices(), pattern.col_indices(), n_rows)  # type: ignore[no-untyped-call]
    return result


def sampled_edge_loss(z: Tensor, pattern: Tensor) -> Tensor:
    """Return :func:`edge_reconstruction_loss` with its sum over non-edges estimated from as many random pairs as edges.

    The positive term is exact. Each call samples its negatives uniformly from all pairs with torch's global generator
    of the device, as torch_geometric's `GAE.recon_loss` does; the few that are edges are not excluded. O(nnz·d) time
    and memory.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from pamc.ops.torch.rows import csr_tensor
    >>> pattern = csr_tensor(sp.eye_array(2, format="csr"), device=torch.device("cpu"), dtype=torch.float32)
    >>> sampled_edge_loss(torch.zeros(2, 3), pattern).exp()
    tensor(2.)
    """
    n_nodes, columns = len(z), pattern.col_indices()
    rows = torch.repeat_interleave(pattern.crow_indices().diff(), output_size=len(columns))
    sampled = torch.randint(n_nodes, (2, len(columns)), device=z.device)
    positive = _softplus(-_pair_products(z, rows, columns))
    negative = _softplus(_pair_products(z, *sampled))
    return (ordered_sum(positive) / _count_edges(len(columns), n_nodes) + ordered_sum(negative) / len(columns)) / 2


def feature_reconstruction(decoded: Tensor, x: Tensor | _HasMatrix) -> Tensor:
    r"""Return the squared reconstruction error, averaged over features and summed over rows.

    .. math:: \sum_{i=1}^{n} \frac{1}{d}\|\hat{x}_i - x_i\|^2

    It is a sum over rows because the engine adds up chunks before it divides by N. O(n·d) time and memory, for sparse
    rows too, because the reconstruction is dense.

    Parameters
    ----------
    decoded
        (n, d) reconstruction.
    x
        Dense (m, d) rows, or sparse ones with their (m, d) CSR tensor as `matrix`, m ≥ n; rows beyond the first n are
        ignored.

    Examples
    --------
    >>> feature_reconstruction(torch.zeros(2, 2), torch.tensor([[1.0, 1.0], [0.0, 2.0], [9.0, 9.0]]))
    tensor(3.)
    """
    target = x if isinstance(x, Tensor) else x.matrix.to_dense()
    return ordered_sum((decoded - target[: len(decoded)]).square()) / decoded.shape[1]


class _AllPairs(torch.autograd.Function):
    """The loss, whose gradient is computed in the forward pass, because a scalar's backward pass only scales it."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, indptr: Tensor, indices: Tensor, n_rows: int) -> Tensor:
        n_nodes = len(z)
        n_edges = _count_edges(len(indices), n_nodes)
        weight, other_weight = 0.5 / n_edges, 0.5 / max(1, n_nodes**2 - n_edges)
        z, indptr, indices = z.contiguous(), indptr.long(), indices.long()
        gradient = torch.zeros_like(z)
        parts = []
        cuts = [*range(0, n_nodes, n_rows), n_nodes]
        entries = indptr[cuts].tolist()
        for start, stop, first, last in zip(cuts, cuts[1:], entries, entries[1:], strict=False):
            block = z[start:stop]
            # (N, rows of the block): all pairs (j, i) with i in the block, which are the pairs (i, j).
            score = row_product(z, block.T)
            row = torch.repeat_interleave(indptr[start : stop + 1].diff(), output_size=last - first)
            edges = indices[first:last] * len(block) + row
            positive = score.view(-1)[edges]
            score_grad = score.sigmoid().mul_(other_weight)
            score_grad.view(-1)[edges] = torch.sigmoid(-positive).mul_(-weight)
            value = _softplus(score).mul_(other_weight)
            value.view(-1)[edges] = _softplus(-positive).mul_(weight)
            parts.append(ordered_sum(value))
            gradient += row_product(score_grad, block)
        # The gradient of zzᵀ has two equal terms, because the matrix of score gradients is symmetric.
        ctx.save_for_backward(gradient.mul_(2))
        return ordered_sum(torch.stack(parts)) if parts else z.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad, None, None, None


def _pair_products(z: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return (z.index_select(0, rows) * z.index_select(0, columns)).sum(dim=1)


def _count_edges(n_entries: int, n_nodes: int) -> int:
    """Return the number of entries of A, given that of A + I; the number of self-loops if there are no others."""
    return n_entries - n_nodes or n_nodes
