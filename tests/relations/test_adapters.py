"""Relations in objects of other libraries."""

import networkx as nx
import numpy as np
import pytest
import torch

from pamc import AttributedGraph
from pamc.data.adapters import from_object, split_by_attribute, with_adjacency
from pamc.errors import DataError

X = np.arange(8.0).reshape(4, 2)


def names_and_edges(graph):
    parts = graph.relations.split(graph.edges, graph.edge_weight).items()
    return {name: (ends.tolist(), None if weight is None else weight.tolist()) for name, (ends, weight) in parts}


def hetero():
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    data["author"].x = torch.from_numpy(X)
    data["author"].y = torch.tensor([0, 0, 1, 1])
    data["author", "knows", "author"].edge_index = torch.tensor([[0, 1], [1, 2]])
    data["author", "cites", "author"].edge_index = torch.tensor([[0], [3]])
    data["author", "cites", "author"].edge_weight = torch.tensor([2.0])
    return data


def test_the_edge_types_of_a_heterodata_are_relations():
    graph = from_object(hetero())
    assert names_and_edges(graph) == {"knows": ([[0, 1], [1, 2]], None), "cites": ([[0], [3]], [2.0])}
    assert graph.labels.tolist() == [0, 0, 1, 1]


def test_a_heterodata_with_two_types_of_nodes_or_without_features_is_refused():
    data = hetero()
    data["paper"].x = torch.ones(2, 2)
    with pytest.raises(DataError, match="2 types of nodes \\('author', 'paper'\\): keep one of them"):
        from_object(data)
    data = hetero()
    del data["author"].x
    with pytest.raises(DataError, match="the HeteroData has no x"):
        from_object(data)


def test_a_multigraph_is_split_by_an_edge_attribute():
    multigraph = nx.MultiGraph()
    multigraph.add_nodes_from(range(4))
    multigraph.add_edge(0, 1, kind="cites", weight=2.0)
    multigraph.add_edge(0, 1, kind="tags")
    multigraph.add_edge(2, 3, kind="tags")
    graph = with_adjacency(AttributedGraph(X), split_by_attribute(multigraph, "kind"))
    assert graph.relations.names == ("cites", "tags")
    assert graph.relations.of_edge.tolist().count(1) in (2, 4)


def test_an_edge_without_the_attribute_is_named():
    with pytest.raises(DataError, match="the edge 0–1 of the networkx graph has no attribute 'kind'"):
        split_by_attribute(nx.Graph([(0, 1)]), "kind")


def test_pairs_of_arrays_as_in_dgl_are_relations():
    graph = with_adjacency(AttributedGraph(X), {"a": (torch.tensor([0, 1]), torch.tensor([1, 2]))})
    assert names_and_edges(graph) == {"a": ([[0, 1], [1, 2]], None)}
