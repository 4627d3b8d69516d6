import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn
from torch.nn.functional import leaky_relu, relu
from torch.utils._python_dispatch import TorchDispatchMode

from pamc.data.synthetic import block_model
from pamc.errors import ConfigError
from pamc.graph.adjacency import build_adjacency
from pamc.graph.influence import positive_pairs
from pamc.initialize.base import initial_centers
from pamc.losses.contrastive import contrastive_loss
from pamc.losses.pamc import pamc_loss
from pamc.models.layers import Autoencoder
from pamc.models.loader import FeatureLoader
from pamc.models.method import METHODS, BuildInput
from pamc.models.methods.agcn import Attention, BlockLinear
from pamc.results.metrics import accuracy
from pamc.runtime import generator
from pamc.training.engine import accumulate_gradient
from pamc.training.trainer import train
from tests.tolerances import assert_gradient, assert_value

CPU = torch.device("cpu")
NETWORKS = ("sdcn", "agcn")
VARIANTS = tuple(name + term for name in NETWORKS for term in ("", "+pamc", "+contrast"))
N_NODES, N_CLUSTERS, N_FEATURES, HIDDEN, N_DIMS = 97, 3, 13, (11, 8, 15), 5


def given(name, *, n_nodes=N_NODES, features=None, dtype=torch.float64, sparse=None, hidden=HIDDEN, **settings):
    """Return what `name` is built from on a small block model whose last row has no edges, and its rows."""
    graph = block_model(n_nodes, N_CLUSTERS, n_features=N_FEATURES, degree=6)
    features = graph.features.astype(np.float64) if features is None else features
    edges = graph.edges[:, (graph.edges != n_nodes - 1).all(axis=0)]
    adjacency = build_adjacency(edges, n_nodes=n_nodes)
    config = METHODS[name].config(n_clusters=N_CLUSTERS, hidden=hidden, n_dims=N_DIMS, **settings)
    autoencoder = Autoencoder(features.shape[1], hidden, N_DIMS, generator=generator(0, "weights"), dtype=dtype)
    rows = FeatureLoader(features, device=CPU, dtype=dtype, sparse=sparse)
    with torch.no_grad():
        centers = autoencoder.encoder(rows.whole())[:N_CLUSTERS].clone()
    pairs = None
    if "n_hops" in config.names():
        pairs, _ = positive_pairs(adjacency, n_hops=config.n_hops, max_positives=None, dtype=dtype)
    built = BuildInput(
        n_nodes=n_nodes,
        n_features=features.shape[1],
        config=config,
        seed=0,
        device=CPU,
        dtype=dtype,
        adjacency=adjacency,
        pairs=pairs,
        encoder=autoencoder.encoder,
        decoder=autoencoder.decoder,
        centers=centers,
    )
    return built, rows


def model_and_rows(name, **options):
    built, rows = given(name, **options)
    return METHODS[name].build(built), rows, built


def dense_normalized(adjacency):
    """Return D^(−½)(A + I)D^(−½) entry by entry."""
    weights = adjacency.toarray() + np.eye(adjacency.shape[0])
    degree = weights.sum(axis=1)
    for i, j in zip(*weights.nonzero(), strict=True):
        weights[i, j] /= np.sqrt(degree[i] * degree[j])
    return torch.from_numpy(weights)


def stack(network, x):
    """Return all activations of an MLP as its definition has them."""
    out = [x]
    for number, layer in enumerate(network.layers):
        product = out[-1] @ layer.weight.T + layer.bias
        out.append(product if number == len(network.layers) - 1 else relu(product))
    return out[1:]


def attention(module, x):
    """Return ℓ2(softmax(LeakyReLU(x W))) of concatenated rows x."""
    weight = torch.cat([block.weight for block in module.scores.blocks], dim=1)
    shares = leaky_relu(x @ weight.T, 0.01).softmax(dim=1)
    return shares / shares.square().sum(dim=1, keepdim=True).sqrt()


