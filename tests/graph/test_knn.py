"""Nearest neighbors: exact, with a fixed rule for ties, the same for any threads, and SDCN's lists again."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from threadpoolctl import threadpool_limits

from pamc.errors import ConfigError, DataWarning, UnknownNameError
from pamc.graph import knn
from pamc.graph.knn import knn_edges


def plain_neighbors(x: np.ndarray, k: int, metric: str) -> list[list[int]]:
    """Sort all other rows by distance, then index, in plain loops."""
    lists = []
    for i, row in enumerate(x):
        keyed = []
        for j, other in enumerate(x):
            if metric == "euclidean":
                key = sum((a - b) ** 2 for a, b in zip(row.tolist(), other.tolist(), strict=True))
            else:
                product = sum(a * b for a, b in zip(row.tolist(), other.tolist(), strict=True))
                key = -product * abs(product) / (sum(b * b for b in other.tolist()) or 1.0)
            if i != j:
                keyed.append((key, j))
        lists.append([j for _, j in sorted(keyed)[:k]])
    return lists


def neighbor_lists(edges: np.ndarray, n_nodes: int) -> list[list[int]]:
    k = edges.shape[1] // n_nodes
    assert edges[0].tolist() == np.repeat(np.arange(n_nodes), k).tolist()
    return edges[1].reshape(n_nodes, k).tolist()


# Small integers: distances are exact in float64, and ties, copies and zero rows are the rule.
TABLES = hnp.arrays(np.float64, st.tuples(st.integers(2, 14), st.integers(1, 3)), elements=st.integers(-2, 2))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("layout", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
@given(TABLES, st.data())
@settings(max_examples=60, deadline=None)
def test_neighbors_of_tied_rows_are_those_of_a_plain_sort(metric, layout, x, data):
    k = data.draw(st.integers(1, len(x) - 1))
    edges = knn_edges(layout(x), k, metric=metric)
    assert edges.dtype == np.int64
    assert neighbor_lists(edges, len(x)) == plain_neighbors(x, k, metric)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_neighbors_of_many_random_rows_are_those_of_a_plain_sort(metric, dtype, monkeypatch):
    monkeypatch.setattr(knn, "_BLOCK_ENTRIES", 1000)
    x = np.random.default_rng(0).normal(size=(401, 5)).astype(dtype)
    assert neighbor_lists(knn_edges(x, 7, metric=metric), 401) == plain_neighbors(x.astype(np.float64), 7, metric)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_sparse_rows_have_the_neighbors_of_the_same_dense_rows(metric, monkeypatch):
    x = sp.random_array((300, 200), density=0.05, rng=np.random.default_rng(1), format="csr")
    dense = neighbor_lists(knn_edges(x.toarray(), 5, metric=metric), 300)
    assert neighbor_lists(knn_edges(sp.csr_matrix(x), 5, metric=metric), 300) == dense
    monkeypatch.setattr(knn, "_DENSE_SHARE", 0.0)
    assert neighbor_lists(knn_edges(sp.csr_matrix(x), 5, metric=metric), 300) == dense


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_blocks_and_threads_do_not_change_the_answer(metric, monkeypatch):
    # Rounded values make many near-ties, and the offset makes the matrix product lose digits.
    x = np.random.default_rng(3).normal(size=(500, 41)).round(1) + 1000.0
    expected = knn_edges(x, 4, metric=metric)
    with threadpool_limits(1):
        assert (knn_edges(x, 4, metric=metric) == expected).all()
    for entries in (1, 4999):
        monkeypatch.setattr(knn, "_BLOCK_ENTRIES", entries)
        assert (knn_edges(x, 4, metric=metric) == expected).all()


def test_copies_of_a_row_are_its_neighbors_and_the_row_itself_never_is():
    x = np.array([[5.0], [0.0], [5.0], [9.0], [5.0]])
    lists = neighbor_lists(knn_edges(x, 2), 5)
    assert lists == [[2, 4], [0, 2], [0, 4], [0, 2], [0, 2]]


def test_constant_rows_take_the_lowest_other_indices():
    assert neighbor_lists(knn_edges(np.ones((5, 3)), 2), 5) == [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1]]


def test_zero_rows_have_similarity_zero_under_cosine():
    x = np.array([[0.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [2.0, 1.0], [0.0, 0.0]])
    lists = neighbor_lists(knn_edges(x, 4, metric="cosine"), 5)
    assert lists[0] == [1, 2, 3, 4]
    assert lists[1] == [0, 4, 3, 2]
    assert neighbor_lists(knn_edges(sp.csr_matrix(x), 4, metric="cosine"), 5) == lists


def test_cosine_ignores_the_length_of_a_row():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(50, 6))
    scaled = x * 2.0 ** rng.integers(-8, 8, size=(50, 1))
    assert (knn_edges(x, 5, metric="cosine") == knn_edges(scaled, 5, metric="cosine")).all()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("scale", [2.0**1000, 2.0**-1000, 2.0**-1060])
def test_huge_and_tiny_values_neither_overflow_nor_vanish(metric, scale):
    x = np.random.default_rng(5).integers(-50, 50, size=(30, 4)).astype(np.float64)
    assert (knn_edges(x * scale, 3, metric=metric) == knn_edges(x, 3, metric=metric)).all()


def test_a_common_offset_does_not_blur_the_neighbors():
    x = np.random.default_rng(6).integers(0, 50, size=(60, 3)).astype(np.float64)
    assert (knn_edges(x + 2.0**31, 3) == knn_edges(x, 3)).all()


@pytest.mark.parametrize("n_neighbors", [4, 99])
def test_too_many_neighbors_are_cut_to_all_others_with_a_warning(n_neighbors):
    x = np.array([[0.0], [1.0], [5.0], [7.0]])
    with pytest.warns(DataWarning, match=rf"n_neighbors={n_neighbors}, .* only 3 others") as caught:
        edges = knn_edges(x, n_neighbors)
    assert caught[0].filename == __file__
    assert (edges == knn_edges(x, 3)).all()


def test_one_row_has_no_neighbors():
    with pytest.warns(DataWarning, match="only 0 others"):
        assert knn_edges(np.ones((1, 2)), 5).shape == (2, 0)


@pytest.mark.parametrize("n_neighbors", [0, -3])
def test_fewer_than_one_neighbor_is_refused(n_neighbors):
    with pytest.raises(ConfigError, match=f"n_neighbors must be at least 1, got {n_neighbors}"):
        knn_edges(np.eye(3), n_neighbors)


def test_an_unknown_metric_is_refused_with_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"unknown metric 'cosin': allowed are cosine, euclidean; did you mean"):
        knn_edges(np.eye(3), 1, metric="cosin")


def test_the_features_are_not_modified():
    dense = np.random.default_rng(7).normal(size=(20, 3))
    # Unsorted, repeated and zero entries, which the search puts in order for itself.
    entries = np.array([1.0, 2.0, 3.0, 4.0, 0.0])
    sparse = sp.csr_matrix((entries, np.array([2, 0, 1, 1, 5]), np.array([0, 2, 4, 5])), shape=(3, 60))
    before = dense.copy(), sparse.indices.copy(), sparse.data.copy()
    for metric in ("euclidean", "cosine"):
        knn_edges(dense, 2, metric=metric)
        knn_edges(sparse, 1, metric=metric)
    assert (dense == before[0]).all()
    assert (sparse.indices == before[1]).all()
    assert (sparse.data == before[2]).all()


def test_rows_of_zeros_only_are_all_copies():
    assert neighbor_lists(knn_edges(sp.csr_matrix((3, 4)), 1), 3) == [[1], [0], [0]]


def published(name: str) -> dict[str, np.ndarray]:
    folder = os.environ.get("PAMC_DATA")
    if not folder or not (Path(folder) / f"{name}.npz").exists():
        pytest.skip(f"set PAMC_DATA to a folder with {name}.npz")
    with np.load(Path(folder) / f"{name}.npz") as file:
        return dict(file)


def directed(edges: np.ndarray) -> set[tuple[int, int]]:
    return set(map(tuple, edges.T.tolist()))


def test_the_published_lists_of_usps_come_out_again():
    data = published("usps")
    ten = knn_edges(data["x"], 10).reshape(2, -1, 10)
    for k in (1, 3, 5, 10):
        assert directed(ten[:, :, :k].reshape(2, -1)) == directed(data[f"edges_k{k}"].T)


def test_the_published_list_of_hhar_comes_out_again_between_rows_known_exactly():
    data = published("hhar")
    exact = data["row_exact"] == 1
    ids = np.flatnonzero(exact)
    ours = directed(ids[knn_edges(data["x"][exact], 5)])
    theirs = directed(data["edges_k5"][exact[data["edges_k5"]].all(axis=1)].T)
    assert len(theirs) > 30_000
    assert theirs <= ours
