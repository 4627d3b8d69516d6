"""Families of quick clusterings, and the choice of one of their partitions without labels."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from pamc.data.synthetic import blobs, block_model
from pamc.graph.adjacency import build_adjacency
from pamc.graph.neighbors import knn_adjacency
from pamc.initialize import family as family_module
from pamc.initialize.consensus import InputSource, agreed_clusters, graph_trust
from pamc.initialize.families import gaussian_mixture, layout, spectral
from pamc.initialize.families.spectral import locally_scaled
from pamc.initialize.family import FAMILIES, Judge, Score, choose_partitions, repeated_kmeans
from pamc.ops.kmeans import kmeans
from pamc.ops.scores import adjusted_rand
from pamc.report.narrative import _CLUSTERED_BY

SHAPES = {
    "rings": make_circles(300, factor=0.4, noise=0.03, random_state=0),
    "moons": make_moons(300, noise=0.05, random_state=0),
}


def inputs_of(features, **options):
    rows = features - features.mean(axis=0, dtype=np.float64)
    return InputSource("features and graph", rows, knn_adjacency(rows, 10), is_knn=True, **options)


def clusters_by(family, features, n_clusters, *, n_repeats=3, seed=0):
    return agreed_clusters(inputs_of(features), n_clusters, seed=seed, n_repeats=n_repeats, family=family)


@pytest.fixture
def n_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def full_layout(monkeypatch):
    """One layout in all of its epochs, with the likeliest of several mixtures."""
    monkeypatch.setattr(layout, "_N_EPOCHS", 100)
    monkeypatch.setattr(layout, "_N_MIXTURES", 10)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_finds_separate_blobs_and_uses_every_label(family, full_layout):
    graph = blobs(123, 4, feature_noise=0.3, random_state=0)
    found = clusters_by(family, graph.features, 4)
    assert found.labels.dtype == np.int64
    assert sorted(set(found.labels.tolist())) == [0, 1, 2, 3]
    assert adjusted_rand_score(graph.labels, found.labels) == 1.0
    assert (found.families[0], found.judge) == (family, None)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_gives_the_same_labels_for_a_seed_and_for_any_number_of_threads(family, n_threads):
    # Blobs that overlap, where a difference in the last digit would move rows.
    graph = blobs(90, 3, feature_noise=2.0, random_state=0)
    found = []
    for number in (1, 1, 2):
        n_threads(number)
        found.append(clusters_by(family, graph.features, 3).labels)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", ["spectral", "layout", "merged groups", "merged neighbors"])
def test_families_that_follow_neighbors_separate_shapes_that_centers_cannot(family, shape, full_layout):
    features, truth = SHAPES[shape]
    assert adjusted_rand_score(truth, clusters_by(family, features, 2).labels) > 0.97
    assert adjusted_rand_score(truth, clusters_by("k-means", features, 2).labels) < 0.5


@pytest.mark.parametrize("shape", SHAPES)
def test_the_chosen_family_separates_the_shape_though_three_of_seven_cut_it(shape):
    features, truth = SHAPES[shape]
    agreed = agreed_clusters(inputs_of(features), 2, seed=0)
    assert agreed.families[0] in {"spectral", "layout", "merged groups", "merged neighbors"}
    assert adjusted_rand_score(truth, agreed.labels) > 0.97
    assert agreed.judge.partitions.shape == (len(FAMILIES), 300)
    facts = agreed.facts()
    assert facts["clusters_by"] == ", ".join(agreed.families)
    assert (facts["support"], facts["conductance"]) == agreed.judge.score(agreed.labels)
    assert "graph_trust" not in facts


def test_centers_of_many_rows_are_those_of_a_sample(monkeypatch):
    rows, labels = make_blobs(3000, 5, centers=4, random_state=0)
    options = {"seed": 0, "device": torch.device("cpu")}
    monkeypatch.setattr(family_module, "_MOST_SAMPLED", 200)
    seen = []
    monkeypatch.setattr(family_module, "kmeans", lambda rows, *a, **b: seen.append(len(rows)) or kmeans(rows, *a, **b))
    labelings = repeated_kmeans([rows, rows], 4, 3, **options)
    assert seen == [200, 200]
    assert max(adjusted_rand(labeling, labels) for labeling in labelings) > 0.9
    assert repeated_kmeans([rows], 60, 1, **options)[0].shape == (3000,)
    assert seen[-1] == 3000


def test_mixtures_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    centers, scales = rng.normal(size=(4, 1, 5)), rng.uniform(0.1, 0.5, size=(4, 1, 5))
    points = np.concatenate(list(centers + scales * rng.normal(size=(4, 60, 5))))
    points = points - points.mean(axis=0)
    starts = np.stack([np.arange(240) // 60, np.arange(240) % 4])
    likelihood, labels = gaussian_mixture._likeliest(
        gaussian_mixture._quadratic_terms(torch.from_numpy(points)), torch.from_numpy(starts), 4
    )
    reference = []
    for start in starts:
        first = GaussianMixture(4, reg_covar=1e-3)
        first._initialize(points, np.eye(4)[start])
        precisions = np.stack([factor @ factor.T for factor in first.precisions_cholesky_])
        given = {"weights_init": first.weights_, "means_init": first.means_, "precisions_init": precisions}
        reference.append(GaussianMixture(4, reg_covar=1e-3, **given).fit(points))
    best = max(reference, key=lambda model: model.lower_bound_)
    assert likelihood == pytest.approx(best.lower_bound_, abs=2e-3)
    assert adjusted_rand_score(labels.numpy(), best.predict(points)) > 0.99


def test_the_likeliest_of_several_mixtures_is_returned_whatever_fits_into_memory(monkeypatch):
    points = np.asarray(blobs(200, 4, n_features=3, feature_noise=0.3, random_state=1).features, dtype=np.float64)
    together = gaussian_mixture.mixture_labels(points, 4, seed=0, n_init=5)
    monkeypatch.setattr(gaussian_mixture, "_NUMBERS_AT_A_TIME", 1)
    one_by_one = gaussian_mixture.mixture_labels(points, 4, seed=0, n_init=5)
    assert adjusted_rand_score(together, one_by_one) == 1


def test_forces_of_a_layout_are_sums_over_pairs():
    rng = np.random.default_rng(0)
    weights = sp.random_array((30, 30), density=0.2, rng=rng).toarray()
    weights = np.triu(weights, 1) + np.triu(weights, 1).T
    x = rng.normal(size=(30, 3)).astype(np.float32)
    difference = x[None] - x[:, None]
    squared = np.square(difference).sum(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        attraction = (
            2 * layout._A * layout._B * weights * squared ** (layout._B - 1) / (1 + layout._A * squared**layout._B)
        )
    attraction = np.where(weights > 0, attraction, 0)
    expected = (attraction[:, :, None] * difference).sum(axis=1)
    positions = torch.from_numpy(x)
    edges = layout._edges_of(sp.csr_matrix(weights), torch.device("cpu"))
    np.testing.assert_allclose(layout._attraction(positions, edges).numpy(), expected, atol=1e-4)
    repulsion = 2 * layout._B / ((1e-3 + squared) * (1 + layout._A * squared**layout._B))
    repulsion = np.minimum(repulsion, layout._MOST_FORCE / np.maximum(np.sqrt(squared), 1e-6))[:, :5]
    expected = -(repulsion[:, :, None] * difference[:, :5]).sum(axis=1)
    np.testing.assert_allclose(layout._repulsion(positions, positions[:5]).numpy(), expected, atol=1e-2)


def test_a_gaussian_mixture_finds_a_wide_cluster_around_a_narrow_one():
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], [100, 300])
    features = rng.normal(size=(400, 5)) * np.where(truth, 4.0, 0.3)[:, None]
    by_mixture, by_kmeans = (clusters_by(family, features, 2).labels for family in ("Gaussian mixture", "k-means"))
    assert adjusted_rand_score(truth, by_mixture) > 0.95
    assert adjusted_rand_score(truth, by_kmeans) < 0.3


@pytest.mark.parametrize("family", FAMILIES)
def test_copies_of_a_row_and_an_isolated_row_are_clustered_too(family):
    features = np.repeat(np.eye(3), 20, axis=0) + 1e-3 * np.random.default_rng(0).normal(size=(60, 3))
    features[:10] = features[0]
    features[-1] = [0.0, 0.0, 30.0]
    found = clusters_by(family, features, 3)
    assert set(found.labels.tolist()) <= {0, 1, 2}
    assert np.isfinite(found.points).all()


def distances_in(points, graph):
    """Return, for each row, the distance to each of its neighbors."""
    return [
        {int(j): float(np.linalg.norm(points[i] - points[j])) for j in graph[i].indices} for i in range(len(points))
    ]


def test_the_scale_of_a_row_is_its_distance_to_the_seventh_neighbor():
    points = np.random.default_rng(0).normal(size=(41, 3))
    graph = knn_adjacency(points, 5)
    distances = distances_in(points, graph)
    # A row with fewer than seven neighbors has the distance to the farthest.
    scale = [sorted(of_row.values())[min(7, len(of_row)) - 1] for of_row in distances]
    expected = np.zeros((41, 41))
    for i, of_row in enumerate(distances):
        for j, distance in of_row.items():
            expected[i, j] = np.exp(-(distance**2) / (scale[i] * scale[j]))
    np.testing.assert_allclose(locally_scaled(points, graph).toarray(), expected, rtol=1e-12)


def test_the_weights_of_a_layout_are_those_of_umap():
    points = np.random.default_rng(0).normal(size=(41, 3))
    graph = knn_adjacency(points, 5)
    one_way = np.zeros((41, 41))
    for i, of_row in enumerate(distances_in(points, graph)):
        columns, excess = list(of_row), np.array(list(of_row.values())) - min(of_row.values())
        scale = brentq(lambda scale, e=excess: np.exp(-e / scale).sum() - np.log2(len(e)), 1e-6, 1e6, xtol=1e-12)
        one_way[i, columns] = np.exp(-excess / scale)
    expected = one_way + one_way.T - one_way * one_way.T
    np.testing.assert_allclose(layout.fuzzy_graph(points, graph).toarray(), expected, rtol=1e-6, atol=1e-9)


def test_eigenvectors_of_large_graphs_are_those_of_the_dense_matrix(monkeypatch):
    features, _ = SHAPES["moons"]
    graph = locally_scaled(features, knn_adjacency(features, 10))
    dense = spectral.leading_eigenvectors(graph, 3, seed=0)
    monkeypatch.setattr(spectral, "_MOST_DENSE_ROWS", 0)
    iterated = spectral.leading_eigenvectors(graph, 3, seed=0)
    assert iterated.shape == dense.shape == (300, 3)
    # The same space: the projection of one on the other keeps its length.
    assert np.linalg.svd(dense.T @ iterated)[1] == pytest.approx(np.ones(3), abs=1e-3)
    assert np.array_equal(iterated, spectral.leading_eigenvectors(graph, 3, seed=0))


def test_eigenvectors_that_do_not_converge_leave_a_partition(monkeypatch):
    monkeypatch.setattr(spectral, "_MOST_DENSE_ROWS", 0)
    monkeypatch.setattr(spectral, "_MOST_ITERATIONS", 1)
    noise = np.random.default_rng(0).normal(size=(200, 5))
    assert set(clusters_by("spectral", noise, 4).labels.tolist()) <= {0, 1, 2, 3}
    assert set(agreed_clusters(inputs_of(noise), 4, seed=0).labels.tolist()) == {0, 1, 2, 3}


def test_the_report_has_a_phrase_for_every_family():
    assert set(_CLUSTERED_BY) == set(FAMILIES)


def test_texts_are_compared_by_angle_and_other_rows_by_distance():
    rows = np.array([[3.0, 4.0], [6.0, 8.0], [0.0, 0.0]])
    adjacency = sp.csr_matrix((3, 3))
    by_angle = InputSource("features", rows, adjacency, by_angle=True).points()
    assert by_angle == pytest.approx(np.array([[0.6, 0.8], [0.6, 0.8], [0.0, 0.0]]))
    by_distance = InputSource("features", rows, adjacency).points()
    assert np.square(by_distance).sum(axis=1).mean() == pytest.approx(1.0)
    assert by_distance[1] == pytest.approx(2 * by_distance[0])
    assert InputSource("features", np.zeros((3, 2)), adjacency).points().tolist() == [[0.0, 0.0]] * 3


def ring_partitions():
    """Return the graph of two rings, their partition, and one that cuts both rings along a line."""
    features, truth = SHAPES["rings"]
    return knn_adjacency(features, 10), truth.astype(np.int64), (features[:, 0] > 0).astype(np.int64)


def test_the_judge_prefers_the_planted_partition_to_a_random_one():
    graph = block_model(200, 4, homophily=0.8, random_state=0)
    adjacency = build_adjacency(graph.edges, None, n_nodes=200, expect_directed=False)
    rng = np.random.default_rng(0)
    others = np.stack([np.where(rng.random(200) < 0.1, rng.integers(4, size=200), graph.labels) for _ in range(3)])
    judge = Judge(others, adjacency)
    planted, random = judge.score(graph.labels), judge.score(rng.permutation(graph.labels))
    assert planted.support > 0.7 > 0.1 > random.support
    assert planted.conductance < 0.4 < 0.6 < random.conductance
    assert planted.value > random.value


def test_the_judge_prefers_rings_to_halves_of_rings_with_equal_support():
    adjacency, rings, halves = ring_partitions()
    judge = Judge(np.stack([*[rings] * 3, *[halves] * 3]), adjacency)
    assert judge.score(rings).support == judge.score(halves).support == pytest.approx(1.0)
    assert judge.score(rings).conductance == 0.0 < judge.score(halves).conductance
    assert judge.score(rings).value > judge.score(halves).value


def test_the_two_most_similar_partitions_of_other_families_support_a_partition():
    adjacency, rings, halves = ring_partitions()
    random = np.random.default_rng(0).integers(2, size=(3, 300))
    support = Judge(np.concatenate([random, [rings, 1 - rings, rings]]), adjacency).score(rings).support
    assert support == 1.0
    one_supporter = Judge(np.stack([rings, rings, halves]), adjacency).score(rings).support
    assert one_supporter == pytest.approx((1 + adjusted_rand_score(halves, rings)) / 2)


def test_a_partition_that_equals_that_of_a_family_is_not_supported_by_it():
    adjacency, rings, halves = ring_partitions()
    judge = Judge(np.stack([rings, halves]), adjacency)
    assert judge.score(halves).support == judge.score(rings).support == adjusted_rand(halves, rings)


def test_the_score_is_support_minus_a_tenth_of_the_logarithm_of_conductance():
    assert Score(0.5, 0.0999).value == pytest.approx(0.5 + 0.1 * np.log(10))
    assert np.isfinite(Score(1.0, 0.0).value)


def test_a_judge_of_a_sample_looks_at_its_rows_alone():
    adjacency, rings, halves = ring_partitions()
    rows = np.arange(0, 300, 2)
    labels = np.where(np.arange(300) % 2 == 0, rings, halves)
    judge = Judge(np.stack([halves[rows], rings[rows]]), adjacency[rows][:, rows], rows)
    assert judge.score(labels) == judge.score(rings)


def test_the_best_partition_is_chosen_and_the_judge_has_all_of_them():
    adjacency, rings, halves = ring_partitions()
    partitions = {"halves": halves, "rings": rings, "numbered otherwise": 1 - rings}
    families, judge = choose_partitions(partitions, adjacency)
    assert families == ("rings",)
    assert judge.partitions.tolist() == [labels.tolist() for labels in partitions.values()]
    assert judge.graph is adjacency


def test_a_single_partition_is_chosen_without_a_judge():
    adjacency, rings, _ = ring_partitions()
    assert choose_partitions({"rings": rings}, adjacency) == (("rings",), None)


def test_partitions_that_are_nearly_equally_good_are_combined():
    adjacency, rings, _ = ring_partitions()
    rng = np.random.default_rng(0)
    moved = [np.where(rng.random(300) < 0.02, 1 - rings, rings) for _ in range(3)]
    partitions = {"one": moved[0], "two": moved[1], "three": moved[2], "noise": rng.integers(2, size=300)}
    families, _ = choose_partitions(partitions, adjacency)
    assert set(families) == {"one", "two", "three"}
    assert len(choose_partitions({"one": moved[0], "two": moved[1]}, adjacency).families) == 1


@pytest.mark.parametrize(("seed", "n_clusters"), [(0, 3), (1, 4)])
def test_the_chosen_partition_has_every_cluster_even_if_the_rows_form_fewer_groups(seed, n_clusters):
    features = np.repeat([[0.0] * 3, [1.0] * 3], 60, axis=0)
    features += 0.01 * np.random.default_rng(seed).normal(size=features.shape)
    agreed = agreed_clusters(inputs_of(features), n_clusters, seed=0)
    assert sorted(set(agreed.labels.tolist())) == list(range(n_clusters))


@given(st.permutations([0, 1, 2, 3]), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_the_score_does_not_depend_on_the_numbers_of_the_clusters(numbers, n_used):
    graph = knn_of_noise(40)
    labels = np.arange(40) * n_used // 40
    judge = Judge(np.random.default_rng(0).integers(4, size=(3, 40)), graph)
    assert tuple(judge.score(np.array(numbers)[labels])) == pytest.approx(tuple(judge.score(labels)))


def knn_of_noise(n_nodes):
    return knn_adjacency(np.random.default_rng(0).normal(size=(n_nodes, 10)), 10)


def test_a_graph_that_predicts_the_clusters_is_trusted_and_a_random_one_is_not():
    graph = block_model(400, 4, homophily=0.95, degree=12, random_state=0)
    informative = build_adjacency(graph.edges, None, n_nodes=400, expect_directed=False)
    noise = knn_of_noise(400)
    assert graph_trust(informative, noise, graph.labels) > 0.95
    assert graph_trust(noise, informative, graph.labels) < 0.05
    assert graph_trust(informative, informative, graph.labels) == 0.5


def test_a_graph_whose_features_are_left_out_is_fully_trusted():
    graph = block_model(120, 3, n_features=4, random_state=0)
    adjacency = build_adjacency(graph.edges, None, n_nodes=120)
    rows = np.random.default_rng(0).normal(size=(120, 4))
    assert agreed_clusters(InputSource("graph", rows, adjacency), 3, seed=0, n_repeats=3).graph_trust == 1


def test_trust_is_the_share_of_the_odds_of_a_right_vote():
    # The graph is a path 0-1-2-3 with an isolated row 4; clusters are {0, 1} and {2, 3, 4}.
    path = sp.csr_matrix(np.diag([1.0, 1.0, 1.0, 0.0], 1) + np.diag([1.0, 1.0, 1.0, 0.0], -1))
    pairs = sp.csr_matrix(np.kron(np.eye(2), [[0.0, 1.0], [1.0, 0.0]]))
    pairs.resize(5, 5)
    labels = np.array([0, 0, 1, 1, 1])
    # Rows 1 and 2 see one row of either cluster, which counts as right. Row 4 sees none, which counts as wrong.
    assert graph_trust(path, pairs, labels) == 0.5
    assert graph_trust(path, sp.csr_matrix((5, 5)), labels) == pytest.approx(4 / (4 + 1 / 99))


@given(st.integers(0, 10_000), st.integers(2, 30), st.integers(1, 5), st.sampled_from([0.0, 0.1, 1.0]))
@settings(max_examples=60, deadline=None)
def test_trust_lies_between_0_and_1_and_those_of_graph_and_features_sum_to_1(seed, n_nodes, n_clusters, share):
    rng = np.random.default_rng(seed)
    one, other = (sp.random(n_nodes, n_nodes, density, rng=rng, format="csr") for density in (share, 0.2))
    one, other = one + one.T, other + other.T
    labels = rng.integers(n_clusters, size=n_nodes)
    trust = graph_trust(one, other, labels)
    assert 0 <= trust <= 1
    assert trust + graph_trust(other, one, labels) == pytest.approx(1.0)
