"""What must not change the loss, and what must change it in a known way."""

import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pamc.errors import PamcWarning
from pamc.losses.contrastive import contrastive_loss
from pamc.losses.pamc import meta_nodes, pamc_loss, pamc_terms, proxy_loss
from tests.awkward import awkward_case
from tests.tolerances import assert_value

SEEDS = st.integers(0, 10_000)
SCALES = st.floats(1e-3, 1e3)
PROXIES = st.sampled_from(["eq2", "eq6"])
SELF_EDGES = st.sampled_from(["drop", "keep"])
few = settings(max_examples=15, deadline=None)


@pytest.fixture(autouse=True)
def _empty_clusters_are_meant():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PamcWarning)
        yield


def permutation(n, seed):
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def loss(case, **changes):
    options = {"edge_weight": case.weight, "n_clusters": case.n_clusters, "tau": 0.7, **changes}
    return pamc_loss(case.z, case.edges, case.labels, **options)


def classic(case):
    return contrastive_loss(case.z, case.edges, edge_weight=case.weight, tau=0.7)


@few
@given(seed=SEEDS, proxy=PROXIES, self_edges=SELF_EDGES)
def test_the_order_of_the_nodes_does_not_matter(seed, proxy, self_edges):
    case = awkward_case(seed=seed)
    order = permutation(41, seed)
    place = order.argsort()
    moved = case._replace(z=case.z[order], edges=place[case.edges], labels=case.labels[order])
    options = {"proxy": proxy, "self_edges": self_edges}
    assert_value(loss(moved, **options), loss(case, **options))
    assert_value(classic(moved), classic(case))


@few
@given(seed=SEEDS, proxy=PROXIES)
def test_the_names_of_the_clusters_do_not_matter(seed, proxy):
    case = awkward_case(seed=seed)
    renamed = permutation(case.n_clusters, seed)[case.labels]
    assert_value(loss(case._replace(labels=renamed), proxy=proxy), loss(case, proxy=proxy))


@few
@given(seed=SEEDS, self_edges=SELF_EDGES)
def test_the_order_of_the_edges_does_not_matter(seed, self_edges):
    case = awkward_case(seed=seed)
    order = permutation(case.edges.shape[1], seed)
    moved = case._replace(edges=case.edges[:, order], weight=case.weight[order])
    assert_value(loss(moved, self_edges=self_edges), loss(case, self_edges=self_edges))


@few
@given(seed=SEEDS)
def test_an_edge_given_twice_is_an_edge_of_twice_the_weight(seed):
    case = awkward_case(seed=seed)
    doubled = case._replace(edges=case.edges.repeat(1, 2), weight=case.weight.repeat(2))
    assert_value(loss(doubled), loss(case._replace(weight=2 * case.weight)))


@few
@given(seed=SEEDS, scale=SCALES)
def test_the_scale_of_one_row_matters_to_the_proxy_alone(seed, scale):
    case = awkward_case(seed=seed)
    z = case.z.clone()
    z[5] *= scale
    scaled = case._replace(z=z)
    terms = [pamc_terms(c.z, c.edges, c.labels, edge_weight=c.weight) for c in (case, scaled)]
    assert_value(terms[1].positive, terms[0].positive)
    assert_value(classic(scaled), classic(case))


@few
@given(seed=SEEDS, scale=SCALES, proxy=PROXIES)
def test_a_common_scale_of_all_rows_does_not_matter(seed, scale, proxy):
    case = awkward_case(seed=seed)
    assert_value(loss(case._replace(z=scale * case.z), proxy=proxy), loss(case, proxy=proxy))


@few
@given(seed=SEEDS, scale=SCALES, proxy=PROXIES)
def test_the_scale_of_a_meta_node_does_not_matter(seed, scale, proxy):
    nodes = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    scaled = nodes.clone()
    scaled[2] *= scale
    assert_value(proxy_loss(scaled, tau=2.0, proxy=proxy), proxy_loss(nodes, tau=2.0, proxy=proxy))


@few
@given(seed=SEEDS, proxy=PROXIES)
def test_sums_means_and_eq_8_give_one_proxy(seed, proxy):
    case = awkward_case(seed=seed)
    nodes = meta_nodes(case.z, case.labels, n_clusters=7)
    mass = torch.bincount(case.labels, minlength=7)
    means = len(case.z) * nodes / mass.clamp(min=1)[:, None]
    expected = proxy_loss(nodes, tau=1.0, proxy=proxy, mass=mass)
    assert_value(proxy_loss(len(case.z) * nodes, tau=1.0, proxy=proxy, mass=mass), expected)
    assert_value(proxy_loss(means, tau=1.0, proxy=proxy, mass=mass), expected)


@few
@given(seed=SEEDS, factor=st.floats(1e-6, 1e6), self_edges=SELF_EDGES)
def test_scaling_all_weights_shifts_the_loss_by_the_share_of_nodes_with_positives(seed, factor, self_edges):
    case = awkward_case(seed=seed)
    counted = case.gamma.clone()
    if self_edges == "drop":
        counted.fill_diagonal_(0)
    share = (counted > 0).any(dim=1).double().mean()
    scaled = case._replace(weight=factor * case.weight)
    expected = loss(case, self_edges=self_edges) - share * math.log(factor)
    assert_value(loss(scaled, self_edges=self_edges), expected)


@few
@given(seed=SEEDS, angle=st.floats(-3, 3))
def test_a_rotation_of_the_embedding_does_not_matter(seed, angle):
    case = awkward_case(seed=seed)
    z = case.z.clone()
    x, y = case.z[:, 0], case.z[:, 1]
    z[:, 0], z[:, 1] = math.cos(angle) * x - math.sin(angle) * y, math.sin(angle) * x + math.cos(angle) * y
    assert_value(loss(case._replace(z=z)), loss(case))
