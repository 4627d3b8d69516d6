"""Whole fits from raw rows beside other methods, the throughput of `predict`, K-means, and the import time of pamc."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.cluster import KMeans

from pamc.config import PAPER_TABLE_1, FitConfig, preset
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.synthetic import blobs, block_model
from pamc.lab.cases.quality import DATA_SETS
from pamc.lab.cell import Cell, Scope, register_case
from pamc.lab.measure import call_values, peak_memory, release, timed_s
from pamc.lab.rivals import RIVALS, points_of
from pamc.lab.settings import TABLES, bench_cells, kind_of_device, load, load_unlinked, n_classes
from pamc.models.layers import MLP
from pamc.models.loader import FeatureLoader
from pamc.results.metrics import evaluate
from pamc.runtime import generator
from pamc.selection.choose_k import choose_k
from pamc.training.assign import assign_rows
from pamc.training.pipeline import fit_method

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


# Data sets whose fits are timed; on a CPU, so are tables of these sizes.
_TIMED_SETS = {"cpu": ("g_other_iris", "digits", "cora", "usps"), "cuda": ("usps", "cora", "dblp", "acm")}
TIMED_ROWS = (150, 500, 1500, 5000, 15_000, 50_000, 100_000)
TIMED_COLUMNS, _TIMED_NOISE = 50, 2.0

# Other methods whose time is measured on a CPU, with the largest number of rows on which they take minutes at most.
TIMED_RIVALS = {
    "umap+k-means": 100_000,
    "k-means": 100_000,
    "mixture": 100_000,
    "spectral": 5_000,
    "hdbscan": 15_000,
}

# Numbers of clusters of a table with many, and its size.
_MANY_CLUSTERS, _MANY_CLUSTERS_SIZE = (20, 100, 500), {"n_rows": 5000, "n_features": 32}

# A small table that is fitted by one and by two threads while other processes keep all cores busy.
_BUSY_TABLE = {"n_rows": 500, "n_features": 2, "n_clusters": 4, "n_busy": 4}
_THREADS = (1, 2)

# A table and a graph of bags of words that are fitted on a GPU. Words per row, and share of the words of its cluster.
_LARGE_TABLE = {"n_rows": 1_000_000, "n_features": 128, "n_clusters": 20}
_WORDS = {"n_rows": 30_000, "n_words": 8000, "n_clusters": 10}
_WORDS_PER_ROW, _OWN_WORDS, _DEGREE, _HOMOPHILY = 60, 0.5, 10.0, 0.7

# A fit of more rows takes so long that a warm-up would not matter.
_MOST_WARMED_UP = 200_000

# The first fit in a fresh process, with no kernel compiled before.
FIRST_FIT = "first fit"
_FIRST_FIT_CODE = """
import sys, time
from pamc.data.synthetic import blobs, block_model
from pamc.training.pipeline import fit_method
from pamc.config import FitConfig
import torch
graph = blobs(1797, 10, n_features=64, random_state=0).without_labels()
started = time.perf_counter()
fit_method("pamcgc", graph, FitConfig(n_clusters=10), seed=0, device=torch.device(sys.argv[1]))
print(time.perf_counter() - started)
"""

# Rows of the table that other methods cluster first, so that their libraries are loaded and compiled.
_WARM_UP_ROWS = 300


def _phases(graph: AttributedGraph, config: FitConfig, device: torch.device) -> dict[str, float]:
    return fit_method("pamcgc", graph, config, seed=0, device=device).seconds


def fit_cells(scope: Scope) -> list[Cell]:
    """Return fits of data sets and, on a CPU, of generated tables, by pamc and by other methods."""
    kind = kind_of_device(scope.device)
    rivals = {} if kind == "cuda" else TIMED_RIVALS
    cells = []
    for name in scope.data_sets or (("digits",) if scope.quick else _TIMED_SETS[kind]):
        # Other methods do not use the edges of a graph.
        measured = ["pamc", *(rivals if name in (*TABLES, "digits", "usps") and not scope.quick else ())]
        measured += ["choose_k"] if name == "digits" and not scope.quick else []
        cells += [Cell("fit", "whole-fit", provider, name, quick=scope.quick) for provider in measured]
    if scope.data_sets is None and not scope.quick:
        cells += _generated_cells(rivals) if kind == "cpu" else _generated_cells_on_gpu()
    return cells


def _generated_cells_on_gpu() -> list[Cell]:
    """Return the first fit in a fresh process, and fits of a graph of bags of words and of a large table."""
    measured: list[tuple[str, dict[str, Any]]] = [(FIRST_FIT, {}), ("pamc", _WORDS), ("pamc", _LARGE_TABLE)]
    return [Cell("fit", "whole-fit", provider, parameters=parameters) for provider, parameters in measured]


def _generated_cells(rivals: Mapping[str, int]) -> list[Cell]:
    """Return fits of tables of growing size, of tables with many clusters, and of one on a busy machine."""
    measured = [
        (provider, {"n_rows": n_rows})
        for n_rows in TIMED_ROWS
        for provider in ("pamc", *(name for name, most in rivals.items() if n_rows <= most))
    ]
    measured += [("pamc", {**_MANY_CLUSTERS_SIZE, "n_clusters": n_clusters}) for n_clusters in _MANY_CLUSTERS]
    measured += [("pamc", {**_BUSY_TABLE, "n_threads": n_threads}) for n_threads in _THREADS]
    return [Cell("fit", "whole-fit", provider, parameters=parameters) for provider, parameters in measured]


def _timed_rows(cell: Cell) -> AttributedGraph:
    """Return the data set of a cell, or a table of the requested size with overlapping clusters."""
    parameters = cell.parameters
    if "n_rows" not in parameters:
        return load_unlinked(cell.data_set, cell.quick)
    if "n_words" in parameters:
        return _graph_of_words(**parameters, seed=cell.seed)
    n_clusters, n_features = parameters.get("n_clusters", _N_CLUSTERS), parameters.get("n_features", TIMED_COLUMNS)
    options: dict[str, Any] = {"n_features": n_features, "feature_noise": _TIMED_NOISE, "random_state": cell.seed}
    return blobs(parameters["n_rows"], n_clusters, **options)


def _graph_of_words(n_rows: int, n_words: int, n_clusters: int, seed: int) -> AttributedGraph:
    """Return a block model whose features are counts of words: half of a row's words are typical of its cluster."""
    graph = block_model(n_rows, n_clusters, n_features=1, degree=_DEGREE, homophily=_HOMOPHILY, random_state=seed)
    rng, labels = np.random.default_rng(seed), np.asarray(graph.labels)
    typical = rng.dirichlet(np.full(n_words, 0.05), size=n_clusters)
    words = rng.integers(n_words, size=(n_rows, _WORDS_PER_ROW))
    n_own = int(_OWN_WORDS * _WORDS_PER_ROW)
    for cluster, share in enumerate(typical):
        rows = np.flatnonzero(labels == cluster)
        words[rows, :n_own] = rng.choice(n_words, size=(len(rows), n_own), p=share)
    counts = sp.csr_matrix(
        (np.ones(words.size, np.float32), (np.repeat(np.arange(n_rows), _WORDS_PER_ROW), words.ravel())),
        shape=(n_rows, n_words),
    )
    return replace(graph, features=counts)


