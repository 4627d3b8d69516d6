"""The adjacency: one canonical symmetric matrix, and a word about everything that was changed to get there."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from pamc.errors import DataWarning
from pamc.graph.adjacency import (
    build_adjacency,
    row_normalize,
    symmetric_normalize,
    symmetrize,
    with_self_loops,
)


def edge_array(*pairs: tuple[int, int]) -> np.ndarray:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T


def messages(call) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(issubclass(warning.category, DataWarning) for warning in caught)
    return [str(warning.message) for warning in caught]


def test_each_pair_stored_once_becomes_both_directions_without_a_word():
    adjacency = build_adjacency(edge_array((0, 1), (2, 1)), n_nodes=3)
    assert adjacency.toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_both_directions_of_every_pair_give_the_same_matrix_without_a_word():
    one = build_adjacency(edge_array((0, 1), (1, 2)), n_nodes=3)
    both = build_adjacency(edge_array((0, 1), (1, 0), (2, 1), (1, 2)), n_nodes=3)
    assert (one != both).nnz == 0


def test_self_loops_are_left_out_and_counted():
    with pytest.warns(DataWarning, match=r"2 of 3 edges join a row with itself"):
        adjacency = build_adjacency(edge_array((0, 0), (0, 1), (1, 1)), n_nodes=2)
    assert adjacency.toarray().tolist() == [[0, 1], [1, 0]]


def test_a_repeated_edge_counts_once_and_is_counted():
    with pytest.warns(DataWarning, match=r"2 of 4 edges repeat .* count once"):
        adjacency = build_adjacency(edge_array((0, 1), (0, 1), (0, 1), (1, 2)), n_nodes=3)
    assert adjacency.toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_the_weights_of_a_repeated_edge_add_up():
    with pytest.warns(DataWarning, match=r"1 of 2 edges repeat .* weights are added"):
        adjacency = build_adjacency(edge_array((0, 1), (0, 1)), np.array([0.5, 0.25]), n_nodes=2)
    assert adjacency.toarray().tolist() == [[0, 0.75], [0.75, 0]]


def test_a_mixture_of_one_and_two_directions_is_called_directed_with_the_count():
    edges = edge_array((0, 1), (1, 0), (1, 2), (2, 3))
    with pytest.warns(DataWarning, match=r"directed: 2 pairs have one direction only"):
        adjacency = build_adjacency(edges, n_nodes=4)
    assert adjacency.nnz == 6


def test_two_different_weights_are_called_directed_and_the_larger_is_kept():
    with pytest.warns(DataWarning, match=r"directed: 1 pairs .* two different weights"):
        adjacency = build_adjacency(edge_array((0, 1), (1, 0)), np.array([2.0, 3.0]), n_nodes=2)
    assert adjacency.toarray().tolist() == [[0, 3], [3, 0]]


def test_weights_that_differ_by_rounding_are_not_called_directed():
    build_adjacency(edge_array((0, 1), (1, 0)), np.array([0.1 + 0.2, 0.3]), n_nodes=2)


def test_a_neighbor_list_is_expected_to_be_directed():
    edges = edge_array((0, 1), (1, 0), (1, 2))
    assert messages(lambda: build_adjacency(edges, n_nodes=3, expect_directed=True)) == []
    assert len(messages(lambda: build_adjacency(edges, n_nodes=3))) == 1


def test_a_graph_without_edges_or_of_many_components_is_legal():
    empty = build_adjacency(edge_array(), n_nodes=3)
    assert empty.shape == (3, 3)
    assert empty.nnz == 0
    assert messages(lambda: build_adjacency(edge_array((0, 1), (2, 3), (4, 5)), n_nodes=9)) == []


def test_the_warning_points_at_the_caller():
    with pytest.warns(DataWarning) as caught:
        build_adjacency(edge_array((0, 0)), n_nodes=1)
    assert caught[0].filename == __file__


EDGE_LISTS = st.integers(1, 8).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.floats(0.125, 9.0, width=32)), max_size=20),
    )
)


@given(EDGE_LISTS, st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_matrix_is_canonical_symmetric_and_independent_of_the_edges_order(case, weighted, random):
    n_nodes, triples = case
    shuffled = random.sample(triples, len(triples))
    results = []
    for lines in (triples, shuffled):
        edges = edge_array(*[line[:2] for line in lines])
        weight = np.array([line[2] for line in lines], dtype=np.float32) if weighted else None
        given_edges = edges.copy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            results.append(build_adjacency(edges, weight, n_nodes=n_nodes))
        assert (edges == given_edges).all()
    first, second = results
    assert first.dtype == np.float64
    assert first.has_canonical_format
    assert (first != first.T).nnz == 0
    assert (first.diagonal() == 0).all()
    assert (first.data > 0).all()
    np.testing.assert_allclose(first.toarray(), second.toarray(), rtol=1e-12)
    if not weighted:
        assert (first.data == 1).all()
        assert {tuple(sorted(pair)) for pair in np.argwhere(first.toarray()).tolist()} == {
            tuple(sorted(line[:2])) for line in triples if line[0] != line[1]
        }


@pytest.fixture
def weighted_path() -> sp.csr_matrix:
    """0 –2– 1 –3– 2, and 3 alone."""
    return sp.csr_matrix(np.array([[0, 2, 0, 0], [2, 0, 3, 0], [0, 3, 0, 0], [0, 0, 0, 0]], dtype=np.float64))


def test_symmetrize_takes_the_maximum_of_both_directions():
    matrix = sp.csr_matrix([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0], [4.0, 0.0, 0.0]])
    assert symmetrize(matrix).toarray().tolist() == [[0, 2, 4], [2, 0, 0], [4, 0, 0]]


def test_self_loops_replace_a_diagonal_exactly(weighted_path):
    dense = weighted_path.toarray()
    np.fill_diagonal(dense, [0.1, 0.7, 0.0, 3.3])
    looped = with_self_loops(sp.csr_matrix(dense))
    assert (looped.diagonal() == 1).all()
    assert ((looped - sp.eye_array(4)) != weighted_path).nnz == 0


def test_normalized_matrices_agree_with_their_dense_formulas(weighted_path):
    dense = weighted_path.toarray()[:3, :3]
    degree = dense.sum(axis=1)
    row = row_normalize(weighted_path).toarray()
    symmetric = symmetric_normalize(weighted_path).toarray()
    np.testing.assert_allclose(row[:3, :3], dense / degree[:, None])
    np.testing.assert_allclose(symmetric[:3, :3], dense / np.sqrt(np.outer(degree, degree)))


def test_an_isolated_row_stays_empty_when_normalized(weighted_path):
    for normalize in (row_normalize, symmetric_normalize):
        assert normalize(weighted_path).toarray()[3].tolist() == [0, 0, 0, 0]


def test_no_function_modifies_its_argument(weighted_path):
    before = weighted_path.copy()
    for function in (symmetrize, with_self_loops, row_normalize, symmetric_normalize):
        result = function(weighted_path)
        if sp.issparse(result):
            result.data[:] = -1
            result.indices[:] = 0
    assert (weighted_path != before).nnz == 0
