"""Partitions along a graph: small groups are merged, the most densely connected first, or single rows are moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.graph.adjacency import Adjacency
from pamc.graph.smoothing import Floats
from pamc.ops.kmeans import Labels
from pamc.ops.scores import modularity

# Minimum size of a cluster, as a share of N / C rows. Without it, a few outliers could remain a cluster of their own.
_MIN_SHARE = 0.3

# Number of sweeps that move rows between clusters: at most in total, and at most without a gain in modularity. Share of
# the rows that move at once, and the least gain in modularity, or in a row's share of its own degree.
_MOST_SWEEPS, _MOST_STALE = 100, 6
_MOVED_SHARE, _LEAST_GAIN = 0.5, 1e-7


class EdgeList(NamedTuple):
    """The edges of a graph, each listed once.

    Parameters
    ----------
    rows, columns
        (E,) end points of each edge.
    weight
        (E,) weight of each edge.
    """

    rows: NDArray[np.integer]
    columns: NDArray[np.integer]
    weight: Floats


def edge_list(adjacency: Adjacency) -> EdgeList:
    """Return the edges of an adjacency matrix (N, N), without self-loops."""
    ends: Any = adjacency.tocoo()
    once = ends.row < ends.col
    return EdgeList(ends.row[once], ends.col[once], ends.data[once])


def merged_labels(groups: Labels, edges: EdgeList, n_clusters: int) -> Labels:
    """Merge the small groups (N,) of rows along the graph, and return the clusters (N,).

    K-means alone may cut a long cluster in two or join two small ones. Merging joins groups with many edges between
    them, whatever the shape of the cluster. O(E + M³) time for M groups.
    """
    merged: Labels = merge_groups(*weights_and_sizes(groups, edges, n_clusters), n_clusters)[groups]
    return merged


def weights_and_sizes(groups: Labels, edges: EdgeList, at_least: int) -> tuple[Floats, NDArray[np.integer]]:
    """Return the sums (M, M) of the edge weights between groups, and their numbers of rows (M,), for M ≥ `at_least`."""
    n_groups = max(at_least, int(groups.max()) + 1)
    pairs = groups[edges.rows] * n_groups + groups[edges.columns]
    one_way: Floats = np.bincount(pairs, weights=edges.weight, minlength=n_groups**2).astype(np.float64, copy=False)
    weight = one_way.reshape(n_groups, n_groups)
    return weight + weight.T, np.bincount(groups, minlength=n_groups)


def merge_groups(weight: Floats, size: NDArray[np.integer], n_clusters: int) -> Labels:
    """Repeatedly merge the two most densely connected groups, and return the cluster (M,) of each group.

    Density is the weight between two groups divided by the product of their volumes. Once only `n_clusters` large
    clusters are left, they are no longer merged with each other, so that the remaining small groups join large ones.
    Each step finds the largest density and updates those of the merged pair in O(M²) time.

    Parameters
    ----------
    weight
        (M, M) symmetric sums of the edge weights between any two groups.
    size
        (M,) number of rows of each group.
    n_clusters
        Number C ≤ M of clusters to form.

    Examples
    --------
    >>> two_pairs = np.array([[0, 9, 1, 0], [9, 0, 0, 1], [1, 0, 0, 9], [0, 1, 9, 0]], dtype=float)
    >>> merge_groups(two_pairs, np.ones(4, dtype=int), 2)
    array([0, 0, 1, 1])
    """
    return merge_in_turn(weight, size, [n_clusters])[0]


def merge_in_turn(weight: Floats, size: NDArray[np.integer], numbers: Sequence[int]) -> list[Labels]:
    """Return the clusters (M,) of the groups for several numbers of clusters, in descending order.

    As :func:`merge_groups`, but each number continues from the clusters of the previous one.
    """
    merging = _Merging(weight, size)
    partitions = []
    for n_clusters in numbers:
        merging.merge_to(n_clusters)
        partitions.append(np.unique(merging.cluster, return_inverse=True)[1].astype(np.int64))
    return partitions


def with_moved_rows(labels: Labels, graph: Adjacency, n_clusters: int, *, seed: int) -> Labels:
    """Return the clusters (N,) after rows moved to the cluster of a neighbor while this increased the modularity.

    In each sweep, a random half of the rows that gain from a move are moved together, because two neighbors that swap
    their clusters at once would gain nothing. The number of clusters does not change. O(E) time and memory per sweep.

    Parameters
    ----------
    labels
        (N,) clusters 0 … C−1.
    graph
        (N, N) symmetric weights without diagonal.
    n_clusters, seed
        Number of clusters, C, and random seed.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> two_triangles = sp.csr_matrix(np.kron(np.eye(2), 1 - np.eye(3)))
    >>> with_moved_rows(np.array([0, 0, 0, 0, 1, 1]), two_triangles, 2, seed=0).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    rng = np.random.default_rng(seed)
    best, most, n_stale = labels, modularity(graph, labels), 0
    for _ in range(_MOST_SWEEPS):
        movable, target = _gaining_moves(labels, graph, n_clusters)
        if len(movable) == 0 or n_stale == _MOST_STALE:
            break
        moves = rng.random(len(movable)) < _MOVED_SHARE
        moved = labels.copy()
        moved[movable[moves]] = target[moves]
        n_stale += 1
        if len(np.unique(moved)) < len(np.unique(labels)):
            continue
        labels, value = moved, modularity(graph, moved)
        if value > most + _LEAST_GAIN:
            best, most, n_stale = labels, value, 0
    return best


