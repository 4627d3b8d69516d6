"""Dense reference ⇐ Eq 12 as a whole, in value and gradient: on a GPU where there is one, else in the interpreter."""

import math

import pytest
import torch

from pamc.config import FitConfig
from pamc.graph.positives import PositivePairs
from pamc.models.layers import MLP
from pamc.models.methods.pamcgc import BlockContrastModel, PamCGCModel
from pamc.ops import reference
from pamc.ops.dispatch import BACKENDS, NUMBERS
from pamc.ops.torch import positives as plain
from pamc.ops.torch.proxy import uniformity
from pamc.ops.torch.rows import unit_rows
from pamc.runtime import generator
from tests.awkward import awkward_case
from tests.tolerances import assert_gradient, assert_value

pytest.importorskip("triton", reason="triton is not installed")

from pamc.ops.triton import objective as triton_objective
from pamc.ops.triton import positives
from pamc.ops.triton.objective import objective

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

pytestmark = [pytest.mark.usefixtures("poisoned"), pytest.mark.fast_variants(1)]

SETTINGS = {
    "alpha": 0.7,
    "beta": 2.0,
    "tau": 0.8,
    "eta": 1.5,
    "proxy": "eq2",
    "self_edges": "drop",
    "kl_reduction": "mean",
    "step": 2,
    "n_rows": 13,
}


def problem(n_nodes, n_dims, n_clusters, dtype=torch.float64):
    """Return the awkward case, with rows that stand around the centers."""
    case = awkward_case(n_nodes, n_dims, n_clusters, dtype=dtype)
    order = torch.Generator().manual_seed(2)
    centers = 2 * torch.randn(n_clusters, n_dims, generator=order, dtype=torch.float64)
    z = case.z.double() + centers[torch.arange(n_nodes) % n_clusters]
    z[1] = 0
    return case._replace(z=z.to(dtype)), centers.to(dtype)


def by_reference(case, centers, known, **given):
    options = {**SETTINGS, **given}
    z, mu = (x.double().requires_grad_() for x in (case.z, centers))
    n_nodes, n_clusters, tau = len(z), len(mu), options["tau"]
    q = reference.soft_assignment(z, mu, eta=options["eta"])
    labels = q.argmax(dim=1)
    kl = reference.kl_divergence(reference.target_distribution(q.detach()), q)
    kl = kl / n_nodes if options["kl_reduction"] == "mean" else kl
    log_mass = reference.log_positive_mass(z, case.gamma, tau=tau, self_edges=options["self_edges"])
    positive = -log_mass[log_mass > -math.inf].sum() / n_nodes
    members = labels if known is None else torch.where(known >= 0, known, labels)
    nodes = reference.meta_nodes(z, members, n_clusters=n_clusters)
    mass = torch.bincount(members, minlength=n_clusters)
    proxy = reference.proxy(nodes, tau=tau, proxy=options["proxy"], mass=mass.double())
    total = options["alpha"] * (positive + proxy) + options["beta"] * kl
    present = mass > 0
    means = nodes[present] * n_nodes / mass[present, None]
    _, alignment = plain.positive_log_mass(
        unit_rows(z.detach()), case.pairs.to(dtype=torch.float64), tau=tau, self_edges="drop"
    )
    numbers = [
        total,
        positive,
        proxy,
        kl,
        alignment,
        uniformity(z.detach(), step=options["step"], n_rows=options["n_rows"]),
        (mu[present] - means).norm(dim=1).mean(),
        present.sum(),
    ]
    numbers = torch.stack([number.detach().double() for number in numbers])
    return numbers, labels, torch.autograd.grad(3 * total, (z, mu))


def constants_of(options):
    """Return the settings of Eq 12, and which rows are watched."""
    config = {name: value for name, value in options.items() if name not in ("step", "n_rows")}
    return {"config": FitConfig(**config), "watched": (options["step"], options["n_rows"])}


def by_kernels(case, centers, known, **given):
    options = {**SETTINGS, **given}
    z, mu = (x.to(DEVICE).requires_grad_() for x in (case.z, centers))
    pairs = case.pairs.to(device=DEVICE)
    known = None if known is None else known.to(DEVICE)
    found = objective(z, mu, pairs, **constants_of(options), known_labels=known)
    assert not found.numbers.requires_grad
    assert not found.labels.requires_grad
    assert found.total.dtype == found.numbers.dtype == z.dtype
    torch.testing.assert_close(found.total.detach(), found.numbers[0], rtol=0, atol=0, equal_nan=True)
    gradients = torch.autograd.grad(3 * found.total, (z, mu))
    return found.numbers.cpu(), found.labels.cpu(), [gradient.cpu() for gradient in gradients]


