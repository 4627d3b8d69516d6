"""A graph without features: what is fitted, how it is saved and explained, and how new rows are assigned."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from pamc import PamCGC, choose_k, clusterer, evaluate
from pamc.data.adapters import graph_alone
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.synthetic import block_model
from pamc.errors import ConfigError, DataError, DataWarning
from pamc.graph.adjacency import build_adjacency
from pamc.initialize.consensus import directions_of_graph
from pamc.initialize.partitions import with_moved_rows
from pamc.models.method import METHODS
from pamc.ops.scores import modularity
from pamc.report.explain import explain

FAST = {"n_epochs": 5, "advanced": {"hidden": (16,), "pretrain_epochs": 20}, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def planted():
    """Return the adjacency of three groups of 40 rows, and the groups."""
    graph = nx.planted_partition_graph(3, 40, 0.3, 0.02, seed=1)
    return nx.to_scipy_sparse_array(graph, format="csr", dtype=float), np.repeat(np.arange(3), 40)


@pytest.fixture(scope="module")
def fitted(planted):
    return PamCGC(3, **FAST).fit(adjacency=planted[0])


def factions(graph):
    return np.array([graph.nodes[name]["club"] == "Officer" for name in graph])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_factions_of_the_karate_club_are_found(seed):
    graph = nx.karate_club_graph()
    with pytest.warns(DataWarning, match="not numbers are left out: 'club'"):
        model = PamCGC(2, random_state=seed, device="cpu").fit(adjacency=graph)
    assert evaluate(factions(graph), model.labels_)["acc"] >= 0.97


@pytest.mark.slow
def test_the_modularity_of_les_miserables_is_that_of_leiden():
    """Leiden's method (leidenalg 0.12) finds six communities with modularity 0.5667."""
    model = PamCGC(6, random_state=0, device="cpu").fit(adjacency=nx.les_miserables_graph())
    assert model.scores_["modularity"] >= 0.98 * 0.5667


def test_planted_groups_are_found_and_the_record_says_how(planted, fitted):
    adjacency, groups = planted
    assert adjusted_rand_score(groups, fitted.labels_) > 0.95
    facts = fitted.record().facts
    assert facts["inputs"] == "graph without features"
    assert facts["features"] == "leading directions of the graph"
    assert facts["clusters_by"] in ("smoothed k-means", "merged groups")
    assert facts["initial_modularity"] == pytest.approx(modularity(adjacency, groups), abs=0.02)
    assert fitted.record().data["n_features"] == fitted.n_features_in_ == 0


def test_the_number_of_planted_groups_is_chosen_by_halves_of_the_edges(planted):
    chosen = choose_k(adjacency=planted[0], random_state=0, device="cpu")
    assert chosen.n_clusters == 3
    assert "3 clusters are stable between halves of the edges" in chosen.summary
    assert chosen.inputs == "graph without features"
    assert chosen.table["stability"].shape == chosen.table["modularity"].shape == (6,)


@pytest.mark.parametrize("kind", ["equal degrees", "hubs"])
def test_no_number_is_chosen_for_a_random_graph(kind):
    graph = (
        nx.gnm_random_graph(120, 500, seed=0) if kind == "equal degrees" else nx.barabasi_albert_graph(120, 4, seed=0)
    )
    chosen = choose_k(adjacency=nx.to_scipy_sparse_array(graph, format="csr"), random_state=0, device="cpu")
    assert chosen.n_clusters is None
    assert np.abs(chosen.table["stability"] - chosen.table["chance"]).max() < 0.1


def test_every_representation_of_a_graph_is_the_same_graph(planted):
    adjacency, _ = planted
    ends = np.stack(sp.triu(adjacency).nonzero())
    forms = {
        "dense": adjacency.toarray(),
        "torch": torch.from_numpy(adjacency.toarray()).to_sparse(),
        "edges": ends,
        "transposed": ends.T,
        "networkx": nx.from_scipy_sparse_array(sp.csr_matrix(adjacency)),
    }
    for name, form in forms.items():
        graph = graph_alone(form)
        built = build_adjacency(graph.edges, graph.edge_weight, n_nodes=graph.n_nodes)
        assert abs(built - adjacency).sum() == 0, name


