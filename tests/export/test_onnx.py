"""An exported graph gives the clusters, probabilities, confidence and noise of `predict`."""

import os

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from pamc import PamCGC, clusterer
from pamc.errors import BackendError, ConfigError, DataWarning, OutputError, PamcWarning
from pamc.estimator import export as exporting
from pamc.estimator.export import onnx_inputs
from tests.noise.planted import embeddings

pytest.importorskip("onnx", reason='needs pip install "pamc[export]"')
onnxruntime = pytest.importorskip("onnxruntime", reason='needs pip install "pamc[export]"')

pytestmark = pytest.mark.usefixtures("few_repeats")
SMALL = {"n_epochs": 5, "random_state": 0, "device": "cpu"}


def outputs(model, path, X):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, onnx_inputs(model, X)), strict=True))


def assert_same(model, path, X, *, label_share=1.0):
    """Compare all outputs of the graph with the model; a label may differ where two clusters are equally probable."""
    found = outputs(model, path, X)
    labels, confidence = model.predict_with_confidence(X)
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(found["embedding"], model.transform(X), atol=1e-3)
    assert (found["label"] == labels).mean() >= label_share
    assert np.quantile(np.abs(found["confidence"] - confidence), 0.99) < 1e-3
    if "noise" in found:
        assert (found["noise"] == 0).tolist() == (found["label"] >= 0).tolist()


def blobs(n_columns=6, *, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=240)
    X = 5.0 * rng.normal(size=(3, n_columns))[y] + rng.normal(size=(240, n_columns))
    X[rng.random(X.shape) < missing] = np.nan
    return X.astype(np.float32)


@pytest.mark.parametrize("kind", ["none", "scale", "standardize", "unit", "rms", "tfidf"])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_every_preprocessing_is_in_the_graph(kind, missing, tmp_path):
    X = np.abs(blobs(missing=missing))
    model = PamCGC(3, advanced={"hidden": (16,), "preprocessing": kind}, **SMALL).fit(X)
    path = model.export(tmp_path / "model.onnx")
    new = np.abs(blobs(missing=0.2, seed=1))
    new[0] = 0
    for rows in (X, new):
        assert_same(model, path, rows)


@pytest.mark.parametrize("n_components", [1, 4])
def test_missing_cells_are_imputed_by_the_same_mixture(n_components, tmp_path, monkeypatch):
    monkeypatch.setattr("pamc.data.completion._n_components", lambda *_: n_components)
    X = blobs(missing=0.15)
    model = PamCGC(3, advanced={"hidden": (16,), "preprocessing": "standardize"}, **SMALL).fit(X)
    assert len(model._fit_result.preprocessing.arrays["hidden_weights"]) == n_components
    path = model.export(tmp_path / "model.onnx")
    assert_same(model, path, np.vstack([X, blobs(missing=0.6, seed=2), np.full((1, 6), np.nan)]))


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_noise_and_either_precision_are_in_the_graph(precision, tmp_path):
    X, y = embeddings(240, 24, 3, spread=0.5)
    expert = {"hidden": (16,), "precision": precision}
    model = PamCGC(3, min_confidence=0.7, advanced=expert, **SMALL).fit(X)
    path = model.export(tmp_path / "model.onnx")
    found = outputs(model, path, X)
    assert found["probabilities"].dtype == precision
    assert (found["label"][y < 0] == -1).mean() > 0.9
    assert_same(model, path, X)


def test_one_cluster_sparse_rows_and_a_few_rows_are_fine(tmp_path):
    X = sp.random(200, 60, density=0.05, random_state=0, dtype=np.float32, format="csr")
    model = PamCGC(2, advanced={"hidden": (16,)}, **SMALL).fit(X)
    assert_same(model, model.export(tmp_path / "sparse.onnx"), X)
    with pytest.warns(PamcWarning):
        single = PamCGC(1, advanced={"hidden": (16,)}, **SMALL).fit(blobs())
    assert_same(single, single.export(tmp_path / "single.onnx"), blobs()[:1])
    kmeans = clusterer("kmeans", 3, random_state=0).fit(blobs())
    assert_same(kmeans, kmeans.export(tmp_path / "kmeans.onnx"), blobs())


def test_a_table_of_mixed_types_has_one_input_per_column(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=240)
    frame = pandas.DataFrame(
        {
            "income": np.round(rng.normal([20, 60, 45], 4, (240, 3))[np.arange(240), kind], 1),
            "city": rng.choice(["Köln", "Rome", "Oslo"], 240),
            "member": np.where(rng.random(240) < 0.3 + 0.2 * kind, "yes", "no"),
            "size": rng.choice(["S", "M", "L"], 240),
            "since": pandas.Timestamp("2019-05-04") + pandas.to_timedelta(rng.integers(0, 2000, 240), "D"),
            "note": np.where(rng.random(240) < 0.5, "x y", None),
        }
    )
    for name in frame.columns[:5]:
        frame.loc[rng.random(240) < 0.05, name] = None
    types = {"size": ["S", "M", "L"], "note": "ignore"}
    model = PamCGC(3, types=types, advanced={"hidden": (16,)}, min_confidence=0.5, **SMALL).fit(frame)
    path = model.export(tmp_path / "model.onnx")
    new = frame.copy()
    new.loc[:5, "city"] = "Paris"
    for rows in (frame, new, frame.iloc[:1]):
        assert_same(model, path, rows)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert {item.name for item in session.get_inputs()} == {"income", "city", "member", "size", "since"}


