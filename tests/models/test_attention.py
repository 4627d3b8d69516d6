from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.cluster import KMeans
from torch.nn.functional import elu, leaky_relu
from torch.utils._python_dispatch import TorchDispatchMode

from pamc.data.synthetic import block_model
from pamc.graph import influence
from pamc.graph.adjacency import build_adjacency
from pamc.models.loader import FeatureLoader, SparseBlock
from pamc.models.method import METHODS, BuildInput
from pamc.models.methods import daegc
from pamc.models.methods.daegc import AttentionLayer, DAEGCConfig, build_daegc, build_daegc_pretraining, proximity
from pamc.ops import reference
from pamc.results.metrics import accuracy
from pamc.runtime import generator
from pamc.training.trainer import train
from tests.tolerances import assert_gradient, assert_value

CPU = torch.device("cpu")
DOUBLE = {"device": CPU, "dtype": torch.float64}
SMALL = DAEGCConfig(n_clusters=3, n_hidden=7, n_dims=5, kl_weight=3.0, weight_decay=0.02, eta=2.0)


def small_graph(n_nodes=41, n_features=6, seed=0):
    """Return features and the adjacency of a random graph whose node 0 has no edges."""
    rng = np.random.default_rng(seed)
    edges = np.unique(np.sort(rng.integers(1, n_nodes, (2, 3 * n_nodes)), axis=0), axis=1)
    edges = edges[:, edges[0] != edges[1]]
    return rng.standard_normal((n_nodes, n_features)), build_adjacency(edges, n_nodes=n_nodes)


def dense_proximity(adjacency, n_orders):
    with_loops = torch.from_numpy(adjacency.toarray()) + torch.eye(adjacency.shape[0], dtype=torch.float64)
    step = with_loops / with_loops.sum(dim=1, keepdim=True)
    powers = [torch.linalg.matrix_power(step, r) for r in range(1, n_orders + 1)]
    return torch.where(with_loops > 0, sum(powers) / n_orders, 0.0)


def dense_layer(x, weight, vectors, m):
    h = x @ weight.T
    scores = leaky_relu(m * ((h @ vectors[:, 0])[:, None] + (h @ vectors[:, 1])[None, :]), 0.2)
    return elu(scores.masked_fill(m == 0, -torch.inf).softmax(dim=1) @ h)


def dense_loss(x, adjacency, config, weights, centers=None):
    """Return the loss of DAEGC from N × N matrices; `weights` are those of its two layers, W before a."""
    m = dense_proximity(adjacency, config.n_orders)
    h = dense_layer(x, weights[0], weights[1], m)
    z = dense_layer(h, weights[2], weights[3], m)
    z = z / z.norm(dim=1, keepdim=True)
    there = (m > 0).to(z.dtype)
    n_nodes, n_edges = len(z), int(there.sum()) - len(z)
    probability = torch.sigmoid(z @ z.T)
    positive = -(there * probability.log()).sum() / n_edges
    negative = -((1 - there) * (1 - probability).log()).sum() / (n_nodes**2 - n_edges)
    trained = [*weights] if centers is None else [*weights, centers]
    total = (positive + negative) / 2 + config.weight_decay / 2 * sum(w.square().sum() for w in trained)
    if centers is not None:
        q = reference.soft_assignment(z, centers, eta=config.eta)
        kl = reference.kl_divergence(reference.target_distribution(q.detach()), q)
        total = total + config.kl_weight * kl / n_nodes
    return total


def given(features, adjacency, config=SMALL, *, seed=0, dtype=torch.float64):
    return BuildInput(
        n_nodes=adjacency.shape[0],
        n_features=features.shape[1],
        config=config,
        seed=seed,
        device=CPU,
        dtype=dtype,
        adjacency=adjacency,
    )


def full_model(features, adjacency, config=SMALL):
    """Return DAEGC with centers near its first embedding."""
    first = given(features, adjacency, config)
    pretrained = build_daegc_pretraining(first)
    z = pretrained.read(torch.from_numpy(features)).z.detach()
    return build_daegc(replace(first, pretrained=pretrained, centers=z[[1, 7, 20]] + 0.1))


def layer_weights(model):
    layers = (model.first, model.second)
    return [weight for layer in layers for weight in (layer.linear.weight, layer.attention)]


