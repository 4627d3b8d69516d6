"""Dense reference ⇐ ops in plain torch, in value and gradient."""

import math
import warnings

import pytest
import scipy.sparse as sp
import torch
from torch.autograd import gradcheck

from pamc.graph.positives import PositivePairs
from pamc.ops import reference
from pamc.ops.torch import clustering, positives, rows
from pamc.ops.torch.proxy import uniformity
from tests.awkward import awkward_case
from tests.tolerances import assert_gradient, assert_value

SHAPES = [(41, 1), (41, 10), (401, 33)]
DTYPES = [torch.float64, torch.float32]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def positive_gradient(z, pairs, tau, self_edges, weight):
    """Return the log masses and the gradient of their weighted sum, the rows at −∞ left out."""
    z = z.clone().requires_grad_()
    log_mass, _ = positives.positive_log_mass(rows.unit_rows(z), pairs, tau=tau, self_edges=self_edges)
    total = (weight * log_mass)[log_mass > -math.inf].sum()
    return log_mass, torch.autograd.grad(total, z)[0]


def assert_positives_are_the_reference(case, tau, self_edges, dtype):
    weight = torch.randn(len(case.z), generator=generator(), dtype=dtype)
    log_mass, gradient = positive_gradient(case.z, case.pairs, tau, self_edges, weight)
    z = case.z.double().requires_grad_()
    expected = reference.log_positive_mass(z, case.gamma, tau=tau, self_edges=self_edges)
    total = (weight * expected)[expected > -math.inf].sum()
    assert_value(log_mass, expected, dtype=dtype)
    assert_gradient(gradient, torch.autograd.grad(total, z)[0], dtype=dtype)


@pytest.mark.parametrize("self_edges", ["drop", "keep"])
@pytest.mark.parametrize("tau", [0.25, 1.0, 20.0, 100.0])
@pytest.mark.parametrize(("n_nodes", "n_dims"), SHAPES)
def test_positive_log_masses_are_those_of_the_reference(n_nodes, n_dims, tau, self_edges):
    case = awkward_case(n_nodes, n_dims)
    assert_positives_are_the_reference(case, tau, self_edges, torch.float64)


@pytest.mark.parametrize("self_edges", ["drop", "keep"])
@pytest.mark.parametrize(
    ("n_nodes", "n_dims", "tau"),
    # In one dimension the gradient is 0, and its rounding grows with tau.
    [(n, d, tau) for n, d in SHAPES for tau in (0.25, 1.0, 20.0) if d > 1 or tau <= 1],
)
def test_positive_log_masses_in_float32_are_those_of_the_reference(n_nodes, n_dims, tau, self_edges):
    case = awkward_case(n_nodes, n_dims, dtype=torch.float32)
    assert_positives_are_the_reference(case, tau, self_edges, torch.float32)


@pytest.mark.parametrize("size", [1, 7, 100])
def test_cutting_the_pairs_into_blocks_changes_nothing(monkeypatch, size):
    case = awkward_case(401, 10)
    weight = torch.randn(401, generator=generator(), dtype=torch.float64)
    whole = positive_gradient(case.z, case.pairs, 0.5, "keep", weight)
    monkeypatch.setattr(positives, "_PAIRS_PER_BLOCK", {"cpu": size})
    cut = positive_gradient(case.z, case.pairs, 0.5, "keep", weight)
    assert torch.equal(cut[0], whole[0])
    assert torch.equal(cut[1], whole[1])


def test_blocks_cover_all_rows_once_in_order_even_when_one_row_exceeds_a_block(monkeypatch):
    monkeypatch.setattr(positives, "_PAIRS_PER_BLOCK", {"cpu": 4})
    star = torch.stack([torch.zeros(20, dtype=torch.int64), torch.arange(1, 21)])
    pairs = PositivePairs.from_edges(star, n_nodes=23)
    blocks = list(positives._row_blocks(pairs))
    assert len(blocks) > 3
    assert [i for block in blocks for i in range(block.rows.start, block.rows.stop)] == list(range(23))
    assert [e for block in blocks for e in range(block.entries.start, block.entries.stop)] == list(range(40))


