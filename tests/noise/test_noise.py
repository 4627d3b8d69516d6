"""Noise on request: who is labeled −1, why, and where it is written."""

import csv

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import f1_score

from pamc import PamCGC, clusterer, evaluate, explain, write_report
from pamc.errors import ConfigError
from pamc.initialize.noise import fit_noise_rule
from pamc.report.content import FORMAT
from pamc.report.page_file import read_page, unpack
from tests.noise.planted import embeddings
from tests.report.made import made_graph, made_model

pytestmark = pytest.mark.usefixtures("few_repeats")
UNLIKE, BETWEEN = "unlike the training rows", "between clusters"
SMALL = {"n_epochs": 5, "advanced": {"hidden": (32,)}, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def planted():
    return embeddings(400, 48, 4)


@pytest.fixture(scope="module")
def fitted(planted):
    return PamCGC(4, min_confidence=0.7, **SMALL).fit(planted[0])


def test_planted_noise_is_found_and_is_unlike_the_other_rows(planted, fitted):
    y = planted[1]
    assert f1_score(y < 0, fitted.labels_ < 0) >= 0.95
    assert (fitted.noise_[y < 0] == UNLIKE).mean() >= 0.9
    assert fitted.record().facts["n_unlike_training"] == (fitted.noise_ == UNLIKE).sum()


@pytest.mark.slow
def test_noise_among_forty_unbalanced_clusters_of_embeddings_is_found():
    X, y = embeddings(5000, 384, 40)
    model = PamCGC(40, min_confidence=0.7, random_state=0).fit(X)
    assert f1_score(y < 0, model.labels_ < 0) >= 0.95


def test_noise_changes_nothing_but_labels(planted, fitted):
    plain = PamCGC(4, **SMALL).fit(planted[0])
    assert plain.noise_ is None
    for name in ("embedding_", "confidence_", "cluster_centers_"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(fitted, name))
    kept = fitted.labels_ >= 0
    np.testing.assert_array_equal(plain.labels_[kept], fitted.labels_[kept])
    assert (fitted.noise_[kept] == "").all()


def test_labels_are_predict_and_a_row_like_none_is_noise(planted, fitted):
    X = planted[0]
    np.testing.assert_array_equal(fitted.predict(X), fitted.labels_)
    np.testing.assert_array_equal(fitted.noise_kinds(X), fitted.noise_)
    np.testing.assert_array_equal(fitted.predict_with_confidence(X)[0], fitted.labels_)
    new = np.random.default_rng(9).normal(size=(50, 48)).astype(np.float32)
    new /= np.linalg.norm(new, axis=1, keepdims=True)
    assert (fitted.predict(new) == -1).mean() >= 0.9
    assert (fitted.predict(embeddings(400, 48, 4)[0][planted[1] >= 0]) >= 0).mean() >= 0.95


def test_rows_between_two_clusters_are_told_apart_from_rows_like_none():
    rng = np.random.default_rng(0)
    ends = np.repeat([[0.0, 0.0], [4.0, 0.0]], 150, axis=0) + rng.normal(size=(300, 2))
    model = PamCGC(2, min_confidence=0.9, **SMALL).fit(ends)
    line = np.column_stack([np.linspace(0, 4, 41), np.zeros(41)])
    kinds = model.noise_kinds(line)
    assert BETWEEN in kinds[15:26]
    assert (kinds != UNLIKE).all()
    assert set(model.noise_kinds([[2.0, 60.0]])) == {UNLIKE}


def test_any_model_takes_a_limit_when_it_predicts(planted):
    X = planted[0]
    plain = PamCGC(4, **SMALL).fit(X)
    certain = plain.confidence_ >= 0.99
    np.testing.assert_array_equal(plain.predict(X, min_confidence=0.99)[~certain], -1)
    assert (plain.predict(X) >= 0).all()
    assert (plain.predict(100 * X + 1, min_confidence=0.5) == -1).any()
    kmeans = clusterer("kmeans", 4, random_state=0).fit(X)
    assert (kmeans.predict(X, min_confidence=1.0) == -1).all()
    with pytest.raises(ConfigError, match="noise_kinds needs min_confidence"):
        plain.noise_kinds(X)


@pytest.mark.parametrize("limit", [1.5, -0.1, "much"])
def test_a_limit_is_a_share(planted, fitted, limit):
    with pytest.raises(ConfigError, match="min_confidence must be a finite number of at least 0 and at most 1"):
        PamCGC(4, min_confidence=limit, **SMALL).fit(planted[0])
    with pytest.raises(ConfigError, match="min_confidence"):
        fitted.predict(planted[0], min_confidence=limit)


def test_a_saved_model_keeps_its_noise(planted, fitted, tmp_path):
    fitted.save(tmp_path / "run")
    again = PamCGC.load(tmp_path / "run")
    assert again.min_confidence == 0.7
    np.testing.assert_array_equal(again.noise_, fitted.noise_)
    np.testing.assert_array_equal(again.predict(planted[0]), fitted.labels_)
    rows = list(csv.DictReader((tmp_path / "run" / "labels.csv").read_text().splitlines()))
    assert [int(row["cluster"]) for row in rows] == fitted.labels_.tolist()
    assert [row["noise"] for row in rows] == fitted.noise_.tolist()


def test_a_cluster_of_outliers_has_no_reach_and_a_clean_one_has_slack():
    rng = np.random.default_rng(0)
    rows = np.vstack([rng.normal(size=(200, 8)), 30 + 0.1 * rng.normal(size=(200, 8)), 400 * rng.normal(size=(8, 8))])
    labels = np.repeat([0, 1, 2], [200, 200, 8])
    rule = fit_noise_rule(rows, labels, 4)
    assert rule.reaches[2] == -1
    assert rule.reaches[3] == 0
    inside = np.linalg.norm(rows[200:400] - rule.means[1], axis=1)
    assert inside.max() * 1.1 < rule.reaches[1] < inside.max() * 1.3
    sparse = fit_noise_rule(sp.csr_matrix(rows), labels, 4)
    np.testing.assert_allclose(sparse.reaches, rule.reaches, rtol=1e-6)
    np.testing.assert_array_equal(sparse.is_unlike(sp.csr_matrix(rows), labels), rule.is_unlike(rows, labels))


def test_metrics_are_those_of_the_clustered_rows():
    scores = evaluate([0, 0, 1, 1, 1], [3, 3, 4, 4, -1])
    assert scores == {"acc": 1.0, "nmi": 1.0, "ari": 1.0, "f1": 1.0, "coverage": 0.8}
    assert evaluate(["a", "b"], [-1, -1])["coverage"] == 0.0


def test_a_report_and_explain_have_one_more_group(planted, fitted, tmp_path):
    X = planted[0]
    n_noise = int((fitted.labels_ == -1).sum())
    page = read_page(write_report(fitted, X, tmp_path / "page.html", map="pca"), formats=(FORMAT,))
    assert (page["n_clusters"], page["noise"], page["clusters"]["n_rows"][4]) == (4, 4, n_noise)
    assert (unpack(page["points"]["cluster"]) == np.where(fitted.labels_ < 0, 4, fitted.labels_)).all()
    explained = explain(fitted, X)
    assert explained.clusters["cluster"].tolist() == [0, 1, 2, 3, -1]
    assert not (explained.rows["leans_to"] == 4).any()
    assert (explained.rows.query("cluster == -1")["row"].map(lambda row: fitted.labels_[row]) == -1).all()


def test_all_outliers_are_listed_on_request():
    model = made_model(600, 3)
    model.confidence_[:80] = 0.01
    rows = made_graph(model).features
    assert len(explain(model, rows).odd) == 50
    assert set(range(80)) <= set(explain(model, rows, n_odd=None).odd["row"])


def test_edges_of_new_rows_and_a_limit_work_together(planted):
    X, y = planted
    paths = [np.flatnonzero(y == cluster) for cluster in range(4)]
    ends = np.concatenate([np.stack([path[:-1], path[1:]], axis=1) for path in paths])
    model = PamCGC(4, min_confidence=0.7, **SMALL).fit(X, adjacency=ends)
    one, other = (path[model.labels_[path] >= 0][:3] for path in paths[:2])
    weight = sp.csr_matrix((np.ones(9), (np.repeat([0, 1, 2], 3), np.concatenate([one, other, one]))), (3, len(X)))
    # A row with neighbors in its cluster, one with neighbors in another cluster, and an extreme row.
    rows = np.stack([X[one[0]], X[one[0]], np.full(X.shape[1], 50.0)])
    labels = model.predict(rows, adjacency=weight, min_confidence=0.95)
    assert labels.tolist() == [model.labels_[one[0]], -1, -1]
