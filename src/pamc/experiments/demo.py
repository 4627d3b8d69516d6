"""The demonstration: scikit-learn's digits, K-means beside PamCGC."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.catalog import load_dataset
from pamc.estimator import PamCGC
from pamc.ops.kmeans import kmeans
from pamc.progress import Progress
from pamc.results.metrics import evaluate

__all__ = ["DemoRun", "run_demo"]

N_CLUSTERS = 10


@dataclass(frozen=True, eq=False)
class DemoRun:
    """One seed of one method: its label metrics and, for PamCGC, the model."""

    method: str
    seed: int
    metrics: dict[str, float]
    graph: AttributedGraph
    model: PamCGC | None = None


def run_demo(*, seeds: range, progress: Progress, n_epochs: int = 200) -> Iterator[DemoRun]:
    """Yield K-means on the raw pixels and PamCGC with its defaults, for each seed."""
    graph = load_dataset("digits")
    truth = np.asarray(graph.labels)
    for seed in seeds:
        fit = kmeans(graph.features, N_CLUSTERS, seeds=[seed], n_init=20)[0]
        yield DemoRun("K-means", seed, evaluate(truth, fit.labels), graph)
        model = PamCGC(N_CLUSTERS, random_state=seed, n_epochs=n_epochs).fit_graph(graph, progress=progress)
        yield DemoRun("PamCGC", seed, evaluate(truth, model.labels_), graph, model)
