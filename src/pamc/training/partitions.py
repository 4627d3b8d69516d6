"""Many quick clusterings of an embedding, and the one that they agree on."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from pamc.graph.adjacency import Adjacency
from pamc.graph.smoothing import Floats

__all__ = ["Labels", "agreement", "consensus", "few_points_allowed", "kmeans_labels", "merge_groups", "merged_labels"]

Labels: TypeAlias = "NDArray[np.int64]"

# A cluster holds at least this share of N / C rows. Without it, merging by density leaves a few outliers as a cluster.
_MIN_SHARE = 0.3

_KMEANS_STARTS = 10

# Directions per cluster in which rows are compared by the clusters they share.
_DIRECTIONS_PER_CLUSTER = 2

# Rows on which labelings are compared.
_COMPARED_ROWS = 20_000


def kmeans_labels(points: Floats, n_clusters: int, *, seed: int, n_init: int = 1) -> Labels:
    """Return (N,) clusters of K-means on the rows of `points`."""
    labels = KMeans(n_clusters, n_init=n_init, random_state=seed).fit(points).labels_
    return np.asarray(labels, dtype=np.int64)


@contextmanager
def few_points_allowed() -> Iterator[None]:
    """Say nothing of fewer distinct points than clusters: the fit itself reports what became of the clusters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def merged_labels(groups: Labels, adjacency: Adjacency, n_clusters: int) -> Labels:
    """Return (N,) clusters of rows in many small groups (N,): the graph says which of them belong together.

    K-means alone cuts a long cluster in two and joins two small ones; groups that many edges join are one cluster
    whatever its shape. O(E + M³) time for M groups.
    """
    n_groups = max(n_clusters, int(groups.max()) + 1)
    member = sp.csr_matrix((np.ones(len(groups)), (np.arange(len(groups)), groups)), shape=(len(groups), n_groups))
    weight = np.asarray((member.T @ adjacency @ member).todense(), dtype=np.float64)
    merged: Labels = merge_groups(weight, np.bincount(groups, minlength=n_groups), n_clusters)[groups]
    return merged


def merge_groups(weight: Floats, size: NDArray[np.integer], n_clusters: int) -> Labels:
    """Return (M,) the cluster of each group after joining, again and again, the two that are joined most densely.

    Density is the weight between two groups over the product of their volumes. Clusters of enough rows are not joined
    any more once only `n_clusters` of them are left, so that small groups are taken up by large ones and not the other
    way round.

    Parameters
    ----------
    weight
        (M, M) sum of the edge weights between any two groups.
    size
        (M,) rows of each group.
    n_clusters
        C ≤ M.

    Examples
    --------
    >>> two_pairs = np.array([[0, 9, 1, 0], [9, 0, 0, 1], [1, 0, 0, 9], [0, 1, 9, 0]], dtype=float)
    >>> merge_groups(two_pairs, np.ones(4, dtype=int), 2)
    array([0, 0, 1, 1])
    """
    weight, rows = weight.copy(), size.astype(np.float64)
    volume = weight.sum(axis=1)
    cluster = np.arange(len(rows))
    alive = rows >= 0
    enough = _MIN_SHARE * rows.sum() / n_clusters
    while alive.sum() > n_clusters:
        (index,) = np.nonzero(alive)
        products = np.outer(volume[index], volume[index])
        density = np.divide(weight[np.ix_(index, index)], products, out=np.zeros_like(products), where=products > 0)
        np.fill_diagonal(density, -1.0)
        large = rows[index] >= enough
        if large.sum() <= n_clusters:
            density[np.outer(large, large)] = -1.0
        kept, lost = index[list(np.unravel_index(density.argmax(), density.shape))]
        if density.max() <= 0:
            # Nothing is joined by an edge: the smallest group goes to the largest.
            by_size = index[np.argsort(rows[index], kind="stable")]
            kept, lost = by_size[-1], by_size[0]
        weight[kept] += weight[lost]
        weight[:, kept] += weight[:, lost]
        volume[kept] += volume[lost]
        rows[kept] += rows[lost]
        cluster[cluster == lost] = kept
        alive[lost] = False
    return np.unique(cluster, return_inverse=True)[1].astype(np.int64)


def consensus(labelings: Sequence[Labels], n_clusters: int, *, seed: int) -> Labels:
    """Return (N,) the clusters that labelings of the same rows agree on.

    How often two rows share a cluster is an N × N matrix; its leading directions are those of the (N, R·C) matrix of
    memberships M, found exactly from MᵀM, and K-means on them gives the answer. O(N·(R² + R·C + C²) + (R·C)³) time.

    Examples
    --------
    >>> one, other = np.array([0, 0, 0, 1, 1, 1]), np.array([1, 1, 0, 0, 0, 0])
    >>> consensus([one, one, other], 2, seed=0).tolist() in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    True
    """
    members = _members(labelings, n_clusters)
    counts = (members.T @ members).toarray()
    n_rows, n_columns = members.shape
    share = counts.diagonal() / n_rows
    spread = counts - n_rows * np.outer(share, share)
    last = n_columns - min(_DIRECTIONS_PER_CLUSTER * n_clusters, n_columns)
    _, directions = eigh(spread, subset_by_index=[last, n_columns - 1])
    with few_points_allowed():
        return kmeans_labels(members @ directions - share @ directions, n_clusters, seed=seed, n_init=_KMEANS_STARTS)


def agreement(labelings: Sequence[Labels], n_clusters: int) -> float:
    """Return the mean NMI over all pairs of labelings, on at most 20,000 rows spread evenly: 1 when all agree.

    The tables of all pairs are the blocks of one product, O(N·R² + (R·C)²) time.

    Examples
    --------
    >>> agreement([np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0])], 2)
    1.0
    """
    n_labelings, step = len(labelings), -(-len(labelings[0]) // _COMPARED_ROWS)
    members = _members([labels[::step] for labels in labelings], n_clusters)
    counts = (members.T @ members).toarray()
    shares = (counts.diagonal() / members.shape[0]).reshape(n_labelings, n_clusters)
    tables = (counts / members.shape[0]).reshape(n_labelings, n_clusters, n_labelings, n_clusters)
    entropy = -_times_log(shares).sum(axis=1)
    joint = -_times_log(tables).sum(axis=(1, 3))
    one, other = np.triu_indices(n_labelings, k=1)
    both = entropy[one] + entropy[other]
    nmi = np.divide(2 * (both - joint[one, other]), both, out=np.ones_like(both), where=both > 0)
    return float(nmi.mean())


def _members(labelings: Sequence[Labels], n_clusters: int) -> sp.csr_matrix:
    """Return the (N, R·C) matrix with a 1 for the cluster of each row in each of the R labelings."""
    columns = np.stack(labelings, axis=1) + n_clusters * np.arange(len(labelings))
    n_rows, n_labelings = columns.shape
    starts = np.arange(0, columns.size + 1, n_labelings)
    return sp.csr_matrix((np.ones(columns.size), columns.ravel(), starts), shape=(n_rows, n_labelings * n_clusters))


def _times_log(share: Floats) -> Floats:
    """Return p·log p, which is 0 at 0."""
    return np.asarray(share * np.log(np.where(share > 0, share, 1.0)))
