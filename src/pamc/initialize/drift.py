"""Drift: how the rows of an update differ from those of the previous fit.

A model stores the mean and the standard deviation of every feature in every cluster. Later rows are compared with them
cluster by cluster, by the shift of the mean and by their distance from the stored mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.initialize.noise import own_distances

# A row is unlike its cluster if it is farther from the mean of the cluster than this share of its fitted rows.
_USUAL_SHARE = 0.99

# A shift counts if it exceeds the first number times its standard error. At most the second number of shifts is listed.
_BEYOND_CHANCE, _MOST_LISTED = 5.0, 20

# Clusters with fewer rows than this are not compared.
_LEAST_ROWS = 5

_MOST_ROWS, _ROWS_PER_BLOCK = 100_000, 8192


@dataclass(frozen=True, eq=False)
class Reference:
    """The moments of the preprocessed rows of each cluster.

    Parameters
    ----------
    means, spreads
        (C, d) mean and standard deviation of each feature.
    sizes
        (C,) number of rows of each cluster.
    reaches
        (C,) 99 % quantile of the distances of the rows of each cluster from its mean.
    """

    means: NDArray[np.float32]
    spreads: NDArray[np.float32]
    sizes: NDArray[np.int64]
    reaches: NDArray[np.float64]

    def is_unlike(self, features: Any, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each row (n,) is farther from the mean of its cluster than 99 % of the fitted rows."""
        return own_distances(features, labels, self.means) > self.reaches[labels]

    def shifts(self, features: Any, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the shift of the mean (C, d) of each feature in each cluster, in standard deviations.

        A shift that may be due to chance is set to 0.
        """
        means, later, sizes = (part.astype(np.float64) for part in _moments(features, labels, len(self.means)))
        variances, shares = np.square(self.spreads.astype(np.float64)), self.sizes / max(self.sizes.sum(), 1)
        # A feature may be constant in a cluster, so its spread in all clusters counts as well.
        variances = np.maximum(variances, shares @ variances)
        counts = np.maximum(np.stack([self.sizes, sizes]), 1)[:, :, None]
        error = np.sqrt(variances / counts[0] + np.maximum(variances, np.square(later)) / counts[1])
        difference = means - self.means
        is_certain = (np.abs(difference) > _BEYOND_CHANCE * error) & (counts.min(axis=0) >= _LEAST_ROWS)
        return np.where(is_certain, difference / np.sqrt(np.where(variances > 0, variances, 1.0)), 0.0)


def fit_reference(features: Any, labels: NDArray[np.int64], n_clusters: int) -> Reference:
    """Return the moments of each cluster of preprocessed rows (N, d), from at most 100,000 evenly spaced rows.

    O(N·d) time, O(C·d) memory.
    """
    stride = slice(None, None, -(-len(labels) // _MOST_ROWS) or 1)
    rows, clusters = features[stride], np.asarray(labels)[stride]
    means, spreads, sizes = _moments(rows, clusters, n_clusters)
    distance = own_distances(rows, clusters, means)
    parts = [distance[clusters == cluster] for cluster in range(n_clusters)]
    reaches = np.array([np.quantile(part, _USUAL_SHARE) if len(part) else np.inf for part in parts])
    return Reference(means, spreads, sizes, reaches)


def _moments(
    features: Any, labels: NDArray[np.int64], n_clusters: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    """Return means (C, d), standard deviations (C, d) and sizes (C,)."""
    sums, squares = (np.zeros((n_clusters, features.shape[1])) for _ in range(2))
    for start in range(0, len(labels), _ROWS_PER_BLOCK):
        clusters, block = labels[start : start + _ROWS_PER_BLOCK], features[start : start + _ROWS_PER_BLOCK]
        members = sp.csr_matrix(
            (np.ones(len(clusters)), (clusters, np.arange(len(clusters)))), (n_clusters, len(clusters))
        )
        rows: Any = block.astype(np.float64) if sp.issparse(block) else np.asarray(block, dtype=np.float64)
        squared = rows.power(2) if sp.issparse(rows) else np.square(rows)
        for total, part in ((sums, members @ rows), (squares, members @ squared)):
            total += part.toarray() if sp.issparse(part) else part
    sizes = np.bincount(labels, minlength=n_clusters)
    means, power = (total / np.maximum(sizes, 1)[:, None] for total in (sums, squares))
    return means.astype(np.float32), np.sqrt(np.maximum(power - np.square(means), 0)).astype(np.float32), sizes


def listed_shifts(shifts: NDArray[np.float64], names: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return the largest shifts as plain values: cluster, feature and difference in standard deviations.

    Examples
    --------
    >>> listed_shifts(np.array([[0.0, 1.5], [-2.0, 0.0]]), ["age", "income"])
    [{'cluster': 1, 'feature': 'age', 'shift': -2.0}, {'cluster': 0, 'feature': 'income', 'shift': 1.5}]
    """
    order = np.argsort(-np.abs(shifts), axis=None, kind="stable")[:_MOST_LISTED]
    places = [np.unravel_index(place, shifts.shape) for place in order]
    return [
        {
            "cluster": int(cluster),
            "feature": str(feature) if names is None else str(names[feature]),
            "shift": round(float(shifts[cluster, feature]), 4),
        }
        for cluster, feature in places
        if shifts[cluster, feature] != 0
    ]
