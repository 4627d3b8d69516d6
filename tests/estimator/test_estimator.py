import copy
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from pamc import PamCGC, clusterer, evaluate
from pamc.config import FitConfig
from pamc.data.synthetic import block_model
from pamc.errors import CollapseWarning, ConfigError, DataError, DataWarning, UnknownNameError
from pamc.models import products

SMALL = {"hidden": (16,), "n_dims": 5, "n_epochs": 8, "pretrain_epochs": 15, "n_init": 3, "random_state": 0}


@pytest.fixture(scope="module")
def graph():
    return block_model(300, 3, n_features=8, feature_noise=0.5, random_state=0)


@pytest.fixture(scope="module")
def fitted(graph):
    return clusterer("pamcgc", 3, **SMALL).fit(graph.features, adjacency=graph.edges)


def test_a_fit_finds_planted_blocks(graph, fitted):
    assert evaluate(graph.labels, fitted.labels_)["acc"] > 0.9


def test_learnt_attributes_have_the_promised_shapes_and_type(graph, fitted):
    assert fitted.labels_.shape == fitted.confidence_.shape == (300,)
    assert fitted.embedding_.shape == (300, 5)
    assert fitted.cluster_centers_.shape == fitted.meta_nodes_.shape == (3, 5)
    assert fitted.n_iter_ == 8
    assert all(len(values) == 8 for values in fitted.history_.values())
    for array in (fitted.embedding_, fitted.cluster_centers_, fitted.transform(graph.features)):
        assert array.dtype == np.float32


def test_labels_are_predict_at_the_end(graph, fitted):
    assert np.array_equal(fitted.labels_, fitted.predict(graph.features))
    assert np.array_equal(fitted.embedding_, fitted.transform(graph.features))
    proba = fitted.predict_proba(graph.features)
    assert np.allclose(proba.sum(axis=1), 1)
    assert np.array_equal(proba.argmax(axis=1), fitted.labels_)
    labels, confidence = fitted.predict_with_confidence(graph.features)
    assert np.array_equal(labels, fitted.labels_)
    assert np.array_equal(confidence, fitted.confidence_)


def test_score_is_minus_the_mean_squared_distance_to_the_assigned_center(graph, fitted):
    distance = ((fitted.embedding_ - fitted.cluster_centers_[fitted.labels_]) ** 2).sum(axis=1).mean()
    assert fitted.score(graph.features) == pytest.approx(-distance, rel=1e-5)


def test_y_is_ignored(graph, fitted):
    other = clusterer("pamcgc", 3, **SMALL).fit(graph.features, graph.labels, adjacency=graph.edges)
    assert np.array_equal(other.embedding_, fitted.embedding_)


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(graph, fitted):
    again = clusterer("pamcgc", 3, **SMALL).fit(graph.features, adjacency=graph.edges)
    assert np.array_equal(again.embedding_, fitted.embedding_)
    assert again.history_ == fitted.history_
    other = clusterer("pamcgc", 3, **{**SMALL, "random_state": 1}).fit(graph.features, adjacency=graph.edges)
    assert not np.array_equal(other.embedding_, fitted.embedding_)


BITS = """
import hashlib, sys, numpy as np, scipy.sparse as sp
from pamc import clusterer
from pamc.data.synthetic import block_model
import pamc.models.products as products
from pamc.initialize import consensus
kind, n_features, products._CUT_HERE = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "cut"
graph = block_model(1500, 4, n_features=n_features, random_state=0)
X = sp.csr_matrix(np.where(graph.features > 2.2, graph.features, 0)) if kind == "sparse" else graph.features
precision = "float64" if kind == "float64" else "float32"
consensus.N_REPEATS = 6
sizes = dict(hidden=(500, 200, 33), n_dims=7, n_epochs=4, pretrain_epochs=2)
model = clusterer("pamcgc", 4, precision=precision, random_state=0, **sizes).fit(X)
parts = [model.embedding_, model.cluster_centers_, np.array(list(model.history_.values()))]
print(hashlib.sha256(b"".join(np.ascontiguousarray(p).tobytes() for p in parts)).hexdigest())
"""


# On an Intel processor only products that are cut into blocks repeat, elsewhere both kinds do.
PRODUCTS = ["cut"] if products._CUT_HERE else ["filled", "cut"]
KINDS = [("dense", 20), ("sparse", 561), ("float64", 33)]


