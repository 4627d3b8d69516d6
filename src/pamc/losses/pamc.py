"""The PamC loss (Eqs 2, 3 and 8), with all negatives in time linear in nodes and edges; and the condition of Eq 7."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pamc.errors import CollapseWarning, DataError, EmptyClusterWarning, PamcWarning, warn
from pamc.graph.positives import PairShard, PositivePairs
from pamc.losses.arguments import check_assignment, check_choice, check_embedding, check_pairs, check_tau
from pamc.ops.dispatch import Backend, resolve_backend
from pamc.ops.torch.clustering import cluster_sums
from pamc.ops.torch.proxy import proxy as ops_proxy
from pamc.ops.torch.rows import ordered_sum

# Options that :class:`PamCLoss` stores.
_OPTIONS = ("tau", "n_clusters", "proxy", "self_edges", "backend")


@dataclass(frozen=True, eq=False)
class PamCTerms:
    """The terms of the PamC loss.

    Parameters
    ----------
    positive, proxy
        () The two terms of Eq 3, with gradients.
    alignment
        () γ-weighted mean of ‖u_i − u_j‖² over the positives, where u are the unit rows of z. It has no gradient.
    meta_nodes
        (C, d) meta-nodes of the proxy, Eq 8. It has no gradient.
    mass
        (C,) number of rows, or sum of the soft assignment, in each cluster. It has no gradient.
    """

    positive: Tensor
    proxy: Tensor
    alignment: Tensor
    meta_nodes: Tensor
    mass: Tensor

    @property
    def total(self) -> Tensor:
        """Sum of both terms, Eq 3, a scalar."""
        return self.positive + self.proxy


def pamc_loss(
    z: Tensor,
    edges: Tensor | PositivePairs,
    assignment: Tensor,
    *,
    edge_weight: Tensor | None = None,
    tau: float = 1.0,
    n_clusters: int | None = None,
    meta_nodes: Tensor | None = None,
    proxy: str = "eq2",
    self_edges: str = "drop",
    backend: str = "auto",
) -> Tensor:
    r"""Return the PamC loss, Eq 3, with positives from edges and all negatives represented by meta-nodes.

    .. math:: \ell_{Pcontrast} = -\frac1N\sum_i\log\sum_{j \ne i}\gamma_{ij}\exp(\tau\,sim(z_i, z_j)) + \ell_{proxy}

    This follows the paper. Cases that it leaves open are defined as follows: a zero row has similarity 0 to every row;
    a node without positives of nonzero weight is omitted from the sum while the divisor stays N; empty clusters are
    omitted, with a warning; with fewer than two non-empty clusters the proxy is 0. O(E·d + N·d) time and O(E + N·d)
    memory for labels; a soft assignment takes additional O(N·C·d) time and O(N·C) memory.

    Parameters
    ----------
    z
        (N, d) embedding of any floating-point dtype; half precision is computed in float32.
    edges
        (2, E) integer edges i → j, which make j a positive of i; weights of repeated edges are added. Or
        :class:`~pamc.graph.positives.PositivePairs`, which should be built once if the loss is called repeatedly.
    assignment
        (N,) integer labels, predicted or known; or (N, C) soft assignment, through which the gradient flows unless it
        is detached.
    edge_weight
        (E,) constant weights γ_ij ≥ 0; None for all ones.
    tau
        Inverse temperature, a factor of the cosine (other libraries divide by a temperature).
    n_clusters
        Number of clusters, C; None for the largest label plus one, the number of columns of a soft assignment or of
        rows of `meta_nodes`.
    meta_nodes
        (C, d) meta-nodes of all rows (:func:`meta_nodes`) if z is a mini-batch. They determine the value of the proxy;
        its gradient reaches the rows of the batch as if they were all rows, so that over equal batches of one epoch the
        mean gradient is the full-batch gradient of the proxy. The positive term lacks pairs that leave the batch.
    proxy
        Equation of the proxy, "eq2", or "eq6" as in the released program.
    self_edges
        "drop" (j ≠ i), or "keep": γ_ii is included with similarity 0, as in the released program.
    backend
        "torch"; "triton" (fused kernels, on a CUDA GPU); "reference" (dense, float64, O(N²) memory); or "auto":
        "triton" if z is on a CUDA GPU that supports it, else "torch".

    Examples
    --------
    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], requires_grad=True)
    >>> edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    >>> loss = pamc_loss(z, edges, torch.tensor([0, 0, 1, 1]))
    >>> round(loss.item(), 4)
    -0.3069
    """
    return pamc_terms(
        z,
        edges,
        assignment,
        edge_weight=edge_weight,
        tau=tau,
        n_clusters=n_clusters,
        meta_nodes=meta_nodes,
        proxy=proxy,
        self_edges=self_edges,
        backend=backend,
    ).total


def pamc_terms(
    z: Tensor,
    edges: Tensor | PositivePairs | PairShard,
    assignment: Tensor,
    *,
    edge_weight: Tensor | None = None,
    tau: float = 1.0,
    n_clusters: int | None = None,
    meta_nodes: Tensor | None = None,
    proxy: str = "eq2",
    self_edges: str = "drop",
    backend: str | Backend = "auto",
    trusted: bool = False,
    sample_weight: Tensor | None = None,
) -> PamCTerms:
    """Return the terms of the PamC loss; parameters as in :func:`pamc_loss`.

    With `trusted`, the assignment must be (N,) int64 labels below `n_clusters` or a soft assignment with that many
    columns: it is not validated, no warnings are issued, and a GPU is not synchronized with the host. A
    :class:`PairShard` requires the backend that :func:`~pamc.ops.dispatch.over_processes` returns, and z of its rows.
    With `sample_weight` (N,), a row of weight w counts as w rows in the positive term, in the meta-nodes and in N;
    the edges must be the pairs that :func:`~pamc.graph.influence.repeated_pairs` returns for these weights.

    Examples
    --------
    >>> terms = pamc_terms(torch.eye(2), torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 1]))
    >>> round(terms.positive.item(), 4), round(terms.proxy.item(), 4), terms.alignment.item()
    (-0.0, 0.6931, 2.0)
    """
    check_tau(tau)
    check_choice("proxy", proxy)
    check_choice("self_edges", self_edges)
    z = check_embedding(z)
    if meta_nodes is not None:
        meta_nodes = _check_meta_nodes(meta_nodes, z, n_clusters)
        n_clusters = len(meta_nodes)
    if not trusted or n_clusters is None:
        assignment, n_clusters = check_assignment(z, assignment, n_clusters)
    pairs: Any = edges if isinstance(edges, PairShard) else check_pairs(z, edges, edge_weight)
    n_nodes = pairs.n_nodes if sample_weight is None else sample_weight.sum()
    ops = resolve_backend(backend, z.device)
    if isinstance(pairs, PositivePairs) and pairs.log_copy_weight is not None:
        pairs, self_edges = pairs.with_copies(tau=tau, self_edges=self_edges), "keep"

    log_mass, alignment = ops.positive_log_mass(z, pairs, tau=tau, self_edges=self_edges)
    positive = torch.where(log_mass == -math.inf, 0.0, log_mass)
    if sample_weight is None:
        sums, mass = ops.cluster_sums(z, assignment, n_clusters)
    else:
        positive = positive * sample_weight
        of_rows = torch.cat([z, torch.ones_like(z[:, :1])], dim=1) * sample_weight[:, None]
        sums_and_mass, _ = ops.cluster_sums(of_rows, assignment, n_clusters)
        sums, mass = sums_and_mass[:, :-1], sums_and_mass[:, -1].detach()
    nodes, node_mass = sums / n_nodes, mass
    if meta_nodes is not None:
        nodes, node_mass = meta_nodes + (nodes - nodes.detach()), _nonzero(meta_nodes)
    if not trusted:
        warn_of_empty_clusters(int((node_mass > 0).sum()), n_clusters)
    return PamCTerms(
        positive=-ordered_sum(positive) / n_nodes,
        proxy=ops.proxy(nodes, node_mass, tau=tau, kind=proxy),
        alignment=alignment,
        meta_nodes=nodes.detach(),
        mass=mass,
    )


def meta_nodes(z: Tensor, assignment: Tensor, *, n_clusters: int | None = None) -> Tensor:
    r"""Return the (C, d) meta-nodes, Eq 8, differentiable; the meta-node of an empty cluster is zero.

    .. math:: \hat\mu_c = \frac1N\sum_i 1_{[i \in label(c)]}\,z_i

    This follows the paper; a soft assignment replaces the indicator. O(N·d) time for labels, O(N·C·d) for a soft
    assignment. The parameters are those of :func:`pamc_loss`.

    Examples
    --------
    >>> meta_nodes(torch.eye(2), torch.tensor([0, 0]), n_clusters=2)
    tensor([[0.5000, 0.5000],
            [0.0000, 0.0000]])
    """
    z = check_embedding(z)
    assignment, n_clusters = check_assignment(z, assignment, n_clusters)
    return cluster_sums(z, assignment, n_clusters)[0] / len(z)


def proxy_loss(meta_nodes: Tensor, *, tau: float, proxy: str = "eq2", mass: Tensor | None = None) -> Tensor:
    r"""Return the proxy of all negatives, Eq 2, or Eq 6.

    .. math:: \ell_{proxy} = \log\sum_a\sum_{b \ne a}\exp(\tau\,sim(\hat\mu_a, \hat\mu_b))

    This follows the paper; ``proxy="eq6"`` is the mean over a of log(1 + Σ_{b≠a} exp(τ·sim)), as in the released
    program. Empty clusters are omitted; with fewer than two non-empty ones the value is 0, with gradient 0. O(C²·d)
    time.

    Parameters
    ----------
    meta_nodes
        (C, d) meta-nodes at any scale: sums, means and Eq 8's 1/N give the same value.
    mass
        (C,) mass assigned to each cluster, 0 for an empty one. If None, clusters with a zero meta-node are empty.

    Examples
    --------
    >>> proxy_loss(torch.eye(3), tau=1.0).exp().round(decimals=4)
    tensor(6.)
    """
    check_tau(tau)
    check_choice("proxy", proxy)
    meta_nodes = check_embedding(meta_nodes, name="meta_nodes")
    if mass is not None and mass.shape != meta_nodes.shape[:1]:
        raise DataError(f"mass must have one value per meta-node ({len(meta_nodes)}), got shape {tuple(mass.shape)}")
    return ops_proxy(meta_nodes, _nonzero(meta_nodes) if mass is None else mass, tau=tau, kind=proxy)


class PamCLoss(nn.Module):
    """The PamC loss as a module, which stores the options of :func:`pamc_loss`.

    The loss is defined for all N, C and τ; :func:`pamc.losses.pamc.bound_holds` returns whether the negatives over all
    nodes are guaranteed to exceed the proxy.

    Examples
    --------
    >>> loss = PamCLoss(tau=0.5)
    >>> edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    >>> round(loss(torch.eye(4), edges, torch.tensor([0, 0, 1, 1])).item(), 4)
    0.6931
    """

    def __init__(
        self,
        *,
        tau: float = 1.0,
        n_clusters: int | None = None,
        proxy: str = "eq2",
        self_edges: str = "drop",
        backend: str = "auto",
    ) -> None:
        super().__init__()
        check_tau(tau)
        check_choice("proxy", proxy)
        check_choice("self_edges", self_edges)
        self.tau = tau
        self.n_clusters = n_clusters
        self.proxy = proxy
        self.self_edges = self_edges
        self.backend = backend

    def forward(
        self,
        z: Tensor,
        edges: Tensor | PositivePairs,
        assignment: Tensor,
        *,
        edge_weight: Tensor | None = None,
        meta_nodes: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss, a scalar."""
        options: Any = {name: getattr(self, name) for name in _OPTIONS}
        return pamc_loss(z, edges, assignment, edge_weight=edge_weight, meta_nodes=meta_nodes, **options)

    def extra_repr(self) -> str:
        """Return the options."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in _OPTIONS)


def _nonzero(meta_nodes: Tensor) -> Tensor:
    return (meta_nodes != 0).any(dim=1).to(meta_nodes.dtype)


def _check_meta_nodes(meta_nodes: Tensor, z: Tensor, n_clusters: int | None) -> Tensor:
    if meta_nodes.ndim != 2 or meta_nodes.shape[1] != z.shape[1] or n_clusters not in (None, len(meta_nodes)):
        expected = f"({'C' if n_clusters is None else n_clusters}, {z.shape[1]})"
        raise DataError(f"meta_nodes must have shape {expected}, a row per cluster, got {tuple(meta_nodes.shape)}")
    return meta_nodes.detach().to(z)


def warn_of_empty_clusters(n_present: int, n_clusters: int) -> None:
    """Issue a warning if some clusters have no members, or if there are too few clusters to contrast."""
    n_empty = n_clusters - n_present
    if n_present < 2:
        warning: PamcWarning = CollapseWarning(
            f"{n_present} of {n_clusters} clusters have members: there is nothing to contrast and the proxy is 0"
        )
    elif n_empty > 0:
        warning = EmptyClusterWarning(f"{n_empty} of {n_clusters} clusters are empty; their meta-nodes are left out")
    else:
        return
    warn(warning, stacklevel=3)


def bound_ratio(n_nodes: int, n_clusters: int, tau: float) -> float:
    r"""Return the paper's lower bound on loss_NN / loss_CC, Eq 7; ∞ for one cluster.

    .. math:: \frac{loss_{NN}}{loss_{CC}} > \frac{\log N}{\log[1 + (C - 1)e^\tau]}

    This follows the paper, which assumes nonnegative cosines. Those of embeddings may be negative: :func:`bound_holds`
    checks a condition that is always sufficient.

    Examples
    --------
    >>> round(bound_ratio(9298, 10, 0.5), 3)
    3.308
    """
    if n_clusters == 1:
        return math.inf
    return math.log(n_nodes) / _log1p_exp(math.log(n_clusters - 1) + tau)


def bound_holds(n_nodes: int, n_clusters: int, tau: float, *, proxy: str = "eq2") -> bool:
    r"""Return whether the negatives over all nodes exceed the proxy for every embedding.

    By Jensen's inequality, with cosines between −1 and 1,

    .. math:: loss_{NN} \ge \log[1 + (N - 1)e^{-\tau/(N - 1)}],

    because the cosines of N unit vectors sum to at least −N. Eq 6 is at most log[1 + (C − 1)e^τ] and Eq 2 at most
    log[C(C − 1)e^τ]. The result is True if the lower bound of loss_NN exceeds this upper bound of the proxy. Departure
    from the paper: Eq 7 uses log N as the lower bound, which requires nonnegative cosines. Both sides are computed in
    logarithms, so any tau is possible.

    Parameters
    ----------
    proxy
        Equation of the proxy, "eq2" or "eq6".

    Examples
    --------
    >>> bound_holds(9298, 10, 0.5), bound_holds(100, 10, 2.0)
    (True, False)
    """
    check_choice("proxy", proxy)
    others = n_nodes - 1
    nodes = _log(others) - tau / others if others else -math.inf
    if proxy == "eq6":
        # Both sides have the form log(1 + e^x), which increases with x.
        return nodes > _log(n_clusters - 1) + tau
    return _log1p_exp(nodes) > _log(n_clusters * (n_clusters - 1)) + tau


def _log(count: int) -> float:
    return math.log(count) if count else -math.inf


def _log1p_exp(x: float) -> float:
    """Return log(1 + e^x) without overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
