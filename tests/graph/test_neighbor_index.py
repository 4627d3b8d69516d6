"""Approximate neighbors: enough of the exact ones, a recall that is true, the same bits for any threads."""

import os
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest
import torch

from pamc import clusterer
from pamc.errors import DataWarning
from pamc.graph import distances, neighbor_index, neighbors
from pamc.graph.neighbor_index import search_index
from pamc.graph.neighbors import ANGLE, EXACT, knn_adjacency, nearest

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
N, K = 5000, 10


@pytest.fixture(autouse=True)
def small_index_on_any_device(monkeypatch):
    # Blocks with a rest.
    monkeypatch.setattr(distances, "_BLOCK_ENTRIES", {"cpu": 41 * 1271, "cuda": 41 * 1271})
    monkeypatch.setattr(neighbor_index, "_ROWS_AT_A_TIME", {"cpu": 41, "cuda": 41})


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def clustered(n_rows=N, n_columns=30, seed=0):
    order = np.random.default_rng(seed)
    spread = np.exp(-np.arange(n_columns) / 6)
    centers = 1.5 * order.normal(size=(12, n_columns))
    return unit((order.normal(size=(n_rows, n_columns)) + centers[order.integers(12, size=n_rows)]) * spread)


def even(n_rows=N, n_columns=6):
    return np.random.default_rng(0).uniform(size=(n_rows, n_columns))


class Found(NamedTuple):
    targets: np.ndarray
    recall: float
    method: str


def search(rows, n_neighbors=K, seed=0):
    found = Found(*search_index(rows, n_neighbors, seed=seed, device=DEVICE))
    checked(found.targets, len(rows), n_neighbors)
    return found


def exact_neighbors(rows, n_neighbors=K):
    return nearest(rows, n_neighbors).edges[1].reshape(len(rows), -1)


def checked(targets, n_rows, n_neighbors):
    assert targets.dtype == np.int64
    assert targets.shape == (n_rows, n_neighbors)
    assert (targets != np.arange(n_rows)[:, None]).all(), "a row is its own neighbor"
    assert (np.diff(np.sort(targets, axis=1), axis=1) > 0).all(), "a neighbor comes twice"


def share(found, exact):
    return np.mean([len(set(a) & set(b)) / len(a) for a, b in zip(exact.tolist(), found.tolist(), strict=True)])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", [clustered, even])
def test_nearly_all_exact_neighbors_are_found_and_the_recall_says_how_many(make, dtype):
    rows = make().astype(dtype)
    found = search(rows)
    assert found.method.endswith("cells")
    assert found.recall >= 0.95
    assert share(found.targets, exact_neighbors(rows)) == pytest.approx(found.recall, abs=0.01)


def test_neighbors_come_nearest_first():
    rows = even()
    targets = search(rows).targets
    distance = np.square(rows[targets] - rows[:, None]).sum(axis=2)
    assert (np.diff(distance, axis=1) >= -1e-6).all()


def test_fewer_cells_are_looked_through_than_there_are():
    n_probes, n_cells = (int(word) for word in search(clustered()).method.split() if word.isdigit())
    assert 1 <= n_probes < n_cells / 3
    assert 100 < n_cells <= 2 * N**0.5


def test_the_limit_on_comparisons_costs_recall_and_says_so(monkeypatch):
    monkeypatch.setattr(neighbor_index, "_MOST_COMPARED", 2)
    rows = unit(np.random.default_rng(0).normal(size=(N, 30)))
    found = search(rows)
    assert found.recall < 0.5
    assert share(found.targets, exact_neighbors(rows)) == pytest.approx(found.recall, abs=0.02)


