"""Reconstruction of edges (Kipf and Welling 2016) and of features."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from pamc.ops.torch.rows import ordered_sum, row_product

__all__ = ["edge_reconstruction_loss", "feature_reconstruction", "sampled_edge_loss"]

# On a CPU the temporaries of a block of pairs stay in the cache; a GPU wants many pairs at once.
_PAIRS_PER_BLOCK = {"cpu": 1 << 20}
_PAIRS_PER_BLOCK_ELSEWHERE = 1 << 24

# From here on log(1 + e^s) is s in float64 too, and e^s is still finite in float32.
_LINEAR_FROM = 40.0


class _HasMatrix(Protocol):
    @property
    def matrix(self) -> Tensor: ...


def edge_reconstruction_loss(z: Tensor, pattern: Tensor, *, n_rows: int | None = None) -> Tensor:
    r"""Return the weighted cross entropy between σ(zzᵀ) and the graph over all N² pairs, exact.

    .. math:: \frac{1}{2E}\sum_{(i,j) \in A+I} \log(1 + e^{-z_i \cdot z_j})
              + \frac{1}{2(N^2 - E)}\sum_{(i,j) \notin A+I} \log(1 + e^{z_i \cdot z_j})

    That is ``norm * mean(weighted_cross_entropy_with_logits(...))`` of the program of Kipf and Welling (2016), whose
    targets are A + I, whose positive weight is (N² − E)/E and whose norm is N²/(2(N² − E)). As there, E counts the
    entries of A without the diagonal; a graph without edges takes E = N, the number of its self-loops. One node has
    no negatives: their term is 0.

    Value and gradient are summed block by block in the forward pass, and no N × N tensor is ever held. O(N²·d) time,
    O(N·d + nnz) memory and one block.

    Parameters
    ----------
    z
        (N, d) embedding.
    pattern
        (N, N) CSR tensor whose entries are those of A + I, symmetric, each once. Their values are not read.
    n_rows
        Rows of a block; None for blocks of about 2^20 pairs on a CPU and 2^24 elsewhere, and of at least 64 rows.

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
        # A multiple of 64: narrower products are rounded by the number of threads.
        n_rows = max(64, n_pairs // max(1, len(z)) // 64 * 64)
    result: Tensor = _AllPairs.apply(z, pattern.crow_indices(), pattern.col_indices(), n_rows)  # type: ignore[no-untyped-call]
    return result


def sampled_edge_loss(z: Tensor, pattern: Tensor) -> Tensor:
    """Return :func:`edge_reconstruction_loss` with its sum over non-edges estimated from as many random pairs as edges.

    The positive term is exact. Negatives are drawn uniformly from all pairs by torch's global generator of the device,
    anew in each call, as in torch_geometric's `GAE.recon_loss`; the few that hit an edge are kept. O(nnz·d) time and
    memory.

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
    drawn = torch.randint(n_nodes, (2, len(columns)), device=z.device)
    positive = _softplus(-_pair_products(z, rows, columns))
    negative = _softplus(_pair_products(z, drawn[0], drawn[1]))
    return (ordered_sum(positive) / _count_edges(len(columns), n_nodes) + ordered_sum(negative) / len(columns)) / 2


def feature_reconstruction(decoded: Tensor, x: Tensor | _HasMatrix) -> Tensor:
    r"""Return the squared error of decoded rows: the mean over features, summed over rows.

    .. math:: \sum_{i=1}^{n} \frac{1}{d}\|\hat{x}_i - x_i\|^2

    A sum over rows, because the engine adds chunks up before it divides by N. O(n·d) time and memory, for sparse rows
    too: what is decoded is dense.

    Parameters
    ----------
    decoded
        (n, d) reconstruction.
    x
        Dense (m, d) rows, or sparse ones with their (m, d) CSR tensor as `matrix`, m ≥ n: rows beyond the first n are
        left out.

    Examples
    --------
    >>> feature_reconstruction(torch.zeros(2, 2), torch.tensor([[1.0, 1.0], [0.0, 2.0], [9.0, 9.0]]))
    tensor(3.)
    """
    target = x if isinstance(x, Tensor) else x.matrix.to_dense()
    return ordered_sum((decoded - target[: len(decoded)]).square()) / decoded.shape[1]


class _AllPairs(torch.autograd.Function):
    """The loss is one number, so its gradient can be had with it: the backward pass only scales it."""

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
            own = z[start:stop]
            # (N, rows of the block): all pairs (j, i) with i in the block, which are the pairs (i, j).
            score = row_product(z, own.T)
            row = torch.repeat_interleave(indptr[start : stop + 1].diff(), output_size=last - first)
            at = indices[first:last] * len(own) + row
            positive = score.view(-1)[at]
            slope = score.sigmoid().mul_(other_weight)
            slope.view(-1)[at] = torch.sigmoid(-positive).mul_(-weight)
            value = _softplus(score).mul_(other_weight)
            value.view(-1)[at] = _softplus(-positive).mul_(weight)
            parts.append(ordered_sum(value))
            gradient += row_product(slope, own)
        # zzᵀ holds z twice, and both slopes and pattern are symmetric.
        ctx.save_for_backward(gradient.mul_(2))
        return ordered_sum(torch.stack(parts)) if parts else z.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad, None, None, None


def _softplus(s: Tensor) -> Tensor:
    return softplus(s, threshold=_LINEAR_FROM)


def _pair_products(z: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return (z.index_select(0, rows) * z.index_select(0, columns)).sum(dim=1)


def _count_edges(n_entries: int, n_nodes: int) -> int:
    """Return the entries of A, given those of A + I; the self-loops where there are no others."""
    return n_entries - n_nodes or n_nodes
