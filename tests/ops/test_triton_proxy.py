import pytest
import torch

from pamc.ops import reference
from pamc.ops.torch.proxy import uniformity

pytest.importorskip("triton", reason="triton is not installed")

from pamc.ops.triton import proxy as triton_proxy

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytestmark = [pytest.mark.usefixtures("poisoned"), pytest.mark.fast_variants(2)]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def nodes_and_mass(n_clusters, n_dims, n_empty=0):
    generator = torch.Generator().manual_seed(0)
    nodes = torch.randn(n_clusters, n_dims, generator=generator, dtype=torch.float64)
    mass = torch.ones(n_clusters, dtype=torch.float64)
    nodes[:n_empty], mass[:n_empty] = 0, 0
    return nodes, mass


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", ["eq2", "eq6"])
@pytest.mark.parametrize("tau", [0.25, 20.0])
@pytest.mark.parametrize(
    ("n_clusters", "n_dims", "n_empty"),
    [(1, 3, 0), (2, 1, 0), (3, 10, 2), (7, 10, 1), (40, 33, 3), (65, 4, 0), (4, 5, 4)],
)
def test_value_and_gradient_are_those_of_the_reference(n_clusters, n_dims, n_empty, tau, kind, dtype):
    nodes, mass = nodes_and_mass(n_clusters, n_dims, n_empty)
    exact = nodes.clone().requires_grad_()
    expected = reference.proxy(exact, tau=tau, proxy=kind, mass=mass)
    (gradient,) = torch.autograd.grad(3 * expected, exact) if expected.requires_grad else (torch.zeros_like(exact),)
    ours = nodes.to(DEVICE, dtype).requires_grad_()
    value = triton_proxy.proxy(ours, mass.to(DEVICE, dtype), tau=tau, kind=kind)
    (found,) = torch.autograd.grad(3 * value, ours)
    tolerance = TOLERANCE[dtype]
    assert abs(value.item() - expected.item()) <= tolerance * max(1, abs(expected.item()))
    assert (found.cpu().double() - gradient).norm() <= tolerance * max(1, gradient.norm())


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("n_nodes", "step", "n_rows"), [(1, 1, 1), (41, 1, 41), (401, 7, 33), (1271, 9, 100)])
def test_uniformity_is_that_of_every_so_manieth_row(n_nodes, step, n_rows, dtype):
    z = torch.randn(n_nodes, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z[0] = 0
    expected = uniformity(z, step=step, n_rows=n_rows)
    found = triton_proxy.uniformity(z.to(DEVICE, dtype), step=step, n_rows=n_rows)
    assert found.item() == pytest.approx(expected.item(), abs=TOLERANCE[dtype])


def test_uniformity_of_rows_of_any_stride():
    z = torch.randn(3, 41, generator=torch.Generator().manual_seed(0), dtype=torch.float64).T
    expected = uniformity(z, step=2, n_rows=20)
    found = triton_proxy.uniformity(z.to(DEVICE), step=2, n_rows=20)
    assert found.item() == pytest.approx(expected.item(), abs=1e-12)
