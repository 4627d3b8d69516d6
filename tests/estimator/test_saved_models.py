import json
import struct

import numpy as np
import pytest
import torch

from pamc import PamCGC, clusterer
from pamc.data.synthetic import block_model
from pamc.errors import DataError, ModelFileError, OutputError, UnknownNameError
from pamc.results.record import RunRecord
from pamc.results.run_folder import new_run_folder, next_free_folder, write_labels
from pamc.results.saved_fit import FORMAT_VERSION, read_model


@pytest.fixture(scope="module")
def graph():
    return block_model(200, 3, n_features=8, feature_noise=0.5, random_state=0)


@pytest.fixture(scope="module")
def model(graph):
    options = {"hidden": (16,), "n_dims": 5, "n_epochs": 3, "pretrain_epochs": 2, "n_init": 2, "random_state": 0}
    return clusterer("pamcgc", 3, **options).fit(graph.features, adjacency=graph.edges)


@pytest.fixture
def run(model, tmp_path):
    model.save(tmp_path / "run")
    return tmp_path / "run"


def test_a_run_folder_holds_labels_embedding_model_and_record(run, model):
    files = ["embedding.npy", "labels.csv", "model.safetensors", "run.json"]
    assert sorted(path.name for path in run.iterdir()) == files
    lines = (run / "labels.csv").read_text().splitlines()
    assert lines[0] == "id,cluster,confidence"
    assert [int(line.split(",")[1]) for line in lines[1:]] == model.labels_.tolist()
    record = RunRecord.from_json((run / "run.json").read_text())
    assert record.selection == "last"
    assert record.cluster_sizes == np.bincount(model.labels_).tolist()
    assert record.history == model.history_
    assert set(record.scores) == {"modularity", "silhouette", "objective"}


@pytest.mark.fast_variants(2)
@pytest.mark.parametrize("preprocessing", ["none", "scale", "standardize", "unit", "rms", "tfidf"])
def test_a_loaded_model_predicts_the_same_bits(graph, preprocessing, tmp_path):
    features = np.abs(graph.features)
    options = {"hidden": (16,), "n_epochs": 2, "pretrain_epochs": 1, "n_init": 1, "random_state": 0}
    model = clusterer("pamcgc", 3, preprocessing=preprocessing, **options).fit(features, adjacency=graph.edges)
    model.save(tmp_path / "run")
    loaded = PamCGC.load(tmp_path / "run")
    for name in ("labels_", "confidence_", "embedding_", "cluster_centers_", "meta_nodes_"):
        assert np.array_equal(getattr(loaded, name), getattr(model, name))
    assert np.array_equal(loaded.predict_proba(features), model.predict_proba(features))
    assert loaded.history_ == model.history_
    settings = {"n_dims": model.embedding_.shape[1], "batch_size": 64, "n_hops": 2, "embedding_scale": 2.0, "tol": 1e-3}
    assert loaded.config == model.config.with_(alpha=model.record().config["alpha"], **settings)
    assert loaded.record().config == model.record().config


def test_a_loaded_model_can_be_saved_again(run, tmp_path):
    PamCGC.load(run).save(tmp_path / "again")
    (tensors, about), (again, about_again) = (read_model(f / "model.safetensors") for f in (run, tmp_path / "again"))
    assert about == about_again
    assert tensors.keys() == again.keys()
    assert all(torch.equal(tensors[name], again[name]) for name in tensors)


def test_a_truncated_model_is_refused(run):
    path = run / "model.safetensors"
    data = path.read_bytes()
    for size in (0, 4, 100, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(ModelFileError, match="damaged"):
            PamCGC.load(run)


@pytest.mark.parametrize("place", [-1, -5000])
def test_a_tampered_model_is_refused(run, place):
    path = run / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="changed after it was written"):
        PamCGC.load(run)


def rewrite_metadata(path, **changes):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"].update(changes)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "not written by pamc"),
        ({"format_version": str(FORMAT_VERSION + 1)}, f"reads version {FORMAT_VERSION}"),
        ({"description": "{}"}, "changed after it was written"),
    ],
)
def test_a_foreign_newer_or_edited_model_is_refused(run, changes, message):
    rewrite_metadata(run / "model.safetensors", **changes)
    with pytest.raises(ModelFileError, match=message):
        PamCGC.load(run)


