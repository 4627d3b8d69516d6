"""Weights of relations that are found from the data."""

import numpy as np
import pytest
import torch

from pamc import PamCGC, evaluate
from pamc.errors import DataWarning
from pamc.graph.adjacency import build_adjacency
from pamc.graph.smoothing import leading_directions
from pamc.initialize.relations import _found, n_combined
from pamc.ops.scores import edges_kept
from tests.relations.planted import planted

SETTINGS = {"random_state": 0, "device": "cpu", "n_epochs": 10}


def found(n_clusters=3, **relations):
    """Return the shares and the reasons for planted relations of pairs (degree, homophily)."""
    X, labels, edges = planted(600, n_clusters, seed=1, **relations)
    matrices = {name: build_adjacency(ends.T, None, n_nodes=len(labels)) for name, ends in edges.items()}
    weights, reasons = _found(matrices, leading_directions(X, seed=0), n_clusters, 0, torch.device("cpu"))
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}, reasons


@pytest.mark.parametrize("noise", [(8, 0.0), (2, 0.0), (40, 0.0)])
def test_random_edges_get_no_weight(noise):
    weights, reasons = found(good=(8, 0.8), noise=noise)
    assert weights == {"good": 1.0, "noise": 0.0}
    assert reasons["noise"].startswith("not used: its edges are not predicted")
    assert "of its edges" in reasons["good"]


def test_a_better_relation_weighs_more():
    weights, _ = found(good=(8, 0.8), weak=(8, 0.3))
    assert weights["good"] > 2 * weights["weak"] > 0


def test_of_two_relations_with_equal_homophily_the_one_with_more_edges_weighs_more():
    weights, _ = found(dense=(30, 0.6), sparse=(2, 0.6))
    assert weights["dense"] > 1.3 * weights["sparse"] > 0


def test_equally_good_relations_weigh_the_same():
    weights, _ = found(a=(10, 0.6), b=(10, 0.6))
    assert 0.45 < weights["a"] < 0.55


def test_relations_that_are_all_random_get_weights_that_sum_to_one():
    weights, _ = found(a=(6, 0.0), b=(6, 0.0))
    assert sum(weights.values()) == pytest.approx(1.0)
    assert min(weights.values()) >= 0.0


def test_the_weights_do_not_depend_on_the_order_of_the_relations():
    X, labels, edges = planted(600, 3, seed=1, a=(8, 0.7), b=(20, 0.3), c=(5, 0.0))
    rows = leading_directions(X, seed=0)
    matrices = {name: build_adjacency(ends.T, None, n_nodes=len(labels)) for name, ends in edges.items()}
    one, other = (
        _found(dict(items), rows, 3, 0, torch.device("cpu"))[0]
        for items in (matrices.items(), reversed(matrices.items()))
    )
    assert one == pytest.approx(other, rel=1e-9)


def test_shares_inside_clusters_are_those_of_a_hand_made_graph():
    # Two triangles joined by one edge: 6 of 7 edges are inside, and half of the degrees belong to each triangle.
    ends = np.array([[0, 1, 2, 3, 4, 5, 2], [1, 2, 0, 4, 5, 3, 3]])
    kept = edges_kept(build_adjacency(ends, None, n_nodes=6), np.array([0, 0, 0, 1, 1, 1]))
    assert kept.share == pytest.approx(6 / 7)
    assert kept.by_chance == pytest.approx(0.5)
    assert kept.assortativity == pytest.approx(5 / 7)
    assert kept.beyond_chance == pytest.approx((6 / 7 - 0.5) / (0.25 / 7) ** 0.5)
    assert kept.degree == pytest.approx(14 / 6)


@pytest.fixture(scope="module")
def data():
    return planted(400, 3, feature_noise=3.0, good=(6, 0.7), other=(6, 0.6), noise=(8, 0.0))


def fitted(X, adjacency, **options):
    return PamCGC(3, **SETTINGS).fit(X, adjacency=adjacency, **options)


def test_a_relation_of_random_edges_changes_no_bit(data):
    X, _, edges = data
    alone = fitted(X, edges["good"])
    both = fitted(X, {"good": edges["good"], "noise": edges["noise"]})
    assert (both.embedding_ == alone.embedding_).all()
    assert (both.labels_ == alone.labels_).all()
    assert both.record().facts["relation_weights"] == {"good": 1.0, "noise": 0.0}


def test_the_same_relation_twice_changes_no_bit(data):
    X, _, edges = data
    once = fitted(X, {"good": edges["good"], "other": edges["other"]})
    twice = fitted(X, {"good": edges["good"], "again": edges["good"][::-1], "other": edges["other"]})
    assert (twice.embedding_ == once.embedding_).all()
    facts = twice.record().facts
    assert facts["relation_weights"]["again"] == 0.0
    assert facts["relation_reasons"]["again"] == "not used: its edges are those of 'good'"


def test_two_relations_together_beat_each_of_them(data):
    X, labels, edges = data
    together = fitted(X, {"good": edges["good"], "other": edges["other"]})
    alone = [fitted(X, edges[name]) for name in ("good", "other")]
    accuracy = evaluate(labels, together.labels_)["acc"]
    assert accuracy > max(evaluate(labels, model.labels_)["acc"] for model in alone)
    facts = together.record().facts
    assert n_combined(facts) == 2
    assert 0 <= facts["share_assigned_by_edges"] < 0.5
    assert facts["encoder_fitted_to"] == "initial clusters"


def test_new_rows_are_assigned_by_their_features(data):
    X, _, edges = data
    model = fitted(X, {"good": edges["good"], "other": edges["other"]})
    share = model.record().facts["share_assigned_by_edges"]
    assert np.mean(model.predict(X) != model.labels_) == pytest.approx(share)


def test_settings_of_the_user_are_kept_with_relations(data):
    X, _, edges = data
    model = PamCGC(3, n_hops=2, **SETTINGS).fit(X, adjacency={"good": edges["good"], "other": edges["other"]})
    assert model.record().config["n_hops"] == 2
    assert fitted(X, {"good": edges["good"], "other": edges["other"]}).record().config["n_hops"] == 1


def test_unrelated_features_are_left_out_with_relations_too(data):
    _, labels, edges = data
    noise = np.random.default_rng(0).normal(size=(len(labels), 8))
    with pytest.warns(DataWarning, match="features and graph are unrelated"):
        model = fitted(noise, {"good": edges["good"], "other": edges["other"]})
    assert evaluate(labels, model.labels_)["acc"] > 0.8
