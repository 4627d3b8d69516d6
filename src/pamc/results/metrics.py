"""Agreement of clusters with classes: pure functions of two labelings, independent of each other.

Classes and clusters may be any integers or strings, and there may be more of one than of the other. Every true label
is a class, including −1: remove rows without a known class first. :func:`evaluate` alone knows that the cluster −1 is
noise. No metric changes its input. (The released program does:
if a class has no cluster, it overwrites the first predictions with that class before it computes NMI and ARI.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from pamc.data.attributed_graph import label_codes
from pamc.errors import DataError

Labels: TypeAlias = "NDArray[Any] | Sequence[int] | Sequence[str]"
Integers: TypeAlias = "NDArray[np.int64]"

# The cluster of rows that belong to none.
_NOISE = -1


def evaluate(y_true: Labels, y_pred: Labels) -> dict[str, float]:
    """Return the acc, nmi, ari and f1 of a clustering against the classes, 1 for perfect agreement.

    Rows with the cluster −1 are noise: if there are any, the metrics are those of the other rows, and `coverage` is the
    share of these among all rows.

    Parameters
    ----------
    y_true
        (N,) class labels.
    y_pred
        (N,) cluster labels.

    Examples
    --------
    >>> evaluate(["cat", "cat", "dog", "dog"], [1, 1, 0, 0])
    {'acc': 1.0, 'nmi': 1.0, 'ari': 1.0, 'f1': 1.0}
    >>> evaluate(["cat", "cat", "dog", "dog"], [1, 1, 0, -1])["coverage"]
    0.75
    """
    is_noise = np.asarray(y_pred) == _NOISE
    if is_noise.any() and np.shape(y_true) == is_noise.shape:
        label_codes(np.asarray(y_true), what="y_true")
        if is_noise.all():
            return {"acc": 0.0, "nmi": 0.0, "ari": 0.0, "f1": 0.0, "coverage": 0.0}
        clustered = evaluate(np.asarray(y_true)[~is_noise], np.asarray(y_pred)[~is_noise])
        return {**clustered, "coverage": float(1 - is_noise.mean())}
    return {
        "acc": accuracy(y_true, y_pred),
        "nmi": nmi(y_true, y_pred),
        "ari": ari(y_true, y_pred),
        "f1": macro_f1(y_true, y_pred),
    }


def accuracy(y_true: Labels, y_pred: Labels) -> float:
    """Return the fraction of rows that are correct under the best one-to-one matching of clusters to classes.

    Rows of a cluster without a class are incorrect. O(N log N + K³) time for K classes or clusters.

    Examples
    --------
    >>> accuracy([0, 0, 1, 1], [5, 5, 5, 7])
    0.75
    """
    table = contingency(y_true, y_pred)
    classes, clusters = best_matching(table)
    return float(table[classes, clusters].sum() / table.sum())


def macro_f1(y_true: Labels, y_pred: Labels) -> float:
    """Return F1 averaged over the true classes, each with its cluster in the matching of :func:`accuracy`.

    A class without a cluster has F1 0; rows of a cluster without a class predict no class. If several matchings have
    the best accuracy, the one with the best F1 is used, so that the result does not depend on the names of the labels.

    Examples
    --------
    >>> round(macro_f1([0, 0, 1, 1], [5, 5, 5, 7]), 4)
    0.7333
    """
    table = contingency(y_true, y_pred)
    return float(_f1(table)[best_matching(table)].sum() / len(table))


def nmi(y_true: Labels, y_pred: Labels) -> float:
    """Return the mutual information divided by the arithmetic mean of the entropies, 0 to 1.

    Examples
    --------
    >>> round(nmi([0, 0, 1, 1], [5, 5, 5, 7]), 4)
    0.3437
    """
    return float(np.clip(normalized_mutual_info_score(*_codes(y_true, y_pred), average_method="arithmetic"), 0.0, 1.0))


def nmi_of_table(table: Integers) -> float:
    """Return :func:`nmi` computed from a contingency table (classes, clusters) instead of the labels.

    Examples
    --------
    >>> nmi_of_table(np.array([[5, 0], [0, 3]]))
    1.0
    """
    joint = table / table.sum()
    class_share, cluster_share = joint.sum(axis=1), joint.sum(axis=0)
    entropies = [-(share[share > 0] * np.log(share[share > 0])).sum() for share in (class_share, cluster_share)]
    positive = joint > 0
    information = (joint[positive] * np.log(joint[positive] / np.outer(class_share, cluster_share)[positive])).sum()
    mean = float(np.mean(entropies))
    return float(np.clip(information / mean, 0.0, 1.0)) if mean > 0 else 1.0


def ari(y_true: Labels, y_pred: Labels) -> float:
    """Return the adjusted Rand index: 1 for equal partitions, 0 in expectation for random ones.

    Examples
    --------
    >>> ari([0, 0, 1, 1], [5, 5, 7, 7])
    1.0
    """
    return float(adjusted_rand_score(*_codes(y_true, y_pred)))


def contingency(y_true: Labels, y_pred: Labels) -> Integers:
    """Return the (classes, clusters) counts of rows, both in ascending order of their labels.

    Examples
    --------
    >>> contingency([0, 0, 1, 1], [5, 5, 5, 7])
    array([[2, 0],
           [1, 1]])
    """
    classes, clusters = _codes(y_true, y_pred)
    shape = int(classes.max()) + 1, int(clusters.max()) + 1
    return np.bincount(classes * shape[1] + clusters, minlength=shape[0] * shape[1]).reshape(shape)


def confusion_matrix(y_true: Labels, y_pred: Labels) -> Integers:
    """Return the contingency table with matched clusters on the diagonal, whose trace counts the correct rows.

    A class without a cluster has a column of zeros; clusters without a class are the last columns.

    Examples
    --------
    >>> confusion_matrix([0, 0, 1, 1], [8, 8, 5, 7])
    array([[2, 0, 0],
           [0, 1, 1]])
    """
    table = contingency(y_true, y_pred)
    classes, clusters = best_matching(table)
    matched = np.zeros((len(table), len(table)), dtype=np.int64)
    matched[:, classes] = table[:, clusters]
    return np.hstack([matched, np.delete(table, clusters, axis=1)])


def best_matching(table: Integers) -> tuple[Integers, Integers]:
    """Return the classes and clusters of the best one-to-one matching of a contingency table.

    The matching maximizes the number of correct rows and, among ties, the sum of F1.
    """
    # The sum of F1 is at most the number of classes, so its contribution to the objective is less than one row.
    objective = table + _f1(table) / (len(table) + 1)
    classes, clusters = linear_sum_assignment(objective, maximize=True)
    return classes, clusters


def _f1(table: Integers) -> NDArray[np.float64]:
    """Return the (classes, clusters) F1 of each cluster as a prediction of each class."""
    return np.asarray(2 * table / (table.sum(axis=1, keepdims=True) + table.sum(axis=0, keepdims=True)))


def _codes(y_true: Labels, y_pred: Labels) -> tuple[Integers, Integers]:
    """Return both labelings as integers from 0; raise DataError if they cannot be compared."""
    true, pred = (y if isinstance(y, np.ma.MaskedArray) else np.asarray(y) for y in (y_true, y_pred))
    for name, array in (("y_true", true), ("y_pred", pred)):
        if array.ndim != 1:
            raise DataError(f"{name} must be one label per row (1-D), got shape {array.shape}")
    if len(true) != len(pred):
        raise DataError(f"y_true and y_pred must label the same rows, got {len(true)} and {len(pred)} labels")
    if len(true) == 0:
        raise DataError("y_true and y_pred are empty: there are no rows to compare")
    return label_codes(true, what="y_true"), label_codes(pred, what="y_pred")