def test_masses_pass_gradcheck():
    case = awkward_case(9, 3)
    pairs = case.pairs
    unit = rows.unit_rows(case.z)

    def masses(unit):
        log_mass, _ = positives.positive_log_mass(unit, pairs, tau=2.0, self_edges="keep")
        return log_mass[log_mass > -math.inf]

    assert gradcheck(masses, unit.requires_grad_())


def test_a_node_without_positives_has_log_mass_minus_infinity_and_sends_no_gradient():
    pairs = PositivePairs.from_edges(torch.tensor([[0], [1]]), n_nodes=3, dtype=torch.float64)
    unit = torch.eye(3, dtype=torch.float64, requires_grad=True)
    log_mass, _ = positives.positive_log_mass(unit, pairs, tau=1.0, self_edges="drop")
    assert log_mass.tolist() == [0, -math.inf, -math.inf]
    gradient = torch.autograd.grad(log_mass[1:].sum(), unit)[0]
    assert gradient.abs().max() < 1e-30


def test_without_any_pair_only_kept_self_edges_have_mass():
    pairs = PositivePairs.from_edges(torch.tensor([[1], [1]]), torch.tensor([3.0]), n_nodes=2)
    unit = torch.eye(2, requires_grad=True)
    log_mass, alignment = positives.positive_log_mass(unit, pairs, tau=1.0, self_edges="drop")
    assert log_mass.tolist() == [-math.inf, -math.inf]
    assert alignment == 0
    log_mass, alignment = positives.positive_log_mass(unit, pairs, tau=1.0, self_edges="keep")
    assert log_mass.tolist() == [-math.inf, pytest.approx(math.log(3))]
    assert torch.autograd.grad(log_mass[1], unit)[0].tolist() == [[0, 0], [0, 0]]
    assert alignment == 0


def test_the_alignment_is_the_weighted_mean_square_distance_of_the_pairs_and_has_no_gradient():
    case = awkward_case(41, 5)
    unit = rows.unit_rows(case.z).requires_grad_()
    _, alignment = positives.positive_log_mass(unit, case.pairs, tau=1.0, self_edges="keep")
    total, weights = 0.0, 0.0
    for (i, j), weight in zip(case.edges.T.tolist(), case.weight.tolist(), strict=True):
        if i != j:
            total += weight * float(2 - 2 * (unit[i] @ unit[j]).detach())
            weights += weight
    assert_value(alignment, total / weights)
    assert not alignment.requires_grad


def test_weights_far_apart_in_scale_neither_overflow_nor_vanish():
    edges = torch.tensor([[0, 0, 1, 2], [1, 2, 2, 0]])
    weight = torch.tensor([1e-300, 1e300, 1e-300, 1.0], dtype=torch.float64)
    pairs = PositivePairs.from_edges(edges, weight, n_nodes=3, dtype=torch.float64)
    unit = rows.unit_rows(torch.randn(3, 4, generator=generator(), dtype=torch.float64)).requires_grad_()
    log_mass, _ = positives.positive_log_mass(unit, pairs, tau=1.0, self_edges="drop")
    assert_value(log_mass[1], unit[1] @ unit[2] + math.log(1e-300))
    assert torch.autograd.grad(log_mass.sum(), unit)[0].isfinite().all()


