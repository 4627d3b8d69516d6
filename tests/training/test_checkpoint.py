import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from pamc import clusterer
from pamc.data.adapters import with_adjacency
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.synthetic import block_model
from pamc.errors import ConfigError, DataError, DataWarning, OutputError
from pamc.initialize.family import Judge
from pamc.progress import SilentProgress
from pamc.training import checkpoint, fallback
from pamc.training.checkpoint import CheckpointPlan, Checkpoints, FileCheckpointer, fingerprint
from pamc.training.optimizer import load_optimizer_state
from pamc.training.trainer import train
from tests.training.scrambled import scrambled
from tests.training.test_engine import parts
from tests.training.threads import run_team

N_EPOCHS = 12
ABOUT = {"method": "pamcgc", "config": {"lr": 1.0}, "seed": 0, "data": "x"}
OPTIONS = {"hidden": (16,), "pretrain_epochs": 9, "n_init": 2, "n_epochs": N_EPOCHS, "random_state": 0, "device": "cpu"}


class StoppedError(Exception):
    pass


class StopAfter(SilentProgress):
    """Stops a fit after some steps of a phase."""

    def __init__(self, n_steps, name="training"):
        self.left, self.name = n_steps, name

    def phase(self, name, total=None):
        from contextlib import contextmanager

        @contextmanager
        def counting():
            outer = self

            class Phase:
                def advance(self, **_):
                    if name == outer.name:
                        outer.left -= 1
                        if outer.left < 0:
                            raise StoppedError

            yield Phase()

        return counting()


@pytest.fixture(scope="module")
def graph():
    return block_model(150, 3, n_features=6, feature_noise=0.4, random_state=0)


@pytest.fixture(scope="module")
def uninterrupted(graph):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clusterer("pamcgc", 3, **OPTIONS).fit_graph(graph)


def same(one, other):
    assert one.labels_.tolist() == other.labels_.tolist()
    assert one.history_ == other.history_
    assert np.array_equal(one.embedding_, other.embedding_)
    assert np.array_equal(one.cluster_centers_, other.cluster_centers_)
    for a, b in zip(one._fit_result.encoder.parameters(), other._fit_result.encoder.parameters(), strict=True):
        assert torch.equal(a, b)
    assert one._fit_result.facts == other._fit_result.facts


def fit(graph, folder, *, resume=False, progress=None, every=2, options=OPTIONS, **others):
    plan = CheckpointPlan(folder, every=every, resume=resume, **others)
    return clusterer("pamcgc", 3, **options).fit_graph(graph, checkpoints=plan, progress=progress)


def stopped(graph, folder, n_steps, **others):
    with pytest.raises(StoppedError):
        fit(graph, folder, progress=StopAfter(n_steps), **others)


@pytest.mark.parametrize("n_steps", [0, 1, 5, N_EPOCHS - 1])
def test_a_fit_that_was_stopped_goes_on_to_the_bit(graph, uninterrupted, tmp_path, n_steps, monkeypatch):
    stopped(graph, tmp_path, n_steps)

    def never(*_, **__):
        raise AssertionError("the start was sought again")

    monkeypatch.setattr("pamc.training.sources.graph_and_inputs", never)
    monkeypatch.setattr("pamc.training.sources.GraphSource.initialize", never)
    same(fit(graph, tmp_path, resume=True), uninterrupted)


@pytest.mark.parametrize("n_steps", [0, 5])
def test_a_resumed_fit_judges_its_training_by_the_same_scores(graph, tmp_path, n_steps, monkeypatch):
    stopped(graph, tmp_path, n_steps)
    monkeypatch.setattr(fallback, "train_epochs", scrambled(fallback.train_epochs))
    resumed = fit(graph, tmp_path, resume=True)
    assert resumed._fit_result.facts["fallback"] == fallback.TRAINING_UNDONE
    assert resumed._fit_result.facts["score_after"] < resumed._fit_result.facts["score_before"]
    same(resumed, clusterer("pamcgc", 3, **OPTIONS).fit_graph(graph))


