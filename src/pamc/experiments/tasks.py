"""What a cell does: tasks by name, each a function of a cell and a device that returns the values of a row."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from pamc.estimator import clusterer
from pamc.experiments.data import BLOCKS, load, n_classes
from pamc.experiments.experiment import Cell
from pamc.experiments.settings import quick_settings
from pamc.registry import Registry
from pamc.results.metrics import evaluate
from pamc.runtime import resolve_device

__all__ = ["TASKS", "EpochWatch", "Task", "assigns_every_epoch", "fit", "peak_bytes", "reset_peak"]

Task: TypeAlias = Callable[[Cell, str], dict[str, Any]]

TASKS: Registry[Task] = Registry("task", package="pamc.experiments.paper")

# Methods that assign once, by K-means at the end, are evaluated this often: each time is a K-means of its own.
_RARELY = 20


class EpochWatch:
    """Evaluates labels against the true classes while a method trains; the training cannot see it.

    Parameters
    ----------
    truth
        (N,) true classes.
    every
        Epochs from one evaluation to the next.
    """

    def __init__(self, truth: NDArray[np.int64], *, every: int) -> None:
        self.truth = truth
        self.every = every
        self.epochs: list[int] = []
        self.metrics: list[dict[str, float]] = []
        self.seconds = 0.0

    def __call__(self, epoch: int, labels: Callable[[], NDArray[np.int64]]) -> None:
        """Evaluate the labels of an epoch, where it is one of those to look at."""
        if epoch % self.every == 0:
            self.add(epoch, labels())

    def add(self, epoch: int, labels: NDArray[np.int64]) -> dict[str, float]:
        """Evaluate labels, keep the metrics and return them."""
        started = time.perf_counter()
        metrics = evaluate(self.truth, labels)
        self.epochs.append(epoch)
        self.metrics.append(metrics)
        self.seconds += time.perf_counter() - started
        return metrics

    def oracle(self) -> tuple[dict[str, float], dict[str, int]]:
        """Return the best value of each metric on its own, and the first epoch that has it."""
        best = {name: int(np.argmax([m[name] for m in self.metrics])) for name in self.metrics[0]}
        values = {name: self.metrics[position][name] for name, position in best.items()}
        return values, {name: self.epochs[position] for name, position in best.items()}


@TASKS.register("fit")
def fit(cell: Cell, device: str) -> dict[str, Any]:
    """Fit a method and compare its labels with the true classes at the last epoch and at the best ones.

    The best epoch of each metric (`oracle`) is chosen with the true labels, as the released program does; they never
    reach the fit. `seconds["evaluation"]` is part of `seconds["training"]`. `peak_bytes` is the most that this process
    had allocated on the GPU during the fit; None on the CPU. With the option `own_graph` a list of nearest neighbors
    that comes with the data is left out, so that the method builds its own graph.
    """
    graph = load(cell.data_set, cell.quick)
    if cell.options.get("own_graph") and graph.edges_are_neighbors:
        graph = graph.without_edges()
    every = cell.options.get("evaluated_every") or (1 if assigns_every_epoch(cell.method) else _RARELY)
    watch = EpochWatch(np.asarray(graph.labels), every=every)
    model = clusterer(cell.method, n_clusters=n_classes(graph), random_state=cell.seed, device=device, **cell.settings)
    reset_peak(device)
    model.fit_graph(graph.without_labels(), on_epoch=watch)
    peak = peak_bytes(device)
    record = model.record()
    last = watch.add(record.n_epochs_run, model.labels_)
    oracle, oracle_epochs = watch.oracle()
    return {
        "selection": "last",
        "last": last,
        "oracle": oracle,
        "oracle_epochs": oracle_epochs,
        "evaluated_every": watch.every,
        "n_epochs_run": record.n_epochs_run,
        "seconds": {**record.seconds, "evaluation": watch.seconds},
        "peak_bytes": peak,
        "config": record.config,
        "scores": record.scores,
        "facts": record.facts,
        "cluster_sizes": record.cluster_sizes,
        "warnings": record.warnings,
    }


@cache
def assigns_every_epoch(method: str) -> bool:
    """Return whether a method assigns rows in every epoch, as one epoch on a small graph shows."""
    settings = {name: 1 if name.endswith("epochs") else value for name, value in quick_settings(method).items()}
    model = clusterer(method, n_clusters=4, random_state=0, device="cpu", **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit_graph(load(BLOCKS, True).without_labels())
    return bool(model.assigns_every_epoch_)


def reset_peak(device: str) -> None:
    """Start to measure this process's peak memory on a GPU; nothing on the CPU."""
    resolved = resolve_device(device)
    if resolved.type == "cuda":
        torch.cuda.reset_peak_memory_stats(resolved)


def peak_bytes(device: str) -> int | None:
    """Return the peak since :func:`reset_peak`, None on the CPU."""
    resolved = resolve_device(device)
    return int(torch.cuda.max_memory_allocated(resolved)) if resolved.type == "cuda" else None
