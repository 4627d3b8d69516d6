"""What is shown of the true classes, where they were given: scores, confusion, accuracy against confidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.results.metrics import confusion_matrix, contingency

__all__ = ["truth_data"]

# Groups of equally many rows whose accuracy is compared with their confidence.
_N_GROUPS = 10


def truth_data(
    classes: NDArray[np.int64],
    labels: NDArray[np.int64],
    confidence: NDArray[Any],
    *,
    names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return the confusion of classes and clusters, and how often rows of a given confidence are right.

    A row is right when it lies in the cluster that the best one-to-one matching gives its class.

    Parameters
    ----------
    classes, labels, confidence
        (N,) true class, cluster and confidence of each row.
    names
        Of the classes in ascending order of their numbers; the numbers without.

    Examples
    --------
    >>> told = truth_data(np.array([0, 0, 1, 1]), np.array([3, 3, 5, 3]), np.array([0.9, 0.8, 0.7, 0.4]))
    >>> told["clusters"], told["table"], told["curve"]["accuracy"]
    ([3, 5], [[2, 0], [1, 1]], [0.0, 1.0, 1.0, 1.0])
    """
    kinds, class_of = np.unique(classes, return_inverse=True)
    clusters, cluster_of = np.unique(labels, return_inverse=True)
    table = contingency(classes, labels)
    matched = confusion_matrix(classes, labels)
    order = _columns_in_order(table, matched)
    # Class i is matched with the cluster in column i of the confusion matrix, where that column is not empty.
    cluster_for = np.full(len(kinds), -1)
    for kind, position in enumerate(order[: len(kinds)]):
        cluster_for[kind] = position
    right = cluster_for[class_of] == cluster_of
    kept = [position for position in order if position >= 0]
    return {
        "names": [str(name) for name in (kinds.tolist() if names is None else names)],
        "clusters": clusters[kept].tolist(),
        "table": table[:, kept].tolist(),
        "curve": _curve(right, np.asarray(confidence, dtype=np.float64)),
    }


def _columns_in_order(table: NDArray[np.int64], matched: NDArray[np.int64]) -> list[int]:
    """Return which column of the table each column of the matched one is; −1 for a class without a cluster."""
    left = list(range(table.shape[1]))
    order = []
    for column in matched.T:
        found = next((i for i in left if (table[:, i] == column).all()), -1)
        if found >= 0:
            left.remove(found)
        order.append(found)
    return order


def _curve(right: NDArray[np.bool_], confidence: NDArray[np.float64]) -> dict[str, list[float]]:
    """Return mean confidence, accuracy and size of groups of rows, the least confident first."""
    order = np.argsort(confidence, kind="stable")
    groups = [group for group in np.array_split(order, _N_GROUPS) if len(group)]
    return {
        "confidence": [float(confidence[group].mean()) for group in groups],
        "accuracy": [float(right[group].mean()) for group in groups],
        "n": [len(group) for group in groups],
    }
