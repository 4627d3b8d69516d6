"""Label-free scores: what can be said of a clustering without knowing the classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score, silhouette_score
from torch import Tensor

from pamc.errors import DataError
from pamc.graph.adjacency import Adjacency
from pamc.ops.torch_ops import ordered_sum, row_product

__all__ = [
    "alignment",
    "comparable_proxy",
    "conductance",
    "edge_information",
    "modularity",
    "silhouette",
    "stability",
    "stored_modularity",
    "uniformity",
]

# Rows whose neighbors in files are looked at together.
_ROWS_PER_BLOCK = 1 << 16


def modularity(adjacency: Adjacency, labels: NDArray[np.int64]) -> float:
    """Return the modularity Σ_c [w_c / w − (v_c / w)²] of a clustering, −½ to 1, high when edges stay inside clusters.

    w is the sum of all weights (every edge counted in both directions), w_c that of the edges inside cluster c, and v_c
    the sum of the degrees of its nodes. A graph without edges has modularity 0. O(E) time and memory.

    Parameters
    ----------
    adjacency
        (N, N) symmetric weights without diagonal.
    labels
        (N,) clusters 0, 1, …

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> two_pairs = sp.csr_matrix([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], dtype=float)
    >>> modularity(two_pairs, np.array([0, 0, 1, 1]))
    0.5
    """
    inside, volume = _inside_and_volume(adjacency, labels, int(labels.max()) + 1)
    total = volume.sum()
    if total == 0:
        return 0.0
    return float((inside / total - (volume / total) ** 2).sum())


def stored_modularity(
    indptr: NDArray[np.int64],
    indices: NDArray[np.integer[Any]],
    weight: NDArray[np.floating[Any]] | None,
    labels: NDArray[np.int64],
) -> float:
    """Return :func:`modularity` of neighbors in the arrays of a CSR, such as those of files, block by block.

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
        own = np.repeat(labels[start:stop], np.diff(indptr[start : stop + 1]))
        values = np.ones(len(own)) if weight is None else np.asarray(weight[entries], dtype=np.float64)
        volume += np.bincount(own, values, minlength=n_clusters)
        stays = labels[indices[entries]] == own
        inside += np.bincount(own[stays], values[stays], minlength=n_clusters)
    total = volume.sum()
    return float((inside / total - (volume / total) ** 2).sum()) if total > 0 else 0.0


def conductance(
    adjacency: Adjacency, labels: NDArray[np.int64], *, n_clusters: int | None = None
) -> NDArray[np.float64]:
    """Return (C,) the conductance of each cluster: its cut over the smaller volume, 0 to 1, low for a closed cluster.

    The cut is the weight of the edges that leave the cluster; the volumes are the sums of degrees inside and outside.
    Where one of them is 0 (an empty cluster, one of isolated nodes, one that holds every edge) the ratio is undefined
    and 1, the worst value, is returned, so that a degenerate clustering never looks good. O(E) time and memory.

    Parameters
    ----------
    adjacency
        (N, N) symmetric weights without diagonal.
    labels
        (N,) clusters 0 … C−1.
    n_clusters
        C, or None for the largest label plus one.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> path = sp.csr_matrix([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]], dtype=float)
    >>> conductance(path, np.array([0, 0, 1, 1]), n_clusters=3)
    array([0.33333333, 0.33333333, 1.        ])
    """
    inside, volume = _inside_and_volume(adjacency, labels, n_clusters or int(labels.max()) + 1)
    smaller = np.minimum(volume, volume.sum() - volume)
    return np.asarray(np.divide(volume - inside, smaller, out=np.ones_like(volume), where=smaller > 0))


def edge_information(adjacency: Adjacency, labels: NDArray[np.int64]) -> float:
    """Return how much the cluster of one end of an edge says of the cluster of the other end, 0 to 1.

    The mutual information of the clusters at the two ends of an edge, over the entropy of one of them. Unlike
    modularity it has no preference for clusters of equal size. A graph without edges, or one cluster, gives 0. O(E)
    time, O(E + C²) memory.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> two_pairs = sp.csr_matrix([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], dtype=float)
    >>> edge_information(two_pairs, np.array([0, 0, 1, 1])), edge_information(two_pairs, np.array([0, 1, 0, 1]))
    (1.0, 1.0)
    """
    ends = adjacency.tocoo()
    n_clusters = int(labels.max()) + 1
    joint = np.zeros((n_clusters, n_clusters))
    np.add.at(joint, (labels[ends.row], labels[ends.col]), ends.data)
    if joint.sum() == 0:
        return 0.0
    joint /= joint.sum()
    margin = joint.sum(axis=1)
    entropy = -float((margin[margin > 0] * np.log(margin[margin > 0])).sum())
    there = joint > 0
    information = float((joint[there] * np.log(joint[there] / np.outer(margin, margin)[there])).sum())
    return information / entropy if entropy > 0 else 0.0


