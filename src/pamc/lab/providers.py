"""Implementations (providers) of the contrastive loss to compare, their inputs, and the check each must pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, one_hot

from pamc.config import FitConfig
from pamc.errors import ConfigError
from pamc.graph.positives import PositivePairs
from pamc.losses.pamc import pamc_terms
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.ops import reference
from pamc.ops.dispatch import BACKENDS
from pamc.ops.torch.rows import unit_rows

# Power-law degrees decrease as rank^-0.75, so their tail has exponent 2.3, as in many social and web graphs.
_RANK_EXPONENT = 0.75

# Oversampling factor, because repeated pairs and self-edges are discarded, and the maximum number of draws.
_EXCESS = 1.3
_MAX_ROUNDS = 50

# Largest allowed error relative to the value (at least 1), and to the norm of the gradient.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}

# Settings of the objective in the check.
_CHECKED: Any = FitConfig(n_clusters=7, alpha=2.0, beta=1.5, tau=0.5)

# A loss as a function of z, a function that returns the labels, C and τ.
Contrast: TypeAlias = Callable[[Tensor, Callable[[], Tensor], int, float], Tensor]


@dataclass(frozen=True, eq=False)
class Problem:
    """The inputs of a contrastive loss except z: γ over N nodes, and the label of each node, (N,)."""

    pairs: PositivePairs
    labels: Tensor
    n_clusters: int
    tau: float = 0.5

    def to(self, device: torch.device | str) -> Problem:
        """Return the problem on a device."""
        return replace(self, pairs=self.pairs.to(device=device), labels=self.labels.to(device))


def random_pairs(
    n_nodes: int, n_pairs: int, *, hub: int | None = None, device: torch.device | str = "cpu", seed: int = 0
) -> PositivePairs:
    """Return the pairs of a random symmetric graph with the weights of one hop, γ = Ā, built on the device.

    Parameters
    ----------
    n_nodes, n_pairs
        N, and the number of stored entries; each unordered pair is stored twice.
    hub
        Approximate largest degree of a power law of degrees; None draws both ends of a pair uniformly.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    n_wanted = n_pairs // 2
    shape = (2, int(_EXCESS * n_wanted) + 8)
    cumulative = None if hub is None else _power_law(n_nodes, n_pairs, hub, device)
    node_of_rank = torch.randperm(n_nodes, generator=generator, device=device)
    keys = torch.empty(0, dtype=torch.int64, device=device)
    for _ in range(_MAX_ROUNDS):
        if cumulative is None:
            ends = torch.randint(n_nodes, shape, generator=generator, device=device)
        else:
            drawn = torch.rand(shape, generator=generator, device=device, dtype=torch.float64) * cumulative[-1]
            ends = node_of_rank[torch.searchsorted(cumulative, drawn).clamp_(max=n_nodes - 1)]
        low, high = ends.amin(dim=0), ends.amax(dim=0)
        keys = torch.unique(torch.cat([keys, (low * n_nodes + high)[low != high]]))
        if len(keys) >= n_wanted:
            break
    else:
        raise ConfigError(f"{n_nodes} nodes have too few pairs for {n_pairs} of them at random")
    chosen = keys[torch.randperm(len(keys), generator=generator, device=device)[:n_wanted]]
    low, high = chosen // n_nodes, chosen % n_nodes
    keys = (torch.cat([low, high]) * n_nodes + torch.cat([high, low])).sort().values
    row, column = keys // n_nodes, keys % n_nodes
    degree = torch.bincount(row, minlength=n_nodes)
    log_share = -(degree + 1).float().log()
    return PositivePairs(
        torch.cat([degree.new_zeros(1), degree.cumsum(0)]), column, log_share[row], log_share[column], log_share
    )


def random_problem(
    n_nodes: int, degree: int, n_clusters: int, *, device: torch.device | str = "cpu", seed: int = 0
) -> Problem:
    """Return a problem with `degree` stored neighbors per node on average; ends and labels are uniformly random."""
    pairs = random_pairs(n_nodes, n_nodes * degree, device=device, seed=seed)
    generator = torch.Generator(device=device).manual_seed(seed + 1)
    labels = torch.randint(n_clusters, (n_nodes,), generator=generator, device=device)
    return Problem(pairs, labels, n_clusters)


def normal(*shape: int, device: torch.device | str = "cpu", seed: int = 0) -> Tensor:
    """Return standard normal numbers of a given shape, drawn on the device."""
    return torch.randn(*shape, generator=torch.Generator(device=device).manual_seed(seed), device=device)


