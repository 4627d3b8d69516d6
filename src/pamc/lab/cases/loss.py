"""Time and memory of the loss and of its positive term, hardware limits, and the gradient error of mini-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pamc.data.synthetic import block_model
from pamc.graph.positives import PositivePairs
from pamc.lab.cell import Cell, Row, Scope, register_case
from pamc.lab.measure import call_values, release
from pamc.lab.pages.style import by
from pamc.lab.providers import PROVIDERS, normal, random_pairs, random_problem
from pamc.lab.rows import fitted_row
from pamc.lab.settings import bench_cells, kind_of_device
from pamc.losses.pamc import meta_nodes, pamc_terms
from pamc.models.products import products_in_tf32
from pamc.ops.dispatch import BACKENDS
from pamc.ops.torch.rows import unit_rows

# The point that all sweeps share, and the sizes of each sweep. The degree counts stored neighbors.
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

# The N × N loss is measured only in the sweep over nodes, up to this size.
_MOST_DENSE_NODES = 20_000

# Exponents are fitted to the sizes from a sixteenth of the largest, where fixed costs are negligible.
_FITTED_RANGE = 16

# Nodes and pairs of the graphs of the positive term.
_SIZES = {"n_nodes": 1_000_000, "n_pairs": 21_000_000}
_QUICK_SIZES = {"n_nodes": 2_000, "n_pairs": 20_000}

# Target of the largest degree. Pairs that are drawn twice count once, so the result is near 10⁵.
_HUB, _QUICK_HUB = 140_000, 300
_TAU = 0.5

_COPIED_BYTES, _QUICK_BYTES = 1 << 30, 1 << 24

# Number of rows and columns of the factors of a matrix product.
_SIDES, _QUICK_SIDE = {"cuda": 8192, "cpu": 2048}, 256

# Mini-batches: a number of random batches, or one batch per block.
_N_BLOCKS = 10
_N_BATCHES = (40, 10, 4, 2, 1)
_ONE_BLOCK = "one block each"
_TERMS = ("positive", "proxy", "total")
_N_NODES, _QUICK_NODES = 4000, 600


# The providers of a point share its problem, which is created on the device and kept on the host.
_random_problem = lru_cache(maxsize=1)(lambda *sizes, device: random_problem(*sizes, device=device).to("cpu"))
_random_pairs = lru_cache(maxsize=1)(random_pairs)


def exponents(rows: Sequence[Row]) -> list[Row]:
    """Return, for each provider and sweep, the exponents of time and peak memory over its larger sizes."""
    fitted = []
    for (_, sweep), group in by(rows, lambda row: (row["provider"], row["parameters"]["sweep"])).items():
        largest = max(row["parameters"][sweep] for row in group)
        used = [row for row in group if _FITTED_RANGE * row["parameters"][sweep] >= largest]
        used.sort(key=lambda row: row["parameters"][sweep])
        if len(used) > 1:
            ratio = used[-1]["values"]["ns_per_pair"] / used[0]["values"]["ns_per_pair"]
            fitted.append(fitted_row(used, sweep, "fastest_s", ns_per_pair_ratio=ratio))
    return fitted


def loss_cells(scope: Scope) -> list[Cell]:
    """Return a cell per provider and point of each sweep."""
    kind = "quick" if scope.quick else kind_of_device(scope.device)
    measured = [
        (provider, {"sweep": sweep, **_BASES[kind], sweep: size, "precision": scope.precision})
        for sweep, sizes in _SWEEPS[kind].items()
        for size in sizes
        for provider in PROVIDERS
        if provider != "dense" or (sweep == "n_nodes" and size <= _MOST_DENSE_NODES)
    ]
    return bench_cells(scope, "loss", measured)


@register_case(
    "loss",
    "time and memory of the loss, forward and backward, over N, degree, dimensions and clusters",
    cells=loss_cells,
    sum_up=exponents,
    n_rounds=3,
)
def loss_values(cell: Cell, device: str) -> dict[str, Any]:
    """Return time and peak memory of one forward and backward pass, and the size of the stored graph."""
    place, shape = torch.device(device), cell.parameters
    problem = _random_problem(shape["n_nodes"], shape["degree"], shape["n_clusters"], device=device)
    z = normal(shape["n_nodes"], shape["n_dims"], device=place).requires_grad_()
    prepared = PROVIDERS[cell.provider].prepare(problem.to(place))
    release(place)
    with products_in_tf32(shape["precision"] == "tf32" and cell.provider in ("dense", "released")):
        values = _pass_values(lambda: torch.autograd.grad(prepared.loss(z), z), cell, place)
    n_pairs = problem.pairs.n_pairs
    return {
        **values,
        "graph_bytes": sum(tensor.nbytes for tensor in prepared.graph),
        "n_pairs": n_pairs,
        "ns_per_pair": 1e9 * values["fastest_s"] / n_pairs,
    }


def _pass_values(step: Callable[[], object], cell: Cell, device: torch.device) -> dict[str, Any]:
    return call_values(step, device, budget_s=0.05 if cell.quick else 1.0, captured=True)


def positive_cells(scope: Scope) -> list[Cell]:
    """Return a cell per graph, number of dimensions and backend."""
    sizes = _QUICK_SIZES if scope.quick else _SIZES
    shapes = [{"degrees": kind, **sizes, "n_dims": n_dims} for kind in ("uniform", "power law") for n_dims in (10, 64)]
    return bench_cells(scope, "positive", [(name, shape) for shape in shapes for name in ("torch", "triton")])


@register_case(
    "positive",
    "time, bandwidth and error of the positive term at a million nodes, uniform and power-law degrees",
    cells=positive_cells,
)
def positive_values(cell: Cell, device: str) -> dict[str, Any]:
    """Return time, peak memory, bandwidth and errors of −(1/N)·Σ log mass, forward and backward."""
    parameters, place = cell.parameters, torch.device(device)
    hub = None if parameters["degrees"] == "uniform" else _QUICK_HUB if cell.quick else _HUB
    pairs = _random_pairs(parameters["n_nodes"], parameters["n_pairs"], hub=hub, device=device)
    unit = unit_rows(normal(pairs.n_nodes, parameters["n_dims"], device=place)).requires_grad_()

    def step() -> tuple[Tensor, Tensor]:
        return _positive(cell.provider, unit, pairs)

    errors = _positive_errors(step(), unit, pairs)
    values = _pass_values(step, cell, place)
    n_bytes = moved_bytes(pairs.n_pairs, parameters["n_dims"])
    rate, ceiling = n_bytes / values["seconds"], _copy_rate(place, quick=cell.quick)["bytes_per_s"]
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
    """Return the number of bytes that both passes must read for their pairs.

    Each pass reads one index and one row of z per pair; the forward pass also γ_ij, the backward pass γ_ij and γ_ji.
    All entries have 4 bytes.
    """
    return 4 * n_pairs * ((1 + 1 + n_dims) + (1 + 2 + n_dims))


def _positive_errors(result: tuple[Tensor, Tensor], unit: Tensor, pairs: PositivePairs) -> dict[str, float]:
    """Return the errors of a value and a gradient, compared with float64."""
    exact, exact_gradient = _positive("torch", unit.detach().double().requires_grad_(), pairs.to(dtype=torch.float64))
    value, gradient = result
    return {
        "value_error": abs(float(value) - float(exact)) / max(1.0, abs(float(exact))),
        "gradient_error": float((gradient - exact_gradient).norm() / exact_gradient.norm()),
    }


def _positive(backend: str, unit: Tensor, pairs: PositivePairs) -> tuple[Tensor, Tensor]:
    log_mass, _ = BACKENDS[backend].positive_log_mass(unit, pairs, tau=_TAU, self_edges="keep")
    value = -log_mass.mean()
    return value.detach(), torch.autograd.grad(value, unit)[0]


def ceiling_cells(scope: Scope) -> list[Cell]:
    """Return a cell for the copy, and one per precision of matrix products on the device."""
    precisions = ("float32", "tf32") if kind_of_device(scope.device) == "cuda" else ("float32",)
    return bench_cells(scope, "ceilings", [("copy", {}), *(("matmul", {"precision": name}) for name in precisions)])


@register_case("ceilings", "hardware limits: bandwidth of a copy and rate of matrix products", cells=ceiling_cells)
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
    """Return the bandwidth of a copy, which reads and writes each byte once."""
    n_bytes = _QUICK_BYTES if quick else _COPIED_BYTES
    source = torch.zeros(n_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    values = call_values(lambda: target.copy_(source), device)
    return {"seconds": values["seconds"], "n_bytes": 2 * n_bytes, "bytes_per_s": 2 * n_bytes / values["seconds"]}


_copy_rate = lru_cache(maxsize=1)(copy_rate)


def minibatch_cells(scope: Scope) -> list[Cell]:
    """Return a cell per kind and size of mini-batches."""
    n_nodes = _QUICK_NODES if scope.quick else _N_NODES
    kinds = [*(("random", n_nodes // n_batches) for n_batches in _N_BATCHES), (_ONE_BLOCK, n_nodes // _N_BLOCKS)]
    return bench_cells(scope, "minibatch", [("torch", {"batches": kind, "batch_size": size}) for kind, size in kinds])


@register_case("minibatch", "gradient error of mini-batches compared with the full batch", cells=minibatch_cells)
def gradient_errors(cell: Cell, device: str) -> dict[str, Any]:
    """Return the relative error of the mean gradient of mini-batches, and the share of pairs inside batches.

    Every batch uses the meta-nodes of all rows. The gradient of the proxy is then exact, but the positive term misses
    the pairs that cross batches.
    """
    n_nodes = _QUICK_NODES if cell.quick else _N_NODES
    graph = block_model(n_nodes, _N_BLOCKS, random_state=cell.seed)
    edges, labels = torch.from_numpy(graph.edges), torch.from_numpy(graph.labels)
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    generator = torch.Generator().manual_seed(cell.seed)
    centers = torch.randn(_N_BLOCKS, 10, generator=generator, dtype=torch.float64)
    z = centers[labels] + torch.randn(n_nodes, 10, generator=generator, dtype=torch.float64)
    order, size = torch.randperm(n_nodes, generator=generator), cell.parameters["batch_size"]
    batches: Sequence[Tensor] = torch.split(order, size)
    if cell.parameters["batches"] == _ONE_BLOCK:
        batches = [(labels == block).nonzero()[:, 0] for block in range(_N_BLOCKS)]
    full, _ = _mean_gradients(z, edges, labels, [torch.arange(n_nodes)])
    mean, share_inside = _mean_gradients(z, edges, labels, batches)
    errors = {f"{name}_error": float((mean[name] - full[name]).norm() / full[name].norm()) for name in _TERMS}
    return {"kept_pairs": share_inside, **errors}


def _mean_gradients(
    z: Tensor, edges: Tensor, labels: Tensor, batches: Sequence[Tensor]
) -> tuple[dict[str, Tensor], float]:
    """Return the mean over the batches of the gradient of each term, and the share of edges inside batches."""
    nodes = meta_nodes(z, labels)
    means = {name: torch.zeros_like(z) for name in _TERMS}
    position = torch.empty(len(z), dtype=torch.int64)
    n_inside = 0
    for batch in batches:
        position.fill_(-1)
        position[batch] = torch.arange(len(batch))
        inside = position[edges]
        inside = inside[:, (inside >= 0).all(dim=0)]
        n_inside += inside.shape[1]
        batch_z = z[batch].requires_grad_()
        terms = pamc_terms(batch_z, inside, labels[batch], tau=1.0, meta_nodes=nodes)
        for name in _TERMS:
            gradient = torch.autograd.grad(getattr(terms, name), batch_z, retain_graph=True)[0]
            means[name][batch] = gradient / len(batches)
    return means, n_inside / edges.shape[1]
