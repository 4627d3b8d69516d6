"""Who computes a loss: pamc's backends, the released program, the N × N loss. And the gate that each has to pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, one_hot

from pamc.config import FitConfig
from pamc.graph.positives import PositivePairs
from pamc.lab.problems import Problem, awkward_problem
from pamc.losses.pamc import pamc_terms
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.ops import reference
from pamc.ops.dispatch import BACKENDS
from pamc.ops.torch.rows import unit_rows

__all__ = [
    "PROVIDERS",
    "EdgeList",
    "Prepared",
    "Provider",
    "available",
    "broadcast_assignment",
    "dense_contrast",
    "dense_weights",
    "released_contrast",
    "released_objective",
    "target",
    "why_refused",
]

# Largest error, as a share: of the value (or of 1), and of the gradient's norm.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}

_RELEASED = {"proxy": "eq6", "self_edges": "keep"}
_GATE = FitConfig(n_clusters=7, alpha=2.0, beta=1.5, tau=0.5)

Objective: TypeAlias = Callable[[Tensor, nn.Parameter], Tensor]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A loss with everything it needs of the graph on its device.

    Parameters
    ----------
    loss
        Returns a scalar for z (N, d).
    held
        What it holds of the graph.
    """

    loss: Callable[[Tensor], Tensor]
    held: tuple[Tensor, ...]

    @property
    def held_bytes(self) -> int:
        """Bytes of what it holds."""
        return sum(tensor.nbytes for tensor in self.held)


@dataclass(frozen=True)
class Provider:
    """One who computes the contrastive loss and the whole objective.

    Parameters
    ----------
    name, about
        What it is called, and what it is.
    prepare
        Takes a problem on its device.
    exact
        The same loss by :mod:`pamc.ops.reference`, of z, dense γ and the problem.
    objective
        Takes pairs and settings; returns Eq 12 as a function of z (N, d) and centers (C, d).
    exact_objective
        The same by the reference, of z, centers, dense γ and settings.
    why_unavailable
        Says why it cannot work on a device, None where it can.
    """

    name: str
    about: str
    prepare: Callable[[Problem], Prepared]
    exact: Callable[[Tensor, Tensor, Problem], Tensor]
    objective: Callable[[PositivePairs, FitConfig], Objective]
    exact_objective: Callable[[Tensor, Tensor, Tensor, FitConfig], Tensor]
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
    config = _GATE
    exact_objective = provider.exact_objective
    checks: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]] = {
        "loss": (
            provider.prepare(problem.to(device)).loss,
            lambda z: provider.exact(z, gamma, problem),
            (z,),
        ),
        "objective": (
            provider.objective(problem.pairs.to(device=device), config),
            lambda z, centers: exact_objective(z, centers, gamma, config),
            (z, centers),
        ),
    }
    for name, (ours, exact, arguments) in checks.items():
        got = _value_and_gradient(ours, tuple(argument.to(device) for argument in arguments))
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


def _prepare_dense(problem: Problem) -> Prepared:
    gamma = dense_weights(problem.pairs)
    return Prepared(lambda z: dense_contrast(z, gamma, tau=problem.tau), (gamma,))


def _dense_objective(pairs: PositivePairs, config: FitConfig) -> Objective:
    gamma = dense_weights(pairs)

    def objective(z: Tensor, centers: Tensor) -> Tensor:
        q = broadcast_assignment(z, centers, eta=config.eta)
        kl = nn.functional.kl_div(q.log(), target(q.detach()), reduction="batchmean")
        return config.alpha * dense_contrast(z, gamma, tau=config.tau) + config.beta * kl

    return objective


def _exact_dense_objective(z: Tensor, centers: Tensor, gamma: Tensor, config: FitConfig) -> Tensor:
    q = reference.soft_assignment(z, centers, eta=config.eta)
    kl = reference.kl_divergence(reference.target_distribution(q.detach()), q, reduction="mean")
    return config.alpha * reference.contrastive_loss(z, gamma, tau=config.tau, self_edges="keep") + config.beta * kl


