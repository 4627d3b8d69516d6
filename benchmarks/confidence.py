"""What confidence is worth on data with known classes: `python -m benchmarks.confidence` appends a row for each set.

Accuracy and the agreement of re-fits with other seeds are compared with what the fit said, before (the largest q) and
after calibration. Neither is seen by the fit.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.choose_k import PLANTED, fit_seconds
from benchmarks.rows import append, stamp
from pamc import AttributedGraph, PamCGC, load_dataset
from pamc.bench.rows import Row
from pamc.initialize.calibration import calibration_error, fit_split_halves, matched_clusters

__all__ = ["SETS", "cost", "measure"]

SETS = ("dblp", "acm", "cite", "cora", "usps", "hhar", "amazon_photo")

_N_BINS = 10


def main() -> None:
    """Measure data sets by name and append their rows."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", default=list(SETS), metavar="NAME")
    parser.add_argument("--refits", type=int, default=3, help="further fits, with other seeds")
    parser.add_argument("--epochs", type=int, default=PamCGC().n_epochs, help="of each fit")
    parser.add_argument("--device", default="cpu", help="where to fit")
    parser.add_argument("--cost", action="store_true", help="measure what calibration costs, and nothing else")
    parser.add_argument("--quick", action="store_true", help="rows are marked and never shown in tables")
    arguments = parser.parse_args()
    origin = stamp(quick=arguments.quick, device=arguments.device)
    options = {"n_refits": arguments.refits, "n_epochs": arguments.epochs, "device": arguments.device}
    for name in arguments.names:
        row = cost(name) if arguments.cost else measure(name, **options)
        append("confidence", [row], origin)
        print(name, json.dumps({key: value for key, value in row["values"].items() if key != "bins"}), flush=True)


def measure(name: str, *, n_refits: int, n_epochs: int, device: str = "cpu") -> Row:
    """Return the row of one data set."""
    graph = PLANTED[name](0) if name in PLANTED else load_dataset(name)
    graph = graph.without_edges() if graph.edges_are_neighbors else graph
    truth: Any = graph.labels
    n_clusters = len(np.unique(truth))
    truth = np.unique(truth, return_inverse=True)[1]
    model = _fitted(graph, n_clusters, n_epochs, 0, device)
    facts = model._fit_result.facts
    q = model.predict_proba(graph.features).max(axis=1)
    correct = matched_clusters(model.labels_, truth, n_clusters) == truth
    values: dict[str, Any] = {
        "acc": float(correct.mean()),
        "confidence": float(model.confidence_.mean()),
        "largest_q": float(q.mean()),
        "stated_error": facts.get("confidence_error"),
        "error_to_accuracy": calibration_error(model.confidence_, correct),
        "error_to_accuracy_of_q": calibration_error(q, correct),
        "auc": float(roc_auc_score(correct, model.confidence_)),
        "auc_of_q": float(roc_auc_score(correct, q)),
        "bins": _bins(model.confidence_, correct),
    }
    if n_refits:
        agreed = np.mean(
            [
                matched_clusters(_fitted(graph, n_clusters, n_epochs, seed, device).labels_, model.labels_, n_clusters)
                == model.labels_
                for seed in range(1, 1 + n_refits)
            ],
            axis=0,
        )
        values |= {
            "refits_agree": float(agreed.mean()),
            "error_to_refits": calibration_error(model.confidence_, agreed),
            "error_to_refits_of_q": calibration_error(q, agreed),
        }
    parameters = {"data": name, "n_nodes": graph.n_nodes, "n_refits": n_refits, "n_epochs": n_epochs}
    return {"provider": "pamcgc", "parameters": parameters, "values": values}


def cost(name: str) -> Row:
    """Return the row of what calibration takes of a fit of the default settings, in seconds of the processor."""
    graph = PLANTED[name](0) if name in PLANTED else load_dataset(name)
    graph = graph.without_edges() if graph.edges_are_neighbors else graph
    n_clusters = len(np.unique(graph.labels))
    spent: list[float] = []

    def timed(*arguments: Any, **options: Any) -> Any:
        began = time.process_time()
        found = fit_split_halves(*arguments, **options)
        spent.append(time.process_time() - began)
        return found

    with mock.patch("pamc.training.pipeline.fit_halves", timed):
        fit_s = fit_seconds(graph, n_clusters, 0)
    values = {"calibration_s": spent[0], "fit_s": fit_s, "share": spent[0] / fit_s}
    return {"provider": "calibration", "parameters": {"data": name, "n_nodes": graph.n_nodes}, "values": values}


def _fitted(graph: AttributedGraph, n_clusters: int, n_epochs: int, seed: int, device: str) -> PamCGC:
    return PamCGC(n_clusters, n_epochs=n_epochs, random_state=seed, device=device).fit_graph(graph)


def _bins(confidence: NDArray[np.floating[Any]], correct: NDArray[np.bool_]) -> list[dict[str, float]]:
    """Return the mean confidence and accuracy of bins of equal counts, the least confident first."""
    parts = np.array_split(np.argsort(confidence, kind="stable"), _N_BINS)
    return [
        {
            "n_rows": len(part),
            "confidence": float(confidence[part].mean()),
            "accuracy": float(correct[part].mean()),
        }
        for part in parts
        if len(part)
    ]


if __name__ == "__main__":
    main()
