"""PamCGC where scikit-learn's examples have KMeans."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris, make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pamc import PamCGC

EXPERT = {"hidden": (16,), "pretrain_epochs": 5}


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(120, centers=3, n_features=4, cluster_std=0.5, random_state=0)


def small(n_clusters=3):
    return PamCGC(n_clusters, n_epochs=3, advanced=EXPERT, random_state=0)


def test_a_pipeline_scales_clusters_and_predicts(blobs):
    X, y = blobs
    pipeline = make_pipeline(StandardScaler(), small()).fit(X)
    assert adjusted_rand_score(y, pipeline.predict(X)) > 0.9
    np.testing.assert_array_equal(pipeline[-1].labels_, pipeline.predict(X))


def test_the_best_number_of_clusters_is_searched_as_for_kmeans(blobs):
    X, _ = blobs
    scores = {k: silhouette_score(X, small(k).fit_predict(X)) for k in (2, 3)}
    assert max(scores, key=scores.get) == 3
    search = GridSearchCV(small(), {"n_clusters": [2, 3], "advanced__tau": [0.5]}, cv=2).fit(X)
    assert search.best_params_["n_clusters"] in (2, 3)


def test_the_embedding_feeds_a_classifier_under_cross_validation(blobs):
    X, y = blobs
    assert cross_val_score(make_pipeline(small(), LogisticRegression()), X, y, cv=2).mean() > 0.9


def test_outputs_are_named_and_can_be_data_frames():
    pytest.importorskip("pandas")
    X = load_iris(as_frame=True).data
    model = small().set_output(transform="pandas").fit(X)
    frame = model.transform(X)
    assert frame.columns.tolist() == [f"pamcgc{i}" for i in range(6)] == model.get_feature_names_out().tolist()
    assert frame.index.equals(X.index)
    columns = ColumnTransformer(
        [("z", small(), X.columns[:2].tolist()), ("rest", "passthrough", X.columns[2:].tolist())]
    )
    assert columns.set_output(transform="pandas").fit_transform(X).columns[0] == "z__pamcgc0"


def test_inertia_is_the_sum_of_squared_distances(blobs):
    X, _ = blobs
    model = small().fit(X)
    assert model.inertia_ == pytest.approx(-len(X) * model.score(X), rel=1e-5)
    assert not hasattr(small(), "inertia_")


def test_a_copy_and_a_pickle_are_the_same_model(blobs):
    X, _ = blobs
    model = small().fit(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.labels_)  # noqa: S301
    assert clone(model).get_params()["n_clusters"] == 3
    assert not hasattr(clone(model), "labels_")