def digest(kind, n_features, products, n_threads):
    threads = {"OMP_NUM_THREADS": n_threads, "MKL_NUM_THREADS": n_threads, "MKL_DYNAMIC": "FALSE"}
    environment = {**os.environ, **threads, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", BITS, kind, str(n_features), products]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_three_threads_give_the_bits_of_one():
    assert len({digest(*KINDS[0], PRODUCTS[0], n_threads) for n_threads in ("1", "3")}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("products", PRODUCTS)
@pytest.mark.parametrize(("kind", "n_features"), KINDS)
def test_any_number_of_threads_gives_the_same_bits(kind, n_features, products):
    assert len({digest(kind, n_features, products, n_threads) for n_threads in ("1", "2", "4")}) == 1


def test_global_random_state_and_arguments_are_left_alone(graph):
    features, edges = graph.features.copy(), graph.edges.copy()
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.random.get_rng_state()
    clusterer("pamcgc", 3, **SMALL).fit(features, adjacency=edges)
    assert np.array_equal(features, graph.features)
    assert np.array_equal(edges, graph.edges)
    assert np.array_equal(numpy_state, np.random.get_state()[1])
    assert torch.equal(torch_state, torch.random.get_rng_state())


@pytest.mark.slow
def test_chunks_change_nothing_but_rounding(graph):
    options = {**SMALL, "precision": "float64"}
    whole = clusterer("pamcgc", 3, **options).fit(graph.features, adjacency=graph.edges)
    chunked = clusterer("pamcgc", 3, chunk_size=77, **options).fit(graph.features, adjacency=graph.edges)
    assert whole.embedding_.dtype == np.float64
    np.testing.assert_allclose(chunked.embedding_, whole.embedding_, atol=1e-8)
    assert np.array_equal(chunked.labels_, whole.labels_)


@pytest.mark.slow
def test_sparse_and_dense_features_give_one_answer(graph):
    features = np.where(graph.features > 0, graph.features, 0)
    options = {**SMALL, "precision": "float64", "preprocessing": "tfidf"}
    dense = clusterer("pamcgc", 3, **options).fit(features, adjacency=graph.edges)
    sparse = clusterer("pamcgc", 3, **options).fit(sp.csr_matrix(features), adjacency=graph.edges)
    assert np.array_equal(dense.labels_, sparse.labels_)
    np.testing.assert_allclose(dense.embedding_, sparse.embedding_, atol=1e-6)


def test_without_a_graph_a_knn_graph_is_built(graph):
    model = clusterer("pamcgc", 3, **SMALL).fit(graph.features)
    assert model.record().facts["graph"] == "knn"
    assert model.record().facts["n_positive_pairs"] > 0


@pytest.mark.slow
def test_it_works_in_a_pipeline_and_in_a_grid_search(graph):
    pipeline = make_pipeline(StandardScaler(), clusterer("pamcgc", 3, **SMALL))
    labels = pipeline.fit_predict(graph.features)
    assert evaluate(graph.labels, labels)["acc"] > 0.8
    quick = clusterer("pamcgc", 3, **{**SMALL, "init": "propagated_svd"})
    search = GridSearchCV(quick, {"n_clusters": [2, 3], "advanced__tau": [0.25]}, cv=2).fit(graph.features)
    assert search.best_estimator_.config.tau == 0.25
    assert search.best_params_["n_clusters"] in (2, 3)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_clone_has_the_same_parameters_and_no_results(fitted):
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    assert not hasattr(copied, "labels_")


def test_known_labels_name_the_clusters(graph):
    known = np.where(np.arange(300) < 60, graph.labels, -1)
    model = clusterer("pamcgc", 3, **SMALL).fit(graph.features, adjacency=graph.edges, known_labels=known)
    assert (model.labels_ == graph.labels).mean() > 0.9


@pytest.mark.parametrize(
    "known", [np.zeros(5, int), np.full(300, 3), np.full(300, -2), np.zeros(300)], ids=["size", "high", "low", "float"]
)
def test_wrong_known_labels_are_refused(graph, known):
    with pytest.raises(DataError, match="known_labels"):
        clusterer("pamcgc", 3, **SMALL).fit(graph.features, known_labels=known)


def test_one_cluster_is_legal_and_warns(graph):
    with pytest.warns(CollapseWarning):
        model = clusterer("pamcgc", 1, **SMALL).fit(graph.features)
    assert (model.labels_ == 0).all()
    assert model.history_["proxy"] == [0] * 8


def test_three_rows_are_enough():
    with pytest.warns(DataWarning, match="all are used"):
        model = clusterer("pamcgc", 2, **SMALL).fit(np.array([[0.0, 1.0], [5.0, 5.0], [0.1, 1.1]]))
    assert len(model.labels_) == 3


def test_zero_rows_constant_columns_and_components_are_fine(graph):
    features = graph.features.copy()
    features[:5] = 0
    features[:, 0] = 7
    halves = np.array([[i, i + 1] for i in range(0, 298, 2)])
    model = clusterer("pamcgc", 3, **SMALL).fit(features, adjacency=halves)
    assert np.isfinite(model.embedding_).all()
    assert len(np.unique(model.labels_)) > 1


@pytest.mark.parametrize(
    ("X", "parameters", "error", "message"),
    [
        (np.zeros((0, 3)), {}, ValueError, "0 sample"),
        (np.ones((5, 2)), {"n_clusters": 2}, DataError, "distinct rows, 1"),
        (np.eye(4), {"n_clusters": 5}, ConfigError, "n_samples=4"),
        (np.eye(4), {"n_clusters": 0}, ConfigError, "n_clusters"),
        (np.array([[1.0, np.nan], [1, np.nan], [3, np.nan]]), {"n_clusters": 2}, DataError, "column 1 has no values"),
        (np.array([[1.0, 2], [np.inf, 2], [3, 4]]), {"n_clusters": 2}, DataError, "inf: row 1, column 0"),
        (np.eye(4), {"n_clusters": 2, "proxy": "eq7"}, UnknownNameError, "proxy"),
        (np.eye(4), {"n_clusters": 2, "device": "gpu"}, UnknownNameError, "device"),
    ],
)
def test_bad_input_says_what_is_wrong(X, parameters, error, message):
    with pytest.raises(error, match=message):
        clusterer("pamcgc", **{**SMALL, **parameters}).fit(X)


@pytest.mark.filterwarnings("ignore::pamc.errors.DataWarning")
@pytest.mark.parametrize(
    "adjacency", [sp.csr_matrix((6, 6)), sp.eye(6), np.zeros((2, 0), int)], ids=["empty", "loops", "list"]
)
def test_a_graph_without_edges_between_rows_is_refused(adjacency):
    with pytest.raises(DataError, match="no edges"):
        clusterer("pamcgc", 2, **SMALL).fit(np.eye(6), adjacency=adjacency)


@pytest.mark.fast_variants(2)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.uint8, bool])
def test_all_number_types_are_taken(graph, dtype):
    features = (graph.features * 10).astype(np.int64).clip(0, 200).astype(dtype)
    model = clusterer("pamcgc", 2, **SMALL).fit(features, adjacency=graph.edges)
    assert model.embedding_.dtype == np.float32


