"""What runs on a CPU runs on a GPU, with the same answer. Skipped, with the reason, where there is none."""

import math
import warnings
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from pamc import PamCGC, clusterer, evaluate, pamc_loss
from pamc.config import FitConfig
from pamc.data.synthetic import block_model
from pamc.graph.adjacency import build_adjacency
from pamc.graph.influence import positive_pairs
from pamc.graph.positives import PositivePairs
from pamc.lab.cases.scale import planted
from pamc.lab.cell import CASES, Scope, cases_of
from pamc.lab.sweep import run_case
from pamc.losses.contrastive import contrastive_loss
from pamc.models.layers import MLP
from pamc.models.loader import FeatureLoader, encode_rows
from pamc.models.methods.pamcgc import BlockContrastModel, PamCGCModel
from pamc.ops import reference
from pamc.ops.cuda_graph import capturing
from pamc.ops.dispatch import resolve_backend
from pamc.ops.torch import clustering as plain
from pamc.ops.torch.clustering import soft_self_training
from pamc.runtime import generator
from pamc.training.optimizer import adam
from pamc.training.trainer import _Epoch, train

pytest.importorskip("triton", reason="triton is not installed")

from pamc.ops.triton import clustering as triton_clustering
from pamc.ops.triton import positives

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
CUDA = torch.device("cuda")
SMALL = {"hidden": (64, 32), "n_dims": 5, "n_epochs": 20, "pretrain_epochs": 20, "n_init": 3, "random_state": 0}


def problem(dtype, n_nodes=401, n_clusters=7, n_dims=10):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(n_nodes, n_dims, generator=generator, dtype=torch.float64).to(dtype)
    z[3] = 0
    edges = torch.randint(1, n_nodes, (2, 6 * n_nodes), generator=generator)
    weight = torch.rand(edges.shape[1], generator=generator, dtype=torch.float64)
    labels = torch.randint(n_clusters - 1, (n_nodes,), generator=generator)
    soft = torch.rand(n_nodes, n_clusters, generator=generator, dtype=torch.float64).softmax(dim=1).to(dtype)
    return z, edges, weight, labels, soft


@pytest.mark.filterwarnings("ignore::pamc.errors.EmptyClusterWarning")
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("options", [{}, {"proxy": "eq6", "self_edges": "keep", "tau": 0.25}, {"tau": 20.0}])
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_the_loss_on_a_gpu_is_the_reference_in_value_and_gradient(dtype, options, kind):
    z, edges, weight, labels, soft = problem(dtype)
    assignment = labels if kind == "hard" else soft
    options = {"tau": 1.0, **options}
    gamma = torch.zeros(len(z), len(z), dtype=torch.float64).index_put((edges[0], edges[1]), weight, accumulate=True)
    exact = z.double().clone().requires_grad_()
    expected = reference.pamc_loss(exact, gamma, assignment, n_clusters=7, **options)
    expected.backward()
    ours = z.cuda().requires_grad_()
    value = pamc_loss(ours, edges.cuda(), assignment.cuda(), edge_weight=weight.cuda(), n_clusters=7, **options)
    value.backward()
    tolerance = TOLERANCE[dtype]
    assert abs(value.item() - expected.item()) <= tolerance * max(1, abs(expected.item()))
    assert (ours.grad.cpu().double() - exact.grad).norm() <= tolerance * exact.grad.norm()


def test_the_n_by_n_loss_on_a_gpu_is_the_reference():
    z, edges, weight, _, _ = problem(torch.float64)
    gamma = torch.zeros(len(z), len(z), dtype=torch.float64).index_put((edges[0], edges[1]), weight, accumulate=True)
    pairs = PositivePairs.from_edges(edges, weight, n_nodes=len(z), dtype=torch.float64).to(device="cuda")
    value = contrastive_loss(z.cuda(), pairs, tau=0.5)
    assert value.item() == pytest.approx(reference.contrastive_loss(z, gamma, tau=0.5).item(), rel=1e-12)


