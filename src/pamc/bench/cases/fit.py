"""Whole fits from raw rows with the defaults: graph, start, centers, training, labels."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import torch

from pamc.bench.case import Cell, Scope, register_case
from pamc.bench.measure import peak_memory, release
from pamc.config import FitConfig
from pamc.experiments.data import load, n_classes
from pamc.experiments.timing import wait
from pamc.training.pipeline import fit_method

__all__ = ["cells", "fit_values"]

# Of the fit before the measured one: enough that an epoch is captured.
_WARM_UP_EPOCHS = 6


@register_case("fit", "whole fits from raw rows with the defaults, by phases")
def cells(scope: Scope) -> list[Cell]:
    """Return a cell per data set."""
    names = scope.data_sets or (("digits",) if scope.quick else ("usps",))
    return [Cell("pamc", {"data_set": name}, partial(fit_values, name, scope)) for name in names]


def fit_values(data_set: str, scope: Scope) -> dict[str, Any]:
    """Return the seconds of a fit and of its phases, and its peak memory, after a short fit of the same shapes."""
    graph = load(data_set, scope.quick)
    config = FitConfig(n_clusters=n_classes(graph))
    config = config.with_(n_epochs=10, hidden=(64, 64)) if scope.quick else config
    graph = graph.without_labels()
    # A list of neighbors that comes with the data is left out: the fit makes its own.
    graph = graph.without_edges() if graph.edges_are_neighbors else graph
    short = config.with_(n_epochs=min(_WARM_UP_EPOCHS, config.n_epochs), pretrain_epochs=1)
    _fit(graph, short, scope.device)
    release(scope.device)
    with peak_memory(scope.device) as peak:
        started = time.perf_counter()
        phases = _fit(graph, config, scope.device)
        wait(scope.device)
        seconds = time.perf_counter() - started
    return {"seconds": seconds, "phases": phases, "peak_bytes": peak.n_bytes, "n_epochs": config.n_epochs}


def _fit(graph: Any, config: FitConfig, device: torch.device) -> dict[str, float]:
    return fit_method("pamcgc", graph, config, seed=0, device=device).seconds
