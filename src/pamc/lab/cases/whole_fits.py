"""Whole fits from raw rows, the throughput of `predict`, K-means on raw features, and the import time of pamc."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans

from pamc.config import PAPER_TABLE_1, FitConfig, preset
from pamc.data.attributed_graph import AttributedGraph
from pamc.lab.cases.quality import DATA_SETS
from pamc.lab.cell import Cell, Scope, register_case
from pamc.lab.measure import call_values, peak_memory, release, timed_s
from pamc.lab.settings import bench_cells, kind_of_device, load, load_unlinked, n_classes
from pamc.models.layers import MLP
from pamc.models.loader import FeatureLoader
from pamc.results.metrics import evaluate
from pamc.runtime import generator
from pamc.training.pipeline import assign_rows, fit_method

# Epochs of the fit before the measured one: enough to capture an epoch as a CUDA graph.
_WARM_UP_EPOCHS = 6

# Settings for data sets that are not in Table 1.
NOT_IN_TABLE_1 = {"alpha": 1.0, "beta": 1.0, "tau": 1.0, "n_hops": 2}

_N_CLUSTERS = 10
_N_ROWS = {"cuda": 2_000_000, "cpu": 50_000}
_QUICK_ROWS = 5_000

_KMEANS_SETS = ("dblp", "acm", "usps", "hhar", "cite")

# Chunk size of `predict`.
_CHUNK = 16384

_data_cells = partial(bench_cells, quick_sets=("digits",))


def _phases(graph: AttributedGraph, config: FitConfig, device: torch.device) -> dict[str, float]:
    return fit_method("pamcgc", graph, config, seed=0, device=device).seconds


@register_case(
    "fit-time",
    "time of whole fits with the defaults and with the paper's recipe",
    cells=partial(_data_cells, case="fit-time", measured=[("pamc", {}), ("paper", {})], data_sets=DATA_SETS),
)
@register_case(
    "fit",
    "time of whole fits from raw rows with the defaults, by phase",
    cells=partial(_data_cells, case="fit", task="whole-fit", measured=[("pamc", {})], data_sets=("usps",)),
    task="whole-fit",
)
def whole_fit(cell: Cell, device: str) -> dict[str, Any]:
    """Return the time of a fit and of its phases, and its peak memory, after a short fit of the same shapes."""
    graph, resolved = load_unlinked(cell.data_set, cell.quick), torch.device(device)
    sizes: dict[str, Any] = {"n_clusters": n_classes(graph)}
    sizes |= {"n_epochs": 10, "hidden": (64, 64)} if cell.quick else {}
    if cell.provider == "pamc":
        config = FitConfig(**sizes)
    else:
        defaults = {} if cell.data_set in PAPER_TABLE_1 else NOT_IN_TABLE_1
        config = preset("paper", data_set=cell.data_set, **sizes, **defaults)
    graph = graph.without_labels()
    _phases(graph, config.with_(n_epochs=_WARM_UP_EPOCHS, pretrain_epochs=1), resolved)
    release(resolved)
    values: dict[str, Any] = {}
    with peak_memory(resolved) as peak:
        seconds = timed_s(lambda: values.update(phases=_phases(graph, config, resolved)), resolved)
    return {"seconds": seconds, **values, "peak_bytes": peak.n_bytes, "n_epochs": config.n_epochs}


def inference_cells(scope: Scope) -> list[Cell]:
    """Return a cell per precision, for rows on the device and rows on the host."""
    kind = kind_of_device(scope.device)
    places, precisions = (("device", "host"), ("tf32", "float32")) if kind == "cuda" else (("host",), ("float32",))
    shape = {"n_rows": _QUICK_ROWS if scope.quick else _N_ROWS[kind], "sizes": [256, 500, 500, 2000, 10]}
    shapes = [{"rows_in": place, **shape, "precision": precision} for place in places for precision in precisions]
    return bench_cells(scope, "inference", [("pamc", shape) for shape in shapes])


@register_case("inference", "rows per second of predict, for rows on the device and on the host", cells=inference_cells)
def inference_values(cell: Cell, device: str) -> dict[str, Any]:
    """Return the time of labeling all rows, rows per second, and the peak memory beyond the rows themselves."""
    parameters, place = cell.parameters, torch.device(device)
    n_rows, n_features = parameters["n_rows"], parameters["sizes"][0]
    block = np.random.default_rng(0).standard_normal((min(n_rows, 1 << 15), n_features), dtype=np.float32)
    host = np.resize(block, (n_rows, n_features))
    tensor_cores = parameters["precision"] == "tf32"
    encoder = MLP(parameters["sizes"], generator=generator(0, "weights"), tensor_cores=tensor_cores).to(place)
    centers = torch.randn(_N_CLUSTERS, parameters["sizes"][-1], generator=generator(0, "centers")).to(place)
    features = torch.from_numpy(host).to(place) if parameters["rows_in"] == "device" else host
    rows = FeatureLoader(features, device=place, dtype=torch.float32)

    def labels() -> object:
        return assign_rows(encoder, centers, rows, eta=1.0, chunk_size=_CHUNK)[1].argmax(dim=1).cpu()

    values = call_values(labels, place, budget_s=1.0)
    return {**values, "rows_per_s": n_rows / values["seconds"]}


@register_case(
    "kmeans",
    "K-means on raw features, compared with the paper",
    cells=partial(_data_cells, case="kmeans", measured=[("kmeans", {})], data_sets=_KMEANS_SETS, n_seeds=10),
)
def kmeans(cell: Cell, device: str) -> dict[str, Any]:
    """Return the metrics of K-means on raw features, 20 initializations: a check of data and metrics."""
    graph = load(cell.data_set, cell.quick)
    labels = KMeans(n_classes(graph), n_init=20, random_state=cell.seed).fit_predict(graph.features)
    return dict(evaluate(np.asarray(graph.labels), labels))


@register_case("import", "time to import pamc", cells=lambda scope: bench_cells(scope, "import", [("pamc", {})]))
def import_time(cell: Cell, device: str) -> dict[str, Any]:
    """Return the time that `import pamc` adds to `import torch`, in fresh processes."""
    seconds: dict[str, list[float]] = {"import torch": [], "import torch, pamc": []}
    for _ in range(2 if cell.quick else 7):
        for code, times in seconds.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - started)
    torch_s, both_s = map(median, seconds.values())
    return {"added_s": both_s - torch_s, "torch_s": torch_s}
