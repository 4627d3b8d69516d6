"""The loss alone, forward and backward, over nodes, degree, dimensions and clusters, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from pamc.bench.case import Cell, Scope, register_case
from pamc.bench.measure import call_values, fitted_exponent, release
from pamc.bench.problems import Problem, normal, random_problem
from pamc.bench.providers import PROVIDERS
from pamc.bench.rows import Row
from pamc.models.products import products_in_tf32

__all__ = ["cells", "exponents", "loss_values"]

# The point through which all sweeps go, and what each varies. The degree counts stored neighbors.
_BASES = {
    "cuda": {"n_nodes": 200_000, "degree": 20, "n_dims": 10, "n_clusters": 10},
    "cpu": {"n_nodes": 40_000, "degree": 20, "n_dims": 10, "n_clusters": 10},
    "quick": {"n_nodes": 2_000, "degree": 10, "n_dims": 10, "n_clusters": 10},
}
_SWEEPS: dict[str, dict[str, tuple[int, ...]]] = {
    "cuda": {
        "n_nodes": (5_000, 10_000, 20_000, 80_000, 320_000, 1_280_000),
        "degree": (20, 40, 80),
        "n_dims": (16, 32, 64),
        "n_clusters": (10, 20, 40, 80),
    },
    "cpu": {
        "n_nodes": (5_000, 10_000, 20_000, 80_000, 160_000, 320_000),
        "degree": (20, 40, 80),
        "n_dims": (16, 32, 64),
        "n_clusters": (10, 20, 40, 80),
    },
    "quick": {
        "n_nodes": (1_000, 2_000, 4_000),
        "degree": (10, 20),
        "n_dims": (10, 20),
        "n_clusters": (10, 20),
    },
}

# The N × N loss is measured over nodes alone, up to this many.
_MOST_DENSE_NODES = 20_000

# An exponent is fitted to the sizes from a sixteenth of the largest on, where fixed costs no longer count.
_FITTED_RANGE = 16


def exponents(rows: Sequence[Row]) -> list[Row]:
    """Return, for each provider and sweep, the exponents of time and peak memory over its larger sizes."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["provider"], row["parameters"]["sweep"]), []).append(row)
    found = []
    for (provider, sweep), group in groups.items():
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
        found.append({"provider": provider, "parameters": parameters, "values": values})
    return found


@register_case(
    "loss",
    "the loss alone, forward and backward: time and memory over N, degree, dimensions, clusters",
    sum_up=exponents,
    n_rounds=3,
)
def cells(scope: Scope) -> list[Cell]:
    """Return a cell per provider and point of each sweep."""
    kind = "quick" if scope.quick else scope.device.type
    found = []
    for sweep, sizes in _SWEEPS[kind].items():
        for size in sizes:
            shape = {**_BASES[kind], sweep: size}
            for provider in PROVIDERS:
                if provider == "dense" and (sweep != "n_nodes" or size > _MOST_DENSE_NODES):
                    continue
                parameters = {"sweep": sweep, **shape, "precision": scope.precision}
                found.append(_cell(provider, parameters, shape, scope))
    return found


def _cell(provider: str, parameters: dict[str, Any], shape: dict[str, int], scope: Scope) -> Cell:
    return Cell(provider, parameters, lambda: loss_values(provider, scope, **shape))


def loss_values(
    provider: str, scope: Scope, *, n_nodes: int, degree: int, n_dims: int, n_clusters: int
) -> dict[str, Any]:
    """Return time and peak memory of one forward and backward pass, and what is held of the graph between passes."""
    device = scope.device
    on_host = _problem(n_nodes, degree, n_clusters, str(device))
    z = normal(n_nodes, n_dims, device=device).requires_grad_()
    prepared = PROVIDERS[provider].prepare(on_host.to(device))
    release(device)

    def step() -> None:
        torch.autograd.grad(prepared.loss(z), z)

    budget_s = 0.05 if scope.quick else 1.0
    with products_in_tf32(scope.precision == "tf32" and provider in ("dense", "released")):
        values = call_values(step, device, budget_s=budget_s, captured=True)
    n_pairs = on_host.pairs.n_pairs
    more = {"graph_bytes": prepared.held_bytes, "n_pairs": n_pairs, "ns_per_pair": 1e9 * values["fastest_s"] / n_pairs}
    return {**values, **more}


@lru_cache(maxsize=1)
def _problem(n_nodes: int, degree: int, n_clusters: int, device: str) -> Problem:
    """Return the problem on the host, made where it is fast; the providers of a point share it."""
    return random_problem(n_nodes, degree, n_clusters, device=device).to("cpu")
