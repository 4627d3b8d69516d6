"""Quick clusterings: merging, agreement and consensus."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from pamc.graph.smoothing import embedding
from pamc.ops.scores import edge_information
from pamc.training.consensus import knn_adjacency
from pamc.training.partitions import agreement, consensus, kmeans_labels, merge_groups, merged_labels


def test_merging_follows_a_shape_that_kmeans_cuts():
    points, truth = make_moons(600, noise=0.05, random_state=0)
    centered = points - points.mean(axis=0)
    from pamc.graph.adjacency import build_adjacency
    from pamc.graph.knn import knn_edges

    adjacency = build_adjacency(knn_edges(points, 10), None, n_nodes=600, expect_directed=True)
    merged = merged_labels(kmeans_labels(centered, 16, seed=0), adjacency, 2)
    assert adjusted_rand_score(truth, merged) > 0.95
    assert adjusted_rand_score(truth, kmeans_labels(centered, 2, seed=0)) < 0.6


def test_no_cluster_is_a_handful_of_outliers():
    # Three tight groups of 100 and one far row that nothing joins.
    weight = np.array([[900, 40, 40, 0], [40, 900, 40, 0], [40, 40, 900, 1], [0, 0, 1, 0]], dtype=float)
    clusters = merge_groups(weight, np.array([100, 100, 100, 1]), 3)
    assert len(set(clusters[:3])) == 3
    assert clusters[3] == clusters[2]


def test_groups_without_edges_are_merged_all_the_same():
    for sizes in ([5, 1, 1, 1, 1], [2, 2, 2, 2, 2]):
        assert set(merge_groups(np.zeros((5, 5)), np.array(sizes), 2)) == {0, 1}


@given(st.integers(0, 10_000), st.integers(2, 5))
@settings(max_examples=30, deadline=None)
def test_merging_gives_the_number_of_clusters_asked_for(seed, n_clusters):
    order = np.random.default_rng(seed)
    weight = order.integers(0, 3, size=(8, 8)).astype(float)
    weight += weight.T
    clusters = merge_groups(weight, order.integers(1, 20, size=8), n_clusters)
    assert set(clusters) == set(range(n_clusters))


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_agreement_is_the_mean_nmi(seed):
    labelings = list(np.random.default_rng(seed).integers(0, 3, size=(4, 50)))
    expected = np.mean([normalized_mutual_info_score(a, b) for a, b in combinations(labelings, 2)])
    assert agreement(labelings, 3) == pytest.approx(expected, abs=1e-12)


def test_agreement_of_one_cluster_with_itself_is_full():
    assert agreement([np.zeros(10, dtype=np.int64)] * 2, 3) == 1.0


def test_consensus_outvotes_the_odd_one():
    order = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 50)
    noisy = [np.where(order.random(200) < 0.2, order.integers(0, 4, 200), (truth + shift) % 4) for shift in range(9)]
    found = consensus([*noisy, order.integers(0, 4, 200)], 4, seed=0)
    assert adjusted_rand_score(truth, found) > 0.97
    assert max(adjusted_rand_score(truth, labels) for labels in noisy) < 0.8


def test_edge_information_has_no_preference_for_equal_sizes():
    rows = np.random.default_rng(0).normal(size=(330, 3)) * 0.1
    rows[:300, 0] += 3
    rows[300:, 1] += 3
    adjacency, truth = knn_adjacency(embedding(rows, 3), 10), np.repeat([0, 1], [300, 30])
    halves = np.where(np.arange(330) < 150, 0, 1)
    assert edge_information(adjacency, truth) == pytest.approx(1.0)
    assert edge_information(adjacency, halves) < 0.5
    assert edge_information(adjacency, np.zeros(330, dtype=np.int64)) == 0.0
    assert edge_information(adjacency * 0, truth) == 0.0