def assert_is_the_reference(case, centers, known=None, **given):
    numbers, labels, gradients = by_kernels(case, centers, known, **given)
    expected, expected_labels, expected_gradients = by_reference(case, centers, known, **given)
    dtype = case.z.dtype
    assert torch.equal(labels, expected_labels)
    assert_value(numbers, expected, dtype=dtype)
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        assert gradient.dtype == dtype
        assert_gradient(gradient, other, dtype=dtype)


SIZES = [(41, 1, 3), (41, 3, 1), (41, 10, 7), (41, 33, 2), (77, 5, 40)]
LARGEST = [pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((129, 10, 10), (41, 128, 64))]


@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("n_nodes", "n_dims", "n_clusters"), [*SIZES, *LARGEST])
def test_numbers_labels_and_gradients_are_those_of_the_reference(n_nodes, n_dims, n_clusters, dtype):
    assert_is_the_reference(*problem(n_nodes, n_dims, n_clusters, dtype))


@pytest.mark.parametrize(
    "options",
    [
        {"proxy": "eq6"},
        {"self_edges": "keep"},
        {"kl_reduction": "sum"},
        {"tau": 20.0},
        {"eta": 100.0},
        {"alpha": 0.0},
        {"beta": 0.0},
        {"n_rows": 1},
        {"step": 1, "n_rows": 41},
    ],
)
def test_every_setting_is_that_of_the_reference(options):
    assert_is_the_reference(*problem(41, 10, 7), **options)


@pytest.mark.slow
def test_known_labels_stand_for_the_labels_in_the_meta_nodes_alone():
    case, centers = problem(41, 10, 7)
    known = torch.where(torch.arange(41) % 5 == 0, 3, -1)
    assert_is_the_reference(case, centers, known)
    # Labels may be a column of a table.
    numbers = [by_kernels(case, centers, k)[0] for k in (known, torch.stack([known, known], dim=1)[:, 0])]
    assert torch.equal(*numbers)


@pytest.mark.parametrize("n_far", [pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow), 6])
def test_clusters_without_rows_are_left_out(n_far):
    case, centers = problem(41, 10, 7)
    centers[:n_far] += 30
    assert by_kernels(case, centers, None)[0][NUMBERS.index("n_nonempty")] == 7 - n_far
    assert_is_the_reference(case, centers)


@pytest.mark.parametrize("piece", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2)), 7])
def test_long_rows_are_cut_and_put_together(piece, monkeypatch):
    monkeypatch.setattr(positives, "PIECE", piece)
    assert_is_the_reference(*problem(41, 5, 3), self_edges="keep")


@pytest.mark.parametrize("n_dims", [pytest.param(7, marks=pytest.mark.slow), 10])
def test_several_rows_side_by_side(n_dims, monkeypatch):
    monkeypatch.setattr(positives, "_MANY_PROGRAMS", 5)
    monkeypatch.setattr(positives, "_LONGEST_SIDE_BY_SIDE", 6)
    assert_is_the_reference(*problem(41, n_dims, 3, dtype=torch.float32), self_edges="keep")


@pytest.mark.slow
@pytest.mark.parametrize("most_parts", [1, 3])
def test_programs_that_take_several_tiles_add_them_up(most_parts, monkeypatch):
    monkeypatch.setattr(triton_objective, "_MOST_PARTS", most_parts)
    case, centers = problem(300, 10, 7)
    assert_is_the_reference(case, centers)


def test_without_pairs_the_positives_are_nothing():
    case, centers = problem(41, 3, 4)
    case = case._replace(edges=case.edges[:, :0], weight=case.weight[:0], gamma=torch.zeros_like(case.gamma))
    assert_is_the_reference(case, centers)


@pytest.mark.slow
def test_rows_of_any_stride_are_taken_as_they_are():
    case, centers = problem(41, 10, 7)
    expected = by_kernels(case, centers, None)
    wide = torch.full((41, 12), math.nan, dtype=torch.float64)
    wide[:, :10] = case.z
    for z in (wide[:, :10], case.z.T.contiguous().T):
        found = objective(
            z.to(DEVICE) if DEVICE.type == "cuda" else z,
            centers.to(DEVICE).T.contiguous().T,
            case.pairs.to(device=DEVICE),
            **constants_of(SETTINGS),
        )
        assert torch.equal(found.numbers.cpu(), expected[0])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_rows_that_are_no_numbers_have_labels_that_exist():
    case, centers = problem(41, 3, 7)
    case.z[6] = math.nan
    numbers, labels, _ = by_kernels(case, centers, None)
    assert numbers[0].isnan()
    assert 0 <= labels.min() <= labels.max() < 7


