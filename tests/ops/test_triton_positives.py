"""Dense reference ⇐ fused kernels, in value and gradient: on a GPU where there is one, else in Triton's interpreter."""

import math
from types import SimpleNamespace

import pytest
import torch

from pamc import pamc_loss
from pamc.graph.positives import PositivePairs
from pamc.ops import reference
from pamc.ops.dispatch import BACKENDS
from pamc.ops.torch import positives as plain
from pamc.ops.torch.rows import unit_rows
from tests.awkward import awkward_case, spelled_out
from tests.tolerances import assert_gradient, assert_value

pytest.importorskip("triton", reason="triton is not installed")

from pamc.ops.triton import positives
from pamc.ops.triton.rows import Shape

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

pytestmark = [pytest.mark.usefixtures("poisoned"), pytest.mark.fast_variants(1)]


def assert_is_the_reference(z, gamma, pairs, *, tau=0.7, self_edges="drop"):
    dtype = z.dtype
    weight = torch.randn(len(z), generator=torch.Generator().manual_seed(1), dtype=dtype)
    own = z.to(DEVICE).requires_grad_()
    log_mass, alignment = positives.positive_log_mass(own, pairs.to(device=DEVICE), tau=tau, self_edges=self_edges)
    total = (weight.to(DEVICE) * log_mass)[log_mass > -math.inf].sum()
    (gradient,) = torch.autograd.grad(total, own)
    exact = z.double().requires_grad_()
    expected = reference.log_positive_mass(exact, gamma, tau=tau, self_edges=self_edges)
    assert_value(log_mass.cpu(), expected, dtype=dtype)
    (expected_gradient,) = torch.autograd.grad((weight * expected)[expected > -math.inf].sum(), exact)
    assert_gradient(gradient.cpu(), expected_gradient, dtype=dtype)
    _, expected_alignment = plain.positive_log_mass(unit_rows(z), pairs, tau=tau, self_edges=self_edges)
    assert_value(alignment.cpu(), expected_alignment.double(), dtype=dtype)


