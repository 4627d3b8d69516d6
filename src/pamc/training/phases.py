"""The results that the phases of a fit pass on, from preprocessed rows to the fit, and the checks of their inputs."""

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
from pamc.data.weights import RowWeights
from pamc.distributed.group import TorchProcessGroup
from pamc.errors import ConfigError, DataError, TrainingError
from pamc.graph.adjacency import Adjacency
from pamc.initialize.base import InitResult
from pamc.initialize.calibration import BeforeTraining, Calibration
from pamc.initialize.consensus import InputSource
from pamc.initialize.drift import Reference
from pamc.initialize.noise import NoiseRule
from pamc.initialize.previous import Previous, Regrouped
from pamc.models.loader import FeatureLoader
from pamc.models.method import Method
from pamc.models.views import Views
from pamc.progress import Progress
from pamc.runtime import resolve_dtype, resolve_row_dtype
from pamc.training.checkpoint import FileCheckpointer
from pamc.training.trainer import EpochRecord


class Clock:
    """Displays and times the phases of a fit.

    Parameters
    ----------
    progress
        Displays the phases.

    Attributes
    ----------
    seconds
        Wall-clock time by phase, summed over all times a phase is entered.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of the `with` block to a phase."""
        started = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the `with` block as a phase, and display it."""
        with self.timed(name), self.progress.phase(name):
            yield


@dataclass(frozen=True, eq=False, kw_only=True)
class FitContext:
    """The inputs that all phases of a fit share.

    Parameters
    ----------
    method, config, seed, device
        The method, its settings, the random seed and the device of the fit.
    clock
        Displays and times the phases.
    encoder
        A user-supplied row-wise module to train instead of the MLP, or None.
    pretrained
        A file of pre-trained weights in SDCN's layout to load instead of pre-training, or None.
    known_labels
        (N,) known clusters of some rows, −1 for the others, or None.
    group
        The process group that trains together; None for a single process.
    views
        Copies of the rows, as arrays or as callables that make them, or None.
    sample_weight
        Weights of the rows; None if every row counts once.
    previous
        What the fit takes over from a previous one; None for a fit from scratch.
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
    views: Any = None
    sample_weight: RowWeights | None = None
    previous: Previous | None = None

    @property
    def has_views(self) -> bool:
        """Whether the encoder also sees copies of the rows."""
        return self.views is not None or getattr(self.config, "image_shape", None) is not None

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the weights and the embedding."""
        return resolve_dtype(self.config.precision)

    @property
    def row_dtype(self) -> torch.dtype:
        """Data type of the rows passed to the encoder."""
        return resolve_row_dtype(self.config.precision, self.device)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Result of the first phase: the preprocessed rows.

    Parameters
    ----------
    preprocessing
        The fitted preprocessing, which also applies to new rows.
    features
        (N, d) preprocessed rows, in memory or read from a store on access.
    loader
        The same rows in the format of the encoder.
    sample
        (n,) indices of the rows used for initialization; None for all rows.
    views
        Random copies of the rows, which the encoder also sees; None without any.
    repeated
        The rows repeated by their weights, from which the initial clusters are found; None without weights.
    """

    preprocessing: Preprocessing
    features: Features | StoreFeatures
    loader: FeatureLoader
    sample: NDArray[np.int64] | None = None
    views: Views | None = None
    repeated: Prepared | None = None


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Result of the second phase: the graph whose edges are the positive pairs.

    Parameters
    ----------
    graph
        A symmetric adjacency matrix, or a store or a similar object with `indptr`, `indices` and `weight`; None for a
        method without a graph.
    inputs
        Features and graph in which initial clusters are found; None if the initializer does not need them.
    facts
        Decisions as plain values: "graph" is "given", "knn" or "not used".
    repeated
        Graph and inputs of the rows repeated by their weights; None without weights.
    copy_weight
        (N,) weight of the edge between two copies of a row; None without weights.
    regrouped
        The clusters with which an update starts; None for a fit from scratch.
    """

    graph: Any
    inputs: InputSource | None
    facts: Mapping[str, object]
    repeated: Neighbors | None = None
    copy_weight: NDArray[np.float64] | None = None
    regrouped: Regrouped | None = None


@dataclass(frozen=True, eq=False)
class Start:
    """The initial networks and centers.

    Parameters
    ----------
    init
        Result of the initializer; None for a method without one.
    encoder, decoder, pretrained
        Networks from which the method's model is built.
    centers
        (C, n_dims) initial centers; None if the method chooses them itself.
    """

    init: InitResult | None
    encoder: nn.Module | None = None
    decoder: nn.Module | None = None
    pretrained: Any = None
    centers: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Initialized:
    """Result of the third phase: the model before its first epoch.

    Parameters
    ----------
    prepared, neighbors, start
        Results of the previous phases, and the initial networks and centers.
    model
        The method's model.
    kept_influence
        Share of the total influence that the positive pairs have.
    checkpointer
        Writes training states; None without checkpoints.
    """

    prepared: Prepared
    neighbors: Neighbors
    start: Start
    model: Any
    kept_influence: float
    checkpointer: FileCheckpointer | None


@dataclass(frozen=True, eq=False)
class Trained:
    """Result of the fourth phase: the model after its last epoch.

    Parameters
    ----------
    model
        The model, or this process's share of it in a process group.
    loader
        The rows that this process trained on.
    history
        The record of each epoch.
    fallback
        Name of the fallback that was used if training nearly emptied a cluster or made the clusters worse; else None.
    facts
        Label-free scores of the clusters before and after training.
    before
        Encoder and centers before the first epoch, from which confidence is computed; None if it is not calibrated.
    """

    model: Any
    loader: FeatureLoader
    history: list[EpochRecord]
    fallback: str | None
    facts: dict[str, object]
    before: BeforeTraining | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Fit:
    """A fitted method: the result of a fit.

    Parameters
    ----------
    method, config, seed, device
        Method, settings, random seed and device of the fit.
    encoder
        Row-wise network that embeds new rows; None for methods that need the graph.
    network
        The complete trained model; None for a loaded fit.
    centers, meta_nodes, preprocessing, sparse_input
        Values that are needed besides the encoder to assign new rows.
    z, labels, confidence
        (N, n_dims), (N,), (N,): embedding, clusters and confidence of the training rows.
    calibration
        Map from margins before training to confidence; None if confidence is the largest q.
    noise_rule, noise
        Rule that tells noise from clusters, and the codes (N,) of the training rows
        (:data:`pamc.initialize.noise.NOISE_KINDS`); None if noise was not requested.
    linkage
        Tree (C − 1, 4) over the clusters in scipy's linkage format; None for a model saved by an earlier version.
    history
        Every value of every epoch, by name.
    seconds
        Wall-clock time by phase.
    scores
        Label-free scores: `modularity` of the labels on the graph, if there is one, `silhouette` of the embedding, and
        `objective`, the loss of the last epoch in a form that is comparable across fits.
    facts
        Findings and decisions of the fit, as plain values.
    warnings
        Messages of the warnings that the user saw.
    adjacency
        The graph of the data, or the kNN graph that was built; None for a store on disk and for a loaded fit.
    sample_weight
        (N,) weights of the training rows; None if every row counts once.
    reference
        Moments of each cluster, with which later rows are compared; None for a model saved by an earlier version.
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
    noise_rule: NoiseRule | None = None
    noise: NDArray[np.int8] | None = None
    linkage: NDArray[np.float64] | None = None
    adjacency: Adjacency | None = None
    sample_weight: NDArray[np.float64] | None = None
    reference: Reference | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Fit:
        """Return an independent copy.

        Constant parts are shared: the graph, and a network without a row-wise encoder, which is not run again (torch
        cannot copy its sparse tensors).
        """
        memo[id(self.adjacency)] = self.adjacency
        if self.encoder is None:
            memo[id(self.network)] = self.network
        return replace(self, **{name: copy.deepcopy(value, memo) for name, value in vars(self).items()})


