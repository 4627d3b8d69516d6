"""Facts of clusters: hand-made fits whose answers are known."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from pamc import AttributedGraph, PamCGC
from pamc.data.synthetic import block_model
from pamc.errors import ConfigError, DataError
from pamc.report.facts import cluster_facts
from pamc.report.outliers import extreme_rows


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
def test_columns_of_zeros_and_ones_are_shares(kind):
    labels = np.repeat([0, 1], 20)
    x = np.column_stack([np.arange(40) % 3, labels, 2 * labels, np.arange(40)]).astype(float)
    features = cluster_facts(fitted(labels), AttributedGraph(kind(x))).features
    kinds = dict(zip(features["feature"].tolist(), features["kind"].tolist(), strict=True))
    assert kinds == {0: "difference", 1: "share", 2: "difference", 3: "difference"}
    assert lines(features, cluster=1, kind="share")["inside"].tolist() == [1.0]


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
    far = cluster_facts(model, AttributedGraph(rng.normal(size=(201, 4)))).odd
    assert dict(zip(far["row"].tolist(), far["reason"].tolist(), strict=True)) == {
        200: "far from all centers",
        5: "low confidence",
    }


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_a_value_far_beyond_the_others_of_its_column_makes_a_row_odd(kind):
    x = np.random.default_rng(0).uniform(-12, 12, size=(60, 3))
    x[17, 1] = 1e12
    odd = cluster_facts(fitted(np.arange(60) % 3), AttributedGraph(kind(x), feature_names=("a", "b", "c"))).odd
    assert (odd["row"].tolist(), odd["reason"].tolist(), odd["feature"].tolist()) == ([17], ["extreme value"], ["b"])
    assert odd["value"][0] == pytest.approx(1e12 / 12, rel=0.2)
    assert cluster_facts(fitted(np.arange(60) % 3), AttributedGraph(kind(x))).odd["feature"].tolist() == ["feature 1"]


def _draw(seed=0):
    return np.random.default_rng(seed)


# fmt: off
ORDINARY = {
    "Gaussian": lambda: _draw().normal(size=(2000, 50)),
    "few rows": lambda: _draw().normal(size=(8, 50)),
    "one row": lambda: np.ones((1, 3)),
    "rare words": lambda: (_draw().random((2000, 100)) < 0.002).astype(float),
    "one-hot": lambda: np.eye(40)[_draw().integers(40, size=500)],
    "counts": lambda: _draw().poisson([0.01, 0.1, 1.0, 10.0], size=(2000, 4)).astype(float),
    "bursts of words": lambda: _draw().negative_binomial(0.05, 0.2, size=(2000, 100)).astype(float),
    "constant": lambda: np.column_stack([np.full(50, 0.1), np.zeros(50)]),
    "rounded": lambda: (1e6 + 0.01 * _draw().normal(size=(500, 3))).astype(np.float32),
    "groups": lambda: 1000.0 * np.repeat(np.eye(4), 25, axis=0) + _draw().normal(size=(100, 4)),
}
# fmt: on


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_columns_have_no_extreme_value(name, kind):
    assert extreme_rows(kind(ORDINARY[name]())).rows.tolist() == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tails", ["lognormal", "standard_exponential", "standard_cauchy"])
def test_of_columns_with_long_tails_few_rows_are_extreme(tails, seed):
    x = getattr(_draw(seed), tails)(size=(5000, 20))
    assert len(extreme_rows(x).rows) <= 0.005 * len(x)


def test_values_that_differ_from_a_column_of_one_value_are_compared_with_each_other():
    x = np.zeros((3000, 1))
    x[:20, 0] = np.arange(1, 21)
    assert extreme_rows(x).rows.tolist() == []
    x[5] = 1e4
    for features in (x, sp.csr_matrix(x)):
        assert extreme_rows(features).rows.tolist() == [5]
    # Two numbers whose difference is too large for one.
    x = _draw().normal(size=(100, 2))
    x[3, 0], x[4, 0] = 1.7e308, -1.7e308
    assert sorted(extreme_rows(x).rows.tolist()) == [3, 4]
    assert np.isfinite(extreme_rows(x).times).all()


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
    model = PamCGC(3, advanced={"hidden": (32,)}, n_epochs=20, random_state=0, device="cpu").fit_graph(graph)
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
