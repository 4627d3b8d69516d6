"""How many clusters choose_k finds, beside the truth, and what it costs beside a fit: `python -m benchmarks.choose_k`.

Rows are of data with known classes; those are counted for the table and never seen by choose_k.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from benchmarks.rows import append, stamp
from pamc import AttributedGraph, PamCGC, choose_k, load_dataset
from pamc.bench.rows import Row
from pamc.data.synthetic import block_model

__all__ = ["PLANTED", "SETS", "WITHOUT", "fit_seconds", "measure"]

SETS = ("dblp", "acm", "cite", "cora", "usps", "hhar", "amazon_photo")

_NOISE = {"clear": {}, "noisy": {"homophily": 0.65, "feature_noise": 2.0}}

# Planted groups, clear and noisy.
PLANTED: dict[str, Callable[[int], AttributedGraph]] = {
    f"{n_groups} groups, {noise}": lambda seed, n=n_groups, options=options: block_model(
        100 * n if n > 5 else 600, n, random_state=seed, **options
    )
    for n_groups in (3, 7, 15)
    for noise, options in _NOISE.items()
}

# Data without clusters, or whose clusters overlap.
WITHOUT: dict[str, Callable[[int], AttributedGraph]] = {
    "Gaussian noise": lambda seed: AttributedGraph(np.random.default_rng(seed).normal(size=(800, 16))),
    "a uniform square": lambda seed: AttributedGraph(np.random.default_rng(seed).uniform(size=(800, 2))),
    "a random graph": lambda seed: block_model(800, 1, random_state=seed),
    "overlapping blocks, sizes 1:20": lambda seed: block_model(
        1050, 2, sizes=[50, 1000], homophily=0.5, feature_noise=4, random_state=seed
    ),
}

# Epochs that are timed; the others take as long.
_TIMED_EPOCHS = 4


def main() -> None:
    """Measure data sets by name, planted groups and data without clusters, and append their rows."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", default=[*SETS, *PLANTED, *WITHOUT], metavar="NAME")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="rows are marked and never shown in tables")
    arguments = parser.parse_args()
    origin = stamp(quick=arguments.quick, device="cpu")
    for name in arguments.names:
        for seed in range(arguments.seeds):
            row = measure(name, seed)
            append("choose_k", [row], origin)
            print(
                name, seed, json.dumps({key: row["values"][key] for key in ("truth", "n_clusters", "cost")}), flush=True
            )


def measure(name: str, seed: int) -> Row:
    """Return the row of one answer, and of its cost in fits of the default settings.

    Both in seconds of the processor, which other work on the machine does not change.
    """
    made = PLANTED.get(name) or WITHOUT.get(name)
    graph = load_dataset(name) if made is None else made(seed)
    graph = graph.without_edges() if graph.edges_are_neighbors else graph
    truth = 0 if name in WITHOUT else len(np.unique(graph.labels))
    began = time.process_time()
    chosen = choose_k(graph, random_state=seed, device="cpu")
    seconds = time.process_time() - began
    fit_s = fit_seconds(graph, max(2, truth), seed)
    n_candidates = len(chosen.table["n_clusters"])
    values = {
        "truth": truth or None,
        **chosen.facts(),
        "seconds": seconds,
        "fit_s": fit_s,
        "cost": seconds / fit_s,
        "allowed_cost": 2 + 0.2 * n_candidates,
    }
    parameters = {"data": name, "seed": seed, "n_nodes": graph.n_nodes, "n_candidates": n_candidates}
    return {"provider": "choose_k", "parameters": parameters, "values": values}


def fit_seconds(graph: AttributedGraph, n_clusters: int, seed: int) -> float:
    """Return the seconds of a fit of the default settings, all but some epochs reckoned from those that were run."""
    model = PamCGC(n_clusters, n_epochs=_TIMED_EPOCHS, random_state=seed, device="cpu")
    began = time.process_time()
    wall_began = time.perf_counter()
    model.fit_graph(graph)
    seconds, wall = time.process_time() - began, time.perf_counter() - wall_began
    # Of the processor's time training has the share that it has of the clock's.
    training = seconds * model.record().seconds["training"] / wall
    return seconds + (PamCGC().n_epochs / _TIMED_EPOCHS - 1) * training


if __name__ == "__main__":
    main()
