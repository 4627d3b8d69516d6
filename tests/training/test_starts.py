"""Every start by name, and what a fit does with it."""

import numpy as np
import pytest
import torch

import pamc.training.fallback as fitting
from pamc import PamCGC, clusterer, evaluate
from pamc.config import CHOICES, FitConfig
from pamc.data.synthetic import block_model
from pamc.errors import CollapseWarning, DataWarning
from pamc.initialize.base import INITIALIZERS
from pamc.models.loader import encode_rows
from pamc.training.fallback import INITIAL_RETURNED, TRAINING_UNDONE
from pamc.training.pipeline import settled
from tests.training.scrambled import scrambled

SMALL = {"hidden": (64, 64), "n_epochs": 5, "random_state": 0, "device": "cpu"}
QUICK = {**SMALL, "pretrain_epochs": 15}


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
    ("options", "n_dims"), [({}, 6), ({"init": "autoencoder"}, 10), ({"n_dims": 4}, 4), ({"n_clusters": 20}, 36)]
)
def test_the_size_of_the_embedding_follows_from_start_and_clusters(graph, options, n_dims):
    settings = {"n_clusters": 3, **SMALL, "n_epochs": 0, "pretrain_epochs": 1, **options}
    assert clusterer("pamcgc", **settings).fit(graph.features, adjacency=graph.edges).embedding_.shape == (240, n_dims)


@pytest.mark.parametrize(("n_clusters", "n_dims"), [(1, 2), (16, 32), (17, 33), (64, 80), (100, 80)])
def test_the_embedding_has_a_dimension_per_cluster_and_some_to_spare(n_clusters, n_dims):
    assert settled(FitConfig(n_clusters=n_clusters), 1000).n_dims == n_dims


def test_epochs_and_layers_follow_from_the_start():
    paper, ours = (settled(FitConfig(init=start), 1000) for start in ("autoencoder", "consensus"))
    assert (paper.n_epochs, paper.hidden, paper.n_dims, paper.tol) == (200, (500, 500, 2000), 10, 0)
    assert (paper.pretrain_epochs, paper.batch_size) == (30, 256)
    assert (ours.n_epochs, ours.hidden, ours.tol, ours.batch_size) == (50, (256, 256), 1e-3, 64)
    assert settled(FitConfig(), 1000, 1025).batch_size == 256
    asked = settled(FitConfig(n_epochs=0, hidden=(), batch_size=10), 1000)
    assert (asked.n_epochs, asked.hidden, asked.batch_size) == (0, (), 10)


@pytest.mark.slow
def test_a_random_graph_is_left_out_and_the_user_is_told():
    noisy = block_model(300, 3, homophily=1 / 3, random_state=0)
    with pytest.warns(DataWarning, match="only the features are used"):
        model = clusterer("pamcgc", 3, **SMALL).fit(noisy.features, adjacency=noisy.edges)
    assert facts_of(model)["inputs"] == "features"
    assert evaluate(noisy.labels, model.labels_)["acc"] > 0.95
    always = clusterer("pamcgc", 3, graph_trust="always", **SMALL).fit(noisy.features, adjacency=noisy.edges)
    assert facts_of(always)["inputs"] == "features and graph"


@pytest.mark.slow
def test_features_of_noise_are_learnt_by_heart():
    noisy = block_model(300, 3, homophily=0.9, degree=15, feature_noise=1000.0, random_state=0)
    with pytest.warns(DataWarning, match="the features are left out"):
        model = PamCGC(3, random_state=0, device="cpu", advanced={"hidden": (256, 256)}, n_epochs=20).fit(
            noisy.features, adjacency=noisy.edges
        )
    assert evaluate(noisy.labels, model.labels_)["acc"] > 0.9


