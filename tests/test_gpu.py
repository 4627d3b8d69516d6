"""What runs on a CPU runs on a GPU, with the same answer. Skipped, with the reason, where there is none."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from pamc import PamCGC, evaluate, pamc_loss
from pamc.data.synthetic import block_model
from pamc.graph.pairs import PositivePairs
from pamc.losses.contrastive import contrastive_loss
from pamc.ops import reference

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
    pytest.mark.filterwarnings("ignore::pamc.errors.BoundWarning"),
]

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
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
    options = {**SMALL, "precision": "float64", "chunk_size": 97 if kind == "chunked" else None}
    models = {
        device: PamCGC(3, device=device, **options).fit(features, adjacency=graph.edges) for device in ("cpu", "cuda")
    }
    for name, values in models["cpu"].history_.items():
        np.testing.assert_allclose(models["cuda"].history_[name], values, rtol=1e-6, atol=1e-9, err_msg=name)
    assert np.array_equal(models["cpu"].labels_, models["cuda"].labels_)
    assert np.array_equal(models["cuda"].predict(features), models["cuda"].labels_)


def test_a_float32_fit_on_a_gpu_is_as_good_and_loads_on_a_cpu(tmp_path):
    graph = block_model(600, 3, n_features=20, feature_noise=0.5, random_state=0)
    model = PamCGC(3, device="cuda", **SMALL).fit(graph.features, adjacency=graph.edges)
    assert model.record().device == "cuda"
    assert evaluate(graph.labels, model.labels_)["acc"] > 0.95
    model.save(tmp_path / "run")
    loaded = PamCGC.load(tmp_path / "run", device="cpu")
    assert (loaded.predict(graph.features) == model.labels_).mean() > 0.99
