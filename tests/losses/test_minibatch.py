"""Mini-batches with given meta-nodes: the proxy's gradient is exact, the positives' is biased by the pairs cut off."""

import pytest
import torch

from pamc.data.synthetic import block_model
from pamc.losses.pamc import meta_nodes, pamc_terms
from tests.awkward import awkward_case
from tests.tolerances import assert_gradient, assert_value

N_NODES, N_CLUSTERS = 240, 4


def parts(seed=0):
    """Return an embedding near the centers of a block model, its edges in both directions and its blocks."""
    graph = block_model(N_NODES, N_CLUSTERS, degree=12, homophily=0.8, random_state=seed)
    edges, labels = torch.from_numpy(graph.edges), torch.from_numpy(graph.labels)
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(N_NODES, 6, generator=generator, dtype=torch.float64)
    z += 2 * torch.randn(N_CLUSTERS, 6, generator=generator, dtype=torch.float64)[labels]
    return z, torch.cat([edges, edges.flip(0)], dim=1), labels


def batch_edges(edges, batch):
    """Return the edges inside a batch, by place in the batch."""
    place = torch.full((N_NODES,), -1)
    place[batch] = torch.arange(len(batch))
    inside = place[edges]
    return inside[:, (inside >= 0).all(dim=0)]


def random_batches(size):
    return torch.randperm(N_NODES, generator=torch.Generator().manual_seed(1)).split(size)


def mean_gradients(z, edges, assignment, batches, proxy="eq2"):
    """Return the mean over the batches of the gradients of both terms, without a step between."""
    nodes = meta_nodes(z, assignment)
    means = {"positive": torch.zeros_like(z), "proxy": torch.zeros_like(z)}
    for batch in batches:
        z_batch = z[batch].requires_grad_()
        terms = pamc_terms(z_batch, batch_edges(edges, batch), assignment[batch], meta_nodes=nodes, proxy=proxy)
        for name, mean in means.items():
            mean[batch] += torch.autograd.grad(getattr(terms, name), z_batch)[0] / len(batches)
    return means


def full_gradients(z, edges, assignment, proxy="eq2"):
    z = z.clone().requires_grad_()
    terms = pamc_terms(z, edges, assignment, proxy=proxy)
    return {name: torch.autograd.grad(getattr(terms, name), z)[0] for name in ("positive", "proxy")}


@pytest.mark.fast_variants(2)
@pytest.mark.parametrize("proxy", ["eq2", "eq6"])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("size", [1, 24, 60, 240])
def test_the_mean_of_the_batches_gradients_of_the_proxy_is_the_full_gradient(size, soft, proxy):
    z, edges, labels = parts()
    if soft:
        assignment = torch.randn(N_NODES, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64).softmax(1)
    else:
        assignment = labels
    actual = mean_gradients(z, edges, assignment, random_batches(size), proxy)["proxy"]
    assert_gradient(actual, full_gradients(z, edges, assignment, proxy)["proxy"])


def test_the_gradient_in_a_soft_assignment_is_exact_too():
    z, edges, _ = parts()
    soft = torch.randn(N_NODES, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64).softmax(1)
    nodes = meta_nodes(z, soft)
    whole = soft.clone().requires_grad_()
    expected = torch.autograd.grad(pamc_terms(z, edges, whole).proxy, whole)[0]
    actual = torch.zeros_like(soft)
    for batch in random_batches(40):
        own = soft[batch].requires_grad_()
        terms = pamc_terms(z[batch], batch_edges(edges, batch), own, meta_nodes=nodes)
        actual[batch] = torch.autograd.grad(terms.proxy, own)[0] / 6
    assert_gradient(actual, expected)


def test_the_value_of_the_proxy_is_that_of_the_given_meta_nodes_even_for_a_batch_of_one_cluster():
    z, edges, labels = parts()
    whole = pamc_terms(z, edges, labels)
    batch = (labels == 2).nonzero()[:, 0]
    nodes = meta_nodes(z, labels)
    terms = pamc_terms(z[batch], batch_edges(edges, batch), labels[batch], meta_nodes=nodes.requires_grad_())
    assert_value(terms.proxy, whole.proxy)
    assert torch.equal(terms.meta_nodes, nodes)
    assert terms.mass.tolist() == [0, 0, len(batch), 0]
    assert not terms.proxy.requires_grad


def test_the_positives_gradient_is_biased_by_the_pairs_cut_off_less_and_less_with_larger_batches():
    z, edges, labels = parts()
    expected = full_gradients(z, edges, labels)["positive"]
    errors = []
    for size in (24, 60, 120, 240):
        actual = mean_gradients(z, edges, labels, random_batches(size))["positive"]
        errors.append(float((actual - expected).norm() / expected.norm()))
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.5
    assert errors[-1] < 1e-12


def test_batches_that_follow_the_blocks_cut_fewer_pairs_off_and_are_less_biased():
    z, edges, labels = parts()
    expected = full_gradients(z, edges, labels)["positive"]
    errors = []
    for batches in (random_batches(60), [(labels == c).nonzero()[:, 0] for c in range(N_CLUSTERS)]):
        assert {len(batch) for batch in batches} == {60}
        errors.append(float((mean_gradients(z, edges, labels, batches)["positive"] - expected).norm()))
    assert errors[1] < errors[0]


def test_given_meta_nodes_come_in_any_type_and_their_empty_clusters_stay_empty():
    case = awkward_case(41, 10, 2)
    nodes = torch.cat([meta_nodes(case.z, case.labels), torch.zeros(1, 10, dtype=torch.float64)])
    with pytest.warns(match="1 of 3 clusters are empty"):
        terms = pamc_terms(case.z, case.edges, case.labels, meta_nodes=nodes.float())
    expected = pamc_terms(case.z, case.edges, case.labels)
    assert_value(terms.proxy, expected.proxy, dtype=torch.float32)
    assert terms.proxy.dtype == torch.float64
