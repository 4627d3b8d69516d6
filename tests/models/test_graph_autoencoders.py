import copy
import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.cluster import KMeans
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from pamc.data.synthetic import block_model
from pamc.graph.adjacency import build_adjacency
from pamc.models.loader import FeatureLoader
from pamc.models.method import METHODS, BuildInput
from pamc.models.methods import graph_autoencoders
from pamc.results.metrics import evaluate
from pamc.training.trainer import train
from tests.tolerances import assert_gradient, assert_value

CPU = torch.device("cpu")
NAMES = ["gae", "vgae", "arga"]
SMALL = {"gae": {"n_hidden": 12, "n_dims": 4}, "vgae": {"n_hidden": 12, "n_dims": 4}}
SMALL["arga"] = {**SMALL["gae"], "hidden": (6,), "regularization_weight": 0.7}


def built(name, graph, *, seed=0, dtype=torch.float64, **changes):
    n_nodes, n_features = graph.features.shape
    adjacency = build_adjacency(graph.edges, n_nodes=n_nodes)
    config = METHODS[name].config(**{**SMALL[name], **changes})
    given = {"n_nodes": n_nodes, "n_features": n_features, "config": config, "seed": seed}
    return METHODS[name].build(BuildInput(**given, device=CPU, dtype=dtype, adjacency=adjacency))


def blocks(n_nodes=41, n_clusters=3, **options):
    return block_model(n_nodes, n_clusters, n_features=9, **options)


def dense(graph):
    return torch.tensor(graph.features, dtype=torch.float64)


def operator(graph):
    """Return A + I and Ã, dense."""
    target = torch.eye(len(graph.features), dtype=torch.float64)
    target[graph.edges[0], graph.edges[1]] = target[graph.edges[1], graph.edges[0]] = 1
    scale = target.sum(dim=1).rsqrt()
    return target, scale[:, None] * target * scale


def program(z, target):
    """Return the loss as the program of Kipf and Welling has it, over a dense zzᵀ."""
    n_nodes = len(z)
    n_edges = float(target.sum()) - n_nodes
    weight = torch.tensor((n_nodes**2 - n_edges) / n_edges, dtype=torch.float64)
    entropy = binary_cross_entropy_with_logits(z @ z.T, target, pos_weight=weight)
    return n_nodes**2 / (2 * (n_nodes**2 - n_edges)) * entropy


def weights(model):
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def gradients(total, model):
    named = weights(model)
    return dict(zip(named, torch.autograd.grad(total, list(named.values())), strict=True))


def assert_gradients(actual, expected):
    assert actual.keys() == expected.keys()
    for name, gradient in actual.items():
        assert_gradient(gradient, expected[name])


class Seed:
    """Set torch's global seed inside, and put its state back."""

    def __init__(self, seed):
        self.seed = seed

    def __enter__(self):
        self.fork = torch.random.fork_rng(devices=[])
        self.fork.__enter__()
        torch.manual_seed(self.seed)

    def __exit__(self, *error):
        self.fork.__exit__(*error)


def dense_convolutions(model, graph, output=0):
    """Return Ã relu(ÃXW₀ᵀ)W₁ᵀ, dense."""
    encoder = model.network["encoder"]
    _, normalized = operator(graph)
    h = torch.relu(normalized @ dense(graph) @ encoder.first.linear.weight.T)
    return normalized @ h @ getattr(encoder, encoder.outputs[output]).linear.weight.T


def test_gae_is_the_reconstruction_of_the_graph_from_two_convolutions():
    graph = blocks()
    model = built("gae", graph)
    expected = program(dense_convolutions(model, graph), operator(graph)[0])
    terms = model.loss(dense(graph))
    assert_value(terms.total, expected)
    assert terms.parts.keys() == {"reconstruction"}
    assert terms.labels is None
    assert model.centers is None
    assert_gradients(gradients(terms.total, model), gradients(expected, model))
    assert_value(model.read(dense(graph)).z, dense_convolutions(model, graph))


def test_vgae_adds_the_divergence_of_the_gaussians_it_draws_from():
    graph = blocks()
    model = built("vgae", graph)
    mean, log_std = (dense_convolutions(model, graph, name) for name in (0, 1))
    with Seed(5):
        z = mean + torch.randn_like(mean) * log_std.exp()
    kl = ((mean**2 + (2 * log_std).exp() - 1) / 2 - log_std).sum(dim=1).mean()
    expected = program(z, operator(graph)[0]) + kl / 41
    with Seed(5):
        terms = model.loss(dense(graph))
    assert_value(terms.total, expected)
    assert_value(terms.parts["kl"], kl)
    assert_gradients(gradients(terms.total, model), gradients(expected, model))


def test_what_is_read_of_vgae_is_the_mean_and_draws_nothing():
    graph = blocks()
    model = built("vgae", graph)
    state = torch.get_rng_state()
    reading = model.read(dense(graph))
    assert torch.equal(state, torch.get_rng_state())
    assert reading.q is None
    assert_value(reading.z, dense_convolutions(model, graph))


def test_in_arga_neither_player_moves_by_the_others_loss():
    graph = blocks()
    model = built("arga", graph)
    player = model.network["discriminator"]
    with Seed(5):
        terms = model.loss(dense(graph))
    actual = gradients(terms.total, model)
    z = dense_convolutions(model, graph)
    with Seed(5):
        noise = torch.randn_like(z)
    fixed = copy.deepcopy(player)
    regularization = -logsigmoid(fixed(z)).mean()
    of_encoder = program(z, operator(graph)[0]) + 0.7 * regularization
    of_player = -logsigmoid(player(noise)).mean() - logsigmoid(-player(z.detach())).mean()
    for name, gradient in actual.items():
        own = of_player if "discriminator" in name else of_encoder
        expected = torch.autograd.grad(own, weights(model)[name], retain_graph=True)[0]
        assert expected.norm() > 0
        assert_gradient(gradient, expected)
    assert_value(terms.total, of_encoder + of_player)
    assert_value(terms.parts["regularization"], regularization)
    assert_value(terms.parts["discrimination"], of_player)
    assert all(p.requires_grad for p in player.parameters())


