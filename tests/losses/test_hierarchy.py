import math

import pytest
import torch
from torch.autograd import gradcheck

from pamc.errors import ConfigError
from pamc.losses.contrastive import feature_contrast_loss, neighbor_contrast_loss, prototype_contrast_loss
from tests.tolerances import assert_gradient, assert_value

DTYPES = [torch.float64, torch.float32]
N_NODES, N_DIMS, N_NEGATIVES = 11, 4, 5


def case(dtype=torch.float64):
    """Return rows with a zero row (1), and negatives with repetitions, of which node 2 has itself alone."""
    source = torch.Generator().manual_seed(0)
    z, f = (torch.randn(N_NODES, N_DIMS, generator=source, dtype=torch.float64).to(dtype) for _ in range(2))
    z[1] = 0
    negatives = torch.randint(N_NODES, (N_NODES, N_NEGATIVES), generator=source)
    negatives[2] = 2
    negatives[3, 0] = 3
    negatives[4, 1] = negatives[4, 2]
    return z, f, negatives


def graph(dtype=torch.float64):
    """Return edges, of which node 0 has none, and weights that add up to 1 in each row."""
    source = torch.Generator().manual_seed(1)
    edges = torch.randint(1, N_NODES, (2, 30), generator=source)
    weight = torch.rand(30, generator=source, dtype=torch.float64) + 0.1
    weight /= torch.zeros(N_NODES, dtype=torch.float64).index_add(0, edges[0], weight)[edges[0]]
    is_negative = torch.rand(N_NODES, N_NEGATIVES, generator=source) < 0.7
    is_negative[5] = False
    return edges, weight.to(dtype), is_negative


def cosine(a, b):
    size = a.square().sum() * b.square().sum()
    return (a * b).sum() / size.sqrt() if size > 0 else a.sum() * 0


def one_term(positive, negatives):
    """Return -log(e^s / (e^s + sum of e^t)) as it stands."""
    return -torch.log(positive.exp() / (positive.exp() + sum(score.exp() for score in negatives)))


def feature_loops(z, f, negatives, tau):
    total = 0
    for i in range(len(z)):
        others = [tau * cosine(z[i], f[k]) for k in negatives[i].tolist() if k != i]
        total = total + one_term(tau * cosine(z[i], f[i]), others)
    return total / len(z)


def neighbor_loops(z, edges, weight, negatives, is_negative, tau):
    total = 0
    for (i, j), w in zip(edges.T.tolist(), weight, strict=True):
        counted = zip(negatives[i].tolist(), is_negative[i].tolist(), strict=True)
        others = [tau * cosine(z[i], z[k]) for k, counts in counted if counts]
        total = total + w * one_term(tau * cosine(z[i], z[j]), others)
    return total / len(z)


def prototype_loops(z, prototypes, labels, tau):
    total = 0
    for i, label in enumerate(labels.tolist()):
        others = [tau * cosine(z[i], c) for u, c in enumerate(prototypes) if u != label]
        total = total + one_term(tau * cosine(z[i], prototypes[label]), others)
    return total / len(z)


