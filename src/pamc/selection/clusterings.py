"""Quick clusterings of the same points for several numbers of clusters, which share most of the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pamc.graph.adjacency import Adjacency
from pamc.graph.smoothing import Floats, smoothed, unit_rows
from pamc.initialize.consensus import ROWS_PER_GROUP
from pamc.initialize.partitions import EdgeList, edge_list, merge_in_turn, weights_and_sizes
from pamc.ops.kmeans import KMeansFit, Labels, best_centers, initial_centers, kmeans, kmeans_fit
from pamc.runtime import seed_for

# Ways to cluster, which are those of the consensus initializer.
WAYS = ("k-means", "merged groups")

# Reach of the random walk that smooths the rows: the middle value of the consensus initializer.
_REACH = 0.9

# Maximum and minimum number of K-means starts; in between, this total number of centers divided by that of clusters.
_MOST_STARTS, _LEAST_STARTS, _CENTERS_OF_STARTS = 40, 8, 800

# Groups per cluster before merging, for the largest of the numbers of clusters that share the groups.
_GROUPS_PER_CLUSTER = 6

# Starts of K-means are compared on the means of groups if groups have at least this many rows on average, and if there
# are at least this many groups per cluster. After this many iterations, this many of the starts continue on the rows.
_ROWS_PER_MEAN, _LEAST_MEANS = 3, 3
_ITERATIONS_OF_STARTS, _BEST_STARTS = 4, 3

Dims: TypeAlias = Callable[[int], int]


@dataclass(frozen=True, eq=False)
class Points:
    """Smoothed rows, the leading directions in which they are clustered, and the edges between them."""

    rows: Floats
    directions: Floats
    edges: EdgeList

    @classmethod
    def of(cls, placed: Floats, adjacency: Adjacency, *, n_dims: int) -> Points:
        """Return the rows (N, r), smoothed along the graph, and up to `n_dims` directions."""
        rows = smoothed(placed, adjacency, [_REACH])[0]
        spread, directions = np.linalg.eigh(rows.T @ rows)
        # As in `embedding`, each direction is scaled by the square root of its spread.
        scale = np.maximum(spread[::-1], 0.0) ** 0.25
        leading = np.flatnonzero(scale > 1e-6 * scale.max(initial=0.0))[:n_dims]
        return cls(rows, directions[:, ::-1][:, leading] / scale[leading], edge_list(adjacency))

    @cached_property
    def coordinates(self) -> Floats:
        """Coordinates (N, r) of the rows along the directions."""
        return self.rows @ self.directions

    def embedded(self, n_dims: int) -> Floats:
        """Return the unit rows (N, n_dims) along the leading directions."""
        return unit_rows(self.coordinates[:, :n_dims])


@dataclass(frozen=True, eq=False)
class Clusters:
    """Clusters of points, and the fit that assigns other points to them.

    Parameters
    ----------
    labels
        (N,) cluster of each row.
    n_dims
        Number of leading directions in which the rows were clustered.
    groups
        K-means fit of the groups that the clusters consist of.
    cluster_of_group
        (M,) cluster of each group.
    """

    labels: Labels
    n_dims: int
    groups: KMeansFit
    cluster_of_group: NDArray[np.int64]


def clusterings(points: Points, numbers: Sequence[int], *, dims: Dims, seed: int) -> list[list[Clusters]]:
    """Return the clusters for each way and each of the ascending numbers of clusters.

    All numbers up to twice the smallest share the same small groups of rows, found by one run of K-means: the groups
    are merged along the edges in one pass, and the starts of K-means are compared on their means. K-means then runs on
    all rows from the best start. `dims` returns the size of the embedding for a number of clusters.
    """
    by_kmeans, by_merging = [], []
    for band in _bands(numbers):
        groups = _Groups(points, band[-1], dims(band[-1]), seed)
        by_merging += groups.merged(band)
        by_kmeans += [groups.split(k, dims(k)) for k in band]
    return [by_kmeans, by_merging]


def _bands(numbers: Sequence[int]) -> list[list[int]]:
    """Return the ascending numbers in parts, the largest of which is at most twice the smallest."""
    bands: list[list[int]] = []
    for k in reversed(numbers):
        if bands and 2 * k >= bands[-1][-1]:
            bands[-1].insert(0, k)
        else:
            bands.append([k])
    return bands[::-1]


class _Groups:
    """Small groups of rows, from which up to `n_clusters` clusters are formed by merging them or by K-means."""

    def __init__(self, points: Points, n_clusters: int, n_dims: int, seed: int) -> None:
        self._points, self._n_dims = points, n_dims
        embedded = points.embedded(n_dims)
        n_groups = max(n_clusters, min(_GROUPS_PER_CLUSTER * n_clusters, len(embedded) // ROWS_PER_GROUP))
        self._fit = kmeans(embedded, n_groups, seeds=[seed])[0]
        # Starts of K-means are compared on the means of groups, or on the rows if groups are too few or too small.
        few = len(embedded) < _ROWS_PER_MEAN * n_groups or n_groups < _LEAST_MEANS * n_clusters
        self._of_mean = np.arange(len(embedded)) if few else np.unique(self._fit.labels, return_inverse=True)[1]
        means, weight = _means(embedded, self._of_mean)
        n_starts = min(max(_CENTERS_OF_STARTS // n_clusters, _LEAST_STARTS), _MOST_STARTS)
        seeds = [seed_for(seed, f"start {start}") for start in range(n_starts)]
        self._starts = initial_centers(means, weight, n_clusters, seeds=seeds)

    def merged(self, numbers: Sequence[int]) -> list[Clusters]:
        """Return the clusters obtained by merging the groups along edges, for each of the ascending numbers."""
        weight, size = weights_and_sizes(self._fit.labels, self._points.edges, len(self._fit.centers))
        partitions = merge_in_turn(weight, size, numbers[::-1])[::-1]
        return [Clusters(partition[self._fit.labels], self._n_dims, self._fit, partition) for partition in partitions]

    def split(self, n_clusters: int, n_dims: int) -> Clusters:
        """Return the K-means clusters of all rows, from the starts that are best on the means of groups."""
        embedded = self._points.embedded(n_dims)
        means, weight = _means(embedded, self._of_mean)
        starts = best_centers(
            means,
            means[self._starts[:, :n_clusters]],
            weight=weight,
            n_best=_BEST_STARTS,
            n_iterations=_ITERATIONS_OF_STARTS,
        )
        fit = kmeans_fit(embedded, best_centers(embedded, starts, n_best=1)[0])
        return Clusters(fit.labels, n_dims, fit, np.arange(n_clusters))


def _means(embedded: Floats, groups: Labels) -> tuple[Floats, Floats]:
    """Return the mean (M, d) and the number of rows (M,) of each group; none of them is empty."""
    size = np.bincount(groups)
    if len(size) == len(embedded):
        return embedded, size.astype(np.float64)
    ordered = embedded[np.argsort(groups, kind="stable")]
    sums = np.add.reduceat(ordered, np.cumsum(size) - size, axis=0)
    return sums / size[:, None], size.astype(np.float64)
