"""What else the consensus start could be: alternatives to its choices, each measured alone, before any training."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from pamc.data.preprocessing import fit_preprocessing
from pamc.graph import smoothing
from pamc.graph.adjacency import Adjacency, build_adjacency
from pamc.graph.neighbors import knn_adjacency
from pamc.graph.smoothing import Floats, embedding, leading_directions, on_sphere, smoothed
from pamc.initialize import consensus, partitions
from pamc.initialize.consensus import (
    agreed_clusters,
    by_repeated_kmeans,
    by_repeated_merging,
    smoothed_points,
)
from pamc.initialize.partitions import Labels
from pamc.lab.cases.quality import DATA_SETS
from pamc.lab.cell import Cell, Scope, register_case
from pamc.lab.settings import load_unlinked, seeds_of
from pamc.ops.kmeans import kmeans
from pamc.results.metrics import evaluate

__all__ = ["ALTERNATIVES", "AS_IS", "cells", "start_choice"]

AS_IS = "as it is"

Clustering = Callable[..., Labels]


def _agreed(rows: Floats, adjacency: Adjacency, n_clusters: int, *, seed: int, per_cluster: float = 2.0) -> Labels:
    n_dims = min(round(per_cluster * n_clusters), 32)
    return agreed_clusters(rows, adjacency, n_clusters, n_dims=n_dims, seed=seed).labels


def _with(module: ModuleType, **constants: Any) -> Clustering:
    """Return the clustering with other constants."""

    def clustering(rows: Floats, adjacency: Adjacency, n_clusters: int, *, seed: int) -> Labels:
        with mock.patch.multiple(module, **constants):
            return _agreed(rows, adjacency, n_clusters, seed=seed)

    return clustering


def _in_directions(n_directions: int) -> Clustering:
    def clustering(rows: Floats, adjacency: Adjacency, n_clusters: int, *, seed: int) -> Labels:
        return _agreed(rows[:, :n_directions], adjacency, n_clusters, seed=seed)

    return clustering


def _one_kmeans(rows: Floats, adjacency: Adjacency, n_clusters: int, *, seed: int) -> Labels:
    """Cluster once, by the best of 20 K-means runs, in the middle one of the smoothed embeddings."""
    points = embedding(smoothed(on_sphere(rows), adjacency, (0.9,))[0], 2 * n_clusters)
    return kmeans(points, n_clusters, seeds=[seed], n_init=20)[0].labels


def _more_edges(rows: Floats, adjacency: Adjacency, n_clusters: int, *, seed: int) -> Labels:
    """Join each row to its five nearest ones as well."""
    both: Adjacency = (adjacency + 0.3 * knn_adjacency(rows, 5)).tocsr()
    return _agreed(rows, both, n_clusters, seed=seed)


def _edges_by_agreement(rows: Floats, adjacency: Adjacency, n_clusters: int, *, seed: int) -> Labels:
    """Weigh each edge by how many first clusterings put its ends together, and cluster again."""
    first = consensus._many(smoothed_points(rows, adjacency, 2 * n_clusters), n_clusters, seed, consensus._CPU)
    ends: Any = adjacency.tocoo()
    together = np.mean([labels[ends.row] == labels[ends.col] for labels in first], axis=0)
    weighed = sp.csr_matrix((ends.data * (0.05 + together), (ends.row, ends.col)), shape=adjacency.shape)
    return _agreed(rows, weighed, n_clusters, seed=seed)


def _only_kmeans(rows: Floats, adjacency: Adjacency, n_clusters: int, *, seed: int) -> Labels:
    return by_repeated_kmeans(smoothed_points(rows, adjacency, 2 * n_clusters), n_clusters, seed).labels


def _only_merging(rows: Floats, adjacency: Adjacency, n_clusters: int, *, seed: int) -> Labels:
    return by_repeated_merging(smoothed_points(rows, adjacency, 2 * n_clusters), adjacency, n_clusters, seed).labels


ALTERNATIVES: dict[str, Clustering] = {
    AS_IS: _agreed,
    "one K-means, no consensus": _one_kmeans,
    "a third of the repeats": _with(consensus, N_REPEATS=18),
    "always K-means": _only_kmeans,
    "always merged groups": _only_merging,
    "50 directions": _in_directions(50),
    "100 directions": _in_directions(100),
    "walks that go less far (0.7, 0.8, 0.9)": _with(consensus, _REACHES=(0.7, 0.8, 0.9)),
    "walks that go farther (0.9, 0.95, 0.98)": _with(consensus, _REACHES=(0.9, 0.95, 0.98)),
    "25 steps": _with(smoothing, _N_STEPS=25),
    "1 dimension per cluster": partial(_agreed, per_cluster=1.0),
    "3 dimensions per cluster": partial(_agreed, per_cluster=3.0),
    "smallest cluster a tenth of N / C": _with(partitions, _MIN_SHARE=0.1),
    "5 nearest rows joined too": _more_edges,
    "edges weighed by agreement": _edges_by_agreement,
}


def cells(scope: Scope) -> list[Cell]:
    """Return a cell per data set, seed and alternative."""
    names = scope.data_sets or (("digits",) if scope.quick else DATA_SETS)
    return [
        Cell("start-choices", "start-choices", title, name, seed, quick=scope.quick)
        for name in names
        for seed in seeds_of(scope, 1)
        for title in (tuple(ALTERNATIVES)[:2] if scope.quick else ALTERNATIVES)
    ]


@register_case("start-choices", "the consensus start and what else it could be", cells=cells)
def start_choice(cell: Cell, device: str) -> dict[str, Any]:
    """Return the metrics of the clusters of the consensus start, or of an alternative, before any training."""
    with threadpool_limits(limits=1):
        directions, adjacency, truth = _inputs(cell.data_set, cell.seed, cell.quick)
        labels = ALTERNATIVES[cell.provider](directions, adjacency, len(np.unique(truth)), seed=cell.seed)
    found = evaluate(truth, labels)
    return {metric: found[metric] for metric in ("acc", "nmi")}


@lru_cache(maxsize=1)
def _inputs(name: str, seed: int, quick: bool) -> tuple[Floats, Adjacency, Labels]:
    """Return the leading directions of a data set, its adjacency and its classes; the alternatives share them."""
    graph = load_unlinked(name, quick)
    preprocessing = fit_preprocessing(graph.features, "auto")
    features = preprocessing.apply(graph.features)
    directions = leading_directions(features, seed=seed, centered=preprocessing.kind != "tfidf")
    if graph.edges is None:
        adjacency = knn_adjacency(directions, 10)
    else:
        adjacency = build_adjacency(graph.edges, None, n_nodes=graph.n_nodes, expect_directed=False)
    return directions, adjacency, np.asarray(graph.labels)