@pytest.mark.parametrize("n_rows", [2, 3, 15, 16, 17, 100])
def test_few_rows_have_their_exact_neighbors(n_rows):
    # Whole numbers on a line, shuffled: no rounding, and ties on both sides of every row.
    rows = np.random.default_rng(0).permutation(n_rows)[:, None].astype(np.float64)
    for n_neighbors in {1, n_rows // 2, n_rows - 1} - {0}:
        found = search(rows, n_neighbors)
        if found.method == "1 of 1 cells":
            assert np.array_equal(found.targets, exact_neighbors(rows, n_neighbors))
            assert found.recall == 1


def test_one_cell_gives_neighbors_as_near_as_the_exact_search(monkeypatch):
    monkeypatch.setattr(neighbor_index, "_n_cells", lambda n_rows: 1)
    rows = np.random.default_rng(0).integers(0, 9, size=(700, 3)).astype(np.float64)
    found = search(rows)
    # Of more equally near rows than are kept, any may be taken.
    ours, exact = (np.square(rows[each] - rows[:, None]).sum(axis=2) for each in (found.targets, exact_neighbors(rows)))
    assert np.array_equal(ours, exact)
    assert (found.recall, found.method) == (1.0, "1 of 1 cells")


@pytest.mark.parametrize("n_distinct", [1, 2, 7, 40, 2000])
def test_copies_are_neighbors_and_do_not_make_cells_large(n_distinct):
    order = np.random.default_rng(0)
    # Whole numbers stay exact in float32 up to the common scale, so that ties are ties.
    rows = order.integers(-8, 9, size=(n_distinct, 6)).astype(np.float64)[order.integers(n_distinct, size=3000)]
    found = search(rows)
    assert found.recall >= 0.95
    n_copies = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    many = n_copies[2][n_copies[1].reshape(-1)] > K
    assert (rows[found.targets[many]] == rows[many][:, None]).all()


def test_rows_alike_but_for_rounding_are_cut_into_cells_of_bounded_size():
    rows = np.concatenate([np.zeros((4000, 2)), np.ones((40, 2))])
    # Distinct in float64, all the same in float32.
    rows[:4000, 0] = np.arange(4000) * 1e-14
    index = []
    whole = neighbor_index._Index.of

    class Watched(neighbor_index._Index):
        @classmethod
        def of(cls, *arguments):
            index.append(whole(*arguments))
            return index[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbor_index, "_Index", Watched)
        found = search(rows)
    assert np.diff(index[0].begins).max() <= neighbor_index._MOST_SHARES * -(-len(rows) // round(2 * len(rows) ** 0.5))
    assert found.recall == 1


@pytest.mark.parametrize("scale", [1e300, 1e-300, 0.0])
def test_huge_tiny_and_constant_values_neither_overflow_nor_vanish(scale):
    rows = clustered(1000)
    expected = search(rows).targets
    found = search(rows * scale)
    if scale:
        assert share(found.targets, expected) > 0.99
    else:
        assert found.recall == 1


def test_a_mapped_file_is_read_in_parts_and_left_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(neighbor_index, "_ROWS_READ", 700)
    rows = clustered(2000).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    assert np.array_equal(search(mapped).targets, search(rows).targets)
    assert np.array_equal(mapped, rows)


def test_the_seed_decides_and_the_global_state_is_not_touched():
    rows = clustered(2000)
    before = np.random.get_state()[1].copy(), torch.get_rng_state(), torch.get_num_threads()
    first, again, other = search(rows, seed=1), search(rows, seed=1), search(rows, seed=2)
    assert np.array_equal(first.targets, again.targets)
    assert first.recall == again.recall
    assert not np.array_equal(first.targets, other.targets)
    assert np.array_equal(np.random.get_state()[1], before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert torch.get_num_threads() == before[2]


THREADS = """
import hashlib, sys
import numpy as np, torch
from pamc.graph.neighbor_index import search_index
torch.set_num_threads(int(sys.argv[1]))
rows = np.random.default_rng(0).normal(size=(6000, 33)) * np.exp(-np.arange(33) / 6)
targets, recall, method = search_index(rows, 10, seed=0, device=torch.device("cpu"))
print(hashlib.sha256(targets.tobytes()).hexdigest(), recall, method)
"""


@pytest.mark.slow
def test_the_edges_are_the_same_for_any_number_of_threads():
    said = set()
    for n_threads in (1, 2, 4):
        environment = {**os.environ, "OMP_NUM_THREADS": str(n_threads), "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-W", "ignore", "-c", THREADS, str(n_threads)]
        said.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(said) == 1
    assert "cells" in said.pop()


def test_rows_beyond_the_constant_are_searched_approximately_and_others_exactly(monkeypatch):
    rows = clustered(1500)
    exact = nearest(rows, 5, metric=ANGLE, device=DEVICE)
    assert (exact.method, exact.recall) == (EXACT, 1.0)
    monkeypatch.setattr(neighbors, "MOST_EXACT_ROWS", {"cpu": 1499, "cuda": 1499})
    found = nearest(rows, 5, metric=ANGLE, device=DEVICE, seed=3)
    assert found.method != EXACT
    assert share(*(each.edges[1].reshape(1500, 5) for each in (found, exact))) >= 0.9
    assert nearest(rows, 5, metric=ANGLE, device=DEVICE, most_exact_rows=1500).method == EXACT
    both = knn_adjacency(rows, 5, DEVICE, seed=3)
    assert both.nnz == len(set(map(frozenset, found.edges.T.tolist()))) * 2


def test_a_low_recall_is_a_warning(monkeypatch):
    monkeypatch.setattr(neighbors, "MOST_EXACT_ROWS", {"cpu": 1499, "cuda": 1499})
    monkeypatch.setattr(neighbor_index, "_MOST_COMPARED", 1)
    rows = np.random.default_rng(0).normal(size=(1500, 40))
    with pytest.warns(
        DataWarning, match=r"only \d+% of the edges .* one of the 5 nearest .* metric='euclidean'"
    ) as caught:
        assert nearest(rows, 5, metric=ANGLE, device=DEVICE).recall < neighbors.LEAST_RECALL
    assert caught[0].filename == __file__


@pytest.mark.slow
def test_a_fit_of_many_rows_says_how_its_neighbors_were_found(monkeypatch):
    options = {"n_epochs": 1, "pretrain_epochs": 1, "hidden": (16,), "random_state": 0, "device": "cpu"}
    rows = clustered(900)
    assert clusterer("pamcgc", 3, **options).fit(rows).record().facts["neighbors_by"] == EXACT
    monkeypatch.setattr(neighbors, "MOST_EXACT_ROWS", {"cpu": 800, "cuda": 800})
    facts = clusterer("pamcgc", 3, **options).fit(rows).record().facts
    assert facts["neighbors_by"].endswith("cells")
    assert 0.9 <= facts["neighbors_recall"] <= 1
