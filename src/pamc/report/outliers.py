"""Outlier rows: isolated, with extreme values, far from all centers, or with low confidence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import Features
from pamc.report.differences import feature_name

ISOLATED, EXTREME, FAR, UNSURE = "isolated", "extreme value", "far from all centers", "low confidence"

# A confidence below half of the median is low.
_SHARE_OF_USUAL = 0.5

# A row is far if its log distance exceeds the upper quartile by this many interquartile ranges. The range has a
# minimum, so that small differences between similar rows do not count.
_RANGES_BEYOND, _LEAST_RANGE = 3.0, 0.2

# If a larger share of the rows is isolated, isolated rows are not outliers.
_MOST_ISOLATED = 0.05


def outlier_columns(
    labels: NDArray[np.int64],
    confidence: NDArray[np.float64],
    nearest: NDArray[np.float64],
    degree: NDArray[np.integer[Any]] | None,
    features: Features,
    names: tuple[str, ...] | None,
    ids: NDArray[Any],
    n_odd: int,
) -> dict[str, NDArray[Any]]:
    """Return at most `n_odd` outliers with their reasons; each row appears once, under its first reason.

    Outliers are defined relative to the other rows, so clean data have few or none. If there are more than `n_odd`, the
    reasons contribute their most extreme rows in turn. `nearest` (N,) is the distance to the nearest center, and
    `degree` (N,) the number of edges, or None without a graph.
    """
    extremes = extreme_rows(features)
    column_of = dict(zip(extremes.rows.tolist(), extremes.columns.tolist(), strict=True))
    isolated = np.empty(0, dtype=np.int64) if degree is None else np.flatnonzero(degree == 0)
    if len(isolated) > _MOST_ISOLATED * len(labels):
        isolated = isolated[:0]
    candidates = {
        ISOLATED: (isolated, np.zeros(len(isolated))),
        EXTREME: (extremes.rows, extremes.times),
        FAR: _far(nearest),
        UNSURE: _unsure(confidence),
    }
    listed = np.zeros(len(labels), dtype=bool)
    queues: list[list[tuple[int, str, float]]] = []
    for reason, (rows, values) in candidates.items():
        new = ~listed[rows]
        listed[rows] = True
        queues.append(
            [(row, reason, value) for row, value in zip(rows[new].tolist(), values[new].tolist(), strict=True)]
        )
    sizes = _shares([len(queue) for queue in queues], n_odd)
    lines = [line for queue, size in zip(queues, sizes, strict=True) for line in queue[:size]]
    row = np.array([line[0] for line in lines], dtype=np.int64)
    feature = [feature_name(column_of[row], names) if reason == EXTREME else "" for row, reason, _ in lines]
    return {
        "row": row,
        "id": ids[row],
        "cluster": labels[row],
        "confidence": confidence[row],
        "reason": np.array([line[1] for line in lines], dtype=str),
        "feature": np.array(feature, dtype=object).astype(str),
        "value": np.array([line[2] for line in lines], dtype=np.float64),
    }


def _far(nearest: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the rows far from all centers, the farthest first, and their distances relative to the median."""
    median = float(np.median(nearest))
    if median == 0:
        return np.empty(0, dtype=np.int64), np.empty(0)
    ratio = nearest / median
    lower, upper = np.quantile(ratio, (0.25, 0.75))
    width = max(np.log(upper / lower) if lower > 0 else _LEAST_RANGE, _LEAST_RANGE)
    rows = np.flatnonzero(ratio > upper * np.exp(_RANGES_BEYOND * width))
    rows = rows[np.argsort(-nearest[rows], kind="stable")]
    return rows, ratio[rows]


