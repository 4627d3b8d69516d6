"""Facts of clusters: hand-made fits whose answers are known."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from pamc import AttributedGraph, PamCGC
from pamc.data.synthetic import block_model
from pamc.errors import ConfigError, DataError
from pamc.report.facts import cluster_facts


def fitted(labels, z=None, *, n_clusters=None, confidence=None, centers=None):
    """Return what cluster_facts reads of a fitted estimator."""
    labels = np.asarray(labels)
    n_clusters = n_clusters or labels.max() + 1
    z = np.eye(n_clusters)[labels] if z is None else np.asarray(z, dtype=float)
    if centers is None:
        centers = np.stack([z[labels == c].mean(axis=0) if (labels == c).any() else z[0] for c in range(n_clusters)])
    meta = np.stack([z[labels == c].sum(axis=0) for c in range(n_clusters)])
    confidence = np.ones(len(labels)) if confidence is None else np.asarray(confidence)
    return SimpleNamespace(
        labels_=labels, confidence_=confidence, embedding_=z, cluster_centers_=centers, meta_nodes_=meta
    )


def lines(columns, **wanted):
    """Return the lines of a table of columns that have the wanted values."""
    keep = np.all([columns[name] == value for name, value in wanted.items()], axis=0)
    return {name: column[keep] for name, column in columns.items()}


def test_sizes_confidence_and_edges_inside_are_counted():
    graph = AttributedGraph(np.arange(8.0).reshape(4, 2), edges=np.array([[0, 1, 2], [1, 2, 3]]))
    facts = cluster_facts(fitted([0, 0, 1, 1], confidence=[0.5, 0.7, 1.0, 0.8]), graph)
    assert facts.clusters["n_rows"].tolist() == [2, 2]
    assert facts.clusters["confidence"] == pytest.approx([0.6, 0.9])
    assert facts.flows.tolist() == [[2, 1], [1, 2]]
    assert facts.clusters["edges_inside"] == pytest.approx([2 / 3, 2 / 3])
    assert facts.similarity == pytest.approx(np.eye(2))


def test_edge_weights_count_and_edges_given_twice_count_once():
    edges = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    graph = AttributedGraph(np.eye(3), edges=edges, edge_weight=np.array([3.0, 3.0, 1.0, 1.0]))
    assert cluster_facts(fitted([0, 0, 1]), graph).flows.tolist() == [[6, 1], [1, 0]]


def test_without_edges_there_are_no_flows():
    facts = cluster_facts(fitted([0, 1]), AttributedGraph(np.eye(2)))
    assert np.isnan(facts.clusters["edges_inside"]).all()
    assert not facts.flows.any()


def test_an_empty_cluster_is_legal():
    graph = block_model(30, 2, random_state=0)
    labels = np.where(graph.labels == 1, 2, 0)
    facts = cluster_facts(fitted(labels, n_clusters=3), graph)
    assert facts.clusters["n_rows"][1] == 0
    assert np.isnan(facts.clusters["confidence"][1])
    assert not (facts.features["cluster"] == 1).any()
    assert not (facts.rows["cluster"] == 1).any()
    assert set(facts.rows["leans_to"].tolist()) <= {-1, 0, 2}
    assert facts.similarity[1].tolist() == [0, 0, 0]


def test_one_cluster_has_nothing_to_compare_with():
    facts = cluster_facts(fitted([0, 0, 0]), AttributedGraph(np.arange(6.0).reshape(3, 2)))
    assert len(facts.features["cluster"]) == 0
    assert set(facts.rows["role"].tolist()) == {"central"}


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_the_difference_is_in_standard_deviations_and_signed(kind):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5)) + 100
    labels = np.repeat([0, 1], [100, 300])
    x[labels == 0, 3] -= 4
    features = cluster_facts(fitted(labels), AttributedGraph(kind(x)), n_features=2).features
    first = {name: column[0] for name, column in lines(features, cluster=0).items()}
    inside, elsewhere = x[labels == 0, 3].mean(), x[labels == 1, 3].mean()
    assert first["feature"] == 3
    assert first["name"] == "feature 3"
    assert first["kind"] == "difference"
    assert first["inside"] == pytest.approx(inside)
    assert first["elsewhere"] == pytest.approx(elsewhere)
    assert first["difference"] == pytest.approx((inside - elsewhere) / x[:, 3].std())
    assert lines(features, cluster=1)["difference"][0] > 0


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_a_constant_column_is_never_named(kind):
    x = np.column_stack([np.full(40, 0.1), np.repeat([0.3, 1.0], 20)])
    features = cluster_facts(fitted(np.repeat([0, 1], 20)), AttributedGraph(kind(x))).features
    assert set(features["feature"].tolist()) == {1}


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_terms_are_those_a_cluster_has_and_a_rare_one_does_not_win(kind):
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1], 200)
    x = (rng.random((400, 200)) < 0.03).astype(float)
    x[labels == 0, 7] = rng.random(200) < 0.6
    x[:, 9] = 0
    x[0, 9] = 5  # once, in cluster 0
    names = [f"word {j}" for j in range(200)]
    features = cluster_facts(fitted(labels), AttributedGraph(kind(x), feature_names=names)).features
    own = lines(features, cluster=0)
    assert own["name"][0] == "word 7"
    assert own["kind"][0] == "term"
    assert own["inside"][0] == pytest.approx(x[:200, 7].mean())
    assert (own["difference"] > 0).all()
    assert "word 9" not in own["name"]


def test_central_rows_are_near_and_border_rows_lean_to_the_other_cluster():
    z = np.array([[0.0], [0.1], [1.0], [2.0], [3.9], [5.0], [9.0], [10.0], [10.1]])
    labels = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1])
    model = fitted(labels, z, centers=np.array([[0.0], [10.0]]))
    rows = cluster_facts(model, AttributedGraph(z, ids=np.array(list("abcdefghi"))), n_rows=2).rows
    central = lines(rows, cluster=0, role="central")
    border = lines(rows, cluster=0, role="border")
    assert central["id"].tolist() == ["a", "b"]
    assert central["leans_to"].tolist() == [-1, -1]
    assert border["id"].tolist() == ["e", "d"]
    assert border["leans_to"].tolist() == [1, 1]
    assert lines(rows, cluster=1, role="border")["id"][0] == "f"


def test_a_doubtful_row_at_the_center_is_not_central():
    z = np.arange(8.0)[:, None]
    model = fitted(np.zeros(8, dtype=int), z, centers=np.array([[0.0], [9.0]]))
    model.confidence_ = np.where(z[:, 0] < 2, 0.2, 0.9)
    rows = cluster_facts(model, AttributedGraph(z), n_rows=2).rows
    assert lines(rows, cluster=0, role="central")["row"].tolist() == [2, 3]


def test_no_row_is_both_central_and_on_the_border():
    rows = cluster_facts(fitted([0, 0, 0, 1, 1]), AttributedGraph(np.eye(5))).rows
    assert sorted(rows["row"].tolist()) == [0, 1, 2, 3, 4]


def test_odd_rows_are_isolated_far_or_unsure_and_each_is_named_once():
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(size=(100, 4)), 20 + rng.normal(size=(100, 4)), [[500.0] * 4]])
    labels = np.repeat([0, 1], [100, 101])
    confidence = np.full(201, 0.9)
    confidence[[5, 200]] = 0.2, 0.3
    model = fitted(labels, z, confidence=confidence, centers=np.array([[0.0] * 4, [20.0] * 4]))
    edges = np.stack([np.arange(200), (np.arange(200) + 1) % 200])
    odd = cluster_facts(model, AttributedGraph(z, edges=edges[:, (edges != 7).all(axis=0)])).odd
    assert dict(zip(odd["row"].tolist(), odd["reason"].tolist(), strict=True)) == {
        7: "isolated",
        200: "isolated",
        5: "low confidence",
    }
    far = cluster_facts(model, AttributedGraph(z)).odd
    assert dict(zip(far["row"].tolist(), far["reason"].tolist(), strict=True)) == {
        200: "far from all centers",
        5: "low confidence",
    }


def test_odd_rows_are_never_more_than_asked_for_and_every_reason_has_its_share():
    confidence = np.r_[np.full(60, 1.0), np.full(40, 0.1)]
    z = np.r_[np.full(58, 1.0), 60.0, 80.0, np.full(40, 1.0)][:, None]
    model = fitted(np.zeros(100, dtype=int), z, confidence=confidence, centers=np.array([[0.0]]))
    odd = cluster_facts(model, AttributedGraph(z), n_odd=10).odd
    assert len(odd["row"]) == 10
    assert odd["row"][:2].tolist() == [59, 58]
    assert len(cluster_facts(model, AttributedGraph(z), n_odd=0).odd["row"]) == 0


def test_clean_data_have_few_odd_rows():
    graph = block_model(300, 3, feature_noise=0.3, random_state=0)
    model = PamCGC(3, hidden=(32,), n_epochs=20, random_state=0, device="cpu").fit_graph(graph)
    assert len(cluster_facts(model, graph).odd["row"]) <= 3


def test_where_many_rows_have_no_edge_that_is_not_odd():
    graph = AttributedGraph(np.eye(10), edges=np.array([[0], [1]]))
    assert "isolated" not in cluster_facts(fitted([0] * 10), graph).odd["reason"]


def test_centers_on_the_rows_make_no_row_far():
    assert len(cluster_facts(fitted([0, 0, 1]), AttributedGraph(np.eye(3))).odd["row"]) == 0


def test_rows_of_another_fit_are_refused():
    with pytest.raises(DataError, match="fitted on 2 rows"):
        cluster_facts(fitted([0, 1]), AttributedGraph(np.eye(3)))
    model = fitted([0, 1, 1])
    model.n_features_in_ = 7
    with pytest.raises(DataError, match="7 feature columns"):
        cluster_facts(model, AttributedGraph(np.eye(3)))


def test_a_model_without_a_fit_and_counts_below_0_are_refused():
    with pytest.raises(ConfigError, match="not fitted"):
        cluster_facts(PamCGC(2), AttributedGraph(np.eye(3)))
    with pytest.raises(ConfigError, match="n_rows"):
        cluster_facts(fitted([0, 1, 1]), AttributedGraph(np.eye(3)), n_rows=-1)
