"""The store: what is written is what is read, whole or absent, and damage is named."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pamc.data.store import index_dtype, is_store, open_store
from pamc.data.store.writer import StoreWriter
from pamc.errors import ConfigError, OutputError
from pamc.graph.adjacency import build_adjacency

FEATURES = np.arange(12, dtype=np.float32).reshape(4, 3)
# 0–1, 0–2, 1–2; row 3 has no neighbor.
INDPTR = [0, 2, 4, 6, 6]
INDICES = [1, 2, 0, 2, 0, 1]
WEIGHT = [1, 2, 1, 3, 2, 3]


def write_store(out, *, dtype="float32", weight=None, labels=None, ids=None, edges=True, **options):
    with StoreWriter(out, overwrite=options.pop("overwrite", False)) as writer:
        writer.create("features", FEATURES.shape, dtype)[:] = FEATURES
        if edges:
            writer.create("indptr", 5, "int64")[:] = INDPTR
            writer.create("indices", 6, "int32")[:] = INDICES
        for name, values, kind in (("weight", weight, "f4"), ("labels", labels, "i8"), ("ids", ids, "i8")):
            if values is not None:
                writer.create(name, len(values), kind)[:] = values
        return writer.finish(**options)


@pytest.fixture
def store(tmp_path):
    return write_store(tmp_path / "s", weight=WEIGHT, labels=[1, 0, 0, 1], feature_names=["a", "b", "c"], sources=["x"])


def change_manifest(store, **changes):
    path = store.folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_what_was_written_is_read_back_as_read_only_maps(store):
    again = open_store(store.folder)
    assert (again.n_nodes, again.n_features, again.n_stored) == (4, 3, 6)
    assert (again.features == FEATURES).all()
    assert again.indptr.tolist() == INDPTR
    assert again.indices.tolist() == INDICES
    assert again.weight.tolist() == WEIGHT
    assert again.labels.tolist() == [1, 0, 0, 1]
    assert again.ids(1, 3).tolist() == [1, 2]
    assert again.feature_names == ("a", "b", "c")
    assert again.manifest["sources"] == ["x"]
    for array in (again.features, again.indptr, again.indices, again.weight, again.labels):
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable
    assert again.n_bytes == sum(p.stat().st_size for p in store.folder.iterdir() if p.name != "manifest.json")
    again.verify()


def test_nothing_but_the_store_is_left(store):
    assert sorted(p.name for p in store.folder.parent.iterdir()) == ["s"]
    names = {"features.npy", "indptr.npy", "indices.npy", "weight.npy", "labels.npy", "manifest.json"}
    assert {p.name for p in store.folder.iterdir()} == names


def test_a_graph_lists_each_pair_once(store):
    graph = store.to_graph()
    assert graph.edges.tolist() == [[0, 0, 1], [1, 2, 2]]
    assert graph.edge_weight.tolist() == [1, 2, 3]
    assert graph.labels.tolist() == [1, 0, 0, 1]
    assert graph.ids is None
    assert graph.name == "s"
    assert (graph.features == FEATURES).all()


def test_a_store_of_rows_alone_has_no_edges(tmp_path):
    store = write_store(tmp_path / "s", edges=False)
    assert not store.has_edges
    assert store.n_stored == 0
    assert store.indptr.tolist() == [0] * 5
    assert store.to_graph().edges is None


def test_a_graph_without_edges_is_a_graph(tmp_path):
    with StoreWriter(tmp_path / "s") as writer:
        writer.create("features", (1, 1), "float32")[:] = 7
        writer.create("indptr", 2, "int64")
        writer.create("indices", 0, "int32")
        store = writer.finish()
    assert store.has_edges
    assert store.to_graph().edges.shape == (2, 0)
    store.verify()


def test_half_precision_is_stored_and_widened(tmp_path):
    store = write_store(tmp_path / "s", dtype="float16")
    assert store.features.dtype == np.float16
    assert store.to_graph().features.dtype == np.float32


def test_integer_ids_are_kept(tmp_path):
    store = write_store(tmp_path / "s", ids=[40, 10, 30, 20])
    assert store.id_kind == "integers"
    assert store.ids(2).tolist() == [30, 20]
    assert store.ids(2, 99).tolist() == [30, 20]
    assert store.to_graph().ids.tolist() == [40, 10, 30, 20]


def test_neighbors_are_int32_up_to_the_greatest_row_number():
    assert index_dtype(2**31 - 1) == np.int32
    assert index_dtype(2**31) == np.int64


@settings(max_examples=25, deadline=None)
@given(data=st.data(), n_nodes=st.integers(1, 9), weighted=st.booleans())
def test_the_graph_of_a_store_gives_back_its_adjacency(tmp_path_factory, data, n_nodes, weighted):
    row = st.integers(0, n_nodes - 1)
    pairs = data.draw(st.lists(st.tuples(row, row), max_size=20).map(lambda p: [(a, b) for a, b in p if a < b]))
    edges = np.array(sorted(set(pairs)), dtype=np.int64).reshape(-1, 2).T
    weight = np.arange(1, edges.shape[1] + 1, dtype=np.float32) if weighted else None
    adjacency = build_adjacency(edges, weight, n_nodes=n_nodes)
    with StoreWriter(tmp_path_factory.mktemp("store") / "s") as writer:
        writer.create("features", (n_nodes, 1), "float32")[:] = 0
        writer.create("indptr", n_nodes + 1, "int64")[:] = adjacency.indptr
        writer.create("indices", adjacency.nnz, "int32")[:] = adjacency.indices
        if weighted:
            writer.create("weight", adjacency.nnz, "float32")[:] = adjacency.data
        graph = writer.finish().to_graph()
    again = build_adjacency(graph.edges, graph.edge_weight, n_nodes=n_nodes)
    assert (again != adjacency).nnz == 0


def test_an_error_leaves_nothing_behind(tmp_path):
    with pytest.raises(KeyboardInterrupt), StoreWriter(tmp_path / "deep" / "s") as writer:
        writer.create("features", (4, 3), "float32")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with StoreWriter(tmp_path / "s"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_partial_that_is_to_be_kept_is_taken_up_again(tmp_path):
    with pytest.raises(KeyboardInterrupt), StoreWriter(tmp_path / "s") as writer:
        writer.keep_partial = True
        writer.create("features", (4, 3), "float32")[:] = FEATURES
        raise KeyboardInterrupt
    with StoreWriter(tmp_path / "s", resume=True) as writer:
        store = writer.finish()
    assert (store.features == FEATURES).all()


def test_a_partial_in_the_way_is_refused(tmp_path, refusal):
    (tmp_path / "s.partial").mkdir()
    message = refusal(write_store, tmp_path / "s", error=OutputError)
    assert "s.partial exists" in message
    assert "--resume" in message


def test_a_store_is_replaced_only_when_told_to(store, tmp_path, refusal):
    assert "already holds a store" in refusal(write_store, store.folder, error=OutputError)
    assert open_store(store.folder).labels is not None
    assert write_store(store.folder, overwrite=True).labels is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s"]


def test_anything_else_is_never_replaced(tmp_path, refusal):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    message = refusal(write_store, tmp_path / "mine", overwrite=True, error=OutputError)
    assert "never replaced" in message
    (tmp_path / "file").write_text("")
    assert "is a file" in refusal(write_store, tmp_path / "file", error=OutputError)
    assert "cannot be replaced" in refusal(write_store, "..", error=OutputError)
    assert "cannot write" in refusal(write_store, tmp_path / "file" / "s", error=OutputError)
    assert not list(tmp_path.glob("*.partial"))


def test_a_store_has_no_other_arrays(tmp_path, refusal):
    with StoreWriter(tmp_path / "s") as writer:
        assert "no array 'mood'" in refusal(writer.create, "mood", 3, "f4", error=ConfigError)


def test_what_is_no_store_is_refused(tmp_path, refusal):
    assert not is_store(tmp_path)
    assert "there is no such folder" in refusal(open_store, tmp_path / "none")
    assert "has no manifest.json" in refusal(open_store, tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    assert not is_store(tmp_path)
    assert "is damaged" in refusal(open_store, tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    assert "does not say that its format" in refusal(open_store, tmp_path)
    assert "is a file" in refusal(open_store, tmp_path / "manifest.json")


def test_another_version_is_refused_with_both_numbers(store, refusal):
    change_manifest(store, version=99)
    assert is_store(store.folder)
    message = refusal(open_store, store.folder)
    assert "version 99" in message
    assert "reads versions 1 and 2" in message
    assert "pamc ingest" in message


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"n_nodes": "many"}, "manifest.json is damaged"),
        ({"n_nodes": 5}, "features.npy: holds float32 of shape (4, 3), expected float32 or float16 of shape (5, 3)"),
        ({"n_stored": 8}, "indices.npy: holds int32 of shape (6,)"),
        ({"ids": "colors"}, "manifest.json is damaged"),
        ({"ids": "integers"}, "lists no ids.npy"),
        ({"ids": "strings"}, "lists no ids.parquet"),
        ({"feature_names": ["a"]}, "1 feature names for 3 features"),
        ({"files": {}}, "lists no features.npy"),
        ({"files": None}, "manifest.json is damaged"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(store, refusal, changes, part):
    change_manifest(store, **changes)
    assert part in refusal(open_store, store.folder)


def test_missing_short_and_foreign_files_are_named(store, refusal):
    path = store.folder / "indices.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    assert "indices.npy: has 148 bytes, the manifest says 152" in refusal(open_store, store.folder)
    path.write_bytes(b"x" * len(whole))
    assert "indices.npy: cannot be mapped" in refusal(open_store, store.folder)
    path.unlink()
    assert "indices.npy is missing" in refusal(open_store, store.folder)


def test_row_starts_that_do_not_end_at_the_number_of_neighbors_are_refused(store, refusal):
    np.save(store.folder / "indptr.npy", np.array([0, 2, 4, 6, 5]))
    assert "does not run from 0 to 6" in refusal(open_store, store.folder)


def test_one_changed_byte_is_found(store, refusal):
    path = store.folder / "features.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    message = refusal(open_store(store.folder).verify)
    assert "features.npy changed" in message
    assert "indices.npy" not in message


def test_a_finished_partial_is_only_put_in_place(tmp_path):
    """As after a kill between the manifest and the rename."""
    written = write_store(tmp_path / "s", labels=[0, 1, 1, 0])
    written.folder.rename(tmp_path / "s.partial")
    with StoreWriter(tmp_path / "s", resume=True) as writer:
        assert is_store(writer.folder)
        store = writer.commit()
    assert store.labels.tolist() == [0, 1, 1, 0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s"]
