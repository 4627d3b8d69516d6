"""Eqs 1 to 12 of the paper, dense and in float64, one function per equation: the reference that pamc is tested against.

This module is written for comparison with the paper, not for speed: it takes O(N²) memory, computes in float64 for any
input, and leaves gradients to autograd. Cases that the paper leaves open are defined as everywhere in pamc: a zero row
has similarity 0 to every row, a node without positives is omitted from the sum while the divisor stays N, an empty
cluster is omitted, and with fewer than two non-empty clusters the proxy is 0. Notation: z (N, d) is the embedding,
gamma (N, N) the weights γ_ij ≥ 0.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot


def contrastive_loss(z: Tensor, gamma: Tensor, *, tau: float, self_edges: str = "drop") -> Tensor:
    r"""Return the classic contrastive loss, the mean of Eq 1 over the nodes.

    .. math:: \ell_i = -\log\frac{\sum_{j \ne i}\gamma_{ij}\exp(\tau\,sim(z_i, z_j))}
                                 {\sum_{k \ne i}\exp(\tau\,sim(z_i, z_k))}

    This follows the paper; ``self_edges="keep"`` includes j = i in both sums, with similarity 0, as the released
    program does.

    Examples
    --------
    >>> contrastive_loss(torch.eye(3), 1 - torch.eye(3), tau=1.0)
    tensor(0., dtype=torch.float64)
    """
    positive = log_positive_mass(z, gamma, tau=tau, self_edges=self_edges)
    all_pairs = log_positive_mass(z, torch.ones_like(gamma), tau=tau, self_edges=self_edges)
    return torch.where(positive == -math.inf, 0.0, all_pairs - positive).sum() / len(z)


def proxy(meta_nodes: Tensor, *, tau: float, proxy: str = "eq2", mass: Tensor | None = None) -> Tensor:
    r"""Return the proxy of all negatives, Eq 2.

    .. math:: \ell_{proxy} = \log\sum_a\sum_{b \ne a}\exp(\tau\,sim(\hat\mu_a, \hat\mu_b))

    This follows the paper; ``proxy="eq6"`` gives Eq 6 instead, as the released program does.

    Parameters
    ----------
    meta_nodes
        (C, d) meta-nodes, at any scale.
    mass
        (C,) mass assigned to each cluster; clusters with 0 are omitted. If None, those with a zero meta-node are.

    Examples
    --------
    >>> proxy(torch.eye(3), tau=1.0).exp().round(decimals=9)
    tensor(6., dtype=torch.float64)
    """
    if proxy == "eq6":
        return loss_cc(meta_nodes, tau=tau, mass=mass)
    present = _present(meta_nodes, mass)
    pairs = present[:, None] & present & ~_diagonal(len(present), meta_nodes.device)
    total = _log_sum((tau * similarity(meta_nodes)).reshape(1, -1), pairs.reshape(1, -1))[0]
    return torch.where(pairs.any(), total, 0.0)


def pamc_loss(
    z: Tensor,
    gamma: Tensor,
    assignment: Tensor,
    *,
    tau: float,
    n_clusters: int | None = None,
    proxy: str = "eq2",
    self_edges: str = "drop",
    sample_weight: Tensor | None = None,
    copy_weight: Tensor | None = None,
) -> Tensor:
    r"""Return the PamC loss, Eq 3.

    .. math:: \ell_{Pcontrast} = -\frac1N\sum_i\log\sum_{j \ne i}\gamma_{ij}\exp(\tau\,sim(z_i, z_j)) + \ell_{proxy}

    This follows the paper; `proxy` and `self_edges` select the variants of the released program. With weights w, row i
    stands for w_i identical rows (:func:`pamc.graph.influence.repeated_pairs`). The mean over all copies of all rows is
    then, with W = Σ_i w_i,

    .. math:: \ell_{Pcontrast} = -\frac1W\sum_i w_i\log\Big[\sum_{j \ne i}\Gamma_{ij}\exp(\tau\,sim(z_i, z_j))
              + \kappa_i e^\tau\Big] + \ell_{proxy}

    where Γ_ij is the influence of a copy of i on all copies of j, and κ_i its influence on the other copies of i,
    whose similarity to it is 1.

    Parameters
    ----------
    gamma
        (N, N) weights γ, or Γ with `sample_weight`; its diagonal is then the influence of a copy on itself.
    assignment
        (N,) labels or (N, C) soft assignment, as in :func:`meta_nodes`.
    sample_weight
        (N,) weights w; None for all ones.
    copy_weight
        (N,) weights κ of the other copies; None for all zeros.

    Examples
    --------
    >>> pamc_loss(torch.eye(2), torch.ones(2, 2), torch.tensor([0, 1]), tau=1.0).exp().round(decimals=9)
    tensor(2., dtype=torch.float64)
    """
    weight = _as_weight(sample_weight, len(z), z.device)
    log_mass = log_positive_mass(z, gamma, tau=tau, self_edges=self_edges, copy_weight=copy_weight)
    positive = -(weight * torch.where(log_mass == -math.inf, 0.0, log_mass)).sum() / weight.sum()
    mass = weight @ _as_soft(assignment, n_clusters)
    nodes = meta_nodes(z, assignment, n_clusters=n_clusters, sample_weight=sample_weight)
    return positive + _proxy(nodes, tau=tau, proxy=proxy, mass=mass)


# `proxy` is also the name of a parameter, which shadows the function in functions that have it.
_proxy = proxy


def similarity(z: Tensor) -> Tensor:
    r"""Return the (N, N) cosines with a zero diagonal, Eq 4, as in the paper; a zero row has cosine 0 to all.

    .. math:: sim(z_i, z_j) = \frac{z_i \cdot z_j}{\|z_i\|\,\|z_j\|}\ (i \ne j), \quad sim(z_i, z_i) = 0

    Examples
    --------
    >>> similarity(torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, 0.0]]))
    tensor([[ 0., -1.,  0.],
            [-1.,  0.,  0.],
            [ 0.,  0.,  0.]], dtype=torch.float64)
    """
    z = z.double()
    squared = z.square().sum(dim=1, keepdim=True)
    # The inner `where` excludes the infinite derivative of √0 from the gradient.
    unit = torch.where(squared == 0, 0.0, z / torch.where(squared == 0, 1.0, squared).sqrt())
    return (unit @ unit.T).masked_fill(_diagonal(len(z), z.device), 0.0)


def loss_nn(z: Tensor, *, tau: float) -> Tensor:
    r"""Return the contribution of the negatives over all pairs of nodes, Eq 5. This follows the paper.

    .. math:: loss_{NN} = \frac1N\sum_i\log\sum_j\exp(\tau\,sim(z_i, z_j))

    Examples
    --------
    >>> loss_nn(torch.eye(3), tau=1.0).exp().round(decimals=9)
    tensor(3., dtype=torch.float64)
    """
    return torch.logsumexp(tau * similarity(z), dim=1).mean()


def loss_cc(meta_nodes: Tensor, *, tau: float, mass: Tensor | None = None) -> Tensor:
    r"""Return the contribution of the negatives over all pairs of clusters, Eq 6.

    .. math:: loss_{CC} = \frac1C\sum_a\log\sum_b\exp(\tau\,sim(\hat\mu_a, \hat\mu_b))

    This follows the paper (whose sum over b ends at M, meaning C); C counts the non-empty clusters. The parameters are
    those of :func:`proxy`.

    Examples
    --------
    >>> loss_cc(torch.eye(3), tau=1.0).exp().round(decimals=9)
    tensor(3., dtype=torch.float64)
    """
    present = _present(meta_nodes, mass)
    rows = _log_sum(tau * similarity(meta_nodes), present.expand(len(present), -1))
    return torch.where(present, rows, 0.0).sum() / present.sum().clamp(min=1)


def bound_ratio(n_nodes: int, n_clusters: int, tau: float) -> float:
    r"""Return the paper's lower bound on loss_NN / loss_CC, Eq 7.

    .. math:: \frac{loss_{NN}}{loss_{CC}} > \frac{\log N}{\log[1 + (C - 1)e^\tau]}

    This follows the paper, which assumes nonnegative cosines; see :func:`pamc.losses.pamc.bound_holds`.

    Examples
    --------
    >>> round(bound_ratio(1000, 10, 1.0), 3)
    2.134
    """
    return math.log(n_nodes) / math.log(1 + (n_clusters - 1) * math.exp(tau))


def meta_nodes(
    z: Tensor, assignment: Tensor, *, n_clusters: int | None = None, sample_weight: Tensor | None = None
) -> Tensor:
    r"""Return (C, d) meta-nodes, Eq 8.

    .. math:: \hat\mu_c = \frac1N\sum_i 1_{[i \in label(c)]}\,z_i

    This follows the paper; a soft assignment replaces the indicator. With weights, it is Σ_i w_i 1[…] z_i / Σ_i w_i.

    Parameters
    ----------
    assignment
        (N,) labels 0 … C−1, or (N, C) soft assignment, which is differentiable.
    n_clusters
        Number of clusters, C, or None for the largest label plus one.
    sample_weight
        (N,) weights w; None for all ones.

    Examples
    --------
    >>> meta_nodes(torch.eye(2), torch.tensor([0, 0]), n_clusters=2)
    tensor([[0.5000, 0.5000],
            [0.0000, 0.0000]], dtype=torch.float64)
    """
    weight = _as_weight(sample_weight, len(z), z.device)
    return _as_soft(assignment, n_clusters).T @ (weight[:, None] * z.double()) / weight.sum()


def soft_assignment(z: Tensor, centers: Tensor, *, eta: float = 1.0) -> Tensor:
    r"""Return (N, C) q, the Student-t assignment to the centers (C, d), Eq 9. This follows the paper.

    .. math:: q_{iu} = \frac{(1 + \|z_i - \mu_u\|^2/\eta)^{-(\eta + 1)/2}}
                            {\sum_{u'}(1 + \|z_i - \mu_{u'}\|^2/\eta)^{-(\eta + 1)/2}}

    Examples
    --------
    >>> soft_assignment(torch.zeros(1, 1), torch.tensor([[0.0], [1.0]]))
    tensor([[0.6667, 0.3333]], dtype=torch.float64)
    """
    squared = (z.double()[:, None] - centers.double()).square().sum(dim=2)
    kernel = (1 + squared / eta) ** (-(eta + 1) / 2)
    return kernel / kernel.sum(dim=1, keepdim=True)


def target_distribution(q: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
    r"""Return (N, C) p, the sharpened assignment, Eq 10.

    This follows the paper; a cluster with Σ_i q_iu = 0 has p_iu = 0. With weights (N,), the sums are Σ_i w_i q_iu.

    .. math:: p_{iu} = \frac{q_{iu}^2/\sum_i q_{iu}}{\sum_k q_{ik}^2/\sum_i q_{ik}}

    Examples
    --------
    >>> target_distribution(torch.tensor([[0.75, 0.25], [0.25, 0.75]]))
    tensor([[0.9000, 0.1000],
            [0.1000, 0.9000]], dtype=torch.float64)
    """
    q = q.double()
    frequency = _as_weight(sample_weight, len(q), q.device) @ q
    weight = q**2 / torch.where(frequency > 0, frequency, 1.0)
    return weight / weight.sum(dim=1, keepdim=True)


def kl_divergence(p: Tensor, q: Tensor, *, reduction: str = "sum", sample_weight: Tensor | None = None) -> Tensor:
    r"""Return the KL divergence of the target from the assignment, Eq 11. This follows the paper; "mean" divides by N.

    .. math:: KL(P\|Q) = \sum_i\sum_u p_{iu}\log\frac{p_{iu}}{q_{iu}}

    Weights (N,) multiply the terms of each row, and "mean" divides by their sum.

    Examples
    --------
    >>> kl_divergence(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]])).exp()
    tensor(2., dtype=torch.float64)
    """
    p, q = p.double(), q.double()
    counted = p > 0
    ratio = torch.where(counted, p, 1.0).log() - torch.where(counted, q, 1.0).log()
    weight = _as_weight(sample_weight, len(p), p.device)
    return (weight[:, None] * p * ratio).sum() / (weight.sum() if reduction == "mean" else 1)


def objective(
    z: Tensor,
    centers: Tensor,
    gamma: Tensor,
    *,
    alpha: float,
    beta: float,
    tau: float,
    eta: float = 1.0,
    proxy: str = "eq2",
    meta_assignment: str = "hard",
    self_edges: str = "drop",
    kl_reduction: str = "sum",
    sample_weight: Tensor | None = None,
    copy_weight: Tensor | None = None,
) -> Tensor:
    r"""Return the objective of PamCGC, Eq 12.

    .. math:: L_{final} = \alpha\,\ell_{Pcontrast}(\tau) + \beta\,KL(P\|Q)

    P is constant. With the default arguments, this follows the paper; its text does not specify the assignment of the
    meta-nodes.

    Parameters
    ----------
    centers
        (C, d) learned centers μ.
    meta_assignment
        "hard": argmax of q; "soft": q, with gradient; "soft_detached": q, without gradient.
    kl_reduction
        "sum", or "mean" to divide by N.
    sample_weight, copy_weight
        As in :func:`pamc_loss`.

    Examples
    --------
    >>> z, gamma = torch.eye(2), torch.ones(2, 2)
    >>> objective(z, z, gamma, alpha=1.0, beta=0.0, tau=1.0).exp().round(decimals=9)
    tensor(2., dtype=torch.float64)
    """
    q = soft_assignment(z, centers, eta=eta)
    assignment = {"hard": q.argmax(dim=1), "soft": q, "soft_detached": q.detach()}[meta_assignment]
    options: Any = {"tau": tau, "n_clusters": len(centers), "proxy": proxy, "self_edges": self_edges}
    contrast = pamc_loss(z, gamma, assignment, **options, sample_weight=sample_weight, copy_weight=copy_weight)
    p = target_distribution(q.detach(), sample_weight=sample_weight)
    return alpha * contrast + beta * kl_divergence(p, q, reduction=kl_reduction, sample_weight=sample_weight)


def log_positive_mass(
    z: Tensor, gamma: Tensor, *, tau: float, self_edges: str = "drop", copy_weight: Tensor | None = None
) -> Tensor:
    """Return (N,) log Σ_j γ_ij exp(τ·sim(z_i, z_j)), the inner sum of Eqs 1 and 3; −∞ for a node without positives.

    With `copy_weight` κ (N,), the sum has the additional term κ_i·exp(τ).

    Examples
    --------
    >>> log_positive_mass(torch.eye(2), torch.tensor([[5.0, 1.0], [0.0, 5.0]]), tau=1.0)
    tensor([0., -inf], dtype=torch.float64)
    """
    gamma = gamma.double()
    counted = gamma > 0
    if self_edges == "drop":
        counted = counted & ~_diagonal(len(gamma), gamma.device)
    values = tau * similarity(z) + torch.where(counted, gamma, 1.0).log()
    if copy_weight is not None:
        copies = copy_weight.double()[:, None]
        values = torch.cat([values, tau + torch.where(copies > 0, copies, 1.0).log()], dim=1)
        counted = torch.cat([counted, copies > 0], dim=1)
    return _log_sum(values, counted)


def _log_sum(values: Tensor, counted: Tensor) -> Tensor:
    """Return the logsumexp over the counted entries of each row; −∞ with gradient 0 if there are none."""
    is_nonempty = counted.any(dim=1)
    safe = torch.where(is_nonempty[:, None], values.masked_fill(~counted, -math.inf), 0.0)
    return torch.where(is_nonempty, torch.logsumexp(safe, dim=1), -math.inf)


def _as_soft(assignment: Tensor, n_clusters: int | None) -> Tensor:
    """Return (N, C) float64: the soft assignment itself, or one-hot labels."""
    if assignment.ndim == 2:
        return assignment.double()
    return one_hot(assignment.long(), -1 if n_clusters is None else n_clusters).double()


def _as_weight(sample_weight: Tensor | None, n_nodes: int, device: torch.device) -> Tensor:
    """Return the weights (N,) in float64, all ones if they are None."""
    ones = torch.ones(n_nodes, dtype=torch.float64, device=device)
    return ones if sample_weight is None else sample_weight.double()


def _present(meta_nodes: Tensor, mass: Tensor | None) -> Tensor:
    """Return a (C,) mask of the non-empty clusters."""
    return (meta_nodes != 0).any(dim=1) if mass is None else mass > 0


def _diagonal(size: int, device: torch.device) -> Tensor:
    """Return a (size, size) mask of the diagonal."""
    return torch.eye(size, dtype=torch.bool, device=device)