@pytest.mark.parametrize("rows", [None, np.array([2, 5, 7, 8])])
def test_a_judge_that_is_read_back_gives_the_same_scores(tmp_path, rows):
    rng = np.random.default_rng(0)
    size = 11 if rows is None else len(rows)
    weight = sp.random(size, size, 0.5, rng=rng, format="csr")
    judge = Judge(rng.integers(300, size=(3, size)), sp.csr_matrix(weight + weight.T), rows)
    folder = Checkpoints(tmp_path, ABOUT)
    folder.write_start(checkpoint._judge_tensors(judge), {})
    restored = checkpoint._judge_from(folder.read_start()[0])
    labels = rng.integers(4, size=11)
    assert restored.score(labels) == judge.score(labels)
    assert np.array_equal(restored.partitions, judge.partitions)
    assert (restored.rows is None) == (rows is None)


@pytest.mark.parametrize("has_edges", [True, False])
def test_a_resumed_fit_has_the_settings_that_were_chosen_before_it_was_stopped(graph, tmp_path, has_edges):
    graph = graph if has_edges else graph.without_edges()
    options = {**OPTIONS, "n_epochs": 1}
    stopped(graph, tmp_path, 0, options=options)
    resumed, whole = fit(graph, tmp_path, resume=True, options=options), fit(graph, tmp_path / "whole", options=options)
    assert resumed._fit_result.config == whole._fit_result.config


def test_a_fit_stopped_again_and_again_ends_as_if_it_had_not_been(graph, uninterrupted, tmp_path):
    stopped(graph, tmp_path, 3)
    for n_steps in (4, 5, 7, 9, 11):
        stopped(graph, tmp_path, n_steps, resume=True)
    same(fit(graph, tmp_path, resume=True), uninterrupted)
    same(fit(graph, tmp_path, resume=True), uninterrupted)  # From its last epoch.


def test_keeping_checkpoints_changes_nothing(graph, uninterrupted, tmp_path):
    same(fit(graph, tmp_path), uninterrupted)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "0-0000010.safetensors", "0-0000012.safetensors", "start.safetensors",
    ]  # fmt: skip


def test_without_a_checkpoint_the_fit_begins(graph, uninterrupted, tmp_path):
    same(fit(graph, tmp_path / "none", resume=True), uninterrupted)


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(graph, uninterrupted, tmp_path):
    stopped(graph, tmp_path, 7)
    newest = tmp_path / "0-0000006.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(DataWarning, match=r"0-0000006.safetensors is damaged .*the previous checkpoint is used"):
        same(fit(graph, tmp_path, resume=True), uninterrupted)


@pytest.mark.parametrize("damage", ["a changed byte", "another version", "not a file of tensors"])
def test_every_damage_is_noticed(tmp_path, damage):
    model, rows = parts()
    checkpointer = FileCheckpointer(Checkpoints(tmp_path, ABOUT), every=1, minutes=None)
    list(train(model, rows, n_epochs=2, lr=1e-3, checkpointer=checkpointer))
    newest = tmp_path / "0-0000002.safetensors"
    content = newest.read_bytes()
    if damage == "a changed byte":
        content = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
    elif damage == "another version":
        content = content.replace(b'"version":"1"', b'"version":"7"')
    else:
        content = b"x" * 100
    newest.write_bytes(content)
    with pytest.warns(DataWarning, match="is damaged"):
        found = Checkpoints(tmp_path, ABOUT).newest()
    assert found.state.epoch == 1


def test_a_damaged_start_is_found_again(graph, uninterrupted, tmp_path):
    stopped(graph, tmp_path, 7)
    (tmp_path / "start.safetensors").write_bytes(b"nothing")
    with pytest.warns(DataWarning, match="the fit starts over"):
        same(fit(graph, tmp_path, resume=True), uninterrupted)


