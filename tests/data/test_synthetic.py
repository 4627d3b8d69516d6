"""Planted clusters: the counts, shares and seeds are those asked for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pamc.data.synthetic import blobs, block_model
from pamc.errors import ConfigError


def inside_share(graph):
    source, target = graph.labels[graph.edges]
    return (source == target).mean()


@settings(max_examples=40, deadline=None)
@given(
    n_nodes=st.integers(1, 60),
    n_clusters=st.integers(1, 6),
    degree=st.floats(0, 12),
    homophily=st.floats(0, 1),
    power_law=st.none() | st.floats(2.1, 5),
    seed=st.integers(0, 99),
)
def test_every_block_model_is_a_simple_choice_of_edges_between_its_nodes(
    n_nodes, n_clusters, degree, homophily, power_law, seed
):
    n_clusters = min(n_clusters, n_nodes)
    graph = block_model(
        n_nodes, n_clusters, degree=degree, homophily=homophily, power_law=power_law, n_features=2, random_state=seed
    )
    assert graph.n_nodes == n_nodes
    assert graph.n_edges <= (0 if n_nodes == 1 else round(n_nodes * degree / 2))
    assert len(set(map(frozenset, graph.edges.T.tolist()))) == graph.n_edges
    assert (graph.edges[0] != graph.edges[1]).all()
    sizes = np.bincount(graph.labels, minlength=n_clusters)
    assert sizes.max() - sizes.min() <= 1
    if n_clusters == 1:
        assert graph.n_edges == 0 or inside_share(graph) == 1


@pytest.mark.parametrize("power_law", [None, 2.5])
@pytest.mark.parametrize("homophily", [0.0, 0.3, 0.8, 1.0])
def test_the_share_of_edges_inside_clusters_is_the_homophily(homophily, power_law):
    graph = block_model(4000, 5, homophily=homophily, degree=20, power_law=power_law, n_features=1)
    assert abs(inside_share(graph) - homophily) < 0.03


def test_edges_that_leave_a_cluster_reach_every_other_cluster_by_size():
    graph = block_model(4000, 3, sizes=[2000, 1500, 500], homophily=0, degree=20, n_features=1)
    source, target = graph.labels[graph.edges]
    from_first = np.bincount(target[source == 0], minlength=3) / (source == 0).sum()
    assert from_first == pytest.approx([0, 0.75, 0.25], abs=0.02)


def test_expected_degrees_are_equal_without_and_uneven_with_a_power_law():
    degrees = [
        np.bincount(block_model(4000, 4, power_law=law, n_features=1).edges.ravel(), minlength=4000)
        for law in (None, 2.2)
    ]
    assert degrees[0].mean() == pytest.approx(10, rel=0.01)
    assert degrees[1].mean() == pytest.approx(10, rel=0.1)
    assert degrees[0].max() < 40
    assert degrees[1].max() > 80


def test_every_node_of_a_cluster_is_reached_alike():
    total = np.zeros(50)
    for seed in range(400):
        graph = block_model(50, 5, degree=2, homophily=1, n_features=1, random_state=seed)
        total += np.bincount(graph.edges[1], minlength=50)
    assert total / total.mean() == pytest.approx(np.ones(50), abs=0.25)


def test_clusters_of_one_node_send_their_edges_outside():
    graph = block_model(4, 3, sizes=[1, 1, 2], homophily=1, degree=200, n_features=1)
    source, target = graph.labels[graph.edges]
    assert (source[source < 2] != target[source < 2]).all()
    assert (target[source == 2] == 2).all()


@pytest.mark.parametrize("make", [block_model, blobs])
def test_sizes_are_those_asked_for_and_the_rows_are_shuffled(make):
    graph = make(100, 3, sizes=[70, 20, 10], n_features=2)
    assert np.bincount(graph.labels).tolist() == [70, 20, 10]
    assert (np.diff(graph.labels) < 0).any()


@pytest.mark.parametrize("make", [block_model, blobs])
def test_a_seed_gives_the_same_data_again_and_the_global_state_is_left_alone(make):
    before = np.random.get_state()[1].copy()
    first, again, other = (make(50, 3, random_state=seed) for seed in (7, 7, 8))
    assert (first.features == again.features).all()
    assert (first.labels == again.labels).all()
    assert (first.features != other.features).any()
    assert (np.random.get_state()[1] == before).all()
    if first.edges is not None:
        assert (first.edges == again.edges).all()


def test_a_generator_can_be_handed_in():
    rng = np.random.default_rng(3)
    assert (blobs(20, 2, random_state=rng).features != blobs(20, 2, random_state=rng).features).any()


def test_noise_is_the_spread_around_the_centers():
    calm = blobs(300, 3, feature_noise=0, n_features=4)
    assert len(np.unique(calm.features, axis=0)) == 3
    noisy = blobs(20000, 2, feature_noise=2.5, n_features=4)
    assert noisy.features[noisy.labels == 0].std(axis=0) == pytest.approx(np.full(4, 2.5), rel=0.05)
    assert noisy.features.dtype == np.float32


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"n_clusters": 0}, "n_clusters must be between 1 and n_nodes = 10, got 0"),
        ({"n_clusters": 11}, "got 11"),
        ({"sizes": [5, 5, 5]}, "sum to n_nodes = 10"),
        ({"sizes": [10, 0]}, "positive integers"),
        ({"sizes": [10]}, "must be 2 positive integers"),
        ({"degree": -1}, "degree must be"),
        ({"degree": np.inf}, "degree must be a finite"),
        ({"homophily": 1.1}, "homophily must be a finite number of at least 0 and at most 1, got 1.1"),
        ({"feature_noise": -1}, "feature_noise"),
        ({"feature_noise": np.nan}, "feature_noise"),
        ({"n_features": 0}, "n_features must be an integer of at least 1"),
        ({"power_law": 2}, "exponent above 2"),
    ],
)
def test_impossible_wishes_are_refused(refusal, options, part):
    wishes = {"n_nodes": 10, "n_clusters": 2, **options}
    assert part in refusal(block_model, error=ConfigError, **wishes)
