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

from pamc.ops.scores import adjusted_rand, comparable_proxy, conductance, modularity, silhouette


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
def test_modularity_agrees_with_networkx(case):
    seed, n_clusters = case
    graph = weighted_graph(seed)
    labels = np.random.default_rng(seed).permutation(np.arange(24) % n_clusters)
    clusters = members(labels)
    assert modularity(matrix_of(graph), labels) == pytest.approx(nx.community.modularity(graph, clusters), abs=1e-12)


def test_modularity_ignores_the_clusters_names_and_empty_clusters():
    matrix = matrix_of(weighted_graph(0))
    labels = np.arange(24) % 3
    assert modularity(matrix, labels) == pytest.approx(modularity(matrix, np.array([7, 0, 4])[labels]))


def test_one_cluster_has_modularity_zero():
    matrix = matrix_of(weighted_graph(0))
    labels = np.zeros(24, dtype=np.int64)
    assert modularity(matrix, labels) == pytest.approx(0.0, abs=1e-12)


def test_a_graph_without_edges_has_modularity_zero():
    labels = np.array([0, 1, 1])
    assert modularity(sp.csr_matrix((3, 3)), labels) == 0.0


def conductance_in_loops(graph: nx.Graph, labels: np.ndarray) -> list[float]:
    shares = []
    for cluster in range(labels.max() + 1):
        inside = cut = 0.0
        for i, j, line in graph.edges(data=True):
            n_ends = int(labels[i] == cluster) + int(labels[j] == cluster)
            inside += line["weight"] * n_ends if n_ends == 2 else 0.0
            cut += line["weight"] if n_ends == 1 else 0.0
        shares.append(cut / (inside + cut) if inside + cut else 1.0)
    return shares


@given(CLUSTERINGS)
@settings(max_examples=25, deadline=None)
def test_conductance_is_that_of_plain_loops(case):
    seed, n_clusters = case
    graph = weighted_graph(seed)
    labels = np.random.default_rng(seed).integers(n_clusters, size=24)
    expected = conductance_in_loops(graph, labels)
    assert conductance(matrix_of(graph), labels) == pytest.approx(np.array(expected), abs=1e-12)


def test_the_conductance_of_a_cluster_without_edges_is_one_and_of_a_cluster_without_cut_edges_zero():
    one_edge = sp.csr_matrix(([2.0, 2.0], ([0, 1], [1, 0])), shape=(4, 4))
    assert conductance(one_edge, np.array([0, 0, 1, 3])).tolist() == [0.0, 1.0, 1.0, 1.0]


@pytest.fixture
def blobs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 30)
    return rng.normal(size=(90, 4)) + 3.0 * labels[:, None], labels


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=40))
def test_the_adjusted_rand_index_is_scikit_learns(pairs):
    one, other = np.array(pairs).T
    assert adjusted_rand(one, other) == pytest.approx(adjusted_rand_score(one, other), abs=1e-12)


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
