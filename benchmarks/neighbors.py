"""Approximate beside exact nearest neighbors: `python -m benchmarks.neighbors [--sizes 50000 100000] [--quick]`.

Rows of length 1 in 50 columns: clusters whose spread falls off from column to column, as that of leading directions
does, and, at the smallest size, rows spread evenly, which no index can divide. Where faiss is installed its IVF-flat
index is measured too, with the fewest probes (a power of two) that find 95 % of the neighbors, chosen outside the time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.rows import append, stamp
from pamc.bench.rows import Row
from pamc.graph.neighbors import ANGLE, nearest

__all__ = ["main", "measure"]

SIZES = (50_000, 100_000, 200_000)
N_COLUMNS = 50
N_CLUSTERS = 20
N_NEIGHBORS = 10
WANTED_RECALL = 0.95
N_ASKED = 1000
SIMILARITIES_AT_A_TIME = 1 << 28

Rows = NDArray[np.float64]


def main() -> None:
    """Measure, print and append the rows."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="rows are marked and never shown in tables")
    arguments = parser.parse_args()
    origin = stamp(quick=arguments.quick, device=arguments.device)
    for n_nodes in arguments.sizes:
        for kind in ("clusters", "even") if n_nodes == min(arguments.sizes) else ("clusters",):
            rows = measure(n_nodes, kind, torch.device(arguments.device))
            append("neighbors", rows, origin)
            for row in rows:
                print(row["provider"], json.dumps(row["parameters"]), json.dumps(row["values"]), flush=True)


def measure(n_nodes: int, kind: str, device: torch.device) -> list[Row]:
    """Return a row of each provider: seconds, recall, and how many times faster than the quickest exact search."""
    placed = rows_of(n_nodes, kind)
    values: dict[str, dict[str, Any]] = {}
    values["blocked top-k"], plain = timed(lambda: blocked_top_k(placed, device))
    values["exact"], ours = timed(lambda: nearest(placed, N_NEIGHBORS, device=device))
    exact = ours.edges[1].reshape(n_nodes, -1)
    values["blocked top-k"]["recall"] = share_found(plain, exact)
    values["exact"]["recall"] = ours.recall
    approximate, found = timed(lambda: nearest(placed, N_NEIGHBORS, metric=ANGLE, device=device, most_exact_rows=0))
    true = share_found(found.edges[1].reshape(n_nodes, -1), exact)
    values["approximate"] = {**approximate, "recall": true, "recall_reported": found.recall, "method": found.method}
    if device.type == "cpu":
        values |= by_faiss(placed, exact)
    parameters = {"n_nodes": n_nodes, "n_columns": N_COLUMNS, "n_neighbors": N_NEIGHBORS, "rows": kind}
    quickest = min(each["seconds"] for name, each in values.items() if name in ("blocked top-k", "exact"))
    for each in values.values():
        each["times_faster"] = quickest / each["seconds"]
    return [{"provider": name, "parameters": parameters, "values": each} for name, each in values.items()]


def rows_of(n_nodes: int, kind: str) -> Rows:
    """Return (N, 50) rows of length 1."""
    order = np.random.default_rng(0)
    rows = order.normal(size=(n_nodes, N_COLUMNS))
    if kind == "clusters":
        spread = np.exp(-np.arange(N_COLUMNS) / 12)
        centers = 1.5 * order.normal(size=(N_CLUSTERS, N_COLUMNS))
        rows = (rows + centers[order.integers(N_CLUSTERS, size=n_nodes)]) * spread
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def timed(work: Callable[[], Any]) -> tuple[dict[str, Any], Any]:
    """Return the time that some work took, and its result."""
    started = time.perf_counter()
    result = work()
    return {"seconds": time.perf_counter() - started}, result


def blocked_top_k(placed: Rows, device: torch.device) -> NDArray[np.int64]:
    """Return (N, k) the other rows with the largest products, in float32 and without any care for rounding."""
    unit = torch.from_numpy(placed).to(device=device, dtype=torch.float32)
    found = []
    for rows in torch.arange(len(unit), device=device).split(max(1, SIMILARITIES_AT_A_TIME // len(unit))):
        similarity = unit[rows] @ unit.T
        similarity[torch.arange(len(rows), device=device), rows] = -torch.inf
        found.append(similarity.topk(N_NEIGHBORS, dim=1).indices)
    return torch.cat(found).cpu().numpy()


def share_found(found: NDArray[np.int64], exact: NDArray[np.int64]) -> float:
    """Return the share of the exact neighbors (N, k) that are among those found, of all rows."""
    offset = np.arange(len(exact))[:, None] * len(exact)
    return float(np.isin((exact + offset).ravel(), (found + offset).ravel()).mean())


def by_faiss(placed: Rows, exact: NDArray[np.int64]) -> dict[str, dict[str, Any]]:
    """Return what faiss's IVF-flat takes, its index built, nothing where it is not installed."""
    try:
        import faiss
    except ImportError:
        return {}
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
    asked = np.random.default_rng(1).choice(len(rows), N_ASKED, replace=False)
    index.nprobe, recall = 1, 0.0
    while recall < WANTED_RECALL and index.nprobe < n_cells:
        index.nprobe = min(2 * index.nprobe, n_cells)
        known = [set(each) for each in exact[asked].tolist()]
        lists = index.search(rows[asked], N_NEIGHBORS + 1)[1].tolist()
        recall = float(np.mean([len(a & set(b)) for a, b in zip(known, lists, strict=True)])) / N_NEIGHBORS
    searched, _ = timed(lambda: index.search(rows, N_NEIGHBORS + 1))
    seconds = built["seconds"] + searched["seconds"]
    method = f"{index.nprobe} of {n_cells} cells"
    return {f"faiss {faiss.__version__} IVF-flat": {"seconds": seconds, "recall": recall, "method": method}}


if __name__ == "__main__":
    main()
