"""The divergence with its gradient written out ⇐ Eqs 9 to 11 of the dense reference."""

import pytest
import torch
from torch.autograd import gradcheck

from pamc.ops import reference
from pamc.ops.torch import clustering
from pamc.ops.torch.clustering import self_training, soft_self_training
from tests.tolerances import assert_gradient, assert_value


def problem(n_nodes, n_clusters, n_dims, dtype, *, offset=0.0):
    order = torch.Generator().manual_seed(0)
    centers = torch.randn(n_clusters, n_dims, generator=order, dtype=torch.float64) * 2 + offset
    z = torch.randn(n_nodes, n_dims, generator=order, dtype=torch.float64) + centers[torch.arange(n_nodes) % n_clusters]
    return z.to(dtype), centers.to(dtype)


def by_reference(z, centers, eta):
    z, centers = (x.double().requires_grad_() for x in (z, centers))
    q = reference.soft_assignment(z, centers, eta=eta)
    p = reference.target_distribution(q.detach())
    kl = reference.kl_divergence(p, q, reduction="sum")
    return kl, q.log(), torch.autograd.grad(kl, (z, centers))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("eta", [0.5, 1.0, 3.0])
@pytest.mark.parametrize(("n_nodes", "n_clusters", "n_dims"), [(1, 1, 1), (7, 3, 2), (2500, 10, 20)])
def test_value_and_gradients_are_those_of_the_reference(n_nodes, n_clusters, n_dims, eta, dtype):
    z, centers = problem(n_nodes, n_clusters, n_dims, dtype)
    expected, expected_log_q, expected_gradients = by_reference(z, centers, eta)
    z, centers = z.requires_grad_(), centers.requires_grad_()
    kl, log_q = soft_self_training(z, centers, eta=eta)
    assert_value(kl, expected, dtype=dtype)
    assert_value(log_q, expected_log_q.detach(), dtype=dtype)
    assert not log_q.requires_grad
    for gradient, other in zip(torch.autograd.grad(kl, (z, centers)), expected_gradients, strict=True):
        assert_gradient(gradient, other, dtype=dtype)


def test_an_offset_costs_no_precision():
    near, far = (problem(50, 4, 3, torch.float64, offset=offset) for offset in (0.0, 1e5))
    assert soft_self_training(*far, eta=1.0)[0].item() == pytest.approx(
        soft_self_training(*near, eta=1.0)[0].item(), rel=1e-8
    )


def test_rows_far_from_every_center_have_finite_gradients():
    z, centers = problem(20, 3, 2, torch.float32)
    z[0] = 1e15
    z.requires_grad_()
    kl, log_q = soft_self_training(z, centers, eta=1.0)
    kl.backward()
    assert kl.isfinite()
    assert log_q.isfinite().all()
    assert z.grad.isfinite().all()


def test_the_gradient_passes_gradcheck_where_the_target_does_not_move():
    # With one cluster p = q = 1 whatever z is; the target of more moves with z, and is a constant by definition.
    z, centers = (x.requires_grad_() for x in problem(4, 1, 2, torch.float64))
    assert gradcheck(lambda z, centers: soft_self_training(z, centers, eta=1.0)[0], (z, centers))


@pytest.mark.parametrize("numbers", [1, 30, 68, 10**9])
def test_in_blocks_it_is_the_same(numbers, monkeypatch):
    monkeypatch.setattr(clustering, "_NUMBERS_PER_BLOCK", numbers)
    z, centers = problem(23, 3, 2, torch.float64)
    expected, expected_log_q, expected_gradients = by_reference(z, centers, 1.5)
    z, centers = z.requires_grad_(), centers.requires_grad_()
    kl, labels = self_training(z, centers, eta=1.5)
    assert_value(kl, expected)
    assert torch.equal(labels, expected_log_q.argmax(dim=1))
    for gradient, other in zip(torch.autograd.grad(2 * kl, (z, centers)), expected_gradients, strict=True):
        assert_gradient(gradient, 2 * other)


def test_many_assignments_are_taken_in_blocks(monkeypatch):
    z, centers = problem(23, 3, 2, torch.float64)
    expected, expected_log_q, _ = by_reference(z, centers, 1.0)
    monkeypatch.setattr(clustering, "_NUMBERS_PER_BLOCK", 20)
    kl, labels = self_training(z, centers, eta=1.0)
    assert_value(kl, expected)
    assert torch.equal(labels, expected_log_q.argmax(dim=1))
