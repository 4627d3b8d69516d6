"""A fit of a store: from its files, chunk by chunk, with the gradient of all rows; on one process or on several."""

from functools import partial

import numpy as np
import pytest
import torch

from pamc import PamCGC, evaluate
from pamc.config import FitConfig
from pamc.data.preprocessing import fit_preprocessing
from pamc.data.store import open_store
from pamc.data.store.store import StoreFeatures, neighborhood_means
from pamc.data.store.writer import StoreWriter
from pamc.data.synthetic import BlockModel, write_block_model
from pamc.errors import ConfigError
from pamc.graph.positives import PositivePairs
from pamc.initialize import sample
from pamc.models.method import METHODS
from pamc.progress import SilentProgress
from pamc.training import fallback, sources
from pamc.training.checkpoint import CheckpointPlan
from pamc.training.phases import Clock, FitContext, Neighbors
from pamc.training.pipeline import fit_method, plan_store, run_worker
from pamc.training.sources import StoreSource
from tests.awkward import spelled_out
from tests.training.own_rows import OwnRows
from tests.training.scrambled import scrambled
from tests.training.threads import run_team

fit_store = partial(fit_method, "pamcgc")
CPU = torch.device("cpu")
SMALL = {"n_clusters": 3, "hidden": (32, 16), "n_dims": 4, "n_hops": 1, "pretrain_epochs": 20, "n_epochs": 8}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores") / "blocks"
    model = BlockModel(n_nodes=900, n_features=12, n_clusters=3, degree=8, homophily=0.9, feature_noise=0.2, seed=0)
    write_block_model(folder, model)
    return open_store(folder)


@pytest.fixture(autouse=True)
def small_samples(monkeypatch):
    monkeypatch.setattr(sample, "CORE_ROWS", 200)
    monkeypatch.setattr(sample, "SAMPLE_ROWS", 500)
    monkeypatch.setattr(sources, "LARGE_ROWS", 0)


def test_blocks_are_found_without_reading_labels(store):
    fit = fit_store(store, FitConfig(**SMALL), seed=0, device=CPU)
    assert evaluate(store.labels, fit.labels)["acc"] > 0.95
    assert fit.facts["sampled_rows"] == 500
    assert fit.facts["clustered_rows"] == 200
    assert fit.scores["modularity"] > 0.4
    assert len(fit.history["loss"]) == 8
    # Halves of the sample of the start say what confidence is worth.
    assert fit.facts["confidence"] == "agreement of half fits"
    assert fit.confidence.mean() > 0.9


