"""A whole fit: features and edges in, a trained model out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pamc.config import FitConfig
from pamc.data.attributed_graph import AttributedGraph, Features
from pamc.data.preparation import Preparation, fit_preparation
from pamc.errors import ConfigError, DataError, TrainingError
from pamc.graph.adjacency import build_adjacency
from pamc.graph.influence import positive_pairs
from pamc.graph.knn import knn_edges
from pamc.losses.bound import warn_unless_bound_holds
from pamc.losses.clustering import log_soft_assignment
from pamc.losses.pamc import meta_nodes
from pamc.models.pamcgc import PamCGCModel
from pamc.models.rows import FeatureRows
from pamc.ops.scores import modularity, silhouette
from pamc.runtime import resolve_dtype
from pamc.training.engine import encode_rows
from pamc.training.initialize import STARTS, StartInput, align_clusters, load_sdcn_encoder, starting_centers
from pamc.training.progress import Progress, SilentProgress
from pamc.training.trainer import EpochRecord, train

__all__ = ["Fit", "assign_rows", "fit_pamcgc"]

# Values beside the progress bar.
_SHOWN = ("loss", "positive", "proxy", "kl", "changed")

# Rows that are labeled at a time: bounded memory, the encoder's full speed.
_LABELED_AT_A_TIME = 16384

# The silhouette compares all pairs of rows: it is taken over a sample of this many.
_SILHOUETTE_ROWS = 2000


@dataclass(frozen=True, eq=False, kw_only=True)
class Fit:
    """What training leaves behind.

    Parameters
    ----------
    config, seed, device
        How it was fitted.
    encoder, centers, meta_nodes, preparation, sparse_input
        The model: what new rows need.
    z, labels, confidence
        (N, n_dims), (N,), (N,): the rows it was fitted on.
    history
        Every value of every epoch, by name.
    seconds
        Wall-clock time by phase.
    scores
        Label-free scores: `modularity` of the labels on the graph, `silhouette` of the embedding.
    facts
        What was found or decided on the way, in plain values.
    warnings
        What the user was warned of.
    """

    config: FitConfig
    seed: int
    device: str
    encoder: nn.Module
    centers: Tensor
    meta_nodes: Tensor
    preparation: Preparation
    sparse_input: bool
    z: Tensor
    labels: NDArray[np.int64]
    confidence: NDArray[np.floating]
    history: dict[str, list[float]]
    seconds: dict[str, float]
    scores: dict[str, float]
    facts: dict[str, object]
    warnings: tuple[str, ...] = ()


class _Clock:
    """Shows and times the phases of a fit."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        with self.timed(name), self.progress.phase(name):
            yield