def compare(ours, theirs, tensors, dtype):
    """Compare a loss of some tensors with its loops, which get the same numbers in float64."""
    given = [x.clone().requires_grad_() for x in tensors]
    exact = [x.double().requires_grad_() for x in tensors]
    value, expected = ours(*given), theirs(*exact)
    assert_value(value, expected, dtype=dtype)
    gradients = zip(torch.autograd.grad(value, given), torch.autograd.grad(expected, exact), strict=True)
    for actual, expected_gradient in gradients:
        assert_gradient(actual, expected_gradient, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tau", [0.25, 1.0, 8.0])
def test_the_contrast_with_features_is_that_of_plain_loops_in_value_and_gradient(dtype, tau):
    z, f, negatives = case(dtype)
    compare(
        lambda z, f: feature_contrast_loss(z, f, negatives, tau=tau),
        lambda z, f: feature_loops(z, f, negatives, tau),
        (z, f),
        dtype,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tau", [0.25, 1.0, 8.0])
def test_the_contrast_with_neighbors_is_that_of_plain_loops_in_value_and_gradient(dtype, tau):
    z, _, negatives = case(dtype)
    edges, weight, is_negative = graph(dtype)
    compare(
        lambda z: neighbor_contrast_loss(z, edges, weight, negatives, is_negative=is_negative, tau=tau),
        lambda z: neighbor_loops(z, edges, weight.double(), negatives, is_negative, tau),
        (z,),
        dtype,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_clusters", [1, 3])
def test_the_contrast_with_prototypes_is_that_of_plain_loops_in_value_and_gradient(dtype, n_clusters):
    z, f, negatives = case(dtype)
    labels = negatives[:, 0] % n_clusters
    compare(
        lambda z, c: prototype_contrast_loss(z, c, labels, tau=2.0),
        lambda z, c: prototype_loops(z, c, labels, 2.0),
        (z, f[:n_clusters]),
        dtype,
    )


def test_all_three_pass_gradcheck():
    z, f, negatives = case()
    edges, weight, is_negative = graph()
    z = (z + 0.1).requires_grad_()
    assert gradcheck(lambda z, f: feature_contrast_loss(z, f, negatives), (z, f.requires_grad_()))
    assert gradcheck(lambda z: neighbor_contrast_loss(z, edges, weight, negatives, is_negative=is_negative), (z,))
    assert gradcheck(lambda z: prototype_contrast_loss(z, f[:3], negatives[:, 0] % 3), (z,))


def test_equal_rows_make_the_loss_the_logarithm_of_the_number_of_candidates():
    z = torch.ones(6, 2, dtype=torch.float64)
    negatives = (torch.arange(6)[:, None] + torch.tensor([1, 2, 3])) % 6
    everyone = torch.ones(6, 3, dtype=torch.bool)
    edges = torch.stack([torch.arange(6), (torch.arange(6) + 4) % 6])
    weight = torch.ones(6, dtype=torch.float64)
    assert_value(feature_contrast_loss(z, z, negatives, tau=7.0), math.log(4))
    assert_value(neighbor_contrast_loss(z, edges, weight, negatives, is_negative=everyone, tau=7.0), math.log(4))
    assert_value(prototype_contrast_loss(z, z[:5], torch.zeros(6, dtype=torch.int64), tau=7.0), math.log(5))


def test_a_node_without_negatives_and_a_graph_without_edges_add_nothing():
    z, f, negatives = case()
    z.requires_grad_()
    own = torch.arange(N_NODES)[:, None].expand(-1, 2)
    value = feature_contrast_loss(z, f, own, tau=3.0)
    assert value.item() == 0
    assert torch.autograd.grad(value, z)[0].abs().max() == 0
    edges, weight = torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.float64)
    is_negative = torch.ones_like(negatives, dtype=torch.bool)
    value = neighbor_contrast_loss(z, edges, weight, negatives, is_negative=is_negative)
    assert value.item() == 0
    assert torch.autograd.grad(value, z)[0].abs().max() == 0


def test_a_large_tau_is_no_trouble():
    z, f, negatives = case(torch.float32)
    z.requires_grad_()
    value = feature_contrast_loss(z, f, negatives, tau=1e4)
    assert value.isfinite()
    assert torch.autograd.grad(value, z)[0].isfinite().all()


@pytest.mark.parametrize("tau", [0.0, -1.0, math.inf, math.nan])
def test_a_tau_that_is_not_above_zero_is_refused(tau):
    z, f, negatives = case()
    edges, weight, is_negative = graph()
    with pytest.raises(ConfigError, match="tau"):
        feature_contrast_loss(z, f, negatives, tau=tau)
    with pytest.raises(ConfigError, match="tau"):
        neighbor_contrast_loss(z, edges, weight, negatives, is_negative=is_negative, tau=tau)
    with pytest.raises(ConfigError, match="tau"):
        prototype_contrast_loss(z, f[:3], negatives[:, 0] % 3, tau=tau)
