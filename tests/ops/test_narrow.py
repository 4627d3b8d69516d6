import pytest
import torch

from pamc.ops.dispatch import preferring
from pamc.ops.narrow import narrow_product, transposed

pytest.importorskip("triton", reason="triton is not installed")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytestmark = pytest.mark.usefixtures("poisoned")


@pytest.mark.parametrize(
    ("n_rows", "n_in", "n_out"), [(1, 1, 1), (41, 129, 10), (401, 33, 3), (77, 500, 33), (33, 12, 64)]
)
def test_a_narrow_product_is_torchs_own(n_rows, n_in, n_out):
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(shape, generator=generator).to(DEVICE) for shape in ((n_rows, n_in), (n_out, n_in), (n_out,))
    )
    filled = torch.nn.functional.pad(x, (0, -n_in % 4), value=torch.nan)
    expected = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
    # On tensor cores factors have 10 bits.
    tolerance = 2**-9 if DEVICE == "cuda" else 1e-5
    for rows, weights in ((x, weight), (filled, weight), (x.T.contiguous().T, weight.T.contiguous().T)):
        found = narrow_product(rows, weights, bias)
        assert found.is_contiguous()
        assert (found.double() - expected).norm() <= tolerance * expected.norm()


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("n_rows", "n_columns"), [(1, 1), (41, 129), (64, 32), (3, 200)])
def test_a_transposed_copy_has_whole_rows(n_rows, n_columns, dtype, backend):
    x = torch.randn(n_rows, n_columns, generator=torch.Generator().manual_seed(0)).to(DEVICE, dtype)
    with preferring(backend):
        for other in (x, x.T.contiguous().T):
            found = transposed(other)
            assert found.is_contiguous()
            assert torch.equal(found, x.T)