def test_a_torch_tensor_is_taken(graph, fitted):
    tensor = torch.from_numpy(graph.features)
    assert np.array_equal(clusterer("pamcgc", 3, **SMALL).fit(tensor, adjacency=graph.edges).labels_, fitted.labels_)
    assert np.array_equal(fitted.predict(tensor), fitted.labels_)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(8, 4)

    def forward(self, x):
        return torch.tanh(self.map(x))


def test_an_encoder_of_ones_own_is_copied_trained_saved_and_loaded(graph, tmp_path):
    torch.manual_seed(0)
    encoder = Encoder()
    before = copy.deepcopy(encoder.state_dict())
    model = clusterer("pamcgc", 3, encoder=encoder, **SMALL).fit(graph.features, adjacency=graph.edges)
    assert model.embedding_.shape == (300, 4)
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    assert not torch.equal(model._fit_result.encoder.map.weight, encoder.map.weight)
    model.save(tmp_path / "run")
    with pytest.raises(ConfigError, match="encoder="):
        PamCGC.load(tmp_path / "run")
    loaded = PamCGC.load(tmp_path / "run", encoder=Encoder())
    assert np.array_equal(loaded.predict(graph.features), model.labels_)


def sdcn_state(sizes=(8, 16, 5)):
    names = ["enc_1", "enc_2", "enc_3", "z_layer"]
    layers = list(pairwise(sizes))
    return {
        f"{name}.{kind}": torch.randn(*((n_out, n_in) if kind == "weight" else (n_out,)))
        for name, (n_in, n_out) in zip(names, layers, strict=True)
        for kind in ("weight", "bias")
    }


