"""Nearest neighbors: exact, with a fixed rule for ties, the same for any threads, and SDCN's lists again."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from threadpoolctl import threadpool_limits

from pamc.errors import ConfigError, DataWarning, UnknownNameError
from pamc.graph import distances, neighbors
from pamc.graph.neighbors import EXACT, nearest
from pamc.graph.smoothing import unit_rows

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def edges_of(x, n_neighbors, *, metric="euclidean"):
    return nearest(x, n_neighbors, metric=metric).edges


def plain_neighbors(x: np.ndarray, k: int, metric: str) -> list[list[int]]:
    """Sort all other rows by distance, then index, in plain loops."""
    return plain_neighbors_of(x, range(len(x)), k, metric)


def plain_neighbors_of(x: np.ndarray, asked: range, k: int, metric: str) -> list[list[int]]:
    lists = []
    for i in asked:
        row, keyed = x[i], []
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
    edges = edges_of(layout(x), k, metric=metric)
    assert edges.dtype == np.int64
    assert neighbor_lists(edges, len(x)) == plain_neighbors(x, k, metric)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_neighbors_of_many_random_rows_are_those_of_a_plain_sort(metric, dtype, monkeypatch):
    monkeypatch.setattr(distances, "_BLOCK_ENTRIES", {"cpu": 1000, "cuda": 1000})
    x = np.random.default_rng(0).normal(size=(401, 5)).astype(dtype)
    assert neighbor_lists(edges_of(x, 7, metric=metric), 401) == plain_neighbors(x.astype(np.float64), 7, metric)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_sparse_rows_have_the_neighbors_of_the_same_dense_rows(metric, monkeypatch):
    x = sp.random_array((300, 200), density=0.05, rng=np.random.default_rng(1), format="csr")
    dense = neighbor_lists(edges_of(x.toarray(), 5, metric=metric), 300)
    assert neighbor_lists(edges_of(sp.csr_matrix(x), 5, metric=metric), 300) == dense
    monkeypatch.setattr(neighbors, "_DENSE_SHARE", 0.0)
    assert neighbor_lists(edges_of(sp.csr_matrix(x), 5, metric=metric), 300) == dense


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_blocks_and_threads_do_not_change_the_answer(metric, monkeypatch):
    # Rounded values make many near-ties, and the offset makes the matrix product lose digits.
    x = np.random.default_rng(3).normal(size=(500, 41)).round(1) + 1000.0
    expected = edges_of(x, 4, metric=metric)
    with threadpool_limits(1):
        assert (edges_of(x, 4, metric=metric) == expected).all()
    for entries in (1, 4999):
        monkeypatch.setattr(distances, "_BLOCK_ENTRIES", {"cpu": entries, "cuda": entries})
        assert (edges_of(x, 4, metric=metric) == expected).all()


@pytest.fixture
def used(monkeypatch):
    """Return the number types of the quick distances of searches that follow."""
    types = []

    def watched(space, *rest):
        types.append(space.lifted.dtype)
        return distances.nearest_of(space, *rest)

    monkeypatch.setattr(neighbors, "nearest_of", watched)
    return types


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_products_are_in_float64_where_tf32_is_allowed(metric, used):
    x = np.random.default_rng(8).normal(size=(1500, 20))
    fine = edges_of(x, 5, metric=metric)
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert (edges_of(x, 5, metric=metric) == fine).all()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    assert used == [torch.float32, torch.float64]


def test_products_are_in_float64_where_float32_does_not_tell_rows_apart(used):
    # So far from the origin that all cosines are 1 in float32.
    x = np.random.default_rng(8).normal(size=(1500, 20)) + 1e5
    assert neighbor_lists(edges_of(x, 5, metric="cosine"), 1500)[:40] == plain_neighbors_of(x, range(40), 5, "cosine")
    assert used == [torch.float64]


def test_many_columns_in_groups_with_a_rest_have_the_neighbors_of_a_plain_sort():
    # 1271 rows leave a rest of 7 beside groups of 16 columns; whole numbers make ties across groups.
    x = np.random.default_rng(9).integers(0, 12, size=(1271, 3)).astype(np.float64)
    assert neighbor_lists(edges_of(x, 7), 1271)[:50] == plain_neighbors_of(x, range(50), 7, "euclidean")
    x += 0.01 * np.random.default_rng(9).normal(size=x.shape)
    assert neighbor_lists(edges_of(x, 7), 1271)[-50:] == plain_neighbors_of(x, range(1221, 1271), 7, "euclidean")


def test_an_outlier_does_not_blur_the_neighbors_of_others():
    x = np.random.default_rng(10).normal(size=(600, 4))
    x[17] = 1e7
    assert neighbor_lists(edges_of(x, 3), 600)[:60] == plain_neighbors_of(x, range(60), 3, "euclidean")


def test_the_device_does_not_change_the_neighbors():
    rows = unit_rows(np.random.default_rng(0).normal(size=(2000, 8)))
    on_device = nearest(rows, 5, device=DEVICE)
    assert (on_device.edges == nearest(rows, 5).edges).all()
    assert (on_device.recall, on_device.method) == (1.0, EXACT)


def test_copies_of_a_row_are_its_neighbors_and_the_row_itself_never_is():
    x = np.array([[5.0], [0.0], [5.0], [9.0], [5.0]])
    lists = neighbor_lists(edges_of(x, 2), 5)
    assert lists == [[2, 4], [0, 2], [0, 4], [0, 2], [0, 2]]


def test_constant_rows_take_the_lowest_other_indices():
    assert neighbor_lists(edges_of(np.ones((5, 3)), 2), 5) == [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1]]


def test_zero_rows_have_similarity_zero_under_cosine():
    x = np.array([[0.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [2.0, 1.0], [0.0, 0.0]])
    lists = neighbor_lists(edges_of(x, 4, metric="cosine"), 5)
    assert lists[0] == [1, 2, 3, 4]
    assert lists[1] == [0, 4, 3, 2]
    assert neighbor_lists(edges_of(sp.csr_matrix(x), 4, metric="cosine"), 5) == lists


def test_cosine_ignores_the_length_of_a_row():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(50, 6))
    scaled = x * 2.0 ** rng.integers(-8, 8, size=(50, 1))
    assert (edges_of(x, 5, metric="cosine") == edges_of(scaled, 5, metric="cosine")).all()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("scale", [2.0**1000, 2.0**-1000, 2.0**-1060])
def test_huge_and_tiny_values_neither_overflow_nor_vanish(metric, scale):
    x = np.random.default_rng(5).integers(-50, 50, size=(30, 4)).astype(np.float64)
    assert (edges_of(x * scale, 3, metric=metric) == edges_of(x, 3, metric=metric)).all()


def test_a_common_offset_does_not_blur_the_neighbors():
    x = np.random.default_rng(6).integers(0, 50, size=(60, 3)).astype(np.float64)
    assert (edges_of(x + 2.0**31, 3) == edges_of(x, 3)).all()


@pytest.mark.parametrize("n_neighbors", [4, 99])
def test_too_many_neighbors_are_cut_to_all_others_with_a_warning(n_neighbors):
    x = np.array([[0.0], [1.0], [5.0], [7.0]])
    with pytest.warns(DataWarning, match=rf"n_neighbors={n_neighbors}, .* only 3 others") as caught:
        edges = nearest(x, n_neighbors).edges
    assert caught[0].filename == __file__
    assert (edges == edges_of(x, 3)).all()


def test_one_row_has_no_neighbors():
    with pytest.warns(DataWarning, match="only 0 others"):
        assert edges_of(np.ones((1, 2)), 5).shape == (2, 0)


@pytest.mark.parametrize("n_neighbors", [0, -3])
def test_fewer_than_one_neighbor_is_refused(n_neighbors):
    with pytest.raises(ConfigError, match=f"n_neighbors must be at least 1, got {n_neighbors}"):
        edges_of(np.eye(3), n_neighbors)


def test_an_unknown_metric_is_refused_with_the_known_ones():
    with pytest.raises(UnknownNameError, match="unknown metric 'cosin': allowed are angle, cosine, euclidean; did"):
        edges_of(np.eye(3), 1, metric="cosin")


def test_the_features_are_not_modified():
    dense = np.random.default_rng(7).normal(size=(20, 3))
    # Unsorted, repeated and zero entries, which the search puts in order for itself.
    entries = np.array([1.0, 2.0, 3.0, 4.0, 0.0])
    sparse = sp.csr_matrix((entries, np.array([2, 0, 1, 1, 5]), np.array([0, 2, 4, 5])), shape=(3, 60))
    before = dense.copy(), sparse.indices.copy(), sparse.data.copy()
    for metric in ("euclidean", "cosine"):
        edges_of(dense, 2, metric=metric)
        edges_of(sparse, 1, metric=metric)
    assert (dense == before[0]).all()
    assert (sparse.indices == before[1]).all()
    assert (sparse.data == before[2]).all()


def test_rows_of_zeros_only_are_all_copies():
    assert neighbor_lists(edges_of(sp.csr_matrix((3, 4)), 1), 3) == [[1], [0], [0]]


def published(name: str) -> dict[str, np.ndarray]:
    folder = os.environ.get("PAMC_DATA")
    if not folder or not (Path(folder) / f"{name}.npz").exists():
        pytest.skip(f"set PAMC_DATA to a folder with {name}.npz")
    with np.load(Path(folder) / f"{name}.npz") as file:
        return dict(file)


def directed(edges: np.ndarray) -> set[tuple[int, int]]:
    return set(map(tuple, edges.T.tolist()))


@pytest.mark.slow
def test_the_published_lists_of_usps_come_out_again():
    data = published("usps")
    ten = edges_of(data["x"], 10).reshape(2, -1, 10)
    for k in (1, 3, 5, 10):
        assert directed(ten[:, :, :k].reshape(2, -1)) == directed(data[f"edges_k{k}"].T)


@pytest.mark.slow
def test_the_published_list_of_hhar_comes_out_again_between_rows_known_exactly():
    data = published("hhar")
    exact = data["row_exact"] == 1
    ids = np.flatnonzero(exact)
    ours = directed(ids[edges_of(data["x"][exact], 5)])
    theirs = directed(data["edges_k5"][exact[data["edges_k5"]].all(axis=1)].T)
    assert len(theirs) > 30_000
    assert theirs <= ours