@pytest.mark.parametrize("kind", ["dense", "sparse", "chunked"])
def test_a_fit_on_a_gpu_follows_the_fit_on_a_cpu(kind):
    graph = block_model(600, 3, n_features=40, feature_noise=0.5, random_state=0)
    features = graph.features
    if kind == "sparse":
        features = sp.csr_matrix(np.where(features > 1.6, features, 0))
    # A start whose clusters are found on the host: K-means on a GPU draws and rounds in its own way.
    options = {
        **SMALL,
        "init": "propagated_svd",
        "precision": "float64",
        "chunk_size": 97 if kind == "chunked" else None,
    }
    models = {
        device: clusterer("pamcgc", 3, device=device, **options).fit(features, adjacency=graph.edges)
        for device in ("cpu", "cuda")
    }
    for name, values in models["cpu"].history_.items():
        np.testing.assert_allclose(models["cuda"].history_[name], values, rtol=1e-6, atol=1e-9, err_msg=name)
    assert np.array_equal(models["cpu"].labels_, models["cuda"].labels_)
    assert np.array_equal(models["cuda"].predict(features), models["cuda"].labels_)


def test_a_float32_fit_on_a_gpu_is_as_good_and_loads_on_a_cpu(tmp_path):
    graph = block_model(600, 3, n_features=20, feature_noise=0.5, random_state=0)
    model = clusterer("pamcgc", 3, device="cuda", **SMALL).fit(graph.features, adjacency=graph.edges)
    assert model.record().device == "cuda"
    assert evaluate(graph.labels, model.labels_)["acc"] > 0.95
    model.save(tmp_path / "run")
    loaded = PamCGC.load(tmp_path / "run", device="cpu")
    assert (loaded.predict(graph.features) == model.labels_).mean() > 0.99


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_captured_epochs_are_those_of_the_cpu_and_wait_for_nothing(dtype):
    graph = block_model(400, 4, n_features=20, degree=12, random_state=3)
    adjacency = build_adjacency(graph.edges, None, n_nodes=400, expect_directed=False)
    pairs, _ = positive_pairs(adjacency, n_hops=2, max_positives=None, dtype=dtype)
    labels = {}
    numbers = {}
    for name in ("cpu", "cuda"):
        device = torch.device(name)
        rows = FeatureLoader(graph.features, device=device, dtype=dtype)
        encoder = MLP((20, 64, 32, 8), generator=generator(0, "weights"), dtype=dtype).to(device)
        centers = encode_rows(encoder, rows)[::100].clone()
        config = FitConfig(n_clusters=4, alpha=1.0, precision="float64" if dtype == torch.float64 else "float32")
        model = PamCGCModel(encoder, centers, pairs.to(device=device), config)
        epochs = _Epoch(model, rows, lr=1e-3, chunk_size=None, seed=0)
        read = []
        for epoch in range(1, 31):
            # From the second on, nothing may wait for the device: everything that is made once is there.
            with no_waiting() if name == "cuda" and epoch > 1 else nullcontext():
                read.append(epochs(epoch))
        numbers[name], labels[name] = torch.stack(read).cpu(), epochs.labels.cpu()
    assert torch.equal(labels["cpu"], labels["cuda"])
    tolerance = 1e-8 if dtype == torch.float64 else 1e-3
    torch.testing.assert_close(numbers["cuda"], numbers["cpu"], rtol=tolerance, atol=tolerance)


