"""Distinctive features of a cluster: columns with unusual values, or characteristic terms."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import Features

# A cluster that is neither empty nor all rows; a score of each column (d,), and its value inside and elsewhere.
Compared: TypeAlias = tuple[int, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]

# Largest share of nonzero values at which features are treated as terms.
_THIN = 0.1

# Number of rows of a dense table converted to float64 at a time.
_ROWS_PER_BLOCK = 1 << 14

# Strength of the prior of a term, in rows with the overall frequency.
_PRIOR_ROWS = 10.0

# Minimum difference in standard deviations, and minimum z-score of a term; smaller values are noise.
_LEAST_DIFFERENCE, _LEAST_ERRORS = 1e-6, 2.0


def feature_columns(
    features: Features,
    labels: NDArray[np.int64],
    n_clusters: int,
    n_features: int,
    names: tuple[str, ...] | None,
) -> dict[str, NDArray[Any]]:
    """Return the `n_features` most distinctive features of each cluster, as columns.

    O(N·d) or O(nnz + C·d) time, O(C·d) memory. A cluster that is empty, contains every row, or resembles the others has
    fewer or none.
    """
    values = features if isinstance(features, np.ndarray) else features.data
    few = np.count_nonzero(values) <= _THIN * np.prod(features.shape)
    terms = bool(values.size > 0 and values.min() >= 0 and few)
    compared = _terms(features, labels, n_clusters) if terms else _differences(features, labels, n_clusters)
    parts: list[tuple[NDArray[Any], ...]] = [(np.empty(0, dtype=np.int64),) * 2 + (np.empty(0),) * 3]
    for cluster, difference, inside, elsewhere in compared:
        # Only terms that are frequent in a cluster are listed; rare ones are listed for the other clusters.
        size = difference if terms else np.abs(difference)
        distinctive = np.flatnonzero(size > (_LEAST_ERRORS if terms else _LEAST_DIFFERENCE))
        # Features are sorted in decreasing order; ties keep the column order.
        top = distinctive[np.argsort(-size[distinctive], kind="stable")[:n_features]]
        parts.append((np.full(len(top), cluster), top, difference[top], inside[top], elsewhere[top]))
    clusters, feature, difference, inside, elsewhere = (np.concatenate(column) for column in zip(*parts, strict=True))
    return {
        "cluster": clusters,
        "feature": feature,
        "name": np.array([feature_name(number, names) for number in feature], dtype=object).astype(str),
        "difference": difference,
        "inside": inside,
        "elsewhere": elsewhere,
        "kind": np.full(len(feature), "term")
        if terms
        else np.where(_are_binary(features, feature), "share", "difference"),
    }


def _are_binary(features: Features, columns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether columns hold only zeros and ones."""
    if not isinstance(features, np.ndarray):
        n_others = np.bincount(features.indices, ~np.isin(features.data, (0, 1)), features.shape[1])
        return np.asarray(n_others[columns] == 0)
    distinct, position = np.unique(columns, return_inverse=True)
    are_binary = [(np.isin(values, (0, 1)) | np.isnan(values)).all() for values in features.T[distinct]]
    return np.array(are_binary, dtype=bool)[position]


def feature_name(number: int, names: tuple[str, ...] | None) -> str:
    """Return the name of a feature column."""
    return f"feature {number}" if names is None else names[number]


def _differences(features: Features, labels: NDArray[np.int64], n_clusters: int) -> Iterator[Compared]:
    """Yield for each cluster the difference of means in standard deviations of each column, and both means."""
    n_nodes, n_columns = features.shape
    count = np.bincount(labels, minlength=n_clusters)
    if isinstance(features, np.ndarray) and np.isnan(features).any():
        yield from _known_differences(features, labels, n_clusters)
        return
    if isinstance(features, np.ndarray):
        middle, deviation, sums = _dense_sums(features, labels, n_clusters)
    else:
        middle = np.zeros(n_columns)
        mean = np.bincount(features.indices, features.data, n_columns) / n_nodes
        square = np.bincount(features.indices, np.square(features.data, dtype=np.float64), n_columns) / n_nodes
        deviation = np.sqrt(np.maximum(square - np.square(mean), 0.0))
        # The deviation of a constant column is only rounding error.
        deviation[deviation <= 1e-7 * np.sqrt(square)] = 0.0
        sums = np.stack(list(_sparse_sums(features, labels, n_clusters)))
    total = sums.sum(axis=0)
    for cluster in np.flatnonzero((count > 0) & (count < n_nodes)).tolist():
        inside = sums[cluster] / count[cluster]
        elsewhere = (total - sums[cluster]) / (n_nodes - count[cluster])
        difference = np.divide(inside - elsewhere, deviation, out=np.zeros(n_columns), where=deviation > 0)
        yield cluster, difference, inside + middle, elsewhere + middle


