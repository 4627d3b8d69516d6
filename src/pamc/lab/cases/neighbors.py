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

from pamc.graph.neighbors import ANGLE, nearest
from pamc.lab.cell import Cell, Scope, bench_cells, register_case
from pamc.lab.settings import kind_of_device

SIZES = (50_000, 100_000, 200_000)
QUICK_SIZES = (600,)
N_COLUMNS = 50
N_CLUSTERS = 20
N_NEIGHBORS = 10
WANTED_RECALL = 0.95
SIMILARITIES_AT_A_TIME = 1 << 28
N_ASKED = 1000

Rows = NDArray[np.float64]


def cells(scope: Scope) -> list[Cell]:
    """Return a cell per size, kind of rows and provider."""
    sizes, on_cpu = QUICK_SIZES if scope.quick else SIZES, kind_of_device(scope.device) == "cpu"
    providers = ["blocked top-k", "exact", "approximate"]
    providers += [f"faiss {_faiss().__version__} IVF-flat"] if on_cpu and _faiss() is not None else []
    fixed = {"n_columns": N_COLUMNS, "n_neighbors": N_NEIGHBORS}
    kinds = [(size, "clusters") for size in sizes] + [(min(sizes), "even")]
    shapes = [{"n_nodes": n_nodes, **fixed, "rows": kind} for n_nodes, kind in sorted(kinds)]
    return bench_cells(scope, "neighbors", ((name, shape) for shape in shapes for name in providers))


def _faiss() -> Any:
    """Return the package faiss, None where it is not installed."""
    try:
        return importlib.import_module("faiss")
    except ImportError:
        return None


@register_case("neighbors", "approximate beside exact nearest neighbors: time and recall", cells=cells, in_all=False)
def neighbors(cell: Cell, device: str) -> dict[str, Any]:
    """Return the seconds of a search, its recall, and how many times faster it is than the exact one."""
    n_nodes, kind = cell.parameters["n_nodes"], cell.parameters["rows"]
    placed, (taken, exact) = rows_of(n_nodes, kind), _exact(n_nodes, kind, device)
    place = torch.device(device)
    if cell.provider == "exact":
        values = {**taken, "recall": 1.0}
    elif cell.provider == "blocked top-k":
        values, plain = _timed(lambda: blocked_top_k(placed, place))
        values |= {"recall": share_found(plain, exact)}
    elif cell.provider == "approximate":
        values, found = _timed(lambda: nearest(placed, N_NEIGHBORS, metric=ANGLE, device=place, most_exact_rows=0))
        values |= {"recall": share_found(found.edges[1].reshape(n_nodes, -1), exact)}
        values |= {"recall_reported": found.recall, "method": found.method}
    else:
        values = by_faiss(placed, exact)
    return {**values, "times_faster": taken["seconds"] / values["seconds"]}


@lru_cache(maxsize=1)
def _exact(n_nodes: int, kind: str, device: str) -> tuple[dict[str, Any], NDArray[np.int64]]:
    """Return the time of an exact search and the (N, k) neighbors that it found; providers share them."""
    placed = rows_of(n_nodes, kind)
    taken, found = _timed(lambda: nearest(placed, N_NEIGHBORS, device=torch.device(device), most_exact_rows=n_nodes))
    return taken, found.edges[1].reshape(n_nodes, -1)


def blocked_top_k(placed: Rows, device: torch.device) -> NDArray[np.int64]:
    """Return (N, k) the other rows with the largest products, in float32 and without any care for rounding."""
    unit = torch.from_numpy(placed).to(device=device, dtype=torch.float32)
    found = []
    for rows in torch.split(torch.arange(len(unit), device=device), max(1, SIMILARITIES_AT_A_TIME // len(unit))):
        similarity = unit[rows] @ unit.T
        similarity[torch.arange(len(rows), device=device), rows] = -torch.inf
        found.append(similarity.topk(N_NEIGHBORS, dim=1).indices)
    return torch.cat(found).cpu().numpy()


def rows_of(n_nodes: int, kind: str) -> Rows:
    """Return (N, 50) rows of length 1."""
    order = np.random.default_rng(0)
    rows = order.normal(size=(n_nodes, N_COLUMNS))
    if kind == "clusters":
        spread = np.exp(-np.arange(N_COLUMNS) / 12)
        centers = 1.5 * order.normal(size=(N_CLUSTERS, N_COLUMNS))
        rows = (rows + centers[order.integers(N_CLUSTERS, size=n_nodes)]) * spread
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _timed(work: Callable[[], Any]) -> tuple[dict[str, Any], Any]:
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

    built, index = _timed(build)
    asked = np.random.default_rng(1).choice(len(rows), min(N_ASKED, len(rows)), replace=False)
    known = [set(each) for each in exact[asked].tolist()]
    index.nprobe, recall = 1, 0.0
    while recall < WANTED_RECALL and index.nprobe < n_cells:
        index.nprobe = min(2 * index.nprobe, n_cells)
        lists = index.search(rows[asked], N_NEIGHBORS + 1)[1].tolist()
        recall = float(np.mean([len(a & set(b)) for a, b in zip(known, lists, strict=True)])) / N_NEIGHBORS
    searched, _ = _timed(lambda: index.search(rows, N_NEIGHBORS + 1))
    seconds = built["seconds"] + searched["seconds"]
    return {"seconds": seconds, "recall": recall, "method": f"{index.nprobe} of {n_cells} cells"}