@pytest.mark.parametrize("self_edges", ["drop", pytest.param("keep", marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_dims", [1, 3, 8, 10, 17, 64])
def test_masses_and_gradients_are_those_of_the_reference(n_dims, dtype, self_edges):
    case = awkward_case(41, n_dims, dtype=dtype)
    assert_is_the_reference(case.z, case.gamma, case.pairs, self_edges=self_edges)


@pytest.mark.parametrize("tau", [0.01, 20.0, 100.0])
def test_no_tau_overflows(tau):
    case = awkward_case(41, 10)
    assert_is_the_reference(case.z, case.gamma, case.pairs, tau=tau)


@pytest.mark.parametrize("self_edges", ["drop", "keep"])
@pytest.mark.parametrize(
    "piece", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), 7, 4096]
)
def test_long_rows_are_cut_and_put_together(piece, self_edges, monkeypatch):
    monkeypatch.setattr(positives, "PIECE", piece)
    case = awkward_case(41, 5)
    assert_is_the_reference(case.z, case.gamma, case.pairs, self_edges=self_edges)


def test_the_pieces_of_a_hub_cover_it_once(monkeypatch):
    monkeypatch.setattr(positives, "PIECE", 8)
    hub = torch.stack([torch.zeros(29, dtype=torch.int64), torch.arange(1, 30)])
    pieces = positives.pieces_of(PositivePairs.from_edges(hub, n_nodes=31), 8)
    assert pieces.long_row.tolist() == [0]
    assert pieces.piece_row.tolist() == [0, 0, 0, 0]
    assert pieces.piece_begin.tolist() == [0, 8, 16, 24]
    assert pieces.first_piece.tolist() == [0, 4]


@pytest.mark.parametrize("n_dims", [*(pytest.param(n, marks=pytest.mark.slow) for n in (3, 5)), 10, 16])
@pytest.mark.parametrize(
    ("rows", "longest"),
    [pytest.param(2, 64, marks=pytest.mark.slow), (4, 2), pytest.param(4, 64, marks=pytest.mark.slow)],
)
def test_several_rows_side_by_side(rows, longest, n_dims, monkeypatch):
    monkeypatch.setattr(positives, "_MANY_PROGRAMS", 41 // rows)
    monkeypatch.setattr(positives, "_LONGEST_SIDE_BY_SIDE", longest)
    case = awkward_case(41, n_dims, dtype=torch.float32)
    shape = Shape.of(case.z)
    assert (positives.side_by_side(shape, case.pairs), positives.longest_row(shape, case.pairs)) == (rows, longest)
    assert_is_the_reference(case.z, case.gamma, case.pairs)


def test_few_programs_and_rows_of_many_pairs_are_taken_one_by_one():
    narrow, wide = Shape.of(torch.zeros(1, 10)), Shape.of(torch.zeros(1, 64))
    found = [
        positives.side_by_side(shape, counted_pairs(*sizes)) for sizes in TALL_AND_SMALL for shape in (narrow, wide)
    ]
    assert found == [4, 1, 2, 1, 1, 1, 1, 1]
    assert positives.longest_row(narrow, counted_pairs(10**6, 21 * 10**6)) == 64
    assert positives.longest_row(narrow, counted_pairs(9298, 139 * 9298)) == positives.PIECE


TALL_AND_SMALL = [(10**6, 21 * 10**6), (20_000, 10**5), (10**6, 10**8), (9298, 139 * 9298)]


def counted_pairs(n_nodes, n_pairs):
    return SimpleNamespace(n_nodes=n_nodes, n_pairs=n_pairs)


@pytest.mark.parametrize("n_dims", [*(pytest.param(n, marks=pytest.mark.slow) for n in (5, 9, 20, 40)), 10])
def test_packed_rows_take_fewer_words_and_are_as_exact_as_float32(n_dims):
    case = awkward_case(41, n_dims, dtype=torch.float32)
    shape = Shape.of(case.z)
    assert shape.packed
    assert shape.stride < n_dims
    assert shape.empty(case.z).dtype == torch.int32
    found = positives_of(case.z, case.pairs)
    exact = positives_of(case.z.double(), case.pairs.to(dtype=torch.float64))
    for a, b in zip(found, exact, strict=True):
        assert float((a.double() - b).norm() / b.norm()) < 5e-7


@pytest.mark.parametrize("n_dims", [10, pytest.param(64, marks=pytest.mark.slow)])
def test_the_longest_numbers_of_a_row_fit(n_dims):
    case = awkward_case(41, n_dims, dtype=torch.float32)
    along = torch.zeros_like(case.z)
    along[torch.arange(41), torch.arange(41) % n_dims] = torch.where(torch.arange(41) % 2 == 0, 3.0, -1e-3)
    assert_is_the_reference(along, case.gamma, case.pairs)


@pytest.mark.parametrize("n_dims", [10, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_what_is_no_number_stays_none(wrong, n_dims):
    case = awkward_case(41, n_dims, dtype=torch.float32)
    row = int(case.pairs.indptr.diff().argmax())
    case.z[row, 2] = wrong
    log_mass, _, gradient = positives_of(case.z, case.pairs)
    assert log_mass[row].isnan()
    assert gradient[row].isnan().any()


def positives_of(z, pairs):
    """Return what the kernels make of rows: finite log masses or NaN, alignment, gradient, on the host."""
    own = z.to(DEVICE).requires_grad_()
    log_mass, alignment = positives.positive_log_mass(own, pairs.to(device=DEVICE), tau=0.7, self_edges="drop")
    log_mass = torch.where(log_mass == -math.inf, 0.0, log_mass)
    return log_mass.detach().cpu(), alignment.cpu(), torch.autograd.grad(log_mass.sum(), own)[0].cpu()


@pytest.mark.slow
def test_columns_beyond_32_bits_are_kept_in_64(monkeypatch):
    monkeypatch.setattr(positives, "_MOST_NODES_IN_32_BITS", 40)
    case = awkward_case(41, 10)
    assert positives.layout_of(case.pairs, False).indices.dtype == torch.int64
    assert_is_the_reference(case.z, case.gamma, case.pairs)


def test_the_layout_is_made_once_for_each_pairs():
    pairs = awkward_case(41, 3).pairs
    assert positives.layout_of(pairs, False) is positives.layout_of(pairs, False)
    assert positives.pieces_of(pairs, 3) is positives.pieces_of(pairs, 3)


@pytest.mark.slow
def test_rows_in_bfloat16_are_summed_in_float32():
    case = awkward_case(41, 10, dtype=torch.float32)
    # Four entries of ±1 have length 2: the unit rows are exact in bfloat16.
    chosen = case.z.abs().topk(4, dim=1).indices
    rows = torch.zeros_like(case.z).scatter(1, chosen, case.z.gather(1, chosen).sign())
    results = []
    for z in (rows.bfloat16(), rows):
        own = z.to(DEVICE).requires_grad_()
        log_mass, _ = positives.positive_log_mass(own, case.pairs.to(device=DEVICE), tau=0.7, self_edges="drop")
        log_mass[log_mass > -math.inf].sum().backward()
        results.append((log_mass.detach(), own.grad))
    (half, half_gradient), (full, full_gradient) = results
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, full)
    torch.testing.assert_close(half_gradient, full_gradient.bfloat16())


@pytest.mark.parametrize("self_edges", ["drop", "keep"])
@pytest.mark.parametrize("piece", [3, 1024])
def test_even_pairs_need_no_weights(piece, self_edges, monkeypatch):
    monkeypatch.setattr(positives, "PIECE", piece)
    indptr = torch.tensor([0, 5, 7, 9, 11, 13, 14, 14])
    indices = torch.tensor([1, 2, 3, 4, 5, 0, 2, 0, 1, 0, 4, 0, 3, 0], dtype=torch.int32)
    even = PositivePairs.even(indptr.to(DEVICE), indices.to(DEVICE), dtype=torch.float64)
    z = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(DEVICE)
    found = []
    fused = positives.positive_log_mass
    for pairs, function in ((even, fused), (spelled_out(even), fused), (even, by_torch)):
        own = z.clone().requires_grad_()
        log_mass, alignment = function(own, pairs, tau=0.7, self_edges=self_edges)
        kept = log_mass[log_mass.isfinite()]
        found.append((kept.detach(), alignment, torch.autograd.grad(kept.sum(), own)[0]))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)
    assert positives.layout_of(even, False).weight.numel() == 1


def by_torch(z, pairs, **options):
    return plain.positive_log_mass(unit_rows(z), pairs, **options)


def test_a_zero_row_has_cosine_and_gradient_zero():
    case = awkward_case(41, 10)
    own = case.z.to(DEVICE).requires_grad_()
    log_mass, _ = positives.positive_log_mass(own, case.pairs.to(device=DEVICE), tau=0.7, self_edges="drop")
    assert log_mass[1].item() == pytest.approx(math.log(case.gamma[1].sum()), rel=1e-12)
    log_mass[log_mass > -math.inf].sum().backward()
    assert not own.grad[1].any()


def test_nothing_is_kept_per_pair():
    case = awkward_case(41, 10)
    kept = []

    def keep(tensor):
        kept.append(tensor.numel())
        return tensor

    own = case.z.to(DEVICE).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        positives.positive_log_mass(own, case.pairs.to(device=DEVICE), tau=1.0, self_edges="drop")
    assert max(kept) == 41 * 10


def test_the_loss_takes_it_by_name():
    case = awkward_case(41, 10)
    labels = torch.arange(41, device=DEVICE) % 3
    values = [
        pamc_loss(case.z.to(DEVICE), case.pairs.to(device=DEVICE), labels, backend=name).item()
        for name in ("triton", "torch", "reference")
    ]
    assert values[0] == pytest.approx(values[2], rel=1e-12)
    assert values[1] == pytest.approx(values[2], rel=1e-12)


def test_it_says_what_it_needs(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert BACKENDS["triton"].why_unavailable(torch.device("cpu")) == "its kernels need a CUDA GPU"
    assert BACKENDS["triton"].why_unavailable(torch.device("cuda")) is None
    monkeypatch.setattr("pamc.ops.dispatch._has_compiler", lambda: False)
    assert "C compiler" in BACKENDS["triton"].why_unavailable(torch.device("cuda"))
    monkeypatch.setattr("pamc.ops.dispatch.find_spec", lambda name: None)
    assert BACKENDS["triton"].why_unavailable(torch.device("cuda")) == "the package triton is not installed"
