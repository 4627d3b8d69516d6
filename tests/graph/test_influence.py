"""Influence: the sum of powers, by blocks or at once, and what pruning keeps."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from pamc.errors import ConfigError
from pamc.graph import influence as influence_module
from pamc.graph.adjacency import build_adjacency, row_normalize, with_self_loops
from pamc.graph.influence import InfluenceReport, influence, positive_pairs


def random_graph(n_nodes: int, n_edges: int, *, seed: int = 0) -> sp.csr_matrix:
    """Random weighted graph; the last node is isolated."""
    rng = np.random.default_rng(seed)
    pairs = rng.choice((n_nodes - 1) * (n_nodes - 2) // 2, n_edges, replace=False)
    source, target = (side[pairs] for side in np.triu_indices(n_nodes - 1, 1))
    return build_adjacency(np.stack([source, target]), rng.uniform(0.5, 2.0, n_edges), n_nodes=n_nodes)


def dense_influence(adjacency: sp.csr_matrix, n_hops: int) -> np.ndarray:
    looped = adjacency.toarray() + np.eye(adjacency.shape[0])
    transition = looped / looped.sum(axis=1, keepdims=True)
    return sum(np.linalg.matrix_power(transition, hop) for hop in range(1, n_hops + 1))


def plain_prune(gamma: np.ndarray, max_positives: int) -> np.ndarray:
    result = np.diag(np.diag(gamma))
    for i, row in enumerate(gamma):
        ranked = sorted((-weight, j) for j, weight in enumerate(row) if j != i and weight > 0)
        for weight, j in ranked[:max_positives]:
            result[i, j] = -weight
    return result


@pytest.mark.parametrize("n_hops", [1, 2, 3, 4])
@pytest.mark.parametrize("block_entries", [1, 97, 1 << 25])
def test_influence_is_the_sum_of_dense_matrix_powers(n_hops, block_entries, monkeypatch):
    monkeypatch.setattr(influence_module, "_BLOCK_ENTRIES", block_entries)
    adjacency = random_graph(41, 60)
    gamma = influence(adjacency, n_hops=n_hops)
    np.testing.assert_allclose(gamma.toarray(), dense_influence(adjacency, n_hops), rtol=1e-12, atol=1e-15)
    assert gamma.has_canonical_format


def test_blocks_hold_no_more_entries_than_they_may(monkeypatch):
    monkeypatch.setattr(influence_module, "_BLOCK_ENTRIES", 200)
    step = row_normalize(with_self_loops(random_graph(41, 60)))
    sizes = [(block.nnz, block.shape[0]) for _, block in influence_module.sums_of_powers(step, 2)]
    assert 1 < len(sizes) < 41
    assert sum(n_rows for _, n_rows in sizes) == 41
    assert all(nnz <= 200 for nnz, _ in sizes)


def test_the_pattern_is_symmetric_when_the_graph_is():
    gamma = influence(random_graph(41, 60), n_hops=3)
    assert ((gamma > 0) != (gamma > 0).T).nnz == 0
    assert (gamma != gamma.T).nnz > 0


def test_every_row_of_influence_adds_up_to_the_number_of_hops():
    gamma = influence(random_graph(41, 60), n_hops=3)
    np.testing.assert_allclose(np.asarray(gamma.sum(axis=1)).ravel(), 3.0)


def test_an_isolated_node_keeps_all_of_itself():
    gamma = influence(random_graph(41, 60), n_hops=2).toarray()
    assert gamma[40].tolist() == [0.0] * 40 + [2.0]


@pytest.mark.parametrize("max_positives", [1, 3, 1000])
@pytest.mark.parametrize("block_entries", [50, 1 << 25])
def test_pruned_influence_keeps_the_largest_weights_of_each_row_and_the_diagonal(
    max_positives, block_entries, monkeypatch
):
    monkeypatch.setattr(influence_module, "_BLOCK_ENTRIES", block_entries)
    adjacency = random_graph(41, 60)
    whole = influence(adjacency, n_hops=3)
    pruned = influence(adjacency, n_hops=3, max_positives=max_positives)
    np.testing.assert_array_equal(pruned.toarray(), plain_prune(whole.toarray(), max_positives))
    assert pruned.has_canonical_format


def test_of_equal_weights_the_lower_columns_are_kept():
    star = build_adjacency(np.array([[2, 2, 2, 2], [0, 1, 3, 4]]), n_nodes=5)
    pruned = influence(star, max_positives=2)
    assert pruned[2].toarray().ravel().tolist() == [0.2, 0.2, 0.2, 0.0, 0.0]


def test_the_report_states_pairs_and_mass_before_and_after():
    adjacency = random_graph(41, 60)
    whole = influence(adjacency, n_hops=2).toarray()
    np.fill_diagonal(whole, 0.0)
    kept = plain_prune(whole, 2)
    _, report = positive_pairs(adjacency, n_hops=2, max_positives=2)
    assert report.n_pairs_before == np.count_nonzero(whole)
    assert report.n_pairs_after == np.count_nonzero(kept) < report.n_pairs_before
    assert report.kept_mass == pytest.approx(kept.sum() / whole.sum(), rel=1e-12)


def test_without_pruning_everything_is_kept():
    pairs, report = positive_pairs(random_graph(41, 60), n_hops=2)
    assert report == InfluenceReport(pairs.n_pairs, pairs.n_pairs, 1.0)


def test_positive_pairs_hold_both_directions_of_a_pruned_pair():
    adjacency = random_graph(41, 60)
    gamma = influence(adjacency, n_hops=2, max_positives=2).toarray()
    pairs, _ = positive_pairs(adjacency, n_hops=2, max_positives=2, dtype=torch.float64)
    i, j = pairs.rows, pairs.indices
    torch.testing.assert_close(pairs.log_weight.exp(), torch.from_numpy(gamma)[i, j])
    torch.testing.assert_close(pairs.log_weight_t.exp(), torch.from_numpy(gamma)[j, i])
    torch.testing.assert_close(pairs.log_self_weight.exp(), torch.from_numpy(gamma).diagonal())
    assert pairs.log_weight.isinf().any()


def test_a_graph_without_edges_has_no_pairs_and_loses_no_mass():
    pairs, report = positive_pairs(build_adjacency(np.empty((2, 0), dtype=np.int64), n_nodes=3), n_hops=2)
    assert pairs.n_pairs == 0
    assert report == InfluenceReport(0, 0, 1.0)
    assert pairs.log_self_weight.exp().tolist() == pytest.approx([2.0, 2.0, 2.0])


@pytest.mark.parametrize("n_hops", [0, -1])
def test_fewer_than_one_hop_is_refused(n_hops):
    with pytest.raises(ConfigError, match=f"n_hops must be at least 1, got {n_hops}"):
        influence(random_graph(5, 3), n_hops=n_hops)


def test_fewer_than_one_positive_is_refused():
    for call in (influence, positive_pairs):
        with pytest.raises(ConfigError, match="max_positives must be at least 1, got 0"):
            call(random_graph(5, 3), max_positives=0)
