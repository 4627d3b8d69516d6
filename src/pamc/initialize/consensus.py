"""Initial clusters: the choice of their inputs, and the partition on which families of quick clusterings agree."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from pamc.graph.adjacency import Adjacency, build_adjacency, symmetric_normalize, symmetrize, with_self_loops
from pamc.graph.images import KnownNeighbors
from pamc.graph.neighbors import DIRECTIONS, knn_adjacency, nearest
from pamc.graph.smoothing import Floats, unit_rows
from pamc.initialize.coassociation import agreement, consensus_and_agreement
from pamc.initialize.family import (
    FAMILIES,
    LEAST_COMBINED,
    MIDDLE,
    FamilyInput,
    Judge,
    choose_communities,
    choose_partitions,
    repeated_kmeans,
    smoothed_embeddings,
)
from pamc.initialize.partitions import with_moved_rows
from pamc.ops.kmeans import Labels
from pamc.ops.scores import adjusted_rand
from pamc.runtime import one_thread, quiet_libraries, seed_for, side_by_side

# Number of quick clusterings for each reach; the families that are slower repeat theirs less often.
N_REPEATS = 18

# The family that works for any number of clusters and rows. With more clusters than this, or with fewer rows per
# cluster, it is the only one.
_ROBUST_FAMILY = "smoothed k-means"
_MOST_CLUSTERS = 64
ROWS_PER_GROUP = 5

# Number of neighbors of each row in the kNN graph that families use.
_N_NEIGHBORS = 10

# Features and graph are unrelated unless linked rows are more similar than random rows by this many standard errors.
_BEYOND_CHANCE = 4.0

# Number of edges of a large graph whose similarity is computed; they are drawn at random.
_MOST_COMPARED = 200_000

# With fewer edges (each counted in both directions), the test of similarity has too little power.
_LEAST_EDGES = 400

# Iterations of the randomized SVD of a graph without features.
_SVD_ITERATIONS = 8

# Shares of correct predictions are clipped to at least this distance from 0 and 1.
_LEAST_SHARE = 0.01

# The kind of the inputs if the rows have no features, and the families that follow the graph.
GRAPH_ALONE = "graph without features"
_GRAPH_FAMILIES = (_ROBUST_FAMILY, "merged groups")

_CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class InputSource:
    """The features and graph in which initial clusters are found.

    Parameters
    ----------
    kind
        "features and graph"; "features" or "graph" alone, if the two are unrelated; or "graph without features".
    rows
        (N, r) coordinates to smooth.
    adjacency
        The graph along which they are smoothed, and whose edges are the positive pairs.
    is_knn
        Whether the graph is the kNN graph of the rows.
    by_angle
        Whether rows are compared by the angle between them, as texts are, and not by their distance.
    family
        Name of the only family that clusters the rows; None compares all.
    n_relations
        Number of relations that form the graph.
    neighbors
        The nearest rows of each row, if they are not those of its coordinates.
    """

    kind: str
    rows: Floats
    adjacency: Adjacency
    is_knn: bool = False
    by_angle: bool = False
    family: str | None = None
    n_relations: int = 1
    neighbors: KnownNeighbors | None = None

    def among(self, rows: NDArray[np.int64]) -> InputSource:
        """Return the inputs of some of the rows, whose numbers are in ascending order."""
        known = None if self.neighbors is None else self.neighbors.among(rows)
        return replace(self, rows=self.rows[rows], adjacency=self.adjacency[rows][:, rows], neighbors=known)

    def points(self) -> Floats:
        """Return the rows in up to 50 leading directions, with mean squared length 1, to be compared by distance."""
        points = self.rows[:, :DIRECTIONS]
        if self.by_angle:
            return unit_rows(points)
        return points / (np.sqrt(np.square(points).sum(axis=1).mean()) or 1.0)


@dataclass(frozen=True, eq=False)
class Agreed:
    """The partition on which families of clusterings agree.

    Parameters
    ----------
    labels
        (N,) clusters.
    points
        (N, r) smoothed embedding, with rows of length 1.
    families
        Names of the families whose partitions were combined, the one with the best score first; often a single one.
    judge
        Scores partitions of the rows; None if only one family was tried.
    graph_trust
        How far the given graph is trusted (:func:`graph_trust`), 1 without features or if they are left out; None if
        the graph was built from the rows, or if one family was tried.
    """

    labels: Labels
    points: Floats
    families: tuple[str, ...]
    judge: Judge | None
    graph_trust: float | None = None

    def facts(self) -> dict[str, object]:
        """Return the families, the score of the partition and the trust, as plain values for the record of the fit."""
        facts: dict[str, object] = {"clusters_by": ", ".join(self.families)}
        if self.judge is not None:
            facts |= self.judge.score(self.labels)._asdict()
        if self.graph_trust is not None:
            facts["graph_trust"] = self.graph_trust
        return facts


def agreed_clusters(
    inputs: InputSource,
    n_clusters: int,
    *,
    seed: int,
    device: torch.device = _CPU,
    n_repeats: int | None = None,
    family: str | None = None,
    on_family: Callable[[], None] | None = None,
) -> Agreed:
    """Cluster the rows by all families, and return the partition that agrees best with the others and with the graph.

    If several partitions are nearly equally good, and no graph is given, the result is their consensus. Without
    features, only families that follow the graph are used; rows move between the clusters of each while this increases
    the modularity, and the partition with the largest modularity is returned.

    Parameters
    ----------
    device
        Device of the smoothing, of K-means, of the layout and of the consensus.
    n_repeats
        Number of quick clusterings for each of the 3 reaches of the smoothing; slower families use fewer. None means
        18.
    family
        Name of the only family to use; None uses that of the inputs, or compares all.
    on_family
        Called after each family, from the thread that ran it.
    """
    family = family or inputs.family
    n_rows, points = len(inputs.rows), inputs.points()
    if not 1 < n_clusters <= _MOST_CLUSTERS or n_rows < ROWS_PER_GROUP * n_clusters:
        family = _ROBUST_FAMILY
    is_alone = inputs.kind == GRAPH_ALONE
    edges = np.empty((2, 0), dtype=np.int64)
    if inputs.neighbors is not None:
        edges = inputs.neighbors.edges
    elif family != _ROBUST_FAMILY and not is_alone:
        edges = nearest(points, min(_N_NEIGHBORS, n_rows - 1), device=device).edges
    with one_thread(), quiet_libraries:
        family_input = FamilyInput(
            points=points,
            neighbors=build_adjacency(edges, None, n_nodes=n_rows, expect_directed=True),
            adjacency=inputs.adjacency,
            rows=inputs.rows,
            smoothed=smoothed_embeddings(
                inputs.rows, inputs.adjacency, n_clusters, device, has_relations=inputs.n_relations > 1
            ),
            n_clusters=n_clusters,
            n_repeats=n_repeats or N_REPEATS,
            seed=seed,
            device=device,
            distances=None if inputs.neighbors is None else _symmetric(inputs.neighbors, n_rows),
        )

        def clusters_by(name: str) -> Labels:
            labels = FAMILIES[name](family_input)
            if is_alone:
                labels = with_moved_rows(labels, inputs.adjacency, n_clusters, seed=seed_for(seed, f"moves of {name}"))
            if on_family is not None:
                on_family()
            return labels

        everything = _GRAPH_FAMILIES if is_alone else FAMILIES
        names = list(everything) if family is None else [family]
        tasks = [partial(clusters_by, name) for name in names]
        partitions = dict(zip(names, side_by_side(tasks, device, n_rows=n_rows), strict=True))
    # If rows form fewer groups, some families leave clusters empty.
    complete = {name: labels for name, labels in partitions.items() if len(np.unique(labels)) == n_clusters}
    partitions = complete or partitions
    graph = _mutual_neighbors(edges, n_rows) if inputs.is_knn else inputs.adjacency
    families, judge = (choose_communities if is_alone else choose_partitions)(partitions, graph)
    labels = partitions[families[0]]
    if not inputs.is_knn:
        # Most families do not use a given graph, so a consensus of several would hardly follow it.
        families = families[:1]
    if len(families) > 1 and judge is not None:
        with one_thread(), quiet_libraries:
            families, labels = _combined(families, partitions, judge, n_clusters, seed, device)
    trust = _trust_in(inputs, family_input.neighbors, labels)
    return Agreed(labels, family_input.smoothed[MIDDLE], families, judge, trust)


def _trust_in(inputs: InputSource, neighbors: Adjacency, labels: Labels) -> float | None:
    """Return how far to trust the graph of the inputs; None if it was built from the rows, or without neighbors."""
    if inputs.kind == GRAPH_ALONE:
        return 1.0
    if inputs.is_knn or neighbors.nnz == 0:
        return None
    return 1.0 if inputs.kind == "graph" else graph_trust(inputs.adjacency, neighbors, labels)


def _combined(
    families: tuple[str, ...],
    partitions: dict[str, Labels],
    judge: Judge,
    n_clusters: int,
    seed: int,
    device: torch.device,
) -> tuple[tuple[str, ...], Labels]:
    """Return the consensus with the best score among those of the best three, four, … partitions, and their families.

    The result is the best partition itself if it equals this consensus, or if every consensus leaves a cluster empty.
    """
    best = partitions[families[0]]
    used, labels, value = families[:1], best, -math.inf
    for number in range(LEAST_COMBINED, len(families) + 1):
        labelings = [partitions[name] for name in families[:number]]
        consensus_seed = seed_for(seed, f"consensus of {number} families")
        common = consensus_and_agreement(labelings, n_clusters, seed=consensus_seed, device=device).labels
        if len(np.unique(common)) == n_clusters and judge.score(common).value > value:
            used, labels, value = families[:number], common, judge.score(common).value
    return (families[:1], best) if adjusted_rand(labels, best) == 1.0 else (used, labels)


def graph_trust(adjacency: Adjacency, neighbors: Adjacency, labels: Labels) -> float:
    """Return how far to trust a graph compared with the features, 0 to 1.

    A row's cluster is predicted by the most frequent cluster of its neighbors in the graph, and by that of its nearest
    rows in the features. The trust is the odds that the graph is right, as a share of the sum of both odds.
    O(E + N·C) time and memory.

    Parameters
    ----------
    adjacency
        (N, N) symmetric weights of the graph.
    neighbors
        (N, N) symmetric kNN graph of the features.
    labels
        (N,) clusters.
    """
    by_graph, by_features = (_odds(_predicted_share(graph, labels)) for graph in (adjacency, neighbors))
    return by_graph / (by_graph + by_features)


def _predicted_share(graph: Adjacency, labels: Labels) -> float:
    """Return the share of rows whose cluster is the most frequent one among their neighbors."""
    votes = np.asarray((graph @ sp.identity(int(labels.max()) + 1, format="csr")[labels]).todense())
    votes_for_label = votes[np.arange(len(labels)), labels]
    return float(np.mean((votes_for_label > 0) & (votes_for_label >= votes.max(axis=1))))


def _odds(share: float) -> float:
    share = min(max(share, _LEAST_SHARE), 1 - _LEAST_SHARE)
    return share / (1 - share)


def _symmetric(neighbors: KnownNeighbors, n_nodes: int) -> Adjacency:
    """Return the (N, N) distances of all pairs of which one row is a neighbor of the other."""
    # A distance of 0 would not be an entry of the matrix.
    distance = np.maximum(neighbors.distance, np.finfo(np.float64).tiny)
    return symmetrize(sp.csr_matrix((distance, tuple(neighbors.edges)), shape=(n_nodes, n_nodes)))


def _mutual_neighbors(edges: NDArray[np.int64], n_nodes: int) -> Adjacency:
    """Return the graph of the pairs of rows that are neighbors of each other."""
    directed = sp.csr_matrix((np.ones(edges.shape[1]), tuple(edges)), shape=(n_nodes, n_nodes))
    return directed.minimum(directed.T).tocsr()


def choose_inputs(
    rows: Floats,
    adjacency: Adjacency,
    n_clusters: int,
    *,
    n_neighbors: int,
    seed: int,
    device: torch.device = _CPU,
    by_angle: bool = False,
) -> InputSource:
    """Return features and graph, or, if they are unrelated, the one of them that has clusters by itself.

    They are related if linked rows are significantly more similar than random rows. If they are not, one of them is
    noise: smoothing features along random edges ruins them, and smoothing noise along good edges adds noise. The one
    whose repeated clusterings agree better is used: the features with their kNN graph, or the graph with its leading
    directions as features.
    """
    both = InputSource("features and graph", rows, adjacency, by_angle=by_angle)
    if n_clusters < 2 or adjacency.nnz < _LEAST_EDGES or _excess_similarity(rows, adjacency, seed) >= _BEYOND_CHANCE:
        return both
    neighbors = knn_adjacency(rows, min(n_neighbors, len(rows) - 1), device, seed=seed)
    alone = InputSource("features", rows, neighbors, is_knn=True, by_angle=by_angle)
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
    random_pairs = np.random.default_rng(seed_for(seed, "random pairs"))
    if len(i) > _MOST_COMPARED:
        sample = random_pairs.choice(len(i), _MOST_COMPARED, replace=False)
        i, j = i[sample], j[sample]
    a, b = random_pairs.integers(len(rows), size=(2, len(i)))
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


def directions_of_graph(adjacency: Adjacency, n_clusters: int, seed: int) -> Floats:
    """Return features (N, 2C) of the rows of a graph without features: its leading directions, as rows of length 1.

    These are the directions of the adjacency normalized by degrees to which the mean degree is added, so that small
    components do not take up the leading directions (regularized spectral clustering, Amini et al. 2013). A row without
    edges is 0. O(E·C) time.
    """
    from sklearn.utils.extmath import randomized_svd

    degree = np.asarray(adjacency.sum(axis=1)).ravel()
    scale = sp.diags_array(1 / np.sqrt(degree + degree.mean()), format="csr")
    rank, seed = min(2 * n_clusters, len(degree)), seed_for(seed, "directions of the graph")
    u, s, _ = randomized_svd(sp.csr_matrix(scale @ adjacency @ scale), rank, n_iter=_SVD_ITERATIONS, random_state=seed)
    return unit_rows(np.asarray(u * s))


def _stability(inputs: InputSource, n_clusters: int, seed: int, device: torch.device) -> float:
    """Return the mean NMI between repeated clusterings of the inputs by K-means."""
    smoothed_points = smoothed_embeddings(inputs.rows, inputs.adjacency, n_clusters, device)
    labelings = repeated_kmeans(smoothed_points, n_clusters, N_REPEATS, seed=seed, device=device)
    return agreement(labelings, n_clusters, device)
