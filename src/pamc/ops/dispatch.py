"""Backends of the PamC loss and of self-training, chosen by name when they are called."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from shutil import which
from typing import Protocol

import torch
from torch import Tensor

from pamc.errors import BackendError, UnknownNameError
from pamc.graph.positives import PositivePairs
from pamc.ops import reference, torch_ops
from pamc.ops.objective import ObjectiveSettings, ObjectiveValues
from pamc.ops.proxy import proxy
from pamc.ops.scores import uniformity
from pamc.ops.self_training import self_training, self_training_in_blocks
from pamc.registry import Registry

__all__ = ["BACKENDS", "Backend", "preferring", "resolve_backend"]

# What "auto" tries on a type of device, best first. The dense reference is never chosen for anyone, nor is Triton's
# interpreter.
_PREFERRED: dict[str, tuple[str, ...]] = {"cuda": ("triton", "torch")}
_PREFERRED_ELSEWHERE = ("torch",)

_SPARSE_DEVICES = ("cpu", "cuda")

# Rows times clusters beyond which a CPU does not hold all assignments at once: with their copies 100 MB.
_MOST_ASSIGNMENTS = 1 << 22


class PositiveLogMass(Protocol):
    """As :func:`pamc.ops.torch_ops.positive_log_mass`, but of rows of any length: it scales them itself."""

    def __call__(self, z: Tensor, pairs: PositivePairs, *, tau: float, self_edges: str) -> tuple[Tensor, Tensor]: ...


class SelfTraining(Protocol):
    """As :func:`pamc.ops.self_training.self_training`, but with the labels, the argmax of q, in the place of log q."""

    def __call__(self, z: Tensor, centers: Tensor, *, eta: float) -> tuple[Tensor, Tensor]: ...


class Proxy(Protocol):
    """As :func:`pamc.ops.proxy.proxy`."""

    def __call__(self, meta_nodes: Tensor, mass: Tensor, *, tau: float, kind: str) -> Tensor: ...


class Uniformity(Protocol):
    """As :func:`pamc.ops.scores.uniformity`, of `n_rows` rows of z, every `step`-th, which it scales itself."""

    def __call__(self, z: Tensor, *, step: int, n_rows: int) -> Tensor: ...


class Objective(Protocol):
    """Eq 12 as a whole, with hard labels; None where its parts have to be taken one by one."""

    def __call__(
        self,
        z: Tensor,
        centers: Tensor,
        pairs: PositivePairs,
        settings: ObjectiveSettings,
        *,
        known_labels: Tensor | None = None,
    ) -> ObjectiveValues | None: ...


@dataclass(frozen=True)
class Backend:
    """One way to compute the parts of the PamC loss, self-training, and what is watched of both.

    Parameters
    ----------
    name
        What it is called, for records.
    positive_log_mass, proxy, self_training, uniformity
        As :class:`PositiveLogMass`, :class:`Proxy`, :class:`SelfTraining` and :class:`Uniformity` say.
    cluster_sums
        As :func:`pamc.ops.torch_ops.cluster_sums`.
    why_unavailable
        Says why it cannot work on a device, None where it can.
    objective
        As :class:`Objective` says, where it has a faster way than the parts, one by one.
    """

    name: str
    positive_log_mass: PositiveLogMass
    cluster_sums: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
    proxy: Proxy
    self_training: SelfTraining
    uniformity: Uniformity
    why_unavailable: Callable[[torch.device], str | None]
    objective: Objective | None = None


BACKENDS: Registry[Backend] = Registry("backend")


def resolve_backend(name: str, device: torch.device) -> Backend:
    """Return the backend of a name, or the best one for the device when the name is "auto".

    Examples
    --------
    >>> resolve_backend("auto", torch.device("cpu")).name
    'torch'
    """
    if name != "auto" and name not in BACKENDS:
        raise UnknownNameError("backend", name, ["auto", *BACKENDS])
    reasons = []
    for candidate in _PREFERRED.get(device.type, _PREFERRED_ELSEWHERE) if name == "auto" else (name,):
        backend = BACKENDS[candidate]
        reason = backend.why_unavailable(device)
        if reason is None:
            return backend
        reasons.append(f"{candidate}: {reason}")
    raise BackendError(f"backend {name!r} cannot work on device {str(device)!r} ({'; '.join(reasons)})")


@contextmanager
def preferring(name: str) -> Iterator[None]:
    """Let "auto" be one backend inside, wherever it is asked for: for comparisons."""
    before = dict(_PREFERRED)
    _PREFERRED.update(dict.fromkeys(("cpu", "cuda"), (name,)))
    try:
        yield
    finally:
        _PREFERRED.clear()
        _PREFERRED.update(before)


def _why_no_sparse_products(device: torch.device) -> str | None:
    if device.type in _SPARSE_DEVICES:
        return None
    return f"torch has its sparse products on {' and '.join(_SPARSE_DEVICES)} only; move z there"


def _why_no_kernels(device: torch.device) -> str | None:
    if find_spec("triton") is None:
        return "the package triton is not installed"
    if device.type == "cuda":
        return None if _has_compiler() else "triton needs a C compiler; install gcc or clang, or name one in CC"
    # Triton reads this when kernels are defined, and runs them on the CPU, row by row, for tests.
    return None if os.environ.get("TRITON_INTERPRET") == "1" else "its kernels need a CUDA GPU"


@cache
def _has_compiler() -> bool:
    """Return whether there is what triton compiles the launchers of its kernels with."""
    return bool(os.environ.get("CC") or which("gcc") or which("clang"))


def _positive_log_mass(z: Tensor, pairs: PositivePairs, *, tau: float, self_edges: str) -> tuple[Tensor, Tensor]:
    return torch_ops.positive_log_mass(torch_ops.unit_rows(z), pairs, tau=tau, self_edges=self_edges)


def _self_training(z: Tensor, centers: Tensor, *, eta: float) -> tuple[Tensor, Tensor]:
    if z.device.type == "cpu" and len(z) * len(centers) > _MOST_ASSIGNMENTS:
        return self_training_in_blocks(z, centers, eta=eta)
    kl, log_q = self_training(z, centers, eta=eta)
    return kl, log_q.argmax(dim=1)


def _uniformity(z: Tensor, *, step: int, n_rows: int) -> Tensor:
    return uniformity(torch_ops.unit_rows(z[::step][:n_rows]))


# Modules of kernels are imported where they are used: triton need not be installed.


def _fused_positive_log_mass(z: Tensor, pairs: PositivePairs, *, tau: float, self_edges: str) -> tuple[Tensor, Tensor]:
    """Return the positives by kernels that store nothing per pair."""
    from pamc.ops import triton_ops

    return triton_ops.positive_log_mass(z, pairs, tau=tau, self_edges=self_edges)


def _fused_cluster_sums(z: Tensor, assignment: Tensor, n_clusters: int) -> tuple[Tensor, Tensor]:
    from pamc.ops import triton_clustering

    return triton_clustering.cluster_sums(z, assignment, n_clusters)


def _fused_self_training(z: Tensor, centers: Tensor, *, eta: float) -> tuple[Tensor, Tensor]:
    from pamc.ops import triton_clustering

    return triton_clustering.self_training(z, centers, eta=eta)


def _fused_proxy(meta_nodes: Tensor, mass: Tensor, *, tau: float, kind: str) -> Tensor:
    from pamc.ops import triton_proxy

    return triton_proxy.proxy(meta_nodes, mass, tau=tau, kind=kind)


def _fused_uniformity(z: Tensor, *, step: int, n_rows: int) -> Tensor:
    from pamc.ops import triton_proxy

    return triton_proxy.uniformity(z, step=step, n_rows=n_rows)


def _fused_objective(
    z: Tensor, centers: Tensor, pairs: PositivePairs, settings: ObjectiveSettings, *, known_labels: Tensor | None = None
) -> ObjectiveValues | None:
    from pamc.ops import triton_objective

    return triton_objective.objective(z, centers, pairs, settings, known_labels=known_labels)


def _dense_positive_log_mass(z: Tensor, pairs: PositivePairs, *, tau: float, self_edges: str) -> tuple[Tensor, Tensor]:
    """Return the positives by the reference. O(N²) memory."""
    off_diagonal = z.new_zeros(pairs.n_nodes, pairs.n_nodes, dtype=torch.float64)
    off_diagonal[pairs.rows, pairs.indices] = pairs.log_weight.double().exp()
    gamma = off_diagonal + torch.diag(pairs.log_self_weight.double().exp())
    log_mass = reference.log_positive_mass(z, gamma, tau=tau, self_edges=self_edges)
    distance = 2 - 2 * reference.similarity(z.detach())
    alignment = (off_diagonal * distance).sum() / torch.where(off_diagonal.any(), off_diagonal.sum(), 1.0)
    return log_mass.to(z.dtype), alignment.to(z.dtype)


def _dense_cluster_sums(z: Tensor, assignment: Tensor, n_clusters: int) -> tuple[Tensor, Tensor]:
    """Return the sums by the reference. O(N·(C + d)) memory."""
    sums = len(z) * reference.meta_nodes(z, assignment, n_clusters=n_clusters)
    ones = z.new_ones(len(z), 1)
    mass = len(z) * reference.meta_nodes(ones, assignment.detach(), n_clusters=n_clusters)[:, 0]
    return sums.to(z.dtype), mass.to(z.dtype)


def _dense_self_training(z: Tensor, centers: Tensor, *, eta: float) -> tuple[Tensor, Tensor]:
    """Return divergence and labels by the reference. O(N·C·d) memory."""
    q = reference.soft_assignment(z, centers, eta=eta)
    kl = reference.kl_divergence(reference.target_distribution(q.detach()), q)
    return kl.to(z.dtype), q.argmax(dim=1)


def _dense_proxy(meta_nodes: Tensor, mass: Tensor, *, tau: float, kind: str) -> Tensor:
    """Return the proxy by the reference."""
    return reference.proxy(meta_nodes, tau=tau, proxy=kind, mass=mass).to(meta_nodes.dtype)


for _backend in (
    Backend(
        "triton",
        positive_log_mass=_fused_positive_log_mass,
        cluster_sums=_fused_cluster_sums,
        proxy=_fused_proxy,
        self_training=_fused_self_training,
        uniformity=_fused_uniformity,
        why_unavailable=_why_no_kernels,
        objective=_fused_objective,
    ),
    Backend(
        "torch",
        positive_log_mass=_positive_log_mass,
        cluster_sums=torch_ops.cluster_sums,
        proxy=proxy,
        self_training=_self_training,
        uniformity=_uniformity,
        why_unavailable=_why_no_sparse_products,
    ),
    Backend(
        "reference",
        positive_log_mass=_dense_positive_log_mass,
        cluster_sums=_dense_cluster_sums,
        proxy=_dense_proxy,
        self_training=_dense_self_training,
        uniformity=_uniformity,
        why_unavailable=lambda device: None,
    ),
):
    BACKENDS.register(_backend.name)(_backend)
