"""Directed graphs as relations: outgoing and incoming edges, co-citation and coupling."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from pamc import DirectedEdges, PamCGC, evaluate
from pamc.data.adapters import graph_alone, with_adjacency
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.directed import KINDS, directed_relations
from pamc.data.memberships import Memberships
from pamc.data.readers import read_graph
from pamc.data.synthetic import blobs
from pamc.errors import DataError, DataWarning, UnknownNameError
from pamc.initialize.relations import adjacencies

ENDS = np.array([[0, 1, 1, 2, 3, 3, 4], [2, 2, 3, 0, 0, 3, 3]])


def dense(edges, weight, n_nodes):
    matrix = np.zeros((n_nodes, n_nodes))
    matrix[tuple(edges)] = weight
    return matrix + matrix.T


def test_each_kind_equals_plain_loops():
    parts = directed_relations(ENDS, None, 5)
    cites = {(int(a), int(b)) for a, b in ENDS.T if a != b}
    n_cited = [sum(a == row for a, _ in cites) for row in range(5)]
    n_citing = [sum(b == row for _, b in cites) for row in range(5)]
    expected = {"out": np.zeros((5, 5)), "in": np.zeros((5, 5))}
    for a, b in cites:
        for kind, share in (("out", 1 / n_cited[a]), ("in", 1 / n_citing[b])):
            expected[kind][a, b] = max(expected[kind][a, b], share)
            expected[kind][b, a] = max(expected[kind][b, a], share)
    for kind, matrix in expected.items():
        np.testing.assert_allclose(dense(*parts[kind], 5), matrix)
    source, target = np.array(sorted(cites)).T
    for kind, members in (("coupling", Memberships(source, target)), ("co-citation", Memberships(target, source))):
        for found, wanted in zip(parts[kind], members.edges(5), strict=True):
            assert np.array_equal(found, wanted)


def test_weights_of_edges_count_and_repeated_edges_are_merged():
    ends, weight = np.array([[0, 0, 0], [1, 2, 2]]), np.array([3.0, 1.0, 2.0])
    edges, shares = directed_relations(ends, weight, 3, kinds=("out",))["out"]
    assert dict(zip(map(tuple, edges.T.tolist()), shares.tolist(), strict=True)) == {(0, 1): 0.5, (0, 2): 0.5}
    edges, shares = directed_relations(ends, None, 3, kinds=("out",))["out"]
    assert shares.tolist() == [0.5, 0.5]


def cycle_of_groups():
    """Return features, labels and directed edges from the rows of each group to some of the next group."""
    rng = np.random.default_rng(0)
    rows = blobs(300, 3, feature_noise=3.0, random_state=0)
    source = rng.integers(300, size=1500)
    members = [np.flatnonzero(rows.labels == label) for label in range(3)]
    target = np.array([rng.choice(members[(label + 1) % 3]) for label in rows.labels[source]])
    return rows.features, rows.labels, np.unique(np.stack([source, target]), axis=1)


def test_coupling_finds_groups_that_edges_do_not_join():
    X, labels, edges = cycle_of_groups()
    settings = {"random_state": 0, "device": "cpu", "n_epochs": 5, "advanced": {"hidden": (32,)}}
    model = PamCGC(3, **settings).fit(X, adjacency=DirectedEdges(edges.T))
    weights = model.record().facts["relation_weights"]
    assert set(weights) == set(KINDS)
    assert max(weights["out"], weights["in"]) < 1e-3
    assert weights["coupling"] > 0.3
    assert weights["co-citation"] > 0.3
    with pytest.warns(DataWarning, match="the graph is left out"):
        alone = PamCGC(3, **settings).fit(X, adjacency=edges.T)
    assert evaluate(labels, model.labels_)["acc"] > evaluate(labels, alone.labels_)["acc"] + 0.05


def test_every_form_of_a_directed_graph_is_the_same_and_named_after_its_relation():
    matrix = sp.csr_matrix((np.ones(7), tuple(ENDS)), shape=(5, 5))
    forms = (ENDS.T, matrix, matrix.toarray(), nx.from_scipy_sparse_array(matrix, create_using=nx.DiGraph))
    graphs = [with_adjacency(AttributedGraph(np.eye(5)), {"cites": DirectedEdges(form)}) for form in forms]
    assert graphs[0].relations.names == ("cites out", "cites in", "cites co-citation", "cites coupling")
    for graph in graphs[1:]:
        assert np.array_equal(graph.edges, graphs[0].edges)
        assert np.array_equal(graph.edge_weight, graphs[0].edge_weight)
    assert all(matrix.nnz for matrix in adjacencies(graphs[0]).values())


def test_a_file_of_directed_edges_is_read_as_its_relations(tmp_path):
    (tmp_path / "rows.csv").write_text("x\n" + "".join(f"{i}.5\n" for i in range(5)), encoding="utf-8")
    lines = "".join(f"{a},{b}\n" for a, b in ENDS.T)
    (tmp_path / "cites.csv").write_text(f"source,target\n{lines}", encoding="utf-8")
    read = read_graph(tmp_path / "rows.csv", directed={"cites": tmp_path / "cites.csv"})
    made = with_adjacency(AttributedGraph(np.eye(5)), {"cites": DirectedEdges(ENDS.T)})
    assert read.relations.names == made.relations.names
    assert np.array_equal(read.edges, made.edges)


def test_wrong_directed_edges_are_refused():
    rows = AttributedGraph(np.eye(5))
    with pytest.raises(UnknownNameError, match="'cocitation'"):
        DirectedEdges(ENDS.T, kinds=("cocitation",))
    with pytest.raises(DataError, match="relation 'cites': the networkx graph is undirected"):
        with_adjacency(rows, {"cites": DirectedEdges(nx.path_graph(5))})
    with pytest.raises(DataError, match=r"^the directed graph has no edges between different rows"):
        with_adjacency(rows, DirectedEdges(np.array([[1, 1], [2, 2], [3, 3]])))
    with pytest.raises(DataError, match="several relations need the rows"):
        graph_alone(DirectedEdges(ENDS.T))
    with pytest.warns(DataWarning, match="give no coupling, which is left out: no two rows share a neighbor"):
        with_adjacency(rows, DirectedEdges(np.array([[0, 1], [0, 2], [3, 4]])))