def fit_pamcgc(
    graph: AttributedGraph,
    config: FitConfig,
    *,
    seed: int,
    device: torch.device,
    encoder: nn.Module | None = None,
    pretrained: str | None = None,
    known_labels: NDArray[np.int64] | None = None,
    progress: Progress | None = None,
) -> Fit:
    """Return PamCGC fitted to the rows: prepare, find positives, pre-train, place centers, train on Eq 12.

    Parameters
    ----------
    graph
        Rows, and edges or none: without edges a kNN graph of the prepared rows is built. Its labels are not read.
    config, seed, device
        Settings; all randomness comes from `seed`.
    encoder
        A row-wise module of the user's in place of the MLP. It is trained in place from the weights it has.
    pretrained
        File of pre-trained weights in SDCN's layout, in place of pre-training.
    known_labels
        (N,) known cluster of some rows, −1 for the others.
    """
    clock = _Clock(progress or SilentProgress())
    dtype = resolve_dtype(config.precision)
    _check_enough_rows(graph.features, config.n_clusters)
    if known_labels is not None:
        _check_known_labels(known_labels, graph.n_nodes, config.n_clusters)
    if config.n_clusters > 1:
        warn_unless_bound_holds(graph.n_nodes, config.n_clusters, config.tau, proxy=config.proxy)

    with clock.phase("preparation"):
        preparation = fit_preparation(graph.features, config.preparation)
        features = preparation.apply(graph.features)
    with clock.phase("graph"):
        edges, weight = graph.edges, graph.edge_weight
        if edges is None:
            edges = knn_edges(features, config.n_neighbors, metric=config.metric)
        own_list = graph.edges is None or graph.edges_are_neighbours
        adjacency = build_adjacency(edges, weight, n_nodes=graph.n_nodes, expect_directed=own_list)
        if adjacency.nnz == 0 and graph.n_nodes > 1:
            raise DataError("the graph has no edges between different rows; leave it out and a kNN graph is built")
        pairs, influence = positive_pairs(
            adjacency, n_hops=config.n_hops, max_positives=config.max_positives, dtype=dtype
        )
        pairs = pairs.to(device=device)

    rows = FeatureRows(features, device=device, dtype=dtype, sparse=False if encoder is not None else None)
    with clock.timed("start"):
        if encoder is None and pretrained is not None:
            encoder = load_sdcn_encoder(pretrained, rows, config)
        elif encoder is None:
            encoder = STARTS[config.start](StartInput(rows, features, adjacency, config, seed, clock.progress))
        else:
            encoder = encoder.to(device=device, dtype=dtype)
    with clock.phase("centers"):
        z = encode_rows(encoder, rows, chunk_size=config.chunk_size)
        _check_embedding(z, graph.n_nodes, "before the first epoch", "A smaller pretrain_lr, or preparation='auto',")
        centers, labels = starting_centers(z, config, seed=seed)
        if known_labels is not None:
            centers = align_clusters(centers, labels, known_labels)

    known = None if known_labels is None else torch.from_numpy(known_labels).to(device)
    model = PamCGCModel(encoder, centers, pairs, config, known_labels=known)
    history: list[EpochRecord] = []
    with clock.timed("training"), clock.progress.phase("training", config.n_epochs) as phase:
        for record in train(
            model, rows, n_epochs=config.n_epochs, lr=config.lr, tol=config.tol, chunk_size=config.chunk_size
        ):
            history.append(record)
            phase.advance(**{name: record.values[name] for name in _SHOWN})

    with clock.phase("labels"):
        z, q = assign_rows(encoder, model.centers, rows, eta=config.eta, chunk_size=config.chunk_size)
        _check_embedding(q, graph.n_nodes, f"after epoch {len(history)}", "A smaller lr")
        confidence, final = q.max(dim=1)
        labels = final.cpu().numpy()
        scores = {
            "modularity": modularity(adjacency, labels),
            "silhouette": silhouette(z.cpu().numpy(), labels, sample_size=_SILHOUETTE_ROWS, random_state=seed),
        }
    return Fit(
        config=config,
        seed=seed,
        device=str(device),
        encoder=encoder.eval(),
        centers=model.centers.detach(),
        meta_nodes=meta_nodes(z, final, n_clusters=config.n_clusters),
        preparation=preparation,
        sparse_input=rows.sparse,
        z=z,
        labels=labels,
        confidence=confidence.cpu().numpy(),
        history=_by_name(history),
        seconds=clock.seconds,
        scores=scores,
        facts={
            "preparation": preparation.kind,
            "graph": "given" if graph.edges is not None else "knn",
            "n_edges": int(adjacency.nnz // 2),
            "n_positive_pairs": pairs.n_pairs,
            "kept_influence": influence.kept_mass,
        },
    )


@torch.no_grad()
def assign_rows(
    encoder: nn.Module, centers: Tensor, rows: FeatureRows, *, eta: float, chunk_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return z (n, n_dims) and q (n, C) of rows, without a graph; O(chunk) memory beside the result."""
    z = encode_rows(encoder, rows, chunk_size=chunk_size or _LABELED_AT_A_TIME)
    return z, log_soft_assignment(z, centers.detach(), eta=eta).exp()


def _by_name(history: list[EpochRecord]) -> dict[str, list[float]]:
    names = history[0].values if history else {}
    return {name: [record.values[name] for record in history] for name in names}


def _check_embedding(values: Tensor, n_nodes: int, when: str, help_with: str) -> None:
    if values.ndim != 2 or len(values) != n_nodes:
        raise ConfigError(
            f"encoder must map (n, d) rows to (n, n_dims): for {n_nodes} rows it returned shape {tuple(values.shape)}"
        )
    if not torch.isfinite(values).all():
        raise TrainingError(f"{when}: the embedding is not finite. {help_with} may help")


def _check_enough_rows(features: Features, n_clusters: int) -> None:
    n_nodes = features.shape[0]
    if n_clusters > n_nodes:
        raise ConfigError(
            f"n_clusters={n_clusters} is more than the number of rows, n_samples={n_nodes}: ask for fewer clusters"
        )
    n_distinct = _count_distinct(features, at_most=n_clusters)
    if n_distinct < n_clusters:
        raise DataError(
            f"n_clusters={n_clusters} is more than the number of distinct rows, {n_distinct} (compared as "
            f"{features.dtype}): ask for fewer clusters, or add columns that tell the rows apart"
        )


def _count_distinct(features: Features, *, at_most: int) -> int:
    """Return the number of distinct rows, counting no further than `at_most`."""
    seen: set[bytes] = set()
    for row in range(features.shape[0]):
        if len(seen) >= at_most:
            break
        values = features[row].toarray() if sp.issparse(features) else features[row]
        seen.add((np.asarray(values) + 0.0).tobytes())
    return len(seen)


def _check_known_labels(known_labels: NDArray[np.int64], n_nodes: int, n_clusters: int) -> None:
    if known_labels.shape != (n_nodes,) or known_labels.dtype.kind not in "iu":
        raise DataError(
            f"known_labels must be {n_nodes} integers, got {known_labels.dtype} of shape {known_labels.shape}"
        )
    if known_labels.min() < -1 or known_labels.max() >= n_clusters:
        raise DataError(f"known_labels must lie between -1 (unknown) and n_clusters - 1 = {n_clusters - 1}")
