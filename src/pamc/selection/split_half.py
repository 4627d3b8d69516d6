"""Would another sample give the same clusters? Random halves of the rows, clustered apart and compared.

And data that are like the given ones but have no clusters: what such a comparison gives by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from pamc.graph.adjacency import Adjacency, build_adjacency
from pamc.graph.neighbors import ANGLE, DIRECTIONS, knn_adjacency, nearest
from pamc.graph.smoothing import Floats, on_sphere, smoothed, unit_rows
from pamc.initialize.consensus import ROWS_PER_GROUP, InputSource
from pamc.initialize.partitions import EdgeList, Labels, edge_list, merged_labels
from pamc.ops.kmeans import KMeansFit, kmeans
from pamc.runtime import quiet_libraries, seed_for, side_by_side

__all__ = ["KMEANS", "MERGED", "WAYS", "clusters_of", "null_reference", "split_half_agreement"]

# How clusters are found: as a consensus start finds them.
KMEANS, MERGED = "k-means", "merged groups"
WAYS = (KMEANS, MERGED)

# How far the walk goes that smooths the rows: the middle one of a consensus start.
_REACH = 0.9

_KMEANS_STARTS = 20

# Groups per cluster that are merged, and rows that a group has at least, on average.
_GROUPS_PER_CLUSTER = 6

# Directions in which rows are compared, random pairs that say what is usual, nearest rows, and candidates for an end.
_PAIRS, _NEAREST, _CANDIDATES = 20_000, 32, 48
_EDGES_AT_A_TIME = 1 << 12

Dims: TypeAlias = Callable[[int], int]


@dataclass(frozen=True, eq=False)
class _Points:
    """Smoothed rows, the directions in which they are clustered, and the edges between them."""

    rows: Floats
    directions: Floats
    edges: EdgeList

    @classmethod
    def of(cls, placed: Floats, adjacency: Adjacency) -> _Points:
        rows = smoothed(placed, adjacency, [_REACH])[0]
        spread, directions = np.linalg.eigh(rows.T @ rows)
        # As in `embedding`: each direction is weighted by the root of its spread.
        scale = np.maximum(spread[::-1], 0.0) ** 0.25
        kept = scale > 1e-6 * scale.max(initial=0.0)
        return cls(rows, directions[:, ::-1][:, kept] / scale[kept], edge_list(adjacency))

    def embedded(self, directions: Floats) -> Floats:
        return unit_rows(self.rows @ directions)


@dataclass(frozen=True, eq=False)
class _Clusters:
    """Clusters of points, and what gives them to other points."""

    labels: Labels
    directions: Floats
    kmeans: KMeansFit
    cluster_of_group: NDArray[np.int64]

    def of(self, points: _Points) -> Labels:
        found: Labels = self.cluster_of_group[self.kmeans.predict(points.embedded(self.directions))]
        return found


def clusters_of(inputs: InputSource, n_clusters: int, *, n_dims: int, way: str, seed: int) -> tuple[Labels, Floats]:
    """Return quick clusters (N,) of all rows, and the points (N, n_dims) of length 1 in which they lie."""
    points = _Points.of(on_sphere(inputs.rows), inputs.adjacency)
    found = _found(points, n_clusters, n_dims, way, seed)
    return found.labels, points.embedded(found.directions)


def split_half_agreement(
    inputs: InputSource, candidates: Sequence[int], *, dims: Dims, n_splits: int, seed: int
) -> NDArray[np.float64]:
    """Return (2, n_splits, K) how well clusters of two random halves of the rows agree, for each way and candidate.

    Each half is smoothed along its own edges and clustered by itself; its clusters are given to the rows of the other
    half, by the nearest center, and compared with those that were found there: the mean of the two adjusted Rand
    indices. 1 where both halves tell the same, 0 by chance. O(E·r + N·r·(r + C)) time for each split.

    Parameters
    ----------
    candidates
        K numbers of clusters.
    dims
        Of a number of clusters, the dimensions in which they are sought.
    """
    placed = on_sphere(inputs.rows)
    order = np.random.default_rng(seed_for(seed, "splits"))
    result = np.empty((len(WAYS), n_splits, len(candidates)))
    for split in range(n_splits):
        shuffled = order.permutation(len(placed))
        sides = []
        for half in np.array_split(shuffled, 2):
            half = np.sort(half)
            sides.append(_Points.of(placed[half], inputs.adjacency[half][:, half]))
        with quiet_libraries:
            compared = side_by_side(
                partial(_compared, sides[0], sides[1], k, dims(k), way, seed_for(seed, f"split {split}"))
                for way in WAYS
                for k in candidates
            )
        result[:, split] = np.reshape(compared, (len(WAYS), len(candidates)))
    return result


def null_reference(
    inputs: InputSource, *, shape: str, own_graph: bool, n_neighbors: int, seed: int, device: torch.device
) -> InputSource:
    """Return rows of the same spread in every direction, and a graph like the given one, but no clusters.

    Parameters
    ----------
    shape
        "gaussian" or "uniform" along each direction.
    own_graph
        Whether the graph is the kNN graph of the rows. Otherwise as many edges are drawn, of which each joins rows as
        alike, among all, as one of the given edges does: a graph that follows the features as far as the given one.
    """
    drawn = np.random.default_rng(seed_for(seed, "rows without clusters"))
    size = inputs.rows.shape
    values = drawn.normal(size=size) if shape == "gaussian" else drawn.uniform(-np.sqrt(3), np.sqrt(3), size=size)
    middle = inputs.rows.mean(axis=0)
    rows = middle + values * inputs.rows.std(axis=0)
    n_neighbors = min(n_neighbors, len(rows) - 1)
    if own_graph:
        return InputSource(inputs.kind, rows, knn_adjacency(rows, n_neighbors, device, seed=seed))
    edges = edge_list(inputs.adjacency)
    given = _Likeness(inputs.rows, drawn)
    new = _Likeness(rows, drawn)
    # Edges have no direction: which of the ends is kept is drawn.
    turned = drawn.random(len(edges.rows)) < 0.5
    source = np.where(turned, edges.columns, edges.rows)
    target = np.where(turned, edges.rows, edges.columns)
    share = given.share(given.of(source, target))
    ends = _ends_as_alike(new, source, share, np.concatenate([source, target]), drawn)
    near = min(_NEAREST, len(rows) - 1)
    neighbors = nearest(rows, near, metric=ANGLE, device=device, seed=seed).edges[1].reshape(-1, near)
    # Where an edge joins nearest rows, random candidates are too far: one of the nearest is taken.
    close = (1 - share) * len(rows) < near
    ends[close] = neighbors[source[close], drawn.integers(near, size=np.count_nonzero(close))]
    pairs = np.unique(np.sort(np.stack([source, ends]), axis=0), axis=1)
    pairs = pairs[:, pairs[0] != pairs[1]]
    return InputSource(inputs.kind, rows, build_adjacency(pairs, None, n_nodes=len(rows)))


class _Likeness:
    """The cosine of centered rows in their leading directions, and how usual it is among random pairs."""

    def __init__(self, rows: Floats, drawn: np.random.Generator) -> None:
        self.unit = unit_rows(rows[:, :DIRECTIONS] - rows[:, :DIRECTIONS].mean(axis=0))
        self.usual = np.sort(self.of(*drawn.integers(len(rows), size=(2, _PAIRS))))

    def of(self, one: NDArray[np.integer], other: NDArray[np.integer]) -> Floats:
        cosines: Floats = (self.unit[one] * self.unit[other]).sum(axis=1)
        return cosines

    def share(self, cosines: Floats) -> Floats:
        """Return the share of random pairs that are less alike."""
        return np.asarray(np.searchsorted(self.usual, cosines) / len(self.usual), dtype=np.float64)

    def cosine(self, share: Floats) -> Floats:
        """Return the cosine that a share of random pairs stays below."""
        place = np.minimum((share * len(self.usual)).astype(np.int64), len(self.usual) - 1)
        return np.asarray(self.usual[place], dtype=np.float64)


def _ends_as_alike(
    likeness: _Likeness,
    source: NDArray[np.integer],
    share: Floats,
    ends: NDArray[np.integer],
    drawn: np.random.Generator,
) -> NDArray[np.int64]:
    """Return other ends (E,) of edges, each of some random `ends` the one whose likeness to the source is nearest."""
    wanted = likeness.cosine(share)
    found = np.empty(len(source), dtype=np.int64)
    for first in range(0, len(source), _EDGES_AT_A_TIME):
        block = slice(first, first + _EDGES_AT_A_TIME)
        own = source[block]
        others = ends[drawn.integers(len(ends), size=(len(own), _CANDIDATES))]
        cosines = np.einsum("ed,ecd->ec", likeness.unit[own], likeness.unit[others])
        best = np.abs(cosines - wanted[block, None]).argmin(axis=1)
        found[block] = others[np.arange(len(own)), best]
    return found


def _compared(one: _Points, other: _Points, n_clusters: int, n_dims: int, way: str, seed: int) -> float:
    here, there = (_found(points, n_clusters, n_dims, way, seed) for points in (one, other))
    return (
        float(adjusted_rand_score(there.labels, here.of(other)) + adjusted_rand_score(here.labels, there.of(one))) / 2
    )


def _found(points: _Points, n_clusters: int, n_dims: int, way: str, seed: int) -> _Clusters:
    directions = points.directions[:, :n_dims]
    embedded = points.embedded(directions)
    if way == KMEANS:
        fit = kmeans(embedded, n_clusters, seeds=[seed], n_init=_KMEANS_STARTS)[0]
        return _Clusters(fit.labels, directions, fit, np.arange(n_clusters))
    n_groups = max(n_clusters, min(_GROUPS_PER_CLUSTER * n_clusters, len(embedded) // ROWS_PER_GROUP))
    fit = kmeans(embedded, n_groups, seeds=[seed])[0]
    labels = merged_labels(fit.labels, points.edges, n_clusters)
    cluster_of_group = np.zeros(n_groups, dtype=np.int64)
    cluster_of_group[fit.labels] = labels
    return _Clusters(labels, directions, fit, cluster_of_group)
