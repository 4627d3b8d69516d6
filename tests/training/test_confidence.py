"""Confidence: half fits, the map they teach, and where it is kept."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from pamc import PamCGC, clusterer
from pamc.data.synthetic import blobs, block_model
from pamc.graph.neighbors import knn_adjacency
from pamc.initialize.calibration import (
    BeforeTraining,
    Calibration,
    SplitHalfFits,
    calibrated,
    calibration_error,
    confidence_facts,
    fit_split_halves,
    matched_clusters,
)
from pamc.initialize.consensus import InputSource
from pamc.models.loader import FeatureLoader
from pamc.progress import SilentPhase, SilentProgress
from pamc.training.checkpoint import CheckpointPlan

SETTINGS = {"hidden": (32,), "n_epochs": 20, "random_state": 0, "device": "cpu"}

# Rows that are their own embedding, and two centers.
BEFORE = BeforeTraining(torch.nn.Identity(), torch.tensor([[0.0, 0.0], [2.0, 0.0]], dtype=torch.float64))


@pytest.fixture(scope="module")
def graph():
    return block_model(300, 3, homophily=0.7, feature_noise=2, random_state=0)


@pytest.fixture(scope="module")
def model(graph):
    return clusterer("pamcgc", 3, **SETTINGS).fit_graph(graph)


def test_matching_is_one_to_one_and_takes_the_most_rows():
    assert matched_clusters(np.array([2, 2, 2, 0, 1]), np.array([0, 0, 0, 1, 2]), 3).tolist() == [0, 0, 0, 1, 2]


def test_the_error_is_the_mean_gap_of_bins_of_equal_counts():
    confidence = np.repeat([0.2, 0.9], 50)
    outcome = np.r_[np.repeat([0, 1], [40, 10]), np.repeat([0, 1], [25, 25])]
    assert calibration_error(confidence, outcome, n_bins=2) == pytest.approx(0.2)


def near(margins):
    """Return margins (n,) with distances of 0."""
    return np.stack([margins, np.zeros(len(margins))], axis=1)


def test_a_map_is_linear_between_corners_and_constant_beyond():
    calibration = Calibration(BEFORE, np.array([0.2, 0.4]), np.array([0.5, 0.9]), reach=1.0, error=0.0)
    assert calibration.apply(near([0.0, 0.3, 1.0])) == pytest.approx([0.5, 0.7, 0.9])
    assert calibration.apply(near([0.0]).astype(np.float32)).dtype == np.float32


def test_beyond_the_reach_confidence_falls_to_a_guess():
    calibration = Calibration(BEFORE, np.array([0.0]), np.array([0.9]), reach=2.0, error=0.0)
    places = np.array([[1.0, 0.0], [1.0, 2.0], [1.0, 4.0], [1.0, 1e30]])
    assert calibration.apply(places) == pytest.approx([0.9, 0.9, 0.7, 0.5])


def test_rows_unlike_all_that_were_fitted_are_a_guess(graph, model):
    confidence = model.predict_with_confidence(1e6 * graph.features[:5])[1]
    assert confidence == pytest.approx(1 / 3, abs=0.01)
    assert (model.confidence_ > 0.5).mean() > 0.9


@pytest.mark.parametrize("chunk_size", [None, 1, 2])
def test_the_margin_is_by_how_much_log_q_of_the_own_cluster_exceeds_any_other(chunk_size):
    z = np.array([[0.0, 0.0], [1.0, 0.5], [2.0, 1.0]])
    rows = FeatureLoader(z, device=torch.device("cpu"), dtype=torch.float64)
    margins, distances = BEFORE.margins(rows, torch.tensor([0, 0, 0]), eta=1.0, chunk_size=chunk_size).numpy().T
    # With η = 1, q is inverse to 1 + d².
    assert margins == pytest.approx([np.log(5 / 1), 0.0, np.log(2 / 6)], abs=1e-12)
    assert distances == pytest.approx([0.0, np.sqrt(1.25), np.sqrt(5)])


@pytest.mark.slow
def test_training_does_not_change_what_was_before(graph):
    model = clusterer("pamcgc", 3, **SETTINGS).fit_graph(graph)
    fit = model._fit_result
    before = fit.calibration.before
    weights = zip(before.encoder.parameters(), fit.encoder.parameters(), strict=True)
    assert all(not torch.equal(start, end) for start, end in weights)
    assert not torch.equal(before.centers, fit.centers)
    untrained = clusterer("pamcgc", 3, **{**SETTINGS, "n_epochs": 0}).fit_graph(graph)._fit_result
    for start, same in zip(before.encoder.parameters(), untrained.encoder.parameters(), strict=True):
        assert torch.equal(start, same)


def half_fits(labels, flips, seed=0):
    """Return half fits that give a row its label but for the share of rows that flips says."""
    rng = np.random.default_rng(seed)
    n_rows = len(labels)
    found = np.full((4, n_rows), -1, dtype=np.int32)
    for split in range(2):
        order = rng.permutation(n_rows)
        for side, half in enumerate((order[: n_rows // 2], order[n_rows // 2 :])):
            # Another numbering in each half.
            own = np.where(rng.random(len(half)) < flips[half], 1 - labels[half], labels[half])
            found[2 * split + side, half] = own if side else 1 - own
    return SplitHalfFits(np.arange(n_rows), found)


def test_confidence_becomes_the_agreement_of_half_fits_and_its_error_is_stated():
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1], 1000)
    margins = rng.uniform(-1.0, 3.0, size=2000)
    flips = np.where(margins < 1.0, 0.4, 0.1)
    calibration = calibrated(near(margins), labels, half_fits(labels, flips), BEFORE)
    confidence = calibration.apply(near(margins))
    assert confidence[margins < 0.6].mean() == pytest.approx(0.6, abs=0.04)
    assert confidence[margins > 1.4].mean() == pytest.approx(0.9, abs=0.04)
    assert confidence_facts(calibration)["confidence_error"] == calibration.error < 0.06
    assert (np.diff(confidence[np.argsort(margins)]) >= 0).all()


def test_one_row_does_not_decide_about_the_end_of_the_map():
    labels = np.repeat([0, 1], 100)
    margins, flips = np.linspace(0, 1, 200), np.zeros(200)
    flips[0] = 1
    calibration = calibrated(near(margins), labels, half_fits(labels, flips), BEFORE)
    assert calibration.apply(near(margins)).min() >= 0.9


def test_no_confidence_is_below_a_guess():
    labels = np.repeat([0, 1], 100)
    margins = np.linspace(-1, 1, 200)
    calibration = calibrated(near(margins), labels, half_fits(labels, np.full(200, 0.5)), BEFORE)
    assert calibration.apply(near(margins)).min() >= 0.5


def test_halves_hold_every_row_once_per_split(graph):
    rows = graph.features.astype(float)
    inputs = InputSource("features and graph", rows, knn_adjacency(rows, 10))
    config = PamCGC(3, advanced={"n_dims": 6}).config
    cpu = torch.device("cpu")
    found = fit_split_halves(inputs, config, seed=0, device=cpu)
    inside = found.labels >= 0
    assert inside.sum(axis=1).tolist() == [150] * 4
    assert (inside[0] ^ inside[1]).all()
    assert (inside[2] ^ inside[3]).all()
    assert np.array_equal(found.labels, fit_split_halves(inputs, config, seed=0, device=cpu).labels)
    assert fit_split_halves(inputs, config.with_(n_clusters=38), seed=0, device=cpu) is None
    assert fit_split_halves(None, config, seed=0, device=cpu) is None


def test_confidence_is_nearer_to_accuracy_than_q_is(graph, model):
    truth = matched_clusters(model.labels_, graph.labels, 3) == graph.labels
    q = model.predict_proba(graph.features).max(axis=1)
    assert calibration_error(model.confidence_, truth) < 0.12
    assert calibration_error(model.confidence_, truth) < calibration_error(q, truth)


def test_a_saved_model_says_the_same_confidence(graph, model, tmp_path):
    model.save(tmp_path / "run")
    loaded = PamCGC.load(tmp_path / "run", device="cpu")
    assert np.array_equal(loaded.confidence_, model.confidence_)
    labels, confidence = loaded.predict_with_confidence(graph.features)
    assert np.array_equal(labels, model.labels_)
    assert np.array_equal(confidence, model.confidence_)
    assert 0 <= model._fit_result.facts["confidence_error"] < 0.3


def test_a_fit_that_goes_on_from_its_start_says_the_same_confidence(graph, model, tmp_path):
    class StopError(Exception):
        pass

    class StopsAtFive(SilentPhase):
        n_epochs = 0

        def advance(self, **values):
            self.n_epochs += 1
            if self.n_epochs == 5:
                raise StopError

    class Stops(SilentProgress):
        def phase(self, name, total=None):
            return nullcontext(StopsAtFive() if name == "training" else SilentPhase())

    plan = CheckpointPlan(tmp_path, every=2)
    with pytest.raises(StopError):
        clusterer("pamcgc", 3, **SETTINGS).fit_graph(graph, checkpoints=plan, progress=Stops())
    resumed = clusterer("pamcgc", 3, **SETTINGS).fit_graph(
        graph, checkpoints=CheckpointPlan(tmp_path, every=2, resume=True)
    )
    assert np.array_equal(resumed.confidence_, model.confidence_)
    assert resumed._fit_result.facts["confidence_error"] == model._fit_result.facts["confidence_error"]


@pytest.mark.parametrize("name", ["kmeans", "dec"])
def test_other_methods_keep_their_q(name):
    graph = blobs(60, 2, random_state=0)
    options = {} if name == "kmeans" else {"hidden": (8,), "n_epochs": 2, "pretrain_epochs": 2}
    model = clusterer(name, 2, random_state=0, **options).fit(graph.features)
    assert model._fit_result.facts["confidence"] == "largest q"
    labels, confidence = model.predict_with_confidence(graph.features)
    assert np.array_equal(labels, model.labels_)
    assert confidence == pytest.approx(model.confidence_)