def test_a_missing_model_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match="no such model file"):
        PamCGC.load(tmp_path)


def test_weights_that_do_not_fit_ones_own_encoder_are_refused(graph, tmp_path):
    from torch import nn

    options = {"n_epochs": 1, "n_init": 1, "random_state": 0}
    clusterer("pamcgc", 3, encoder=nn.Linear(8, 4), **options).fit(graph.features).save(tmp_path / "run")
    with pytest.raises(ModelFileError, match="do not fit"):
        PamCGC.load(tmp_path / "run", encoder=nn.Linear(8, 5))


def test_an_existing_run_is_replaced_only_when_asked(run, model):
    with pytest.raises(OutputError, match="--overwrite"):
        model.save(run)
    before = (run / "run.json").stat().st_ino
    model.save(run, overwrite=True)
    assert (run / "run.json").stat().st_ino != before
    assert [path.name for path in run.parent.iterdir()] == ["run"]


def test_a_folder_of_other_files_is_never_replaced(model, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="never replaced"):
        model.save(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_file_in_the_way_and_an_unwritable_place_are_refused(model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file"):
        model.save(tmp_path / "file")
    with pytest.raises(OutputError, match="cannot write"):
        model.save(tmp_path / "file" / "below")
    with pytest.raises(OutputError, match="cannot write"):
        model.save("/proc/pamc-run")


def test_an_empty_folder_is_used(model, tmp_path):
    (tmp_path / "run").mkdir()
    model.save(tmp_path / "run")
    assert (tmp_path / "run" / "run.json").is_file()


def test_a_full_disk_leaves_nothing_behind(model, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OutputError, match="No space left"):
        model.save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing_behind(tmp_path):
    with pytest.raises(KeyboardInterrupt), new_run_folder(tmp_path / "run") as partial:
        (partial / "half").write_text("")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_two_runs_cannot_write_one_folder(tmp_path):
    with (
        new_run_folder(tmp_path / "run"),
        pytest.raises(OutputError, match="another run is writing"),
        new_run_folder(tmp_path / "run"),
    ):
        pass
    assert next_free_folder(tmp_path, "run").name == "run-1"
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-2.partial").mkdir()
    assert next_free_folder(tmp_path, "run").name == "run-3"


@pytest.mark.parametrize("ids", [np.array(["a,b", 'c"d', "é\n"]), np.arange(3)])
def test_labels_are_written_as_csv_and_parquet(ids, tmp_path):
    import duckdb

    labels, confidence = np.array([0, 1, 1]), np.array([0.5, 0.25, 1.0])
    for file_format in ("csv", "parquet"):
        path = write_labels(tmp_path, ids, labels, confidence, file_format=file_format)
        rows = duckdb.sql(f"SELECT * FROM '{path}'").fetchall()
        assert [str(row[0]) for row in rows] == [str(i) for i in ids]
        assert [row[1] for row in rows] == labels.tolist()
        assert [row[2] for row in rows] == confidence.tolist()
    with pytest.raises(UnknownNameError, match="csv, parquet"):
        write_labels(tmp_path, ids, labels, confidence, file_format="xlsx")


def test_other_columns_than_the_fitted_ones_are_refused(graph):
    import pandas as pd

    names = [f"f{i}" for i in range(8)]
    frame = pd.DataFrame(graph.features, columns=names)
    model = clusterer("pamcgc", 3, hidden=(8,), n_epochs=1, pretrain_epochs=1, n_init=1, random_state=0).fit(frame)
    model.check_feature_names(tuple(names))
    model.check_feature_names(None)
    with pytest.raises(DataError, match="another order"):
        model.check_feature_names(tuple(reversed(names)))
    with pytest.raises(DataError, match="missing: f0; not seen in training: g"):
        model.check_feature_names(("g", *names[1:]))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[names[::-1]])
