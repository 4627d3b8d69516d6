"""Dense reference ⇐ pamc_loss, in value and gradient; closed forms; degenerate inputs."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from pamc.errors import CollapseWarning, EmptyClusterWarning
from pamc.losses.pamc import PamCLoss, meta_nodes, pamc_loss, pamc_terms, proxy_loss
from pamc.ops import reference
from tests.awkward import awkward_case
from tests.tolerances import assert_gradient, assert_value

SHAPES = [(41, 10, 7), (41, 1, 2), (401, 33, 2), (401, 10, 7), (41, 10, 1)]
OPTIONS = [(proxy, self_edges) for proxy in ("eq2", "eq6") for self_edges in ("drop", "keep")]
DTYPES = [torch.float64, torch.float32]

quiet = pytest.mark.filterwarnings("ignore::pamc.errors.PamcWarning")


def assert_is_the_reference(case, *, soft, tau, proxy, self_edges, dtype):
    options = {"tau": tau, "n_clusters": case.n_clusters, "proxy": proxy, "self_edges": self_edges}
    results = []
    for function, graph, used in ((pamc_loss, case.edges, dtype), (reference.pamc_loss, case.gamma, torch.float64)):
        z = case.z.to(used).requires_grad_()
        assignment = case.soft.to(used).requires_grad_() if soft else case.labels
        weight = {"edge_weight": case.weight} if function is pamc_loss else {}
        value = function(z, graph, assignment, **weight, **options)
        assert value.dtype == used
        gradients = torch.autograd.grad(value, [z, assignment] if soft else [z])
        results.append((value, gradients))
    assert_value(results[0][0], results[1][0], dtype=dtype)
    for actual, expected in zip(results[0][1], results[1][1], strict=True):
        assert_gradient(actual, expected, dtype=dtype)


@quiet
@pytest.mark.parametrize("tau", [0.25, 1.0, 20.0, 100.0])
@pytest.mark.parametrize(("proxy", "self_edges"), OPTIONS)
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize(("n_nodes", "n_dims", "n_clusters"), SHAPES)
def test_the_loss_is_eq_3_of_the_reference(n_nodes, n_dims, n_clusters, soft, proxy, self_edges, tau):
    case = awkward_case(n_nodes, n_dims, n_clusters)
    assert_is_the_reference(case, soft=soft, tau=tau, proxy=proxy, self_edges=self_edges, dtype=torch.float64)


@quiet
@pytest.mark.parametrize("tau", [0.25, 1.0])
@pytest.mark.parametrize(("proxy", "self_edges"), OPTIONS)
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize(("n_nodes", "n_dims", "n_clusters"), SHAPES)
def test_the_loss_in_float32_is_eq_3_of_the_reference(n_nodes, n_dims, n_clusters, soft, proxy, self_edges, tau):
    case = awkward_case(n_nodes, n_dims, n_clusters, dtype=torch.float32)
    assert_is_the_reference(case, soft=soft, tau=tau, proxy=proxy, self_edges=self_edges, dtype=torch.float32)


@pytest.mark.fast_variants(3)
@quiet
@pytest.mark.parametrize("tau", [0.25, 1.0, 20.0, 100.0])
@pytest.mark.parametrize(("proxy", "self_edges"), OPTIONS)
@pytest.mark.parametrize("kind", ["hard", "soft", "given"])
def test_the_loss_passes_gradcheck(kind, proxy, self_edges, tau):
    case = awkward_case(9, 3, 4)
    options = {"edge_weight": case.weight, "tau": tau, "n_clusters": 4, "proxy": proxy, "self_edges": self_edges}
    # The zero row is a kink: differences across it mean nothing.
    z = torch.where(case.z == 0, 0.5, case.z).requires_grad_()
    if kind == "soft":
        soft = torch.where(case.soft == 0, 0.01, case.soft).requires_grad_()
        assert gradcheck(lambda z, soft: pamc_loss(z, case.edges, soft, **options), (z, soft))
    else:
        labels = case.soft.argmax(dim=1) if kind == "hard" else case.labels
        assert gradcheck(lambda z: pamc_loss(z, case.edges, labels, **options), z)


@quiet
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reference_backend_gives_the_same_loss(dtype, soft):
    case = awkward_case(41, 10, 7, dtype=dtype)
    results = []
    for backend in ("torch", "reference"):
        z = case.z.clone().requires_grad_()
        assignment = case.soft if soft else case.labels
        value = pamc_loss(z, case.pairs, assignment, n_clusters=7, backend=backend)
        results.append((value, torch.autograd.grad(value, z)[0]))
    assert_value(results[0][0], results[1][0], dtype=dtype)
    assert_gradient(results[0][1], results[1][1], dtype=dtype)


@quiet
def test_prepared_pairs_and_edges_give_one_loss_in_any_type():
    case = awkward_case()
    expected = pamc_loss(case.z, case.edges, case.labels, edge_weight=case.weight)
    assert pamc_loss(case.z, case.pairs, case.labels) == expected
    assert_value(pamc_loss(case.z, case.pairs.to(dtype=torch.float32), case.labels), expected, dtype=torch.float32)
    ones = pamc_loss(case.z, case.edges, case.labels, edge_weight=torch.ones_like(case.weight))
    assert pamc_loss(case.z, case.edges.int(), case.labels.int()) == ones


@quiet
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_and_gets_its_gradient_in_its_own_type(dtype):
    case = awkward_case()
    z = case.z.to(dtype).requires_grad_()
    value = pamc_loss(z, case.edges, case.labels)
    assert value.dtype == torch.float32
    assert value == pamc_loss(z.float(), case.edges, case.labels)
    value.backward()
    assert z.grad.dtype == dtype


@quiet
def test_the_terms_add_up_and_carry_what_they_were_made_of():
    case = awkward_case()
    terms = pamc_terms(case.z.requires_grad_(), case.pairs, case.labels, n_clusters=7, tau=0.5)
    assert terms.total == terms.positive + terms.proxy
    assert_value(terms.meta_nodes, reference.meta_nodes(case.z, case.labels, n_clusters=7))
    assert terms.mass.tolist() == torch.bincount(case.labels, minlength=7).tolist()
    assert 0 < terms.alignment < 4
    assert terms.positive.requires_grad
    assert terms.proxy.requires_grad
    assert not any(x.requires_grad for x in (terms.alignment, terms.meta_nodes, terms.mass))


@pytest.mark.parametrize("soft", [False, True])
def test_meta_nodes_are_eq_8_and_differentiable(soft):
    case = awkward_case(401, 5, 7)
    assignment = case.soft if soft else case.labels
    z = case.z.clone().requires_grad_()
    nodes = meta_nodes(z, assignment, n_clusters=7)
    assert_value(nodes, reference.meta_nodes(case.z, assignment, n_clusters=7))
    expected = case.soft if soft else torch.nn.functional.one_hot(case.labels, 7).double()
    assert_gradient(torch.autograd.grad(nodes.sum(), z)[0], expected.sum(dim=1, keepdim=True).expand(-1, 5) / 401)


def simplex(n_clusters):
    """Return C vectors whose cosines are all −1/(C−1)."""
    return torch.eye(n_clusters, dtype=torch.float64) - 1 / n_clusters


@pytest.mark.parametrize("tau", [0.25, 1.0, 20.0, 100.0])
@pytest.mark.parametrize("n_clusters", [2, 3, 10])
def test_eq_2_in_closed_form(n_clusters, tau):
    pairs = math.log(n_clusters * (n_clusters - 1))
    orthonormal = torch.eye(n_clusters, dtype=torch.float64)
    identical = torch.tensor([[3.0, 4.0]], dtype=torch.float64).expand(n_clusters, -1)
    for function in (proxy_loss, reference.proxy):
        assert_value(function(orthonormal, tau=tau), pairs)
        assert_value(function(identical, tau=tau), pairs + tau)
        assert_value(function(simplex(n_clusters), tau=tau), pairs - tau / (n_clusters - 1))


@pytest.mark.parametrize("tau", [0.25, 1.0, 20.0])
@pytest.mark.parametrize("n_clusters", [2, 3, 10])
def test_eq_6_in_closed_form(n_clusters, tau):
    others = n_clusters - 1
    for nodes, cosine in (
        (torch.eye(n_clusters, dtype=torch.float64), 0),
        (torch.ones(n_clusters, 2, dtype=torch.float64), 1),
        (simplex(n_clusters), -1 / others),
    ):
        expected = math.log(1 + others * math.exp(tau * cosine))
        assert_value(proxy_loss(nodes, tau=tau, proxy="eq6"), expected)
        assert_value(reference.loss_cc(nodes, tau=tau), expected)


def test_eq_2_and_eq_6_differ_for_random_centers():
    nodes = torch.randn(4, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    eq2, eq6 = (float(proxy_loss(nodes, tau=0.5, proxy=proxy)) for proxy in ("eq2", "eq6"))
    assert abs(eq2 - math.log(12)) < 0.5
    assert abs(eq6 - math.log(4)) < 0.5
    assert eq2 - eq6 > 0.9


@pytest.mark.parametrize("proxy", ["eq2", "eq6"])
@pytest.mark.parametrize("n_clusters", [2, 40, 300])
def test_the_proxy_of_many_clusters_is_that_of_the_reference(n_clusters, proxy):
    nodes = torch.randn(n_clusters, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mass = (torch.arange(n_clusters) % 5 != 4).double()
    results = []
    for function in (proxy_loss, reference.proxy):
        own = nodes.clone().requires_grad_()
        value = function(own, tau=3.0, proxy=proxy, mass=mass)
        results.append((value, torch.autograd.grad(value, own)[0]))
    assert_value(results[0][0], results[1][0])
    assert_gradient(results[0][1], results[1][1])


@pytest.mark.parametrize("proxy", ["eq2", "eq6"])
@pytest.mark.parametrize("mass", [[0, 0, 0], [0, 5, 0]])
def test_fewer_than_two_clusters_have_proxy_zero_with_gradient_zero(mass, proxy):
    nodes = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    value = proxy_loss(nodes, tau=1.0, proxy=proxy, mass=torch.tensor(mass))
    assert value == 0
    assert torch.autograd.grad(value, nodes)[0].tolist() == [[0, 0]] * 3


def test_zero_meta_nodes_are_empty_clusters_unless_their_mass_says_otherwise():
    nodes = torch.eye(3)
    nodes[2] = 0
    assert_value(proxy_loss(nodes, tau=1.0), math.log(2), dtype=torch.float32)
    assert_value(proxy_loss(nodes, tau=1.0, mass=torch.ones(3)), math.log(6), dtype=torch.float32)


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_an_empty_cluster_is_left_out_with_one_warning(empty):
    case = awkward_case(41, 10, 2)
    others = [c for c in range(3) if c != empty]
    labels = torch.tensor(others)[case.labels]
    with pytest.warns(EmptyClusterWarning, match="1 of 3 clusters are empty") as caught:
        value = pamc_loss(case.z, case.edges, labels, n_clusters=3)
    assert len(caught) == 1
    assert value == pamc_loss(case.z, case.edges, case.labels)


@pytest.mark.parametrize("n_clusters", [1, 3])
def test_one_cluster_has_nothing_to_contrast_and_a_warning(n_clusters):
    case = awkward_case(41, 10, 1)
    with pytest.warns(CollapseWarning, match=f"1 of {n_clusters} clusters") as caught:
        terms = pamc_terms(case.z, case.edges, case.labels, n_clusters=n_clusters)
    assert len(caught) == 1
    assert terms.proxy == 0


def test_a_zero_row_and_an_isolated_node_get_gradient_from_the_proxy_alone():
    case = awkward_case(41, 10, 2)
    z = case.z.clone().requires_grad_()
    terms = pamc_terms(z, case.edges, case.labels, edge_weight=case.weight)
    positive, proxy = (torch.autograd.grad(term, z)[0] for term in (terms.positive, terms.proxy))
    assert positive[:2].tolist() == [[0] * 10] * 2
    assert positive[4:].abs().amax(dim=1).min() > 0
    assert proxy.abs().amax(dim=1).min() > 0


def test_a_node_without_positives_is_left_out_while_the_divisor_stays():
    z = torch.eye(4, dtype=torch.float64)
    edges = torch.tensor([[0], [1]])
    value = pamc_terms(z, edges, torch.tensor([0, 0, 1, 1]), edge_weight=torch.tensor([math.e])).positive
    assert_value(value, -1 / 4, dtype=torch.float32)


@quiet
def test_a_graph_without_edges_leaves_the_proxy():
    case = awkward_case()
    terms = pamc_terms(case.z, torch.empty(2, 0, dtype=torch.int64), case.labels)
    assert terms.positive == 0
    assert terms.alignment == 0
    assert terms.proxy > 0


@quiet
def test_a_nan_in_z_is_a_nan_in_the_loss():
    case = awkward_case()
    case.z[4, 0] = torch.nan
    assert pamc_terms(case.z, case.edges, case.labels).positive.isnan()
    assert pamc_terms(case.z, case.edges, case.labels).proxy.isnan()


@quiet
def test_the_module_is_the_function_with_its_options_kept():
    case = awkward_case()
    options = {"tau": 0.25, "n_clusters": 7, "proxy": "eq6", "self_edges": "keep", "backend": "reference"}
    module = PamCLoss(**options)
    expected = pamc_loss(case.z, case.edges, case.labels, edge_weight=case.weight, **options)
    assert module(case.z, case.edges, case.labels, edge_weight=case.weight) == expected
    assert repr(module) == ("PamCLoss(tau=0.25, n_clusters=7, proxy='eq6', self_edges='keep', backend='reference')")
    assert list(module.parameters()) == []
