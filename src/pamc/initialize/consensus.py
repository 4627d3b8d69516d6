"""Initial clusters: the consensus of many quick clusterings of smoothed features, and the choice of their inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pamc.graph.adjacency import Adjacency, symmetric_normalize, with_self_loops
from pamc.graph.neighbors import knn_adjacency
from pamc.graph.smoothing import Floats, embedding, on_sphere, smoothed, unit_rows
from pamc.initialize.coassociation import agreement, consensus_and_agreement
from pamc.initialize.partitions import edge_list, merged_labels
from pamc.ops.kmeans import Labels, kmeans
from pamc.ops.scores import edge_information
from pamc.runtime import quiet_libraries, seed_for

# Reaches of the random walks that smooth the features. The encoder is fitted to the embedding of the middle one.
_REACHES = (0.8, 0.9, 0.95)
_MIDDLE = 1

# Groups per cluster that K-means forms before they are merged along the graph.
_GROUPS_PER_CLUSTER = (4, 6, 8)

# Number of clusterings by K-means, and by merging, for each reach.
N_REPEATS = 54

# Beyond this many clusters, groups are not merged, because that takes time cubic in their number.
_MOST_MERGED = 64
ROWS_PER_GROUP = 5

# Merged clusters are used only if the agreement of their repeats is at least this share of that of K-means.
_NEARLY_AS_STABLE = 0.85

# Features and graph are unrelated unless linked rows are more similar than random rows by this many standard errors.
_BEYOND_CHANCE = 4.0

# With fewer edges (each counted in both directions), the test of similarity has too little power.
_LEAST_EDGES = 400

_CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Agreed:
    """The consensus of repeated clusterings.

    Parameters
    ----------
    labels
        (N,) consensus clusters.
    points
        (N, n_dims) embedding to which the encoder is fitted, with rows of length 1.
    how
        Name of the clusterings: "k-means" or "merged groups".
    agreement
        Mean NMI between the repeats.
    """

    labels: Labels
    points: Floats
    how: str
    agreement: float


def agreed_clusters(
    rows: Floats,
    adjacency: Adjacency,
    n_clusters: int,
    *,
    n_dims: int,
    seed: int,
    device: torch.device = _CPU,
    n_repeats: int | None = None,
) -> Agreed:
    """Return the consensus of 162 quick clusterings, by K-means or by merging groups along the graph.

    Both are computed. Merging finds clusters of any shape and size, but overfits sparse graphs: it is used if its
    clusters explain the edges better (:func:`~pamc.ops.scores.edge_information`) and its repeats agree nearly as well
    as those of K-means. O(E·r + N·(r² + C²)) time.

    Parameters
    ----------
    rows
        (N, r) features in their leading directions.
    adjacency
        (N, N) symmetric weights.
    device
        Device of the smoothing, of K-means and of the consensus.
    n_repeats
        Clusterings of each kind for each of the 3 reaches of the smoothing, a multiple of 3; None means 54.
    """
    points = _smoothed_points(rows, adjacency, n_dims, device)
    n_repeats = n_repeats or N_REPEATS

    def consensus(labelings: list[Labels], how: str, name: str) -> Agreed:
        labels, agreement = consensus_and_agreement(labelings, n_clusters, seed=seed_for(seed, name), device=device)
        return Agreed(labels, points[_MIDDLE], how, agreement)

    by_kmeans = consensus(_repeated_kmeans(points, n_clusters, n_repeats, seed, device), "k-means", "consensus")
    if not 1 < n_clusters <= _MOST_MERGED or len(rows) < ROWS_PER_GROUP * n_clusters:
        return by_kmeans
    labelings = _repeated_merging(points, adjacency, n_clusters, n_repeats, seed, device)
    merged = consensus(labelings, "merged groups", "consensus of merged")
    explains = edge_information(adjacency, merged.labels) > edge_information(adjacency, by_kmeans.labels)
    return merged if explains and merged.agreement >= _NEARLY_AS_STABLE * by_kmeans.agreement else by_kmeans


def _smoothed_points(rows: Floats, adjacency: Adjacency, n_dims: int, device: torch.device) -> list[Floats]:
    """Return the (N, n_dims) embedding of the smoothed rows for each reach."""
    return [embedding(smooth, n_dims) for smooth in smoothed(on_sphere(rows), adjacency, _REACHES, device=device)]


def _repeated_kmeans(
    points: list[Floats], n_clusters: int, n_repeats: int, seed: int, device: torch.device
) -> list[Labels]:
    """Return the labels of repeated K-means on each of the embeddings."""
    labelings = []
    for number, embedded in enumerate(points):
        seeds = [seed_for(seed, f"k-means {number} {repeat}") for repeat in range(n_repeats)]
        labelings += _labelings(embedded, n_clusters, seeds, device)
    return labelings


def _repeated_merging(
    points: list[Floats], adjacency: Adjacency, n_clusters: int, n_repeats: int, seed: int, device: torch.device
) -> list[Labels]:
    """Return the labels of repeated groupings of each of the embeddings, merged along the graph."""
    most = max(n_clusters, adjacency.shape[0] // ROWS_PER_GROUP)
    repeats = range(n_repeats // len(_GROUPS_PER_CLUSTER))
    groupings = []
    for number, embedded in enumerate(points):
        for per_cluster in _GROUPS_PER_CLUSTER:
            seeds = [seed_for(seed, f"groups {number} {per_cluster} {repeat}") for repeat in repeats]
            groupings += _labelings(embedded, min(per_cluster * n_clusters, most), seeds, device)
    edges = edge_list(adjacency)
    # Not in threads: counting edges holds the interpreter lock.
    return [merged_labels(groups, edges, n_clusters) for groups in groupings]


def _labelings(points: Floats, n_clusters: int, seeds: list[int], device: torch.device) -> list[Labels]:
    with quiet_libraries:
        return [fit.labels for fit in kmeans(points, n_clusters, seeds=seeds, device=device)]


@dataclass(frozen=True, eq=False)
class InputSource:
    """The features and graph in which initial clusters are found.

    Parameters
    ----------
    kind
        "features and graph"; or "features" or "graph" alone, if the two are unrelated.
    rows
        (N, r) coordinates to smooth.
    adjacency
        The graph along which they are smoothed, and whose edges are the positive pairs.
    """

    kind: str
    rows: Floats
    adjacency: Adjacency


def choose_inputs(
    rows: Floats,
    adjacency: Adjacency,
    n_clusters: int,
    *,
    n_neighbors: int,
    seed: int,
    device: torch.device = _CPU,
) -> InputSource:
    """Return features and graph, or, if they are unrelated, the one of them that has clusters by itself.

    They are related if linked rows are significantly more similar than random rows. If they are not, one of them is
    noise: smoothing features along random edges ruins them, and smoothing noise along good edges adds noise. The one
    whose repeated clusterings agree better is used: the features with their kNN graph, or the graph with its leading
    directions as features.
    """
    both = InputSource("features and graph", rows, adjacency)
    if n_clusters < 2 or adjacency.nnz < _LEAST_EDGES or _excess_similarity(rows, adjacency, seed) >= _BEYOND_CHANCE:
        return both
    alone = InputSource("features", rows, knn_adjacency(rows, min(n_neighbors, len(rows) - 1), device, seed=seed))
    graph = InputSource("graph", _graph_directions(adjacency, n_clusters, seed), adjacency)
    return max(alone, graph, key=lambda inputs: _stability(inputs, n_clusters, seed, device))


def _excess_similarity(rows: Floats, adjacency: Adjacency, seed: int) -> float:
    """Return by how many standard errors the mean cosine of linked rows exceeds that of random pairs."""
    unit = unit_rows(rows - rows.mean(axis=0))
    ends: Any = adjacency.tocoo()
    once = ends.row < ends.col
    i, j = ends.row[once], ends.col[once]
    if len(i) == 0:
        return 0.0
    a, b = np.random.default_rng(seed_for(seed, "random pairs")).integers(len(rows), size=(2, len(i)))
    linked, random = ((unit[x] * unit[y]).sum(axis=1) for x, y in ((i, j), (a, b)))
    error = np.sqrt((linked.var() + random.var()) / len(i))
    return float((linked.mean() - random.mean()) / error) if error > 0 else 0.0


def _graph_directions(adjacency: Adjacency, n_clusters: int, seed: int) -> Floats:
    """Return the spectral embedding (N, r) of the graph: leading directions of the normalized adjacency."""
    from sklearn.utils.extmath import randomized_svd

    step = symmetric_normalize(with_self_loops(adjacency))
    rank = min(2 * n_clusters, step.shape[0])
    u, s, _ = randomized_svd(step, rank, n_iter=10, random_state=seed_for(seed, "directions of the graph"))
    return np.asarray(u * s)


def _stability(inputs: InputSource, n_clusters: int, seed: int, device: torch.device) -> float:
    """Return the mean NMI between repeated clusterings of the inputs by K-means."""
    points = _smoothed_points(inputs.rows, inputs.adjacency, 2 * n_clusters, device)
    return agreement(_repeated_kmeans(points, n_clusters, N_REPEATS, seed, device), n_clusters, device)