def sdcn_output(model, x, smooth, states, sigma):
    weights = [layer.linear.weight for layer in model.convolutions]
    out = relu(smooth @ x @ weights[0].T)
    for state, weight in zip(states[:-1], weights[1:-1], strict=True):
        out = relu(smooth @ ((1 - sigma) * out + sigma * state) @ weight.T)
    return smooth @ ((1 - sigma) * out + sigma * states[-1]) @ weights[-1].T


def agcn_output(model, x, smooth, states):
    weights = [layer.linear.weight for layer in model.convolutions]
    scales = [leaky_relu(smooth @ x @ weights[0].T, 0.2)]
    for state, weight, fusion in zip(states[:-1], weights[1:], model.fusions, strict=True):
        m = attention(fusion, torch.cat((scales[-1], state), dim=1))
        mixed = m[:, [0]].expand_as(state) * scales[-1] + m[:, [1]].expand_as(state) * state
        scales.append(leaky_relu(smooth @ mixed @ weight.T, 0.2))
    scales.append(states[-1])
    u = attention(model.scale_attention, torch.cat(scales, dim=1))
    joined = torch.cat([u[:, [k]] * scale for k, scale in enumerate(scales)], dim=1)
    return smooth @ joined @ torch.cat([block.weight for block in model.classifier.blocks], dim=1).T


def dense_loss(model, built, x):
    """Return total, parts, output before softmax and z of the papers' formulas, with N × N matrices."""
    config, smooth = built.config, dense_normalized(built.adjacency)
    states = stack(model.encoder, x)
    z = states[-1]
    output = (
        sdcn_output(model, x, smooth, states, config.sigma)
        if "sigma" in config.names()
        else agcn_output(model, x, smooth, states)
    )
    kernel = (1 + (z[:, None] - model.centers).square().sum(dim=2) / config.eta) ** (-(config.eta + 1) / 2)
    q = kernel / kernel.sum(dim=1, keepdim=True)
    p = (q**2 / q.sum(dim=0)).detach()
    p = p / p.sum(dim=1, keepdim=True)
    parts = {
        "reconstruction": (stack(model.decoder, z)[-1] - x).square().mean(),
        "kl": (p * (p / q).log()).sum() / len(x),
        "output_kl": (p * (p / output.softmax(dim=1)).log()).sum() / len(x),
    }
    total = parts["reconstruction"] + config.kl_weight * parts["kl"] + config.output_weight * parts["output_kl"]
    return total, parts, output, z, q


def trained(model):
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("hidden", [HIDDEN, (7,), ()])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_loss_is_the_papers_in_value_and_gradient(name, hidden):
    settings = {"sigma": 0.3} if name == "sdcn" else {}
    model, rows, built = model_and_rows(name, hidden=hidden, kl_weight=0.7, output_weight=0.4, eta=1.5, **settings)
    terms = accumulate_gradient(model, rows)
    total, parts, output, z, _ = dense_loss(model, built, rows.whole())
    assert_value(terms.total, total)
    assert terms.parts.keys() == parts.keys()
    for part in parts:
        assert_value(terms.parts[part], parts[part])
    assert torch.equal(terms.labels, output.argmax(dim=1))
    parameters = trained(model)
    expected = torch.autograd.grad(total, list(parameters.values()))
    for parameter, gradient in zip(parameters.values(), expected, strict=True):
        assert_gradient(parameter.grad, gradient)
    reading = model.read(rows.whole())
    assert_value(reading.z, z)
    assert_value(reading.q, output.softmax(dim=1))


@pytest.mark.parametrize("name", NETWORKS)
def test_encoder_decoder_centers_and_graph_network_are_all_trained(name):
    model, rows, _ = model_and_rows(name)
    accumulate_gradient(model, rows)
    assert {"centers", "encoder.layers.0.weight", "decoder.layers.3.bias"} <= trained(model).keys()
    for parameter in trained(model).values():
        assert parameter.grad.norm() > 0
    # A graph network without bias: its zeros are frozen.
    frozen = [p for p in model.parameters() if not p.requires_grad]
    assert frozen
    assert all((p == 0).all() for p in frozen)


