"""Losses that are compared: what they are given, who computes them, and the gate that each provider has to pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeAlias

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

# Degrees of a power law fall off as rank^-0.75, which is a tail of exponent 2.3, as of many graphs of people and pages.
_RANK_EXPONENT = 0.75

# Ends are drawn for so many times the pairs wanted: repeated pairs and self-edges are thrown away.
_EXCESS = 1.3
_MOST_ROUNDS = 50

# Largest error, as a share: of the value (or of 1), and of the gradient's norm.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}

_GATE = FitConfig(n_clusters=7, alpha=2.0, beta=1.5, tau=0.5)

Objective: TypeAlias = Callable[[Tensor, nn.Parameter], Tensor]

# Of z, a function that returns its labels, C and τ.
Contrast: TypeAlias = Callable[[Tensor, Callable[[], Tensor], int, float], Tensor]


@dataclass(frozen=True, eq=False)
class Problem:
    """What a contrastive loss is given beside z: γ over N nodes, and (N,) the cluster of each."""

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
    """Return a random symmetric pattern with the weights of one hop, γ = Ā: built on the device, not reordered.

    Parameters
    ----------
    n_nodes, n_pairs
        N, and the number of stored entries, each unordered pair counting twice.
    hub
        None: both ends of a pair are uniform at random. Else degrees follow a power law whose largest is about this.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    n_wanted = n_pairs // 2
    cumulated = None if hub is None else _power_law(n_nodes, n_pairs, hub, device)
    place = torch.randperm(n_nodes, generator=generator, device=device)
    keys = torch.empty(0, dtype=torch.int64, device=device)
    for _ in range(_MOST_ROUNDS):
        ends = _ends(int(_EXCESS * n_wanted) + 8, n_nodes, cumulated, place, generator)
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
    """Return a problem with `degree` stored neighbors per node on average, all ends and labels uniform at random."""
    pairs = random_pairs(n_nodes, n_nodes * degree, device=device, seed=seed)
    generator = torch.Generator(device=device).manual_seed(seed + 1)
    labels = torch.randint(n_clusters, (n_nodes,), generator=generator, device=device)
    return Problem(pairs, labels, n_clusters)


def normal(*shape: int, device: torch.device | str = "cpu", seed: int = 0) -> Tensor:
    """Return standard normal numbers, drawn on the device from a generator of their own."""
    return torch.randn(*shape, generator=torch.Generator(device=device).manual_seed(seed), device=device)


