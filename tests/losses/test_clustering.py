import math

import pytest
import torch
from torch.autograd import gradcheck

from pamc.errors import UnknownNameError
from pamc.losses import clustering
from pamc.ops import reference
from tests.tolerances import assert_gradient, assert_value

DTYPES = [torch.float64, torch.float32]


def embedding_and_centers(n_nodes, n_dims, n_clusters, dtype):
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(n, n_dims, generator=generator, dtype=torch.float64).to(dtype) for n in (n_nodes, n_clusters))


@pytest.mark.parametrize("eta", [0.5, 1.0, 3.0])
@pytest.mark.parametrize(
    ("n_nodes", "n_dims", "n_clusters", "dtype"),
    [(41, 1, 2, torch.float64)]
    + [(*shape, dtype) for shape in ((41, 10, 1), (401, 10, 7), (2500, 33, 7)) for dtype in DTYPES],
)
def test_assignment_target_and_divergence_are_those_of_the_reference(n_nodes, n_dims, n_clusters, dtype, eta):
    z, centers = (x.requires_grad_() for x in embedding_and_centers(n_nodes, n_dims, n_clusters, dtype))
    exact = [x.detach().double().requires_grad_() for x in (z, centers)]
    q = reference.soft_assignment(*exact, eta=eta)
    p = reference.target_distribution(q.detach())
    expected = reference.kl_divergence(p, q)

    assert_value(clustering.soft_assignment(z, centers, eta=eta), q, dtype=dtype)
    assert_value(clustering.target_distribution(q.to(dtype)), p, dtype=dtype)
    # One target for both: its gradient is a difference of p and q, whose rounding is not the function's.
    log_q = clustering.log_soft_assignment(z, centers, eta=eta)
    value = clustering.kl_loss(p.log().to(dtype), log_q, reduction="sum")
    assert_value(value, expected, dtype=dtype)
    gradients = torch.autograd.grad(value, (z, centers))
    for actual, expected_gradient in zip(gradients, torch.autograd.grad(expected, exact), strict=True):
        assert_gradient(actual, expected_gradient, dtype=dtype)


def test_the_divergence_passes_gradcheck():
    z, centers = embedding_and_centers(9, 3, 4, torch.float64)
    log_p = clustering.log_target_distribution(clustering.log_soft_assignment(z, centers))
    assert gradcheck(
        lambda z, centers: clustering.kl_loss(log_p, clustering.log_soft_assignment(z, centers)),
        (z.requires_grad_(), centers.requires_grad_()),
    )


def test_assignments_are_distributions():
    z, centers = embedding_and_centers(41, 10, 7, torch.float64)
    q = clustering.soft_assignment(z, centers)
    assert_value(q.sum(dim=1), torch.ones(41))
    assert_value(clustering.target_distribution(q).sum(dim=1), torch.ones(41))


def test_a_node_on_its_center_and_a_center_far_away_are_no_trouble():
    centers = torch.tensor([[0.0, 0.0], [1e18, 0.0]], requires_grad=True)
    z = torch.zeros(3, 2, requires_grad=True)
    log_q = clustering.log_soft_assignment(z, centers)
    # The far center is at squared distance 1e36, and log q is minus the logarithm of that.
    assert_value(log_q[:, 1] / math.log(1e36), -torch.ones(3), dtype=torch.float32)
    log_p = clustering.log_target_distribution(log_q)
    value = clustering.kl_loss(log_p, log_q)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(value, (z, centers)))


def test_the_target_is_a_constant():
    z, centers = embedding_and_centers(9, 3, 4, torch.float64)
    q = clustering.soft_assignment(z.requires_grad_(), centers)
    assert not clustering.target_distribution(q).requires_grad
    assert not clustering.log_target_distribution(q.log()).requires_grad


def test_a_cluster_without_frequency_has_a_target_of_zero_and_adds_nothing():
    q = torch.tensor([[0.5, 0.0, 0.5], [0.25, 0.0, 0.75]], dtype=torch.float64, requires_grad=True)
    p = clustering.target_distribution(q)
    assert_value(p, reference.target_distribution(q))
    assert p[:, 1].tolist() == [0, 0]
    log_q = q.detach().log().requires_grad_()
    value = clustering.kl_loss(p.log(), log_q, reduction="sum")
    assert_value(value, reference.kl_divergence(p, q))
    gradient = torch.autograd.grad(value, log_q)[0]
    assert_gradient(gradient, -p)
    assert gradient[:, 1].tolist() == [0, 0]


def test_the_mean_is_the_sum_divided_by_the_number_of_rows():
    z, centers = embedding_and_centers(41, 10, 7, torch.float64)
    log_q = clustering.log_soft_assignment(z, centers)
    log_p = clustering.log_target_distribution(log_q)
    total = clustering.kl_loss(log_p, log_q, reduction="sum")
    assert_value(clustering.kl_loss(log_p, log_q), total / 41)
    assert total > 0
    assert_value(clustering.kl_loss(log_q, log_q), 0)


def test_an_unknown_reduction_is_refused():
    with pytest.raises(UnknownNameError, match="kl_reduction 'batchmean': allowed are mean, sum"):
        clustering.kl_loss(torch.zeros(1, 1), torch.zeros(1, 1), reduction="batchmean")
