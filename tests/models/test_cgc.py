import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.cluster import KMeans

from pamc.data.synthetic import block_model
from pamc.graph.adjacency import build_adjacency
from pamc.models.loader import FeatureLoader, SparseBlock
from pamc.models.method import METHODS, BuildInput
from pamc.models.methods.cgc import CGCConfig, CGCModel, Neighbors, Prototypes
from pamc.results.metrics import accuracy
from pamc.runtime import generator, seeded
from pamc.training.trainer import train
from tests.tolerances import assert_gradient, assert_value

CPU = torch.device("cpu")
DOUBLE = {"device": CPU, "dtype": torch.float64}
SIZES = {"n_clusters": 3, "n_hidden": 7, "n_dims": 5, "n_levels": 2}
SMALL = CGCConfig(tau=2.0, feature_weight=0.7, neighbor_weight=1.3, prototype_weight=0.4, **SIZES)


def small_graph(n_nodes=41, n_features=6, seed=0):
    """Return features and the adjacency of a random graph whose node 0 has no edges."""
    rng = np.random.default_rng(seed)
    edges = np.unique(np.sort(rng.integers(1, n_nodes, (2, 3 * n_nodes)), axis=0), axis=1)
    edges = edges[:, edges[0] != edges[1]]
    return rng.standard_normal((n_nodes, n_features)), build_adjacency(edges, n_nodes=n_nodes)


def build(features, adjacency, config=SMALL, *, seed=0, dtype=torch.float64):
    return CGCModel(
        BuildInput(
            n_nodes=adjacency.shape[0],
            n_features=features.shape[1],
            config=config,
            seed=seed,
            device=CPU,
            dtype=dtype,
            adjacency=adjacency,
        )
    )


def trained_weights(model):
    return [model.first.linear.weight, model.second.linear.weight, model.features.weight, model.features.bias]


def dense_weights(adjacency):
    """Return (N, N) shares of 1 + the number of triangles on each edge."""
    a = torch.from_numpy((adjacency.toarray() > 0).astype(float))
    counted = a + a * (a @ a)
    return counted / counted.sum(dim=1, keepdim=True).clamp(min=1)


def lloyd(z, prototypes, n_steps):
    """Return prototypes after some steps of Lloyd's algorithm, cluster by cluster, and the nearest of each row."""
    for _ in range(n_steps):
        labels = torch.cdist(z, prototypes).argmin(dim=1)
        means = [z[labels == u].mean(dim=0) if (labels == u).any() else c for u, c in enumerate(prototypes)]
        prototypes = torch.stack(means)
    return prototypes, torch.cdist(z, prototypes).argmin(dim=1)


def dense_loss(x, adjacency, model, weights, drawn):
    """Return the loss from N × N matrices; each level is an N × N or N × C matrix of scores with a mask."""
    config, n_nodes = model.config, len(x)
    with_loops = torch.from_numpy(adjacency.toarray()) + torch.eye(n_nodes, dtype=torch.float64)
    scale = with_loops.sum(dim=1).rsqrt()
    normalized = scale[:, None] * with_loops * scale
    first, second, to_dims, bias = weights
    z = normalized @ torch.relu(normalized @ x @ first.T) @ second.T
    z = z / z.norm(dim=1, keepdim=True)
    f = x @ to_dims.T + bias
    f = f / f.norm(dim=1, keepdim=True)
    # How often each node was drawn as a negative of each node.
    times = torch.zeros(n_nodes, n_nodes, dtype=torch.float64)
    times.index_put_((torch.arange(n_nodes)[:, None].expand_as(drawn), drawn), times.new_ones(()), accumulate=True)

    to_features = (config.tau * z @ f.T).exp()
    others = (times * (1 - torch.eye(n_nodes)) * to_features).sum(dim=1)
    feature = -(to_features.diagonal() / (to_features.diagonal() + others)).log().mean()

    to_nodes = (config.tau * z @ z.T).exp()
    others = (times * (with_loops == 0) * to_nodes).sum(dim=1, keepdim=True)
    neighbor = -(dense_weights(adjacency) * (to_nodes / (to_nodes + others)).log()).sum() / n_nodes

    prototype = 0
    for level in model.hierarchy:
        c, labels = lloyd(z.detach(), z.detach()[level.first_rows], config.n_lloyd)
        scores = config.tau * z @ (c / c.norm(dim=1, keepdim=True)).T
        prototype = prototype + torch.nn.functional.cross_entropy(scores, labels) / len(model.hierarchy)
    return config.feature_weight * feature + config.neighbor_weight * neighbor + config.prototype_weight * prototype


def test_the_first_loss_is_that_of_the_dense_reference_in_value_and_gradient():
    features, adjacency = small_graph()
    model = build(features, adjacency)
    x, weights = torch.from_numpy(features), trained_weights(model)
    with seeded(0, "test", CPU):
        terms = model.loss(x)
    with seeded(0, "test", CPU):
        drawn, _ = model.neighbors.draw_negatives(SMALL.n_negatives)
    expected = dense_loss(x, adjacency, model, weights, drawn)
    assert_value(terms.total, expected)
    gradients = zip(torch.autograd.grad(terms.total, weights), torch.autograd.grad(expected, weights), strict=True)
    for ours, theirs in gradients:
        assert_gradient(ours, theirs)
    parts = terms.parts
    assert_value(0.7 * parts["feature"] + 1.3 * parts["neighbor"] + 0.4 * parts["prototype"], terms.total)


def test_everything_that_is_trained_gets_a_gradient():
    features, adjacency = small_graph()
    model = build(features, adjacency)
    model.loss(torch.from_numpy(features)).total.backward()
    trained = [p for p in model.parameters() if p.requires_grad]
    assert len(trained) == len(trained_weights(model))
    assert all(p.grad.norm() > 0 for p in trained)


