"""Cheap checks: K-means against the paper's row, the cost of importing pamc, the bias of mini-batches."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from pamc.data.synthetic import block_model
from pamc.lab.cell import Cell, Scope, register_case
from pamc.lab.measure import median
from pamc.lab.settings import load, n_classes, seeds_of
from pamc.losses.pamc import meta_nodes, pamc_terms
from pamc.results.metrics import evaluate

__all__ = ["gradient_errors", "import_time", "kmeans"]

_KMEANS_SETS = ("dblp", "acm", "usps", "hhar", "cite")

_N_BLOCKS = 10
_N_BATCHES = (40, 10, 4, 2, 1)
_ONE_BLOCK = "one block each"
_TERMS = ("positive", "proxy", "total")
_N_NODES, _QUICK_NODES = 4000, 600


def kmeans_cells(scope: Scope) -> list[Cell]:
    """Return a cell per data set and seed."""
    names = scope.data_sets or (("digits",) if scope.quick else _KMEANS_SETS)
    return [
        Cell("kmeans", "kmeans", "kmeans", name, seed, quick=scope.quick)
        for name in names
        for seed in seeds_of(scope, 10)
    ]


@register_case("kmeans", "K-means on raw features against the paper's row", cells=kmeans_cells)
def kmeans(cell: Cell, device: str) -> dict[str, Any]:
    """Return the metrics of K-means on raw features (20 starts), the check that data and metrics are the paper's."""
    graph = load(cell.data_set, cell.quick)
    labels = KMeans(n_classes(graph), n_init=20, random_state=cell.seed).fit_predict(graph.features)
    return dict(evaluate(np.asarray(graph.labels), labels))


def import_cells(scope: Scope) -> list[Cell]:
    """Return the one cell."""
    return [Cell("import", "import", "pamc", quick=scope.quick)]


@register_case("import", "what importing pamc costs", cells=import_cells)
def import_time(cell: Cell, device: str) -> dict[str, Any]:
    """Return the seconds that `import pamc` adds to importing torch, in fresh processes."""
    seconds: dict[str, list[float]] = {"import torch": [], "import torch, pamc": []}
    for _ in range(2 if cell.quick else 7):
        for code, own in seconds.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
            own.append(time.perf_counter() - started)
    torch_s, both_s = map(median, seconds.values())
    return {"added_s": both_s - torch_s, "torch_s": torch_s}


def minibatch_cells(scope: Scope) -> list[Cell]:
    """Return a cell per kind and size of batches."""
    n_nodes = _QUICK_NODES if scope.quick else _N_NODES
    kinds = [("random", n_nodes // n_batches) for n_batches in _N_BATCHES]
    return [
        Cell("minibatch", "minibatch", "torch", parameters={"batches": kind, "batch_size": size}, quick=scope.quick)
        for kind, size in (*kinds, (_ONE_BLOCK, n_nodes // _N_BLOCKS))
    ]


@register_case("minibatch", "bias of mini-batches against full batch", cells=minibatch_cells)
def gradient_errors(cell: Cell, device: str) -> dict[str, Any]:
    """Return how far the mean gradient of mini-batches is from that of the full batch, and the share of pairs kept.

    The meta-nodes are those of all rows, given to every batch. The proxy's gradient is then exact; the positive term
    misses the pairs that leave a batch.
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
    mean, kept = _mean_gradients(z, edges, labels, batches)
    errors = {f"{name}_error": float((mean[name] - full[name]).norm() / full[name].norm()) for name in _TERMS}
    return {"kept_pairs": kept, **errors}


def _mean_gradients(
    z: Tensor, edges: Tensor, labels: Tensor, batches: Sequence[Tensor], *, tau: float = 1.0
) -> tuple[dict[str, Tensor], float]:
    """Return the mean over the batches of the gradient of each term, and the share of edges inside batches."""
    nodes = meta_nodes(z, labels)
    means = {name: torch.zeros_like(z) for name in _TERMS}
    place = torch.empty(len(z), dtype=torch.int64)
    n_kept = 0
    for batch in batches:
        place.fill_(-1)
        place[batch] = torch.arange(len(batch))
        inside = place[edges]
        inside = inside[:, (inside >= 0).all(dim=0)]
        n_kept += inside.shape[1]
        own = z[batch].requires_grad_()
        terms = pamc_terms(own, inside, labels[batch], tau=tau, meta_nodes=nodes)
        for name in _TERMS:
            gradient = torch.autograd.grad(getattr(terms, name), own, retain_graph=True)[0]
            means[name][batch] = gradient / len(batches)
    return means, n_kept / edges.shape[1]
