"""How well clusters agree with classes: pure functions of two labelings, each independent of the others.

Classes and clusters may be any integers or strings, and their numbers may differ. Every label is a class, −1 too:
leave rows without a known class out before the call. No metric changes its input; the released program, when classes
have no cluster, overwrites the first predictions with them and then computes NMI and ARI from what it overwrote.
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

__all__ = [
    "accuracy",
    "ari",
    "best_matching",
    "confusion_matrix",
    "contingency",
    "evaluate",
    "macro_f1",
    "nmi",
    "nmi_of_table",
]

Labels: TypeAlias = "NDArray[Any] | Sequence[int] | Sequence[str]"
Integers: TypeAlias = "NDArray[np.int64]"


def evaluate(y_true: Labels, y_pred: Labels) -> dict[str, float]:
    """Return acc, nmi, ari and f1 of a clustering against the classes, 1 for perfect agreement.

    Parameters
    ----------
    y_true
        (N,) classes.
    y_pred
        (N,) clusters.

    Examples
    --------
    >>> evaluate(["cat", "cat", "dog", "dog"], [1, 1, 0, 0])
    {'acc': 1.0, 'nmi': 1.0, 'ari': 1.0, 'f1': 1.0}
    """
    return {
        "acc": accuracy(y_true, y_pred),
        "nmi": nmi(y_true, y_pred),
        "ari": ari(y_true, y_pred),
        "f1": macro_f1(y_true, y_pred),
    }


def accuracy(y_true: Labels, y_pred: Labels) -> float:
    """Return the share of rows that are right under the best one-to-one matching of clusters to classes.

    The rows of a cluster without a class are wrong. O(N log N + K³) time for K classes or clusters.

    Examples
    --------
    >>> accuracy([0, 0, 1, 1], [5, 5, 5, 7])
    0.75
    """
    table = contingency(y_true, y_pred)
    classes, clusters = best_matching(table)
    return float(table[classes, clusters].sum() / table.sum())


def macro_f1(y_true: Labels, y_pred: Labels) -> float:
    """Return F1 averaged over the true classes, each with the cluster that :func:`accuracy` matches it with.

    A class without a cluster has F1 0; the rows of a cluster without a class are predictions of no class. Where several
    matchings give the best accuracy, the one with the best F1 counts, so that the names of the labels cannot matter.

    Examples
    --------
    >>> round(macro_f1([0, 0, 1, 1], [5, 5, 5, 7]), 4)
    0.7333
    """
    table = contingency(y_true, y_pred)
    return float(_f1(table)[best_matching(table)].sum() / len(table))


def nmi(y_true: Labels, y_pred: Labels) -> float:
    """Return the mutual information over the arithmetic mean of the entropies, 0 to 1.

    Examples
    --------
    >>> round(nmi([0, 0, 1, 1], [5, 5, 5, 7]), 4)
    0.3437
    """
    return float(np.clip(normalized_mutual_info_score(*_codes(y_true, y_pred), average_method="arithmetic"), 0.0, 1.0))


def nmi_of_table(table: Integers) -> float:
    """Return what :func:`nmi` does, of a table of counts (classes, clusters): for labels too many to go through twice.

    Examples
    --------
    >>> nmi_of_table(np.array([[5, 0], [0, 3]]))
    1.0
    """
    joint = table / table.sum()
    of_class, of_cluster = joint.sum(axis=1), joint.sum(axis=0)
    entropies = [-(each[each > 0] * np.log(each[each > 0])).sum() for each in (of_class, of_cluster)]
    there = joint > 0
    information = (joint[there] * np.log(joint[there] / np.outer(of_class, of_cluster)[there])).sum()
    mean = float(np.mean(entropies))
    return float(np.clip(information / mean, 0.0, 1.0)) if mean > 0 else 1.0


def ari(y_true: Labels, y_pred: Labels) -> float:
    """Return the Rand index adjusted for chance: 1 for equal partitions, 0 on average for random ones.

    Examples
    --------
    >>> ari([0, 0, 1, 1], [5, 5, 7, 7])
    1.0
    """
    return float(adjusted_rand_score(*_codes(y_true, y_pred)))


def contingency(y_true: Labels, y_pred: Labels) -> Integers:
    """Return (classes, clusters) counts of rows, both in ascending order of their labels.

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
    """Return the contingency table with each class's matched cluster on the diagonal: its trace counts what is right.

    A class without a cluster has a column of zeros; the clusters without a class are the columns after the classes.

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
    """Return the classes and clusters of a contingency table that are matched one to one.

    The matching has the most rows right and, among equals, the largest sum of F1.
    """
    # The sum of F1 is at most the number of classes, so its share of the objective stays below one row.
    objective = table + _f1(table) / (len(table) + 1)
    classes, clusters = linear_sum_assignment(objective, maximize=True)
    return classes, clusters


def _f1(table: Integers) -> NDArray[np.float64]:
    """Return (classes, clusters) the F1 of each cluster as a prediction of each class."""
    return np.asarray(2 * table / (table.sum(axis=1, keepdims=True) + table.sum(axis=0, keepdims=True)))


def _codes(y_true: Labels, y_pred: Labels) -> tuple[Integers, Integers]:
    """Return both labelings as integers from 0, or say why they cannot be compared."""
    true, pred = (y if isinstance(y, np.ma.MaskedArray) else np.asarray(y) for y in (y_true, y_pred))
    for name, array in (("y_true", true), ("y_pred", pred)):
        if array.ndim != 1:
            raise DataError(f"{name} must be one label per row (1-D), got shape {array.shape}")
    if len(true) != len(pred):
        raise DataError(f"y_true and y_pred must label the same rows, got {len(true)} and {len(pred)} labels")
    if len(true) == 0:
        raise DataError("y_true and y_pred are empty: there are no rows to compare")
    return label_codes(true, what="y_true"), label_codes(pred, what="y_pred")