def _unsure(confidence: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the rows with low confidence, the lowest first, and their confidence relative to the median."""
    median = float(np.median(confidence))
    # No row qualifies if the median is 0 or NaN.
    rows = np.flatnonzero(confidence < _SHARE_OF_USUAL * median)
    rows = rows[np.argsort(confidence[rows], kind="stable")]
    return rows, confidence[rows] / median


def _shares(wanted: list[int], n_odd: int) -> list[int]:
    """Return how many items of each queue to keep: all of the short ones, and equal shares of the rest."""
    sizes, left = [0] * len(wanted), n_odd
    for place, number in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        sizes[number] = min(wanted[number], left // (len(wanted) - place))
        left -= sizes[number]
    return sizes


# Maximum share of extreme values in a column, and at least two values; the next farthest value is the reference. In
# heavy tails the reference itself is far away, so there are few extremes.
_SHARE, _LEAST = 0.01, 2

# A value is extreme if it is this many times as far from the median as the reference, which is beyond 15 standard
# deviations for Gaussian columns.
_TIMES = 8.0

# Among many columns, some value is far by chance: up to this many times in Gaussian columns.
_BY_CHANCE = 2.0

# Minimum number of values for a comparison.
_FEWEST = 8

# The spread of a constant column is only rounding error.
_ROUNDING = 1e-6

# Number of values converted to float64 at a time.
_VALUES_PER_BLOCK = 1 << 22


class Extremes(NamedTuple):
    """(M,) rows with an extreme value, the most extreme first.

    `columns` holds the column of the most extreme value of each row, and `times` its distance from the median divided
    by that of the farthest other value.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    times: NDArray[np.float64]


def extreme_rows(features: Features) -> Extremes:
    """Return the rows with a value far beyond the others of its column. O(N·d) or O(nnz + d) time.

    A value is compared by its distance from the median with the non-extreme values of its column. If almost all values
    are equal, as in the column of a rare word, the others are compared with each other.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(100, 3))
    >>> len(extreme_rows(x).rows)
    0
    >>> x[7, 2] = 1e6
    >>> extreme_rows(x).rows, extreme_rows(x).columns
    (array([7]), array([2]))
    """
    n_nodes = features.shape[0]
    if n_nodes < _FEWEST:
        return Extremes(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))
    times, column_of = np.zeros(n_nodes), np.zeros(n_nodes, dtype=np.int64)
    for column, rows, distance, median in _distances(features):
        reference = _reference_distance(distance, n_nodes, median)
        if reference > 0:
            farther = distance > reference
            rows, ratio = rows[farther], distance[farther] / reference
            more = ratio > times[rows]
            times[rows[more]], column_of[rows[more]] = ratio[more], column
    by_chance = _largest_ordinary(times, n_nodes)
    extreme = np.flatnonzero(times > _TIMES * max(1.0, by_chance / _BY_CHANCE))
    extreme = extreme[np.argsort(-times[extreme], kind="stable")]
    return Extremes(extreme, column_of[extreme], times[extreme])


def _distances(features: Features) -> Iterator[tuple[int, NDArray[Any], NDArray[np.float64], float]]:
    """Yield each column with rows, their distances from the median of the column, and the size of the median.

    Rows that are left out have distance 0.
    """
    n_nodes, n_columns = features.shape
    all_rows = np.arange(n_nodes)

    def of_dense(column: int, values: NDArray[np.float64]) -> tuple[int, NDArray[Any], NDArray[np.float64], float]:
        if np.isnan(values).any():
            # A missing cell is not extreme.
            values = np.where(np.isnan(values), np.nanmedian(values), values)
        # Halving keeps the difference of two very large numbers finite.
        median = float(np.median(values)) / 2
        return column, all_rows, np.abs(values / 2 - median), abs(median)

    if isinstance(features, np.ndarray):
        step = max(1, _VALUES_PER_BLOCK // n_nodes)
        for start in range(0, n_columns, step):
            block = np.ascontiguousarray(features[:, start : start + step].T, dtype=np.float64)
            yield from (of_dense(start + number, values) for number, values in enumerate(block))
        return
    by_column = features.tocsc()
    filled = np.diff(by_column.indptr)
    for column in np.flatnonzero(filled > 0).tolist():
        entries = slice(by_column.indptr[column], by_column.indptr[column + 1])
        if 2 * filled[column] >= n_nodes:
            yield of_dense(column, by_column[:, [column]].toarray()[:, 0].astype(np.float64))
            continue
        # The median is 0, the value of all entries that are not stored.
        distance = np.abs(by_column.data[entries]).astype(np.float64)
        if distance.max() > _TIMES * distance.min():
            yield column, by_column.indices[entries], distance, 0.0


def _reference_distance(distance: NDArray[np.float64], n_nodes: int, median: float) -> float:
    """Return the distance of the reference value from the median, or 0 if there is none."""
    reference = _largest_ordinary(distance, n_nodes)
    if reference > _ROUNDING * median:
        return reference
    different = distance[distance > _ROUNDING * median]
    return _largest_ordinary(different, len(different)) if len(different) >= _FEWEST else median


def _largest_ordinary(distance: NDArray[np.float64], n_values: int) -> float:
    """Return the largest of `n_values` distances after the largest 1 %; distances that are left out are 0."""
    n_extreme = max(_LEAST, int(_SHARE * n_values))
    return float(np.partition(distance, -n_extreme - 1)[-n_extreme - 1]) if len(distance) > n_extreme else 0.0
