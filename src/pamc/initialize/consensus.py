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

# Reach of the random walks that smooth the features; the encoder is fitted to the embedding of the middle one.
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
        (N, n_dims) embedding in which they were found, with rows of length 1.
    how
        How they were found: "k-means" or "merged groups".
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
        Clusterings of each kind for each of the 3 reaches of the smoothing, a multiple of 3; None is 54.
    """
    points = smoothed_points(rows, adjacency, n_dims, device)
    by_kmeans = by_repeated_kmeans(points, n_clusters, seed, device, n_repeats=n_repeats)
    if not 1 < n_clusters <= _MOST_MERGED or len(rows) < ROWS_PER_GROUP * n_clusters:
        return by_kmeans
    merged = by_repeated_merging(points, adjacency, n_clusters, seed, device, n_repeats=n_repeats)
    holds = edge_information(adjacency, merged.labels) > edge_information(adjacency, by_kmeans.labels)
    return merged if holds and merged.agreement >= _NEARLY_AS_STABLE * by_kmeans.agreement else by_kmeans


def smoothed_points(rows: Floats, adjacency: Adjacency, n_dims: int, device: torch.device = _CPU) -> list[Floats]:
    """Return the (N, n_dims) embedding of the smoothed rows for each reach."""
    return [embedding(smooth, n_dims) for smooth in smoothed(on_sphere(rows), adjacency, _REACHES, device=device)]


def by_repeated_kmeans(
    points: list[Floats], n_clusters: int, seed: int, device: torch.device = _CPU, *, n_repeats: int | None = None
) -> Agreed:
    """Return the consensus of repeated K-means on each of the embeddings."""
    labelings = _many(points, n_clusters, seed, device, n_repeats)
    agreed = consensus_and_agreement(labelings, n_clusters, seed=seed_for(seed, "consensus"), device=device)
    return Agreed(agreed.labels, points[_MIDDLE], "k-means", agreed.agreement)


def by_repeated_merging(
    points: list[Floats],
    adjacency: Adjacency,
    n_clusters: int,
    seed: int,
    device: torch.device = _CPU,
    *,
    n_repeats: int | None = None,
) -> Agreed:
    """Return the consensus of repeated groupings of each of the embeddings, merged along the graph."""
    labelings = _many_merged(points, adjacency, n_clusters, seed, device, n_repeats)
    agreed = consensus_and_agreement(labelings, n_clusters, seed=seed_for(seed, "consensus of merged"), device=device)
    return Agreed(agreed.labels, points[_MIDDLE], "merged groups", agreed.agreement)


def _many(
    points: list[Floats], n_clusters: int, seed: int, device: torch.device, n_repeats: int | None = None
) -> list[Labels]:
    labelings = []
    for number, embedded in enumerate(points):
        seeds = [seed_for(seed, f"k-means {number} {repeat}") for repeat in range(n_repeats or N_REPEATS)]
        labelings += _labelings(embedded, n_clusters, seeds, device)
    return labelings


def _many_merged(
    points: list[Floats],
    adjacency: Adjacency,
    n_clusters: int,
    seed: int,
    device: torch.device,
    n_repeats: int | None = None,
) -> list[Labels]:
    most = max(n_clusters, adjacency.shape[0] // ROWS_PER_GROUP)
    groupings = []
    for number, embedded in enumerate(points):
        for per_cluster in _GROUPS_PER_CLUSTER:
            repeats = range((n_repeats or N_REPEATS) // len(_GROUPS_PER_CLUSTER))
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
    whose repeated clusterings agree better is used: the features with their own kNN graph, or the graph with its own
    leading directions.
    """
    both = InputSource("features and graph", rows, adjacency)
    if n_clusters < 2 or adjacency.nnz < _LEAST_EDGES or _likeness(rows, adjacency, seed) >= _BEYOND_CHANCE:
        return both
    alone = InputSource("features", rows, knn_adjacency(rows, min(n_neighbors, len(rows) - 1), device, seed=seed))
    graph = InputSource("graph", _graph_directions(adjacency, n_clusters, seed), adjacency)
    return max(alone, graph, key=lambda inputs: _stability(inputs, n_clusters, seed, device))


def _likeness(rows: Floats, adjacency: Adjacency, seed: int) -> float:
    """Return by how many standard errors the mean cosine of linked rows exceeds that of random pairs."""
    unit = unit_rows(rows - rows.mean(axis=0))
    ends: Any = adjacency.tocoo()
    once = ends.row < ends.col
    i, j = ends.row[once], ends.col[once]
    if len(i) == 0:
        return 0.0
    a, b = np.random.default_rng(seed_for(seed, "random pairs")).integers(len(rows), size=(2, len(i)))
    linked, by_chance = ((unit[x] * unit[y]).sum(axis=1) for x, y in ((i, j), (a, b)))
    error = np.sqrt((linked.var() + by_chance.var()) / len(i))
    return float((linked.mean() - by_chance.mean()) / error) if error > 0 else 0.0


def _graph_directions(adjacency: Adjacency, n_clusters: int, seed: int) -> Floats:
    """Return the spectral embedding (N, r) of the graph: leading directions of the normalized adjacency."""
    from sklearn.utils.extmath import randomized_svd

    step = symmetric_normalize(with_self_loops(adjacency))
    rank = min(2 * n_clusters, step.shape[0])
    u, s, _ = randomized_svd(step, rank, n_iter=10, random_state=seed_for(seed, "directions of the graph"))
    return np.asarray(u * s)


def _stability(inputs: InputSource, n_clusters: int, seed: int, device: torch.device) -> float:
    points = smoothed_points(inputs.rows, inputs.adjacency, 2 * n_clusters, device)
    return agreement(_many(points, n_clusters, seed, device), n_clusters, device)