def _prepare_released(problem: Problem) -> Prepared:
    edges, labels = EdgeList.of(problem.pairs), problem.labels

    def loss(z: Tensor) -> Tensor:
        return released_contrast(z, labels, edges, n_clusters=problem.n_clusters, tau=problem.tau)

    return Prepared(loss, (edges.row, edges.column, edges.weight))


def _released_objective(pairs: PositivePairs, config: FitConfig) -> Objective:
    edges = EdgeList.of(pairs)
    weights = {"alpha": config.alpha, "beta": config.beta, "tau": config.tau}

    def objective(z: Tensor, centers: Tensor) -> Tensor:
        q = broadcast_assignment(z, centers, eta=config.eta)
        return released_objective(z, q, target(q.detach()), edges, **weights)

    return objective


def _prepare_pamc(backend: str) -> Callable[[Problem], Prepared]:
    def prepare(problem: Problem) -> Prepared:
        pairs = problem.pairs

        def loss(z: Tensor) -> Tensor:
            # As the trainer calls it: labels that it made itself are not checked.
            return pamc_terms(
                z,
                pairs,
                problem.labels,
                tau=problem.tau,
                n_clusters=problem.n_clusters,
                backend=backend,
                trusted=True,
            ).total

        weights = (pairs.log_weight, pairs.log_weight_t, pairs.log_self_weight)
        return Prepared(loss, (pairs.indptr, pairs.indices, *weights))

    return prepare


def _pamc_objective(backend: str) -> Callable[[PositivePairs, FitConfig], Objective]:
    def make(pairs: PositivePairs, config: FitConfig) -> Objective:
        def objective(z: Tensor, centers: nn.Parameter) -> Tensor:
            model = PamCGCModel(nn.Identity(), centers, pairs, config)
            model.backend = backend
            # The caller's own parameter in the place of the model's copy: the gradient is his.
            model.centers = centers
            return model.objective(z).total

        return objective

    return make


def _exact_pamc(options: dict[str, Any]) -> dict[str, Any]:
    def loss(z: Tensor, gamma: Tensor, problem: Problem) -> Tensor:
        shape: dict[str, Any] = {"tau": problem.tau, "n_clusters": problem.n_clusters}
        return reference.pamc_loss(z, gamma, problem.labels, **shape, **options)

    def objective(z: Tensor, centers: Tensor, gamma: Tensor, config: FitConfig) -> Tensor:
        weights: dict[str, Any] = {name: getattr(config, name) for name in ("alpha", "beta", "tau", "eta")}
        return reference.objective(z, centers, gamma, **weights, **options, kl_reduction="mean")

    return {"exact": loss, "exact_objective": objective}


def _why_no_triton(device: torch.device) -> str | None:
    return BACKENDS["triton"].why_unavailable(device) if device.type == "cuda" else "its kernels need a CUDA GPU"


def _pamc(name: str, about: str, why_unavailable: Callable[[torch.device], str | None]) -> Provider:
    return Provider(
        name,
        about,
        _prepare_pamc(name),
        objective=_pamc_objective(name),
        why_unavailable=why_unavailable,
        **_exact_pamc({"proxy": "eq2", "self_edges": "drop"}),
    )


PROVIDERS: dict[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider(
            "dense",
            "the N × N loss as SCGC* computes it",
            _prepare_dense,
            lambda z, gamma, problem: reference.contrastive_loss(z, gamma, tau=problem.tau, self_edges="keep"),
            _dense_objective,
            _exact_dense_objective,
        ),
        Provider(
            "released",
            "PamC as the released program computes it",
            _prepare_released,
            objective=_released_objective,
            **_exact_pamc(_RELEASED),
        ),
        _pamc("torch", "pamc in plain torch", lambda device: BACKENDS["torch"].why_unavailable(device)),
        _pamc("triton", "pamc in fused kernels", _why_no_triton),
    )
}


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
