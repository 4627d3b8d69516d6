"""Directions and smoothing against their formulas, written out in dense matrices."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from pamc.data.synthetic import block_model
from pamc.graph import smoothing
from pamc.graph.adjacency import build_adjacency, symmetric_normalize, with_self_loops
from pamc.graph.smoothing import embedding, leading_directions, on_sphere, smoothed, unit_rows

# What a GPU does is tested on the CPU where there is none.
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def graph():
    return block_model(60, 3, n_features=12, random_state=0)


def adjacency_of(graph):
    return build_adjacency(graph.edges, None, n_nodes=graph.n_nodes, expect_directed=False)


def test_leading_directions_of_dense_rows_are_pca(graph):
    x = np.asarray(graph.features, dtype=np.float64)
    rows = leading_directions(x, seed=0)
    centered = x - x.mean(axis=0)
    assert rows.shape == (60, 12)
    np.testing.assert_allclose(rows @ rows.T, centered @ centered.T, atol=1e-8)
    assert (np.diff(np.linalg.norm(rows, axis=0)) <= 1e-9).all()


@pytest.mark.parametrize("kind", [sp.csr_matrix, np.asarray])
def test_leading_directions_of_words_are_not_centered(kind):
    x = sp.random_array((60, 30), density=0.05, rng=np.random.default_rng(0), format="csr").toarray()
    rows = leading_directions(kind(x), seed=0, centered=False)
    np.testing.assert_allclose(rows @ rows.T, x @ x.T, atol=1e-8)


def test_leading_directions_do_not_depend_on_how_rows_are_stored(graph):
    rows = np.asarray(graph.features)
    np.testing.assert_allclose(leading_directions(sp.csr_matrix(rows), seed=0), leading_directions(rows, seed=0))


@pytest.mark.parametrize("most_exact", [0, 1000])
def test_directions_without_variance_are_left_out(monkeypatch, most_exact):
    monkeypatch.setattr(smoothing, "_MOST_EXACT_COLUMNS", most_exact)
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(100, 2))
    wide = (plane @ np.linalg.qr(rng.normal(size=(24, 24)))[0][:2]).astype(np.float32)
    rows = leading_directions(wide, seed=0)
    assert rows.shape == (100, 2)
    centered = plane - plane.mean(axis=0)
    np.testing.assert_allclose(rows @ rows.T, centered @ centered.T, atol=1e-5)
    assert leading_directions(np.ones((5, 3)), seed=0).shape == (5, 1)


def test_leading_directions_are_no_more_than_asked_for(graph):
    assert leading_directions(graph.features, seed=0, n_directions=5).shape == (60, 5)


def test_smoothing_is_the_sum_of_a_walk(graph):
    adjacency, rows = adjacency_of(graph), np.random.default_rng(1).normal(size=(60, 4))
    a = adjacency.toarray() + np.eye(60)
    inverse_root = np.diag(1 / np.sqrt(a.sum(axis=1)))
    step = inverse_root @ a @ inverse_root
    for reach, result in zip((0.0, 0.5, 0.9), smoothed(rows, adjacency, (0.0, 0.5, 0.9)), strict=True):
        expected = sum((1 - reach) * reach**k * np.linalg.matrix_power(step, k) @ rows for k in range(13))
        np.testing.assert_allclose(result, expected, atol=1e-12)


def test_smoothing_leaves_its_input_alone(graph):
    rows = np.ones((60, 2))
    smoothed(rows, adjacency_of(graph), (0.9,))
    assert (rows == 1).all()


def test_embedding_has_the_root_of_the_spread(graph):
    rows = leading_directions(graph.features, seed=0)
    u, s, _ = np.linalg.svd(rows, full_matrices=False)
    expected = unit_rows(u[:, :6] * np.sqrt(s[:6]))
    result = embedding(rows, 6)
    np.testing.assert_allclose(result @ result.T, expected @ expected.T, atol=1e-8)


def test_embedding_of_fewer_directions_is_filled_with_zeros():
    result = embedding(np.random.default_rng(0).normal(size=(20, 3)), 8)
    assert result.shape == (20, 8)
    assert (result[:, 3:] == 0).all()
    np.testing.assert_allclose(np.linalg.norm(result, axis=1), 1)


def test_embedding_of_nothing_is_finite():
    assert (embedding(np.zeros((5, 3)), 4) == 0).all()


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("centered", [False, True])
def test_leading_directions_of_a_device_are_those_of_scikit_learn(kind, centered):
    # Directions of clearly different spread: a randomized SVD finds them to rounding.
    rows = np.asarray(block_model(200, 4, n_features=30, random_state=0).features, dtype=np.float64)
    rows *= 0.5 ** np.arange(30)
    ours, _ = smoothing._directions_on(kind(rows), 0, centered, 5, DEVICE)
    host = leading_directions(rows, seed=0, centered=centered, n_directions=5)
    np.testing.assert_allclose(ours @ ours.T, host @ host.T, atol=1e-6 * np.abs(host @ host.T).max())
    assert smoothing._directions_on(rows, 0, True, 200, DEVICE)[0].shape == (200, 30)


def test_walks_of_a_device_are_those_of_the_host(graph):
    rows, adjacency = on_sphere(leading_directions(graph.features, seed=0)), adjacency_of(graph)
    step = smoothing._on_device(symmetric_normalize(with_self_loops(adjacency)), DEVICE)
    ours = smoothing._sums_of_walks(step, smoothing._on_device(rows, DEVICE), (0.8, 0.95))
    for one, other in zip(ours, smoothed(rows, adjacency, (0.8, 0.95)), strict=True):
        assert isinstance(one, torch.Tensor)
        np.testing.assert_allclose(embedding(one, 8), embedding(other, 8), atol=1e-8)
