"""The tree over the clusters, coarser labels from it, and a cluster that is divided."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.cluster.hierarchy import fcluster, is_valid_linkage, linkage, to_tree
from sklearn.metrics import adjusted_rand_score

from pamc import PamCGC, write_report
from pamc.data.attributed_graph import AttributedGraph
from pamc.errors import ConfigError, DataError
from pamc.initialize.levels import cluster_linkage, merged_labels
from pamc.report.content import FORMAT
from pamc.report.page_file import read_page

pytestmark = pytest.mark.usefixtures("few_repeats")
SMALL = {"n_epochs": 5, "advanced": {"hidden": (32,)}, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def nested():
    """Return rows of six groups in three pairs, the groups and the pairs."""
    rng = np.random.default_rng(0)
    group = rng.integers(6, size=360)
    centers = 12 * np.repeat(np.eye(3), 2, axis=0) + 3 * np.tile([[0, 0, 0], [1, 1, 1]], (3, 1))
    return centers[group] + 0.4 * rng.normal(size=(360, 3)), group, group // 2


@pytest.fixture(scope="module")
def fitted(nested):
    return PamCGC(6, **SMALL).fit(nested[0])


def test_the_tree_is_scipys_and_merges_what_belongs_together(nested, fitted):
    assert is_valid_linkage(fitted.linkage_)
    assert to_tree(fitted.linkage_).get_count() == 6
    assert adjusted_rand_score(nested[2], fitted.labels_at(3)) == 1.0
    np.testing.assert_array_equal(fitted.labels_at(6), fitted.labels_)
    assert set(fitted.labels_at(1)) == {0}


@pytest.mark.parametrize("seed", range(3))
def test_it_is_wards_tree_of_the_rows_cut_at_the_clusters(seed):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(7, 4))
    alone = cluster_linkage(centers, None, np.arange(7), 7)
    np.testing.assert_allclose(alone, linkage(centers, "ward"), atol=1e-12)
    labels = np.repeat(np.arange(7), [1, 2, 3, 4, 5, 6, 7])
    by_rows = linkage(centers[labels], "ward")
    ours = cluster_linkage(centers[labels], None, labels, 7)
    np.testing.assert_allclose(ours[:, 2], by_rows[-6:, 2], rtol=1e-9)


@pytest.mark.parametrize("k", range(1, 8))
def test_coarse_labels_are_those_of_scipy(k):
    tree = cluster_linkage(np.random.default_rng(1).normal(size=(7, 4)), None, np.arange(7), 7)
    ours = merged_labels(tree, k)
    assert adjusted_rand_score(fcluster(tree, k, "maxclust"), ours) == 1.0
    assert ours.max() == k - 1
    assert ours[0] == 0


def test_clusters_that_share_edges_merge_first():
    labels = np.repeat([0, 1, 2], 40)
    rng = np.random.default_rng(0)
    features = rng.normal(size=(120, 5)) + 5 * np.eye(3, 5)[labels]
    pairs = rng.integers(40, size=(400, 2)) + np.array([40, 80])
    adjacency = sp.coo_matrix((np.ones(400), pairs.T), (120, 120)).tocsr()
    first = cluster_linkage(features, adjacency + adjacency.T, labels, 3)[0, :2]
    assert first.tolist() == [1, 2]
    assert cluster_linkage(sp.csr_matrix(features), None, labels, 3).shape == (2, 4)


def test_one_cluster_and_an_empty_cluster_have_a_tree():
    X = np.random.default_rng(0).normal(size=(30, 2))
    assert cluster_linkage(X, None, np.zeros(30, dtype=int), 1).shape == (0, 4)
    tree = cluster_linkage(X, None, np.repeat([0, 2], 15), 3)
    assert is_valid_linkage(tree)
    assert set(merged_labels(tree, 2)[[0, 2]]) == {0, 1}


@pytest.mark.parametrize("k", [0, 7, 2.5, True])
def test_a_level_is_a_number_of_clusters(fitted, k):
    with pytest.raises(ConfigError, match="k must be an integer from 1 to the number of clusters, 6"):
        fitted.labels_at(k)


def test_a_saved_model_keeps_its_tree_and_noise_stays_noise(nested, tmp_path):
    X = np.vstack([nested[0], [[500.0, -500.0, 500.0]]])
    model = PamCGC(6, min_confidence=0.3, **SMALL).fit(X)
    assert model.labels_[-1] == -1
    model.save(tmp_path / "run")
    again = PamCGC.load(tmp_path / "run")
    np.testing.assert_array_equal(again.labels_at(3), model.labels_at(3))
    assert again.labels_at(3)[-1] == -1


def test_a_cluster_is_divided_into_its_parts(nested):
    X, group, pair = nested
    coarse = PamCGC(3, **SMALL).fit(X)
    cluster = int(coarse.labels_[0])
    inside = coarse.labels_ == cluster
    fine = coarse.split(cluster, X)
    assert fine.n_clusters == 2
    assert adjusted_rand_score(group[inside], fine.labels_) > 0.95
    assert adjusted_rand_score(pair, coarse.labels_) == 1.0
    with pytest.raises(ConfigError, match="cluster must be an integer from 0 to 2, got 3"):
        coarse.split(3, X)
    with pytest.raises(DataError, match="pass the rows of the fit"):
        coarse.split(0, X[:10])


def test_a_part_of_a_graph_has_the_edges_between_its_rows():
    edges = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])
    graph = AttributedGraph(np.eye(4), edges=edges, edge_weight=np.arange(4.0) + 1, ids=np.array(list("abcd")))
    part = graph.only(np.array([0, 2, 3]))
    assert part.edges.tolist() == [[1, 2], [2, 0]]
    assert part.edge_weight.tolist() == [3.0, 4.0]
    assert part.row_ids.tolist() == ["a", "c", "d"]


def test_the_report_has_the_tree(nested, fitted, tmp_path):
    page = read_page(write_report(fitted, nested[0], tmp_path / "page.html", map="pca"), formats=(FORMAT,))
    np.testing.assert_allclose(page["linkage"], fitted.linkage_, rtol=1e-5)
