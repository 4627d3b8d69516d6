"""The classic contrastive loss over all N × N pairs (Eq 1): what PamC replaces."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pamc.graph.positives import PositivePairs
from pamc.losses.arguments import check_choice, check_embedding, check_pairs, check_tau
from pamc.ops.torch.positives import positive_log_mass
from pamc.ops.torch.rows import ordered_sum, unit_rows

__all__ = ["ContrastiveLoss", "contrastive_loss"]


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

    As in the paper; a node without positives is left out of the sum while the divisor stays N. O(N²·d) time, O(N²)
    memory: 40 GB at N = 100 000 in float32. :func:`pamc.losses.pamc.pamc_loss` is linear in both.

    Parameters
    ----------
    z
        (N, d) embedding.
    edges
        (2, E) directed edges i → j, or prepared pairs.
    edge_weight
        (E,) weights γ_ij ≥ 0, constants; None for all ones.
    tau
        Multiplies the cosine.
    self_edges
        "drop" (j ≠ i and k ≠ i), or "keep": i itself counts in both sums, with similarity 0 and weight γ_ii, as in the
        released program.

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
    # A row that is left out has no gradient either: it may have no negatives (N = 1).
    rows = (log_positive != -math.inf).nonzero()
    scores = tau * (unit[rows[:, 0]] @ unit.T)
    scores = scores.scatter(1, rows, 0.0 if self_edges == "keep" else -math.inf)
    return ordered_sum(torch.logsumexp(scores, dim=1) - log_positive[rows[:, 0]]) / len(z)


class ContrastiveLoss(nn.Module):
    """The classic contrastive loss as a module: the options of :func:`contrastive_loss`, kept.

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
        """Return the loss, a scalar."""
        return contrastive_loss(z, edges, edge_weight=edge_weight, tau=self.tau, self_edges=self.self_edges)

    def extra_repr(self) -> str:
        """Return the options."""
        return f"tau={self.tau}, self_edges={self.self_edges!r}"
