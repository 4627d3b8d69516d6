"""Fits for experiments: the task "fit", training time after a warm-up, memory, inference time, and the demo."""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import Tensor

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.catalog import load_dataset
from pamc.estimator import PamCGC, clusterer
from pamc.lab.cell import TASKS, Cell
from pamc.lab.measure import peak_bytes, release, reset_peak, timed_s, wait
from pamc.lab.settings import BLOCKS, load, load_unlinked, n_classes, quick_settings
from pamc.losses.clustering import log_soft_assignment
from pamc.models.base import GraphModel
from pamc.models.loader import FeatureLoader
from pamc.models.method import METHODS
from pamc.progress import Progress
from pamc.results.metrics import evaluate
from pamc.runtime import resolve_device, resolve_dtype
from pamc.training.assign import assign_rows
from pamc.training.fallback import Epoch, OnEpoch
from pamc.training.phases import Fit
from pamc.training.pipeline import fit_method

# Epochs between evaluations of methods that assign by K-means at the end; each evaluation runs K-means.
RARELY = 20


class EpochWatch:
    """Callback that evaluates labels against the true classes every `every` epochs, hidden from training.

    Rows of class −1, which are noise, do not count.
    """

    def __init__(self, truth: NDArray[np.int64], *, every: int) -> None:
        self.truth, self._scored = truth, truth >= 0
        self.every = every
        self.epochs: list[int] = []
        self.metrics: list[dict[str, float]] = []
        self.seconds = 0.0

    def __call__(self, epoch: Epoch) -> None:
        """Evaluate the labels of an epoch if it is a multiple of `every`."""
        if epoch.number % self.every == 0:
            self.add(epoch.number, epoch.labels())

    def add(self, epoch: int, labels: NDArray[np.int64]) -> dict[str, float]:
        """Evaluate labels, store the metrics and return them."""
        started = time.perf_counter()
        metrics = evaluate(self.truth[self._scored], labels[self._scored])
        self.epochs.append(epoch)
        self.metrics.append(metrics)
        self.seconds += time.perf_counter() - started
        return metrics

    def oracle(self) -> tuple[dict[str, float], dict[str, int]]:
        """Return the best value of each metric separately, and the first epoch that reaches it."""
        best = {name: int(np.argmax([m[name] for m in self.metrics])) for name in self.metrics[0]}
        values = {name: self.metrics[position][name] for name, position in best.items()}
        return values, {name: self.epochs[position] for name, position in best.items()}


@TASKS.register("fit")
def fit(cell: Cell, device: str) -> dict[str, Any]:
    """Fit a method and compare its labels with the true classes at the last epoch and at the best epochs.

    The best epoch of each metric (`oracle`) is chosen with the true labels, as in the released program; the fit never
    sees them. `seconds["training"]` includes `seconds["evaluation"]`. `peak_bytes` is the peak GPU memory that this
    process allocated during the fit, or None on the CPU. The parameter `own_graph` discards a list of nearest neighbors
    that comes with the data, so that the method builds its own graph. `constants` replace those of modules.
    """
    read = load_unlinked if cell.parameters.get("own_graph") else load
    graph, resolved = read(cell.data_set, cell.quick), resolve_device(device)
    every = cell.parameters.get("evaluated_every") or (1 if assigns_every_epoch(cell.provider) else RARELY)
    watch = EpochWatch(np.asarray(graph.labels), every=every)
    model = clusterer(
        cell.provider, n_clusters=n_classes(graph), random_state=cell.seed, device=device, **cell.settings
    )
    reset_peak(resolved)
    with replaced_constants(cell.parameters.get("constants", {})):
        model.fit_graph(graph.without_labels(), on_epoch=watch)
    peak = peak_bytes(resolved)
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


@contextmanager
def replaced_constants(constants: Mapping[str, Any]) -> Iterator[None]:
    """Replace constants of modules within the `with` block, by names such as "initialize.family._N_SUPPORTERS"."""
    replaced = []
    try:
        for name, value in constants.items():
            module, _, attribute = name.rpartition(".")
            owner = importlib.import_module(f"pamc.{module}")
            replaced.append((owner, attribute, getattr(owner, attribute)))
            setattr(owner, attribute, value)
        yield
    finally:
        for owner, attribute, value in replaced:
            setattr(owner, attribute, value)