@pytest.mark.fast_variants(1)
@pytest.mark.parametrize(
    ("n_failures", "fallback"), [(0, None), (1, "a tenth of the learning rate"), (2, INITIAL_RETURNED)]
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
        with pytest.warns(CollapseWarning, match="the initial clusters are returned"):
            model = clusterer("pamcgc", 3, **QUICK).fit(graph.features, adjacency=graph.edges)
    else:
        model = clusterer("pamcgc", 3, **QUICK).fit(graph.features, adjacency=graph.edges)
    assert facts_of(model)["fallback"] == fallback
    np.testing.assert_allclose(rates, [4e-4, 4e-5][: min(n_failures, 1) + 1])
    assert len(np.unique(model.labels_)) == 3
    assert evaluate(graph.labels, model.labels_)["acc"] > 0.9
    if n_failures < 2:
        assert facts_of(model)["score_after"] >= facts_of(model)["score_before"] - 0.05
        assert model.n_iter_ == 5


def drain(model, rows):
    """Move the center of cluster 0 past its rows, until fewer than a fifth of them are left, but not none."""
    z = encode_rows(model.encoder, rows)
    labels = torch.cdist(z, model.centers).argmin(dim=1)
    n_before, away = int((labels == 0).sum()), model.centers[0] - z.mean(dim=0)
    for _ in range(10_000):
        model.centers[0] += 0.01 * away
        n_left = int((torch.cdist(z, model.centers).argmin(dim=1) == 0).sum())
        if n_left < n_before / 5:
            return n_left
    raise AssertionError("cluster 0 still has its rows")


def test_a_cluster_that_is_drained_but_not_empty_restarts_training(graph, monkeypatch):
    rates, left = [], []
    honest = fitting.train_epochs

    def draining(model, rows, config, *, lr, **options):
        rates.append(lr)
        yield from honest(model, rows, config, lr=lr, **options)
        if len(rates) == 1:
            with torch.no_grad():
                left.append(drain(model, rows))

    monkeypatch.setattr(fitting, "train_epochs", draining)
    model = clusterer("pamcgc", 3, **QUICK).fit(graph.features, adjacency=graph.edges)
    assert left[0] > 0
    np.testing.assert_allclose(rates, [4e-4, 4e-5])
    assert facts_of(model)["fallback"] == "a tenth of the learning rate"
    assert evaluate(graph.labels, model.labels_)["acc"] > 0.9
    assert {"score_before", "score_after"} <= set(facts_of(model))


def test_training_that_makes_the_clusters_worse_is_undone(graph, monkeypatch):
    initial = clusterer("pamcgc", 3, **{**QUICK, "n_epochs": 0}).fit(graph.features, adjacency=graph.edges)
    monkeypatch.setattr(fitting, "train_epochs", scrambled(fitting.train_epochs))
    seen = []
    model = clusterer("pamcgc", 3, **QUICK).fit_graph(graph, on_epoch=lambda epoch: seen.append(epoch.number))
    facts = facts_of(model)
    assert facts["fallback"] == TRAINING_UNDONE
    assert facts["score_after"] < facts["score_before"] - 0.05
    assert (model.history_, model.n_iter_, seen) == ({}, 0, [])
    assert model.record().stopped == "training lowered the score of the clusters and was undone"
    assert np.array_equal(model.labels_, initial.labels_)
    assert np.array_equal(model.embedding_, initial.embedding_)
    assert np.array_equal(model.cluster_centers_, initial.cluster_centers_)


def test_a_start_without_a_judge_is_not_compared_with_training(graph, monkeypatch):
    monkeypatch.setattr(fitting, "train_epochs", scrambled(fitting.train_epochs))
    options = {**SMALL, "init": "propagated_svd", "pretrain_epochs": 1, "n_epochs": 1}
    facts = facts_of(clusterer("pamcgc", 3, **options).fit(graph.features, adjacency=graph.edges))
    assert facts["fallback"] != TRAINING_UNDONE
    assert not {"score_before", "score_after"} & set(facts)


UNTRAINED = {**SMALL, "n_epochs": 0, "pretrain_epochs": 1}


def config_of(graph, **options):
    model = clusterer("pamcgc", 3, **{**UNTRAINED, **options}).fit(graph.features, adjacency=graph.edges)
    return model._fit_result.config, facts_of(model)


def test_the_weight_of_a_knn_graph_is_one_and_its_embedding_is_long(graph):
    config, facts = config_of(graph.without_edges())
    assert (config.alpha, config.embedding_scale) == (1.0, 8.0)
    assert "graph_trust" not in facts


@pytest.mark.parametrize("homophily", [0.45, 0.9])
def test_the_weight_of_a_given_graph_follows_from_the_trust_in_it(homophily):
    graph = block_model(240, 3, n_features=10, homophily=homophily, random_state=0)
    config, facts = config_of(graph)
    assert 0 <= facts["graph_trust"] <= 1
    assert 0 <= config.alpha <= 4
    assert config.alpha == round(4 * config.alpha) / 4
    assert abs(config.alpha - 4 * facts["graph_trust"]) <= 0.125
    assert config.embedding_scale == 2.0


def test_a_graph_that_predicts_the_clusters_better_has_a_larger_weight():
    graphs = [block_model(240, 3, n_features=10, homophily=share, random_state=0) for share in (0.45, 0.9)]
    low, high = (config_of(graph)[0].alpha for graph in graphs)
    assert low < high


@pytest.mark.parametrize("has_edges", [True, False])
def test_an_explicit_weight_and_scale_are_kept(graph, has_edges):
    config, _ = config_of(graph if has_edges else graph.without_edges(), alpha=3.3, embedding_scale=5.0)
    assert (config.alpha, config.embedding_scale) == (3.3, 5.0)


def test_a_graph_that_is_left_out_has_no_weight_of_its_own():
    noisy = block_model(300, 3, homophily=1 / 3, random_state=0)
    with pytest.warns(DataWarning, match="only the features are used"):
        config, facts = config_of(noisy)
    assert facts["inputs"] == "features"
    assert (config.alpha, config.embedding_scale) == (1.0, 8.0)
