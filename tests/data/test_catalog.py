"""Known data sets: found, checked, or refused with what to do."""

import io
import re

import numpy as np
import pytest
import scipy.sparse as sp

from pamc.data.catalog import CATALOG, DataSet, available, cache_folder, load_dataset
from pamc.data.files import sha256_of
from pamc.errors import UnknownNameError

REAL = sorted(set(CATALOG) - {"digits", "reut"})
X, Y, EDGES = np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1]), np.array([[0, 1], [1, 2], [2, 3]])


def npz_bytes(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


TOY = npz_bytes(x=X, y=Y, edges=EDGES)


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """Give every test an empty cache and data folder of its own."""
    monkeypatch.setenv("PAMC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PAMC_DATA", raising=False)
    (tmp_path / "data").mkdir()
    return tmp_path


def add_row(monkeypatch, **changes):
    parts = {
        "name": "toy",
        "title": "A toy",
        "n_nodes": 4,
        "n_features": 4,
        "n_classes": 2,
        "n_edges": 3,
        "kind": "table",
        "modality": "record",
        "sparse": False,
        "source": "the toy shop",
    }
    row = DataSet(**{**parts, **changes})
    monkeypatch.setitem(CATALOG, row.name, row)
    return row


# The rows


def test_every_row_is_filed_under_its_name_with_statistics_and_a_source():
    for name, row in CATALOG.items():
        assert row.name == name
        assert min(row.n_nodes, row.n_features, row.n_classes) > 1
        assert row.source
        assert (row.n_edges == 0) == (name == "digits")
        assert row.sha256 is None or re.fullmatch("[0-9a-f]{64}", row.sha256)


def test_the_sets_of_the_paper_and_the_extras_are_known():
    assert {"usps", "hhar", "reut", "acm", "cite", "dblp"} <= set(CATALOG)
    assert {"cora", "amazon_photo", "news4", "reut21578_4", "digits"} <= set(CATALOG)


# The real files


@pytest.mark.parametrize("name", REAL)
def test_a_real_set_has_the_statistics_and_the_checksum_of_its_row(data_folder, name):
    row, graph = CATALOG[name], load_dataset(name, root=data_folder)
    assert (graph.n_nodes, graph.n_features, graph.n_edges) == (row.n_nodes, row.n_features, row.n_edges)
    assert sorted(set(graph.labels.tolist())) == list(range(row.n_classes))
    assert graph.edges.shape == (2, row.n_edges)
    assert sp.issparse(graph.features) == row.sparse
    assert graph.edges_are_neighbors == (row.kind == "table")
    assert graph.name == name
    assert sha256_of(data_folder / f"{name}.npz") == row.sha256


def test_reut_without_features_is_refused_and_the_stand_ins_are_named(data_folder, refusal):
    assert (data_folder / "reut_graph_only.npz").exists()
    assert available("reut", root=data_folder) is None
    message = refusal(load_dataset, "reut", root=data_folder)
    assert all(part in message for part in ("features are not public", "news4", "reut21578_4", "reut_graph_only.npz"))


# Finding


def test_digits_come_with_scikit_learn():
    graph = load_dataset("digits")
    assert (graph.n_nodes, graph.n_features, len(set(graph.labels.tolist()))) == (1797, 64, 10)
    assert graph.features.dtype == np.float32
    assert (graph.features.min(), graph.features.max()) == (0, 16)
    assert graph.edges is None
    assert available("digits") == "scikit-learn"


def test_an_unknown_name_is_refused_with_the_near_miss(refusal):
    for function in (load_dataset, available):
        assert "did you mean 'usps'?" in refusal(function, "usp", error=UnknownNameError)


def test_a_set_is_looked_for_in_root_then_the_data_folder_then_the_cache(places, monkeypatch):
    add_row(monkeypatch)
    assert available("toy") is None
    cached, own, root = (places / folder / "toy.npz" for folder in ("cache", "data", "root"))
    for path in (cached, root):
        path.parent.mkdir()
    cached.write_bytes(TOY)
    assert available("toy") == str(cached)
    monkeypatch.setenv("PAMC_DATA", str(own.parent))
    assert available("toy") == str(cached)
    own.write_bytes(TOY)
    assert available("toy") == str(own)
    assert available("toy", root=root.parent) == str(cached)
    root.write_bytes(TOY)
    assert available("toy", root=root.parent) == str(root)
    assert load_dataset("toy", root=root.parent).n_nodes == 4


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("PAMC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "pamc"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "pamc"


def test_a_loaded_set_carries_labels_edges_and_its_name(places, monkeypatch):
    add_row(monkeypatch)
    (places / "data" / "toy.npz").write_bytes(TOY)
    graph = load_dataset("toy", root=places / "data")
    assert graph.labels.tolist() == Y.tolist()
    assert (graph.edges == EDGES.T).all()
    assert graph.edges_are_neighbors
    assert graph.name == "toy"
    add_row(monkeypatch, kind="graph")
    assert not load_dataset("toy", root=places / "data").edges_are_neighbors


# Refusing


def test_a_missing_set_is_refused_with_source_layout_and_place(places, monkeypatch, refusal):
    add_row(monkeypatch, note="sold out")
    monkeypatch.setenv("PAMC_DATA", str(places / "data"))
    message = refusal(load_dataset, "toy")
    assert str(places / "data" / "toy.npz") in message
    assert str(places / "cache" / "toy.npz") in message
    assert all(
        part in message for part in ("the toy shop", "sold out", "$PAMC_DATA", "x (N, d)", "does not distribute")
    )


@pytest.mark.parametrize("statistic", ["n_nodes", "n_features", "n_classes", "n_edges"])
def test_a_set_with_other_statistics_is_refused(places, monkeypatch, refusal, statistic):
    row = add_row(monkeypatch)
    add_row(monkeypatch, **{statistic: getattr(row, statistic) + 1})
    (places / "data" / "toy.npz").write_bytes(TOY)
    message = refusal(load_dataset, "toy", root=places / "data")
    assert f"has {statistic} = {getattr(row, statistic)}, expected {getattr(row, statistic) + 1}" in message


def test_a_set_without_labels_has_the_wrong_number_of_classes(places, monkeypatch, refusal):
    add_row(monkeypatch)
    (places / "data" / "toy.npz").write_bytes(npz_bytes(x=X, edges=EDGES))
    assert "n_classes = 0" in refusal(load_dataset, "toy", root=places / "data")


@pytest.mark.parametrize(("note", "ending"), [("", ""), ("sold out", "Note: sold out")])
def test_a_file_without_features_is_refused_with_the_note(places, monkeypatch, refusal, note, ending):
    add_row(monkeypatch, note=note)
    (places / "data" / "toy.npz").write_bytes(npz_bytes(y=Y, edges=EDGES))
    message = refusal(load_dataset, "toy", root=places / "data")
    assert "data set 'toy'" in message
    assert "has no features" in message
    assert message.endswith(ending)
