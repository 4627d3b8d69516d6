"""What a GPU does for the start is what the host does; without a GPU the same code runs on the CPU."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from pamc.data.synthetic import block_model
from pamc.graph.adjacency import build_adjacency
from pamc.graph.knn import knn_edges
from pamc.graph.on_device import leading_directions_on, nearest_on, smoothed_points_on
from pamc.graph.smoothing import embedding, leading_directions, on_sphere, smoothed, unit_rows

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="module")
def graph():
    return block_model(200, 4, n_features=30, random_state=0)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("centered", [False, True])
def test_leading_directions_are_those_of_the_host(graph, kind, centered):
    # Directions of clearly different spread: a randomized SVD finds them to rounding.
    rows = np.asarray(graph.features, dtype=np.float64) * 0.5 ** np.arange(30)
    ours = leading_directions_on(kind(rows), seed=0, centered=centered, device=DEVICE, n_directions=5)
    host = leading_directions(rows, seed=0, centered=centered, n_directions=5)
    np.testing.assert_allclose(ours @ ours.T, host @ host.T, atol=1e-6 * np.abs(host @ host.T).max())
    assert leading_directions_on(rows, seed=0, centered=True, device=DEVICE).shape == (200, 30)


def test_the_nearest_rows_are_those_of_the_host(monkeypatch):
    monkeypatch.setattr("pamc.graph.on_device._SIMILARITIES_AT_A_TIME", 200 * 7)
    rows = unit_rows(np.random.default_rng(0).normal(size=(200, 8)))
    assert np.array_equal(nearest_on(rows, 5, device=DEVICE), knn_edges(rows, 5))


def test_smoothed_points_are_those_of_the_host(graph):
    rows = leading_directions(graph.features, seed=0)
    adjacency = build_adjacency(graph.edges, None, n_nodes=200, expect_directed=False)
    ours = smoothed_points_on(rows, adjacency, 8, reaches=(0.8, 0.95), device=DEVICE)
    host = [embedding(each, 8) for each in smoothed(on_sphere(rows), adjacency, (0.8, 0.95))]
    for one, other in zip(ours, host, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)
