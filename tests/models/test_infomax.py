import pytest
import scipy.sparse as sp
import torch
from sklearn.cluster import KMeans
from torch.nn.functional import logsigmoid

from pamc.data.synthetic import block_model
from pamc.graph.adjacency import build_adjacency
from pamc.models.layers import propagate
from pamc.models.loader import FeatureLoader
from pamc.models.method import METHODS, BuildInput
from pamc.ops.torch.rows import column_sums
from pamc.results.metrics import evaluate
from pamc.training.trainer import train
from tests.tolerances import assert_gradient, assert_value

CPU = torch.device("cpu")


def built(graph, *, seed=0, dtype=torch.float64, n_dims=5):
    n_nodes, n_features = graph.features.shape
    method = METHODS["dgi"]
    given = {"n_nodes": n_nodes, "n_features": n_features, "config": method.config(n_dims=n_dims), "seed": seed}
    adjacency = build_adjacency(graph.edges, n_nodes=n_nodes)
    return method.build(BuildInput(**given, device=CPU, dtype=dtype, adjacency=adjacency))


def blocks(n_nodes=41, n_clusters=3, **options):
    return block_model(n_nodes, n_clusters, n_features=9, **options)


def dense(graph):
    return torch.tensor(graph.features, dtype=torch.float64)


def embedding(model, graph, x):
    """Return PReLU(ÃXWᵀ), dense."""
    target = torch.eye(len(x), dtype=torch.float64)
    target[graph.edges[0], graph.edges[1]] = target[graph.edges[1], graph.edges[0]] = 1
    scale = target.sum(dim=1).rsqrt()
    h = (scale[:, None] * target * scale) @ (x @ model.linear.weight.T)
    return torch.where(h > 0, h, h * model.network["encoder"]["slope"])


def loss_under(model, x, seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model.loss(x).total


def learnt(model):
    return [p for p in model.parameters() if p.requires_grad]


def test_the_loss_tells_rows_from_shuffled_rows_by_the_summary_of_the_graph():
    graph = blocks()
    model = built(graph)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        order = torch.randperm(41)
    true, shuffled = (embedding(model, graph, x) for x in (dense(graph), dense(graph)[order]))
    summary = torch.sigmoid(true.mean(dim=0))
    scores = [z @ (model.network.weight @ summary) for z in (true, shuffled)]
    expected = -logsigmoid(scores[0]).mean() - logsigmoid(-scores[1]).mean()
    total = loss_under(model, dense(graph), 7)
    assert_value(total, expected)
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    assert sorted(names) == ["linear.weight", "network.encoder.slope", "network.weight"]
    for actual, wanted in zip(
        torch.autograd.grad(total, learnt(model)), torch.autograd.grad(expected, learnt(model)), strict=True
    ):
        assert wanted.norm() > 0
        assert_gradient(actual, wanted)


def test_what_is_read_is_the_embedding_of_the_true_rows():
    graph = blocks()
    model = built(graph)
    state = torch.get_rng_state()
    assert_value(model.read(dense(graph)).z, embedding(model, graph, dense(graph)))
    assert torch.equal(state, torch.get_rng_state())


def test_rows_are_shuffled_anew_in_each_epoch_by_torchs_global_generator():
    graph = blocks()
    model = built(graph)
    first, again, other = (loss_under(model, dense(graph), seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert model.draws


def test_sparse_rows_give_the_loss_and_gradient_of_dense_rows():
    graph = blocks()
    features = sp.csr_matrix(graph.features * (graph.features > 1))
    results = []
    for sparse in (True, False):
        model = built(graph)
        rows = FeatureLoader(features, device=CPU, dtype=torch.float64, sparse=sparse)
        total = loss_under(model, rows.whole(), 0)
        results.append((total.detach(), *torch.autograd.grad(total, learnt(model))))
    assert_value(results[0][0], results[1][0])
    for one, other in zip(results[0][1:], results[1][1:], strict=True):
        assert_gradient(one, other)


def test_training_learns_to_tell_shuffled_rows_and_shows_clusters_that_the_features_hide():
    graph = block_model(300, 4, degree=5, homophily=0.9, feature_noise=4.0)
    model = built(graph, dtype=torch.float32, n_dims=64)
    rows = FeatureLoader(graph.features, device=CPU, dtype=torch.float32)
    before = loss_under(model, rows.whole(), 100).item()
    list(train(model, rows, n_epochs=100, lr=1e-2))
    assert loss_under(model, rows.whole(), 100).item() < 0.5 * before
    with torch.no_grad():
        z = model.read(rows.whole()).z.numpy()
    assert accuracy(graph, graph.features) < 0.6
    assert accuracy(graph, z) > 0.85


def accuracy(graph, z):
    return evaluate(graph.labels, KMeans(4, n_init=5, random_state=0).fit_predict(z))["acc"]


def test_weights_come_from_the_seed_and_torchs_global_state_is_not_touched():
    graph = blocks()
    state = torch.get_rng_state()
    first, again, other = (dict(built(graph, seed=seed).named_parameters()) for seed in (0, 0, 1))
    assert torch.equal(state, torch.get_rng_state())
    for key, weight in first.items():
        assert torch.equal(weight, again[key])
        assert weight.dtype == torch.float64
    for key in ("linear.weight", "network.weight"):
        assert not torch.equal(first[key], other[key])
        assert first[key].abs().max() > 0.1


def test_new_rows_cannot_be_labeled():
    assert built(blocks()).centers is None
    method = METHODS["dgi"]
    assert method.uses_graph
    assert not method.inductive


def test_the_loss_is_that_of_torch_geometric():
    models = pytest.importorskip("torch_geometric.nn").models
    graph = blocks()
    model = built(graph)

    def shuffled(h):
        return h.index_select(0, torch.randperm(len(h)))

    def summary(z, _):
        return torch.sigmoid(column_sums(z) / len(z))

    with torch.random.fork_rng(devices=[]):
        network = models.DeepGraphInfomax(5, Aggregation(model), summary, shuffled)
        network.weight = model.network.weight
        torch.manual_seed(7)
        expected = network.loss(*network(model.linear(dense(graph))))
    assert torch.equal(loss_under(model, dense(graph), 7), expected)


class Aggregation(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, h):
        return torch.nn.functional.prelu(propagate(self.model.normalized, h), self.model.network["encoder"]["slope"])
