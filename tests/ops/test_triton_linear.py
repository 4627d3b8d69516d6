import pytest
import torch

from pamc.ops.dispatch import is_narrow, narrow_product, preferring, relu_backward, relu_linear_backward, transposed

pytest.importorskip("triton", reason="triton is not installed")

from pamc.ops.triton import linear as triton_linear

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytestmark = [pytest.mark.usefixtures("poisoned"), pytest.mark.fast_variants(2)]


def problem(n_rows, n_columns, dtype):
    generator = torch.Generator().manual_seed(0)
    grad, output = (torch.randn(n_rows, n_columns, generator=generator, dtype=torch.float64) for _ in range(2))
    return grad.to(device=DEVICE, dtype=dtype), output.relu().to(device=DEVICE, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n_rows", "n_columns"), [(1, 1), (41, 129), (401, 33), (1271, 500)])
def test_kernels_and_torch_give_what_a_relu_gives(n_rows, n_columns, dtype):
    grad, output = problem(n_rows, n_columns, dtype)
    expected = grad.double() * (output > 0)
    for function in (relu_backward, triton_linear.relu_backward):
        through, sums = function(grad, output)
        assert torch.equal(through.double(), expected)
        torch.testing.assert_close(sums.double(), expected.sum(dim=0), rtol=1e-5, atol=1e-5)


def test_more_rows_than_parts_are_summed_in_turn(monkeypatch):
    monkeypatch.setattr(triton_linear, "_MOST_PARTS", 3)
    monkeypatch.setattr(triton_linear, "_PROGRAMS", 1)
    grad, output = problem(401, 20, torch.float64)
    _, sums = triton_linear.relu_backward(grad, output)
    torch.testing.assert_close(sums, (grad * (output > 0)).sum(dim=0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("n_rows", "depth", "n_columns"),
    [(1, 1, 1), (41, 10, 129), (401, 3, 33), pytest.param(401, 33, 200, marks=pytest.mark.slow)],
)
def test_all_that_a_narrow_layer_hands_down_is_one_pass(n_rows, depth, n_columns, dtype):
    _, output = problem(n_rows, n_columns, dtype)
    generator = torch.Generator().manual_seed(1)
    grad, weight = (
        torch.randn(shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)
        for shape in ((n_rows, depth), (depth, n_columns))
    )
    # What fills up a layer is zero, and a gradient may be a part of a wider table.
    filled = torch.nn.functional.pad(output, (0, -n_columns % 4))
    wide = torch.nn.functional.pad(grad, (0, 2), value=torch.nan)[:, :depth]
    exact, exact_output = grad.double(), filled.double()
    passed = torch.nn.functional.pad(exact @ weight.double(), (0, -n_columns % 4)) * (filled > 0)
    expected = (passed, passed.sum(dim=0), exact.T @ exact_output[:, :n_columns], exact.sum(dim=0))
    # On tensor cores factors have 10 bits.
    tolerance = 2**-9 if DEVICE == "cuda" else 1e-5
    for given in (grad, wide, grad.T.contiguous().T):
        for found, true in zip(relu_linear_backward(given, weight, filled), expected, strict=True):
            assert found.shape == true.shape
            assert (found.double() - true).norm() <= tolerance * true.norm()


def test_only_a_gpu_has_a_narrow_way():
    assert is_narrow(torch.zeros(3, 10, device=DEVICE)) is (DEVICE == "cuda")
    assert not is_narrow(torch.zeros(3, 100, device=DEVICE))


def test_where_kernels_are_preferred_they_are_taken():
    grad, output = problem(41, 33, torch.float32)
    with preferring("triton"):
        through, sums = relu_backward(grad, output)
        assert is_narrow(grad)
        assert not is_narrow(grad.double())
    torch.testing.assert_close(through, grad * (output > 0))
    torch.testing.assert_close(sums, through.sum(dim=0))


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
