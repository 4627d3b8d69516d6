"""Fits that are measured: time without a warm-up's share, memory of the training alone, time of inference."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamc.data.attributed_graph import AttributedGraph
from pamc.experiments.data import n_classes
from pamc.experiments.experiment import Cell
from pamc.experiments.tasks import peak_bytes, reset_peak
from pamc.losses.clustering import log_soft_assignment
from pamc.models.base import GraphModel
from pamc.models.loader import FeatureLoader
from pamc.models.method import METHODS
from pamc.runtime import resolve_dtype
from pamc.training.pipeline import Fit, OnEpoch, assign_rows, fit_method

__all__ = ["TrainingProbe", "fit_cell", "inference_s", "release", "wait", "warm_up"]

# What a fit before the measured one is cut down to: it loads kernels and fills caches.
_WARM_UP = {"n_epochs": 2, "pretrain_epochs": 1, "n_init": 1}


class TrainingProbe:
    """Reads the peak memory of training, its first epoch apart, in which the optimizer makes its buffers.

    To be handed to a fit as `on_epoch`. After the last epoch it waits for the device, so that the time of training
    holds all of its work.

    Parameters
    ----------
    device
        Of the fit.
    n_epochs
        Number of the last epoch.
    """

    def __init__(self, device: torch.device, n_epochs: int) -> None:
        self.device = device
        self.n_epochs = n_epochs
        self.peak: int | None = None

    def __call__(self, epoch: int, labels: Callable[[], NDArray[np.int64]]) -> None:
        """Start to measure after the first epoch, and read after the last."""
        if epoch == self.n_epochs:
            wait(self.device)
            self.peak = peak_bytes(str(self.device)) if epoch > 1 else None
        elif epoch == 1:
            reset_peak(str(self.device))


def fit_cell(
    cell: Cell,
    graph: AttributedGraph,
    device: torch.device,
    *,
    changes: Mapping[str, Any] | None = None,
    known_labels: NDArray[np.int64] | None = None,
    on_epoch: OnEpoch | None = None,
) -> Fit:
    """Return a cell's method fitted to a graph, whose labels it does not see; warnings are in the fit.

    Parameters
    ----------
    changes
        Settings in the place of the cell's; those that the method has not are left out.
    """
    entry = METHODS[cell.method]
    changed = {name: value for name, value in (changes or {}).items() if name in entry.config.names()}
    config = entry.config(**{"n_clusters": n_classes(graph), **cell.settings, **changed})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = fit_method(
            cell.method,
            graph.without_labels() if entry.uses_graph else graph.without_labels().without_edges(),
            config,
            seed=cell.seed,
            device=device,
            known_labels=known_labels,
            on_epoch=on_epoch,
        )
    return replace(fit, warnings=tuple(dict.fromkeys(str(warning.message) for warning in caught)))


def warm_up(cell: Cell, graph: AttributedGraph, device: torch.device) -> None:
    """Fit a cell for two epochs and forget the fit: what only the first fit of a process does is done then."""
    fit_cell(cell, graph, device, changes=_WARM_UP)
    release(device)


@torch.no_grad()
def inference_s(fit: Fit, graph: AttributedGraph, device: torch.device, n_runs: int) -> float:
    """Return the seconds that `n_runs` assignments of all rows take, the rows being on the device."""
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

    for _ in range(2):
        labels()
    wait(device)
    started = time.perf_counter()
    for _ in range(n_runs):
        labels()
    wait(device)
    return time.perf_counter() - started


def wait(device: torch.device) -> None:
    """Return once the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release(device: torch.device) -> None:
    """Give back the memory of what is no longer used, so that it does not count in the next measurement."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