def test_the_nodes_of_a_networkx_graph_name_the_rows_and_give_numeric_features():
    graph = nx.Graph([("ann", "bob"), ("bob", "eve")])
    nx.set_node_attributes(graph, {"ann": 1.5, "bob": 2}, "age")
    read = graph_alone(graph)
    assert read.ids.tolist() == ["ann", "bob", "eve"]
    assert read.feature_names == ("age",)
    assert np.array_equal(read.features, [[1.5], [2.0], [np.nan]], equal_nan=True)


def test_the_direction_of_edges_is_dropped_with_a_note():
    with pytest.warns(DataWarning, match="every edge is used in both directions"):
        graph_alone(nx.DiGraph([(0, 1), (1, 2)]))


def test_a_torch_geometric_graph_without_x_is_a_graph_without_features():
    data = pytest.importorskip("torch_geometric.data")
    graph = clusterer("svd", 2, n_dims=2)
    ends = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3]])
    graph.fit_graph(data.Data(edge_index=ends, num_nodes=6))
    assert adjusted_rand_score([0, 0, 0, 1, 1, 1], graph.labels_) == 1


def test_methods_that_need_no_features_take_a_graph(planted):
    adjacency, groups = planted
    for name in (name for name in METHODS if not METHODS[name].uses_features):
        model = clusterer(name, 3, random_state=0, device="cpu").fit_graph(graph_alone(adjacency))
        assert adjusted_rand_score(groups, model.labels_) > 0.9, name


def test_a_graph_without_features_is_fitted_reproducibly(planted, fitted):
    again = clone(fitted).fit(adjacency=planted[0])
    assert np.array_equal(again.embedding_, fitted.embedding_)


def test_moving_rows_never_lowers_the_modularity_and_keeps_the_clusters(planted):
    adjacency, groups = planted
    rng = np.random.default_rng(0)
    for _ in range(5):
        labels = np.where(rng.random(len(groups)) < 0.3, rng.integers(3, size=len(groups)), groups)
        moved = with_moved_rows(labels, adjacency, 3, seed=0)
        assert modularity(adjacency, moved) >= modularity(adjacency, labels)
        assert len(np.unique(moved)) == 3
        assert adjusted_rand_score(groups, moved) > 0.95


def test_small_components_do_not_take_up_the_leading_directions(planted):
    adjacency, groups = planted
    pairs = sp.kron(sp.eye(30), [[0.0, 1.0], [1.0, 0.0]])
    directions = directions_of_graph(sp.block_diag([adjacency, pairs], format="csr"), 3, 0)
    means = np.stack([directions[: len(groups)][groups == group].mean(axis=0) for group in range(3)])
    nearest = np.square(directions[: len(groups), None] - means).sum(axis=2).argmin(axis=1)
    assert (nearest == groups).mean() > 0.95


def test_new_rows_join_the_cluster_of_their_neighbors(planted, fitted):
    adjacency, _ = planted
    for given in (adjacency[:20], adjacency[:20].toarray()):
        assert (fitted.predict(adjacency=given) == fitted.labels_[:20]).mean() >= 0.9
    labels, confidence = fitted.predict_with_confidence(adjacency=adjacency[:20])
    assert np.array_equal(labels, fitted.predict(adjacency=adjacency[:20]))
    assert ((confidence > 0) & (confidence <= 1)).all()
    assert fitted.transform(None, adjacency=adjacency[:20]).shape == (20, fitted.embedding_.shape[1])
    assert np.allclose(fitted.predict_proba(adjacency=adjacency[:20]).sum(axis=1), 1, atol=1e-5)


