"""Noise: rows that lie between clusters, and rows unlike everything that a model was fitted to.

Confidence (:mod:`pamc.initialize.calibration`) tells how certain it is which cluster a row belongs to, given that it
belongs to one. It says nothing about rows that belong to none: such a row may be nearest to the same cluster in every
clustering. They are found by their density instead. The local outlier factor (Breunig et al. 2000) compares the
distances of a row to its neighbors with those of the neighbors to theirs, so that clusters may differ in density. Since
a saved model has no training rows, each cluster remembers only its mean and the distance from the mean that best
separates its outliers from its other rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.runtime import one_thread

# Codes of the rows in `Fit.noise`, which are indices of their names.
IN_CLUSTER, BETWEEN, UNLIKE = range(3)
NOISE_KINDS = ("", "between clusters", "unlike the training rows")

# Number of neighbors of the local outlier factor, and maximum number of rows that it is computed for.
_N_NEIGHBORS, _MOST_ROWS = 20, 10_000

# A row is an outlier if the logarithm of its factor exceeds the upper quartile by this many interquartile ranges. The
# range has a minimum, so that small differences between similar rows do not count.
_RANGES_BEYOND, _LEAST_RANGE = 3.0, 0.05

# Without outliers, a cluster reaches this many times as far as its farthest row.
_SLACK = 1.2

_ROWS_PER_BLOCK = 8192


@dataclass(frozen=True, eq=False)
class NoiseRule:
    """The distance from the mean of its cluster beyond which a preprocessed row is unlike the training rows.

    Parameters
    ----------
    means
        (C, d) means of the rows of each cluster that are no outliers.
    reaches
        (C,) distances; −1 for a cluster of outliers, to which no row belongs.
    """

    means: NDArray[np.float32]
    reaches: NDArray[np.float64]

    def is_unlike(self, features: Any, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each row (n,) is unlike the training rows of its cluster. O(n·d) time, O(d) memory per row."""
        return own_distances(features, labels, self.means) > self.reaches[labels]


def fit_noise_rule(features: Any, labels: NDArray[np.int64], n_clusters: int) -> NoiseRule:
    """Fit the rule to the preprocessed rows (N, d) of a fit and their clusters (N,).

    O(n²·d) time for a sample of at most n = 10,000 evenly spaced rows.
    """
    rows = slice(None, None, -(-len(labels) // _MOST_ROWS))
    sample, clusters = features[rows], labels[rows]
    with one_thread():
        is_outlier = _are_outliers(sample)
    means = np.zeros((n_clusters, sample.shape[1]), dtype=np.float32)
    for cluster in range(n_clusters):
        members = clusters == cluster
        kept = members & ~is_outlier if (members & ~is_outlier).any() else members
        if kept.any():
            means[cluster] = np.asarray(sample[kept].mean(axis=0)).ravel()
    distance = own_distances(sample, clusters, means)
    parts = [clusters == cluster for cluster in range(n_clusters)]
    return NoiseRule(means, np.array([_reach(distance[part], is_outlier[part]) for part in parts]))


def noise_codes(confidence: NDArray[Any], is_unlike: NDArray[np.bool_], *, min_confidence: float) -> NDArray[np.int8]:
    """Return the code of each row (n,): in a cluster, between clusters (low confidence), or unlike the training rows.

    Examples
    --------
    >>> codes = noise_codes(np.array([0.9, 0.6, 0.9]), np.array([False, False, True]), min_confidence=0.7)
    >>> [NOISE_KINDS[code] for code in codes]
    ['', 'between clusters', 'unlike the training rows']
    """
    codes = np.where(confidence < min_confidence, BETWEEN, IN_CLUSTER)
    return np.where(is_unlike, UNLIKE, codes).astype(np.int8)


def noise_facts(codes: NDArray[np.int8] | None) -> dict[str, object]:
    """Return the number of noise rows of each kind, for the record of a fit; nothing if noise was not requested."""
    if codes is None:
        return {}
    return {"n_between_clusters": int((codes == BETWEEN).sum()), "n_unlike_training": int((codes == UNLIKE).sum())}


def without_noise(labels: NDArray[np.int64], codes: NDArray[np.int8] | None) -> NDArray[np.int64]:
    """Return the labels (n,) with −1 for noise."""
    return labels if codes is None else np.where(codes == IN_CLUSTER, labels, -1)


def _are_outliers(rows: Any) -> NDArray[np.bool_]:
    from sklearn.neighbors import LocalOutlierFactor

    if rows.shape[0] <= 2:
        return np.zeros(rows.shape[0], dtype=bool)
    factor = LocalOutlierFactor(n_neighbors=min(_N_NEIGHBORS, rows.shape[0] - 1)).fit(rows).negative_outlier_factor_
    logs = np.log(np.maximum(-factor, np.finfo(np.float64).tiny))
    lower, upper = np.quantile(logs, (0.25, 0.75))
    return np.asarray(logs > upper + _RANGES_BEYOND * max(upper - lower, _LEAST_RANGE))


def own_distances(features: Any, labels: NDArray[np.int64], means: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the distance (n,) of each row to the mean of its cluster."""
    distance = np.empty(len(labels))
    for start in range(0, len(labels), _ROWS_PER_BLOCK):
        block = slice(start, start + _ROWS_PER_BLOCK)
        rows, clusters = features[block], labels[block]
        if not sp.issparse(rows):
            distance[block] = np.linalg.norm(np.asarray(rows).astype(np.float64) - means[clusters], axis=1)
            continue
        rows, centers = rows.astype(np.float64), means.astype(np.float64)
        products = (rows @ centers.T)[np.arange(len(clusters)), clusters]
        squared = np.asarray(rows.power(2).sum(axis=1)).ravel() + np.square(centers).sum(axis=1)[clusters]
        distance[block] = np.sqrt(np.maximum(squared - 2 * products, 0))
    return distance


def _reach(distance: NDArray[np.float64], is_outlier: NDArray[np.bool_]) -> float:
    """Return the distance that separates outliers from the other rows of a cluster with the fewest errors."""
    if not is_outlier.any():
        return _SLACK * float(distance.max(initial=0.0))
    order = np.argsort(distance, kind="stable")
    distance, outlying = distance[order], is_outlier[order]
    # Errors if the first 0, 1, … rows are inside, up to a constant: outliers inside count one, other rows minus one.
    errors = np.concatenate([[0], np.cumsum(np.where(outlying, 1, -1))])
    n_inside = len(distance) - int(np.argmin(errors[::-1]))
    if n_inside == 0:
        return -1.0
    if n_inside == len(distance):
        return _SLACK * float(distance[-1])
    return float(distance[n_inside - 1 : n_inside + 1].mean())
