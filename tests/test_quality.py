"""The defaults on planted clusters: as good as what is best there, and blind to the order and the unit of the rows."""

import warnings
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans, SpectralClustering

from pamc import clusterer, evaluate
from pamc.data.synthetic import block_model
from pamc.graph.adjacency import build_adjacency

pytestmark = pytest.mark.slow

# By how much K-means and graph-only spectral clustering may be better.
MARGIN = 0.03

MODELS = {
    "clean": {"homophily": 0.8, "feature_noise": 1.0},
    "noisy features": {"homophily": 0.8, "feature_noise": 2.0},
    "noisy graph": {"homophily": 0.5, "feature_noise": 1.0},
    "random graph": {"homophily": 0.25, "feature_noise": 1.5},
    "features of noise": {"homophily": 0.8, "feature_noise": 1000.0},
}


def blocks(name, *, seed=3):
    return block_model(400, 4, n_features=20, degree=12, random_state=seed, **MODELS[name])


def rivals(graph):
    """Return the accuracy of K-means on the features and of spectral clustering on the graph."""
    adjacency = build_adjacency(graph.edges, None, n_nodes=graph.n_nodes, expect_directed=False)
    spectral = SpectralClustering(4, affinity="precomputed", assign_labels="kmeans", random_state=0)
    found = KMeans(4, n_init=10, random_state=0).fit_predict(graph.features), spectral.fit_predict(adjacency)
    return [evaluate(graph.labels, labels)["acc"] for labels in found]


def fitted(features, edges, **options):
    with warnings.catch_warnings():
        # That one kind of evidence was left out is what these models are for.
        warnings.simplefilter("ignore")
        return clusterer("pamcgc", 4, random_state=0, device="cpu", **options).fit(features, adjacency=edges)


@pytest.mark.parametrize(
    "name", [*list(MODELS)[:3], *(pytest.param(name, marks=pytest.mark.slow) for name in list(MODELS)[3:])]
)
def test_the_defaults_keep_up_with_the_best_of_features_and_graph(name):
    graph = blocks(name)
    model = fitted(graph.features, graph.edges)
    assert evaluate(graph.labels, model.labels_)["acc"] >= max(rivals(graph)) - MARGIN
    assert len(np.unique(model.labels_)) == 4


@lru_cache(maxsize=1)
def as_given(name):
    graph = blocks(name)
    return fitted(graph.features, graph.edges)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(MODELS)[:3])
@given(order=st.integers(0, 1000), factor=st.floats(1e-3, 1e3))
@settings(max_examples=3, deadline=None, phases=[Phase.generate], derandomize=True)
def test_neither_the_order_nor_the_unit_of_the_rows_matters(name, order, factor):
    graph = blocks(name)
    rows = np.random.default_rng(order).permutation(graph.n_nodes)
    otherwise = fitted(graph.features[rows] * np.float32(factor), np.argsort(rows)[graph.edges])
    assert evaluate(as_given(name).labels_[rows], otherwise.labels_)["acc"] >= 0.99
