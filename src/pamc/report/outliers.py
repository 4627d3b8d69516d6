"""Outlier rows: isolated, with extreme values, far from all centers, or with low confidence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import Features
from pamc.report.differences import feature_name

ISOLATED, EXTREME, FAR, UNSURE = "isolated", "extreme value", "far from all centers", "low confidence"

# Low confidence is less than half of the median.
_SHARE_OF_USUAL = 0.5

# Far means above the upper quartile of the log distance by this many interquartile ranges. The range has a minimum, so
# that small differences between similar rows do not count.
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
    found = {
        ISOLATED: _isolated(degree, len(labels)),
        EXTREME: (extremes.rows, extremes.times),
        FAR: _far(nearest),
        UNSURE: _unsure(confidence),
    }
    column_of = dict(zip(extremes.rows.tolist(), extremes.columns.tolist(), strict=True))
    seen = np.zeros(len(labels), dtype=bool)
    queues: list[list[tuple[int, str, float]]] = []
    for reason, (rows, values) in found.items():
        new = ~seen[rows]
        seen[rows] = True
        queues.append([(int(row), reason, float(value)) for row, value in zip(rows[new], values[new], strict=True)])
    kept = _shares([len(queue) for queue in queues], n_odd)
    lines = [line for queue, n_kept in zip(queues, kept, strict=True) for line in queue[:n_kept]]
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


def _isolated(degree: NDArray[np.integer[Any]] | None, n_nodes: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    rows = np.empty(0, dtype=np.int64) if degree is None else np.flatnonzero(degree == 0)
    if len(rows) > _MOST_ISOLATED * n_nodes:
        rows = rows[:0]
    return rows, np.zeros(len(rows))


def _far(nearest: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    usual = float(np.median(nearest))
    if usual == 0:
        return np.empty(0, dtype=np.int64), np.empty(0)
    lower, upper = np.quantile(nearest / usual, (0.25, 0.75))
    width = max(np.log(upper / lower) if lower > 0 else _LEAST_RANGE, _LEAST_RANGE)
    rows = np.flatnonzero(nearest / usual > upper * np.exp(_RANGES_BEYOND * width))
    rows = rows[np.argsort(-nearest[rows], kind="stable")]
    return rows, nearest[rows] / usual


def _unsure(confidence: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    usual = float(np.median(confidence))
    if not usual > 0:
        return np.empty(0, dtype=np.int64), np.empty(0)
    rows = np.flatnonzero(confidence < _SHARE_OF_USUAL * usual)
    rows = rows[np.argsort(confidence[rows], kind="stable")]
    return rows, confidence[rows] / usual


def _shares(wanted: list[int], n_odd: int) -> list[int]:
    """Return how many items of each queue to keep: all of the short ones, and equal shares of the rest."""
    kept, left = [0] * len(wanted), n_odd
    for place, number in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        kept[number] = min(wanted[number], left // (len(wanted) - place))
        left -= kept[number]
    return kept


# Maximum share of extreme values in a column, and at least two values; the next farthest value is the reference. In
# heavy tails the reference itself is far away, so there are few extremes.
_SHARE, _LEAST = 0.01, 2

# Extreme means this many times as far from the median as the reference. For Gaussian columns that is beyond 15 standard
# deviations.
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
    times, where = np.zeros(n_nodes), np.zeros(n_nodes, dtype=np.int64)
    if n_nodes >= _FEWEST:
        for column, rows, ratio in _ratios(features):
            more = ratio > times[rows]
            times[rows[more]], where[rows[more]] = ratio[more], column
    by_chance = _farthest_of_others(times) if n_nodes >= _FEWEST else 0.0
    found = np.flatnonzero(times > _TIMES * max(1.0, by_chance / _BY_CHANCE))
    found = found[np.argsort(-times[found], kind="stable")]
    return Extremes(found, where[found], times[found])


def _ratios(features: Features) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.float64]]]:
    """Yield columns, their rows that are farther from the median than the reference value, and the ratios."""
    if isinstance(features, np.ndarray):
        step = max(1, _VALUES_PER_BLOCK // len(features))
        for start in range(0, features.shape[1], step):
            block = np.ascontiguousarray(features[:, start : start + step].T, dtype=np.float64)
            for number, values in enumerate(block):
                yield from _of_column(start + number, values)
        return
    by_column = features.tocsc()
    n_nodes, sizes = features.shape[0], np.abs(by_column.data)
    filled = np.diff(by_column.indptr)
    for column in np.flatnonzero(filled > 0):
        entries = slice(by_column.indptr[column], by_column.indptr[column + 1])
        if 2 * filled[column] >= n_nodes:
            yield from _of_column(int(column), by_column[:, [column]].toarray()[:, 0].astype(np.float64))
            continue
        # The median is 0, the value of all entries that are not stored.
        away = sizes[entries].astype(np.float64)
        usual = _usual(away, n_nodes, 0.0) if away.max() > _TIMES * away.min() else 0.0
        if usual > 0:
            far = away > usual
            yield int(column), by_column.indices[entries][far].astype(np.int64), away[far] / usual


def _of_column(
    column: int, values: NDArray[np.float64]
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.float64]]]:
    # Halving keeps the difference of two very large numbers finite.
    middle = float(np.median(values)) / 2
    away = np.abs(values / 2 - middle)
    usual = _usual(away, len(away), abs(middle))
    if usual > 0:
        rows = np.flatnonzero(away > usual)
        yield column, rows, away[rows] / usual


def _usual(away: NDArray[np.float64], n_nodes: int, middle: float) -> float:
    """Return the distance of the reference value from the median, or 0 if there is none.

    Distances that are not in `away` are 0.
    """
    n_extreme = _most_extreme(n_nodes)
    usual = float(np.partition(away, -n_extreme - 1)[-n_extreme - 1]) if len(away) > n_extreme else 0.0
    if usual > _ROUNDING * middle:
        return usual
    different = away[away > _ROUNDING * middle]
    return _farthest_of_others(different) if len(different) >= _FEWEST else middle


def _farthest_of_others(values: NDArray[Any]) -> float:
    n_extreme = _most_extreme(len(values))
    return float(np.partition(values, -n_extreme - 1)[-n_extreme - 1])


def _most_extreme(count: int) -> int:
    return max(_LEAST, int(_SHARE * count))
