"""Every start by name, and what a fit does with it."""

import numpy as np
import pytest
import torch

import pamc.training.fallback as fitting
from pamc import PamCGC, clusterer, evaluate
from pamc.config import CHOICES
from pamc.data.synthetic import block_model
from pamc.errors import CollapseWarning, DataWarning
from pamc.initialize.base import INITIALIZERS

SMALL = {"hidden": (64, 64), "n_epochs": 5, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def graph():
    return block_model(240, 3, n_features=10, random_state=0)


def facts_of(model):
    return model._fit_result.facts


def test_every_start_has_a_name():
    assert set(INITIALIZERS) == set(CHOICES["init"])


@pytest.mark.slow
@pytest.mark.parametrize("start", sorted(CHOICES["init"]))
def test_a_start_leads_to_the_clusters_and_needs_no_graph_for_new_rows(graph, start):
    model = clusterer("pamcgc", 3, init=start, pretrain_epochs=100, **SMALL).fit(graph.features, adjacency=graph.edges)
    assert evaluate(graph.labels, model.labels_)["acc"] > 0.75
    assert (model.predict(graph.features[:20]) == model.labels_[:20]).all()


@pytest.mark.slow
@pytest.mark.parametrize("start", sorted(CHOICES["init"]))
def test_a_start_is_the_same_for_the_same_seed(graph, start):
    one, same = (
        clusterer("pamcgc", 3, init=start, **{**SMALL, "n_epochs": 1}).fit(graph.features, adjacency=graph.edges)
        for _ in range(2)
    )
    assert (one.embedding_ == same.embedding_).all()


@pytest.mark.parametrize(
    ("options", "n_dims"), [({}, 6), ({"init": "autoencoder"}, 10), ({"n_dims": 4}, 4), ({"n_clusters": 20}, 32)]
)
def test_the_size_of_the_embedding_follows_from_start_and_clusters(graph, options, n_dims):
    settings = {"n_clusters": 3, **SMALL, "n_epochs": 0, "pretrain_epochs": 1, **options}
    assert clusterer("pamcgc", **settings).fit(graph.features, adjacency=graph.edges).embedding_.shape == (240, n_dims)


@pytest.mark.slow
def test_a_random_graph_is_left_out_and_the_user_is_told():
    noisy = block_model(300, 3, homophily=1 / 3, random_state=0)
    with pytest.warns(DataWarning, match="clusters are sought in the features alone"):
        model = clusterer("pamcgc", 3, **SMALL).fit(noisy.features, adjacency=noisy.edges)
    assert facts_of(model)["inputs"] == "features"
    assert evaluate(noisy.labels, model.labels_)["acc"] > 0.95
    always = clusterer("pamcgc", 3, graph_trust="always", **SMALL).fit(noisy.features, adjacency=noisy.edges)
    assert facts_of(always)["inputs"] == "features and graph"


@pytest.mark.slow
def test_features_of_noise_are_learnt_by_heart():
    noisy = block_model(300, 3, homophily=0.9, degree=15, feature_noise=1000.0, random_state=0)
    with pytest.warns(DataWarning, match="the features left out"):
        model = PamCGC(3, random_state=0, device="cpu", advanced={"hidden": (256, 256)}, n_epochs=20).fit(
            noisy.features, adjacency=noisy.edges
        )
    assert evaluate(noisy.labels, model.labels_)["acc"] > 0.9


@pytest.mark.fast_variants(1)
@pytest.mark.parametrize(
    ("n_failures", "fallback"), [(0, None), (1, "a tenth of the learning rate"), (2, "the clusters of the start")]
)
def test_training_that_loses_a_cluster_is_repeated_or_undone(graph, monkeypatch, n_failures, fallback):
    rates = []
    honest = fitting.train_epochs

    def losing(model, rows, config, *, lr, **options):
        rates.append(lr)
        yield from honest(model, rows, config, lr=lr, **options)
        if len(rates) <= n_failures:
            with torch.no_grad():
                model.centers[0] = 1e3

    monkeypatch.setattr(fitting, "train_epochs", losing)
    if n_failures == 2:
        with pytest.warns(CollapseWarning, match="the clusters of the start are returned"):
            model = clusterer("pamcgc", 3, **SMALL).fit(graph.features, adjacency=graph.edges)
    else:
        model = clusterer("pamcgc", 3, **SMALL).fit(graph.features, adjacency=graph.edges)
    assert facts_of(model)["fallback"] == fallback
    np.testing.assert_allclose(rates, [1e-4, 1e-5][: min(n_failures, 1) + 1])
    assert len(np.unique(model.labels_)) == 3
    assert evaluate(graph.labels, model.labels_)["acc"] > 0.9
