"""Several relations as one graph: the weighted sum of their normalized matrices, in float64 loops."""

import numpy as np
import pytest
import scipy.sparse as sp

from pamc.data.relations import joined
from pamc.errors import ConfigError, DataError, UnknownNameError
from pamc.graph.adjacency import build_adjacency
from pamc.graph.relations import combined

# Seven rows; row 6 has no edges, and row 5 has edges in the second relation only.
FIRST = build_adjacency(np.array([[0, 1, 2, 3], [1, 2, 3, 4]]), None, n_nodes=7)
SECOND = build_adjacency(np.array([[0, 0, 5, 2], [1, 4, 2, 3]]), np.array([1.0, 2.0, 0.5, 3.0]), n_nodes=7)


def loops(relations, weights):
    """Return the same matrix in plain loops over pairs of rows."""
    n = relations[0].shape[0]
    steps = [[0.0] * n for _ in range(n)]
    for relation, weight in zip(relations, weights, strict=True):
        a = relation.toarray()
        degree = [1 + sum(a[i]) for i in range(n)]
        for i in range(n):
            for j in range(n):
                entry = 1.0 if i == j else a[i][j]
                steps[i][j] += weight * entry / (degree[i] * degree[j]) ** 0.5
    scaled = [[steps[i][j] / (steps[i][i] * steps[j][j]) ** 0.5 for j in range(n)] for i in range(n)]
    return np.array(scaled) - np.eye(n)


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.9, 0.1), (3.0, 1.0)])
def test_the_graph_of_relations_equals_plain_loops(weights):
    assert np.abs(combined([FIRST, SECOND], weights).toarray() - loops([FIRST, SECOND], weights)).max() < 1e-14


def test_a_relation_alone_or_with_weight_0_beside_it_keeps_its_bits():
    for weights in ([1.0, 0.0], [0.3, 0.0]):
        assert combined([SECOND, FIRST], weights) is SECOND


def test_the_same_relation_several_times_is_the_relation():
    graph = combined([SECOND, SECOND, SECOND], [0.2, 1.0, 0.5])
    assert np.abs((graph - SECOND).toarray()).max() < 1e-14


def test_the_order_of_relations_does_not_matter():
    difference = combined([FIRST, SECOND], [0.3, 0.7]) - combined([SECOND, FIRST], [0.7, 0.3])
    assert np.abs(difference.toarray()).max() < 1e-15


def test_a_dense_relation_does_not_drown_a_sparse_one():
    dense = build_adjacency(np.stack(np.triu_indices(200, 1)), None, n_nodes=200)
    sparse = build_adjacency(np.stack([np.arange(199), np.arange(1, 200)]), None, n_nodes=200)
    graph = combined([dense, sparse], [0.5, 0.5])
    both_ways = graph[np.arange(1, 198), np.arange(2, 199)]
    share = both_ways.sum() * 2 / graph.sum()
    assert share > 0.3
    assert sp.issparse(graph)


# Joined lists of edges

ENDS = np.array([[0, 1], [1, 2]])


def test_joined_edges_split_into_the_same_relations():
    weight = np.array([0.5, 2.0])
    parts = {"a": (ENDS, None), "b": (ENDS[:, ::-1], weight), "c": (ENDS[:, :1], None)}
    edges, edge_weight, relations = joined(parts)
    for name, (part, part_weight) in relations.split(edges, edge_weight).items():
        assert (part == parts[name][0]).all()
        expected = parts[name][1]
        assert (part_weight is None) == (expected is None)
        assert expected is None or (part_weight == expected).all()


def test_relations_without_weights_have_no_edge_weights():
    assert joined({"a": (ENDS, None), "b": (ENDS, None)})[1] is None


@pytest.mark.parametrize(
    ("parts", "weights", "error", "message"),
    [
        ({}, None, DataError, "empty dict"),
        ({"a": (ENDS, None), "b": (ENDS[:, :0], None)}, None, DataError, "relation 'b' has no edges"),
        ({"a": (ENDS, None)}, {"a": -1.0}, ConfigError, "weight of 'a' must be a number of at least 0, got -1"),
        ({"a": (ENDS, None)}, {"a": float("nan")}, ConfigError, "weight of 'a'"),
        ({"a": (ENDS, None)}, {"a": float("inf")}, ConfigError, "weight of 'a'"),
        ({"a": (ENDS, None)}, {"a": "much"}, ConfigError, "weight of 'a'"),
        ({"a": (ENDS, None)}, {"a": 0}, ConfigError, "all 0"),
        ({"a": (ENDS, None)}, {"b": 1.0}, UnknownNameError, "'b'"),
        ({"a": (ENDS, None), "b": (ENDS, None)}, {"a": 1.0}, ConfigError, "no weight for 'b'"),
        ({"a": (ENDS, None)}, [1.0], ConfigError, "must be a dict"),
    ],
)
def test_wrong_relations_and_weights_are_named(parts, weights, error, message):
    with pytest.raises(error, match=message):
        joined(parts, weights)