def _first_fit_time(device: str) -> dict[str, Any]:
    """Return the time of the first fit of a process, which includes imports and the compilation of kernels."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TRITON_CACHE_DIR": cache}
        command = [sys.executable, "-c", _FIRST_FIT_CODE, device]
        printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    return {"seconds": float(printed)}


def _rival_time(name: str, graph: AttributedGraph, seed: int) -> dict[str, Any]:
    """Return the time in which another method clusters a table, after it clustered a part of it."""
    n_clusters, cluster = n_classes(graph), RIVALS[name].cluster
    cluster(points_of(graph.features[:_WARM_UP_ROWS], seed=seed), n_clusters, seed)
    cpu = torch.device("cpu")
    with peak_memory(cpu) as peak:
        seconds = timed_s(lambda: cluster(points_of(graph.features, seed=seed), n_clusters, seed), cpu)
    return {"seconds": seconds, "peak_bytes": peak.n_bytes}


def _choice_time(graph: AttributedGraph, seed: int) -> dict[str, Any]:
    """Return the time in which `choose_k` compares its default candidates."""
    cpu, chosen = torch.device("cpu"), []
    with peak_memory(cpu) as peak:
        seconds = timed_s(lambda: chosen.append(choose_k(graph, random_state=seed, device="cpu")), cpu)
    candidates = chosen[0].table["n_clusters"]
    return {"seconds": seconds, "peak_bytes": peak.n_bytes, "n_candidates": len(candidates)}


@contextmanager
def _busy_machine(n_busy: int, n_threads: int | None) -> Iterator[None]:
    """Keep `n_busy` processes computing inside the context, and compute with `n_threads` threads, if given."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n_busy)]
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        for process in spinning:
            process.kill()
            process.wait()


@register_case(
    "fit-time",
    "time of whole fits with the defaults and with the paper's recipe",
    cells=partial(_data_cells, case="fit-time", measured=[("pamc", {}), ("paper", {})], data_sets=DATA_SETS),
)
@register_case(
    "fit",
    "time of whole fits from raw rows with the defaults, by phase, beside other methods",
    cells=fit_cells,
    task="whole-fit",
)
def whole_fit(cell: Cell, device: str) -> dict[str, Any]:
    """Return the time of a fit and of its phases, and its peak memory, after a short fit of the same shapes."""
    if cell.provider == FIRST_FIT:
        return _first_fit_time(device)
    graph, resolved = _timed_rows(cell), torch.device(device)
    if cell.provider in RIVALS:
        return _rival_time(cell.provider, graph, cell.seed)
    if cell.provider == "choose_k":
        return _choice_time(graph.without_labels(), cell.seed)
    sizes: dict[str, Any] = {"n_clusters": n_classes(graph)}
    sizes |= {"n_epochs": 10, "hidden": (64, 64)} if cell.quick else {}
    if cell.provider == "pamc":
        config = FitConfig(**sizes)
    else:
        defaults = {} if cell.data_set in PAPER_TABLE_1 else NOT_IN_TABLE_1
        config = preset("paper", data_set=cell.data_set, **sizes, **defaults)
    graph = graph.without_labels()
    if graph.n_nodes <= _MOST_WARMED_UP:
        _phases(graph, config.with_(n_epochs=_WARM_UP_EPOCHS, pretrain_epochs=1), resolved)
    release(resolved)
    values: dict[str, Any] = {}
    load = _busy_machine(cell.parameters.get("n_busy", 0), cell.parameters.get("n_threads"))
    with load, peak_memory(resolved) as peak:
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