def test_the_weight_of_the_regularization_can_be_0():
    graph = blocks()
    model, plain = built("arga", graph, regularization_weight=0.0), built("gae", graph)
    actual = gradients(model.loss(dense(graph)).total, model)
    for name, gradient in gradients(plain.loss(dense(graph)).total, plain).items():
        assert_gradient(actual[name], gradient)


@pytest.mark.parametrize("name", NAMES)
def test_sparse_rows_give_the_loss_and_gradient_of_dense_rows(name):
    graph = blocks()
    features = sp.csr_matrix(graph.features * (graph.features > 1))
    results = []
    for sparse in (True, False):
        model = built(name, graph)
        rows = FeatureLoader(features, device=CPU, dtype=torch.float64, sparse=sparse)
        assert rows.sparse == sparse
        with Seed(1):
            total = model.loss(rows.whole()).total
        results.append((total.detach(), gradients(total, model), model.read(rows.whole()).z))
    assert_value(results[0][0], results[1][0])
    assert_gradients(results[0][1], results[1][1])
    assert_value(results[0][2], results[1][2])


@pytest.mark.parametrize("name", NAMES)
def test_above_a_size_negatives_are_drawn_anew_in_each_epoch(name, monkeypatch):
    graph = blocks(200, degree=4)
    model = built(name, graph)
    with Seed(0):
        exact = [model.loss(dense(graph)).parts["reconstruction"].item() for _ in range(2)]
    monkeypatch.setattr(graph_autoencoders, "_EXACT_UP_TO", 199)
    with Seed(0):
        sampled = [model.loss(dense(graph)).parts["reconstruction"].item() for _ in range(2)]
    with Seed(0):
        again = model.loss(dense(graph)).parts["reconstruction"].item()
    assert sampled[0] != sampled[1]
    assert sampled[0] == again
    assert sampled[0] != exact[0]
    assert sampled[0] == pytest.approx(exact[0], rel=0.2)
    assert model.draws


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_training_finds_clusters_that_the_first_weights_do_not_show(name):
    graph = blocks(300, 4, degree=12, homophily=0.85, feature_noise=6.0)
    model = built(name, graph, dtype=torch.float32, n_hidden=64, n_dims=8)
    rows = FeatureLoader(graph.features, device=CPU, dtype=torch.float32)
    assert accuracy(graph, model, rows) < 0.8
    parts = [record.values["reconstruction"] for record in train(model, rows, n_epochs=100, lr=1e-2)]
    assert np.mean(parts[-10:]) < 0.9 * np.mean(parts[:10])
    assert accuracy(graph, model, rows) > 0.9


@torch.no_grad()
def accuracy(graph, model, rows):
    labels = KMeans(4, n_init=5, random_state=0).fit_predict(model.read(rows.whole()).z.numpy())
    return evaluate(graph.labels, labels)["acc"]


@pytest.mark.parametrize("name", NAMES)
def test_weights_come_from_the_seed_and_torchs_global_state_is_not_touched(name):
    graph = blocks()
    state = torch.get_rng_state()
    first, again, other = (weights(built(name, graph, seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(state, torch.get_rng_state())
    for key, weight in first.items():
        assert torch.equal(weight, again[key])
        assert not torch.equal(weight, other[key])
        assert weight.dtype == torch.float64


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_leaves_no_tape_behind_in_the_network(name):
    graph = blocks()
    model = built(name, graph)
    model.loss(dense(graph)).total.backward()
    kept = [value for module in model.modules() for value in vars(module).values() if isinstance(value, torch.Tensor)]
    assert len(kept) == 1
    assert kept[0] is model.normalized


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_without_edges_has_a_finite_loss(name):
    graph = blocks()
    given = {"n_nodes": 41, "n_features": 9, "config": METHODS[name].config(**SMALL[name]), "seed": 0}
    model = METHODS[name].build(BuildInput(**given, device=CPU, dtype=torch.float64, adjacency=sp.csr_matrix((41, 41))))
    total = model.loss(dense(graph)).total
    assert math.isfinite(total.item())
    assert all(gradient.isfinite().all() for gradient in gradients(total, model).values())


@pytest.mark.parametrize("name", NAMES)
def test_new_rows_cannot_be_labeled(name):
    method = METHODS[name]
    assert method.title == name.upper()
    assert method.uses_graph
    assert not method.inductive


@pytest.mark.parametrize("name", NAMES)
def test_the_losses_are_those_of_torch_geometric(name):
    models = pytest.importorskip("torch_geometric.nn").models
    graph = blocks()
    model = built(name, graph)
    network = getattr(models, name.upper())(**dict(model.network.items()))
    with Seed(3):
        terms = model.loss(dense(graph))
    if name == "vgae":
        mean, log_std = model.network["encoder"](dense(graph), model.normalized)
        assert torch.equal(terms.parts["kl"], network.kl_loss(mean, log_std))
    if name == "arga":
        z = model.read(dense(graph)).z
        assert torch.equal(terms.parts["regularization"], network.reg_loss(z))
        with Seed(3):
            assert torch.equal(terms.parts["discrimination"], network.discriminator_loss(z))