def silhouette(
    x: NDArray[np.floating[Any]],
    labels: NDArray[np.int64],
    *,
    sample_size: int | None = None,
    random_state: int | None = None,
) -> float:
    """Return the mean silhouette of the rows, −1 to 1, high when clusters are compact and far apart.

    With fewer than two clusters, or with every row its own cluster, it is 0. O(n²·d) time for n rows.

    Parameters
    ----------
    x
        (N, d) rows, an embedding or features.
    labels
        (N,) clusters.
    sample_size
        n, how many rows to look at, or None for all N.
    random_state
        Seed of the sample.

    Examples
    --------
    >>> silhouette(np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([0, 0, 1, 1]))
    1.0
    """
    if sample_size is not None and sample_size < len(x):
        sample = np.random.default_rng(random_state).choice(len(x), sample_size, replace=False)
        x, labels = x[sample], labels[sample]
    n_clusters = len(np.unique(labels))
    if n_clusters < 2 or n_clusters == len(x):
        return 0.0
    return float(silhouette_score(x, labels))


def uniformity(unit_rows: Tensor) -> Tensor:
    """Return log mean_{i≠j} exp(−2‖u_i − u_j‖²), 0 when all rows are one, low when they spread over the sphere.

    The uniformity of Wang & Isola (2020), over all pairs of the given sample; 0 for fewer than two rows. O(n²·d) time,
    O(n²) memory.

    Parameters
    ----------
    unit_rows
        (n, d) rows of length 1.

    Examples
    --------
    >>> uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    tensor(-8.)
    """
    if len(unit_rows) < 2:
        return unit_rows.new_zeros(())
    # ‖u_i − u_j‖² = 2 − 2·u_i·u_j; each pair stands twice in the square, and each row once with itself.
    potential = torch.exp(4 * row_product(unit_rows, unit_rows.T) - 4).fill_diagonal_(0.0)
    return (ordered_sum(potential) / (len(potential) * (len(potential) - 1))).log()


def alignment(unit_rows: Tensor, pairs: Tensor) -> Tensor:
    """Return mean ‖u_i − u_j‖² over positive pairs, 0 when the rows of every pair are one, at most 4.

    The alignment of Wang & Isola (2020); 0 without pairs. O(P·d) time and memory.

    Parameters
    ----------
    unit_rows
        (n, d) rows of length 1.
    pairs
        (2, P) row indices.

    Examples
    --------
    >>> alignment(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0], [1]]))
    tensor(2.)
    """
    if pairs.shape[1] == 0:
        return unit_rows.new_zeros(())
    return (unit_rows[pairs[0]] - unit_rows[pairs[1]]).square().sum(dim=1).mean()


def comparable_proxy(proxy_value: float, n_nonempty: int) -> float:
    """Return ℓ_proxy − log(C′(C′−1)), which can be compared between runs with different numbers of clusters.

    Each cluster that a run loses lowers Eq 2 by itself: with C′ non-empty clusters it lies within ±τ of log(C′(C′−1)).
    With fewer than two there is nothing to contrast and the value is ∞: a collapsed run never wins.

    Examples
    --------
    >>> round(comparable_proxy(3.0, 4), 4)
    0.5151
    """
    if n_nonempty < 2:
        return math.inf
    return proxy_value - math.log(n_nonempty * (n_nonempty - 1))


def stability(labelings: Sequence[NDArray[Any]]) -> float:
    """Return the mean adjusted Rand index over all pairs of labelings of the same rows, 1 when all agree.

    O(R²·N) time for R labelings.

    Parameters
    ----------
    labelings
        R ≥ 2 arrays of (N,) clusters, from other seeds or settings; the clusters' numbers need not agree.

    Examples
    --------
    >>> stability([np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0])])
    1.0
    """
    if len(labelings) < 2:
        raise DataError(f"stability compares labelings: at least 2 are needed, got {len(labelings)}")
    return float(np.mean([adjusted_rand_score(a, b) for a, b in combinations(labelings, 2)]))


def _inside_and_volume(
    adjacency: Adjacency, labels: NDArray[np.int64], n_clusters: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (C,) the weight of the edges inside each cluster, in both directions, and the sum of its degrees."""
    source = np.repeat(labels, np.diff(adjacency.indptr))
    same = source == labels[adjacency.indices]
    inside = np.bincount(source[same], weights=adjacency.data[same], minlength=n_clusters)
    volume = np.bincount(source, weights=adjacency.data, minlength=n_clusters)
    return inside.astype(np.float64), volume.astype(np.float64)