def test_the_gradient_of_the_positives_cannot_be_differentiated_again():
    case = awkward_case(9, 3)
    unit = rows.unit_rows(case.z).requires_grad_()
    log_mass, _ = positives.positive_log_mass(unit, case.pairs, tau=1.0, self_edges="drop")
    (gradient,) = torch.autograd.grad(log_mass[4:].square().sum(), unit, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("dtype", DTYPES)
def test_unit_rows_have_length_one_and_zero_rows_stay_zero_with_gradient_zero(dtype):
    case = awkward_case(41, 10, dtype=dtype)
    z = case.z.clone().requires_grad_()
    unit = rows.unit_rows(z)
    assert_value(unit.norm(dim=1), torch.arange(41) != 1, dtype=dtype)
    gradient = torch.autograd.grad(unit.sum(), z)[0]
    assert gradient[1].tolist() == [0] * 10
    assert gradient[2].abs().max() > 0
    assert gradcheck(rows.unit_rows, case.z.double()[2:6].requires_grad_())


def test_a_nan_stays_a_nan():
    z = torch.tensor([[math.nan, 1.0], [1.0, 0.0]])
    assert rows.unit_rows(z)[0].isnan().any()
    pairs = PositivePairs.from_edges(torch.tensor([[0], [1]]), n_nodes=2)
    log_mass, alignment = positives.positive_log_mass(rows.unit_rows(z), pairs, tau=1.0, self_edges="drop")
    assert log_mass[0].isnan()
    assert alignment.isnan()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n_nodes", "n_clusters"), [(41, 1), (401, 7), (2500, 3)])
def test_cluster_sums_of_labels_are_those_of_the_reference(n_nodes, n_clusters, dtype):
    case = awkward_case(n_nodes, 5, n_clusters, dtype=dtype)
    z = case.z.clone().requires_grad_()
    sums, mass = clustering.cluster_sums(z, case.labels, n_clusters)
    expected = n_nodes * reference.meta_nodes(case.z, case.labels, n_clusters=n_clusters)
    assert_value(sums, expected, dtype=dtype)
    assert mass.tolist() == [int((case.labels == c).sum()) for c in range(n_clusters)]
    assert mass.dtype == dtype
    weight = torch.randn(n_clusters, 5, generator=generator(), dtype=dtype)
    gradient = torch.autograd.grad((sums * weight).sum(), z)[0]
    assert torch.equal(gradient, weight[case.labels])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n_nodes", "n_clusters"), [(41, 1), (401, 7), (70_000, 3)])
def test_cluster_sums_of_a_soft_assignment_are_those_of_the_reference(n_nodes, n_clusters, dtype):
    case = awkward_case(n_nodes if n_nodes < 1000 else 401, 5, n_clusters, dtype=dtype)
    repeats = -(-n_nodes // len(case.z))
    z = case.z.repeat(repeats, 1)[:n_nodes].requires_grad_()
    soft = case.soft.repeat(repeats, 1)[:n_nodes].requires_grad_()
    sums, mass = clustering.cluster_sums(z, soft, n_clusters)
    assert_value(sums / n_nodes, reference.meta_nodes(z, soft), dtype=dtype)
    assert_value(mass / n_nodes, soft.double().mean(dim=0), dtype=dtype)
    assert not mass.requires_grad
    weight = torch.randn(n_clusters, 5, generator=generator(), dtype=dtype)
    to_z, to_soft = torch.autograd.grad((sums * weight).sum(), (z, soft))
    assert_gradient(to_z, soft.double() @ weight.double(), dtype=dtype)
    assert_gradient(to_soft, z.double() @ weight.double().T, dtype=dtype)


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_squared_distances_are_exact_whatever_the_common_offset(dtype, offset):
    # Multiples of 1/4 are exact at either offset.
    x, y = ((torch.randn(n, 5, generator=generator(n)) * 4).round().div(4).add(offset).to(dtype) for n in (401, 7))
    x[3] = y[2]
    x.requires_grad_(), y.requires_grad_()
    squared = clustering.squared_distances(x, y)
    exact_x, exact_y = (t.detach().double().requires_grad_() for t in (x, y))
    exact = (exact_x[:, None] - exact_y).square().sum(dim=2)
    assert_value(squared, exact, dtype=dtype)
    assert squared.min() >= 0
    weight = torch.randn(401, 7, generator=generator(), dtype=torch.float64)
    actual = torch.autograd.grad((squared * weight.to(dtype)).sum(), (x, y))
    expected = torch.autograd.grad((exact * weight).sum(), (exact_x, exact_y))
    for one, other in zip(actual, expected, strict=True):
        assert_gradient(one, other, dtype=dtype)


@pytest.mark.parametrize("n_rows", [1, 63, 64, 65, 1000, 70_000])
def test_a_row_product_is_the_matrix_product(n_rows):
    x = torch.randn(n_rows, 3, generator=generator(), dtype=torch.float64)
    weight = torch.randn(3, 4, generator=generator(1), dtype=torch.float64)
    assert_value(rows.row_product(x, weight), x @ weight)


@pytest.mark.parametrize("shape", [(0,), (1,), (1024,), (1025,), (700, 3), (1_100_000,)])
def test_an_ordered_sum_is_the_sum_with_a_gradient_of_ones(shape):
    x = torch.randn(shape, generator=generator(), dtype=torch.float64, requires_grad=True)
    total = rows.ordered_sum(x)
    values = x.detach().ravel().tolist()
    assert abs(total.item() - math.fsum(values)) <= 1e-12 * max(1, math.fsum(map(abs, values)))
    assert torch.equal(torch.autograd.grad(total, x)[0], torch.ones(shape, dtype=torch.float64))


@pytest.mark.parametrize("n_rows", [0, 1, 1024, 5000])
def test_column_sums_are_the_sums_of_the_columns(n_rows):
    x = torch.randn(n_rows, 3, generator=generator(), dtype=torch.float64)
    assert_value(rows.column_sums(x), x.sum(dim=0))


def test_a_scipy_matrix_becomes_a_csr_tensor_with_memory_of_its_own():
    matrix = sp.random(5, 4, density=0.5, format="csr", random_state=0)
    tensor = rows.csr_tensor(matrix, device=torch.device("cpu"), dtype=torch.float64)
    assert tensor.layout == torch.sparse_csr
    expected = torch.from_numpy(matrix.toarray())
    matrix.data[:] = 0
    assert torch.equal(tensor.to_dense(), expected)


def test_torch_does_not_speak_of_beta_states_and_other_warnings_are_untouched():
    case = awkward_case(9, 3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        positives.positive_log_mass(rows.unit_rows(case.z), case.pairs, tau=1.0, self_edges="drop")
        warnings.warn("Sparse CSR tensor support is in beta elsewhere", UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in caught] == ["Sparse CSR tensor support is in beta elsewhere"]


def test_arguments_are_not_modified():
    case = awkward_case(41, 5)
    pairs = case.pairs
    unit = rows.unit_rows(case.z).requires_grad_()
    tensors = [unit, pairs.indptr, pairs.indices, pairs.log_weight, pairs.log_weight_t, pairs.log_self_weight]
    before = [tensor.detach().clone() for tensor in tensors]
    log_mass, _ = positives.positive_log_mass(unit, pairs, tau=1.0, self_edges="keep")
    first = torch.autograd.grad(log_mass[4:].sum(), unit, retain_graph=True)[0]
    assert torch.equal(torch.autograd.grad(log_mass[4:].sum(), unit)[0], first)
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))


def test_products_and_sums_elsewhere_are_left_to_torch():
    x, y = torch.empty(7, 3, device="meta"), torch.empty(7, 2, device="meta")
    assert rows.row_product(x, torch.empty(3, 5, device="meta")).shape == (7, 5)
    assert rows.gram(x, y).shape == (3, 2)
    assert rows.column_sums(x).shape == (3,)
    assert rows.ordered_sum(x).shape == ()


def test_uniformity_agrees_with_plain_loops():
    z = torch.randn(14, 3, dtype=torch.float64, generator=generator())
    unit = torch.nn.functional.normalize(z[::2])
    apart = [float((unit[i] - unit[j]).square().sum()) for i in range(7) for j in range(7) if i != j]
    mean = sum(math.exp(-2 * squared) for squared in apart) / len(apart)
    assert float(uniformity(z, step=2, n_rows=7)) == pytest.approx(math.log(mean), rel=1e-12)


def test_uniformity_is_zero_for_equal_rows_and_falls_as_they_spread():
    assert float(uniformity(torch.ones(5, 1), step=1, n_rows=5)) == pytest.approx(0.0, abs=1e-6)
    spread = torch.nn.functional.normalize(torch.randn(50, 4, dtype=torch.float64, generator=generator()))
    assert float(uniformity(spread, step=1, n_rows=50)) < float(uniformity(spread + 2, step=1, n_rows=50)) < 0


def test_uniformity_of_one_row_is_zero():
    value = uniformity(torch.ones(1, 3), step=1, n_rows=1)
    assert (value.shape, value.dtype, float(value)) == ((), torch.float32, 0.0)
