"""The objective as the paper's released program computes it, and as SCGC* does: what pamc is measured against.

Written from what that program does, for the sake of its time and memory. Its results are those of
:mod:`pamc.ops.reference` under ``proxy="eq6", self_edges="keep", kl_reduction="mean"``: where it would divide by zero
(zero rows, empty clusters, nodes without positives) the definitions of the reference are followed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import kl_div, one_hot

from pamc.graph.positives import PositivePairs
from pamc.ops.torch.rows import unit_rows

__all__ = [
    "EdgeList",
    "broadcast_assignment",
    "dense_contrast",
    "dense_weights",
    "released_contrast",
    "released_objective",
    "target",
]

# What takes the place of the length of a zero row, and the length up to which a row is one.
_ZERO_LENGTH, _SHORT = 1e-9, 1e-8

# The length of a zero row where products are divided by it: they stay zero, and so does their gradient.
_LONG = 1e18


class EdgeList(NamedTuple):
    """All positives, self-edges included, as the entries of a sparse matrix.

    Parameters
    ----------
    row, column
        (E,) int64, ascending by row.
    weight
        (E,) γ.
    n_nodes
        N.
    """

    row: Tensor
    column: Tensor
    weight: Tensor
    n_nodes: int

    @classmethod
    def of(cls, pairs: PositivePairs) -> EdgeList:
        """Return the edges of pairs, on their device."""
        (own,) = torch.nonzero(pairs.log_self_weight.isfinite(), as_tuple=True)
        (there,) = torch.nonzero(pairs.log_weight.isfinite(), as_tuple=True)
        row = torch.cat([torch.repeat_interleave(pairs.indptr.diff())[there], own])
        column = torch.cat([pairs.indices[there], own])
        weight = torch.cat([pairs.log_weight[there], pairs.log_self_weight[own]]).exp()
        order = (row * pairs.n_nodes + column).argsort()
        return cls(row[order], column[order], weight[order], pairs.n_nodes)


def broadcast_assignment(z: Tensor, centers: Tensor, *, eta: float) -> Tensor:
    """Return (N, C) q of Eq 9 from one N × C × d difference. O(N·C·d) time and memory."""
    q = 1.0 / (1.0 + (z.unsqueeze(1) - centers).pow(2).sum(dim=2) / eta)
    q = q.pow((eta + 1.0) / 2.0)
    return q / q.sum(dim=1, keepdim=True)


def target(q: Tensor) -> Tensor:
    """Return (N, C) p of Eq 10."""
    weight = q**2 / q.sum(dim=0)
    return weight / weight.sum(dim=1, keepdim=True)


def released_contrast(z: Tensor, labels: Tensor, edges: EdgeList, *, n_clusters: int, tau: float) -> Tensor:
    """Return Eq 3 with the proxy of Eq 6: both ends of each edge are gathered. O(E·d + N·C·d) time and memory."""
    here, there = z[edges.row], z[edges.column]
    lengths = _length(here), _length(there)
    cosine = (here * there).sum(dim=1) * (lengths[0] * lengths[1]).pow(-1)
    undefined = torch.minimum(*lengths).detach() <= _SHORT
    similarity = cosine.masked_fill((edges.row == edges.column) | undefined, 0.0)
    shares = torch.exp(tau * similarity) * edges.weight
    mass = z.new_zeros(edges.n_nodes).scatter_add(0, edges.row, shares)
    positive = -torch.where(mass > 0, mass, 1.0).log().sum() / len(z)

    members = one_hot(labels, n_clusters)
    sums = (z.unsqueeze(1) * members.unsqueeze(2)).sum(dim=0)
    present = members.sum(dim=0) > 0
    unit = unit_rows(sums)
    apart = 1 - torch.eye(n_clusters, dtype=z.dtype, device=z.device)
    exponentials = torch.exp(tau * (unit @ unit.T) * apart) * present
    rows = torch.where(present, exponentials.sum(dim=1), 1.0).log()
    return positive + rows.sum() / present.sum()


def released_objective(
    z: Tensor,
    q: Tensor,
    p: Tensor,
    edges: EdgeList,
    *,
    alpha: float,
    beta: float,
    tau: float,
) -> Tensor:
    """Return Eq 12 for the assignment q (N, C) of z and a target p (N, C) that was made before."""
    contrast = released_contrast(z, q.detach().argmax(dim=1), edges, n_clusters=q.shape[1], tau=tau)
    return alpha * contrast + beta * kl_div(q.log(), p, reduction="batchmean")


def dense_weights(pairs: PositivePairs) -> Tensor:
    """Return (N, N) γ, its diagonal included. O(N²) memory."""
    gamma = torch.diag(pairs.log_self_weight.exp())
    gamma[torch.repeat_interleave(pairs.indptr.diff()), pairs.indices] = pairs.log_weight.exp()
    return gamma


def dense_contrast(z: Tensor, gamma: Tensor, *, tau: float) -> Tensor:
    """Return the mean of Eq 1 with i itself in both sums, at similarity 0, as SCGC* does. O(N²·d) time, O(N²) memory.

    Cosines are products of rows over products of their lengths, an N × N matrix each, and the diagonal is taken out
    with a matrix that is made anew.

    Parameters
    ----------
    gamma
        (N, N) weights.
    """
    lengths = _length(z).unsqueeze(1)
    lengths = torch.where(lengths > _SHORT, lengths, _LONG)
    cosine = (z @ z.T) * (lengths @ lengths.T).pow(-1)
    scores = torch.exp(tau * ((1 - torch.eye(len(z), dtype=z.dtype, device=z.device)) * cosine))
    everything, positive = scores.sum(dim=1), (scores * gamma).sum(dim=1)
    some = positive > 0
    ratio = everything.log() - torch.where(some, positive, 1.0).log()
    return torch.where(some, ratio, 0.0).sum() / len(z)


def _length(rows: Tensor) -> Tensor:
    """Return (E,) the lengths of gathered rows."""
    return rows.pow(2).sum(dim=1).clamp(min=_ZERO_LENGTH**2).sqrt()
