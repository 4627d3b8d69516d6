"""Selection of the backend of an op, resolved once per name and device and then cached."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from shutil import which
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pamc.errors import BackendError, UnknownNameError
from pamc.graph.positives import PairShard, PositivePairs
from pamc.ops import reference
from pamc.ops.group import ProcessGroup, sum_over
from pamc.ops.torch import clustering, linear, positives, proxy, rows
from pamc.registry import Registry

# Backends that "auto" tries on a type of device, best first. The dense reference and Triton's interpreter are never
# selected automatically.
_PREFERRED: dict[str, tuple[str, ...]] = {"cuda": ("triton", "torch")}
_PREFERRED_ELSEWHERE = ("torch",)

# Maximum width of a layer whose product and gradient are limited by memory writes, so that one kernel is faster.
_NARROW = 64


# Names of the values in :attr:`ObjectiveValues.numbers`, in order.
NUMBERS = ("loss", "positive", "proxy", "kl", "alignment", "uniformity", "center_distance", "n_nonempty")


class ObjectiveValues(NamedTuple):
    """The value of Eq 12 and the quantities monitored with it.

    Parameters
    ----------
    total
        () α·contrast + β·KL, with gradient.
    numbers
        (8,) values named by :data:`NUMBERS`, without gradient.
    labels
        (N,) int64 labels, the argmax of q.
    """

    total: Tensor
    numbers: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Backend:
    """An implementation of the parts of the PamC loss, of self-training, and of the monitored quantities.

    Parameters
    ----------
    name
        Name of the backend, for records.
    positive_log_mass
        As :func:`pamc.ops.torch.positives.positive_log_mass`, but accepts rows of any length and normalizes them.
    cluster_sums, self_training
        As in :mod:`pamc.ops.torch.clustering`.
    proxy, uniformity
        As in :mod:`pamc.ops.torch.proxy`.
    why_unavailable
        Function that returns the reason why the backend cannot be used on a device, or None if it can.
    objective
        As :func:`pamc.ops.triton.objective.objective`, if the backend has a faster way than combining the parts.
    """

    name: str
    positive_log_mass: Callable[..., tuple[Tensor, Tensor]]
    cluster_sums: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
    proxy: Callable[..., Tensor]
    self_training: Callable[..., tuple[Tensor, Tensor]]
    uniformity: Callable[..., Tensor]
    why_unavailable: Callable[[torch.device], str | None]
    objective: Callable[..., ObjectiveValues | None] | None = None


BACKENDS: Registry[Backend] = Registry("backend")


def resolve_backend(name: str | Backend, device: torch.device) -> Backend:
    """Return the backend of a name, or the best one for the device if the name is "auto"; a Backend is returned as is.

    The result for each name and device is cached, because installed packages do not change while a program runs.

    Examples
    --------
    >>> resolve_backend("auto", torch.device("cpu")).name
    'torch'
    """
    return name if isinstance(name, Backend) else _resolved(name, device)


@cache
def _resolved(name: str, device: torch.device) -> Backend:
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
    """Make "auto" resolve to the given backend inside the context, for comparisons."""
    before = dict(_PREFERRED)
    _PREFERRED.update(dict.fromkeys(("cpu", "cuda"), (name,)))
    _resolved.cache_clear()
    try:
        yield
    finally:
        _PREFERRED.clear()
        _PREFERRED.update(before)
        _resolved.cache_clear()


def _automatic_op(stem: str, name: str) -> Any:
    """Return a function that dispatches to the op of this name for the device of its first argument."""

    def op(first: Tensor, *others: Tensor) -> Any:
        package = "triton" if resolve_backend("auto", first.device).name == "triton" else "torch"
        return getattr(import_module(f"pamc.ops.{package}.{stem}"), name)(first, *others)

    return op


# The functions of these names in :mod:`pamc.ops.torch`, computed by one or two kernels on a GPU.
with_changes: Callable[[Tensor, Tensor, Tensor], Tensor] = _automatic_op("clustering", "with_changes")
relu_backward: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = _automatic_op("linear", "relu_backward")
_transposed: Callable[[Tensor], Tensor] = _automatic_op("linear", "transposed")


def transposed(x: Tensor) -> Tensor:
    """Return the result of :func:`pamc.ops.torch.linear.transposed`, computed tile by tile on a GPU."""
    return _transposed(x) if x.is_floating_point() else linear.transposed(x)


def is_narrow(x: Tensor) -> bool:
    """Return whether x (N, k) is so narrow that :func:`narrow_product` and :func:`relu_linear_backward` are faster."""
    fits = x.shape[1] <= _NARROW and x.dtype in (torch.float32, torch.bfloat16)
    return fits and resolve_backend("auto", x.device).name == "triton"


def _kernel_op(stem: str, name: str) -> Any:
    """Return a function of :mod:`pamc.ops.triton` that is imported when called, because triton is optional."""

    def op(*arguments: Any, **options: Any) -> Any:
        return getattr(import_module(f"pamc.ops.triton.{stem}"), name)(*arguments, **options)

    return op


# The functions of these names in :mod:`pamc.ops.triton.linear`; call them only if :func:`is_narrow`.
narrow_product: Callable[[Tensor, Tensor, Tensor], Tensor] = _kernel_op("linear", "narrow_product")
relu_linear_backward: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor]] = _kernel_op(
    "linear", "relu_linear_backward"
)


def _why_no_sparse_products(device: torch.device) -> str | None:
    if device.type in ("cpu", "cuda"):
        return None
    return "torch supports sparse products only on cpu and cuda; move z to one of them"


def _why_no_kernels(device: torch.device) -> str | None:
    if find_spec("triton") is None:
        return "the package triton is not installed"
    if device.type == "cuda":
        return None if _has_compiler() else "triton needs a C compiler; install gcc or clang, or name one in CC"
    # Triton reads this variable when kernels are defined, and interprets them on the CPU, for tests.
    return None if os.environ.get("TRITON_INTERPRET") == "1" else "its kernels need a CUDA GPU"


@cache
def _has_compiler() -> bool:
    """Return whether there is a C compiler, with which triton compiles the launchers of its kernels."""
    return bool(os.environ.get("CC") or which("gcc") or which("clang"))


def _positive_log_mass(z: Tensor, pairs: PositivePairs | PairShard, **options: Any) -> tuple[Tensor, Tensor]:
    return positives.positive_log_mass(rows.unit_rows(z), pairs, **options)


def over_processes(group: ProcessGroup, pairs: PairShard) -> Backend:
    """Return the "torch" backend for a process that has some of the rows; its values are those of all rows.

    Gradients in z and assignments are those of the rows of this process; gradients in centers are its contribution.
    """

    def shared_sums(z: Tensor, assignment: Tensor, n_clusters: int) -> tuple[Tensor, Tensor]:
        sums, mass = clustering.cluster_sums(z, assignment, n_clusters)
        total = sum_over(torch.cat([sums, mass[:, None]], dim=1), group)
        return total[:, :-1], total[:, -1].detach()

    def shared_uniformity(z: Tensor, *, step: int, n_rows: int) -> Tensor:
        first, stop = pairs.first_row, pairs.first_row + len(z)
        begin, end = (min(n_rows, -(-row // step)) for row in (first, stop))
        sample = z.new_zeros(n_rows, z.shape[1])
        sample[begin:end] = z[begin * step - first :: step][: end - begin]
        return proxy.uniformity(group.sum(sample), step=1, n_rows=n_rows)

    return replace(
        BACKENDS["torch"],
        positive_log_mass=partial(_positive_log_mass, group=group),
        cluster_sums=shared_sums,
        self_training=partial(clustering.self_training, group=group),
        uniformity=shared_uniformity,
    )


def _dense_positive_log_mass(z: Tensor, pairs: PositivePairs, *, tau: float, self_edges: str) -> tuple[Tensor, Tensor]:
    """Return the log masses computed by the dense reference. O(N²) memory."""
    off_diagonal = z.new_zeros(pairs.n_nodes, pairs.n_nodes, dtype=torch.float64)
    off_diagonal[pairs.rows, pairs.indices] = pairs.log_weight.double().exp()
    gamma = off_diagonal + torch.diag(pairs.log_self_weight.double().exp())
    log_mass = reference.log_positive_mass(z, gamma, tau=tau, self_edges=self_edges)
    distance = 2 - 2 * reference.similarity(z.detach())
    alignment = (off_diagonal * distance).sum() / torch.where(off_diagonal.any(), off_diagonal.sum(), 1.0)
    return log_mass.to(z.dtype), alignment.to(z.dtype)


def _dense_cluster_sums(z: Tensor, assignment: Tensor, n_clusters: int) -> tuple[Tensor, Tensor]:
    """Return the sums computed by the dense reference. O(N·(C + d)) memory."""
    sums = len(z) * reference.meta_nodes(z, assignment, n_clusters=n_clusters)
    ones = z.new_ones(len(z), 1)
    mass = len(z) * reference.meta_nodes(ones, assignment.detach(), n_clusters=n_clusters)[:, 0]
    return sums.to(z.dtype), mass.to(z.dtype)


def _dense_self_training(z: Tensor, centers: Tensor, *, eta: float) -> tuple[Tensor, Tensor]:
    """Return the divergence and the labels computed by the dense reference. O(N·C·d) memory."""
    q = reference.soft_assignment(z, centers, eta=eta)
    kl = reference.kl_divergence(reference.target_distribution(q.detach()), q)
    return kl.to(z.dtype), q.argmax(dim=1)


def _dense_proxy(meta_nodes: Tensor, mass: Tensor, *, tau: float, kind: str) -> Tensor:
    """Return the proxy computed by the dense reference."""
    return reference.proxy(meta_nodes, tau=tau, proxy=kind, mass=mass).to(meta_nodes.dtype)


for _backend in (
    Backend(
        "triton",
        positive_log_mass=_kernel_op("positives", "positive_log_mass"),
        cluster_sums=_kernel_op("clustering", "cluster_sums"),
        proxy=_kernel_op("proxy", "proxy"),
        self_training=_kernel_op("clustering", "self_training"),
        uniformity=_kernel_op("proxy", "uniformity"),
        why_unavailable=_why_no_kernels,
        objective=_kernel_op("objective", "objective"),
    ),
    Backend(
        "torch",
        positive_log_mass=_positive_log_mass,
        cluster_sums=clustering.cluster_sums,
        proxy=proxy.proxy,
        self_training=clustering.self_training,
        uniformity=proxy.uniformity,
        why_unavailable=_why_no_sparse_products,
    ),
    Backend(
        "reference",
        positive_log_mass=_dense_positive_log_mass,
        cluster_sums=_dense_cluster_sums,
        proxy=_dense_proxy,
        self_training=_dense_self_training,
        uniformity=proxy.uniformity,
        why_unavailable=lambda device: None,
    ),
):
    BACKENDS.register(_backend.name)(_backend)