@contextmanager
def no_waiting():
    """Make every wait of the host for the device an error."""
    try:
        with warnings.catch_warnings():
            # Torch warns that it does not find every wait.
            warnings.simplefilter("ignore")
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_hub_of_many_neighbors_and_offsets_beyond_32_bits():
    n_nodes = 2**31 // 16 + 1000  # rows of 16 numbers: the last ones lie beyond 2³¹
    last = torch.arange(n_nodes - 300_000, n_nodes)
    edges = torch.stack([torch.full_like(last, 5), last])
    pairs = PositivePairs.from_edges(edges, n_nodes=n_nodes)
    unit = torch.zeros(n_nodes, 16, device="cuda")
    unit[:, 0] = 1.0
    unit[-1] = torch.nn.functional.one_hot(torch.tensor(1), 16).cuda()
    unit.requires_grad_()
    log_mass, _ = positives.positive_log_mass(unit, pairs.to(device="cuda"), tau=1.0, self_edges="drop")
    expected = math.log((len(last) - 1) * math.e + 1)
    assert log_mass[5].item() == pytest.approx(expected, rel=1e-6)
    log_mass[5].backward()
    # Row 5 is drawn to the others, and each of them to row 5, by its share.
    assert unit.grad[5, 1].item() == pytest.approx(1 / math.exp(expected), rel=1e-4)
    assert unit.grad[-1, 0].item() == pytest.approx(1 / math.exp(expected), rel=1e-4)
    assert unit.grad[6].abs().max().item() == 0


def test_auto_takes_the_kernels():
    assert resolve_backend("auto", torch.device("cuda")).name == "triton"


def clustered_rows(n_nodes, n_dims, n_clusters, dtype):
    order = torch.Generator(device="cuda").manual_seed(0)
    options = {"generator": order, "dtype": torch.float64, "device": "cuda"}
    centers = 2 * torch.randn(n_clusters, n_dims, **options)
    z = torch.randn(n_nodes, n_dims, **options) + centers[torch.arange(n_nodes, device="cuda") % n_clusters]
    return z.to(dtype), centers.to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("n_dims", "n_clusters"), [(1, 2), (10, 7), (33, 40), (64, 100), (1024, 3)])
def test_self_training_and_sums_of_many_rows_are_those_of_torch_in_float64(n_dims, n_clusters, dtype):
    z, centers = clustered_rows(200_000, n_dims, n_clusters, dtype)
    exact = [x.double().requires_grad_() for x in (z, centers)]
    expected, log_q = soft_self_training(*exact, eta=1.0)
    expected_gradients = torch.autograd.grad(expected, exact)
    ours = [x.requires_grad_() for x in (z, centers)]
    kl, labels = triton_clustering.self_training(*ours, eta=1.0)
    gradients = torch.autograd.grad(kl, ours)
    tolerance = TOLERANCE[dtype]
    assert abs(kl.item() - expected.item()) <= tolerance * max(1, abs(expected.item()))
    assert (labels != log_q.argmax(dim=1)).double().mean() <= 1e-4
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        assert (gradient.double() - other).norm() <= tolerance * other.norm()
    sums, mass = triton_clustering.cluster_sums(z.detach(), labels, n_clusters)
    expected_sums, expected_mass = plain.cluster_sums(z.detach().double(), labels, n_clusters)
    assert (sums.double() - expected_sums).norm() <= tolerance * expected_sums.norm()
    assert torch.equal(mass.double(), expected_mass)


@pytest.mark.parametrize("n_clusters", [7, 40])
def test_the_kernels_of_clustering_repeat_bit_by_bit_and_can_be_captured(n_clusters):
    z, centers = (x.requires_grad_() for x in clustered_rows(200_000, 10, n_clusters, torch.float32))

    def once():
        kl, labels = triton_clustering.self_training(z, centers, eta=1.0)
        sums, mass = triton_clustering.cluster_sums(z, labels, n_clusters)
        gradients = torch.autograd.grad(kl + sums.square().sum(), (z, centers))
        return [kl.detach(), labels, sums.detach(), mass, *gradients]

    own = torch.cuda.Stream()
    own.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(own):
        expected = once()
        with no_waiting():
            again = once()
    torch.cuda.current_stream().wait_stream(own)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = once()
    for _ in range(3):
        graph.replay()
    for one, other, replayed in zip(expected, again, captured, strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, replayed)


