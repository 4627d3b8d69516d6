"""Time and recall of approximate and exact nearest-neighbor search.

The rows have unit length and 50 columns. They form clusters whose spread decreases from column to column, like leading
directions; at the smallest size also rows without clusters, which no index can partition. If faiss is installed, its
IVF-flat index is measured too, with the fewest probes (a power of two) that find 95 % of the neighbors; their choice is
not timed.
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
from pamc.lab.cell import Cell, Scope, register_case
from pamc.lab.settings import bench_cells, kind_of_device

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
    return bench_cells(scope, "neighbors", [(name, shape) for shape in shapes for name in providers])


def _faiss() -> Any:
    """Return the package faiss, or None if it is not installed."""
    try:
        return importlib.import_module("faiss")
    except ImportError:
        return None


@register_case("neighbors", "time and recall of approximate and exact nearest neighbors", cells=cells, in_all=False)
def neighbors(cell: Cell, device: str) -> dict[str, Any]:
    """Return the time of a search, its recall, and its speedup over the exact search."""
    n_nodes, kind = cell.parameters["n_nodes"], cell.parameters["rows"]
    rows, (exact_s, exact) = rows_of(n_nodes, kind), _exact(n_nodes, kind, device)
    place = torch.device(device)
    values: dict[str, Any] = {"recall": 1.0}
    if cell.provider == "exact":
        seconds = exact_s
    elif cell.provider == "blocked top-k":
        seconds, neighbors = _timed(lambda: blocked_top_k(rows, place))
        values = {"recall": share_found(neighbors, exact)}
    elif cell.provider == "approximate":
        seconds, result = _timed(lambda: nearest(rows, N_NEIGHBORS, metric=ANGLE, device=place, most_exact_rows=0))
        values = {"recall": share_found(result.edges[1].reshape(n_nodes, -1), exact)}
        values |= {"recall_reported": result.recall, "method": result.method}
    else:
        seconds, values = by_faiss(rows, exact)
    return {"seconds": seconds, **values, "times_faster": exact_s / seconds}


@lru_cache(maxsize=1)
def _exact(n_nodes: int, kind: str, device: str) -> tuple[float, NDArray[np.int64]]:
    """Return the time of an exact search and its neighbors (N, k), which the providers share."""
    rows, place = rows_of(n_nodes, kind), torch.device(device)
    seconds, result = _timed(lambda: nearest(rows, N_NEIGHBORS, device=place, most_exact_rows=n_nodes))
    return seconds, result.edges[1].reshape(n_nodes, -1)


def blocked_top_k(rows: Rows, device: torch.device) -> NDArray[np.int64]:
    """Return (N, k) the other rows with the largest inner products, in plain float32."""
    unit = torch.from_numpy(rows).to(device=device, dtype=torch.float32)
    neighbors = []
    for block in torch.split(torch.arange(len(unit), device=device), max(1, SIMILARITIES_AT_A_TIME // len(unit))):
        similarity = unit[block] @ unit.T
        similarity[torch.arange(len(block), device=device), block] = -torch.inf
        neighbors.append(similarity.topk(N_NEIGHBORS, dim=1).indices)
    return torch.cat(neighbors).cpu().numpy()


def rows_of(n_nodes: int, kind: str) -> Rows:
    """Return (N, 50) rows of unit length."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_nodes, N_COLUMNS))
    if kind == "clusters":
        spread = np.exp(-np.arange(N_COLUMNS) / 12)
        centers = 1.5 * rng.normal(size=(N_CLUSTERS, N_COLUMNS))
        rows = (rows + centers[rng.integers(N_CLUSTERS, size=n_nodes)]) * spread
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the time of a call in seconds, and its result."""
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


def share_found(neighbors: NDArray[np.int64], exact: NDArray[np.int64]) -> float:
    """Return the recall: the share of the exact neighbors (N, k) among those found."""
    offset = np.arange(len(exact))[:, None] * len(exact)
    return float(np.isin((exact + offset).ravel(), (neighbors + offset).ravel()).mean())


def by_faiss(unit: Rows, exact: NDArray[np.int64]) -> tuple[float, dict[str, Any]]:
    """Return the time to build and search faiss's IVF-flat index, its recall, and the chosen probes."""
    faiss = _faiss()
    faiss.omp_set_num_threads(torch.get_num_threads())
    rows = unit.astype(np.float32)
    n_cells = round(2 * len(rows) ** 0.5)

    def build() -> Any:
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(N_COLUMNS), N_COLUMNS, n_cells)
        # With fewer than 39 rows per cell, faiss warns; it uses at most this many.
        index.cp.max_points_per_centroid, index.cp.niter = 39, 8
        index.train(rows)
        index.add(rows)
        return index

    build_s, index = _timed(build)
    queries = np.random.default_rng(1).choice(len(rows), min(N_ASKED, len(rows)), replace=False)
    expected = list(map(set, exact[queries].tolist()))
    index.nprobe, recall = 1, 0.0
    while recall < WANTED_RECALL and index.nprobe < n_cells:
        index.nprobe = min(2 * index.nprobe, n_cells)
        lists = index.search(rows[queries], N_NEIGHBORS + 1)[1].tolist()
        recall = float(np.mean([len(a & set(b)) for a, b in zip(expected, lists, strict=True)])) / N_NEIGHBORS
    search_s, _ = _timed(lambda: index.search(rows, N_NEIGHBORS + 1))
    return build_s + search_s, {"recall": recall, "method": f"{index.nprobe} of {n_cells} cells"}
