import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pamc.errors import UnknownNameError
from pamc.losses.pamc import bound_holds, bound_ratio
from pamc.ops import reference
from tests.tolerances import assert_value

SIZES = [(2, 2), (3, 1), (10, 3), (100, 10), (1000, 10), (9298, 10)]


@pytest.mark.parametrize(("n_nodes", "n_clusters"), [size for size in SIZES if size[1] > 1])
@pytest.mark.parametrize("tau", [0.25, 1.0, 20.0, 100.0])
def test_the_ratio_is_eq_7_of_the_reference(n_nodes, n_clusters, tau):
    assert_value(bound_ratio(n_nodes, n_clusters, tau), reference.bound_ratio(n_nodes, n_clusters, tau))


def test_the_ratio_does_not_overflow_and_is_infinite_for_one_cluster():
    assert_value(bound_ratio(1000, 2, 1e6), math.log(1000) / 1e6)
    assert bound_ratio(1000, 1, 1.0) == math.inf


@pytest.mark.parametrize(("n_nodes", "n_clusters"), SIZES)
@pytest.mark.parametrize("tau", [0.25, 0.5, 1.0, 1.5, 2.0, 5.0, 20.0])
def test_the_bound_is_the_corrected_inequality(n_nodes, n_clusters, tau):
    nodes = (n_nodes - 1) * math.exp(-tau / (n_nodes - 1))
    assert bound_holds(n_nodes, n_clusters, tau, proxy="eq6") == (nodes > (n_clusters - 1) * math.exp(tau))
    eq2 = 1 + nodes > n_clusters * (n_clusters - 1) * math.exp(tau)
    assert bound_holds(n_nodes, n_clusters, tau, proxy="eq2") == bound_holds(n_nodes, n_clusters, tau) == eq2


def test_extreme_sizes_have_an_answer():
    assert not bound_holds(10**9, 2, 1e6)
    assert not bound_holds(10**9, 2, 1e6, proxy="eq6")
    assert not bound_holds(1, 2, 1.0, proxy="eq6")
    assert not bound_holds(1, 1, 1.0, proxy="eq6")
    assert bound_holds(1, 1, 1.0)
    assert bound_holds(10**9, 1000, 1.0)


def test_an_unknown_proxy_is_refused():
    with pytest.raises(UnknownNameError, match="proxy"):
        bound_holds(100, 2, 1.0, proxy="eq7")


@settings(max_examples=40, deadline=None)
@given(
    n_nodes=st.integers(2, 30),
    n_dims=st.integers(1, 6),
    tau=st.floats(0.05, 20),
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.0, 1.0, 100.0]),
)
def test_jensen_bounds_the_negatives_of_every_embedding_from_below(n_nodes, n_dims, tau, seed, spread):
    generator = torch.Generator().manual_seed(seed)
    z = spread * torch.randn(n_nodes, n_dims, generator=generator, dtype=torch.float64)
    z[:, 0] += torch.randn(n_nodes, generator=generator, dtype=torch.float64).sign()
    least = math.log(1 + (n_nodes - 1) * math.exp(-tau / (n_nodes - 1)))
    assert float(reference.loss_nn(z, tau=tau)) >= least - 1e-12 * max(1, abs(least))


@pytest.mark.parametrize("n_nodes", [2, 5, 12])
def test_a_regular_simplex_attains_the_lower_bound_which_lies_below_the_papers(n_nodes):
    z = torch.eye(n_nodes, dtype=torch.float64) - 1 / n_nodes
    value = reference.loss_nn(z, tau=1.5)
    assert_value(value, math.log(1 + (n_nodes - 1) * math.exp(-1.5 / (n_nodes - 1))))
    assert value < math.log(n_nodes)


@settings(max_examples=40, deadline=None)
@given(
    n_nodes=st.integers(3, 40),
    n_clusters=st.integers(2, 4),
    tau=st.floats(0.05, 2),
    proxy=st.sampled_from(["eq2", "eq6"]),
    seed=st.integers(0, 10_000),
)
def test_where_the_bound_holds_the_negatives_over_nodes_exceed_the_proxy(n_nodes, n_clusters, tau, proxy, seed):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n_nodes, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(n_clusters, (n_nodes,), generator=generator)
    nodes = reference.meta_nodes(z, labels, n_clusters=n_clusters)
    if bound_holds(n_nodes, n_clusters, tau, proxy=proxy):
        assert reference.loss_nn(z, tau=tau) > reference.proxy(nodes, tau=tau, proxy=proxy)
