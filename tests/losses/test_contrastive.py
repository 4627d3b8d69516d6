import math

import pytest
import torch
from torch.autograd import gradcheck

from pamc.losses.contrastive import ContrastiveLoss, contrastive_loss
from pamc.ops import reference
from tests.awkward import awkward_case
from tests.tolerances import assert_gradient, assert_value


@pytest.mark.parametrize("self_edges", ["drop", "keep"])
@pytest.mark.parametrize(
    ("n_nodes", "n_dims", "tau", "dtype"),
    [(n, d, tau, torch.float64) for n, d in ((41, 1), (41, 10), (401, 33)) for tau in (0.25, 1.0, 20.0, 100.0)]
    + [(n, d, tau, torch.float32) for n, d in ((41, 10), (401, 33)) for tau in (0.25, 1.0, 20.0)],
)
def test_the_loss_is_eq_1_of_the_reference(n_nodes, n_dims, tau, dtype, self_edges):
    case = awkward_case(n_nodes, n_dims, dtype=dtype)
    z, exact = case.z.clone().requires_grad_(), case.z.double().requires_grad_()
    value = contrastive_loss(z, case.edges, edge_weight=case.weight, tau=tau, self_edges=self_edges)
    expected = reference.contrastive_loss(exact, case.gamma, tau=tau, self_edges=self_edges)
    assert_value(value, expected, dtype=dtype)
    gradient, expected_gradient = torch.autograd.grad(value, z)[0], torch.autograd.grad(expected, exact)[0]
    assert_gradient(gradient, expected_gradient, dtype=dtype)


@pytest.mark.parametrize("self_edges", ["drop", "keep"])
def test_the_loss_passes_gradcheck(self_edges):
    case = awkward_case(9, 3)
    z = torch.where(case.z == 0, 0.5, case.z).requires_grad_()
    assert gradcheck(lambda z: contrastive_loss(z, case.edges, edge_weight=case.weight, self_edges=self_edges), z)


def test_kept_self_edges_make_the_negatives_those_of_eq_5():
    case = awkward_case(41, 10)
    everyone = torch.cartesian_prod(torch.arange(41), torch.arange(41)).T
    assert_value(contrastive_loss(case.z, everyone, self_edges="keep"), 0)
    only_self = torch.arange(41).expand(2, -1)
    expected = reference.loss_nn(case.z, tau=2.0)
    assert_value(contrastive_loss(case.z, only_self, tau=2.0, self_edges="keep"), expected)


def test_a_single_node_has_no_loss_and_no_gradient():
    z = torch.ones(1, 2, requires_grad=True)
    value = contrastive_loss(z, torch.tensor([[0], [0]]))
    assert value == 0
    assert torch.autograd.grad(value, z)[0].tolist() == [[0, 0]]


def test_a_nan_in_z_is_a_nan_in_the_loss():
    z = torch.eye(3)
    z[0, 0] = math.nan
    assert contrastive_loss(z, torch.tensor([[0, 1, 2], [1, 2, 0]])).isnan()


def test_the_module_is_the_function_with_its_options_kept():
    case = awkward_case()
    module = ContrastiveLoss(tau=2.0, self_edges="keep")
    expected = contrastive_loss(case.z, case.pairs, tau=2.0, self_edges="keep")
    assert module(case.z, case.edges, edge_weight=case.weight) == expected
    assert repr(module) == "ContrastiveLoss(tau=2.0, self_edges='keep')"