def _known_differences(
    features: NDArray[np.floating[Any]], labels: NDArray[np.int64], n_clusters: int
) -> Iterator[Compared]:
    """Yield the same as `_differences` for rows with missing cells, which are left out of all means."""
    known = ~np.isnan(features)
    values = np.where(known, features, 0.0).astype(np.float64)
    n_known, total = known.sum(axis=0), values.sum(axis=0)
    middle = total / np.maximum(n_known, 1)
    deviation = np.sqrt(np.where(known, np.square(values - middle), 0.0).sum(axis=0) / np.maximum(n_known, 1))
    for cluster in np.unique(labels).tolist():
        rows = labels == cluster
        n_inside, inside = known[rows].sum(axis=0), values[rows].sum(axis=0)
        n_outside = n_known - n_inside
        usable = (n_inside > 0) & (n_outside > 0) & (deviation > 1e-7 * np.abs(middle))
        mean, elsewhere = inside / np.maximum(n_inside, 1), (total - inside) / np.maximum(n_outside, 1)
        difference = np.divide(mean - elsewhere, deviation, out=np.zeros(len(middle)), where=usable)
        yield cluster, difference, mean, elsewhere


def _dense_sums(
    features: NDArray[np.floating[Any]], labels: NDArray[np.int64], n_clusters: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the (d,) mean and standard deviation of the columns, and (C, d) cluster sums of the centered values."""
    middle = features.mean(axis=0, dtype=np.float64)
    sums, squares = np.zeros((n_clusters, features.shape[1])), np.zeros(features.shape[1])
    for start in range(0, len(features), _ROWS_PER_BLOCK):
        block = features[start : start + _ROWS_PER_BLOCK] - middle
        cluster = labels[start : start + _ROWS_PER_BLOCK]
        squares += np.square(block).sum(axis=0)
        order = np.argsort(cluster, kind="stable")
        clusters, first = np.unique(cluster[order], return_index=True)
        sums[clusters] += np.add.reduceat(block[order], first, axis=0)
    deviation = np.sqrt(squares / len(features))
    deviation[deviation <= 1e-7 * np.abs(middle)] = 0.0
    return middle, deviation, sums


def _sparse_sums(
    features: Any, labels: NDArray[np.int64], n_clusters: int, *, presence: bool = False
) -> Iterator[NDArray[np.float64]]:
    """Yield the (d,) sum over each cluster of the values, or of their nonzero indicators."""
    ordered = features[np.argsort(labels, kind="stable")]
    ends = ordered.indptr[np.append(0, np.cumsum(np.bincount(labels, minlength=n_clusters)))]
    for start, stop in pairwise(ends):
        values = ordered.data[start:stop]
        weights = (values != 0).astype(np.float64) if presence else values
        yield np.bincount(ordered.indices[start:stop], weights, features.shape[1]).astype(np.float64)


def _terms(features: Features, labels: NDArray[np.int64], n_clusters: int) -> Iterator[Compared]:
    """Yield for each cluster the z-score of each term, and the shares of rows with it inside and elsewhere.

    The z-score is the log-odds ratio of having the term, inside against elsewhere, in standard errors, with a prior of
    the overall frequency (Monroe, Colaresi & Quinn 2008, Fightin' words, §3.5.1).
    """
    n_nodes, n_columns = features.shape
    count = np.bincount(labels, minlength=n_clusters)
    if isinstance(features, np.ndarray):
        clusters = (features[labels == cluster] for cluster in range(n_clusters))
        sums = [np.count_nonzero(rows, axis=0).astype(np.float64) for rows in clusters]
    else:
        sums = list(_sparse_sums(features, labels, n_clusters, presence=True))
    total: NDArray[np.float64] = np.sum(sums, axis=0)
    prior = _PRIOR_ROWS * total / n_nodes
    used = (total > 0) & (total < n_nodes)
    for cluster in np.flatnonzero((count > 0) & (count < n_nodes)).tolist():
        n_inside, n_outside = count[cluster], n_nodes - count[cluster]
        inside, elsewhere, score = sums[cluster], total - sums[cluster], np.zeros(n_columns)
        a, b, pseudo = inside[used], elsewhere[used], prior[used]
        odds_a = np.log((a + pseudo) / (n_inside - a + _PRIOR_ROWS - pseudo))
        odds_b = np.log((b + pseudo) / (n_outside - b + _PRIOR_ROWS - pseudo))
        score[used] = (odds_a - odds_b) / np.sqrt(1 / (a + pseudo) + 1 / (b + pseudo))
        yield cluster, score, inside / n_inside, elsewhere / n_outside