def test_checkpoints_of_other_data_or_settings_are_refused(graph, tmp_path):
    stopped(graph, tmp_path, 3)
    features = graph.features.copy()
    features[5, 2] += 1
    with pytest.raises(DataError, match="belongs to a fit of other data: use the same rows"):
        fit(replace(graph, features=features), tmp_path, resume=True)
    with pytest.raises(DataError, match="other data"):
        fit(graph.without_edges(), tmp_path, resume=True)
    with pytest.raises(ConfigError, match=r"other settings \(tau 0.5, now 0.75\)"):
        fit(graph, tmp_path, resume=True, options={**OPTIONS, "tau": 0.75})
    with pytest.raises(ConfigError, match=r"other settings \(seed 0, now 1\)"):
        fit(graph, tmp_path, resume=True, options={**OPTIONS, "random_state": 1})


def test_labels_have_no_part_in_the_fingerprint(graph):
    assert fingerprint(graph) == fingerprint(graph.without_labels())


def test_a_fingerprint_of_much_data_looks_at_pieces_and_sees_both_ends(monkeypatch):
    monkeypatch.setattr(checkpoint, "_FINGERPRINT_BYTES", 1 << 12)
    monkeypatch.setattr(checkpoint, "_PIECE_BYTES", 1 << 9)
    features = np.zeros((1000, 4))
    plain = fingerprint(AttributedGraph(features))
    for row in (0, 999):
        other = features.copy()
        other[row] = 1
        assert fingerprint(AttributedGraph(other)) != plain
    assert fingerprint(AttributedGraph(np.asfortranarray(features))) == plain


def test_sparse_features_have_a_fingerprint():
    one = AttributedGraph(sp.eye(5, format="csr"))
    assert fingerprint(one) != fingerprint(AttributedGraph(2 * sp.eye(5, format="csr")))


def test_what_checkpoints_do_not_hold_is_refused(graph, tmp_path):

    plan = CheckpointPlan(tmp_path, every=1)
    with pytest.raises(ConfigError, match=r"only method 'pamcgc' .* got method 'kmeans'"):
        clusterer("kmeans", 3).fit_graph(graph, checkpoints=plan)
    with pytest.raises(ConfigError, match="got encoder, pretrained or known_labels"):
        clusterer("pamcgc", 3, **OPTIONS).fit_graph(graph, checkpoints=plan, known_labels=np.full(150, -1))


@pytest.mark.parametrize(("every", "minutes"), [(0, None), (-1, None), (None, 0.0), (None, float("nan"))])
def test_a_rhythm_must_be_above_zero(tmp_path, every, minutes):
    with pytest.raises(ConfigError, match="--checkpoint-"):
        CheckpointPlan(tmp_path, every=every, minutes=minutes)


def test_minutes_are_those_of_the_first_process(tmp_path, monkeypatch):
    clock = iter(range(0, 100000, 45))
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: next(clock))
    model, rows = parts()
    checkpointer = FileCheckpointer(Checkpoints(tmp_path, ABOUT), every=None, minutes=2)
    assert checkpointer.every is None
    list(train(model, rows, n_epochs=4, lr=1e-3, checkpointer=checkpointer))
    assert [path.name for path in tmp_path.iterdir()] == ["0-0000003.safetensors"]
    monkeypatch.undo()

    def late(group):
        own = FileCheckpointer(None, every=None, minutes=1e-9 if group.rank == 0 else 1e9, group=group)
        return own.due(1)

    assert run_team(2, late) == [True, True]


