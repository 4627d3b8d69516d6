"""Weights of rows: repeated rows, metadata routing, and what cannot be combined with weights."""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.datasets import load_iris, make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pamc import PamCGC, clusterer
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.weights import RowWeights
from pamc.errors import ConfigError, DataError
from pamc.graph.adjacency import build_adjacency, merged_copies

EXPERT = {"hidden": (16,), "pretrain_epochs": 5}
TABLES = ("g_other_iris", "g_uci_wine", "g_uci_glass", "dermatology")


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(90, centers=3, n_features=4, cluster_std=0.5, random_state=0)[0]


@pytest.fixture(scope="module")
def weights():
    return np.random.default_rng(0).integers(1, 4, 90)


def small(n_clusters=3, **options):
    return PamCGC(n_clusters, n_epochs=3, advanced=EXPERT, random_state=0, **options)


def repeated(X, weights, model):
    """Return the labels of a fit to repeated rows, once for each row."""
    origin = np.repeat(np.arange(len(X)), weights)
    return model.fit(X[origin]).labels_[np.searchsorted(origin, np.arange(len(X)))]


def test_integer_weights_find_the_clusters_of_repeated_rows(blobs, weights):
    model = small().fit(blobs, sample_weight=weights)
    other = small()
    assert adjusted_rand_score(repeated(blobs, weights, other), model.labels_) == 1.0
    assert model.inertia_ == pytest.approx(other.inertia_, rel=0.02)
    assert model.scores_["silhouette"] == pytest.approx(other.scores_["silhouette"], abs=0.01)
    np.testing.assert_allclose(model.meta_nodes_, other.meta_nodes_, atol=0.05)
    np.testing.assert_array_equal(model.predict(blobs), model.labels_)


@pytest.mark.slow
@pytest.mark.skipif("PAMC_DATA" not in os.environ, reason="needs PAMC_DATA, the folder of the data sets")
@pytest.mark.parametrize("name", TABLES)
def test_integer_weights_find_the_clusters_of_repeated_rows_on_real_tables(name):
    table = np.load(Path(os.environ["PAMC_DATA"]) / "tables" / f"{name}.npz")
    X, k = table["x"], len(np.unique(table["y"]))
    weights = np.random.default_rng(1).integers(1, 5, len(X))
    model = PamCGC(k, random_state=0).fit(X, sample_weight=weights)
    assert adjusted_rand_score(repeated(X, weights, PamCGC(k, random_state=0)), model.labels_) >= 0.98


def test_weights_of_one_change_no_bit(blobs):
    plain, ones = small().fit(blobs), small().fit(blobs, sample_weight=np.ones(len(blobs)))
    np.testing.assert_array_equal(plain.embedding_, ones.embedding_)
    assert plain.inertia_ == ones.inertia_


def test_rows_of_weight_zero_are_labeled_but_do_not_count(blobs, weights):
    far = blobs.copy()
    weights = np.where(np.arange(len(blobs)) < 10, 0, weights)
    far[:10] += 50
    near, moved = (small().fit(X, sample_weight=weights) for X in (blobs, far))
    np.testing.assert_array_equal(near.labels_[10:], moved.labels_[10:])
    np.testing.assert_allclose(near.cluster_centers_, moved.cluster_centers_, rtol=1e-4, atol=1e-4)
    assert len(moved.labels_) == len(blobs)


def test_a_heavy_row_moves_the_scores_and_the_inertia(blobs):
    weights = np.full(len(blobs), 0.5)
    weights[0] = 40
    model = small().fit(blobs, sample_weight=weights)
    squared = np.square(model.embedding_ - model.cluster_centers_[model.labels_]).sum(axis=1)
    scaled = weights / weights.mean()
    assert model.inertia_ == pytest.approx(squared @ scaled, rel=1e-4)
    assert model.score(blobs, sample_weight=weights) == pytest.approx(-squared @ scaled / scaled.sum(), rel=1e-4)


def test_a_given_graph_is_weighted_too(blobs, weights):
    near = np.square(blobs[:, None] - blobs).sum(axis=2) < 1.0
    adjacency = sp.csr_matrix(near & ~np.eye(len(blobs), dtype=bool), dtype=float)
    model = small().fit(blobs, adjacency=adjacency, sample_weight=weights)
    assert model._fit_result.facts["graph"] == "given"
    assert model._fit_result.facts["total_weight"] == weights.sum()
    origin = np.repeat(np.arange(len(blobs)), weights)
    other = small().fit(blobs[origin], adjacency=adjacency[origin][:, origin])
    assert adjusted_rand_score(other.labels_, model.labels_[origin]) > 0.98
    assert model.scores_["modularity"] == pytest.approx(other.scores_["modularity"], abs=1e-6)


