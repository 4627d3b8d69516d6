"""Cases beside those of `pamc bench`: each a function that returns rows of `provider`, `parameters` and `values`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from benchmarks import minibatch_bias
from benchmarks.rows import Rows
from benchmarks.start_choices import start_choices
from pamc.bench.measure import median
from pamc.config import PAPER_TABLE_1, FitConfig, preset
from pamc.data.catalog import load_dataset
from pamc.results.metrics import evaluate
from pamc.runtime import resolve_device
from pamc.training.pipeline import fit_method

__all__ = ["CASES", "Case"]

_FITTED_SETS = ("dblp", "cite", "acm", "usps", "hhar", "cora", "amazon_photo", "news4", "reut21578_4", "digits")


@dataclass(frozen=True)
class Case:
    """One case: what it shows and the function that measures it; `quick` asks for a small version."""

    about: str
    measure: Callable[[bool], Rows]


def kmeans(quick: bool) -> Rows:
    """Measure K-means on raw features (20 starts), the check that data and metrics are the paper's."""
    rows: Rows = []
    for name in ("dblp", "acm", "usps", "hhar", "cite"):
        graph = load_dataset(name)
        n_clusters = len(np.unique(graph.labels))
        runs = []
        for seed in range(2 if quick else 10):
            labels = KMeans(n_clusters, n_init=20, random_state=seed).fit_predict(graph.features)
            runs.append(evaluate(graph.labels, labels))
        for seed, run in enumerate(runs):
            rows.append({"provider": "kmeans", "parameters": {"data_set": name, "seed": seed}, "values": run})
    return rows


def fit_time(quick: bool) -> Rows:
    """Measure whole fits from raw rows: pamc's defaults, and the paper's recipe, in turn on each data set."""
    device = resolve_device("auto")
    rows: Rows = []
    for name in ("digits",) if quick else _FITTED_SETS:
        graph = load_dataset(name)
        graph = graph.without_edges() if graph.edges_are_neighbors else graph
        sizes: dict[str, Any] = {"n_clusters": len(np.unique(graph.labels)), **({"n_epochs": 5} if quick else {})}
        table_1: dict[str, Any] = (
            {} if name in PAPER_TABLE_1 else {"alpha": 1.0, "beta": 1.0, "tau": 1.0, "n_hops": FitConfig().n_hops}
        )
        recipes = {"pamc": FitConfig(**sizes), "paper": preset("paper", data_set=name, **sizes, **table_1)}
        for config in recipes.values():  # what is compiled, loaded or allocated once
            fit_method("pamcgc", graph, config.with_(n_epochs=1, pretrain_epochs=1), seed=0, device=device)
        for provider, config in recipes.items():
            started = time.perf_counter()
            fit = fit_method("pamcgc", graph, config, seed=0, device=device)
            values = {"seconds": time.perf_counter() - started, "phases": fit.seconds}
            rows.append(
                {"provider": provider, "parameters": {"data_set": name, "device": str(device)}, "values": values}
            )
    return rows


def import_time(quick: bool) -> Rows:
    """Measure what `import pamc` adds to importing torch, in fresh processes."""
    seconds: dict[str, list[float]] = {"torch": [], "torch and pamc": []}
    for _ in range(2 if quick else 7):
        for name, code in (("torch", "import torch"), ("torch and pamc", "import torch, pamc")):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
            seconds[name].append(time.perf_counter() - started)
    added = median(seconds["torch and pamc"]) - median(seconds["torch"])
    values = {"added_s": added, "torch_s": median(seconds["torch"])}
    return [{"provider": "pamc", "parameters": {}, "values": values}]


def minibatch(quick: bool) -> Rows:
    """Measure how far the mean gradient of mini-batches is from the full-batch gradient."""
    return [
        {"provider": "torch", "parameters": {k: row.pop(k) for k in ("batches", "batch_size")}, "values": row}
        for row in minibatch_bias.main(n_nodes=600 if quick else 4000)
    ]


def choices(quick: bool) -> Rows:
    """Measure the clusters of the consensus start, and of what else it could be, against the true classes."""
    return start_choices(("digits",) if quick else _FITTED_SETS, seeds=1)


CASES: dict[str, Case] = {
    "kmeans": Case("K-means on raw features against the paper's row", kmeans),
    "fit-time": Case("whole fits: the defaults and the paper's recipe", fit_time),
    "start-choices": Case("the consensus start and what else it could be", choices),
    "import": Case("what importing pamc costs", import_time),
    "minibatch": Case("bias of mini-batches against full batch", minibatch),
}
