"""Edges that are dropped or moved, labels that are known, bounds and settings: what the open questions stand on."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from pamc import PamCGC
from pamc.config import FitConfig
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.synthetic import block_model
from pamc.errors import ConfigError, UnknownNameError
from pamc.estimator import clusterer
from pamc.graph.adjacency import build_adjacency
from pamc.graph.influence import influence
from pamc.graph.neighbors import nearest
from pamc.lab import fits
from pamc.lab.cases import embeddings, variants
from pamc.lab.cases.bound import bound_margin, bound_surface, least_nodes
from pamc.lab.cases.edges import RULES, drop_edges, drop_order, rewire_edges, undirected
from pamc.lab.cases.variants import HELD_OUT, SHARES, VARIANTS, clusters_lost, reveal
from pamc.lab.cell import CASES, TASKS, Scope
from pamc.losses.pamc import bound_holds, bound_ratio
from pamc.models.method import METHODS
from pamc.training.fallback import Epoch

CONFIG = FitConfig(preprocessing="none", n_neighbors=4)


def graph_of(*, weighted=False, both_directions=True):
    graph = block_model(120, 3, n_features=8, degree=8, random_state=3)
    edges = graph.edges
    weight = np.linspace(0.5, 3.0, edges.shape[1]) if weighted else None
    if both_directions:
        edges = np.hstack([edges, edges[::-1]])
        weight = None if weight is None else np.tile(weight, 2)
    return replace(graph, edges=edges, edge_weight=weight)


def matrix_of(graph):
    return build_adjacency(graph.edges, graph.edge_weight, n_nodes=graph.n_nodes)


def pairs_of(graph):
    return {tuple(pair) for pair in graph.edges.T.tolist()}


@pytest.fixture(scope="module")
def given():
    return undirected(graph_of(), CONFIG)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("both_directions", [False, True])
def test_each_pair_is_kept_once_and_the_graph_stays_the_same(weighted, both_directions):
    graph = graph_of(weighted=weighted, both_directions=both_directions)
    once = undirected(graph, CONFIG)
    assert (once.pairs[0] < once.pairs[1]).all()
    assert len(pairs_of(once.graph)) == once.pairs.shape[1]
    assert abs(matrix_of(once.graph) - matrix_of(graph)).nnz == 0
    assert (once.graph.edge_weight is None) is not weighted


def test_without_edges_the_graph_is_the_one_that_a_fit_would_build():
    graph = graph_of().without_edges()
    once = undirected(graph, CONFIG.with_(metric="euclidean"))
    edges = nearest(graph.features, 4).edges
    assert abs(once.adjacency - build_adjacency(edges, n_nodes=120, expect_directed=True)).nnz == 0


def test_without_edges_and_settings_it_is_the_graph_of_the_default():
    graph = graph_of().without_edges()
    model = PamCGC(
        4,
        n_neighbors=CONFIG.n_neighbors,
        n_epochs=0,
        advanced={"pretrain_epochs": 1, "hidden": (4,)},
        random_state=5,
    )
    n_edges = model.fit(graph.features)._fit_result.facts["n_edges"]
    assert undirected(graph, CONFIG, seed=5).pairs.shape[1] == n_edges


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.37, 0.9, 1.0])
def test_dropping_keeps_exactly_the_stated_share_of_pairs_and_nothing_else_changes(given, rule, share):
    dropped = drop_edges(given, share, rule, n_hops=2, seed=1)
    n_pairs = given.pairs.shape[1]
    assert dropped.n_edges == n_pairs - round(share * n_pairs)
    assert pairs_of(dropped) <= pairs_of(given.graph)
    assert dropped.labels is given.graph.labels
    assert dropped.features is given.graph.features


def test_both_directions_of_a_pair_go_together(given):
    adjacency = matrix_of(drop_edges(given, 0.5, "random", seed=4))
    assert abs(adjacency - adjacency.T).nnz == 0
    assert adjacency.nnz == 2 * (given.pairs.shape[1] - round(0.5 * given.pairs.shape[1]))


def test_weights_stay_with_their_pairs():
    once = undirected(graph_of(weighted=True), CONFIG)
    for changed in (drop_edges(once, 0.4, "random", seed=0), drop_edges(once, 0.4, "weight", seed=0)):
        (source, target), weight = changed.edges, changed.edge_weight
        np.testing.assert_array_equal(np.asarray(once.adjacency[source, target]).ravel(), weight)
    moved = rewire_edges(once, 0.4, seed=0)
    np.testing.assert_array_equal(moved.edge_weight, once.graph.edge_weight)


@pytest.mark.parametrize("rule", RULES)
def test_larger_shares_drop_the_same_pairs_and_more(given, rule):
    kept = [pairs_of(drop_edges(given, share, rule, seed=2)) for share in (0.2, 0.5, 0.8)]
    assert kept[0] > kept[1] > kept[2]


def test_a_random_drop_follows_its_seed(given):
    orders = [drop_order(given, "random", seed=seed).tolist() for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(given.pairs.shape[1]))


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_looks_at_labels(given, rule):
    other = given._replace(graph=replace(given.graph, labels=given.graph.labels[::-1].copy()))
    np.testing.assert_array_equal(drop_order(given, rule, seed=5), drop_order(other, rule, seed=5))


@pytest.mark.parametrize("n_hops", [1, 3])
def test_dropping_by_weight_drops_the_least_influence_first(given, n_hops):
    gamma = influence(given.adjacency, n_hops=n_hops).toarray()
    source, target = given.pairs
    weight = (gamma + gamma.T)[source, target]
    ordered = weight[drop_order(given, "weight", n_hops=n_hops)]
    assert (np.diff(ordered) >= -1e-12).all()
    assert ordered[0] < ordered[-1]


def test_pairs_without_common_neighbors_go_first_and_of_equals_the_least_similar():
    # Two triangles, a bridge, and a path 6-7-8-9 without common neighbors whose ends are less and less alike.
    edges = np.array([[0, 0, 1, 3, 3, 4, 2, 6, 7, 8], [1, 2, 2, 4, 5, 5, 3, 7, 8, 9]])
    angles = np.array([0, 0, 0, 0, 0, 0, 0.0, 0.1, 0.5, 1.4])
    features = np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.arange(1, 11)[:, None]
    for rows in (features, sp.csr_matrix(features)):
        once = undirected(AttributedGraph(rows, edges=edges), CONFIG)
        order = [tuple(pair) for pair in once.pairs[:, drop_order(once, "neighbors")].T.tolist()]
        assert order[:4] == [(8, 9), (7, 8), (6, 7), (2, 3)]
        order = [tuple(pair) for pair in once.pairs[:, drop_order(once, "similarity")].T.tolist()]
        assert order[:3] == [(8, 9), (7, 8), (6, 7)]


def test_rows_of_zeros_have_no_similarity_and_no_error():
    graph = AttributedGraph(np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]), edges=np.array([[0, 1], [1, 2]]))
    assert drop_order(undirected(graph, CONFIG), "similarity").tolist() == [0, 1]


def test_an_unknown_rule_and_a_share_beyond_one_are_refused(given):
    with pytest.raises(UnknownNameError, match="rule"):
        drop_order(given, "randm")
    with pytest.raises(ConfigError, match="share"):
        drop_edges(given, 1.5, "random")
    with pytest.raises(ConfigError, match="share"):
        rewire_edges(given, -0.1)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.37, 0.5, 1.0])
def test_rewiring_moves_exactly_the_stated_share_of_pairs(given, share):
    moved = rewire_edges(given, share, seed=1)
    n_pairs = given.pairs.shape[1]
    new = pairs_of(moved) - pairs_of(given.graph)
    assert len(pairs_of(moved)) == n_pairs
    assert len(new) == round(share * n_pairs)
    assert (moved.edges[0] < moved.edges[1]).all()
    assert moved.labels is given.graph.labels
    assert moved.features is given.graph.features
    changed = (moved.edges != given.pairs).any(axis=0)
    after, before = (pairs[:, changed].T.tolist() for pairs in (moved.edges, given.pairs))
    assert [len(set(a) & set(b)) for a, b in zip(after, before, strict=True)] == [1] * round(share * n_pairs)


def test_rewiring_follows_its_seed_and_leaves_its_input_alone(given):
    before = given.pairs.copy()
    moved = [rewire_edges(given, 0.3, seed=seed).edges.tolist() for seed in (0, 0, 1)]
    assert moved[0] == moved[1] != moved[2]
    np.testing.assert_array_equal(given.pairs, before)


def test_rewiring_makes_edges_blind_to_classes(given):
    def homophily(graph):
        return (graph.labels[graph.edges[0]] == graph.labels[graph.edges[1]]).mean()

    assert (
        homophily(rewire_edges(given, 1.0)) < homophily(rewire_edges(given, 0.5)) - 0.1 < homophily(given.graph) - 0.2
    )


def test_a_graph_without_room_for_new_edges_is_refused():
    complete = AttributedGraph(np.eye(4), edges=np.array(np.triu_indices(4, k=1)))
    with pytest.raises(ConfigError, match="no room"):
        rewire_edges(undirected(complete, CONFIG), 0.5)


LABELS = np.random.default_rng(0).choice([3, 5, 9], size=997, p=[0.6, 0.3, 0.1])


@pytest.mark.parametrize("share", SHARES)
def test_the_stated_share_of_labels_is_known_and_a_fifth_never_is(share):
    known, held_out = reveal(LABELS, share, seed=0)
    n_held_out = round(HELD_OUT * len(LABELS))
    assert held_out.sum() == n_held_out
    assert (known >= 0).sum() == min(round(share * len(LABELS)), len(LABELS) - n_held_out)
    assert (known[held_out] == -1).all()
    where = known >= 0
    np.testing.assert_array_equal(np.array([3, 5, 9])[known[where]], LABELS[where])


@pytest.mark.parametrize("share", [0.05, 0.1, 1.0])
def test_every_class_is_known_in_its_proportion(share):
    known, held_out = reveal(LABELS, share, seed=1)
    for number, label in enumerate([3, 5, 9]):
        of_class = np.equal(LABELS, label).mean()
        assert abs((known == number).sum() - of_class * (known >= 0).sum()) <= 1
        assert abs((LABELS[held_out] == label).sum() - of_class * held_out.sum()) <= 1


def test_known_nodes_are_drawn_by_seed_and_stay_known_at_larger_shares():
    few, held_out = reveal(LABELS, 0.05, seed=0)
    more, same = reveal(LABELS, 0.1, seed=0)
    assert set(np.flatnonzero(few >= 0)) < set(np.flatnonzero(more >= 0))
    np.testing.assert_array_equal(held_out, same)
    np.testing.assert_array_equal(few, reveal(LABELS, 0.05, seed=0)[0])
    assert (few != reveal(LABELS, 0.05, seed=1)[0]).any()


def test_a_fit_numbers_its_clusters_by_the_known_labels():
    graph = block_model(200, 4, n_features=16, feature_noise=0.3, random_state=0)
    truth = np.array([2, 0, 3, 1])[graph.labels]
    known, _ = reveal(truth, 0.1, seed=0)
    model = clusterer("pamcgc", 4, random_state=0, device="cpu", hidden=(32,), n_epochs=10, pretrain_epochs=20)
    labels = model.fit_graph(graph.without_labels(), known_labels=known).labels_
    assert (labels == truth)[known < 0].mean() > 0.9


@pytest.mark.parametrize("tau", [0.25, 1.0, 2.0])
def test_the_surface_is_equation_7_and_the_margin_tells_where_the_corrected_bound_holds(tau):
    n, c = np.meshgrid([2, 3, 10, 57, 1000, 10**6], [2, 3, 7, 40])
    surface = bound_surface(n, c, tau)
    for place in np.ndindex(*n.shape):
        n_nodes, n_clusters = int(n[place]), int(c[place])
        assert surface[place] == pytest.approx(np.log(n_nodes) / np.log(1 + (n_clusters - 1) * np.exp(tau)))
        assert surface[place] == pytest.approx(bound_ratio(n_nodes, n_clusters, tau))
    for proxy in ("eq2", "eq6"):
        margin = bound_margin(n, c, tau, proxy=proxy)
        holds = [bound_holds(int(a), int(b), tau, proxy=proxy) for a, b in zip(n.ravel(), c.ravel(), strict=True)]
        np.testing.assert_array_equal(margin.ravel() > 0, holds)
    most = np.log(c * (c - 1) * np.exp(tau))
    least = np.log(1 + (n - 1) * np.exp(-tau / (n - 1)))
    np.testing.assert_allclose(bound_margin(n, c, tau, proxy="eq2"), least - most, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("n_clusters", "tau", "proxy"), [(2, 0.25, "eq6"), (10, 0.5, "eq2"), (6, 1.5, "eq2")])
def test_the_least_number_of_nodes_is_where_the_bound_begins_to_hold(n_clusters, tau, proxy):
    least = least_nodes(n_clusters, tau, proxy=proxy)
    held = [bound_holds(n_nodes, n_clusters, tau, proxy=proxy) for n_nodes in range(2, least + 50)]
    assert held.index(True) + 2 == least
    assert all(held[least - 2 :])


def test_settings_are_changed_one_at_a_time_and_at_random_alike_for_all():
    drawn = {}
    for data_set in ("acm", "usps"):
        points = variants.combinations(data_set)
        own = variants.combinations(data_set, n_random=0)
        assert len({tuple(point.items()) for point in points}) == len(points)
        assert len(points) <= sum(map(len, variants.GRID.values())) + variants.N_RANDOM
        for name, values in variants.GRID.items():
            assert {point[name] for point in own} >= set(values)
        drawn[data_set] = {tuple(point.values()) for point in points} - {tuple(point.values()) for point in own}
    # What is missing in one set is there among the settings that change one value.
    both = drawn["acm"] & drawn["usps"]
    assert min(map(len, drawn.values())) - len(both) <= 6
    assert len(both) >= variants.N_RANDOM // 2
    cells = CASES["hyper"].cells(Scope(device="cpu"))
    by_method = {
        method: {
            (cell.data_set, *(cell.settings[name] for name in variants.GRID))
            for cell in cells
            if cell.provider == method
        }
        for method in ("pamcgc", "scgc*")
    }
    assert by_method["pamcgc"] == by_method["scgc*"]


def test_all_six_ways_of_assignment_are_run_and_lost_clusters_counted():
    cells = CASES["assignment"].cells(Scope(seeds=1, data_sets=("acm",), device="cpu"))
    assert [(cell.settings["meta_assignment"], cell.settings["proxy"]) for cell in cells] == list(VARIANTS)
    assert len(set(VARIANTS)) == 6
    assert clusters_lost({"values": {"cluster_sizes": [4, 0, 2, 0]}}) == 2


def test_nothing_dropped_is_one_cell_for_all_rules():
    cells = CASES["edge-drop"].cells(Scope(seeds=1, data_sets=("acm",), device="cpu"))
    assert len(cells) == 1 + 5 * len(RULES)
    assert [cell.parameters["rule"] for cell in cells if cell.parameters["share"] == 0] == ["random"]


def test_methods_without_a_graph_are_run_without_noise_alone():
    cells = CASES["edge-noise"].cells(Scope(seeds=1, data_sets=("acm",), device="cpu"))
    shares = {
        method: [cell.parameters["share"] for cell in cells if cell.provider == method] for method in ("kmeans", "sdcn")
    }
    assert shares == {"kmeans": [0.0], "sdcn": [0.0, 0.1, 0.3, 0.5]}
    assert not METHODS["kmeans"].uses_graph


def test_points_and_marks_are_placed_by_one_map():
    rows = np.random.default_rng(0).standard_normal((60, 6)) * [9, 5, 1, 1, 1, 1]
    marks = rows[[3, 7]]
    points, marked = embeddings.project(rows, np.arange(0, 60, 2), [marks], seed=0)
    assert points.shape == (30, 2)
    assert marked.shape == (2, 2)
    again = embeddings.project(rows, np.arange(0, 60, 2), [marks], seed=0)
    np.testing.assert_array_equal(points, again[0])


def test_a_mark_that_is_a_row_lies_beside_that_row():
    rows = np.random.default_rng(0).standard_normal((80, 6)) * [9, 5, 1, 1, 1, 1]
    points, marked = embeddings.project(rows, np.arange(80), [rows[[3, 40]]], seed=0)
    for row, place in zip((3, 40), marked, strict=True):
        distances = np.linalg.norm(points - place, axis=1)
        assert distances[row] <= np.sort(distances)[2]


def test_wide_rows_are_cut_to_their_leading_directions_first():
    rows = sp.random(60, 200, density=0.1, random_state=0, format="csr")
    (points,) = embeddings.project(rows, np.arange(60), [], seed=0)
    assert points.shape == (60, 2)
    assert np.isfinite(points).all()


def run(name, **wanted):
    """Return the values of the first quick cell on blocks whose options are as wanted, through JSON and back."""
    cells = CASES[name].cells(Scope(quick=True, data_sets=("blocks",), device="cpu"))
    cell = next(c for c in cells if all((c.parameters | {"method": c.provider})[k] == v for k, v in wanted.items()))
    return cell, json.loads(json.dumps(TASKS[cell.task](cell, "cpu"), allow_nan=False))


def test_a_fit_on_fewer_edges_says_what_is_left():
    _, full = run("edge-drop", share=0.0)
    _, few = run("edge-drop", share=0.8, rule="neighbors")
    assert full["n_edges"] == full["n_edges_before"] == few["n_edges_before"]
    assert few["n_edges"] == full["n_edges"] - round(0.8 * full["n_edges"])
    assert few["n_positive_pairs"] < full["n_positive_pairs"]
    assert few["n_isolated"] > full["n_isolated"]
    assert few["seconds"]["training"] > 0
    assert few["peak_training_bytes"] is None


@pytest.mark.parametrize("method", ["sdcn", "kmeans"])
def test_a_method_is_fitted_on_rewired_edges(method):
    _, values = run("edge-noise", method=method)
    assert set(values["last"]) == {"acc", "nmi", "ari", "f1"}
    assert sum(values["cluster_sizes"]) == 300
    assert values["warnings"] == []


def test_known_labels_are_measured_on_unknown_nodes():
    _, none = run("supervision", share=0.0)
    _, all_known = run("supervision", share=1.0)
    assert (none["n_known"], all_known["n_known"], all_known["n_held_out"]) == (0, 240, 60)
    assert none["unknown"]["agreement"] is None
    assert all_known["unknown"] == all_known["held_out"]
    assert all_known["unknown"]["agreement"] <= all_known["unknown"]["acc"]


@pytest.mark.slow
def test_a_picture_has_classes_for_its_points_and_marks_once_trained():
    for stage in ("raw", "pretrained", "trained"):
        _, values = run("embeddings", stage=stage)
        assert len(values["points"]) == len(values["classes"]) == 300
        assert values["map"] == "t-SNE"
        assert (values["centers"] is None) == (stage != "trained")
        assert all(float(f"{x:.4g}") == x for point in values["points"] for x in point)
    assert len(values["centers"]) == 4
    assert 1 <= len(values["meta_nodes"]) <= 4


def test_of_many_rows_a_thousand_are_shown_evenly(monkeypatch):
    monkeypatch.setattr(embeddings, "MAX_POINTS", 31)
    cell, values = run("embeddings", stage="raw")
    assert len(values["points"]) == 31
    labels = embeddings.load(cell.data_set, True).labels
    assert values["classes"] == labels[np.linspace(0, 299, 31).round().astype(int)].tolist()


def test_peak_memory_is_read_from_the_second_epoch_to_the_last(monkeypatch):
    said = []
    monkeypatch.setattr(fits, "reset_peak", lambda device: said.append(f"reset {device}"))
    monkeypatch.setattr(fits, "wait", lambda device: said.append("wait"))
    monkeypatch.setattr(fits, "peak_bytes", lambda device: said.append("read") or 7)
    probe = fits.TrainingProbe(torch.device("cuda:0"), 4)
    for epoch in range(1, 5):
        probe(Epoch(epoch, {}, lambda: pytest.fail("labels are not looked at")))
        said.append(epoch)
    assert said == ["reset cuda:0", 1, 2, 3, "wait", "read", 4]
    assert probe.peak == 7


@pytest.mark.slow
@pytest.mark.parametrize("method", ["pamcgc", "sdcn"])
def test_times_have_all_their_parts(method):
    cell, values = run("time-memory", method=method)
    seconds = values["seconds"]
    assert {"training", "graph", "training_with_evaluation", "inference"} <= set(seconds)
    assert min(seconds.values()) >= 0
    assert values["n_epochs_run"] == cell.settings["n_epochs"]
    assert values["evaluated_every"] == 1
    assert values["peak_training_bytes"] is None