@pytest.mark.slow
def test_chunks_give_what_one_chunk_gives(store):
    whole, chunked = (
        fit_store(store, FitConfig(**SMALL, precision="float64", chunk_size=size), seed=0, device=CPU)
        for size in (None, 170)
    )
    np.testing.assert_allclose(whole.history["loss"], chunked.history["loss"], rtol=1e-10)
    assert np.array_equal(whole.labels, chunked.labels)
    for a, b in zip(whole.encoder.parameters(), chunked.encoder.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_pairs_of_two_hops_are_pruned_and_the_kept_share_is_told(store):
    config = FitConfig(**{**SMALL, "n_hops": 2, "max_positives": 4, "n_epochs": 1})
    fit = fit_store(store, config, seed=0, device=CPU)
    assert 0 < fit.facts["kept_influence"] < 1


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_give_what_one_gives_and_read_their_own_rows_alone(store, size):
    config = FitConfig(**SMALL, precision="float64")
    alone = fit_store(store, config, seed=0, device=CPU)

    def work(group):
        if group.rank > 0:
            run_worker(group, OwnRows(store, group))
            return None
        return fit_store(store, config, seed=0, device=CPU, group=group)

    fit = run_team(size, work)[0]
    np.testing.assert_allclose(fit.history["loss"], alone.history["loss"], rtol=1e-10)
    assert np.array_equal(fit.labels, alone.labels)


def test_the_judge_of_a_sample_scores_its_rows_and_undoes_training_for_all_processes(store, monkeypatch):
    config = FitConfig(**{**SMALL, "n_epochs": 1, "pretrain_epochs": 5}, precision="float64")
    initial = fit_store(store, config.with_(n_epochs=0), seed=0, device=CPU)
    monkeypatch.setattr(fallback, "train_epochs", scrambled(fallback.train_epochs))

    def work(group):
        if group.rank > 0:
            run_worker(group, OwnRows(store, group))
            return None
        return fit_store(store, config, seed=0, device=CPU, group=group)

    for fit in (fit_store(store, config, seed=0, device=CPU), run_team(2, work)[0]):
        assert fit.facts["fallback"] == fallback.TRAINING_UNDONE
        assert fit.facts["score_after"] < fit.facts["score_before"] - 0.05
        assert fit.history == {}
        assert np.array_equal(fit.labels, initial.labels)


def test_a_fit_of_a_store_that_resumes_has_the_same_facts(store, tmp_path):
    config = FitConfig(**{**SMALL, "n_epochs": 2, "pretrain_epochs": 5})
    options = {"seed": 0, "device": CPU}
    whole = fit_store(store, config, checkpoints=CheckpointPlan(tmp_path, every=1), **options)
    resumed = fit_store(store, config, checkpoints=CheckpointPlan(tmp_path, every=1, resume=True), **options)
    assert {"score_before", "score_after", "support"} <= set(whole.facts)
    assert resumed.facts == whole.facts
    assert resumed.config == whole.config
    assert np.array_equal(resumed.labels, whole.labels)
    assert resumed.history == whole.history


def test_a_store_without_edges_gets_neighbors_and_says_how_many_were_found(tmp_path, store):
    with StoreWriter(tmp_path / "rows") as writer:
        writer.create("features", store.features.shape, np.float32)[:] = store.features
        writer.finish()
    fit = fit_store(open_store(tmp_path / "rows"), FitConfig(**SMALL), seed=0, device=CPU)
    assert fit.facts["graph"] == "knn"
    assert fit.facts["neighbors_recall"] == 1.0
    assert evaluate(store.labels, fit.labels)["acc"] > 0.95


def test_what_cannot_fit_is_refused_with_the_numbers(store):
    with pytest.raises(ConfigError, match=r"training needs .* and 100 KB may be used \(pairs"):
        plan_store(store, FitConfig(**SMALL), device=CPU, memory=100_000)
    plan = plan_store(store, FitConfig(**SMALL), device=CPU, memory=10**8)
    assert plan.total < 10**8
    assert plan.chunk_size == 900


def positives(store, **settings):
    config = FitConfig(**SMALL, **settings)
    fit = FitContext(method=METHODS["pamcgc"], config=config, seed=0, device=CPU, clock=Clock(SilentProgress()))
    return StoreSource(store).positives(fit, Neighbors(store, None, {}))


def test_even_pairs_are_those_of_the_graph(store):
    pairs, kept = positives(store, precision="float64")
    assert kept == 1.0
    neighbors = np.diff(store.indptr)
    assert spelled_out(pairs).log_weight[0].exp().item() == pytest.approx(1 / (neighbors[0] + 1))
    assert isinstance(pairs, PositivePairs)


def test_neighbors_stay_in_their_file(store):
    pairs, _ = positives(store)
    assert pairs.indices.data_ptr() == store.indices.ctypes.data


def test_a_neighborhood_is_the_mean_of_a_row_and_its_neighbors(store):
    rows = StoreFeatures(store.features, fit_preprocessing(np.array(store.features), "none"))
    numbers = np.array([0, 5, 899])
    found = neighborhood_means(store, rows, numbers)
    for number, mean in zip(numbers, found, strict=True):
        around = store.indices[store.indptr[number] : store.indptr[number + 1]]
        if len(around) <= 16:
            np.testing.assert_allclose(mean, store.features[[number, *around]].mean(axis=0), rtol=1e-5)


def test_the_estimator_fits_a_store_and_predicts_its_rows(store):
    model = PamCGC.from_config(FitConfig(**SMALL), random_state=0, device="cpu").fit_store(store)
    assert (model.predict(np.array(store.features)) == model.labels_).mean() > 0.999
    with pytest.raises(ConfigError, match="without encoder= and pretrained="):
        PamCGC.from_config(FitConfig(**SMALL), encoder=torch.nn.Linear(12, 4)).fit_store(store)


@pytest.mark.slow
def test_a_table_in_memory_is_fitted_as_a_store_of_the_same_rows(store):
    config = FitConfig(**SMALL)
    of_store, of_graph = (
        fit_method("pamcgc", data, config, seed=0, device=CPU) for data in (store, store.to_graph().without_labels())
    )
    assert np.array_equal(of_store.labels, of_graph.labels)
    assert torch.equal(of_store.z, of_graph.z)
    assert of_store.history == of_graph.history
    assert of_store.adjacency is None
    assert of_graph.adjacency.nnz == store.n_stored


@pytest.mark.slow
def test_the_number_of_rows_decides_how_a_store_is_fitted(store, monkeypatch):
    monkeypatch.setattr(sources, "LARGE_ROWS", 900)
    config = FitConfig(**{**SMALL, "n_hops": None})
    of_store, of_graph = (
        fit_method("pamcgc", data, config, seed=0, device=CPU) for data in (store, store.to_graph().without_labels())
    )
    assert torch.equal(of_store.z, of_graph.z)
    assert "sampled_rows" not in of_store.facts
    assert of_store.config.n_hops == 2
    monkeypatch.setattr(sources, "LARGE_ROWS", 899)
    assert fit_method("pamcgc", store, config, seed=0, device=CPU).config.n_hops == 1


@pytest.mark.slow
def test_rows_in_memory_are_dealt_out_to_several_processes_as_one_fits_them(store):
    config, graph = FitConfig(**SMALL, precision="float64"), store.to_graph().without_labels()
    alone = fit_method("pamcgc", graph, config, seed=0, device=CPU)

    def one(group):
        if group.rank:
            return run_worker(group)
        return fit_method("pamcgc", graph, config, seed=0, device=CPU, group=group)

    together = run_team(2, one)[0]
    assert np.array_equal(together.labels, alone.labels)
    np.testing.assert_allclose(together.history["loss"], alone.history["loss"], rtol=1e-9)
