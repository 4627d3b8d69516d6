"""Positive pairs: both directions of γ side by side, whatever came in."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pamc.errors import DataError
from pamc.graph.positives import PositivePairs

# Mostly zeros: weights in one direction, in both, on the diagonal, and rows without any.
MATRICES = st.integers(1, 7).flatmap(
    lambda n: hnp.arrays(np.float64, (n, n), elements=st.sampled_from([0.0, 0.0, 0.0, 0.25, 1.0, 3.0]))
)


def dense(pairs: PositivePairs, weight: torch.Tensor) -> torch.Tensor:
    result = torch.zeros(pairs.n_nodes, pairs.n_nodes, dtype=weight.dtype)
    result[pairs.rows, pairs.indices] = weight.exp()
    return result


@given(MATRICES)
@settings(max_examples=60, deadline=None)
def test_the_pairs_give_the_matrix_its_transpose_and_its_diagonal_back(matrix):
    pairs = PositivePairs.from_matrix(sp.csr_matrix(matrix), dtype=torch.float64)
    off_diagonal = torch.from_numpy(matrix - np.diag(np.diag(matrix)))
    torch.testing.assert_close(dense(pairs, pairs.log_weight), off_diagonal)
    torch.testing.assert_close(dense(pairs, pairs.log_weight_t), off_diagonal.T)
    torch.testing.assert_close(pairs.log_self_weight.exp(), torch.from_numpy(np.diag(matrix).copy()))


@given(MATRICES)
@settings(max_examples=60, deadline=None)
def test_the_pattern_is_symmetric_sorted_and_without_diagonal(matrix):
    pairs = PositivePairs.from_matrix(sp.csr_matrix(matrix))
    entries = list(zip(pairs.rows.tolist(), pairs.indices.tolist(), strict=True))
    assert entries == sorted(set(entries))
    assert {(j, i) for i, j in entries} == set(entries)
    assert all(i != j for i, j in entries)
    assert len(entries) == pairs.n_pairs == pairs.indptr[-1]
    assert not (pairs.log_weight.isneginf() & pairs.log_weight_t.isneginf()).any()


def test_a_one_way_pair_is_stored_both_ways_with_weight_zero_in_the_other():
    pairs = PositivePairs.from_edges(torch.tensor([[0], [1]]), torch.tensor([0.5]), n_nodes=3)
    assert pairs.rows.tolist() == [0, 1]
    assert pairs.indices.tolist() == [1, 0]
    assert pairs.log_weight.exp().tolist() == [0.5, 0.0]
    assert pairs.log_weight_t.exp().tolist() == [0.0, 0.5]
    assert pairs.log_self_weight.isneginf().all()
    assert pairs.n_nodes == 3


def test_the_weights_of_repeated_edges_add_up_and_default_to_one():
    edges = torch.tensor([[0, 0, 1], [1, 1, 1]])
    plain = PositivePairs.from_edges(edges, n_nodes=2)
    assert plain.log_weight.exp().tolist() == [2.0, 0.0]
    assert plain.log_self_weight.exp().tolist() == [0.0, 1.0]
    weighted = PositivePairs.from_edges(edges, torch.tensor([0.25, 0.5, 3.0]), n_nodes=2)
    assert weighted.log_weight.exp().tolist() == [0.75, 0.0]
    assert weighted.log_self_weight.exp().tolist() == pytest.approx([0.0, 3.0])


def test_edge_weights_that_need_gradients_are_taken_as_numbers():
    weight = torch.tensor([2.0], requires_grad=True)
    pairs = PositivePairs.from_edges(torch.tensor([[0], [1]]), weight, n_nodes=2)
    assert not pairs.log_weight.requires_grad


def test_entries_stored_as_zero_are_no_pairs():
    gamma = sp.csr_matrix((np.array([0.0, 1.0]), np.array([1, 2]), np.array([0, 2, 2, 2])), shape=(3, 3))
    pairs = PositivePairs.from_matrix(gamma)
    assert list(zip(pairs.rows.tolist(), pairs.indices.tolist(), strict=True)) == [(0, 2), (2, 0)]
    assert gamma.nnz == 2


def test_other_sparse_formats_and_number_types_are_taken():
    pairs = PositivePairs.from_matrix(sp.coo_array(np.array([[0, 2], [1, 0]])))
    assert pairs.log_weight.exp().tolist() == [2.0, 1.0]


def test_a_matrix_that_is_not_square_is_refused():
    with pytest.raises(DataError, match=r"square matrix, got shape \(2, 3\)"):
        PositivePairs.from_matrix(sp.csr_matrix((2, 3)))


def test_moving_the_pairs_changes_the_type_of_the_weights_only():
    pairs = PositivePairs.from_edges(torch.tensor([[0, 1], [1, 1]]), n_nodes=2)
    double = pairs.to(device="cpu", dtype=torch.float64)
    assert {double.log_weight.dtype, double.log_weight_t.dtype, double.log_self_weight.dtype} == {torch.float64}
    assert {double.indptr.dtype, double.indices.dtype, double.rows.dtype} == {torch.int64}
    assert pairs.log_weight.dtype == torch.float32
    torch.testing.assert_close(double.log_weight.float(), pairs.log_weight)
    assert pairs.to().log_weight.dtype == torch.float32