@pytest.mark.parametrize("n_orders", [1, 2, 3])
def test_proximity_is_the_mean_of_the_powers_along_the_edges(n_orders):
    _, adjacency = small_graph()
    near = proximity(adjacency, n_orders=n_orders, **DOUBLE)
    assert_value(near.matrix.to_dense(), dense_proximity(adjacency, n_orders))
    assert near.matrix.to_dense()[0, 0] == 1
    entries = torch.stack([near.rows, near.matrix.col_indices()])
    assert torch.equal(entries[:, near.transposed], entries.flip(0))


def test_walks_counted_in_blocks_of_rows_are_all_walks(monkeypatch):
    _, adjacency = small_graph()
    dense = adjacency.toarray()
    expected = (dense + dense @ dense + dense @ dense @ dense) * (dense > 0)
    for n_entries in (1, 200, 1 << 20):
        monkeypatch.setattr(influence, "_BLOCK_ENTRIES", n_entries)
        assert np.array_equal(daegc.walk_sums(adjacency, adjacency, n_steps=3).toarray(), expected)


@pytest.mark.parametrize(("n_nodes", "scale"), [(2, 1), (41, 1), (41, 1e4), (401, 1)])
def test_a_layer_is_the_dense_one_in_value_and_gradient_with_large_scores_too(n_nodes, scale):
    features, adjacency = small_graph(n_nodes)
    features *= scale
    near = proximity(adjacency, n_orders=2, **DOUBLE)
    layer = AttentionLayer(6, 5, generator=generator(0, "weights"), dtype=torch.float64)
    x = torch.from_numpy(features).requires_grad_()
    out = torch.randn(n_nodes, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    inputs = [x, layer.linear.weight, layer.attention]
    expected = dense_layer(*inputs, dense_proximity(adjacency, 2))
    actual = layer(x, near)
    assert_value(actual, expected)
    gradients = zip(torch.autograd.grad(actual, inputs, out), torch.autograd.grad(expected, inputs, out), strict=True)
    for ours, theirs in gradients:
        assert_gradient(ours, theirs)


def test_a_layer_passes_gradcheck():
    features, adjacency = small_graph(9)
    near = proximity(adjacency, n_orders=2, **DOUBLE)
    layer = AttentionLayer(6, 3, generator=generator(0, "weights"), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: layer(x, near), (torch.from_numpy(features).requires_grad_(),))


def test_a_node_without_edges_attends_to_itself_alone():
    features, adjacency = small_graph()
    layer = AttentionLayer(6, 5, generator=generator(0, "weights"), dtype=torch.float64)
    x = torch.from_numpy(features)
    out = layer(x, proximity(adjacency, n_orders=2, **DOUBLE))
    assert_value(out[0], elu(layer.linear.weight @ x[0]))


class _Sizes(TorchDispatchMode):
    """Remembers the size of the largest tensor that any operation returns."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                self.largest = max(self.largest, tensor.numel())
        return result


def test_a_layer_holds_nothing_larger_than_its_rows_and_its_entries():
    n_nodes = 1000
    ring = np.stack([np.arange(n_nodes), (np.arange(n_nodes) + 1) % n_nodes])
    near = proximity(build_adjacency(ring, n_nodes=n_nodes), n_orders=2, **DOUBLE)
    layer = AttentionLayer(6, 5, generator=generator(0, "weights"), dtype=torch.float64)
    x = torch.ones(n_nodes, 6, dtype=torch.float64, requires_grad=True)
    with _Sizes() as sizes:
        layer(x, near).sum().backward()
    # Blocks and vectors of the matrix products are filled up, to 32 columns at most.
    assert sizes.largest <= 32 * n_nodes


def test_the_pretraining_loss_is_that_of_the_dense_reference_in_value_and_gradient():
    features, adjacency = small_graph()
    model = build_daegc_pretraining(given(features, adjacency))
    x, weights = torch.from_numpy(features), layer_weights(model)
    terms = model.loss(x)
    expected = dense_loss(x, adjacency, SMALL, weights)
    assert terms.labels is None
    assert_value(terms.total, expected)
    gradients = zip(torch.autograd.grad(terms.total, weights), torch.autograd.grad(expected, weights), strict=True)
    for ours, theirs in gradients:
        assert_gradient(ours, theirs)


def test_the_loss_is_that_of_the_dense_reference_in_value_and_gradient():
    features, adjacency = small_graph()
    model = full_model(features, adjacency)
    x, inputs = torch.from_numpy(features), [*layer_weights(model), model.centers]
    terms = model.loss(x)
    expected = dense_loss(x, adjacency, SMALL, inputs[:-1], inputs[-1])
    assert_value(terms.total, expected)
    gradients = zip(torch.autograd.grad(terms.total, inputs), torch.autograd.grad(expected, inputs), strict=True)
    for ours, theirs in gradients:
        assert_gradient(ours, theirs)
    parts = terms.parts
    total = parts["reconstruction"] + 3.0 * parts["kl"] + 0.02 * parts["penalty"]
    assert_value(total, terms.total)
    reading = model.read(x)
    assert_value(reading.z.norm(dim=1), torch.ones(41))
    assert_value(reading.q, reference.soft_assignment(reading.z, model.centers, eta=SMALL.eta))
    assert torch.equal(reading.q.argmax(dim=1), terms.labels)


def test_everything_that_is_trained_gets_a_gradient_and_decays():
    features, adjacency = small_graph()
    model = full_model(features, adjacency, SMALL.with_(weight_decay=0.0))
    decaying = full_model(features, adjacency, SMALL.with_(weight_decay=0.5))
    x = torch.from_numpy(features)
    gradients = []
    for one in (model, decaying):
        one.loss(x).total.backward()
        gradients.append({name: p.grad for name, p in one.named_parameters() if p.requires_grad})
    assert set(gradients[0]) == {
        "first.linear.weight", "first.attention", "second.linear.weight", "second.attention", "centers",
    }  # fmt: skip
    for name, value in model.named_parameters():
        if value.requires_grad:
            assert gradients[0][name].norm() > 0
            assert_gradient(gradients[1][name], gradients[0][name] + 0.5 * value)


def test_sparse_rows_give_the_loss_and_gradient_of_dense_rows():
    _, adjacency = small_graph()
    features = sp.random(41, 30, density=0.2, format="csr", random_state=0, dtype=np.float64)
    features = sp.diags_array(np.arange(41) != 5, dtype=np.float64).tocsr() @ features
    model = full_model(features.toarray(), adjacency)
    inputs = [*layer_weights(model), model.centers]
    dense = model.loss(torch.from_numpy(features.toarray())).total
    sparse = model.loss(SparseBlock.from_scipy(features, **DOUBLE)).total
    assert_value(sparse, dense)
    for ours, theirs in zip(torch.autograd.grad(sparse, inputs), torch.autograd.grad(dense, inputs), strict=True):
        assert_gradient(ours, theirs)


def fit(seed):
    """Return labels of a block model, and what DAEGC makes of it."""
    graph = block_model(200, 3, n_features=10, random_state=1)
    adjacency = build_adjacency(graph.edges, n_nodes=200)
    config = DAEGCConfig(n_clusters=3, n_hidden=32, n_dims=8)
    rows = FeatureLoader(graph.features, device=CPU, dtype=torch.float32)
    first = given(graph.features, adjacency, config, seed=seed, dtype=torch.float32)
    pretrained = build_daegc_pretraining(first)
    list(train(pretrained, rows, n_epochs=config.pretrain_epochs, lr=config.pretrain_lr))
    with torch.no_grad():
        z = pretrained.read(rows.whole()).z
    centers = KMeans(3, n_init=5, random_state=0).fit(z.numpy()).cluster_centers_
    model = build_daegc(replace(first, pretrained=pretrained, centers=torch.from_numpy(centers)))
    records = list(train(model, rows, n_epochs=30, lr=config.lr))
    with torch.no_grad():
        return graph.labels, model.read(rows.whole()), records


@pytest.mark.slow
def test_it_finds_planted_clusters_and_the_same_seed_gives_the_same_answer():
    labels, reading, records = fit(0)
    assert reading.z.isfinite().all()
    assert accuracy(labels, reading.q.argmax(dim=1).numpy()) > 0.8
    assert all(np.isfinite(list(record.values.values())).all() for record in records)
    assert torch.equal(records[-1].labels, fit(0)[2][-1].labels)
    assert torch.equal(fit(0)[1].z, reading.z)
    assert not torch.equal(fit(1)[1].z, reading.z)


def test_it_is_registered_with_its_pretraining():
    method = METHODS["daegc"]
    assert method.config is DAEGCConfig
    assert method.pretrain is build_daegc_pretraining
    assert method.uses_graph
    assert not method.inductive
