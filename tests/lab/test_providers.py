import dataclasses

import pytest
import torch

from pamc.lab.providers import (
    PROVIDERS,
    EdgeList,
    Prepared,
    broadcast_assignment,
    dense_contrast,
    dense_weights,
    released_contrast,
    target,
    why_refused,
)
from pamc.ops import reference
from tests.awkward import awkward_case
from tests.tolerances import assert_gradient, assert_value

CPU = torch.device("cpu")


def value_and_gradient(function, z):
    leaf = z.clone().requires_grad_()
    value = function(leaf)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


@pytest.mark.fast_variants(4)
@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)])
def test_every_provider_is_the_reference_in_value_and_gradient(name, dtype):
    # Without a GPU the tests run Triton's kernels in its interpreter.
    assert why_refused(PROVIDERS[name], CPU, dtype=dtype) is None


@pytest.mark.parametrize("factor", [1.001, float("nan")])
def test_a_provider_that_is_wrong_is_refused(factor):
    right = PROVIDERS["torch"]

    def prepare(problem):
        prepared = right.prepare(problem)
        return Prepared(lambda z: factor * prepared.loss(z), prepared.graph)

    wrong = dataclasses.replace(right, prepare=prepare)
    assert "value of its loss is off" in why_refused(wrong, CPU)


def test_a_wrong_gradient_of_the_objective_is_refused():
    right = PROVIDERS["torch"]

    def objective(z, centers, pairs, config):
        return right.objective(z, centers, pairs, config) + (z - z.detach()).sum()

    reason = why_refused(dataclasses.replace(right, objective=objective), CPU)
    assert "gradient of its objective is off" in reason


@pytest.mark.parametrize("shape", [{}, {"n_nodes": 57, "n_dims": 3, "n_clusters": 2, "seed": 1}, {"tau": 4.0}])
def test_the_released_programs_loss_is_eq_6_with_self_edges(shape):
    shape = dict(shape)
    tau = shape.pop("tau", 0.5)
    case = awkward_case(**shape)
    edges = EdgeList.of(case.pairs)
    options = {"tau": tau, "n_clusters": case.n_clusters}
    value, gradient = value_and_gradient(lambda z: released_contrast(z, case.labels, edges, **options), case.z)
    exact = value_and_gradient(
        lambda z: reference.pamc_loss(z, case.gamma, case.labels, proxy="eq6", self_edges="keep", **options), case.z
    )
    assert_value(value, exact[0])
    assert_gradient(gradient, exact[1])


def test_the_n_by_n_loss_is_eq_1_with_self_edges():
    case = awkward_case()
    value, gradient = value_and_gradient(lambda z: dense_contrast(z, dense_weights(case.pairs), tau=0.5), case.z)
    exact = value_and_gradient(lambda z: reference.contrastive_loss(z, case.gamma, tau=0.5, self_edges="keep"), case.z)
    assert_value(value, exact[0])
    assert_gradient(gradient, exact[1])


def test_edges_and_dense_weights_are_all_of_gamma():
    case = awkward_case()
    assert_value(dense_weights(case.pairs), case.gamma)
    edges = EdgeList.of(case.pairs)
    again = torch.zeros_like(case.gamma)
    again[edges.row, edges.column] = edges.weight
    assert_value(again, case.gamma)
    assert (edges.row.diff() >= 0).all()


@pytest.mark.parametrize("eta", [1.0, 2.5])
def test_assignment_and_target_are_eqs_9_and_10(eta):
    case = awkward_case()
    centers = case.z[10:14]
    q = broadcast_assignment(case.z, centers, eta=eta)
    assert_value(q, reference.soft_assignment(case.z, centers, eta=eta))
    assert_value(target(q), reference.target_distribution(q))


def test_triton_is_not_measured_on_a_cpu():
    assert "GPU" in PROVIDERS["triton"].why_unavailable(CPU)
    assert PROVIDERS["torch"].why_unavailable(CPU) is None
