"""Contrastive losses of other methods: the loss over all N × N pairs (Eq 1), which PamC replaces, and those of CGC.

CGC (Park et al. 2022) contrasts at three levels of a graph: a node with its features, its neighbors, and its clusters.
Every level is a mean of −log(e^s⁺ / (e^s⁺ + Σ e^s⁻)) over positives, where s = τ·cos between rows of z (N, d). With
L_i = log Σ_k e^{s_ik} over the negatives of a node this is −log σ(s⁺ − L_i), which never overflows, and is 0 for a node
without negatives.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, logsigmoid

from pamc.graph.positives import PositivePairs
from pamc.losses.arguments import check_choice, check_embedding, check_pairs, check_tau
from pamc.ops.torch.positives import positive_log_mass
from pamc.ops.torch.rows import ordered_sum, row_product, unit_rows


def contrastive_loss(
    z: Tensor,
    edges: Tensor | PositivePairs,
    *,
    edge_weight: Tensor | None = None,
    tau: float = 1.0,
    self_edges: str = "drop",
) -> Tensor:
    r"""Return the classic contrastive loss, the mean of Eq 1 over the nodes, with all N − 1 negatives of each.

    .. math:: \ell_i = -\log\frac{\sum_{j \ne i}\gamma_{ij}\exp(\tau\,sim(z_i, z_j))}
                                 {\sum_{k \ne i}\exp(\tau\,sim(z_i, z_k))}

    This follows the paper; a node without positives is omitted from the sum while the divisor stays N. O(N²·d) time,
    O(N²) memory: 40 GB at N = 100,000 in float32. :func:`pamc.losses.pamc.pamc_loss` takes linear time and memory.

    Parameters
    ----------
    z, edges, edge_weight, tau
        As in :func:`pamc.losses.pamc.pamc_loss`.
    self_edges
        "drop" (j ≠ i and k ≠ i), or "keep": i itself is included in both sums, with similarity 0 and weight γ_ii, as in
        the released program.

    Examples
    --------
    >>> z = torch.eye(3, requires_grad=True)
    >>> contrastive_loss(z, torch.tensor([[0, 1, 2], [1, 2, 0]]), tau=0.5).exp().round(decimals=4)
    tensor(2., grad_fn=<RoundBackward1>)
    """
    check_tau(tau)
    check_choice("self_edges", self_edges)
    z = check_embedding(z)
    pairs = check_pairs(z, edges, edge_weight)
    unit = unit_rows(z)
    log_positive, _ = positive_log_mass(unit, pairs, tau=tau, self_edges=self_edges)
    # Omitted rows are not computed: they may have no negatives (N = 1), and their gradient would be NaN.
    rows = (log_positive != -math.inf).nonzero()
    scores = tau * (unit[rows[:, 0]] @ unit.T)
    scores = scores.scatter(1, rows, 0.0 if self_edges == "keep" else -math.inf)
    return ordered_sum(torch.logsumexp(scores, dim=1) - log_positive[rows[:, 0]]) / len(z)


class ContrastiveLoss(nn.Module):
    """The classic contrastive loss as a module, which stores the options of :func:`contrastive_loss`.

    Examples
    --------
    >>> loss = ContrastiveLoss(tau=0.5)
    >>> loss(torch.eye(3), torch.tensor([[0, 1, 2], [1, 2, 0]])).exp().round(decimals=4)
    tensor(2.)
    """

    def __init__(self, *, tau: float = 1.0, self_edges: str = "drop") -> None:
        super().__init__()
        check_tau(tau)
        check_choice("self_edges", self_edges)
        self.tau = tau
        self.self_edges = self_edges

    def forward(self, z: Tensor, edges: Tensor | PositivePairs, *, edge_weight: Tensor | None = None) -> Tensor:
        """Compute the loss, a scalar."""
        return contrastive_loss(z, edges, edge_weight=edge_weight, tau=self.tau, self_edges=self.self_edges)

    def extra_repr(self) -> str:
        """Return the options."""
        return f"tau={self.tau}, self_edges={self.self_edges!r}"


def feature_contrast_loss(z: Tensor, features: Tensor, negatives: Tensor, *, tau: float = 1.0) -> Tensor:
    r"""Return the loss that contrasts each node with its features against the features of sampled nodes.

    .. math:: \ell_F = -\frac{1}{N}\sum_i\log\frac{e^{\tau\cos(z_i, f_i)}}
                       {e^{\tau\cos(z_i, f_i)} + \sum_{k \in S_i,\, k \ne i}e^{\tau\cos(z_i, f_k)}}

    Departure from the paper: the cosine of z and a linear map of the features replaces their bilinear form.
    O(N·K·d) time and memory.

    Parameters
    ----------
    features
        (N, d) embedding f of the features alone, without the graph.
    negatives
        (N, K) sampled nodes S_i of each node; a node that is among its negatives is ignored.

    Examples
    --------
    >>> z = torch.eye(2)
    >>> feature_contrast_loss(z, z, torch.tensor([[1], [0]]), tau=math.log(3)).exp().round(decimals=4)
    tensor(1.3333)
    """
    check_tau(tau)
    unit, other = unit_rows(z), unit_rows(features)
    node = torch.arange(len(z), device=z.device)
    positive = tau * (unit * other).sum(dim=1)
    negative = _log_negative_mass(unit, other, negatives, negatives != node[:, None], tau)
    return -ordered_sum(logsigmoid(positive - negative)) / len(z)


def neighbor_contrast_loss(
    z: Tensor, edges: Tensor, edge_weight: Tensor, negatives: Tensor, *, is_negative: Tensor, tau: float = 1.0
) -> Tensor:
    r"""Return the loss that contrasts each node with its neighbors against sampled nodes that are not neighbors.

    .. math:: \ell_H = -\frac{1}{N}\sum_i\sum_j w_{ij}\log\frac{e^{\tau\cos(z_i, z_j)}}
                       {e^{\tau\cos(z_i, z_j)} + \sum_{k \in S_i}e^{\tau\cos(z_i, z_k)}}

    With Σ_j w_ij = 1 this is the expectation over one positive per node, sampled with probabilities w. Departure from
    the paper, which samples it. A node without neighbors contributes 0 while the divisor stays N. O((E + N·K)·d) time
    and memory.

    Parameters
    ----------
    edges, edge_weight
        (2, E) directed edges i → j, and their (E,) constant weights w_ij.
    negatives, is_negative
        (N, K) sampled nodes of each node, and whether each belongs to S_i; False excludes it.

    Examples
    --------
    >>> edges, weight = torch.tensor([[0, 1], [1, 0]]), torch.ones(2)
    >>> z, everyone = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.ones(3, 1, dtype=torch.bool)
    >>> loss = neighbor_contrast_loss(z, edges, weight, torch.tensor([[2], [2], [0]]), is_negative=everyone, tau=1.0)
    >>> bool(loss.isclose(2 / 3 * torch.tensor(1 + math.exp(-1)).log()))
    True
    """
    check_tau(tau)
    unit = unit_rows(z)
    source, target = edges
    positive = tau * (embedding(source, unit) * embedding(target, unit)).sum(dim=1)
    negative = _log_negative_mass(unit, unit, negatives, is_negative, tau)
    log_share = logsigmoid(positive - embedding(source, negative[:, None])[:, 0])
    return -ordered_sum(edge_weight * log_share) / len(z)


def prototype_contrast_loss(z: Tensor, prototypes: Tensor, labels: Tensor, *, tau: float = 1.0) -> Tensor:
    r"""Return the loss that contrasts each node with its prototype against the other prototypes of one level.

    .. math:: \ell_C = -\frac{1}{N}\sum_i\log\frac{e^{\tau\cos(z_i, c_{y_i})}}{\sum_u e^{\tau\cos(z_i, c_u)}}

    This follows the paper, for one level of its hierarchy. O(N·C·d) time, O(N·(C + d)) memory.

    Parameters
    ----------
    prototypes, labels
        (C, d) prototypes c of the level, and (N,) prototype index y_i of each node.

    Examples
    --------
    >>> prototype_contrast_loss(torch.eye(2), torch.eye(2), torch.tensor([0, 1]), tau=math.log(3)).exp()
    tensor(1.3333)
    """
    check_tau(tau)
    scores = tau * row_product(unit_rows(z), unit_rows(prototypes).T)
    log_share = torch.log_softmax(scores, dim=1).gather(1, labels[:, None])
    return -ordered_sum(log_share) / len(z)


def _log_negative_mass(unit: Tensor, other: Tensor, negatives: Tensor, is_negative: Tensor, tau: float) -> Tensor:
    """Return (N,) L_i, the log of Σ_k exp(τ·unit_i·other_k) over the negatives; −∞ for a node without negatives.

    `embedding` is used as a gather whose gradient is summed in a fixed order on both CPU and GPU.
    """
    scores = tau * torch.einsum("nd,nkd->nk", unit, embedding(negatives, other))
    # Excluded entries have no gradient: `where` blocks it, even −∞ − (−∞) in a row without negatives.
    return torch.logsumexp(torch.where(is_negative, scores, -math.inf), dim=1)