def test_clustering_beyond_offsets_of_32_bits():
    n_nodes = 2**31 // 16 + 1000
    z = torch.zeros(n_nodes, 16, device="cuda")
    z[-500:, 0] = 1.0
    centers = torch.eye(2, 16, device="cuda").flip(0)
    centers[0] = 0
    z.requires_grad_()
    centers.requires_grad_()
    kl, labels = triton_clustering.self_training(z, centers, eta=1.0)
    assert labels.sum().item() == 500
    assert labels[-500:].all()
    kl.backward()
    assert z.grad[-1, 0].item() != 0
    assert torch.equal(z.grad[-1], z.grad[-500])
    sums, mass = triton_clustering.cluster_sums(z.detach(), labels, 2)
    assert sums[:, 0].tolist() == [0, 500]
    assert mass[1].item() == 500


def pamc_model(dtype, n_nodes=20_000, n_clusters=10, **options):
    """Return a model over rows that stand around its centers, and those rows."""
    z, centers = clustered_rows(n_nodes, 10, n_clusters, dtype)
    order = torch.Generator().manual_seed(1)
    edges = torch.randint(1, n_nodes, (2, 20 * n_nodes), generator=order)
    # A row of so many pairs that it is cut.
    edges[0, :3000] = 7
    weight = torch.rand(edges.shape[1], generator=order, dtype=torch.float64)
    pairs = PositivePairs.from_edges(edges, weight, n_nodes=n_nodes, dtype=dtype).to(device="cuda")
    config = FitConfig(n_clusters=n_clusters, **{"alpha": 1.0, **options})
    model = PamCGCModel(MLP((10,), generator=generator(0, "weights"), dtype=dtype), centers, pairs, config)
    return model.cuda(), z


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("options", [{}, {"proxy": "eq6", "self_edges": "keep", "kl_reduction": "sum", "eta": 2.0}])
@pytest.mark.parametrize("n_clusters", [2, 10, 64])
def test_the_objective_as_a_whole_is_that_of_its_parts_and_of_torch(n_clusters, options, dtype):
    model, rows = pamc_model(dtype, n_clusters=n_clusters, **options)
    exact = PamCGCModel(model.encoder, model.centers.double(), model.pairs.to(dtype=torch.float64), model.config)
    exact.backend = "torch"
    results = []
    for one, function in (
        (model, model.objective),
        (model, lambda z: BlockContrastModel.objective(model, z)),
        (exact, exact.objective),
    ):
        z = rows.detach().to(one.centers.dtype).requires_grad_()
        terms = function(z)
        gradients = torch.autograd.grad(terms.total, (z, one.centers))
        named = {"loss": terms.total, **terms.parts, **terms.monitors}
        results.append((terms.labels, {name: value.item() for name, value in named.items()}, gradients))
    (labels, whole, gradients), *others = results
    tolerance = TOLERANCE[dtype]
    for other_labels, values, other_gradients in others:
        assert (labels != other_labels).double().mean() <= 1e-4
        assert whole == pytest.approx(values, rel=10 * tolerance, abs=10 * tolerance)
        for gradient, other in zip(gradients, other_gradients, strict=True):
            assert (gradient.double() - other.double()).norm() <= 10 * tolerance * other.double().norm()


def test_the_objective_as_a_whole_repeats_bit_by_bit_and_can_be_captured():
    model, rows = pamc_model(torch.float32)
    z = rows.requires_grad_()

    def once():
        terms = model.objective(z)
        assert terms.numbers is not None
        return [terms.numbers, terms.labels, *torch.autograd.grad(terms.total, (z, model.centers))]

    own = torch.cuda.Stream()
    own.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(own):
        expected = once()
        with no_waiting():
            again = once()
    torch.cuda.current_stream().wait_stream(own)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = once()
    for _ in range(3):
        graph.replay()
    for one, other, replayed in zip(expected, again, captured, strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, replayed)


