"""Approximate beside exact nearest neighbors.

Rows of length 1 in 50 columns: clusters whose spread falls off from column to column, as that of leading directions
does, and, at the smallest size, rows spread evenly, which no index can divide. Where faiss is installed its IVF-flat
index is measured too, with the fewest probes (a power of two) that find 95 % of the neighbors, chosen outside the time.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pamc.graph.approximate import approximate_neighbors
from pamc.graph.knn import knn_edges
from pamc.graph.on_device import nearest_on
from pamc.lab.cell import Cell, Scope, register_case
from pamc.lab.settings import kind_of_device

__all__ = ["cells", "neighbors"]

SIZES = (50_000, 100_000, 200_000)
QUICK_SIZES = (600,)
N_COLUMNS = 50
N_CLUSTERS = 20
N_NEIGHBORS = 10
WANTED_RECALL = 0.95
# knn_edges compares in float64, in one order of sums whatever the threads, and takes minutes beyond.
MOST_ROWS_IN_FLOAT64 = 50_000
N_ASKED = 1000
_FAISS_NAME = "faiss {} IVF-flat"

Rows = NDArray[np.float64]


def cells(scope: Scope) -> list[Cell]:
    """Return a cell per size, kind of rows and provider."""
    sizes, on_cpu = QUICK_SIZES if scope.quick else SIZES, kind_of_device(scope.device) == "cpu"
    found = []
    for n_nodes in sizes:
        for kind in ("clusters", "even") if n_nodes == min(sizes) else ("clusters",):
            parameters = {"n_nodes": n_nodes, "n_columns": N_COLUMNS, "n_neighbors": N_NEIGHBORS, "rows": kind}
            exact = on_cpu and n_nodes <= MOST_ROWS_IN_FLOAT64 and kind == "clusters"
            providers = ["blocked top-k", *(["knn_edges"] if exact else []), "approximate"]
            providers += [_FAISS_NAME.format(_faiss().__version__)] if on_cpu and _faiss() is not None else []
            found += [
                Cell("neighbors", "neighbors", name, parameters=parameters, quick=scope.quick) for name in providers
            ]
    return found


def _faiss() -> Any:
    """Return the package faiss, None where it is not installed."""
    try:
        return importlib.import_module("faiss")
    except ImportError:
        return None


@register_case("neighbors", "approximate beside exact nearest neighbors: time and recall", cells=cells, in_all=False)
def neighbors(cell: Cell, device: str) -> dict[str, Any]:
    """Return the seconds of a search, its recall, and how many times faster it is than the blocked exact one."""
    n_nodes, kind = cell.parameters["n_nodes"], cell.parameters["rows"]
    placed, (top_k, exact) = rows_of(n_nodes, kind), _blocked_top_k(n_nodes, kind, device)
    if cell.provider == "blocked top-k":
        values = {**top_k, "recall": 1.0}
    elif cell.provider == "knn_edges":
        values = {**timed(lambda: knn_edges(placed, N_NEIGHBORS))[0], "recall": 1.0}
    elif cell.provider == "approximate":
        place = torch.device(device)
        values, found = timed(lambda: approximate_neighbors(placed, N_NEIGHBORS, seed=0, device=place))
        values |= {"recall": share_found(found.edges[1].reshape(n_nodes, -1), exact)}
        values |= {"recall_reported": found.recall, "method": found.method}
    else:
        values = by_faiss(placed, exact)
    return {**values, "times_faster": top_k["seconds"] / values["seconds"]}


@lru_cache(maxsize=1)
def _blocked_top_k(n_nodes: int, kind: str, device: str) -> tuple[dict[str, Any], NDArray[np.int64]]:
    """Return the time of an exact search and the (N, k) neighbors that it found; providers share them."""
    placed = rows_of(n_nodes, kind)
    taken, edges = timed(lambda: nearest_on(placed, N_NEIGHBORS, device=torch.device(device)))
    return taken, edges[1].reshape(n_nodes, -1)


def rows_of(n_nodes: int, kind: str) -> Rows:
    """Return (N, 50) rows of length 1."""
    order = np.random.default_rng(0)
    rows = order.normal(size=(n_nodes, N_COLUMNS))
    if kind == "clusters":
        spread = np.exp(-np.arange(N_COLUMNS) / 12)
        centers = 1.5 * order.normal(size=(N_CLUSTERS, N_COLUMNS))
        rows = (rows + centers[order.integers(N_CLUSTERS, size=n_nodes)]) * spread
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def timed(work: Callable[[], Any]) -> tuple[dict[str, Any], Any]:
    """Return the time that some work took, and its result."""
    started = time.perf_counter()
    result = work()
    return {"seconds": time.perf_counter() - started}, result


def share_found(found: NDArray[np.int64], exact: NDArray[np.int64]) -> float:
    """Return the share of the exact neighbors (N, k) that are among those found, of all rows."""
    offset = np.arange(len(exact))[:, None] * len(exact)
    return float(np.isin((exact + offset).ravel(), (found + offset).ravel()).mean())


def by_faiss(placed: Rows, exact: NDArray[np.int64]) -> dict[str, Any]:
    """Return what faiss's IVF-flat takes, its index built."""
    faiss = _faiss()
    faiss.omp_set_num_threads(torch.get_num_threads())
    rows = placed.astype(np.float32)
    n_cells = round(2 * len(rows) ** 0.5)

    def build() -> Any:
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(N_COLUMNS), N_COLUMNS, n_cells)
        # faiss warns when fewer than 39 rows per cell are given; it takes that many of those.
        index.cp.max_points_per_centroid, index.cp.niter = 39, 8
        index.train(rows)
        index.add(rows)
        return index

    built, index = timed(build)
    asked = np.random.default_rng(1).choice(len(rows), min(N_ASKED, len(rows)), replace=False)
    index.nprobe, recall = 1, 0.0
    while recall < WANTED_RECALL and index.nprobe < n_cells:
        index.nprobe = min(2 * index.nprobe, n_cells)
        known = [set(each) for each in exact[asked].tolist()]
        lists = index.search(rows[asked], N_NEIGHBORS + 1)[1].tolist()
        recall = float(np.mean([len(a & set(b)) for a, b in zip(known, lists, strict=True)])) / N_NEIGHBORS
    searched, _ = timed(lambda: index.search(rows, N_NEIGHBORS + 1))
    seconds = built["seconds"] + searched["seconds"]
    method = f"{index.nprobe} of {n_cells} cells"
    return {"seconds": seconds, "recall": recall, "method": method}
