"""Label-free scores against networkx, scikit-learn and plain loops, and their answers to degenerate clusterings."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, silhouette_score

from pamc.errors import DataError
from pamc.ops.scores import alignment, comparable_proxy, conductance, modularity, silhouette, stability, uniformity


def weighted_graph(seed: int, n_nodes: int = 24) -> nx.Graph:
    graph = nx.gnp_random_graph(n_nodes, 0.25, seed=seed)
    rng = np.random.default_rng(seed)
    for _, _, line in graph.edges(data=True):
        line["weight"] = float(rng.uniform(0.5, 3.0))
    return graph


def matrix_of(graph: nx.Graph) -> sp.csr_matrix:
    return sp.csr_matrix(nx.to_scipy_sparse_array(graph, dtype=np.float64, format="csr"))


def members(labels: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(labels == cluster).tolist()) for cluster in range(labels.max() + 1)]


CLUSTERINGS = st.tuples(st.integers(0, 1000), st.integers(2, 5))


@given(CLUSTERINGS)
@settings(max_examples=25, deadline=None)
def test_modularity_and_conductance_agree_with_networkx(case):
    seed, n_clusters = case
    graph = weighted_graph(seed)
    labels = np.random.default_rng(seed).permutation(np.arange(24) % n_clusters)
    clusters = members(labels)
    assert modularity(matrix_of(graph), labels) == pytest.approx(nx.community.modularity(graph, clusters), abs=1e-12)
    expected = [nx.conductance(graph, cluster, weight="weight") for cluster in clusters]
    np.testing.assert_allclose(conductance(matrix_of(graph), labels), expected, rtol=1e-12)


def test_modularity_ignores_the_clusters_names_and_empty_clusters():
    matrix = matrix_of(weighted_graph(0))
    labels = np.arange(24) % 3
    assert modularity(matrix, labels) == pytest.approx(modularity(matrix, np.array([7, 0, 4])[labels]))


def test_one_cluster_has_modularity_zero_and_the_worst_conductance():
    matrix = matrix_of(weighted_graph(0))
    labels = np.zeros(24, dtype=np.int64)
    assert modularity(matrix, labels) == pytest.approx(0.0, abs=1e-12)
    assert conductance(matrix, labels).tolist() == [1.0]


def test_a_graph_without_edges_has_modularity_zero_and_the_worst_conductance():
    labels = np.array([0, 1, 1])
    assert modularity(sp.csr_matrix((3, 3)), labels) == 0.0
    assert conductance(sp.csr_matrix((3, 3)), labels).tolist() == [1.0, 1.0]


def test_empty_clusters_and_clusters_of_isolated_nodes_have_the_worst_conductance():
    # 0 – 1 – 2 – 3 and the isolated 4; cluster 1 is empty, cluster 3 holds 4 alone.
    path = sp.csr_matrix(np.diag([1.0, 1.0, 1.0, 0.0], 1) + np.diag([1.0, 1.0, 1.0, 0.0], -1))
    scores = conductance(path, np.array([0, 0, 2, 2, 3]), n_clusters=6)
    assert scores == pytest.approx([1 / 3, 1, 1 / 3, 1, 1, 1])


def test_a_closed_cluster_has_conductance_zero():
    two_pairs = sp.csr_matrix(np.kron(np.eye(2), [[0.0, 1.0], [1.0, 0.0]]))
    assert conductance(two_pairs, np.array([0, 0, 1, 1])).tolist() == [0.0, 0.0]


@pytest.fixture
def blobs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 30)
    return rng.normal(size=(90, 4)) + 3.0 * labels[:, None], labels


def test_silhouette_agrees_with_scikit_learn(blobs):
    assert silhouette(*blobs) == pytest.approx(silhouette_score(*blobs), rel=1e-12)
    assert silhouette(*blobs, sample_size=90) == silhouette(*blobs)


def test_a_sampled_silhouette_depends_on_its_seed_alone(blobs):
    state = np.random.get_state()[1].copy()
    scores = [silhouette(*blobs, sample_size=30, random_state=seed) for seed in (0, 0, 1)]
    assert scores[0] == scores[1] != scores[2]
    assert scores[0] == pytest.approx(silhouette(*blobs), abs=0.2)
    assert (np.random.get_state()[1] == state).all()


def test_silhouette_is_zero_for_one_cluster_or_a_cluster_per_row(blobs):
    x, labels = blobs
    assert silhouette(x, np.zeros_like(labels)) == 0.0
    assert silhouette(x, np.arange(len(x))) == 0.0
    assert silhouette(x, labels, sample_size=1, random_state=0) == 0.0


def unit_sample(n_rows: int, n_dims: int) -> torch.Tensor:
    rows = torch.randn(n_rows, n_dims, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.normalize(rows)


def test_uniformity_and_alignment_agree_with_plain_loops():
    rows = unit_sample(7, 3)
    squares = {(i, j): float(((rows[i] - rows[j]) ** 2).sum()) for i in range(7) for j in range(7) if i != j}
    mean = sum(math.exp(-2 * square) for square in squares.values()) / len(squares)
    assert float(uniformity(rows)) == pytest.approx(math.log(mean), rel=1e-12)
    pairs = torch.tensor([[0, 1, 5], [2, 4, 6]])
    expected = (squares[0, 2] + squares[1, 4] + squares[5, 6]) / 3
    assert float(alignment(rows, pairs)) == pytest.approx(expected, rel=1e-12)


def test_uniformity_is_zero_for_equal_rows_and_falls_as_they_spread():
    equal = torch.ones(5, 1)
    assert float(uniformity(equal)) == pytest.approx(0.0, abs=1e-6)
    cap = torch.nn.functional.normalize(unit_sample(50, 4) + 2.0)
    assert float(uniformity(unit_sample(50, 4))) < float(uniformity(cap)) < 0.0


def test_uniformity_of_one_row_and_alignment_of_no_pairs_are_zero():
    rows = unit_sample(1, 3).float()
    for score in (uniformity(rows), alignment(rows, torch.empty(2, 0, dtype=torch.int64))):
        assert score.shape == ()
        assert score.dtype == torch.float32
        assert float(score) == 0.0


def proxy_of(meta_nodes: torch.Tensor, tau: float) -> float:
    """Eq 2 in plain loops."""
    unit = torch.nn.functional.normalize(meta_nodes)
    pairs = [(a, b) for a in range(len(unit)) for b in range(len(unit)) if a != b]
    return math.log(sum(math.exp(tau * float(unit[a] @ unit[b])) for a, b in pairs))


@pytest.mark.parametrize("n_clusters", [2, 3, 10])
def test_the_comparable_proxy_of_orthonormal_meta_nodes_is_zero_for_any_number_of_clusters(n_clusters):
    orthonormal = torch.eye(n_clusters, dtype=torch.float64)
    assert comparable_proxy(proxy_of(orthonormal, 0.5), n_clusters) == pytest.approx(0.0, abs=1e-12)
    identical = torch.ones(n_clusters, 4, dtype=torch.float64)
    assert comparable_proxy(proxy_of(identical, 0.5), n_clusters) == pytest.approx(0.5)


@pytest.mark.parametrize("n_nonempty", [0, 1])
def test_a_collapsed_run_never_wins(n_nonempty):
    assert comparable_proxy(0.0, n_nonempty) == math.inf


def test_stability_is_the_mean_over_pairs_of_labelings():
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(0, 3, 40) for _ in range(3))
    expected = np.mean([adjusted_rand_score(a, b), adjusted_rand_score(a, c), adjusted_rand_score(b, c)])
    assert stability([a, b, c]) == pytest.approx(expected)
    assert stability([a, (a + 1) % 3, a * 5]) == pytest.approx(1.0)


def test_stability_of_one_labeling_is_refused():
    with pytest.raises(DataError, match="at least 2 are needed, got 1"):
        stability([np.zeros(3)])
