"""Label-free scores, which evaluate a clustering without the true classes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import silhouette_score

from pamc.graph.adjacency import Adjacency

# Number of rows whose neighbors are read from files at a time.
_ROWS_PER_BLOCK = 1 << 16


def modularity(adjacency: Adjacency, labels: NDArray[np.int64]) -> float:
    """Return the modularity Σ_c [w_c / w − (v_c / w)²] of a clustering, −½ to 1, high if edges stay inside clusters.

    w is the sum of all weights (every edge counted in both directions), w_c that of the edges inside cluster c, and v_c
    the sum of the degrees of its nodes. The modularity of a graph without edges is 0. O(E) time and memory.

    Parameters
    ----------
    adjacency
        (N, N) symmetric weights without diagonal.
    labels
        (N,) cluster labels 0, 1, …

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> two_pairs = sp.csr_matrix([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], dtype=float)
    >>> modularity(two_pairs, np.array([0, 0, 1, 1]))
    0.5
    """
    return stored_modularity(adjacency.indptr, adjacency.indices, adjacency.data, labels)


def stored_modularity(
    indptr: NDArray[np.int64],
    indices: NDArray[np.integer[Any]],
    weight: NDArray[np.floating[Any]] | None,
    labels: NDArray[np.int64],
) -> float:
    """Return the :func:`modularity` of a graph in CSR arrays, such as memory-mapped files, block by block.

    O(E) time, O(N) memory.

    Examples
    --------
    >>> stored_modularity(np.array([0, 1, 2, 3, 4]), np.array([1, 0, 3, 2]), None, np.array([0, 0, 1, 1]))
    0.5
    """
    n_clusters = int(labels.max()) + 1
    inside, volume = np.zeros(n_clusters), np.zeros(n_clusters)
    ends = np.append(np.arange(0, len(labels), _ROWS_PER_BLOCK), len(labels))
    for start, stop in pairwise(ends):
        entries = slice(int(indptr[start]), int(indptr[stop]))
        source = np.repeat(labels[start:stop], np.diff(indptr[start : stop + 1]))
        values = np.ones(len(source)) if weight is None else np.asarray(weight[entries], dtype=np.float64)
        volume += np.bincount(source, values, minlength=n_clusters)
        same = labels[indices[entries]] == source
        inside += np.bincount(source[same], values[same], minlength=n_clusters)
    total = volume.sum()
    return float((inside / total - (volume / total) ** 2).sum()) if total > 0 else 0.0


def conductance(adjacency: Adjacency, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share (C,) of each cluster's edge weight that leads to other clusters, 0 to 1; 1 without any edges.

    O(E) time and memory.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> two_pairs = sp.csr_matrix([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], dtype=float)
    >>> conductance(two_pairs, np.array([0, 0, 1, 1])), conductance(two_pairs, np.array([0, 1, 0, 1]))
    (array([0., 0.]), array([1., 1.]))
    """
    ends = adjacency.tocoo()
    source, n_clusters = labels[ends.row], int(labels.max()) + 1
    same = source == labels[ends.col]
    volume = np.bincount(source, ends.data, minlength=n_clusters)
    inside = np.bincount(source[same], ends.data[same], minlength=n_clusters)
    return 1 - np.divide(inside, volume, out=np.zeros(n_clusters), where=volume > 0)


class Kept(NamedTuple):
    """How many of a graph's edges clusters keep inside.

    Parameters
    ----------
    share
        Share of the edge weight that joins rows of the same cluster.
    by_chance
        The same share for random edges between rows of the same degrees.
    beyond_chance
        Number of standard errors by which the share exceeds that of random edges.
    degree
        Mean number of edges of a row; edges of different weights count as fewer edges of equal weight.
    """

    share: float
    by_chance: float
    beyond_chance: float
    degree: float

    @property
    def assortativity(self) -> float:
        """The excess of the share over that of random edges, 1 if all edges are inside clusters."""
        return (self.share - self.by_chance) / (1 - self.by_chance) if self.by_chance < 1 else 0.0

    def text(self) -> str:
        """Return the two shares as a part of a sentence."""
        return f"{self.share:.0%} of its edges ({self.by_chance:.0%} by chance) are inside the clusters"


