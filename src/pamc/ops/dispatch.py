"""Backends of the PamC loss, chosen by name when the loss is called."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

from pamc.errors import BackendError, UnknownNameError
from pamc.graph.pairs import PositivePairs
from pamc.ops import reference, torch_ops
from pamc.registry import Registry

__all__ = ["BACKENDS", "Backend", "resolve_backend"]

# What "auto" tries, best first. The dense reference is never chosen for anyone, and Triton's kernels only by name until
# they have been measured on a GPU.
_PREFERRED = ("torch",)

_SPARSE_DEVICES = ("cpu", "cuda")


class PositiveLogMass(Protocol):
    """As :func:`pamc.ops.torch_ops.positive_log_mass`."""

    def __call__(self, unit: Tensor, pairs: PositivePairs, *, tau: float, self_edges: str) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class Backend:
    """One way to compute the sums of the PamC loss.

    Parameters
    ----------
    name
        What it is called, for records.
    positive_log_mass, cluster_sums
        As the functions of these names in :mod:`pamc.ops.torch_ops`. A gradient along a unit row may differ: it is lost
        when the rows are scaled to length 1.
    why_unavailable
        Says why it cannot work on a device, None where it can.
    """

    name: str
    positive_log_mass: PositiveLogMass
    cluster_sums: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
    why_unavailable: Callable[[torch.device], str | None]


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
    for candidate in _PREFERRED if name == "auto" else (name,):
        backend = BACKENDS[candidate]
        reason = backend.why_unavailable(device)
        if reason is None:
            return backend
        reasons.append(f"{candidate}: {reason}")
    raise BackendError(f"backend {name!r} cannot work on device {str(device)!r} ({'; '.join(reasons)})")


def _why_no_sparse_products(device: torch.device) -> str | None:
    if device.type in _SPARSE_DEVICES:
        return None
    return f"torch has its sparse products on {' and '.join(_SPARSE_DEVICES)} only; move z there"


def _why_no_kernels(device: torch.device) -> str | None:
    if find_spec("triton") is None:
        return "the package triton is not installed"
    # Triton reads this when kernels are defined, and runs them on the CPU, row by row, for tests.
    if device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        return None
    return "its kernels need a CUDA GPU"


def _fused_positive_log_mass(
    unit: Tensor, pairs: PositivePairs, *, tau: float, self_edges: str
) -> tuple[Tensor, Tensor]:
    """Return what :func:`pamc.ops.torch_ops.positive_log_mass` does, by kernels that store nothing per pair."""
    from pamc.ops import triton_ops  # imported where it is used: triton need not be installed

    return triton_ops.positive_log_mass(unit, pairs, tau=tau, self_edges=self_edges)


def _dense_positive_log_mass(
    unit: Tensor, pairs: PositivePairs, *, tau: float, self_edges: str
) -> tuple[Tensor, Tensor]:
    """Return what :func:`pamc.ops.torch_ops.positive_log_mass` does, by the reference. O(N²) memory."""
    off_diagonal = unit.new_zeros(pairs.n_nodes, pairs.n_nodes, dtype=torch.float64)
    off_diagonal[pairs.rows, pairs.indices] = pairs.log_weight.double().exp()
    gamma = off_diagonal + torch.diag(pairs.log_self_weight.double().exp())
    log_mass = reference.log_positive_mass(unit, gamma, tau=tau, self_edges=self_edges)
    distance = 2 - 2 * reference.similarity(unit.detach())
    alignment = (off_diagonal * distance).sum() / torch.where(off_diagonal.any(), off_diagonal.sum(), 1.0)
    return log_mass.to(unit.dtype), alignment.to(unit.dtype)


def _dense_cluster_sums(z: Tensor, assignment: Tensor, n_clusters: int) -> tuple[Tensor, Tensor]:
    """Return what :func:`pamc.ops.torch_ops.cluster_sums` does, by the reference. O(N·(C + d)) memory."""
    sums = len(z) * reference.meta_nodes(z, assignment, n_clusters=n_clusters)
    ones = z.new_ones(len(z), 1)
    mass = len(z) * reference.meta_nodes(ones, assignment.detach(), n_clusters=n_clusters)[:, 0]
    return sums.to(z.dtype), mass.to(z.dtype)


BACKENDS.register("triton")(Backend("triton", _fused_positive_log_mass, torch_ops.cluster_sums, _why_no_kernels))
BACKENDS.register("torch")(
    Backend("torch", torch_ops.positive_log_mass, torch_ops.cluster_sums, _why_no_sparse_products)
)
BACKENDS.register("reference")(Backend("reference", _dense_positive_log_mass, _dense_cluster_sums, lambda device: None))
