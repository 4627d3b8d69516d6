"""The cases: each a function that measures and returns rows with `provider`, `parameters` and `values`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import nn

from benchmarks import minibatch_bias
from benchmarks.measure import fitted_exponent, in_subprocess, interleaved_seconds, median
from benchmarks.rows import Rows
from benchmarks.start_choices import start_choices
from pamc.config import PAPER_TABLE_1, FitConfig, preset
from pamc.data.catalog import load_dataset
from pamc.graph.adjacency import build_adjacency
from pamc.graph.influence import positive_pairs
from pamc.models.layers import MLP
from pamc.models.pamcgc import PamCGCModel
from pamc.models.rows import FeatureRows
from pamc.results.metrics import evaluate
from pamc.runtime import generator, resolve_device
from pamc.training.engine import encode_rows
from pamc.training.fit import fit_method
from pamc.training.initialize import starting_centers
from pamc.training.trainer import train

__all__ = ["CASES", "Case"]

_FITTED_SETS = ("dblp", "cite", "acm", "usps", "hhar", "cora", "amazon_photo", "news4", "reut21578_4", "digits")

# Settings of the paper's recipe on sets that the paper does not have: what they are has no influence on time.
_NOT_IN_TABLE_1 = {"alpha": 1.0, "beta": 1.0, "tau": 1.0, "n_hops": 2}


@dataclass(frozen=True)
class Case:
    """One case: what it shows and the function that measures it; `quick` asks for a small version."""

    about: str
    measure: Callable[[bool], Rows]


def loss_scaling(quick: bool) -> Rows:
    """Measure `pamc_loss`, forward + backward, over N at a fixed degree; fit the exponents."""
    sizes = [2_000, 4_000, 8_000] if quick else [80_000, 160_000, 320_000]
    shape = {"degree": 10, "n_dims": 10, "n_clusters": 10}
    rounds = 1 if quick else 5
    measured: dict[int, list[dict[str, Any]]] = {size: [] for size in sizes}
    for _ in range(rounds):
        for size in sizes:
            measured[size].append(
                in_subprocess("benchmarks.probe_loss", loss="pamc", n_nodes=size, repeats=15, **shape)
            )
    rows: Rows = []
    for size in sizes:
        runs = measured[size]
        seconds = min(run["fastest_s"] for run in runs)
        values = {
            "n_pairs": runs[0]["n_pairs"],
            "peak_bytes": int(median([run["peak_bytes"] for run in runs])),
            "seconds": seconds,
            "ns_per_pair": 1e9 * seconds / runs[0]["n_pairs"],
        }
        rows.append({"provider": "torch", "parameters": {"n_nodes": size, **shape}, "values": values})
    series = {key: [row["values"][key] for row in rows] for key in ("seconds", "peak_bytes", "ns_per_pair")}
    summary = {
        "time_exponent": fitted_exponent(sizes, series["seconds"]),
        "memory_exponent": fitted_exponent(sizes, series["peak_bytes"]),
        "ns_per_pair_ratio": series["ns_per_pair"][-1] / series["ns_per_pair"][0],
    }
    return [*rows, {"provider": "torch", "parameters": {"n_nodes": [sizes[0], sizes[-1]], **shape}, "values": summary}]


def loss_memory(quick: bool) -> Rows:
    """Measure the peak memory of `pamc_loss` and of the N × N loss at the same N."""
    size = 2_000 if quick else 20_000
    shape = {"n_nodes": size, "degree": 10, "n_dims": 10, "n_clusters": 10}
    runs = {
        name: in_subprocess("benchmarks.probe_loss", loss=name, repeats=1, **shape) for name in ("pamc", "contrastive")
    }
    ratio = runs["contrastive"]["peak_bytes"] / runs["pamc"]["peak_bytes"]
    return [
        {"provider": "torch", "parameters": shape, "values": {**runs["pamc"], "times_less_memory": ratio}},
        {"provider": "dense", "parameters": shape, "values": runs["contrastive"]},
    ]


def epoch(quick: bool) -> Rows:
    """Measure an epoch on USPS, preset `paper`, against the bare encoder's forward, backward and Adam step."""
    graph = load_dataset("usps")
    config = preset("paper", data_set="usps", n_clusters=10, n_epochs=1000)
    adjacency = build_adjacency(graph.edges, n_nodes=graph.n_nodes, expect_directed=True)
    pairs, _ = positive_pairs(adjacency, n_hops=config.n_hops, max_positives=None, dtype=torch.float32)
    rows = FeatureRows(graph.features, device=torch.device("cpu"), dtype=torch.float32)
    sizes = (graph.n_features, *config.hidden, config.n_dims)
    encoder = MLP(sizes, generator=generator(0, "weights"))
    z = encode_rows(encoder, rows)
    centers, _ = starting_centers(z, config, seed=0)
    epochs = train(PamCGCModel(encoder, centers, pairs, config), rows, n_epochs=1000, lr=config.lr)

    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    bare = nn.Sequential(*layers[:-1])
    optimizer = torch.optim.Adam(bare.parameters(), lr=config.lr, fused=True)
    x, gradient = torch.from_numpy(graph.features), torch.randn_like(z)

    def bare_step() -> None:
        optimizer.zero_grad()
        bare(x).backward(gradient)
        optimizer.step()

    repeats = 2 if quick else 20
    seconds = interleaved_seconds({"epoch": lambda: next(epochs), "encoder": bare_step}, repeats=repeats)
    parameters = {"data_set": "usps", "preset": "paper", "n_pairs": pairs.n_pairs}
    middle = {name: median(values) for name, values in seconds.items()}
    ratio = median([a / b for a, b in zip(seconds["epoch"], seconds["encoder"], strict=True)])
    return [
        {"provider": "torch", "parameters": parameters, "values": {"seconds": middle["epoch"], "times_encoder": ratio}},
        {"provider": "encoder alone", "parameters": parameters, "values": {"seconds": middle["encoder"]}},
    ]


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
        graph = graph.without_edges() if graph.edges_are_neighbours else graph
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
    return start_choices(("digits",) if quick else _FITTED_SETS, seeds=1 if quick else 2)


CASES: dict[str, Case] = {
    "loss-scaling": Case("time and memory of pamc_loss over N", loss_scaling),
    "loss-memory": Case("memory of pamc_loss and of the N × N loss", loss_memory),
    "epoch": Case("an epoch against the bare encoder, USPS", epoch),
    "kmeans": Case("K-means on raw features against the paper's row", kmeans),
    "fit-time": Case("whole fits: the defaults and the paper's recipe", fit_time),
    "start-choices": Case("the consensus start and what else it could be", choices),
    "import": Case("what importing pamc costs", import_time),
    "minibatch": Case("bias of mini-batches against full batch", minibatch),
}