def test_pretrained_weights_in_sdcns_layout_replace_pretraining(graph, tmp_path):
    state = sdcn_state((8, 6, 6, 7, 5))
    path = tmp_path / "weights.pkl"
    torch.save(state, path)
    options = {**SMALL, "hidden": (6, 6, 7), "n_epochs": 0, "preprocessing": "none"}
    model = clusterer("pamcgc", 3, pretrained=str(path), **options).fit(graph.features, adjacency=graph.edges)
    x = torch.from_numpy(graph.features)
    for name in ("enc_1", "enc_2", "enc_3"):
        x = torch.relu(x @ state[f"{name}.weight"].T + state[f"{name}.bias"])
    x = x @ state["z_layer.weight"].T + state["z_layer.bias"]
    np.testing.assert_allclose(model.embedding_, x.numpy(), rtol=1e-3, atol=1e-4)


def test_wrong_pretrained_files_are_refused(graph, tmp_path):
    good = sdcn_state((8, 6, 6, 7, 5))
    torch.save({**good, "enc_1.weight": torch.zeros(2, 2)}, tmp_path / "shape.pkl")
    torch.save({k: v for k, v in good.items() if k != "enc_2.bias"}, tmp_path / "missing.pkl")
    (tmp_path / "junk.pkl").write_bytes(b"not weights")
    options = {**SMALL, "hidden": (6, 6, 7)}
    for name, message in [
        ("shape.pkl", "shape"),
        ("missing.pkl", "no enc_2.bias"),
        ("junk.pkl", "not a file of weights"),
        ("no.pkl", "no such"),
    ]:
        with pytest.raises(DataError, match=message):
            clusterer("pamcgc", 3, pretrained=str(tmp_path / name), **options).fit(graph.features)
    torch.save(good, tmp_path / "good.pkl")
    with pytest.raises(DataError, match="4 encoder layers"):
        clusterer("pamcgc", 3, pretrained=str(tmp_path / "good.pkl"), **SMALL).fit(graph.features)


def test_settings_come_and_go_as_one_record():
    config = FitConfig(n_clusters=4, tau=0.25)
    assert PamCGC.from_config(config).config == config


def test_progress_is_shown_on_standard_error_only(graph, capfd):
    clusterer("pamcgc", 3, verbose=True, **SMALL).fit(graph.features, adjacency=graph.edges)
    out, err = capfd.readouterr()
    assert out == ""
    assert "pre-training" in err
    assert "loss" in err


def test_an_unknown_method_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'pamcgc'"):
        clusterer("pamgc")


def test_importing_pamc_is_lazy():
    code = "import sys, pamc; assert 'torch' not in sys.modules; assert 'sklearn' not in sys.modules; print(dir(pamc))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "PamCGC" in done.stdout
    import pamc

    with pytest.raises(AttributeError, match="it has Advanced, AttributedGraph"):
        pamc.PamCCG  # noqa: B018


CORE_ONLY = """
import sys
sys.modules.update(dict.fromkeys(("typer", "rich", "duckdb", "torch_geometric", "anndata")))
from pamc import PamCGC
from pamc.data.synthetic import block_model
graph = block_model(100, 2, random_state=0)
model = PamCGC(2, n_epochs=2, advanced={"hidden": (8,), "pretrain_epochs": 1}, random_state=0)
model.fit(graph.features, adjacency=graph.edges)
model.save(sys.argv[1])
print(len(PamCGC.load(sys.argv[1]).predict(graph.features)))
"""


@pytest.mark.slow
def test_the_core_trains_with_its_five_packages_alone(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", CORE_ONLY, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "100", done.stderr


def test_no_source_file_reads_or_writes_pickle():
    import pamc

    for path in Path(pamc.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "import pickle" not in text
        assert "allow_pickle=True" not in text


def test_lost_clusters_are_said_once_and_not_every_epoch(graph):
    with pytest.warns() as caught:
        model = clusterer("pamcgc", 1, **SMALL).fit(graph.features)
    assert [warning.category for warning in caught] == [CollapseWarning]
    assert len(model.record().warnings) == 1