def test_empty_cells_that_count_as_a_value_are_one_in_the_graph_too(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    owns = np.repeat([True, False], 120)
    frame = pandas.DataFrame(
        {
            "income": np.round(np.where(owns, 80, 20) + rng.normal(0, 5, 240), 1),
            "boat": np.where(owns, rng.choice(["sail", "motor"], 240), None),
        }
    )
    with pytest.warns(DataWarning, match="empty cells count as a value"):
        model = PamCGC(2, advanced={"hidden": (16,)}, **SMALL).fit(frame)
    assert model.columns_.variables[1].levels[-1] == "(missing)"
    assert_same(model, model.export(tmp_path / "model.onnx"), frame)


def test_free_text_and_a_custom_encoder_are_refused_with_the_reason(tmp_path):
    pandas = pytest.importorskip("pandas")
    words = np.array(["alpha", "beta", "gamma", "delta", "omega"])
    texts = [" ".join(words[row]) for row in np.random.default_rng(0).integers(5, size=(240, 2))]
    frame = pandas.DataFrame({"a": blobs()[:, 0], "b": blobs()[:, 1], "words": texts})
    model = PamCGC(3, types={"words": "text"}, advanced={"hidden": (16,)}, **SMALL).fit(frame)
    with pytest.raises(ConfigError, match="column 'words' is free text"):
        model.export(tmp_path / "model.onnx")
    own = PamCGC(3, encoder=torch.nn.Linear(6, 4), **SMALL).fit(blobs())
    with pytest.raises(ConfigError, match="only models with pamc's own encoder can be exported"):
        own.export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_wrong_graph_an_existing_file_and_another_ending_are_refused(tmp_path, monkeypatch):
    model = PamCGC(3, advanced={"hidden": (16,)}, **SMALL).fit(blobs())
    model.export(tmp_path / "model.onnx")
    with pytest.raises(OutputError, match="pass overwrite=True"):
        model.export(tmp_path / "model.onnx")
    with pytest.raises(ConfigError, match="must end in"):
        model.export(tmp_path / "model.pt")
    run = exporting._run
    monkeypatch.setattr(exporting, "_run", lambda *given: [0.9 * part for part in run(*given)])
    with pytest.raises(BackendError, match="the exported graph differs from predict by"):
        model.export(tmp_path / "other.onnx")
    assert not (tmp_path / "other.onnx").exists()


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_the_packages_the_error_says_how_to_get_them(package, tmp_path, monkeypatch):
    model = PamCGC(3, advanced={"hidden": (16,)}, **SMALL).fit(blobs())
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(BackendError, match=r'pip install "pamc\[export\]"'):
        model.export(tmp_path / "model.onnx")


DATA = os.environ.get("PAMC_DATA")


@pytest.mark.slow
@pytest.mark.skipif(DATA is None, reason="PAMC_DATA names no folder of data sets")
@pytest.mark.parametrize("name", ["usps", "acm", "news4", "tables/pendigits", "tables/isolet", "tables/vote"])
def test_real_data_of_every_kind_give_the_labels_of_predict(name, tmp_path):
    file = np.load(f"{DATA}/{name}.npz")
    if "x" in file:
        X = file["x"]
    else:
        X = sp.csr_matrix((file["x_data"], file["x_indices"].astype(int), file["x_indptr"]), shape=file["x_shape"])
    model = PamCGC(4, advanced={"hidden": (64,)}, **SMALL).fit(X.astype(np.float32))
    assert_same(model, model.export(tmp_path / "model.onnx"), X.astype(np.float32), label_share=0.999)


@pytest.mark.slow
@pytest.mark.skipif(DATA is None, reason="PAMC_DATA names no folder of data sets")
@pytest.mark.filterwarnings("ignore::pamc.errors.DataWarning")
@pytest.mark.parametrize("name", ["anneal", "autos", "credit_a", "heart_c", "mushroom", "zoo"])
def test_real_tables_of_mixed_types_give_the_labels_of_predict(name, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(f"{DATA}/mixed/{name}.csv", dtype=str)
    model = PamCGC(4, advanced={"hidden": (64,)}, **SMALL).fit(frame)
    assert_same(model, model.export(tmp_path / "model.onnx"), frame, label_share=0.999)


@pytest.mark.filterwarnings("ignore::pamc.errors.PamcWarning")
def test_models_of_graphs_relations_images_and_weights_are_exported_by_their_features(tmp_path):
    X = blobs(16)
    near = np.square(X[:, None] - X).sum(axis=2) < 60
    adjacency = sp.csr_matrix(near & ~np.eye(240, dtype=bool), dtype=float)
    fits = {
        "graph": {"adjacency": adjacency},
        "relations": {"adjacency": {"one": adjacency, "two": adjacency}},
        "weights": {"sample_weight": np.arange(240) % 3},
        "images": {},
    }
    for name, arguments in fits.items():
        shape = {"image_shape": (4, 4)} if name == "images" else {}
        model = PamCGC(3, advanced={"hidden": (16,)}, **SMALL, **shape).fit(X, **arguments)
        assert_same(model, model.export(tmp_path / f"{name}.onnx"), X)


@pytest.mark.filterwarnings("ignore::pamc.errors.PamcWarning")
def test_a_model_of_a_graph_alone_has_no_features_to_export(tmp_path):
    third = np.arange(60) // 20
    edges = [(i, j) for i in range(60) for j in range(i) if third[i] == third[j] and (i + j) % 3]
    model = PamCGC(3, advanced={"hidden": (16,)}, **SMALL).fit(adjacency=np.array(edges))
    with pytest.raises(ConfigError, match="fitted to a graph without features"):
        model.export(tmp_path / "model.onnx")
