from importlib.util import find_spec

import pytest
import torch

from pamc.errors import BackendError, UnknownNameError
from pamc.ops import dispatch
from pamc.ops.dispatch import BACKENDS, preferring, resolve_backend
from tests.awkward import awkward_case
from tests.tolerances import assert_gradient, assert_value

CPU = torch.device("cpu")
# Where kernels can run: without a GPU they are interpreted.
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NAMES = sorted(BACKENDS)


def test_auto_takes_the_edge_lists_on_a_cpu_even_where_kernels_can_be_interpreted(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert resolve_backend("auto", CPU).name == "torch"


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_auto_takes_the_kernels_on_a_gpu_where_they_can_be_compiled(monkeypatch):
    for found, name in ((True, "triton"), (False, "torch")):
        monkeypatch.setattr(dispatch, "_has_compiler", lambda found=found: found)
        assert dispatch._resolved.__wrapped__("auto", torch.device("cuda")).name == name


@pytest.mark.parametrize(("cc", "path", "found"), [("cc", "", True), ("", "", False), ("", "gcc", True)])
def test_a_compiler_is_the_one_named_or_one_that_is_there(cc, path, found, monkeypatch):
    monkeypatch.setenv("CC", cc)
    monkeypatch.setattr(dispatch, "which", lambda name: name == path)
    assert dispatch._has_compiler.__wrapped__() is found


@pytest.mark.parametrize("name", NAMES)
def test_a_backend_is_found_by_its_name(name):
    assert resolve_backend(name, DEVICE).name == name


def test_an_unknown_backend_is_refused_with_the_choices():
    with pytest.raises(UnknownNameError, match=r"backend 'troch'.*auto, reference, torch.*did you mean 'torch'"):
        resolve_backend("troch", CPU)


@pytest.mark.parametrize("name", ["auto", "torch"])
def test_a_device_without_sparse_products_is_refused_with_what_to_do(name):
    with pytest.raises(BackendError, match=rf"backend '{name}' cannot work on device 'mps' .*cpu and cuda.*move z"):
        resolve_backend(name, torch.device("mps"))


def test_the_reference_works_on_any_device():
    assert resolve_backend("reference", torch.device("mps")).name == "reference"


@pytest.mark.fast_variants(6)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("self_edges", ["drop", "keep"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "reference"])
def test_every_backend_has_the_positives_of_the_reference(name, self_edges, dtype):
    case = awkward_case(41, 10, dtype=dtype)
    results = []
    for backend in (name, "reference"):
        z = case.z.to(DEVICE, copy=True).requires_grad_()
        function = BACKENDS[backend].positive_log_mass
        log_mass, alignment = function(z, case.pairs.to(device=DEVICE), tau=2.0, self_edges=self_edges)
        assert log_mass.dtype == alignment.dtype == dtype
        assert not alignment.requires_grad
        results.append((log_mass, alignment, torch.autograd.grad(log_mass[4:].sum(), z)[0]))
    assert_value(results[0][0], results[1][0], dtype=dtype)
    assert_value(results[0][1], results[1][1], dtype=dtype)
    assert_gradient(results[0][2], results[1][2], dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "reference"])
def test_every_backend_has_the_cluster_sums_of_the_reference(name, soft, dtype):
    case = awkward_case(401, 10, dtype=dtype)
    results = []
    for backend in (name, "reference"):
        z = case.z.to(DEVICE, copy=True).requires_grad_()
        sums, mass = BACKENDS[backend].cluster_sums(z, (case.soft if soft else case.labels).to(DEVICE), case.n_clusters)
        assert sums.dtype == mass.dtype == dtype
        results.append((sums, mass, torch.autograd.grad(sums.square().sum(), z)[0]))
    assert_value(results[0][0], results[1][0], dtype=dtype)
    assert_value(results[0][1], results[1][1], dtype=dtype)
    assert_gradient(results[0][2], results[1][2], dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "reference"])
def test_every_backend_has_the_self_training_of_the_reference(name, dtype):
    case = awkward_case(41, 10, dtype=dtype)
    results = []
    for backend in (name, "reference"):
        z = case.z.to(DEVICE, copy=True).requires_grad_()
        centers = (2 * case.z[4:11]).to(DEVICE).requires_grad_()
        kl, labels = BACKENDS[backend].self_training(z, centers, eta=1.5)
        assert kl.dtype == dtype
        assert labels.dtype == torch.int64
        results.append((kl, labels, torch.autograd.grad(kl, (z, centers))))
    assert_value(results[0][0], results[1][0], dtype=dtype)
    assert torch.equal(results[0][1], results[1][1])
    for gradient, expected in zip(results[0][2], results[1][2], strict=True):
        assert_gradient(gradient, expected, dtype=dtype)


def test_the_reference_has_alignment_zero_without_pairs():
    case = awkward_case(9, 3)
    pairs = case._replace(edges=case.edges[:, 8:9], weight=case.weight[8:9]).pairs
    assert BACKENDS["reference"].positive_log_mass(case.z, pairs, tau=1.0, self_edges="drop")[1] == 0


def test_auto_can_be_told_what_to_prefer():
    with preferring("reference"):
        assert resolve_backend("auto", torch.device("cpu")).name == "reference"
    assert resolve_backend("auto", torch.device("cpu")).name == "torch"


def test_a_name_and_a_device_are_looked_up_once(monkeypatch):
    first = resolve_backend("auto", CPU)
    monkeypatch.setattr(dispatch, "BACKENDS", {})
    assert resolve_backend("auto", CPU) is first