@pytest.mark.parametrize("meta_assignment", ["hard", "soft", "soft_detached"])
@pytest.mark.parametrize("name", NETWORKS)
def test_pamc_adds_alpha_times_its_loss_of_the_embedding(name, meta_assignment):
    settings = {"alpha": 1.7, "tau": 0.6, "n_hops": 2, "proxy": "eq6", "self_edges": "keep"}
    model, rows, built = model_and_rows(f"{name}+pamc", meta_assignment=meta_assignment, **settings)
    terms = accumulate_gradient(model, rows)
    total, _, _, z, q = dense_loss(model, built, rows.whole())
    assignment = {"hard": q.argmax(dim=1), "soft": q, "soft_detached": q.detach()}[meta_assignment]
    added = pamc_loss(
        z, built.pairs, assignment, tau=0.6, n_clusters=N_CLUSTERS, proxy="eq6", self_edges="keep", backend="reference"
    )
    assert_value(terms.total, total + 1.7 * added)
    assert_value(terms.parts["positive"] + terms.parts["proxy"], added)
    parameters = trained(model)
    expected = torch.autograd.grad(total + 1.7 * added, list(parameters.values()))
    for parameter, gradient in zip(parameters.values(), expected, strict=True):
        assert_gradient(parameter.grad, gradient)


@pytest.mark.parametrize("name", NETWORKS)
def test_contrast_adds_alpha_times_the_loss_over_all_pairs(name):
    model, rows, built = model_and_rows(f"{name}+contrast", alpha=0.3, tau=0.8, self_edges="keep")
    terms = accumulate_gradient(model, rows)
    total, _, _, z, _ = dense_loss(model, built, rows.whole())
    added = contrastive_loss(z, built.pairs, tau=0.8, self_edges="keep")
    assert_value(terms.total, total + 0.3 * added)
    assert_value(terms.parts["contrast"], added)
    gradient = torch.autograd.grad(total + 0.3 * added, model.encoder.layers[0].weight)[0]
    assert_gradient(model.encoder.layers[0].weight.grad, gradient)