def awkward_problem(dtype: torch.dtype) -> tuple[Tensor, Tensor, Problem]:
    """Return z (41, 10), dense γ (41, 41) and the problem: on it every provider is compared with the reference.

    It has a zero row (1), an isolated node (0), a node with a self-edge alone (2), edges in one direction, repeated
    edges, self-edges, an empty cluster in the middle and an empty last one.
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
    """Return (N,) the cumulated weights of ends whose degrees are hub·(1 + i/i₀)^-0.75, i the rank, and sum to E."""
    rest = 1 - _RANK_EXPONENT
    first = (n_pairs * rest / (hub * n_nodes**rest)) ** (1 / _RANK_EXPONENT)
    rank = torch.arange(n_nodes, dtype=torch.float64, device=device)
    weight: Tensor = (1 + rank / first).pow(-_RANK_EXPONENT)
    return weight.cumsum(0)


def _ends(n_drawn: int, n_nodes: int, cumulated: Tensor | None, place: Tensor, generator: torch.Generator) -> Tensor:
    """Return (2, n_drawn) ends of pairs, uniform or by the cumulated weights of their ranks."""
    if cumulated is None:
        return torch.randint(n_nodes, (2, n_drawn), generator=generator, device=place.device)
    drawn = torch.rand(2, n_drawn, generator=generator, device=place.device, dtype=torch.float64) * cumulated[-1]
    return place[torch.searchsorted(cumulated, drawn).clamp_(max=n_nodes - 1)]


class Prepared(NamedTuple):
    """A loss, a function of z (N, d), and all that it holds of the graph on its device."""

    loss: Callable[[Tensor], Tensor]
    held: tuple[Tensor, ...]


@dataclass(frozen=True)
class Provider:
    """One who computes the contrastive loss and the whole objective.

    Parameters
    ----------
    prepare
        Takes a problem on its device.
    exact
        The same loss by :mod:`pamc.ops.reference`, of z, dense γ and the problem.
    objective
        Takes pairs and settings; returns Eq 12 as a function of z (N, d) and centers (C, d).
    why_unavailable
        Says why it cannot work on a device, None where it can.
    """

    prepare: Callable[[Problem], Prepared]
    exact: Callable[[Tensor, Tensor, Problem], Tensor]
    objective: Callable[[PositivePairs, FitConfig], Objective]
    why_unavailable: Callable[[torch.device], str | None] = lambda device: None


def available(name: str, device: torch.device) -> str | None:
    """Return None where a provider works on a device, else the reason why not."""
    return PROVIDERS[name].why_unavailable(device)


def why_refused(provider: Provider, device: torch.device, *, dtype: torch.dtype = torch.float32) -> str | None:
    """Return None where loss and objective of a provider are those of the float64 reference, else what is wrong.

    Values and gradients are compared, on a small graph with everything that goes wrong in practice.
    """
    z, gamma, problem = awkward_problem(dtype)
    centers = z[[5, 9, 13, 17, 21, 25, 29]] + 0.25

    def exact_objective(z: Tensor, centers: Tensor) -> Tensor:
        q = reference.soft_assignment(z, centers, eta=_GATE.eta)
        kl = reference.kl_divergence(reference.target_distribution(q.detach()), q, reduction="mean")
        contrast = provider.exact(z, gamma, replace(problem, labels=q.detach().argmax(dim=1), tau=_GATE.tau))
        return _GATE.alpha * contrast + _GATE.beta * kl

    ours = provider.prepare(problem.to(device)).loss, provider.objective(problem.pairs.to(device=device), _GATE)
    checks: tuple[tuple[str, Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]], ...] = (
        ("loss", ours[0], lambda z: provider.exact(z, gamma, problem), (z,)),
        ("objective", ours[1], exact_objective, (z, centers)),
    )
    for name, function, exact, arguments in checks:
        got = _value_and_gradient(function, tuple(argument.to(device) for argument in arguments))
        expected = _value_and_gradient(exact, tuple(argument.double() for argument in arguments))
        for kind, a, b in zip(("value", "gradient"), got, expected, strict=True):
            size = max(1.0, float(b.norm())) if kind == "value" else float(b.norm())
            error = float((a - b).norm()) / size
            if not error <= TOLERANCE[dtype]:
                return f"{kind} of its {name} is off by {error:.1e} of the reference, {TOLERANCE[dtype]:g} is allowed"
    return None


def _value_and_gradient(function: Callable[..., Tensor], arguments: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    leaves = [nn.Parameter(argument.clone()) for argument in arguments]
    value = function(*leaves)
    gradients = torch.autograd.grad(value, leaves)
    return value.detach().cpu().double(), torch.cat([gradient.flatten() for gradient in gradients]).cpu().double()


def _dense(pairs: PositivePairs) -> tuple[Contrast, tuple[Tensor, ...]]:
    gamma = dense_weights(pairs)
    return (lambda z, labels, n_clusters, tau: dense_contrast(z, gamma, tau=tau)), (gamma,)


def _released(pairs: PositivePairs) -> tuple[Contrast, tuple[Tensor, ...]]:
    edges = EdgeList.of(pairs)

    def contrast(z: Tensor, labels: Callable[[], Tensor], n_clusters: int, tau: float) -> Tensor:
        return released_contrast(z, labels(), edges, n_clusters=n_clusters, tau=tau)

    return contrast, (edges.row, edges.column, edges.weight)


# Losses in plain torch as others write them, with what they hold of the graph.
_PLAIN = {"dense": _dense, "released": _released}


def plain_objective(name: str, pairs: PositivePairs, config: FitConfig) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return Eq 12 with the "dense" or the "released" loss, for z, its assignment q and a target p made before."""
    contrast, _ = _PLAIN[name](pairs)

    def objective(z: Tensor, q: Tensor, p: Tensor) -> Tensor:
        value = contrast(z, lambda: q.detach().argmax(dim=1), q.shape[1], config.tau)
        return config.alpha * value + config.beta * kl_div(q.log(), p, reduction="batchmean")

    return objective