@cache
def assigns_every_epoch(method: str) -> bool:
    """Return whether a method assigns rows in every epoch, determined by one epoch on a small graph."""
    settings = {name: 1 if name.endswith("epochs") else value for name, value in quick_settings(method).items()}
    model = clusterer(method, n_clusters=4, random_state=0, device="cpu", **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit_graph(load(BLOCKS, True).without_labels())
    return bool(model.assigns_every_epoch_)


# Settings of a warm-up fit, which loads kernels and fills caches.
_WARM_UP = {"n_epochs": 2, "pretrain_epochs": 1, "n_init": 1}


class TrainingProbe:
    """Measures the peak memory of training without the first epoch, in which the optimizer allocates its buffers.

    Pass it to a fit as `on_epoch`. It synchronizes the device after the last epoch, so that the training time includes
    all work.
    """

    def __init__(self, device: torch.device, n_epochs: int) -> None:
        self.device = device
        self.n_epochs = n_epochs
        self.peak: int | None = None

    def __call__(self, epoch: Epoch) -> None:
        """Start measuring after the first epoch and read the peak after the last."""
        if epoch.number == self.n_epochs:
            wait(self.device)
            self.peak = peak_bytes(self.device) if epoch.number > 1 else None
        elif epoch.number == 1:
            reset_peak(self.device)


def fit_cell(
    cell: Cell,
    graph: AttributedGraph,
    device: torch.device,
    *,
    changes: Mapping[str, Any] | None = None,
    known_labels: NDArray[np.int64] | None = None,
    on_epoch: OnEpoch | None = None,
) -> Fit:
    """Fit a cell's method to a graph without its labels and return the fit, which includes the warnings.

    `changes` override the settings of the cell; settings that the method does not have are ignored.
    """
    entry = METHODS[cell.provider]
    changed = {name: value for name, value in (changes or {}).items() if name in entry.config.names()}
    config = entry.config(**{"n_clusters": n_classes(graph), **cell.settings, **changed})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = fit_method(
            cell.provider,
            graph.without_labels() if entry.uses_graph else graph.without_labels().without_edges(),
            config,
            seed=cell.seed,
            device=device,
            known_labels=known_labels,
            on_epoch=on_epoch,
        )
    return replace(fit, warnings=tuple(dict.fromkeys(str(warning.message) for warning in caught)))


def warm_up(cell: Cell, graph: AttributedGraph, device: torch.device) -> None:
    """Fit a cell for two epochs and discard the fit, to pay the one-time costs of the first fit in a process."""
    fit_cell(cell, graph, device, changes=_WARM_UP)
    release(device)


@torch.no_grad()
def inference_s(fit: Fit, graph: AttributedGraph, device: torch.device, n_runs: int) -> float:
    """Return the seconds that `n_runs` assignments of all rows take, with the rows on the device."""
    eta = getattr(fit.config, "eta", 1.0)
    rows = FeatureLoader(
        fit.preprocessing.apply(graph.features),
        device=device,
        dtype=resolve_dtype(fit.config.precision),
        sparse=fit.sparse_input,
    )
    network: Any = fit.network

    def labels() -> Tensor:
        if not isinstance(network, GraphModel):
            return assign_rows(network.encoder, fit.centers, rows, eta=eta, chunk_size=len(rows))[1].argmax(dim=1)
        reading = network.read(rows.whole())
        q = log_soft_assignment(reading.z, fit.centers, eta=eta) if reading.q is None else reading.q
        return q.argmax(dim=1)

    def repeated(n_times: int) -> None:
        for _ in range(n_times):
            labels()

    repeated(2)
    return timed_s(lambda: repeated(n_runs), device)


class DemoRun(NamedTuple):
    """A run of one method with one seed: its label metrics and, for PamCGC, the model."""

    method: str
    metrics: dict[str, float]
    graph: AttributedGraph
    model: PamCGC | None = None


def run_demo(*, seeds: range, progress: Progress, n_epochs: int | None = None) -> Iterator[DemoRun]:
    """Yield K-means on the raw pixels and PamCGC with its defaults, for each seed."""
    graph = load_dataset("digits")
    truth = np.asarray(graph.labels)
    for seed in seeds:
        kmeans = KMeans(10, n_init=20, random_state=seed).fit(graph.features)
        yield DemoRun("K-means", evaluate(truth, kmeans.labels_), graph)
        model = PamCGC(10, random_state=seed, n_epochs=n_epochs).fit_graph(graph, progress=progress)
        yield DemoRun("PamCGC", evaluate(truth, model.labels_), graph, model)