def test_a_saved_model_assigns_new_rows_alike(planted, fitted, tmp_path):
    fitted.save(tmp_path / "run")
    loaded = PamCGC.load(tmp_path / "run", device="cpu")
    rows = planted[0][:20]
    assert np.array_equal(loaded.predict_proba(adjacency=rows), fitted.predict_proba(adjacency=rows))


def test_explanations_need_no_columns(planted, fitted):
    for explanation in (explain(fitted, None, adjacency=planted[0]), explain(fitted, graph_alone(planted[0]))):
        assert explanation.clusters["n_rows"].sum() == 120
        assert len(explanation.features) == 0
        assert (explanation.clusters["edges_inside"] > 0.5).all()


def test_edges_of_new_rows_help_where_features_say_little():
    graph = block_model(400, 3, feature_noise=3.0, random_state=3)
    adjacency = build_adjacency(graph.edges, None, n_nodes=400)
    old, new = np.arange(300), np.arange(300, 400)
    model = PamCGC(3, **FAST).fit(graph.features[old], adjacency=adjacency[old][:, old])
    by_features = model.predict(graph.features[new])
    by_both = model.predict(graph.features[new], adjacency=adjacency[new][:, old])
    truth = graph.labels[new]
    assert adjusted_rand_score(truth, by_both) > adjusted_rand_score(truth, by_features) + 0.1


def test_a_row_without_edges_is_assigned_by_its_features():
    graph = block_model(120, 3, random_state=0)
    model = PamCGC(3, **FAST).fit_graph(graph)
    none = sp.csr_matrix((5, 120))
    assert np.array_equal(
        model.predict_proba(graph.features[:5], adjacency=none), model.predict_proba(graph.features[:5])
    )


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({}, "without features: leave out X, and pass adjacency"),
        ({"X": np.zeros((2, 3))}, "without features: leave out X, and pass adjacency"),
        ({"adjacency": np.ones((2, 7))}, "a row for each new row and a column for each of the 120 fitted rows"),
        ({"adjacency": np.eye(3, 120)[[0, 0, 1]] * [[1], [0], [1]]}, "row 1 has no edge to a fitted row"),
        ({"adjacency": -np.ones((2, 120))}, "finite numbers of at least 0"),
    ],
)
def test_edges_of_new_rows_that_are_missing_or_wrong_raise_an_error(fitted, how, problem):
    with pytest.raises(DataError, match=problem):
        fitted.predict(**how)


def test_new_rows_of_a_table_need_features_and_take_no_edges():
    X = block_model(60, 3, random_state=0).features
    model = PamCGC(3, **FAST).fit(X)
    with pytest.raises(ConfigError, match="fitted without a graph"):
        model.predict(X[:5], adjacency=np.ones((5, 60)))
    with pytest.raises(DataError, match="X is missing"):
        model.predict()


@pytest.mark.parametrize(
    ("adjacency", "problem"),
    [
        (None, "there is nothing to cluster: pass X, adjacency, or both"),
        (sp.csr_matrix((20, 20)), "no edges between different rows, and no features"),
        (np.zeros((0, 2), dtype=int), "no edges between different rows, and no features"),
        (nx.Graph(), "has no nodes"),
        ({"a": sp.eye(20, format="csr")}, "several relations need the rows"),
        ("edges.csv", "is the text 'edges.csv', not a graph"),
    ],
)
def test_a_graph_that_cannot_be_clustered_raises_an_error(adjacency, problem):
    with pytest.raises(DataError, match=problem):
        PamCGC(3, **FAST).fit(adjacency=adjacency)


def test_rows_without_edges_are_reported(planted):
    adjacency = sp.block_diag([planted[0], sp.csr_matrix((2, 2))], format="csr")
    with pytest.warns(DataWarning, match="2 rows without edges cannot be distinguished"):
        model = PamCGC(3, **FAST).fit(adjacency=adjacency)
    assert model.labels_[-1] == model.labels_[-2]


def test_rows_without_columns_need_edges():
    with pytest.raises(DataError, match="0 feature"):
        AttributedGraph(np.empty((3, 0)))
