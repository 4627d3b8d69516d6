"""Agglomerative clustering: small groups of rows are merged, the most densely connected first."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pamc.graph.adjacency import Adjacency
from pamc.graph.smoothing import Floats
from pamc.ops.kmeans import Labels

# Smallest cluster as a share of N / C rows. Without it, merging by density leaves a few outliers as a cluster.
_MIN_SHARE = 0.3


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
    n_groups = max(n_clusters, int(groups.max()) + 1)
    pairs = groups[edges.rows] * n_groups + groups[edges.columns]
    one_way: Floats = np.bincount(pairs, weights=edges.weight, minlength=n_groups**2).astype(np.float64, copy=False)
    weight = one_way.reshape(n_groups, n_groups)
    sizes = np.bincount(groups, minlength=n_groups)
    merged: Labels = merge_groups(weight + weight.T, sizes, n_clusters)[groups]
    return merged


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
    weight, rows = weight.copy(), size.astype(np.float64)
    volume = weight.sum(axis=1)
    enough = _MIN_SHARE * rows.sum() / n_clusters
    cluster, alive, large = np.arange(len(rows)), rows >= 0, rows >= enough
    # Densities of all pairs of groups, and the same without pairs of large groups. −1 is never chosen.
    density = np.stack([_densities(weight, np.outer(volume, volume))] * 2)
    density[:, cluster, cluster] = -1.0
    density[1, np.outer(large, large)] = -1.0
    for _ in range(len(rows) - n_clusters):
        allowed = density[int(np.count_nonzero(large) <= n_clusters)]
        target, merged = divmod(int(allowed.argmax()), len(rows))
        if allowed[target, merged] <= 0:
            # No edges are left between groups: merge the last of the largest with the first of the smallest groups.
            by_size = np.argsort(np.where(alive, rows, np.inf), kind="stable")[: np.count_nonzero(alive)]
            target, merged = int(by_size[-1]), int(by_size[0])
        weight[target] += weight[merged]
        weight[:, target] = weight[target]
        volume[target] += volume[merged]
        rows[target] += rows[merged]
        cluster[cluster == merged] = target
        alive[merged] = large[merged] = False
        large[target] = rows[target] >= enough
        new_density = np.where(alive, _densities(weight[target], volume[target] * volume), -1.0)
        new_density[target] = density[:, merged] = density[:, :, merged] = -1.0
        density[0, target] = density[0, :, target] = new_density
        density[1, target] = density[1, :, target] = np.where(large & large[target], -1.0, new_density)
    return np.unique(cluster, return_inverse=True)[1].astype(np.int64)


def _densities(weight: Floats, products: Floats) -> Floats:
    """Return the weights divided by the products of volumes, 0 where a volume is 0."""
    return np.divide(weight, products, out=np.zeros_like(products), where=products > 0)