def check_embedding(values: Tensor, n_nodes: int, when: str, advice: str) -> None:
    """Raise an error if the shape of an embedding is not (N, n_dims), or if a value is not finite.

    `when` and `advice` are parts of the message: when the embedding was computed, and which change may help.
    """
    if values.ndim != 2 or len(values) != n_nodes:
        raise ConfigError(
            f"encoder must map (n, d) rows to (n, n_dims): for {n_nodes} rows it returned shape {tuple(values.shape)}"
        )
    if not torch.isfinite(values).all():
        raise TrainingError(f"{when}: the embedding is not finite. {advice} may help")


def check_enough_rows(features: Features, n_clusters: int, *, distinct: bool = True) -> None:
    """Raise an error if there are more clusters than rows, or, with `distinct`, than distinct rows."""
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
    """Return the number of distinct rows, but no more than `at_most`."""
    distinct: set[bytes] = set()
    for row in range(features.shape[0]):
        if len(distinct) >= at_most:
            break
        values = features[row].toarray() if sp.issparse(features) else features[row]
        # Adding 0 turns −0 into 0, which has other bytes.
        distinct.add((np.asarray(values) + 0.0).tobytes())
    return len(distinct)


def check_known_labels(known_labels: NDArray[np.int64], n_nodes: int, n_clusters: int) -> None:
    """Raise a DataError unless the known labels are one integer from −1 to C−1 per row."""
    if known_labels.shape != (n_nodes,) or known_labels.dtype.kind not in "iu":
        raise DataError(
            f"known_labels must be {n_nodes} integers, got {known_labels.dtype} of shape {known_labels.shape}"
        )
    if known_labels.min() < -1 or known_labels.max() >= n_clusters:
        raise DataError(f"known_labels must lie between -1 (unknown) and n_clusters - 1 = {n_clusters - 1}")
