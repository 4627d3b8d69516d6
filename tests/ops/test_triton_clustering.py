"""Dense reference ⇐ fused kernels, in value and gradient: on a GPU where there is one, else in Triton's interpreter."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from pamc.config import FitConfig
from pamc.models.layers import MLP
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.ops import reference
from pamc.ops.dispatch import preferring, with_changes
from pamc.ops.torch import clustering as plain
from pamc.ops.torch.clustering import soft_self_training
from pamc.runtime import generator
from tests.awkward import awkward_case
from tests.tolerances import TOLERANCE, assert_gradient, assert_value

pytest.importorskip("triton", reason="triton is not installed")

from pamc.ops.triton import clustering as triton_clustering
from pamc.ops.triton.clustering import cluster_sums, self_training

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

pytestmark = [pytest.mark.usefixtures("poisoned"), pytest.mark.fast_variants(1)]
SHAPES = [(1, 1, 1), (1, 3, 7), (41, 3, 1), (41, 33, 2), (41, 10, 40), (401, 10, 7), (401, 1, 16), (1271, 64, 2)]


def problem(n_nodes, n_dims, n_clusters, dtype=torch.float64):
    order = torch.Generator().manual_seed(0)
    centers = torch.randn(n_clusters, n_dims, generator=order, dtype=torch.float64) * 2
    z = torch.randn(n_nodes, n_dims, generator=order, dtype=torch.float64) + centers[torch.arange(n_nodes) % n_clusters]
    return z.to(dtype), centers.to(dtype)


def by_reference(z, centers, eta):
    z, centers = (x.double().requires_grad_() for x in (z, centers))
    q = reference.soft_assignment(z, centers, eta=eta)
    kl = reference.kl_divergence(reference.target_distribution(q.detach()), q)
    return kl, q.argmax(dim=1), torch.autograd.grad(kl, (z, centers))


def by_kernels(z, centers, eta):
    z, centers = (x.to(DEVICE).requires_grad_() for x in (z, centers))
    kl, labels = self_training(z, centers, eta=eta)
    assert not labels.requires_grad
    gradients = torch.autograd.grad(3 * kl, (z, centers))
    return kl.detach().cpu(), labels.cpu(), [gradient.cpu() for gradient in gradients]


def assert_is_the_reference(z, centers, *, eta=1.0):
    kl, labels, gradients = by_kernels(z, centers, eta)
    expected, expected_labels, expected_gradients = by_reference(z, centers, eta)
    assert_value(kl, expected, dtype=z.dtype)
    assert torch.equal(labels, expected_labels)
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        assert gradient.dtype == z.dtype
        assert_gradient(gradient, 3 * other, dtype=z.dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n_nodes", "n_dims", "n_clusters"), SHAPES)
def test_divergence_labels_and_gradients_are_those_of_the_reference(n_nodes, n_dims, n_clusters, dtype):
    assert_is_the_reference(*problem(n_nodes, n_dims, n_clusters, dtype))


@pytest.mark.parametrize("eta", [0.5, 3.0, 100.0])
def test_every_eta_is_that_of_the_reference(eta):
    assert_is_the_reference(*problem(41, 3, 7), eta=eta)


def test_a_center_without_rows_a_row_on_a_center_and_zero_rows():
    z, centers = problem(41, 10, 7)
    centers[3] += 1e4
    z[4], z[5:7] = centers[2], 0
    assert 3 not in by_kernels(z, centers, 1.0)[1]
    assert_is_the_reference(z, centers)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_center_whose_frequency_underflows_has_no_share(dtype):
    z, centers = problem(41, 3, 4, dtype)
    centers[1] = 1e10
    kl, labels, gradients = by_kernels(z, centers, 100.0)
    others = [0, 2, 3]
    expected, expected_labels, expected_gradients = by_reference(z, centers[others], 100.0)
    assert_value(kl, expected, dtype=dtype)
    assert torch.equal(labels, torch.tensor(others)[expected_labels])
    assert_gradient(gradients[0], 3 * expected_gradients[0], dtype=dtype)
    assert not gradients[1][1].any()


def test_rows_far_from_every_center_have_finite_gradients():
    z, centers = problem(41, 2, 3, torch.float32)
    z[0] = 1e15
    kl, _, gradients = by_kernels(z, centers, 1.0)
    assert kl.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_an_offset_costs_no_precision():
    z, centers = problem(41, 3, 4)
    assert_is_the_reference(z + 1e5, centers + 1e5)


def test_of_equally_near_centers_the_first_is_taken():
    z, centers = problem(41, 3, 4)
    _, labels, _ = by_kernels(z, centers[[0, 1, 1, 0]], 1.0)
    assert set(labels.tolist()) == {0, 1}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_rows_that_are_no_numbers_have_labels_that_exist():
    z, centers = problem(41, 3, 7)
    z[2] = math.nan
    kl, labels, _ = by_kernels(z, centers, 1.0)
    assert kl.isnan()
    assert 0 <= labels.min() <= labels.max() < 7


def test_rows_in_bfloat16_are_computed_with_in_float32():
    z, centers = problem(41, 10, 7, torch.bfloat16)
    kl, labels, gradients = by_kernels(z, centers, 1.0)
    full, full_labels, full_gradients = by_kernels(z.float(), centers.float(), 1.0)
    assert kl.dtype == torch.float32
    assert kl == full
    assert torch.equal(labels, full_labels)
    for gradient, other in zip(gradients, full_gradients, strict=True):
        torch.testing.assert_close(gradient, other.bfloat16())


def test_the_gradient_passes_gradcheck_where_the_target_does_not_move():
    # With one cluster p = q = 1 whatever z is; the target of more moves with z, and is a constant by definition.
    z, centers = (x.to(DEVICE).requires_grad_() for x in problem(4, 2, 1))
    assert gradcheck(lambda z, centers: self_training(z, centers, eta=1.0)[0], (z, centers))


def test_rows_that_are_not_contiguous_are_taken_as_they_are():
    z, centers = problem(41, 10, 7)
    kl, _ = self_training(z.to(DEVICE).T.contiguous().T, centers.to(DEVICE).T.contiguous().T, eta=1.0)
    assert kl.item() == by_kernels(z, centers, 1.0)[0]


def test_nothing_is_kept_but_one_number_per_row_and_cluster():
    z, centers = (x.to(DEVICE).requires_grad_() for x in problem(401, 3, 7))
    kept = []

    def keep(tensor):
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        self_training(z, centers, eta=1.0)
    assert sorted(kept) == [7 * 3, 401 * 3, 401 * 7]


@pytest.mark.parametrize("most_parts", [1, 3])
def test_programs_that_take_several_tiles_add_them_up(most_parts, monkeypatch):
    monkeypatch.setattr(triton_clustering, "_MOST_PARTS", most_parts)
    z, centers = problem(401, 10, 7)
    assert triton_clustering._shares(z, 7)[0] == most_parts
    assert_is_the_reference(z, centers)
    labels = torch.arange(401) % 5
    assert_value(cluster_sums(z.to(DEVICE), labels.to(DEVICE), 7)[0].cpu(), plain.cluster_sums(z, labels, 7)[0])


@pytest.mark.parametrize(
    ("n_rows", "n_dims", "n_clusters"), [(1, 1, 1), (41, 3, 300), (10**6, 20, 1000), (77, 2000, 5)]
)
def test_the_sums_of_programs_take_no_more_memory_than_z_and_every_row_has_a_program(n_rows, n_dims, n_clusters):
    z = torch.empty(1, 1).expand(n_rows, n_dims)
    n_programs, n_tiles, constants = triton_clustering._shares(z, n_clusters)
    assert n_programs == 1 or n_programs * n_clusters <= n_rows
    n_covered = n_programs * n_tiles * constants["ROWS"]
    assert n_rows <= n_covered < n_rows + n_tiles * constants["ROWS"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n_nodes", "n_dims", "n_clusters"), SHAPES)
def test_cluster_sums_are_those_of_the_reference(n_nodes, n_dims, n_clusters, dtype):
    z, _ = problem(n_nodes, n_dims, n_clusters, dtype)
    # Beyond two clusters the second is empty.
    labels = torch.arange(n_nodes) % n_clusters
    labels[(labels == 1) & torch.tensor(n_clusters > 2)] = 0
    own, exact = z.to(DEVICE).requires_grad_(), z.double().requires_grad_()
    sums, mass = cluster_sums(own, labels.to(DEVICE), n_clusters)
    expected = n_nodes * reference.meta_nodes(exact, labels, n_clusters=n_clusters)
    assert sums.dtype == mass.dtype == dtype
    assert not mass.requires_grad
    # Relative to the size of what is added up: the sums themselves may cancel.
    size = n_nodes * reference.meta_nodes(z.abs(), labels, n_clusters=n_clusters)
    assert ((sums.cpu() - expected).abs() <= TOLERANCE[dtype] * size.clamp(min=1)).all()
    assert torch.equal(mass.cpu(), torch.bincount(labels, minlength=n_clusters).to(dtype))
    weight = torch.randn(n_clusters, n_dims, generator=torch.Generator().manual_seed(1), dtype=dtype)
    (gradient,) = torch.autograd.grad((weight.to(DEVICE) * sums).sum(), own)
    (expected_gradient,) = torch.autograd.grad((weight * expected).sum(), exact)
    assert_gradient(gradient.cpu(), expected_gradient, dtype=dtype)


def test_cluster_sums_pass_gradcheck():
    z, _ = problem(7, 3, 2)
    labels = torch.tensor([0, 1, 1, 3, 0, 0, 3], device=DEVICE)
    assert gradcheck(lambda z: cluster_sums(z, labels, 4)[0], z.to(DEVICE).requires_grad_())


def test_soft_assignments_and_very_many_clusters_are_left_to_torch(monkeypatch):
    case = awkward_case(41, 3)
    soft = cluster_sums(case.z, case.soft, 7)
    assert torch.equal(soft[0], plain.cluster_sums(case.z, case.soft, 7)[0])
    monkeypatch.setattr(triton_clustering, "MOST_CLUSTERS_SUMMED", 6)
    monkeypatch.setattr(triton_clustering._ClusterSums, "apply", None)
    hard = cluster_sums(case.z, case.labels, 7)
    assert torch.equal(hard[0], plain.cluster_sums(case.z, case.labels, 7)[0])


def test_bits_repeat():
    z, centers = problem(401, 10, 7, torch.float32)
    first, second = (by_kernels(z, centers, 1.0) for _ in range(2))
    assert first[0] == second[0]
    assert all(torch.equal(one, other) for one, other in zip(first[2], second[2], strict=True))
    sums = [cluster_sums(z.to(DEVICE), first[1].to(DEVICE), 7)[0] for _ in range(2)]
    assert torch.equal(*sums)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("options", [{}, {"proxy": "eq6", "self_edges": "keep", "kl_reduction": "sum", "eta": 2.0}])
def test_a_model_has_the_same_objective_through_kernels_and_through_torch(options, known):
    case = awkward_case(41, 6)
    config = FitConfig(n_clusters=4, precision="float64", alpha=1.0, **options)
    known_labels = torch.where(torch.arange(41) < 5, 2, -1).to(DEVICE) if known else None
    encoder = MLP((6, 6), generator=generator(0, "weights"), dtype=torch.float64)
    model = PamCGCModel(encoder, 2 * case.z[4:8], case.pairs.to(device=DEVICE), config, known_labels=known_labels).to(
        DEVICE
    )
    results = {}
    for name in ("triton", "torch"):
        model.backend = name
        z = case.z.to(DEVICE).requires_grad_()
        terms = model.objective(z)
        gradients = torch.autograd.grad(terms.total, (z, model.centers))
        results[name] = (terms, gradients)
    (terms, gradients), (expected, expected_gradients) = results["triton"], results["torch"]
    assert torch.equal(terms.labels, expected.labels)
    assert_value(terms.total.cpu(), expected.total.cpu())
    for values, others in ((terms.parts, expected.parts), (terms.monitors, expected.monitors)):
        assert values.keys() == others.keys()
        for name, value in values.items():
            assert_value(value.cpu(), others[name].cpu())
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        assert_gradient(gradient.cpu(), other.cpu())


def test_the_kernels_and_torch_give_one_divergence():
    z, centers = problem(401, 10, 7)
    kl, labels, _ = by_kernels(z, centers, 2.0)
    expected, log_q = soft_self_training(z, centers, eta=2.0)
    assert_value(kl, expected)
    assert torch.equal(labels, log_q.argmax(dim=1))


def test_labels_of_any_stride_are_summed():
    labels = torch.tensor([[0, 1], [1, 1], [0, 1], [1, 0]], device=DEVICE)[:, 0]
    sums, mass = cluster_sums(torch.eye(4, device=DEVICE), labels, 2)
    assert mass.tolist() == [2, 2]
    assert sums[0].tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n_rows", "n_numbers"), [(1, 1), (41, 3), (1271, 8), (5000, 33)])
def test_what_changed_is_counted_and_then_known(n_rows, n_numbers, dtype, backend, monkeypatch):
    monkeypatch.setattr(triton_clustering, "_MOST_COUNTS", 3)
    order = torch.Generator().manual_seed(0)
    labels, previous = (torch.randint(3, (n_rows,), generator=order).to(DEVICE) for _ in range(2))
    numbers = torch.randn(n_numbers, generator=order).to(DEVICE, dtype)
    expected = (labels != previous).sum().item()
    with preferring(backend):
        found = with_changes(numbers, labels, previous)
        assert with_changes(numbers, labels, previous)[-1] == 0
    assert found.dtype == torch.float64
    assert torch.equal(found[:-1], numbers.double())
    assert found[-1] == expected
    assert torch.equal(previous, labels)


def test_labels_of_any_stride_are_counted():
    labels = torch.tensor([[0, 1], [1, 1], [0, 1], [1, 0]], device=DEVICE)[:, 0]
    previous = torch.zeros(4, dtype=torch.int64, device=DEVICE)
    assert triton_clustering.with_changes(torch.ones(1, device=DEVICE), labels, previous).tolist() == [1, 2]
    assert previous.tolist() == [0, 1, 0, 1]