def _plain(name: str, exact: Callable[[Tensor, Tensor, Problem], Tensor]) -> Provider:
    def prepare(problem: Problem) -> Prepared:
        contrast, held = _PLAIN[name](problem.pairs)
        return Prepared(lambda z: contrast(z, lambda: problem.labels, problem.n_clusters, problem.tau), held)

    def make(pairs: PositivePairs, config: FitConfig) -> Objective:
        objective = plain_objective(name, pairs, config)

        def of_centers(z: Tensor, centers: Tensor) -> Tensor:
            q = broadcast_assignment(z, centers, eta=config.eta)
            return objective(z, q, target(q.detach()))

        return of_centers

    return Provider(prepare, exact, make)


def _pamc(backend: str, why_unavailable: Callable[[torch.device], str | None]) -> Provider:
    def prepare(problem: Problem) -> Prepared:
        pairs = problem.pairs
        call = partial(pamc_terms, tau=problem.tau, n_clusters=problem.n_clusters, backend=backend)

        def loss(z: Tensor) -> Tensor:
            # As the trainer calls it: labels that it made itself are not checked.
            return call(z, pairs, problem.labels, trusted=True).total

        weights = (pairs.log_weight, pairs.log_weight_t, pairs.log_self_weight)
        return Prepared(loss, (pairs.indptr, pairs.indices, *weights))

    def make(pairs: PositivePairs, config: FitConfig) -> Objective:
        def objective(z: Tensor, centers: nn.Parameter) -> Tensor:
            model = PamCGCModel(nn.Identity(), centers, pairs, config)
            model.backend = backend
            # The caller's own parameter in the place of the model's copy: the gradient is his.
            model.centers = centers
            return model.objective(z).total

        return objective

    return Provider(prepare, partial(_exact_pamc, "eq2", "drop"), make, why_unavailable)


def _exact_pamc(proxy: str, self_edges: str, z: Tensor, gamma: Tensor, problem: Problem) -> Tensor:
    call = partial(reference.pamc_loss, proxy=proxy, self_edges=self_edges)
    return call(z, gamma, problem.labels, tau=problem.tau, n_clusters=problem.n_clusters)


def _exact_dense(z: Tensor, gamma: Tensor, problem: Problem) -> Tensor:
    return reference.contrastive_loss(z, gamma, tau=problem.tau, self_edges="keep")


def _why_no_triton(device: torch.device) -> str | None:
    return BACKENDS["triton"].why_unavailable(device) if device.type == "cuda" else "its kernels need a CUDA GPU"


# The N × N loss as SCGC* computes it, PamC as the released program does, and pamc in plain torch and in fused kernels.
PROVIDERS: dict[str, Provider] = {
    "dense": _plain("dense", _exact_dense),
    "released": _plain("released", partial(_exact_pamc, "eq6", "keep")),
    "torch": _pamc("torch", lambda device: BACKENDS["torch"].why_unavailable(device)),
    "triton": _pamc("triton", _why_no_triton),
}


# What takes the place of the length of a zero row, and the length up to which a row is one.
_ZERO_LENGTH, _SHORT = 1e-9, 1e-8

# The length of a zero row where products are divided by it: they stay zero, and so does their gradient.
_LONG = 1e18


class EdgeList(NamedTuple):
    """All positives, self-edges included, as the (E,) entries of a sparse matrix, ascending by row."""

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


def dense_weights(pairs: PositivePairs) -> Tensor:
    """Return (N, N) γ, its diagonal included. O(N²) memory."""
    gamma = torch.diag(pairs.log_self_weight.exp())
    gamma[torch.repeat_interleave(pairs.indptr.diff()), pairs.indices] = pairs.log_weight.exp()
    return gamma


def dense_contrast(z: Tensor, gamma: Tensor, *, tau: float) -> Tensor:
    """Return the mean of Eq 1 with i itself in both sums, at similarity 0, as SCGC* does. O(N²·d) time, O(N²) memory.

    Cosines are products of rows over products of their lengths, an N × N matrix each, and the diagonal is taken out
    with a matrix that is made anew.
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
