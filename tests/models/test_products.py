import pytest
import torch

from pamc.models import products

SHAPES = [(1, 1, 1), (7, 3, 5), (41, 33, 10), (256, 20, 500), (401, 65, 17), (600, 400, 350)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cut_here", [True, False])
@pytest.mark.parametrize(("n", "k", "m"), SHAPES)
def test_products_are_torchs_own_whichever_way_they_are_divided(monkeypatch, n, k, m, cut_here, dtype):
    monkeypatch.setattr(products, "_CUT_HERE", cut_here)
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, width, generator=generator, dtype=dtype) for width in (k, m))
    weight, bias = torch.randn(k, m, generator=generator, dtype=dtype), torch.randn(m, generator=generator, dtype=dtype)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(products.row_product(x, weight), x @ weight, **tolerance)
    torch.testing.assert_close(products.row_product(x, weight, bias), x @ weight + bias, **tolerance)
    torch.testing.assert_close(products.column_product(x, y), x.T @ y, **tolerance)
    assert products.column_product(x, y).is_contiguous()