def awkward_problem(dtype: torch.dtype) -> tuple[Tensor, Tensor, Problem]:
    """Return z (41, 10), dense γ (41, 41) and the problem on which providers are compared with the reference.

    It has a zero row (1), an isolated node (0), a node whose only edge is a self-edge (2), directed and repeated edges,
    self-edges, an empty cluster in the middle and an empty last cluster.
    """
    n_nodes, n_clusters = 41, 7
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(n_nodes, 10, generator=generator, dtype=torch.float64).to(dtype)
    z[1] = 0
    edges = torch.randint(3, n_nodes, (2, 4 * n_nodes), generator=generator)
    edges[:, :2] = edges[:, 2:4]
    edges[:, 4:8] = torch.tensor([[1, 2, 7, 5], [4, 2, 7, 1]])
    weight = torch.rand(edges.shape[1], generator=generator, dtype=torch.float64) + 0.1
    gamma = torch.zeros(n_nodes, n_nodes, dtype=torch.float64)
    gamma.index_put_((edges[0], edges[1]), weight, accumulate=True)
    labels = torch.randint(n_clusters, (n_nodes,), generator=generator)
    labels[(labels == n_clusters // 2) | (labels == n_clusters - 1)] = 0
    pairs = PositivePairs.from_edges(edges, weight, n_nodes=n_nodes, dtype=dtype)
    return z, gamma, Problem(pairs, labels, n_clusters)


def _power_law(n_nodes: int, n_pairs: int, hub: int, device: torch.device | str) -> Tensor:
    """Return the cumulative weights of ranks, (N,), for degrees hub·(1 + i/i₀)^-0.75 at rank i that sum to E."""
    complement = 1 - _RANK_EXPONENT
    first = (n_pairs * complement / (hub * n_nodes**complement)) ** (1 / _RANK_EXPONENT)
    rank = torch.arange(n_nodes, dtype=torch.float64, device=device)
    weight: Tensor = (1 + rank / first).pow(-_RANK_EXPONENT)
    return weight.cumsum(0)


class Prepared(NamedTuple):
    """A loss as a function of z (N, d), and the tensors of the graph that it keeps on the device."""

    loss: Callable[[Tensor], Tensor]
    graph: tuple[Tensor, ...]


@dataclass(frozen=True)
class Provider:
    """An implementation of the contrastive loss and of the whole objective.

    Parameters
    ----------
    prepare
        Returns the loss of a problem, which is on the device.
    exact
        Computes the same loss with :mod:`pamc.ops.reference` from z, dense γ and the problem.
    objective
        Computes Eq 12 from z (N, d), centers (C, d), pairs and settings.
    why_unavailable
        Returns why the provider does not support a device, or None if it does.
    """

    prepare: Callable[[Problem], Prepared]
    exact: Callable[[Tensor, Tensor, Problem], Tensor]
    objective: Callable[[Tensor, nn.Parameter, PositivePairs, FitConfig], Tensor]
    why_unavailable: Callable[[torch.device], str | None] = lambda device: None


def why_refused(provider: Provider, device: torch.device, *, dtype: torch.dtype = torch.float32) -> str | None:
    """Return how a provider's loss or objective differs from the float64 reference, or None if both agree with it.

    The check compares values and gradients on a small graph with edge cases (:func:`awkward_problem`).
    """
    z, gamma, problem = awkward_problem(dtype)
    centers = z[[5, 9, 13, 17, 21, 25, 29]] + 0.25

    def exact_objective(z: Tensor, centers: Tensor) -> Tensor:
        q = reference.soft_assignment(z, centers, eta=_CHECKED.eta)
        kl = reference.kl_divergence(reference.target_distribution(q.detach()), q, reduction="mean")
        contrast = provider.exact(z, gamma, replace(problem, labels=q.detach().argmax(dim=1), tau=_CHECKED.tau))
        result: Tensor = _CHECKED.alpha * contrast + _CHECKED.beta * kl
        return result

    def objective(z: Tensor, centers: nn.Parameter) -> Tensor:
        return provider.objective(z, centers, on_device.pairs, _CHECKED)

    on_device = problem.to(device)
    checks: tuple[tuple[str, Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]], ...] = (
        ("loss", provider.prepare(on_device).loss, lambda z: provider.exact(z, gamma, problem), (z,)),
        ("objective", objective, exact_objective, (z, centers)),
    )
    for name, function, exact, arguments in checks:
        got = _value_and_gradient(function, *(argument.to(device) for argument in arguments))
        expected = _value_and_gradient(exact, *(argument.double() for argument in arguments))
        for kind, a, b, least in zip(("value", "gradient"), got, expected, (1.0, 0.0), strict=True):
            error = float((a - b).norm()) / max(least, float(b.norm()))
            if not error <= TOLERANCE[dtype]:
                return f"{kind} of its {name} is off by {error:.1e} of the reference; {TOLERANCE[dtype]:g} is allowed"
    return None


def _value_and_gradient(function: Callable[..., Tensor], *arguments: Tensor) -> tuple[Tensor, Tensor]:
    leaves = [nn.Parameter(argument.clone()) for argument in arguments]
    value = function(*leaves)
    gradients = torch.autograd.grad(value, leaves)
    return value.detach().cpu().double(), torch.cat([gradient.flatten() for gradient in gradients]).cpu().double()


def _plain_contrast(name: str, pairs: PositivePairs) -> tuple[Contrast, tuple[Tensor, ...]]:
    """Return the "dense" or "released" loss in plain torch, and the tensors of the graph that it keeps."""
    if name == "dense":
        gamma = dense_weights(pairs)
        return (lambda z, labels, n_clusters, tau: dense_contrast(z, gamma, tau=tau)), (gamma,)
    edges = EdgeList.of(pairs)
    return (
        lambda z, labels, n_clusters, tau: released_contrast(z, labels(), edges, n_clusters=n_clusters, tau=tau)
    ), edges


def plain_objective(name: str, pairs: PositivePairs, config: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return Eq 12 with the "dense" or "released" loss, as a function of z, its assignment q and the target p."""
    contrast, _ = _plain_contrast(name, pairs)

    def objective(z: Tensor, q: Tensor, p: Tensor) -> Tensor:
        value = contrast(z, lambda: q.detach().argmax(dim=1), q.shape[1], config.tau)
        result: Tensor = config.alpha * value + config.beta * kl_div(q.log(), p, reduction="batchmean")
        return result

    return objective


def _plain(name: str, exact: Callable[[Tensor, Tensor, Problem], Tensor]) -> Provider:
    def prepare(problem: Problem) -> Prepared:
        contrast, graph = _plain_contrast(name, problem.pairs)
        return Prepared(lambda z: contrast(z, lambda: problem.labels, problem.n_clusters, problem.tau), graph)

    def objective(z: Tensor, centers: Tensor, pairs: PositivePairs, config: FitConfig) -> Tensor:
        q = broadcast_assignment(z, centers, eta=config.eta)
        return plain_objective(name, pairs, config)(z, q, target(q.detach()))

    return Provider(prepare, exact, objective)


def _pamc(backend: str) -> Provider:
    def prepare(problem: Problem) -> Prepared:
        pairs = problem.pairs
        # As in training, the labels are trusted and not checked.
        options: dict[str, Any] = {"tau": problem.tau, "n_clusters": problem.n_clusters, "trusted": True}
        weights = (pairs.log_weight, pairs.log_weight_t, pairs.log_self_weight)
        return Prepared(
            lambda z: pamc_terms(z, pairs, problem.labels, backend=backend, **options).total,
            (pairs.indptr, pairs.indices, *weights),
        )

    def objective(z: Tensor, centers: nn.Parameter, pairs: PositivePairs, config: FitConfig) -> Tensor:
        model = PamCGCModel(nn.Identity(), centers, pairs, config)
        model.backend = backend
        # The caller's parameter replaces the model's copy, so that it gets the gradient.
        model.centers = centers
        return model.objective(z).total

    def why_unavailable(device: torch.device) -> str | None:
        if backend == "triton" and device.type != "cuda":
            return "its kernels need a CUDA GPU"
        return BACKENDS[backend].why_unavailable(device)

    return Provider(prepare, partial(_exact_pamc, "eq2", "drop"), objective, why_unavailable)


def _exact_pamc(proxy: str, self_edges: str, z: Tensor, gamma: Tensor, problem: Problem) -> Tensor:
    call = partial(reference.pamc_loss, proxy=proxy, self_edges=self_edges)
    return call(z, gamma, problem.labels, tau=problem.tau, n_clusters=problem.n_clusters)


# The N × N loss as computed by SCGC*, PamC as computed by the released program, and pamc in plain torch and in fused
# kernels.
PROVIDERS: dict[str, Provider] = {
    "dense": _plain(
        "dense", lambda z, gamma, problem: reference.contrastive_loss(z, gamma, tau=problem.tau, self_edges="keep")
    ),
    "released": _plain("released", partial(_exact_pamc, "eq6", "keep")),
    "torch": _pamc("torch"),
    "triton": _pamc("triton"),
}


# Norm that replaces that of a zero row, and the largest norm of a row that counts as zero.
_ZERO_NORM, _MAX_ZERO_NORM = 1e-9, 1e-8

# Norm of a zero row in a divisor, so that quotients and their gradients are zero.
_HUGE_NORM = 1e18


class EdgeList(NamedTuple):
    """All positives including self-edges, as the entries (E,) of a sparse matrix in ascending order of rows."""

    row: Tensor
    column: Tensor
    weight: Tensor

    @classmethod
    def of(cls, pairs: PositivePairs) -> EdgeList:
        """Return the edges of pairs, on their device."""
        (loops,) = torch.nonzero(pairs.log_self_weight.isfinite(), as_tuple=True)
        (entries,) = torch.nonzero(pairs.log_weight.isfinite(), as_tuple=True)
        row = torch.cat([torch.repeat_interleave(pairs.indptr.diff())[entries], loops])
        column = torch.cat([pairs.indices[entries], loops])
        weight = torch.cat([pairs.log_weight[entries], pairs.log_self_weight[loops]]).exp()
        order = (row * pairs.n_nodes + column).argsort()
        return cls(row[order], column[order], weight[order])


def broadcast_assignment(z: Tensor, centers: Tensor, *, eta: float) -> Tensor:
    """Return q of Eq 9, (N, C), from one N × C × d array of differences. O(N·C·d) time and memory."""
    q = 1.0 / (1.0 + (z.unsqueeze(1) - centers).pow(2).sum(dim=2) / eta)
    q = q.pow((eta + 1.0) / 2.0)
    return q / q.sum(dim=1, keepdim=True)


def target(q: Tensor) -> Tensor:
    """Return p of Eq 10, (N, C)."""
    weight = q**2 / q.sum(dim=0)
    return weight / weight.sum(dim=1, keepdim=True)


def released_contrast(z: Tensor, labels: Tensor, edges: EdgeList, *, n_clusters: int, tau: float) -> Tensor:
    """Return Eq 3 with the proxy of Eq 6, gathering both ends of each edge. O(E·d + N·C·d) time and memory."""
    left, right = z[edges.row], z[edges.column]
    norms = _norm(left), _norm(right)
    cosine = (left * right).sum(dim=1) * (norms[0] * norms[1]).pow(-1)
    undefined = torch.minimum(*norms).detach() <= _MAX_ZERO_NORM
    similarity = cosine.masked_fill((edges.row == edges.column) | undefined, 0.0)
    shares = torch.exp(tau * similarity) * edges.weight
    mass = z.new_zeros(len(z)).scatter_add(0, edges.row, shares)
    positive = -torch.where(mass > 0, mass, 1.0).log().sum() / len(z)

    members = one_hot(labels, n_clusters)
    sums = (z.unsqueeze(1) * members.unsqueeze(2)).sum(dim=0)
    present = members.sum(dim=0) > 0
    unit = unit_rows(sums)
    off_diagonal = 1 - torch.eye(n_clusters, dtype=z.dtype, device=z.device)
    exponentials = torch.exp(tau * (unit @ unit.T) * off_diagonal) * present
    rows = torch.where(present, exponentials.sum(dim=1), 1.0).log()
    return positive + rows.sum() / present.sum()


def dense_weights(pairs: PositivePairs) -> Tensor:
    """Return dense γ including its diagonal, (N, N). O(N²) memory."""
    gamma = torch.diag(pairs.log_self_weight.exp())
    gamma[torch.repeat_interleave(pairs.indptr.diff()), pairs.indices] = pairs.log_weight.exp()
    return gamma


def dense_contrast(z: Tensor, gamma: Tensor, *, tau: float) -> Tensor:
    """Return the mean of Eq 1 with i in both sums at similarity 0, as in SCGC*. O(N²·d) time, O(N²) memory.

    As there, cosines are inner products times inverse products of norms, both N × N, and another N × N matrix removes
    the diagonal.
    """
    norms = _norm(z).unsqueeze(1)
    norms = torch.where(norms > _MAX_ZERO_NORM, norms, _HUGE_NORM)
    cosine = (z @ z.T) * (norms @ norms.T).pow(-1)
    scores = torch.exp(tau * ((1 - torch.eye(len(z), dtype=z.dtype, device=z.device)) * cosine))
    total, positive = scores.sum(dim=1), (scores * gamma).sum(dim=1)
    has_positives = positive > 0
    ratio = total.log() - torch.where(has_positives, positive, 1.0).log()
    return torch.where(has_positives, ratio, 0.0).sum() / len(z)


def _norm(rows: Tensor) -> Tensor:
    return rows.pow(2).sum(dim=1).clamp(min=_ZERO_NORM**2).sqrt()
