"""Plain loops ⇐ dense reference, in value and gradient."""

import math

import pytest
import torch

from pamc.ops import reference
from tests import plain_loops
from tests.awkward import awkward_case
from tests.tolerances import assert_gradient, assert_value

TAUS = [0.25, 1.0, 20.0, 100.0]
SMALL = awkward_case(12, 3, 4, seed=3)


def assert_same(function, loops, *tensors):
    """Compare a function of tensors with one of nested lists, in value and in every gradient."""
    tensors = [tensor.clone().requires_grad_() for tensor in tensors]
    value = function(*tensors)
    gradients = torch.autograd.grad(value, tensors, materialize_grads=True)
    expected, expected_gradients = plain_loops.value_and_gradients(loops, *(tensor.tolist() for tensor in tensors))
    assert_value(value, expected)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        assert_gradient(gradient, expected_gradient)


def one_hot(case):
    return torch.nn.functional.one_hot(case.labels, case.n_clusters).double()


@pytest.mark.parametrize("self_edges", ["drop", "keep"])
@pytest.mark.parametrize("tau", TAUS)
def test_eq_1_is_its_double_loop(tau, self_edges):
    gamma = SMALL.gamma
    assert_same(
        lambda z: reference.contrastive_loss(z, gamma, tau=tau, self_edges=self_edges),
        lambda z: plain_loops.contrastive_loss(z, gamma.tolist(), tau, self_edges),
        SMALL.z,
    )


@pytest.mark.parametrize("kind", ["eq2", "eq6"])
@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("mass", [[1, 1, 1, 1, 1], [1, 0, 2, 3, 0], [0, 0, 0, 2, 0], [0, 0, 0, 0, 0]])
def test_eqs_2_and_6_are_their_double_loops_over_the_clusters_with_mass(tau, kind, mass):
    mu = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert_same(
        lambda mu: reference.proxy(mu, tau=tau, proxy=kind, mass=torch.tensor(mass)),
        lambda mu: plain_loops.proxy(mu, tau, mass, kind),
        mu,
    )


@pytest.mark.parametrize("kind", ["eq2", "eq6"])
def test_without_masses_the_zero_meta_nodes_are_the_empty_clusters(kind):
    mu = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mu[1] = 0
    masses = torch.tensor([1, 0, 1, 1])
    assert reference.proxy(mu, tau=1.0, proxy=kind) == reference.proxy(mu, tau=1.0, proxy=kind, mass=masses)


@pytest.mark.parametrize("self_edges", ["drop", "keep"])
@pytest.mark.parametrize("kind", ["eq2", "eq6"])
@pytest.mark.parametrize("tau", TAUS)
def test_eq_3_with_labels_is_its_double_loop(tau, kind, self_edges):
    assert_same(
        lambda z: reference.pamc_loss(
            z, SMALL.gamma, SMALL.labels, tau=tau, n_clusters=4, proxy=kind, self_edges=self_edges
        ),
        lambda z: plain_loops.pamc_loss(z, SMALL.gamma.tolist(), one_hot(SMALL).tolist(), tau, kind, self_edges),
        SMALL.z,
    )


@pytest.mark.parametrize("kind", ["eq2", "eq6"])
def test_eq_3_with_a_soft_assignment_is_its_double_loop_in_both_arguments(kind):
    assert_same(
        lambda z, soft: reference.pamc_loss(z, SMALL.gamma, soft, tau=0.5, proxy=kind),
        lambda z, soft: plain_loops.pamc_loss(z, SMALL.gamma.tolist(), soft, 0.5, kind),
        SMALL.z,
        SMALL.soft,
    )


def test_eq_4_is_the_cosine_with_a_diagonal_of_zero():
    z = SMALL.z
    expected = [[complex(plain_loops.similarity(z.tolist(), i, j)).real for j in range(12)] for i in range(12)]
    assert_value(reference.similarity(z), expected)