def test_a_saved_model_keeps_its_weights(blobs, weights, tmp_path):
    model = small(min_confidence=0.5).fit(blobs, sample_weight=weights)
    model.save(tmp_path / "run")
    assert PamCGC.load(tmp_path / "run").inertia_ == pytest.approx(model.inertia_)


def test_weights_are_routed_through_a_pipeline_and_a_search(blobs, weights):
    with sklearn.config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        asks = small().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        pipeline = make_pipeline(scaler, asks).fit(blobs, sample_weight=weights)
        search = GridSearchCV(asks, {"n_clusters": [3]}, cv=2, refit=False).fit(blobs, sample_weight=weights)
        ignores = make_pipeline(StandardScaler(), small().set_fit_request(sample_weight=False))
        plain = ignores.fit(blobs)
    assert pipeline[-1]._fit_result.facts["total_weight"] == weights.sum()
    assert search.best_score_ < 0
    assert "total_weight" not in plain[-1]._fit_result.facts
    labels = small().fit_predict(blobs, sample_weight=weights)
    np.testing.assert_array_equal(labels, small().fit(blobs, sample_weight=weights).labels_)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(5), r"sample_weight must have one value per row \(90\), got shape \(5,\)"),
        (np.full(90, -1.0), r"sample_weight must be finite numbers of at least 0, got -1 for row 0 \(90 weights"),
        (np.r_[np.ones(89), np.nan], "got nan for row 89"),
        (np.zeros(90), "all values of sample_weight are zero"),
        (["heavy"] * 90, "sample_weight must be numbers"),
    ],
)
def test_wrong_weights_are_refused(blobs, weight, message):
    with pytest.raises(DataError, match=message):
        small().fit(blobs, sample_weight=weight)


def test_what_cannot_be_weighted_says_so(blobs, weights):
    with pytest.raises(ConfigError, match="sample_weight cannot be combined with views or image_shape"):
        small().fit(blobs, views=blobs[None], sample_weight=weights)
    with pytest.raises(ConfigError, match="sample_weight cannot be combined with method dec"):
        clusterer("dec", 3).fit_graph(AttributedGraph(blobs), sample_weight=weights)
    with pytest.raises(ConfigError, match="n_clusters=3 is more than the number of rows"):
        small().fit(blobs, sample_weight=np.r_[1, 1, np.zeros(88)])


def test_repeats_are_exact_for_small_integers_and_proportional_otherwise():
    assert RowWeights.of([1, 1, 1], 3) is None
    assert RowWeights.of(2, 2).origin.tolist() == [0, 0, 1, 1]
    assert RowWeights.of([0, 10, 1], 3).counts().tolist() == [0, 10, 1]
    assert RowWeights.of([0.001, 0.002], 2).values.mean() == 1.0
    assert RowWeights.of([0, 1, 2, 1000.0], 4).counts().tolist() == [0, 1, 1, 9]
    many = RowWeights.of(np.r_[np.full(40_000, 1.0), np.full(20_000, 3.0)], 60_000)
    assert many.counts().min() == 1
    assert len(many.origin) <= 80_000


def test_a_repeated_graph_joins_all_copies():
    edges, weight = np.array([[0, 1, 2, 2], [1, 2, 0, 2]]), np.array([1.0, 2.0, 3.0, 4.0])
    graph = AttributedGraph(np.eye(4), edges=edges, edge_weight=weight)
    origin = np.repeat(np.arange(4), [2, 0, 3, 1])
    copies = graph.repeated(origin)
    expected = build_adjacency(edges[:, :3], weight[:3], n_nodes=4)[origin][:, origin]
    found = build_adjacency(copies.edges, copies.edge_weight, n_nodes=len(origin))
    np.testing.assert_array_equal(found.toarray(), expected.toarray())
    merged = merged_copies(found, origin, 4).toarray()
    np.testing.assert_array_equal(merged, [[0, 0, 3, 0], [0, 0, 0, 0], [3, 0, 0, 0], [0, 0, 0, 0]])


def test_scikit_learns_own_estimator_takes_the_same_weights():
    """A model in KMeans' place is called in the same way, positionally too."""
    X = load_iris().data
    model = small().fit(X, None, sample_weight=np.linspace(0.1, 2, len(X)))
    assert model.score(X, None, np.ones(len(X))) == pytest.approx(model.score(X))