def test_the_objective_as_a_whole_beyond_offsets_of_32_bits():
    n_nodes = 2**31 // 16 + 1000
    z = torch.zeros(n_nodes, 16, device="cuda")
    z[-500:, 0] = 1.0
    z[-500:, 1] = 0.5
    edges = torch.stack([torch.full((1,), n_nodes - 1), torch.full((1,), n_nodes - 2)])
    pairs = PositivePairs.from_edges(edges, n_nodes=n_nodes).to(device="cuda")
    centers = torch.zeros(2, 16)
    centers[1, 0] = 1.0
    model = PamCGCModel(
        MLP((16,), generator=generator(0, "weights")), centers, pairs, FitConfig(n_clusters=2, alpha=1.0)
    ).cuda()
    z.requires_grad_()
    terms = model.objective(z)
    assert terms.numbers is not None
    assert terms.labels.sum().item() == 500
    assert terms.labels[-500:].all()
    terms.total.backward()
    assert z.grad[-500].abs().max() > 0
    assert torch.equal(z.grad[-500], z.grad[-3])
    assert z.grad.isfinite().all()


def test_replayed_epochs_are_the_epochs_that_are_launched_one_by_one():
    graph = block_model(3000, 4, n_features=21, degree=12, random_state=3)
    adjacency = build_adjacency(graph.edges, None, n_nodes=3000, expect_directed=False)
    pairs = positive_pairs(adjacency, n_hops=2, max_positives=None, dtype=torch.float32)[0].to(device="cuda")
    numbers, parameters = [], []
    for captured in (True, False):
        rows = FeatureLoader(graph.features, device=torch.device("cuda"), dtype=torch.float32)
        encoder = MLP((21, 64, 130, 10), generator=generator(0, "weights"), tensor_cores=True).cuda()
        model = PamCGCModel(
            encoder, encode_rows(encoder, rows)[::750].clone(), pairs, FitConfig(n_clusters=4, alpha=1.0)
        )
        with capturing(captured):
            epochs = _Epoch(model, rows, lr=1e-3, chunk_size=None, seed=0)
            numbers.append(torch.stack([epochs(epoch) for epoch in range(1, 11)]).cpu())
        parameters.append([p.detach().clone() for p in model.parameters()])
    # A product may be divided otherwise on another stream.
    torch.testing.assert_close(*numbers, rtol=1e-4, atol=1e-4)
    for one, other in zip(*parameters, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("sizes", [(256, 500, 500, 2000, 10), (33, 130, 7, 3), (20, 10)])
def test_an_encoder_on_tensor_cores_has_the_gradients_of_float64(sizes):
    x = torch.randn(4001, sizes[0], generator=torch.Generator().manual_seed(0)).cuda()
    out = torch.randn(4001, sizes[-1], generator=torch.Generator().manual_seed(1)).cuda()
    ours = MLP(sizes, generator=generator(0, "weights"), tensor_cores=True).cuda()
    exact = MLP(sizes, generator=generator(0, "weights")).cuda().double()
    for encoder in (ours, exact):
        kind = next(encoder.parameters()).dtype
        z = encoder(x.to(kind))
        assert z.shape == (4001, sizes[-1])
        z.backward(out.to(kind))
    for p, q in zip(ours.parameters(), exact.parameters(), strict=True):
        assert p.grad.shape == p.shape
        # Factors of 10 bits, over several layers, some of whose units are near 0.
        # A product that is rounded to ten bits turns one ReLU of a few thousand, whose whole gradient is then another.
        assert (p.grad.double() - q.grad).norm() <= 2**-4 * q.grad.norm()


@pytest.mark.parametrize("name", [name for name, case in cases_of("case").items() if case.in_all])
def test_every_case_of_the_bench_runs_on_a_gpu(name, tmp_path):
    notes = []
    scope = Scope(device="cuda", quick=True, precision="tf32")
    rows = run_case(CASES[name], scope, tmp_path, note=notes.append)
    assert rows
    assert not notes
    assert not [row for row in rows if row["error"] is not None]
    if name in ("loss", "positive", "epoch"):
        assert "triton" in {row["provider"] for row in rows}


def test_parameters_that_lie_otherwise_in_memory_are_stepped_as_torch_does():
    start = torch.randn(7, 5, generator=torch.Generator().manual_seed(0)).cuda()
    ours, theirs = (torch.nn.Parameter(start.clone().T) for _ in range(2))
    steps = adam([ours], lr=0.1), torch.optim.Adam([theirs], lr=0.1)
    for _ in range(3):
        for parameter, optimizer in zip((ours, theirs), steps, strict=True):
            parameter.grad = torch.ones_like(parameter) * parameter.detach().sign()
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("sizes", [(128, 500, 500, 2000, 10), (33, 70, 9)])
def test_rows_in_bfloat16_have_the_gradients_of_what_was_rounded(sizes):
    x = torch.randn(3001, sizes[0], generator=torch.Generator().manual_seed(0)).to(CUDA)
    slope = torch.randn(3001, sizes[-1], generator=torch.Generator().manual_seed(1)).to(CUDA)
    exact, half = (MLP(sizes, generator=torch.Generator().manual_seed(2)).to(CUDA) for _ in range(2))
    rounded = half(x.bfloat16())
    assert rounded.dtype == torch.float32
    z = exact(x).detach()
    assert float((rounded.detach() - z).norm() / z.norm()) < 2e-2
    torch.autograd.backward(rounded, slope)
    expected_rows, expected = rounded_chain(x, list(half.parameters()), slope, torch.bfloat16)
    assert float((rounded.detach() - expected_rows).norm() / expected_rows.norm()) < 1e-3
    for gradient, parameter in zip(expected, half.parameters(), strict=True):
        assert float((parameter.grad - gradient).norm() / gradient.norm()) < 3e-2


def rounded_chain(x, layers, slope, dtype):
    """Return rows and gradients of an MLP in float64, of which all that is stored is rounded to a type.

    A ReLU that rounding turns off has another gradient, of which no tolerance for float32 knows.
    """

    def stored(value):
        return value.detach().to(dtype).double()

    weights, biases = layers[::2], layers[1::2]
    inputs = [stored(x)]
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        inputs.append(stored((inputs[-1] @ stored(weight).T + stored(bias)).relu()))
    rows = inputs[-1] @ stored(weights[-1]).T + biases[-1].detach().double()
    gradients, own = [], slope.double()
    for number in range(len(weights) - 1, -1, -1):
        gradients = [stored(own).T @ inputs[number], own.sum(dim=0), *gradients]
        own = stored(own) @ stored(weights[number]) * (inputs[number] > 0)
    return rows, gradients


def test_chunks_of_a_planted_graph_give_the_epoch_of_one_chunk():
    graph = planted(
        5000, n_clusters=7, n_features=24, n_neighbors=8, inside=0.8, noise=1.0, device=CUDA, dtype=torch.float32
    )
    curves = []
    for chunk_size in (None, 1024):
        rows = FeatureLoader(graph.features, device=CUDA, dtype=torch.float32)
        encoder = MLP((24, 50, 10), generator=torch.Generator().manual_seed(0)).to(CUDA)
        with torch.no_grad():
            centers = encoder(graph.features)[::700][:7].clone()
        model = PamCGCModel(encoder, centers, graph.pairs, FitConfig(n_clusters=7, n_dims=10, alpha=1.0))
        curves.append(
            [record.values["loss"] for record in train(model, rows, n_epochs=6, lr=1e-3, chunk_size=chunk_size)]
        )
    assert curves[0] == pytest.approx(curves[1], rel=1e-4)