def test_neighbors_weigh_by_one_plus_the_triangles_they_share():
    # A triangle 0 1 2 with a tail 2 - 3, and 4 alone; edge weights do not count.
    edges = np.array([[0, 1, 0, 2], [1, 2, 2, 3]])
    adjacency = build_adjacency(edges, np.array([1.0, 5.0, 1.0, 1.0]), n_nodes=5)
    neighbors = Neighbors(adjacency, dtype=torch.float64)
    weight = torch.zeros(5, 5, dtype=torch.float64)
    weight[tuple(neighbors.edges)] = neighbors.weight
    expected = torch.zeros(5, 5, dtype=torch.float64)
    expected[0, [1, 2]] = expected[1, [0, 2]] = torch.tensor([0.5, 0.5], dtype=torch.float64)
    expected[2, [0, 1, 3]] = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)
    expected[3, 2] = 1
    assert_value(weight, expected)


def test_negatives_are_drawn_from_all_nodes_and_neither_the_node_nor_its_neighbors_count():
    _, adjacency = small_graph()
    drawn, is_negative = Neighbors(adjacency, dtype=torch.float64).draw_negatives(500)
    taken = torch.from_numpy(adjacency.toarray() > 0) | torch.eye(41, dtype=torch.bool)
    assert torch.equal(is_negative, ~taken.gather(1, drawn))
    counts = torch.bincount(drawn.ravel(), minlength=41)
    assert (counts > 350).all()
    assert (counts < 650).all()


def test_prototypes_start_from_rows_and_go_on_from_where_they_were():
    source = torch.Generator().manual_seed(0)
    z, later = (torch.randn(60, 4, generator=source, dtype=torch.float64) for _ in range(2))
    level = Prototypes(60, 4, 5, generator=generator(0, "prototypes"), dtype=torch.float64)
    expected, labels = lloyd(z, z[level.first_rows], 2)
    moved, nearest = level(z, n_steps=2)
    assert_value(moved, expected)
    assert torch.equal(nearest, labels)
    expected, labels = lloyd(later, expected, 3)
    moved, nearest = level(later, n_steps=3)
    assert_value(moved, expected)
    assert_value(level.prototypes, expected)
    assert torch.equal(nearest, labels)


def test_a_prototype_without_rows_stays_where_it_is_and_there_are_no_more_of_them_than_rows():
    level = Prototypes(4, 2, 6, generator=generator(0, "prototypes"), dtype=torch.float64)
    assert len(level.prototypes) == 4
    level.prototypes.copy_(torch.tensor([[0.0, 0.0], [9.0, 9.0], [8.0, 8.0], [7.0, 7.0]]))
    moved, labels = level(torch.ones(4, 2, dtype=torch.float64), n_steps=3)
    assert labels.tolist() == [0, 0, 0, 0]
    assert moved.tolist() == [[1, 1], [9, 9], [8, 8], [7, 7]]


def test_the_levels_have_twice_as_many_prototypes_each():
    features, adjacency = small_graph()
    model = build(features, adjacency, SMALL.with_(n_levels=4, n_clusters=4))
    assert [len(level.prototypes) for level in model.hierarchy] == [4, 8, 16, 32]


def test_sparse_rows_give_the_loss_and_gradient_of_dense_rows():
    _, adjacency = small_graph()
    features = sp.random(41, 30, density=0.2, format="csr", random_state=0, dtype=np.float64)
    results = []
    for x in (torch.from_numpy(features.toarray()), SparseBlock.from_scipy(features, **DOUBLE)):
        model = build(features, adjacency)
        with seeded(0, "test", CPU):
            total = model.loss(x).total
        results.append((total, torch.autograd.grad(total, trained_weights(model))))
    assert_value(results[1][0], results[0][0])
    for ours, theirs in zip(results[1][1], results[0][1], strict=True):
        assert_gradient(ours, theirs)


def fit(seed):
    """Return labels of a block model, what CGC makes of it, and the epochs."""
    graph = block_model(200, 3, n_features=10, random_state=1)
    config = CGCConfig(n_clusters=3, n_hidden=32, n_dims=16)
    rows = FeatureLoader(graph.features, device=CPU, dtype=torch.float32)
    adjacency = build_adjacency(graph.edges, n_nodes=200)
    model = build(graph.features, adjacency, config, seed=seed, dtype=torch.float32)
    records = list(train(model, rows, n_epochs=60, lr=config.lr, seed=seed))
    with torch.no_grad():
        return graph.labels, model.read(rows.whole()), records


@pytest.mark.slow
def test_it_finds_planted_clusters_and_the_same_seed_gives_the_same_answer():
    labels, reading, records = fit(0)
    assert reading.q is None
    assert_value(reading.z.norm(dim=1), torch.ones(200), dtype=torch.float32)
    found = KMeans(3, n_init=5, random_state=0).fit(reading.z.numpy()).labels_
    assert accuracy(labels, found) > 0.8
    assert all(np.isfinite(list(record.values.values())).all() for record in records)
    assert records[-1].values["loss"] < records[0].values["loss"]
    assert torch.equal(fit(0)[1].z, reading.z)
    assert not torch.equal(fit(1)[1].z, reading.z)


@pytest.mark.parametrize("name", ["n_negatives", "n_levels", "n_lloyd"])
def test_counts_start_at_one(name):
    with pytest.raises(ValueError, match=name):
        CGCConfig(**{name: 0})


def test_it_is_registered_and_draws():
    method = METHODS["cgc"]
    assert method.config is CGCConfig
    assert method.uses_graph
    assert not method.inductive
    features, adjacency = small_graph()
    assert build(features, adjacency).draws
