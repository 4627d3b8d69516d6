"""Metrics against scikit-learn and brute force, for any numbers of classes and clusters."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, f1_score, normalized_mutual_info_score

from pamc.errors import DataError
from pamc.results.metrics import accuracy, ari, confusion_matrix, contingency, evaluate, macro_f1, nmi

METRICS = {"acc": accuracy, "nmi": nmi, "ari": ari, "f1": macro_f1}

LABELINGS = st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(
    lambda sizes: st.lists(
        st.tuples(st.integers(0, sizes[0] - 1), st.integers(0, sizes[1] - 1)), min_size=1, max_size=25
    ).map(lambda rows: tuple(np.array(column) for column in zip(*rows, strict=True)))
)


def brute_force(y_true: np.ndarray, y_pred: np.ndarray) -> tuple[float, float]:
    """Try every one-to-one matching: the best accuracy and, among the best, the best macro-F1 of scikit-learn."""
    classes, clusters = np.unique(y_true).tolist(), np.unique(y_pred).tolist()
    nobody = [-1 - position for position in range(len(clusters))]
    outcomes = []
    for named in permutations(classes + nobody, len(clusters)):
        renamed = np.array([dict(zip(clusters, named, strict=True))[cluster] for cluster in y_pred])
        f1 = f1_score(y_true, renamed, labels=classes, average="macro", zero_division=0)
        outcomes.append((int((renamed == y_true).sum()), float(f1)))
    best = max(n_right for n_right, _ in outcomes)
    return best / len(y_true), max(f1 for n_right, f1 in outcomes if n_right == best)


@pytest.mark.slow
@given(LABELINGS)
@settings(max_examples=60, deadline=None)
def test_accuracy_and_f1_are_those_of_the_best_of_all_matchings(labelings):
    expected = brute_force(*labelings)
    assert (accuracy(*labelings), macro_f1(*labelings)) == pytest.approx(expected, abs=1e-12)


@given(LABELINGS)
@settings(max_examples=60, deadline=None)
def test_nmi_and_ari_are_those_of_scikit_learn(labelings):
    expected = normalized_mutual_info_score(*labelings, average_method="arithmetic"), adjusted_rand_score(*labelings)
    assert (nmi(*labelings), ari(*labelings)) == pytest.approx(expected, abs=1e-12)


@given(LABELINGS, st.permutations(["a", "b", "c", "d"]), st.permutations([-7, 0, 3, 900]))
@settings(max_examples=60, deadline=None)
def test_renaming_classes_and_clusters_changes_nothing(labelings, class_names, cluster_names):
    y_true, y_pred = labelings
    renamed = evaluate(np.array(class_names)[y_true], np.array(cluster_names)[y_pred])
    assert renamed == pytest.approx(evaluate(y_true, y_pred), abs=1e-12)


@given(LABELINGS, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_the_order_of_the_rows_changes_nothing(labelings, random):
    order = random.sample(range(len(labelings[0])), len(labelings[0]))
    shuffled = (labels[order] for labels in labelings)
    assert evaluate(*shuffled) == pytest.approx(evaluate(*labelings), abs=1e-12)


@given(LABELINGS, st.permutations(list(METRICS)))
@settings(max_examples=30, deadline=None)
def test_no_metric_changes_another_or_its_input(labelings, names):
    y_true, y_pred = labelings
    before = y_true.copy(), y_pred.copy()
    one_by_one = {name: METRICS[name](y_true, y_pred) for name in names}
    assert one_by_one == evaluate(y_true, y_pred)
    assert (y_true == before[0]).all()
    assert (y_pred == before[1]).all()


@given(LABELINGS)
@settings(max_examples=60, deadline=None)
def test_metrics_lie_between_their_bounds_and_reach_one_for_equal_partitions(labelings):
    result = evaluate(*labelings)
    assert list(result) == ["acc", "nmi", "ari", "f1"]
    assert all(0.0 <= result[name] <= 1.0 for name in ("acc", "nmi", "f1"))
    assert -1.0 <= result["ari"] <= 1.0
    assert evaluate(labelings[0], labelings[0] + 5) == pytest.approx(dict.fromkeys(result, 1.0))


def test_with_more_clusters_than_classes_the_rows_of_unmatched_clusters_are_wrong():
    y_true, y_pred = [0, 0, 0, 0, 1, 1], [0, 0, 1, 2, 3, 3]
    assert accuracy(y_true, y_pred) == pytest.approx(4 / 6)
    assert macro_f1(y_true, y_pred) == pytest.approx((2 * 2 / (4 + 2) + 1) / 2)
    assert nmi(y_true, y_pred) < 1.0


def test_with_fewer_clusters_than_classes_a_class_without_a_cluster_has_f1_zero():
    y_true, y_pred = [0, 0, 1, 1, 2], [0, 0, 1, 1, 1]
    assert accuracy(y_true, y_pred) == pytest.approx(4 / 5)
    assert macro_f1(y_true, y_pred) == pytest.approx((1 + 4 / 5 + 0) / 3)


def test_minus_one_is_a_class_like_any_other():
    assert accuracy([-1, -1, 0, 0], [1, 1, 0, 0]) == 1.0


def test_labels_may_be_numbers_strings_booleans_and_objects():
    y_pred = np.array(["x", "x", "y"], dtype=object)
    for y_true in ([1, 1, 2], ["b", "b", "a"], np.array([True, True, False]), [0.0, 0.0, 1.0]):
        assert evaluate(y_true, y_pred) == dict.fromkeys(METRICS, 1.0)


def test_the_contingency_table_counts_rows_of_each_class_in_each_cluster():
    table = contingency(["b", "a", "b", "b"], [9, 9, 2, 9])
    assert table.tolist() == [[0, 1], [1, 2]]


@given(LABELINGS)
@settings(max_examples=60, deadline=None)
def test_the_confusion_matrix_has_what_is_right_on_its_diagonal(labelings):
    matrix = confusion_matrix(*labelings)
    table = contingency(*labelings)
    assert matrix.shape == (len(table), max(table.shape))
    assert np.trace(matrix) / len(labelings[0]) == pytest.approx(accuracy(*labelings))
    assert (matrix.sum(axis=1) == table.sum(axis=1)).all()
    nonempty = matrix[:, matrix.any(axis=0)]
    assert sorted(map(tuple, nonempty.T)) == sorted(map(tuple, table.T))


@pytest.mark.parametrize("metric", [*METRICS.values(), evaluate, contingency, confusion_matrix])
@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        ([0, 1], [0, 1, 1], "same rows, got 2 and 3 labels"),
        ([], [], "empty"),
        ([[0], [1]], [0, 1], r"y_true must be one label per row \(1-D\), got shape \(2, 1\)"),
        ([0, 1], 3, r"y_pred must be one label per row \(1-D\), got shape \(\)"),
        ([0.0, float("nan")], [0, 1], "y_true: row 1 has the label nan, which is not a class"),
        (np.array(["a", 1, 2], dtype=object), [0, 1, 1], "y_true must hold .* got int, str"),
    ],
)
def test_labels_that_cannot_be_compared_are_refused(metric, y_true, y_pred, message):
    with pytest.raises(DataError, match=message):
        metric(y_true, y_pred)
