"""What the phases of a fit hand to each other, from prepared rows to the fit, and what each of them refuses."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pamc.config import MethodConfig
from pamc.data.attributed_graph import Features
from pamc.data.preprocessing import Preprocessing
from pamc.data.store.store import StoreFeatures
from pamc.distributed.group import TorchProcessGroup
from pamc.errors import ConfigError, DataError, TrainingError
from pamc.graph.adjacency import Adjacency
from pamc.initialize.base import InitResult
from pamc.initialize.calibration import BeforeTraining, Calibration
from pamc.initialize.consensus import InputSource
from pamc.models.loader import FeatureLoader
from pamc.models.method import Method
from pamc.progress import Progress
from pamc.runtime import resolve_dtype, resolve_row_dtype
from pamc.training.checkpoint import FileCheckpointer
from pamc.training.trainer import EpochRecord

__all__ = [
    "Clock",
    "Fit",
    "FitContext",
    "Initialized",
    "Neighbors",
    "Prepared",
    "Start",
    "Trained",
    "check_embedding",
    "check_enough_rows",
    "check_known_labels",
    "count_distinct",
]


class Clock:
    """Shows and times the phases of a fit.

    Parameters
    ----------
    progress
        Shows the phases.

    Attributes
    ----------
    seconds
        Wall-clock time by phase; a phase that is entered again adds up.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Time what is inside under a name."""
        began = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what is inside, and show it."""
        with self.timed(name), self.progress.phase(name):
            yield


@dataclass(frozen=True, eq=False, kw_only=True)
class FitContext:
    """What every phase of a fit may use.

    Parameters
    ----------
    method, config, seed, device
        The method, its settings, the random seed and the device of the fit.
    clock
        Shows and times the phases.
    encoder
        A row-wise module of the user's to train instead of the MLP, or None.
    pretrained
        A file of pre-trained weights in SDCN's layout to load instead of pre-training, or None.
    known_labels
        (N,) known cluster of some rows, −1 for the others, or None.
    group
        The processes that train together; None for this one alone.
    """

    method: Method
    config: Any
    seed: int
    device: torch.device
    clock: Clock
    encoder: nn.Module | None = None
    pretrained: str | None = None
    known_labels: NDArray[np.int64] | None = None
    group: TorchProcessGroup | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Number type of weights and embedding."""
        return resolve_dtype(self.config.precision)

    @property
    def row_dtype(self) -> torch.dtype:
        """Number type of the rows that the encoder takes."""
        return resolve_row_dtype(self.config.precision, self.device)


@dataclass(frozen=True, eq=False)
class Prepared:
    """The first phase: rows as the method sees them.

    Parameters
    ----------
    preprocessing
        Maps raw rows to prepared ones; new rows go through it too.
    features
        (N, d) prepared rows, in memory or read from a store when they are asked for.
    loader
        The same, as the encoder takes them.
    sample
        (n,) numbers of the rows that the initial model is made of; None for all rows.
    """

    preprocessing: Preprocessing
    features: Features | StoreFeatures
    loader: FeatureLoader
    sample: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The second phase: the graph whose edges are the positive pairs.

    Parameters
    ----------
    graph
        A symmetric adjacency matrix, or a store (or arrays like it) with `indptr`, `indices` and `weight`; None for a
        method without a graph.
    inputs
        What the initial clusters are found in, features or graph or both; None where the initializer does not ask.
    facts
        What was decided, in plain values: "graph" is "given", "knn" or "not used".
    """

    graph: Any
    inputs: InputSource | None
    facts: Mapping[str, object]


@dataclass(frozen=True, eq=False)
class Start:
    """Where training starts from.

    Parameters
    ----------
    init
        What the initializer returned; None for a method that has none.
    encoder, decoder, pretrained
        Networks that the method's model is built from.
    centers
        (C, n_dims) initial centers; None where the method places its own.
    """

    init: InitResult | None
    encoder: nn.Module | None = None
    decoder: nn.Module | None = None
    pretrained: Any = None
    centers: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Initialized:
    """The third phase: the model before its first epoch, and all that led to it.

    Parameters
    ----------
    prepared, neighbors, start
        The phases before.
    model
        The method's model.
    kept_influence
        Share of the influence that the positive pairs hold.
    checkpointer
        Keeps the state of training; None where nobody asked for it.
    """

    prepared: Prepared
    neighbors: Neighbors
    start: Start
    model: Any
    kept_influence: float
    checkpointer: FileCheckpointer | None