def edges_kept(adjacency: Adjacency, labels: NDArray[np.int64]) -> Kept:
    """Return the share of edges inside clusters (N,), compared with random edges. O(E) time, O(N) memory.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> two_pairs = sp.csr_matrix([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], dtype=float)
    >>> edges_kept(two_pairs, np.array([0, 0, 1, 1]))[:2]
    (1.0, 0.5)
    """
    cut = 1 - conductance(adjacency, labels)
    volume = np.bincount(labels, np.asarray(adjacency.sum(axis=1)).ravel(), minlength=len(cut))
    sizes = volume / volume.sum()
    share, by_chance = float(sizes @ cut), float(sizes @ sizes)
    # Number of edges of equal weight with the same variance.
    n_edges = float(adjacency.data.sum() ** 2 / np.square(adjacency.data).sum() / 2)
    error = math.sqrt(by_chance * (1 - by_chance) / n_edges)
    beyond_chance = (share - by_chance) / error if error > 0 else 0.0
    return Kept(share, by_chance, beyond_chance, 2 * n_edges / len(labels))


def adjusted_rand(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """Return the adjusted Rand index of two partitions with labels 0, 1, …: 1 if they are equal, 0 by chance.

    O(N + C²) time; scikit-learn's function spends milliseconds on checks of its input.

    Examples
    --------
    >>> adjusted_rand(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
    1.0
    """
    n_other = int(other.max()) + 1
    shared = np.bincount(one * n_other + other, minlength=(int(one.max()) + 1) * n_other).reshape(-1, n_other)
    in_both, in_one, in_other = (
        float((sizes * (sizes - 1)).sum()) for sizes in (shared, shared.sum(axis=1), shared.sum(axis=0))
    )
    n_pairs = len(one) * (len(one) - 1)
    by_chance = in_one * in_other / n_pairs if n_pairs else 0.0
    most = (in_one + in_other) / 2
    return 1.0 if most == by_chance else (in_both - by_chance) / (most - by_chance)


def silhouette(
    x: NDArray[np.floating[Any]],
    labels: NDArray[np.int64],
    *,
    sample_size: int | None = None,
    random_state: int | None = None,
) -> float:
    """Return the mean silhouette coefficient of the rows, −1 to 1, high for compact and well separated clusters.

    It is 0 with fewer than two clusters, or if every cluster has one row. O(n²·d) time for n rows.

    Parameters
    ----------
    x
        (N, d) rows of an embedding or of features, dense or sparse.
    labels
        (N,) cluster labels.
    sample_size
        Number of sampled rows, n, or None for all N.
    random_state
        Random seed of the sample.

    Examples
    --------
    >>> silhouette(np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([0, 0, 1, 1]))
    1.0
    """
    if sample_size is not None and sample_size < len(labels):
        sample = np.random.default_rng(random_state).choice(len(labels), sample_size, replace=False)
        x, labels = x[sample], labels[sample]
    n_clusters = len(np.unique(labels))
    if n_clusters < 2 or n_clusters == len(labels):
        return 0.0
    return float(silhouette_score(x, labels))


def comparable_proxy(proxy_value: float, n_nonempty: int) -> float:
    """Return ℓ_proxy − log(C′(C′−1)), which is comparable between runs with different numbers of clusters.

    Every lost cluster decreases Eq 2: with C′ non-empty clusters it lies within ±τ of log(C′(C′−1)). With fewer than
    two clusters there is nothing to contrast and the value is ∞, so that a collapsed run is never selected.

    Examples
    --------
    >>> round(comparable_proxy(3.0, 4), 4)
    0.5151
    """
    if n_nonempty < 2:
        return math.inf
    return proxy_value - math.log(n_nonempty * (n_nonempty - 1))