def _gaining_moves(labels: Labels, graph: Adjacency, n_clusters: int) -> tuple[NDArray[np.int64], Labels]:
    """Return the rows (n,) whose move to another cluster increases the modularity, and their best clusters (n,)."""
    n_nodes = len(labels)
    rows = np.arange(n_nodes)
    members = sp.csr_matrix((np.ones(n_nodes), labels, np.arange(n_nodes + 1)), shape=(n_nodes, n_clusters))
    to_cluster: Any = (graph @ members).tocoo()
    degree = np.asarray(graph.sum(axis=1)).ravel()
    volume, total = np.bincount(labels, degree, minlength=n_clusters), degree.sum()
    stays = to_cluster.col == labels[to_cluster.row]
    inside = np.bincount(to_cluster.row[stays], to_cluster.data[stays], minlength=n_nodes)
    row, cluster, weight = (part[~stays] for part in (to_cluster.row, to_cluster.col, to_cluster.data))
    gain = weight - inside[row] - degree[row] * (volume[cluster] - volume[labels[row]] + degree[row]) / total
    order = np.lexsort((-gain, row))
    first = order[np.searchsorted(row[order], rows[np.bincount(row, minlength=n_nodes) > 0])]
    first = first[gain[first] > _LEAST_GAIN * degree[row[first]]]
    return row[first], cluster[first].astype(np.int64)


class _Merging:
    """State of the merging: weights, volumes, sizes and densities of the remaining groups."""

    def __init__(self, weight: Floats, size: NDArray[np.integer]) -> None:
        self.weight, self.rows = weight.copy(), size.astype(np.float64)
        self.volume = weight.sum(axis=1)
        self.cluster = np.arange(len(size))
        self.alive = self.rows >= 0
        # −1 is never chosen.
        self.density = _densities(weight, np.outer(self.volume, self.volume))
        np.fill_diagonal(self.density, -1.0)

    def merge_to(self, n_clusters: int) -> None:
        enough = _MIN_SHARE * self.rows[self.alive].sum() / n_clusters
        large = self.alive & (self.rows >= enough)
        # Densities of all pairs of groups, and the same without pairs of large groups.
        density = np.stack([self.density] * 2)
        density[1, np.outer(large, large)] = -1.0
        for _ in range(np.count_nonzero(self.alive) - n_clusters):
            allowed = density[int(np.count_nonzero(large) <= n_clusters)]
            target, merged = divmod(int(allowed.argmax()), len(self.rows))
            if allowed[target, merged] <= 0:
                target, merged = self._largest_and_smallest()
            self._join(target, merged)
            large[merged] = False
            large[target] = self.rows[target] >= enough
            volumes = self.volume[target] * self.volume
            new_density = np.where(self.alive, _densities(self.weight[target], volumes), -1.0)
            new_density[target] = density[:, merged] = density[:, :, merged] = -1.0
            density[0, target] = density[0, :, target] = new_density
            density[1, target] = density[1, :, target] = np.where(large & large[target], -1.0, new_density)
        self.density = density[0]

    def _largest_and_smallest(self) -> tuple[int, int]:
        """Return the last of the largest and the first of the smallest groups, to merge if no edges are left."""
        by_size = np.argsort(np.where(self.alive, self.rows, np.inf), kind="stable")[: np.count_nonzero(self.alive)]
        return int(by_size[-1]), int(by_size[0])

    def _join(self, target: int, merged: int) -> None:
        self.weight[target] += self.weight[merged]
        self.weight[:, target] = self.weight[target]
        self.volume[target] += self.volume[merged]
        self.rows[target] += self.rows[merged]
        self.cluster[self.cluster == merged] = target
        self.alive[merged] = False


def _densities(weight: Floats, products: Floats) -> Floats:
    """Return the weights divided by the products of volumes, 0 where a volume is 0."""
    return np.divide(weight, products, out=np.zeros_like(products), where=products > 0)
