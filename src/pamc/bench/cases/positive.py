"""The positive term alone at a million nodes: time, memory, bandwidth, error."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pamc.bench.case import Cell, Scope, register_case
from pamc.bench.cases.ceilings import copy_rate
from pamc.bench.measure import call_values
from pamc.bench.problems import normal, random_pairs
from pamc.graph.positives import PositivePairs
from pamc.ops.dispatch import BACKENDS
from pamc.ops.torch.rows import unit_rows

__all__ = ["cells", "moved_bytes", "positive_values"]

_SIZES = {"n_nodes": 1_000_000, "n_pairs": 21_000_000}
_QUICK_SIZES = {"n_nodes": 2_000, "n_pairs": 20_000}

# What the degrees are drawn for: pairs that are drawn twice count once, so that the largest comes out near 10⁵.
_HUB, _QUICK_HUB = 140_000, 300

_TAU = 0.5
_INDEX_BYTES = _WEIGHT_BYTES = 4


@register_case("positive", "the positive term alone at a million nodes: time, bandwidth, error, uniform and power-law")
def cells(scope: Scope) -> list[Cell]:
    """Return a cell per graph, number of dimensions and backend."""
    sizes = _QUICK_SIZES if scope.quick else _SIZES
    hubs = {"uniform": None, "power law": _QUICK_HUB if scope.quick else _HUB}
    found = []
    for degrees, hub in hubs.items():
        for n_dims in (10, 64):
            for provider in ("torch", "triton"):
                parameters = {"degrees": degrees, **sizes, "n_dims": n_dims}
                found.append(_cell(provider, parameters, hub, scope))
    return found


def _cell(provider: str, parameters: dict[str, Any], hub: int | None, scope: Scope) -> Cell:
    sizes = (parameters["n_nodes"], parameters["n_pairs"], hub, str(scope.device))
    return Cell(provider, parameters, lambda: positive_values(provider, _pairs(*sizes), parameters["n_dims"], scope))


def positive_values(backend: str, pairs: PositivePairs, n_dims: int, scope: Scope) -> dict[str, Any]:
    """Return time, peak memory, bandwidth and errors of −(1/N)·Σ log mass, forward and backward."""
    device = scope.device
    unit = unit_rows(normal(pairs.n_nodes, n_dims, device=device)).requires_grad_()

    def step() -> tuple[Tensor, Tensor]:
        value = _positive(backend, unit, pairs)
        return value.detach(), torch.autograd.grad(value, unit)[0]

    value, gradient = step()
    exact = unit.detach().double().requires_grad_()
    exact_value = _positive("torch", exact, pairs.to(dtype=torch.float64))
    (exact_gradient,) = torch.autograd.grad(exact_value, exact)
    expected = float(exact_value.detach())
    errors = {
        "value_error": abs(float(value) - expected) / max(1.0, abs(expected)),
        "gradient_error": float((gradient - exact_gradient).norm() / exact_gradient.norm()),
    }
    del value, gradient, exact, exact_value, exact_gradient
    values = call_values(step, device, budget_s=0.05 if scope.quick else 1.0, captured=True)
    n_bytes = moved_bytes(pairs.n_pairs, n_dims)
    rate = n_bytes / values["seconds"]
    ceiling = _copy_rate(str(device), scope.quick)
    return {
        **values,
        **errors,
        "n_bytes": n_bytes,
        "bytes_per_s": rate,
        "copy_bytes_per_s": ceiling,
        "share_of_copy": rate / ceiling,
        "max_degree": int(pairs.indptr.diff().max()),
    }


def moved_bytes(n_pairs: int, n_dims: int) -> int:
    """Return the bytes that both passes must read for their pairs.

    Per pair and pass one index and one row of z; forward γ_ij, backward γ_ij and γ_ji.
    """
    row = 4 * n_dims
    forward = _INDEX_BYTES + _WEIGHT_BYTES + row
    backward = _INDEX_BYTES + 2 * _WEIGHT_BYTES + row
    return n_pairs * (forward + backward)


def _positive(backend: str, unit: Tensor, pairs: PositivePairs) -> Tensor:
    log_mass, _ = BACKENDS[backend].positive_log_mass(unit, pairs, tau=_TAU, self_edges="keep")
    return -log_mass.mean()


@lru_cache(maxsize=1)
def _pairs(n_nodes: int, n_pairs: int, hub: int | None, device: str) -> PositivePairs:
    return random_pairs(n_nodes, n_pairs, hub=hub, device=device)


@lru_cache(maxsize=1)
def _copy_rate(device: str, quick: bool) -> float:
    return float(copy_rate(torch.device(device), quick=quick)["bytes_per_s"])
