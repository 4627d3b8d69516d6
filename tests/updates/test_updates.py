"""A fit that continues from a previous one: numbers, changes of clusters, drift, and what it refuses."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pamc import PamCGC
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.synthetic import blobs, block_model
from pamc.errors import ConfigError, DataError
from pamc.initialize.drift import Reference, fit_reference
from pamc.results.metrics import ari

SMALL = {"n_epochs": 5, "advanced": {"hidden": (32,)}, "random_state": 0, "device": "cpu"}


def planted(n, centers, seed=0, noise=0.5):
    """Return rows around some of five far centers, and their numbers."""
    rng = np.random.default_rng(seed)
    places = 6 * np.eye(5, 8)
    chosen = rng.choice(centers, n)
    return places[chosen] + rng.normal(size=(n, 8)) * noise, chosen


@pytest.fixture(scope="module")
def first():
    X, truth = planted(240, [0, 1, 2])
    return X, truth, PamCGC(3, **SMALL).fit(X)


def number_of(model, truth, kind):
    """Return the cluster of most rows of a planted kind."""
    return np.bincount(model.labels_[truth == kind]).argmax()


def test_old_rows_keep_their_numbers_and_new_rows_join_them(first):
    X, truth, model = first
    more, kinds = planted(30, [0, 1, 2], seed=1)
    updated = PamCGC(3, **SMALL).fit(np.vstack([X, more]), previous=model)
    assert (updated.labels_[:240] == model.labels_).all()
    assert [number_of(model, truth, kind) for kind in kinds] == updated.labels_[240:].tolist()
    update = updated.update_
    assert (update["changes"], update["moved"], update["n_old_rows"], update["n_new_rows"]) == ([], 0.0, 240, 30)
    assert update["shift"] == 0
    assert updated.record().facts["update"] == update


@pytest.mark.slow
def test_the_previous_model_is_not_changed(first):
    X, _, model = first
    before = {name: value.clone() for name, value in model._fit_result.encoder.state_dict().items()}
    PamCGC(3, **SMALL).fit(X, previous=model)
    after = model._fit_result.encoder.state_dict()
    assert all((before[name] == after[name]).all() for name in before)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_update(first):
    X, _, model = first
    more = np.vstack([X, planted(30, [0, 1, 2], seed=1)[0]])
    one, two = (PamCGC(3, **SMALL).fit(more, previous=model) for _ in range(2))
    assert (one.embedding_ == two.embedding_).all()


def test_a_new_cluster_appears_with_a_new_number(first):
    X, _, model = first
    more, kinds = planted(60, [0, 1, 2, 3, 3, 3], seed=2)
    updated = PamCGC(3, **SMALL).fit(np.vstack([X, more]), previous=model)
    (change,) = updated.update_["changes"]
    assert (change["kind"], change["cluster"], change["other"]) == ("appeared", 3, None)
    assert (updated.labels_[240:][kinds == 3] == 3).all()
    assert (updated.labels_[:240] == model.labels_).all()
    assert updated.update_["unlike"] > 0.3
    assert updated.update_["shift"] > 1
    # The next update starts from four clusters and reports nothing.
    again, _ = planted(30, [0, 1, 2, 3], seed=3)
    third = PamCGC(3, **SMALL).fit(np.vstack([X, more, again]), previous=updated)
    assert third.update_["changes"] == []
    assert (third.labels_[:300] == updated.labels_).all()


def test_a_cluster_that_splits_is_reported_with_its_origin(first):
    X, truth, model = first
    later = X.copy()
    leaving = np.flatnonzero(truth == 1)[:30]
    later[leaving] += 6 * (np.eye(5, 8)[3] - np.eye(5, 8)[1])
    updated = PamCGC(3, **SMALL).fit(later, previous=model)
    (change,) = updated.update_["changes"]
    assert (change["kind"], change["cluster"], change["other"]) == ("split", 3, number_of(model, truth, 1))
    assert (updated.labels_[leaving] == 3).all()
    stays = np.setdiff1d(np.arange(240), leaving)
    assert (updated.labels_[stays] == model.labels_[stays]).all()


@pytest.mark.slow
def test_a_cluster_that_moves_as_a_whole_keeps_its_number(first):
    X, truth, model = first
    later = np.where((truth == 1)[:, None], X + 6 * (np.eye(5, 8)[3] - np.eye(5, 8)[1]), X)
    updated = PamCGC(3, **SMALL).fit(later, previous=model)
    assert updated.update_["changes"] == []
    assert (updated.labels_ == model.labels_).all()


@pytest.mark.slow
def test_clusters_that_merge_leave_a_retired_number_to_which_no_row_is_assigned(first):
    X, truth, model = first
    later = X.copy()
    moving = truth == 1
    later[moving] = planted(int(moving.sum()), [2], seed=9)[0]
    updated = PamCGC(3, **SMALL).fit(later, previous=model)
    numbers = [number_of(model, truth, kind) for kind in (2, 1)]
    kept, gone = sorted(numbers, key=lambda number: -(model.labels_ == number).sum())
    (change,) = updated.update_["changes"]
    assert (change["kind"], change["cluster"], change["other"]) == ("merged", gone, kept)
    assert (updated.labels_[moving] == kept).all()
    assert gone not in updated.predict(np.random.default_rng(0).normal(size=(500, 8)) * 10)
    third = PamCGC(3, **SMALL).fit(later, previous=updated)
    assert third.update_["changes"] == []
    assert (third.labels_ == updated.labels_).all()


@pytest.mark.slow
def test_new_rows_alone_keep_the_numbers_and_a_cluster_without_rows_has_vanished(first):
    _, truth, model = first
    alone, kinds = planted(60, [0, 2], seed=5)
    updated = PamCGC(3, **SMALL).fit(alone, previous=model)
    numbers = {kind: number_of(model, truth, kind) for kind in range(3)}
    assert [numbers[kind] for kind in kinds] == updated.labels_.tolist()
    assert [(c["kind"], c["cluster"]) for c in updated.update_["changes"]] == [("vanished", numbers[1])]
    assert updated.update_["moved"] is None
    # It may come back under its number.
    back = planted(40, [1], seed=6)[0]
    again = PamCGC(3, **SMALL).fit(np.vstack([alone, back]), previous=updated)
    assert (again.labels_[60:] == numbers[1]).all()
    assert [(c["kind"], c["cluster"]) for c in again.update_["changes"]] == [("appeared", numbers[1])]


@pytest.mark.slow
def test_rows_are_recognized_by_the_index_of_a_frame(first):
    X, _, _ = first
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(8)], index=[f"r{i}" for i in range(240)])
    model = PamCGC(3, **SMALL).fit(frame)
    shuffled = frame.sample(frac=1, random_state=0)
    updated = PamCGC(3, **SMALL).fit(shuffled, previous=model)
    assert updated.update_["n_old_rows"] == 240
    assert (updated.labels_ == pd.Series(model.labels_, frame.index)[shuffled.index]).all()


@pytest.mark.slow
def test_rows_without_ids_are_recognized_by_their_values_in_any_order(first):
    X, _, model = first
    updated = PamCGC(3, **SMALL).fit(X[::-1], previous=model)
    assert updated.update_["n_old_rows"] == 240
    assert (updated.labels_ == model.labels_[::-1]).all()


@pytest.mark.slow
def test_a_loaded_and_a_slim_model_can_be_continued(first, tmp_path):
    X, _, model = first
    more = np.vstack([X, planted(20, [0, 1, 2], seed=7)[0]])
    model.save(tmp_path / "run")
    model.save(tmp_path / "slim", slim=True)
    loaded = PamCGC(3, **SMALL).fit(more, previous=PamCGC.load(tmp_path / "run"))
    assert (loaded.labels_ == PamCGC(3, **SMALL).fit(more, previous=model).labels_).all()
    slim = PamCGC(3, **SMALL).fit(more, previous=PamCGC.load(tmp_path / "slim"))
    assert slim.update_["n_old_rows"] == 0
    assert (slim.labels_[:240] == model.labels_).all()


@pytest.mark.slow
def test_a_model_can_continue_from_itself(first):
    X, _, model = first
    same = copy.deepcopy(model)
    assert (same.fit(X, previous=same).labels_ == model.labels_).all()


def test_a_frame_of_mixed_types_is_encoded_as_before():
    X, kinds = planted(200, [0, 1, 2])
    frame = pd.DataFrame({"size": X[:, 0], "weight": X[:, 1], "kind": np.array(["a", "b", "c"])[kinds]})
    model = PamCGC(3, **SMALL).fit(frame)
    more = pd.concat([frame, pd.DataFrame({"size": [6.0], "weight": [0.1], "kind": ["unheard of"]})], ignore_index=True)
    updated = PamCGC(3, **SMALL).fit(more, previous=model)
    assert (updated.labels_[:200] == model.labels_).all()
    assert updated.columns_ == model.columns_
    assert updated.labels_[200] == np.bincount(model.labels_[kinds == 0]).argmax()


@pytest.mark.slow
def test_a_graph_can_be_updated():
    graph = block_model(400, 4, degree=16, random_state=0)
    before, after = graph.only(np.arange(300)), graph
    model = PamCGC(4, **SMALL).fit_graph(before)
    updated = PamCGC(4, **SMALL).fit_graph(replace(after, ids=np.arange(400)), previous=model)
    assert updated.update_["changes"] == []
    assert (updated.labels_[:300] == model.labels_).mean() > 0.97
    assert ari(graph.labels, updated.labels_) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_exchangeable_rows_change_nothing(seed):
    graph = blobs(440, 5, n_features=10, feature_noise=0.6, random_state=seed)
    model = PamCGC(5, **SMALL).fit(graph.features[:400])
    updated = PamCGC(5, **SMALL).fit(graph.features, previous=model)
    assert updated.update_["changes"] == []
    assert (updated.labels_[:400] == model.labels_).mean() >= 0.97
    assert updated.update_["unlike"] < 0.15


def test_there_is_no_partial_fit_and_its_error_says_what_to_do(first):
    assert not hasattr(first[2], "partial_fit")
    with pytest.raises(AttributeError, match=r"PamCGC has no partial_fit: .*fit\(X, previous=model\)"):
        _ = first[2].partial_fit
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = first[2].nothing
    assert pickle.loads(pickle.dumps(PamCGC(4))).n_clusters == 4  # noqa: S301


def test_what_cannot_be_continued_is_refused(first):
    X, _, model = first
    with pytest.raises(ConfigError, match="previous must be a fitted PamCGC"):
        PamCGC(3, **SMALL).fit(X, previous="run")
    with pytest.raises(ConfigError, match="previous must be a fitted PamCGC"):
        PamCGC(3, **SMALL).fit(X, previous=PamCGC(3))
    with pytest.raises(DataError, match="X has 7 features, but the previous model was fitted to 8"):
        PamCGC(3, **SMALL).fit(X[:, :7], previous=model)
    with pytest.raises(ConfigError, match="cannot be combined with known_labels"):
        PamCGC(3, **SMALL).fit(X, known_labels=np.full(240, -1), previous=model)
    with pytest.raises(ConfigError, match="previous needs init='consensus'"):
        PamCGC(3, init="propagated_svd", **SMALL).fit(X, previous=model)
    with pytest.raises(ConfigError, match="previous needs X"):
        PamCGC(3, **SMALL).fit(previous=model)


def test_moments_are_those_of_numpy_and_shifts_are_differences_of_means():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(500, 4)).astype(np.float32), rng.integers(3, size=500)
    reference = fit_reference(rows, labels, 4)
    for cluster in range(3):
        members = rows[labels == cluster].astype(np.float64)
        np.testing.assert_allclose(reference.means[cluster], members.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(reference.spreads[cluster], members.std(axis=0), rtol=1e-5)
        assert reference.is_unlike(members, np.full(len(members), cluster)).mean() == pytest.approx(0.01, abs=0.01)
    later = rows + np.array([0, 2, 0, 0], dtype=np.float32)
    shifts = reference.shifts(later, labels)
    assert (shifts[:3, [0, 2, 3]] == 0).all()
    np.testing.assert_allclose(shifts[:3, 1], 2, rtol=0.15)
    assert (shifts[3] == 0).all()


def test_a_feature_that_is_constant_in_a_cluster_has_no_infinite_shift():
    reference = Reference(
        np.zeros((2, 1), np.float32), np.array([[0.0], [1.0]], np.float32), np.array([50, 50]), np.ones(2)
    )
    shifts = reference.shifts(np.full((20, 1), 3.0), np.zeros(20, dtype=np.int64))
    assert np.isfinite(shifts).all()
    assert shifts[0, 0] == pytest.approx(3 / np.sqrt(0.5))


def test_an_update_needs_rows_with_ids_that_are_unique():
    with pytest.raises(DataError):
        AttributedGraph(np.zeros((2, 1)), ids=np.array(["a", "a"]))