@pytest.mark.slow
def test_bits_repeat():
    case, centers = problem(29, 10, 3, torch.float32)
    first, second = (by_kernels(case, centers, None) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert all(torch.equal(one, other) for one, other in zip(first[2], second[2], strict=True))


def test_nothing_is_kept_per_pair_or_per_row_and_cluster():
    case, centers = problem(101, 3, 40)
    z, mu = (x.to(DEVICE).requires_grad_() for x in (case.z, centers))
    kept = []

    def keep(tensor):
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        objective(z, mu, case.pairs.to(device=DEVICE), **constants_of(SETTINGS))
    assert max(kept) == 101 * 4


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ({"n_clusters": 65}, {}),
        ({"n_dims": 129}, {}),
        ({"dtype": torch.bfloat16}, {}),
        ({}, {"tau": 41.0}),
    ],
)
def test_what_does_not_fit_is_left_to_the_parts(change, options):
    case, centers = problem(**{"n_nodes": 41, "n_dims": 3, "n_clusters": 4, **change})
    settings = constants_of({**SETTINGS, **options})
    assert objective(case.z.to(DEVICE), centers.to(DEVICE), case.pairs.to(device=DEVICE), **settings) is None


def test_pairs_of_other_rows_or_another_type_are_left_to_the_parts():
    case, centers = problem(41, 3, 4)
    pairs, settings = case.pairs.to(device=DEVICE), constants_of(SETTINGS)
    z, centers = case.z.to(DEVICE), centers.to(DEVICE)
    assert objective(z[:40], centers, pairs, **settings) is None
    assert objective(z, centers, pairs.to(dtype=torch.float32), **settings) is None
    empty = PositivePairs.from_edges(torch.zeros(2, 0, dtype=torch.int64), n_nodes=0, dtype=torch.float64)
    assert objective(z[:0], centers, empty.to(device=DEVICE), **settings) is None


@pytest.mark.parametrize("known", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("options", [{}, {"proxy": "eq6", "self_edges": "keep", "kl_reduction": "sum", "eta": 2.0}])
def test_a_model_has_one_objective_as_a_whole_and_in_parts(options, known):
    case = awkward_case(41, 6)
    config = FitConfig(n_clusters=4, precision="float64", alpha=1.0, **options)
    known_labels = torch.where(torch.arange(41) < 5, 2, -1).to(DEVICE) if known else None
    encoder = MLP((6, 6), generator=generator(0, "weights"), dtype=torch.float64)
    model = PamCGCModel(encoder, 2 * case.z[4:8], case.pairs.to(device=DEVICE), config, known_labels=known_labels).to(
        DEVICE
    )
    model.backend = "triton"
    results = []
    for function in (model.objective, lambda z: BlockContrastModel.objective(model, z)):
        z = case.z.to(DEVICE).requires_grad_()
        terms = function(z)
        results.append((terms, torch.autograd.grad(terms.total, (z, model.centers))))
    (whole, gradients), (parts, expected_gradients) = results
    assert whole.numbers is not None
    assert parts.numbers is None
    assert torch.equal(whole.labels, parts.labels)
    assert list(whole.parts) == list(parts.parts)
    assert list(whole.monitors) == list(parts.monitors)
    expected = [parts.total, *parts.parts.values(), *parts.monitors.values()]
    assert_value(whole.numbers.cpu(), torch.stack([value.detach().double() for value in expected]).cpu())
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        assert_gradient(gradient.cpu(), other.cpu())


def test_soft_meta_nodes_are_taken_in_parts():
    case = awkward_case(41, 6)
    config = FitConfig(n_clusters=4, precision="float64", alpha=1.0, meta_assignment="soft")
    encoder = MLP((6, 6), generator=generator(0, "weights"), dtype=torch.float64)
    model = PamCGCModel(encoder, 2 * case.z[4:8], case.pairs.to(device=DEVICE), config).to(DEVICE)
    model.backend = "triton"
    assert model.objective(case.z.to(DEVICE)).numbers is None


def test_only_kernels_take_it_as_a_whole():
    assert [name for name in BACKENDS if BACKENDS[name].objective is not None] == ["triton"]
