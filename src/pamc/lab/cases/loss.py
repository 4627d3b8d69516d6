"""The loss alone, its positive term alone, and what the machine can do: bandwidth and rate of matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pamc.graph.positives import PositivePairs
from pamc.lab.cell import Cell, Row, Scope, register_case
from pamc.lab.measure import call_values, fitted_exponent, release
from pamc.lab.pages.style import by
from pamc.lab.problems import Problem, normal, random_pairs, random_problem
from pamc.lab.providers import PROVIDERS
from pamc.lab.rows import derived_row
from pamc.lab.settings import kind_of_device
from pamc.models.products import products_in_tf32
from pamc.ops.dispatch import BACKENDS
from pamc.ops.torch.rows import unit_rows

__all__ = ["ceiling_values", "copy_rate", "exponents", "loss_values", "moved_bytes", "positive_values"]

# The point through which all sweeps go, and what each varies. The degree counts stored neighbors.
_BASE = {"degree": 20, "n_dims": 10, "n_clusters": 10}
_BASES = {
    "cuda": {"n_nodes": 200_000, **_BASE},
    "cpu": {"n_nodes": 40_000, **_BASE},
    "quick": {"n_nodes": 2_000, **_BASE, "degree": 10},
}
_SWEEP = {"degree": (20, 40, 80), "n_dims": (16, 32, 64), "n_clusters": (10, 20, 40, 80)}
_SWEEPS: dict[str, dict[str, tuple[int, ...]]] = {
    "cuda": {"n_nodes": (5_000, 10_000, 20_000, 80_000, 320_000, 1_280_000), **_SWEEP},
    "cpu": {"n_nodes": (5_000, 10_000, 20_000, 80_000, 160_000, 320_000), **_SWEEP},
    "quick": {"n_nodes": (1_000, 2_000, 4_000), "degree": (10, 20), "n_dims": (10, 20), "n_clusters": (10, 20)},
}

# The N × N loss is measured over nodes alone, up to this many.
_MOST_DENSE_NODES = 20_000

# An exponent is fitted to the sizes from a sixteenth of the largest on, where fixed costs no longer count.
_FITTED_RANGE = 16

# Nodes and pairs of the positive term's graphs.
_SIZES = {"n_nodes": 1_000_000, "n_pairs": 21_000_000}
_QUICK_SIZES = {"n_nodes": 2_000, "n_pairs": 20_000}

# What the degrees are drawn for: pairs that are drawn twice count once, so that the largest comes out near 10⁵.
_HUB, _QUICK_HUB = 140_000, 300

_TAU = 0.5
_INDEX_BYTES = _WEIGHT_BYTES = 4

_COPIED_BYTES = 1 << 30
_QUICK_BYTES = 1 << 24

# Rows and columns of the factors.
_SIDES = {"cuda": 8192, "cpu": 2048}
_QUICK_SIDE = 256


def exponents(rows: Sequence[Row]) -> list[Row]:
    """Return, for each provider and sweep, the exponents of time and peak memory over its larger sizes."""
    found = []
    for (_, sweep), group in by(rows, lambda row: (row["provider"], row["parameters"]["sweep"])).items():
        largest = max(row["parameters"][sweep] for row in group)
        used = [row for row in group if _FITTED_RANGE * row["parameters"][sweep] >= largest]
        used.sort(key=lambda row: row["parameters"][sweep])
        sizes = [row["parameters"][sweep] for row in used]
        if len(used) < 2:
            continue
        values = {"time_exponent": fitted_exponent(sizes, [row["values"]["fastest_s"] for row in used])}
        memory = [row["values"]["peak_bytes"] for row in used]
        if all(memory):
            values["memory_exponent"] = fitted_exponent(sizes, memory)
        per_pair = [row["values"]["ns_per_pair"] for row in used]
        values["ns_per_pair_ratio"] = per_pair[-1] / per_pair[0]
        parameters = {**used[-1]["parameters"], sweep: [sizes[0], sizes[-1]]}
        found.append(derived_row(used[-1], parameters=parameters, values=values))
    return found


def loss_cells(scope: Scope) -> list[Cell]:
    """Return a cell per provider and point of each sweep."""
    kind = "quick" if scope.quick else kind_of_device(scope.device)
    return [
        Cell(
            "loss",
            "loss",
            provider,
            parameters={"sweep": sweep, **_BASES[kind], sweep: size, "precision": scope.precision},
            quick=scope.quick,
        )
        for sweep, sizes in _SWEEPS[kind].items()
        for size in sizes
        for provider in PROVIDERS
        if provider != "dense" or (sweep == "n_nodes" and size <= _MOST_DENSE_NODES)
    ]


@register_case(
    "loss",
    "the loss alone, forward and backward: time and memory over N, degree, dimensions, clusters",
    cells=loss_cells,
    sum_up=exponents,
    n_rounds=3,
)
def loss_values(cell: Cell, device: str) -> dict[str, Any]:
    """Return time and peak memory of one forward and backward pass, and what is held of the graph between passes."""
    place, shape = torch.device(device), cell.parameters
    on_host = _problem(shape["n_nodes"], shape["degree"], shape["n_clusters"], device)
    z = normal(shape["n_nodes"], shape["n_dims"], device=place).requires_grad_()
    prepared = PROVIDERS[cell.provider].prepare(on_host.to(place))
    release(place)

    def step() -> None:
        torch.autograd.grad(prepared.loss(z), z)

    with products_in_tf32(shape["precision"] == "tf32" and cell.provider in ("dense", "released")):
        values = call_values(step, place, budget_s=0.05 if cell.quick else 1.0, captured=True)
    n_pairs = on_host.pairs.n_pairs
    more = {"graph_bytes": prepared.held_bytes, "n_pairs": n_pairs, "ns_per_pair": 1e9 * values["fastest_s"] / n_pairs}
    return {**values, **more}


@lru_cache(maxsize=1)
def _problem(n_nodes: int, degree: int, n_clusters: int, device: str) -> Problem:
    """Return the problem on the host, made where it is fast; the providers of a point share it."""
    return random_problem(n_nodes, degree, n_clusters, device=device).to("cpu")


def positive_cells(scope: Scope) -> list[Cell]:
    """Return a cell per graph, number of dimensions and backend."""
    sizes = _QUICK_SIZES if scope.quick else _SIZES
    return [
        Cell(
            "positive",
            "positive",
            provider,
            parameters={"degrees": degrees, **sizes, "n_dims": n_dims},
            quick=scope.quick,
        )
        for degrees in ("uniform", "power law")
        for n_dims in (10, 64)
        for provider in ("torch", "triton")
    ]


@register_case(
    "positive",
    "the positive term alone at a million nodes: time, bandwidth, error, uniform and power-law",
    cells=positive_cells,
)
def positive_values(cell: Cell, device: str) -> dict[str, Any]:
    """Return time, peak memory, bandwidth and errors of −(1/N)·Σ log mass, forward and backward."""
    n_dims, place = cell.parameters["n_dims"], torch.device(device)
    hub = None if cell.parameters["degrees"] == "uniform" else _QUICK_HUB if cell.quick else _HUB
    pairs = _pairs(cell.parameters["n_nodes"], cell.parameters["n_pairs"], hub, device)
    unit = unit_rows(normal(pairs.n_nodes, n_dims, device=place)).requires_grad_()

    def step() -> tuple[Tensor, Tensor]:
        value = _positive(cell.provider, unit, pairs)
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
    values = call_values(step, place, budget_s=0.05 if cell.quick else 1.0, captured=True)
    n_bytes = moved_bytes(pairs.n_pairs, n_dims)
    rate, ceiling = n_bytes / values["seconds"], _copy_rate(device, cell.quick)
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


def ceiling_cells(scope: Scope) -> list[Cell]:
    """Return the copy, and the product in each precision that the device has."""
    precisions = ("float32", "tf32") if kind_of_device(scope.device) == "cuda" else ("float32",)
    measured = [("copy", {}), *(("matmul", {"precision": each}) for each in precisions)]
    return [
        Cell("ceilings", "ceilings", provider, parameters=parameters, quick=scope.quick)
        for provider, parameters in measured
    ]


@register_case("ceilings", "what the machine can do: bandwidth of a copy, rate of matrix products", cells=ceiling_cells)
def ceiling_values(cell: Cell, device: str) -> dict[str, Any]:
    """Return the rate of a copy, or of a square matrix product."""
    place = torch.device(device)
    if cell.provider == "copy":
        return copy_rate(place, quick=cell.quick)
    side = _QUICK_SIDE if cell.quick else _SIDES[place.type]
    a, b = (normal(side, side, device=place, seed=seed) for seed in range(2))
    out = torch.empty_like(a)
    with products_in_tf32(cell.parameters["precision"] == "tf32"):
        seconds = call_values(lambda: torch.mm(a, b, out=out), place)["seconds"]
    return {"seconds": seconds, "side": side, "flop_per_s": 2 * side**3 / seconds}


def copy_rate(device: torch.device, *, quick: bool = False) -> dict[str, Any]:
    """Return the bandwidth of a copy: each byte is read once and written once."""
    n_bytes = _QUICK_BYTES if quick else _COPIED_BYTES
    source = torch.zeros(n_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    values = call_values(lambda: target.copy_(source), device)
    return {"seconds": values["seconds"], "n_bytes": 2 * n_bytes, "bytes_per_s": 2 * n_bytes / values["seconds"]}
