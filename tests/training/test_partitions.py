"""Quick clusterings: K-means and merging."""

import itertools

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score

from pamc.graph.adjacency import build_adjacency
from pamc.graph.neighbors import nearest
from pamc.initialize.partitions import edge_list, merge_groups, merge_in_turn, merged_labels
from pamc.ops.kmeans import kmeans


def merged_plainly(weight, size, n_clusters):
    """Merge as `merge_groups` does, with all densities anew in each round."""
    weight, rows = weight.copy(), size.astype(np.float64)
    volume, cluster, alive = weight.sum(axis=1), np.arange(len(rows)), rows >= 0
    enough = 0.3 * rows.sum() / n_clusters
    while alive.sum() > n_clusters:
        (index,) = np.nonzero(alive)
        products = np.outer(volume[index], volume[index])
        density = np.divide(weight[np.ix_(index, index)], products, out=np.zeros_like(products), where=products > 0)
        np.fill_diagonal(density, -1.0)
        large = rows[index] >= enough
        if large.sum() <= n_clusters:
            density[np.outer(large, large)] = -1.0
        kept, lost = index[list(np.unravel_index(density.argmax(), density.shape))]
        if density.max() <= 0:
            by_size = index[np.argsort(rows[index], kind="stable")]
            kept, lost = by_size[-1], by_size[0]
        weight[kept] += weight[lost]
        weight[:, kept] += weight[:, lost]
        volume[kept] += volume[lost]
        rows[kept] += rows[lost]
        cluster[cluster == lost] = kept
        alive[lost] = False
    return np.unique(cluster, return_inverse=True)[1]


@given(st.integers(0, 10_000), st.integers(1, 41), st.integers(1, 6), st.sampled_from([0.05, 0.3, 1.0]))
@settings(max_examples=150, deadline=None)
def test_merging_is_that_of_the_plain_version(seed, n_groups, n_clusters, share):
    order = np.random.default_rng(seed)
    weight = order.random((n_groups, n_groups)) * (order.random((n_groups, n_groups)) < share)
    # Few different weights and sizes as well, so that ties are met too.
    weight = np.ceil(4 * weight) if seed % 2 else weight
    weight += weight.T
    size = order.integers(0, 30, size=n_groups)
    given_weight = weight.copy()
    assert np.array_equal(merge_groups(weight, size, n_clusters), merged_plainly(weight, size, n_clusters))
    assert np.array_equal(weight, given_weight)


def test_the_weight_between_groups_is_that_of_their_edges(monkeypatch):
    order = np.random.default_rng(0)
    dense = np.triu(order.random((41, 41)) * (order.random((41, 41)) < 0.2), k=1)
    dense += dense.T
    groups, seen = order.integers(0, 7, size=41), []
    monkeypatch.setattr(
        "pamc.initialize.partitions.merge_groups",
        lambda weight, size, n_clusters: seen.extend([weight, size]) or np.arange(len(size)),
    )
    assert np.array_equal(merged_labels(groups, edge_list(sp.csr_matrix(dense)), 3), groups)
    member = np.eye(7)[groups]
    np.testing.assert_allclose(seen[0], member.T @ dense @ member, rtol=1e-13)
    assert np.array_equal(seen[1], member.sum(axis=0))


def test_groups_of_a_graph_without_edges_are_merged():
    assert set(merged_labels(np.arange(5), edge_list(sp.csr_matrix((5, 5))), 2)) == {0, 1}


def test_merging_follows_a_shape_that_kmeans_cuts():
    points, truth = make_moons(600, noise=0.05, random_state=0)
    centered = points - points.mean(axis=0)
    adjacency = build_adjacency(nearest(points, 10).edges, None, n_nodes=600, expect_directed=True)
    merged = merged_labels(kmeans(centered, 16, seeds=[0])[0].labels, edge_list(adjacency), 2)
    assert adjusted_rand_score(truth, merged) > 0.95
    assert adjusted_rand_score(truth, kmeans(centered, 2, seeds=[0])[0].labels) < 0.6


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


def test_several_numbers_in_turn_start_like_one_and_are_nested():
    order = np.random.default_rng(0)
    weight = order.random((30, 30)) * (order.random((30, 30)) < 0.4)
    weight, size = weight + weight.T, order.integers(1, 20, size=30)
    partitions = merge_in_turn(weight, size, [9, 8, 5, 2])
    assert np.array_equal(partitions[0], merge_groups(weight, size, 9))
    assert [len(np.unique(partition)) for partition in partitions] == [9, 8, 5, 2]
    for finer, coarser in itertools.pairwise(partitions):
        assert len(np.unique(np.stack([finer, coarser]), axis=1).T) == len(np.unique(finer))