def test_epochs_that_are_read_together_are_kept_as_they_were(tmp_path):
    model, rows = parts()
    plain = list(train(model, rows, n_epochs=10, lr=1e-3))
    again, rows = parts()
    checkpointer = FileCheckpointer(Checkpoints(tmp_path, ABOUT), every=3, minutes=None)
    together = list(train(again, rows, n_epochs=7, lr=1e-3, read_every=5, checkpointer=checkpointer))
    assert [record.values for record in together] == [record.values for record in plain[:7]]
    resumed, rows = parts()
    checkpointer = FileCheckpointer(None, every=3, minutes=None, resumed=Checkpoints(tmp_path, ABOUT).newest())
    assert checkpointer.enter(0)
    assert checkpointer.state.epoch == 6
    rest = list(train(resumed, rows, n_epochs=10, lr=1e-3, read_every=5, checkpointer=checkpointer))
    assert [record.values for record in rest] == [record.values for record in plain]
    for name, tensor in model.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor)


def test_a_later_attempt_is_gone_on_with_and_earlier_ones_are_not_made_again(tmp_path):
    model, rows = parts()
    checkpoints = Checkpoints(tmp_path, ABOUT)
    checkpointer = FileCheckpointer(checkpoints, every=1, minutes=None)
    for attempt in (0, 1):
        assert checkpointer.enter(attempt)
        list(train(model, rows, n_epochs=3, lr=1e-3, checkpointer=checkpointer))
    found = checkpoints.newest()
    assert (found.attempt, found.state.epoch) == (1, 3)
    resumed = FileCheckpointer(checkpoints, every=1, minutes=None, resumed=found)
    assert [resumed.enter(attempt) for attempt in (0, 1)] == [False, True]
    assert resumed.state is found.state


def test_a_full_disk_is_said_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OutputError, match=r"cannot write the checkpoint .*No space left"):
        Checkpoints(tmp_path, ABOUT).write_start({"x": torch.ones(2)}, {})
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_is_removed(tmp_path):
    (tmp_path / "0-0000001.safetensors.writing").write_bytes(b"half")
    Checkpoints(tmp_path, ABOUT).write_start({"x": torch.ones(2)}, {"a": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["start.safetensors"]
    tensors, facts = Checkpoints(tmp_path, ABOUT).read_start()
    assert tensors["x"].tolist() == [1, 1]
    assert facts == {"a": 1}


def test_many_clusters_have_wider_labels():
    for n_clusters, kind in ((100, torch.int8), (1000, torch.int16), (100_000, torch.int32)):
        labels = torch.tensor([-1, n_clusters - 1])
        assert checkpoint._narrow(labels).dtype == kind
        assert checkpoint._narrow(labels).tolist() == labels.tolist()


def test_an_optimizer_of_kernels_is_read_and_written_by_its_tensors():
    class Kernels:
        def __init__(self, value):
            self.moment = torch.full((2,), value)

        def state_tensors(self):
            return {"moment": self.moment}

    one, other = Kernels(1.0), Kernels(2.0)
    load_optimizer_state(one, other.state_tensors())
    assert one.moment.tolist() == [2, 2]


def test_no_checkpoint_is_pickled(graph, tmp_path):
    stopped(graph, tmp_path, 3)
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        assert json.loads(header["__metadata__"]["description"])["about"]["method"] == "pamcgc"


def test_a_fit_of_images_goes_on_to_the_bit_with_the_views_of_the_next_epoch(graph, tmp_path):
    rows = AttributedGraph(graph.features)
    options = {**OPTIONS, "image_shape": (2, 3), "alpha": 1.0}
    stopped(rows, tmp_path, 5, options=options)
    same(fit(rows, tmp_path, resume=True, options=options), clusterer("pamcgc", 3, **options).fit_graph(rows))


def test_a_fit_with_several_relations_goes_on_to_the_bit(graph, tmp_path):
    half = graph.edges.shape[1] // 2
    related = with_adjacency(graph, {"one": graph.edges[:, :half].T, "other": graph.edges[:, half:].T})
    stopped(related, tmp_path, 5)
    same(fit(related, tmp_path, resume=True), clusterer("pamcgc", 3, **OPTIONS).fit_graph(related))
    with pytest.raises(DataError, match="belongs to a fit of other data"):
        fit(with_adjacency(graph, {"one": graph.edges.T}), tmp_path, resume=True)
