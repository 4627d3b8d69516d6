"""Rows to look at: those that hang on nothing, have a value like no other, lie far away, or belong nowhere clearly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import Features
from pamc.report.extreme_values import extreme_rows

__all__ = ["EXTREME", "FAR", "ISOLATED", "UNSURE", "outlier_columns"]

ISOLATED, EXTREME, FAR, UNSURE = "isolated", "extreme value", "far from all centers", "low confidence"

# Unsure is less than half as sure as the median row.
_SHARE_OF_USUAL = 0.5

# Far is beyond the upper quartile by this many interquartile ranges of the logarithm of the distance, which is at least
# so wide: where all rows lie alike, small differences are no news.
_RANGES_BEYOND, _LEAST_RANGE = 3.0, 0.2

# Where more rows than this are without an edge, to have none is nothing odd.
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
    """Return at most `n_odd` rows with the reason why each is odd; each row once, under its first reason.

    What is odd follows from the other rows: clean data have few or none. Where there are more than asked for, each
    reason names its oddest in turn.

    Parameters
    ----------
    nearest
        (N,) distance to the nearest center.
    degree
        (N,) number of edges; None without a graph.
    features, names
        (N, d) values, and what the columns are called.
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
    feature = [_named(column_of[line[0]], names) if line[1] == EXTREME else "" for line in lines]
    return {
        "row": row,
        "id": ids[row],
        "cluster": labels[row],
        "confidence": confidence[row],
        "reason": np.array([line[1] for line in lines], dtype=str),
        "feature": np.array(feature, dtype=object).astype(str),
        "value": np.array([line[2] for line in lines], dtype=np.float64),
    }


def _named(column: int, names: tuple[str, ...] | None) -> str:
    return f"feature {column}" if names is None else names[column]


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
    """Return how many of each queue to keep: all that fit, and equal parts of what is left where they do not."""
    kept, left = [0] * len(wanted), n_odd
    for place, number in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        kept[number] = min(wanted[number], left // (len(wanted) - place))
        left -= kept[number]
    return kept
