"""Rows in half precision go through the same layers, rounded, with sums in float32."""

import pytest
import torch

from pamc.models.layers import MLP


def network(sizes):
    return MLP(sizes, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("sizes", [(7, 5), (13, 20, 10, 3), (24, 50, 50, 200, 10)])
def test_values_and_gradients_are_those_of_float32_up_to_rounding(sizes):
    x = torch.randn(400, sizes[0], generator=torch.Generator().manual_seed(1))
    slope = torch.randn(400, sizes[-1], generator=torch.Generator().manual_seed(2))
    exact, half = network(sizes), network(sizes)
    z, rounded = exact(x), half(x.half())
    assert rounded.dtype == torch.float32
    assert torch.allclose(rounded, z, atol=5e-3, rtol=5e-3)
    torch.autograd.backward(z, slope)
    torch.autograd.backward(rounded, slope)
    for expected, got in zip(exact.parameters(), half.parameters(), strict=True):
        assert got.grad.dtype == torch.float32
        assert got.grad.shape == expected.grad.shape
        assert float((got.grad - expected.grad).norm() / expected.grad.norm()) < 5e-2


def test_what_is_summed_is_not_rounded_to_the_type_of_the_rows():
    # 2,049 ones: float16 ends at 2,048.
    one = MLP((1, 1), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        one.layers[0].weight.fill_(1.0)
        one.layers[0].bias.zero_()
    z = one(torch.ones(2049, 1, dtype=torch.float16))
    torch.autograd.backward(z, torch.ones(2049, 1))
    assert float(one.layers[0].weight.grad) == 2049
    assert float(one.layers[0].bias.grad) == 2049
