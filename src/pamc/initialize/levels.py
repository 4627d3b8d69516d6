"""Levels: a tree over the clusters of a fit, and coarser clusters from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.errors import ConfigError

# Maximum number of rows from which the means of the clusters are computed.
_MOST_ROWS = 50_000


def cluster_linkage(
    features: Any,
    adjacency: Any,
    labels: NDArray[np.int64],
    n_clusters: int,
    *,
    sample_weight: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return the tree (C − 1, 4) over the clusters in scipy's linkage format.

    Each step merges the two clusters whose union increases the sum of squares the least (Ward 1963), where a cluster is
    the mean of its rows and counts as many times as it has rows. With a graph, a row is replaced by the mean of itself
    and its neighbors, so that clusters joined by many edges merge early. O(N·d + E·d + C³) time.

    Parameters
    ----------
    features
        (N, d) preprocessed rows; more than 50,000 are sampled evenly.
    adjacency
        (N, N) sparse adjacency matrix, or None.
    labels
        (N,) clusters.
    sample_weight
        (N,) number of times that each row counts; None counts every row once.
    """
    step = -(-len(labels) // _MOST_ROWS)
    rows, sampled = features[::step], labels[::step]
    counts = np.bincount(labels, sample_weight, minlength=n_clusters).astype(np.float64)
    ones = np.ones(len(labels)) if sample_weight is None else sample_weight
    member = sp.csr_matrix((ones[::step], (sampled, np.arange(len(sampled)))), (n_clusters, len(sampled)))
    if adjacency is not None and step == 1:
        pattern = sp.csr_matrix((np.ones_like(adjacency.data), adjacency.indices, adjacency.indptr), adjacency.shape)
        pattern = pattern if sample_weight is None else pattern @ sp.diags(sample_weight)
        joined = pattern + sp.identity(len(labels), format="csr")
        member = member @ sp.diags(1 / np.asarray(joined.sum(axis=1)).ravel()) @ joined
    sums = member @ (rows if sp.issparse(rows) else np.asarray(rows))
    sums = sums.toarray() if sp.issparse(sums) else np.asarray(sums)
    size = np.maximum(np.asarray(member.sum(axis=1)).ravel(), 1.0)
    return _ward(sums.astype(np.float64) / size[:, None], counts)


def merged_labels(linkage: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Return the coarse cluster (C,) of each cluster if the tree is cut into k, numbered by their first cluster.

    Examples
    --------
    >>> merged_labels(np.array([[0.0, 2.0, 1.0, 2.0], [1.0, 3.0, 5.0, 3.0]]), 2).tolist()
    [0, 1, 0]
    """
    n_clusters = len(linkage) + 1
    if isinstance(k, bool) or not hasattr(k, "__index__") or not 1 <= k <= n_clusters:
        raise ConfigError(f"k must be an integer from 1 to the number of clusters, {n_clusters}, got {k!r}")
    group = np.arange(n_clusters)
    members = [[cluster] for cluster in range(n_clusters)]
    for first, second in linkage[: n_clusters - k, :2].astype(np.int64):
        members.append(members[first] + members[second])
        group[members[-1]] = min(members[-1])
    return np.unique(group, return_inverse=True)[1].astype(np.int64)


def _ward(means: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the linkage of clusters with these means and sizes."""
    n = len(means)
    means, counts, numbers, leaves = means.copy(), counts.copy(), np.arange(n), np.ones(n)
    cost = np.full((n, n), np.inf)
    for cluster in range(n):
        cost[cluster] = _costs(cluster, means, counts)
    cost[np.arange(n), np.arange(n)] = np.inf
    linkage = np.empty((n - 1, 4))
    for step in range(n - 1):
        first, second = sorted(divmod(int(np.argmin(cost)), n))
        height = np.sqrt(2 * cost[first, second])
        linkage[step] = (*sorted((numbers[first], numbers[second])), height, leaves[first] + leaves[second])
        total = counts[first] + counts[second]
        share = counts[first] / total if total else 0.5
        means[first] = share * means[first] + (1 - share) * means[second]
        counts[first], leaves[first], numbers[first] = total, linkage[step, 3], n + step
        is_gone = np.isinf(cost).all(axis=1)
        cost[second] = cost[:, second] = np.inf
        merged = _costs(first, means, counts)
        merged[is_gone | (np.arange(n) == first) | (np.arange(n) == second)] = np.inf
        cost[first] = cost[:, first] = merged
    linkage[:, 2] = np.maximum.accumulate(linkage[:, 2])
    return linkage


def _costs(cluster: int, means: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by how much the sum of squares increases if a cluster is merged with each other cluster (C,)."""
    total = counts + counts[cluster]
    weight = np.divide(counts * counts[cluster], total, out=np.zeros(len(counts)), where=total > 0)
    return np.asarray(weight * np.square(means - means[cluster]).sum(axis=1))