@dataclass(frozen=True, eq=False)
class Trained:
    """The fourth phase: the model after its last epoch.

    Parameters
    ----------
    model
        The model, or, of several processes, this one's share of it.
    loader
        The rows that it was trained on here.
    history
        Every value of every epoch, by name.
    fallback
        What a lost cluster led to; None where none was lost.
    before
        Encoder and centers before the first epoch, which confidence follows from; None where nothing asks for them.
    """

    model: Any
    loader: FeatureLoader
    history: list[EpochRecord]
    fallback: str | None
    before: BeforeTraining | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Fit:
    """What training leaves behind.

    Parameters
    ----------
    method, config, seed, device
        How it was fitted.
    encoder
        Row-wise network that embeds new rows; None for methods that need the graph.
    network
        The whole trained model; None for a fit that was loaded.
    centers, meta_nodes, preprocessing, sparse_input
        What new rows need beside it.
    z, labels, confidence
        (N, n_dims), (N,), (N,): the rows it was fitted on.
    calibration
        How confidence follows from margins before training; None where it is the largest q.
    history
        Every value of every epoch, by name.
    seconds
        Wall-clock time by phase.
    scores
        Label-free scores: `modularity` of the labels on the graph, where there is one, `silhouette` of the embedding,
        `objective`: the loss of the last epoch, comparable between fits that lost different numbers of clusters.
    facts
        What was found or decided on the way, in plain values.
    warnings
        What the user was warned of.
    adjacency
        The graph that was used, given or made; None for a fit from files and for one that was loaded.
    """

    method: str
    config: MethodConfig
    seed: int
    device: str
    encoder: nn.Module | None
    network: nn.Module | None
    centers: Tensor
    meta_nodes: Tensor
    preprocessing: Preprocessing
    sparse_input: bool
    z: Tensor
    labels: NDArray[np.int64]
    confidence: NDArray[np.floating]
    history: dict[str, list[float]]
    seconds: dict[str, float]
    scores: dict[str, float]
    facts: dict[str, object]
    warnings: tuple[str, ...] = ()
    calibration: Calibration | None = None
    adjacency: Adjacency | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Fit:
        """Return an independent copy.

        Shared are what nothing ever changes: the graph, and a network that is not run again, as it has no encoder of
        single rows (its sparse tensors cannot be copied by torch).
        """
        memo[id(self.adjacency)] = self.adjacency
        if self.encoder is None:
            memo[id(self.network)] = self.network
        return replace(self, **{name: copy.deepcopy(value, memo) for name, value in vars(self).items()})


def check_embedding(values: Tensor, n_nodes: int, when: str, help_with: str) -> None:
    """Refuse an embedding of another shape than (N, n_dims), or with values that are not finite."""
    if values.ndim != 2 or len(values) != n_nodes:
        raise ConfigError(
            f"encoder must map (n, d) rows to (n, n_dims): for {n_nodes} rows it returned shape {tuple(values.shape)}"
        )
    if not torch.isfinite(values).all():
        raise TrainingError(f"{when}: the embedding is not finite. {help_with} may help")


def check_enough_rows(features: Features, n_clusters: int, *, distinct: bool = True) -> None:
    """Refuse more clusters than there are rows, or than there are distinct ones where a method tells them by these."""
    n_nodes = features.shape[0]
    if n_clusters > n_nodes:
        raise ConfigError(
            f"n_clusters={n_clusters} is more than the number of rows, n_samples={n_nodes}: ask for fewer clusters"
        )
    if not distinct:
        return
    n_distinct = count_distinct(features, at_most=n_clusters)
    if n_distinct < n_clusters:
        raise DataError(
            f"n_clusters={n_clusters} is more than the number of distinct rows, {n_distinct} (compared as "
            f"{features.dtype}): ask for fewer clusters, or add columns that tell the rows apart"
        )


def count_distinct(features: Features, *, at_most: int) -> int:
    """Return the number of distinct rows, counting no further than `at_most`."""
    seen: set[bytes] = set()
    for row in range(features.shape[0]):
        if len(seen) >= at_most:
            break
        values = features[row].toarray() if sp.issparse(features) else features[row]
        seen.add((np.asarray(values) + 0.0).tobytes())
    return len(seen)


def check_known_labels(known_labels: NDArray[np.int64], n_nodes: int, n_clusters: int) -> None:
    """Refuse known labels that are not one integer of −1 … C−1 per row."""
    if known_labels.shape != (n_nodes,) or known_labels.dtype.kind not in "iu":
        raise DataError(
            f"known_labels must be {n_nodes} integers, got {known_labels.dtype} of shape {known_labels.shape}"
        )
    if known_labels.min() < -1 or known_labels.max() >= n_clusters:
        raise DataError(f"known_labels must lie between -1 (unknown) and n_clusters - 1 = {n_clusters - 1}")