@pytest.mark.parametrize("tau", TAUS)
def test_eq_5_is_its_double_loop(tau):
    assert_same(lambda z: reference.loss_nn(z, tau=tau), lambda z: plain_loops.loss_nn(z, tau), SMALL.z)


def test_eq_7_is_the_formula_of_the_paper():
    assert_value(reference.bound_ratio(9298, 10, 0.5), math.log(9298) / math.log(1 + 9 * math.e**0.5))


def test_eq_8_is_its_double_loop():
    expected = plain_loops.meta_nodes(SMALL.z.tolist(), one_hot(SMALL).tolist())
    assert_value(reference.meta_nodes(SMALL.z, SMALL.labels, n_clusters=4), expected)
    expected = plain_loops.meta_nodes(SMALL.z.tolist(), SMALL.soft.tolist())
    assert_value(reference.meta_nodes(SMALL.z, SMALL.soft), expected)
    assert reference.meta_nodes(SMALL.z, torch.zeros(12, dtype=torch.int32)).shape == (1, 3)


@pytest.mark.parametrize("eta", [1.0, 2.5])
def test_eqs_9_to_11_are_their_double_loops(eta):
    centers = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    q = reference.soft_assignment(SMALL.z, centers, eta=eta)
    expected = plain_loops.soft_assignment(SMALL.z.tolist(), centers.tolist(), eta)
    assert_value(q, expected)
    p = reference.target_distribution(q)
    assert_value(p, plain_loops.target_distribution(expected))
    assert_same(
        lambda z, mu: reference.kl_divergence(p, reference.soft_assignment(z, mu, eta=eta)),
        lambda z, mu: plain_loops.kl_divergence(p.tolist(), plain_loops.soft_assignment(z, mu, eta)),
        SMALL.z,
        centers,
    )


def test_a_cluster_without_frequency_has_a_target_of_zero_and_adds_nothing_to_the_divergence():
    q = torch.tensor([[0.5, 0.0, 0.5], [0.25, 0.0, 0.75]], dtype=torch.float64, requires_grad=True)
    p = reference.target_distribution(q.detach())
    assert p[:, 1].tolist() == [0, 0]
    assert_value(p, reference.target_distribution(q.detach()[:, [0, 2]])[:, [0, 0, 1]] * torch.tensor([1, 0, 1]))
    gradient = torch.autograd.grad(reference.kl_divergence(p, q), q)[0]
    assert gradient[:, 1].tolist() == [0, 0]
    assert gradient.isfinite().all()


@pytest.mark.parametrize("meta_assignment", ["hard", "soft", "soft_detached"])
@pytest.mark.parametrize(("kind", "self_edges", "kl_reduction"), [("eq2", "drop", "mean"), ("eq6", "keep", "sum")])
def test_eq_12_is_its_double_loop(meta_assignment, kind, self_edges, kl_reduction):
    centers = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    numbers = {"alpha": 0.7, "beta": 2.0, "tau": 0.5, "eta": 1.5}
    options = {"self_edges": self_edges, "meta_assignment": meta_assignment, "kl_reduction": kl_reduction}
    gamma = SMALL.gamma
    assert_same(
        lambda z, mu: reference.objective(z, mu, gamma, **numbers, proxy=kind, **options),
        lambda z, mu: plain_loops.objective(z, mu, gamma.tolist(), **numbers, kind=kind, **options),
        SMALL.z,
        centers,
    )


def test_float32_comes_out_as_float64():
    case = awkward_case(12, 3, 4, dtype=torch.float32)
    assert reference.pamc_loss(case.z, case.gamma.float(), case.soft, tau=1.0).dtype == torch.float64


def test_a_nan_in_z_is_a_nan_in_the_loss():
    z = SMALL.z.clone()
    z[4, 0] = torch.nan
    assert reference.pamc_loss(z, SMALL.gamma, SMALL.labels, tau=1.0, n_clusters=4).isnan()
    assert reference.contrastive_loss(z, SMALL.gamma, tau=1.0).isnan()