@pytest.mark.parametrize("name", VARIANTS)
def test_sparse_rows_give_the_loss_and_gradient_of_dense_rows(name):
    features = sp.random(N_NODES, 40, density=0.05, format="csr", random_state=0, dtype=np.float64)
    results = []
    for sparse in (True, False):
        model, rows, _ = model_and_rows(name, features=features, sparse=sparse)
        terms = accumulate_gradient(model, rows)
        reading = model.read(rows.whole())
        results.append([terms.total, reading.z, reading.q, *(p.grad for p in trained(model).values())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_with_sigma_0_the_graph_network_does_not_hear_the_autoencoder():
    def change(sigma):
        model, rows, _ = model_and_rows("sdcn", sigma=sigma)
        before = model.read(rows.whole()).q
        with torch.no_grad():
            for parameter in model.encoder.parameters():
                parameter += 0.1
        return (model.read(rows.whole()).q - before).abs().max()

    assert change(0.0) == 0
    assert change(0.5) > 1e-3


def test_with_sigma_1_only_the_autoencoders_embedding_reaches_the_output():
    model, rows, _ = model_and_rows("sdcn", sigma=1.0)
    before = model.read(rows.whole()).q
    with torch.no_grad():
        for layer in model.convolutions[:-1]:
            layer.linear.weight.zero_()
    assert torch.equal(model.read(rows.whole()).q, before)


def test_rows_of_attention_are_positive_and_have_length_1():
    weights = {"generator": generator(0, "weights"), "dtype": torch.float64}
    module = Attention((6, 4, 1), **weights)
    blocks = [10 * torch.randn(41, size, dtype=torch.float64) for size in (6, 4, 1)]
    shares = module(blocks)
    assert shares.shape == (41, 3)
    assert (shares > 0).all()
    assert_value(shares.norm(dim=1), torch.ones(41))
    assert_value(shares, attention(module, torch.cat(blocks, dim=1)))
    assert shares.std(dim=0).min() > 0.01


def test_a_block_linear_map_is_the_linear_map_of_the_concatenated_rows():
    weights = {"generator": generator(0, "weights"), "dtype": torch.float64}
    module = BlockLinear((6, 4), 3, bound=0.25, **weights)
    one, other, shares = (torch.randn(41, size, dtype=torch.float64) for size in (6, 4, 2))
    weight = torch.cat([block.weight for block in module.blocks], dim=1)
    assert weight.abs().max() <= 0.25
    assert_value(module((one, other)), torch.cat((one, other), dim=1) @ weight.T)
    scaled = torch.cat((shares[:, :1] * one, shares[:, 1:] * other), dim=1)
    assert_value(module((one, other), shares), scaled @ weight.T)


class Sizes(TorchDispatchMode):
    """Remembers the number of elements in memory of the largest dense tensor; a view has those of its base."""

    def __init__(self):
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                self.largest = max(self.largest, tensor.untyped_storage().nbytes() // tensor.itemsize)
        return result


@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_has_n_times_n_elements_but_in_the_loss_over_all_pairs(name):
    n_nodes = 1000
    model, rows, built = model_and_rows(name, n_nodes=n_nodes, dtype=torch.float32)
    with Sizes() as sizes:
        accumulate_gradient(model, rows)
        model.read(rows.whole())
    if name.endswith("+contrast"):
        n_with_positives = int((np.diff(built.adjacency.indptr) > 0).sum())
        assert sizes.largest >= n_with_positives * n_nodes
    else:
        assert n_nodes * max(HIDDEN) <= sizes.largest < n_nodes**2 / 20


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_training_finds_planted_blocks(name):
    graph = block_model(200, 3, n_features=16, degree=8)
    rows = FeatureLoader(graph.features, device=CPU, dtype=torch.float32)
    adjacency = build_adjacency(graph.edges, n_nodes=200)
    method = METHODS[name]
    settings = {"alpha": 0.1} if "+" in name else {}
    config = method.config(n_clusters=3, hidden=(24, 32), n_dims=6, n_epochs=40, lr=5e-3, **settings)
    autoencoder = Autoencoder(16, config.hidden, config.n_dims, generator=generator(0, "weights"))
    x = rows.whole()
    optimizer = torch.optim.Adam(autoencoder.parameters(), lr=5e-3)
    for _ in range(60):
        optimizer.zero_grad()
        (autoencoder(x)[0] - x).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        centers, _ = initial_centers(autoencoder.encoder(x), config, seed=0)
    pairs, _ = positive_pairs(adjacency, n_hops=1, max_positives=None, dtype=torch.float32)
    model = method.build(
        BuildInput(
            n_nodes=200,
            n_features=16,
            config=config,
            seed=0,
            device=CPU,
            dtype=torch.float32,
            adjacency=adjacency,
            pairs=pairs if "n_hops" in config.names() else None,
            encoder=autoencoder.encoder,
            decoder=autoencoder.decoder,
            centers=centers,
        )
    )
    records = list(train(model, rows, n_epochs=config.n_epochs, lr=config.lr))
    assert len(records) == 40
    assert records[-1].values["loss"] < records[0].values["loss"]
    labels = model.read(x).q.argmax(dim=1)
    assert accuracy(graph.labels, labels.numpy()) > 0.8


def test_settings_with_a_contrastive_term_ask_for_positives_and_the_others_do_not():
    for name in VARIANTS:
        names = METHODS[name].config.names()
        assert ("n_hops" in names) == ("+" in name)
        assert ("proxy" in names) == name.endswith("+pamc")
        assert METHODS[name].init == "autoencoder"
        assert not METHODS[name].inductive


def test_a_share_above_1_is_refused():
    with pytest.raises(ConfigError, match=r"sigma must be a finite number of at least 0 and at most 1, got 1\.5"):
        METHODS["sdcn"].config(sigma=1.5)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_start_without_hidden_layers_or_decoder_is_refused(name):
    built, _ = given(name)
    for changes in ({"decoder": None}, {"encoder": nn.Linear(N_FEATURES, N_DIMS)}):
        with pytest.raises(ConfigError, match="hidden layers of an autoencoder"):
            METHODS[name].build(dataclasses.replace(built, **changes))
