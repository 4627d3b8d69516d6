"""Neighbors sorted on disk are those that the adjacency in memory has."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from pamc.data.store.neighbor_sort import NeighborSorter, bucket_starts, in_order
from pamc.data.store.writer import GrowingArray, StoreWriter
from pamc.errors import DataError
from pamc.graph.adjacency import build_adjacency
from pamc.progress import SilentProgress


def sorted_on_disk(folder, n_nodes, blocks, *, weighted, starts=(0,)):
    with StoreWriter(folder / "s") as writer:
        writer.create("features", (n_nodes, 1), "float32")
        sorter = NeighborSorter(writer.scratch, n_nodes, np.array(starts, dtype=np.int64), weighted=weighted)
        for block in blocks:
            sorter.add(*block)
        n_stored = sorter.write(writer, progress=SilentProgress())
        store = writer.finish()
    assert store.n_stored == n_stored
    data = np.ones(n_stored) if store.weight is None else np.array(store.weight)
    return store, sp.csr_matrix((data, np.array(store.indices), np.array(store.indptr)), shape=(n_nodes, n_nodes))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), n_nodes=st.integers(1, 12), weighted=st.booleans(), n_blocks=st.integers(1, 3))
def test_any_pairs_in_any_blocks_and_buckets_give_the_adjacency(tmp_path_factory, data, n_nodes, weighted, n_blocks):
    row = st.integers(0, n_nodes - 1)
    pairs = np.array(data.draw(st.lists(st.tuples(row, row), max_size=40)), dtype=np.int64).reshape(-1, 2)
    weight = np.array(data.draw(st.lists(st.integers(1, 9), min_size=len(pairs), max_size=len(pairs))), "float32")
    starts = sorted({0, *data.draw(st.lists(row, max_size=4))})
    parts = np.array_split(np.arange(len(pairs)), n_blocks)
    blocks = [(pairs[part, 0], pairs[part, 1], weight[part] if weighted else None) for part in parts]
    store, found = sorted_on_disk(tmp_path_factory.mktemp("sorted"), n_nodes, blocks, weighted=weighted, starts=starts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = build_adjacency(pairs.T, weight if weighted else None, n_nodes=n_nodes)
    assert store.indptr.tolist() == expected.indptr.tolist()
    assert store.indices.tolist() == expected.indices.tolist()
    assert found.data.tolist() == expected.data.tolist()
    assert (found != found.T).nnz == 0


def test_repeated_lines_add_up_and_directions_join_by_the_larger(tmp_path):
    source, target = np.array([0, 0, 1, 1, 2]), np.array([1, 1, 0, 2, 2])
    weight = np.array([1, 2, 2.5, 4, 9], dtype="float32")
    _, found = sorted_on_disk(tmp_path, 3, [(source, target, weight)], weighted=True)
    assert found.toarray().tolist() == [[0, 3, 0], [3, 0, 4], [0, 4, 0]]


def test_threads_may_add_at_once(tmp_path):
    rng = np.random.default_rng(0)
    blocks = [(rng.integers(50, size=300), rng.integers(50, size=300)) for _ in range(20)]
    with StoreWriter(tmp_path / "s") as writer:
        sorter = NeighborSorter(writer.scratch, 50, np.array([0, 20, 21]), weighted=False)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda block: sorter.add(*block), blocks))
        writer.create("features", (50, 1), "float32")
        sorter.write(writer, progress=SilentProgress())
        store = writer.finish()
    source, target = np.concatenate(blocks, axis=1)
    dense = np.zeros((50, 50), dtype=bool)
    dense[source, target] = dense[target, source] = True
    np.fill_diagonal(dense, False)
    assert store.n_stored == dense.sum()
    assert (np.concatenate([np.flatnonzero(row) for row in dense]) == store.indices).all()


def test_what_an_earlier_attempt_left_is_removed(tmp_path):
    with StoreWriter(tmp_path / "s") as writer:
        for _ in range(2):
            sorter = NeighborSorter(writer.scratch, 3, np.array([0]), weighted=True)
            sorter.start()
            sorter.add(np.array([0]), np.array([1]), np.array([2.0]))
        writer.create("features", (3, 1), "float32")
        sorter.write(writer, progress=SilentProgress())
        assert writer.finish().weight.tolist() == [2, 2]


def test_more_rows_than_a_key_can_hold_are_refused(tmp_path, refusal):
    message = refusal(NeighborSorter, tmp_path, 2**32 + 1, np.array([0]), weighted=False, error=DataError)
    assert "at most 4294967296" in message


@pytest.mark.parametrize("weighted", [False, True])
def test_buckets_follow_the_counts(weighted):
    counts = np.array([5, 5, 1000, 5, 5, 5])
    starts = bucket_starts(6, counts, memory_bytes=20 * 144, weighted=weighted)
    assert starts[0] == 0
    assert 2 in starts
    assert 3 in starts
    assert bucket_starts(6, counts, memory_bytes=1 << 30, weighted=weighted).tolist() == [0]
    assert bucket_starts(3, np.array([1, 1, 1, 1]), memory_bytes=1, weighted=weighted).tolist() == [0, 1, 2]


def test_no_more_calls_are_under_way_than_allowed():
    begun, taken = [], []
    with ThreadPoolExecutor(2) as pool:
        for item in in_order(pool, lambda item: begun.append(item) or item, range(10), ahead=3):
            taken.append(item)
            assert len(begun) <= len(taken) + 3
    assert taken == list(range(10))


def test_an_array_that_grew_is_cut_to_the_rows_that_count(tmp_path):
    path = tmp_path / "x.npy"
    with GrowingArray(path, "float32", row_shape=(2,)) as array:
        array.append(np.ones((3, 2)))
        array.append(np.full((2, 2), 5.0))
    with GrowingArray(path, "float32", row_shape=(2,), n_rows=3) as array:
        array.append(np.zeros((1, 2)))
    assert np.load(path).tolist() == [[1, 1], [1, 1], [1, 1], [0, 0]]
    assert np.load(path, mmap_mode="r").flags.aligned
