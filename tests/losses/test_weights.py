"""A row of weight w counts as w rows: repeated rows ⇐ weighted reference ⇐ weighted torch, in value and gradient."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from pamc.config import FitConfig
from pamc.graph.influence import influence, positive_pairs, repeated_pairs
from pamc.losses.pamc import pamc_terms
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.ops import reference
from pamc.ops.torch import clustering
from tests.awkward import awkward_case
from tests.tolerances import assert_gradient, assert_value

N_NODES = 23
WEIGHTS = torch.tensor([1, 3, 0, 2, 1, 4, 1, 2, 0, 1, 5, 1, 2, 1, 1, 3, 1, 2, 1, 1, 2, 1, 1], dtype=torch.float64)
REAL = WEIGHTS * 0.7 + 0.1 * (WEIGHTS > 0)
OWN = [0.0, 1.0]
OPTIONS = [(proxy, self_edges) for proxy in ("eq2", "eq6") for self_edges in ("drop", "keep")]


def graph(own, seed=0):
    """Return a symmetric graph with an isolated node; `own` joins copies of a row."""
    rng = np.random.default_rng(seed)
    half = np.triu(rng.random((N_NODES, N_NODES)) * (rng.random((N_NODES, N_NODES)) < 0.15), 1)
    half[0] = half[:, 0] = 0
    return sp.csr_matrix(half + half.T + own * np.eye(N_NODES))


def repeated_graph(adjacency, origin):
    """Return the graph of all copies, written as a loop over pairs of copies."""
    dense = adjacency.toarray()
    copies = np.zeros((len(origin), len(origin)))
    for a, i in enumerate(origin):
        for b, j in enumerate(origin):
            copies[a, b] = dense[i, j] if a != b else 0.0
    return sp.csr_matrix(copies)


def rows(n_dims=5, n_clusters=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(N_NODES, n_dims, generator=generator, dtype=torch.float64)
    centers = torch.randn(n_clusters, n_dims, generator=generator, dtype=torch.float64)
    return z.to(dtype), centers.to(dtype)


def dense(pairs):
    """Return Γ (N, N) with the weight of a copy on itself in the diagonal, and κ (N,)."""
    gamma = torch.diag(pairs.log_self_weight.double().exp())
    gamma[pairs.rows, pairs.indices] = pairs.log_weight.double().exp()
    return gamma, pairs.log_copy_weight.double().exp()


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("n_hops", [1, 2, 3])
def test_the_pairs_of_weighted_rows_are_sums_over_the_copies(own, n_hops):
    adjacency, origin = graph(own), np.repeat(np.arange(N_NODES), WEIGHTS.int().numpy())
    of_copies = influence(repeated_graph(adjacency, origin), n_hops=n_hops).toarray()
    gamma, copies = dense(repeated_pairs(adjacency, WEIGHTS.numpy(), n_hops=n_hops, dtype=torch.float64)[0])
    for a, i in enumerate(origin):
        for j in range(N_NODES):
            others = (origin == j) & (np.arange(len(origin)) != a)
            expected = of_copies[a, others].sum()
            assert_value(copies[i] if i == j else gamma[i, j], expected)
        assert_value(gamma[i, i], of_copies[a, a])


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("meta_assignment", ["hard", "soft", "soft_detached"])
@pytest.mark.parametrize(("proxy", "self_edges"), OPTIONS)
def test_the_weighted_reference_is_the_reference_of_repeated_rows(own, meta_assignment, proxy, self_edges):
    adjacency, origin = graph(own), torch.repeat_interleave(torch.arange(N_NODES), WEIGHTS.int())
    options = {"alpha": 1.3, "beta": 2.1, "tau": 0.7, "eta": 1.5, "meta_assignment": meta_assignment}
    options |= {"proxy": proxy, "self_edges": self_edges}
    gamma, copies = dense(repeated_pairs(adjacency, WEIGHTS.numpy(), n_hops=2, dtype=torch.float64)[0])
    of_copies = torch.from_numpy(influence(repeated_graph(adjacency, origin.numpy()), n_hops=2).toarray())
    for reduction in ("sum", "mean"):
        z, centers = (part.requires_grad_() for part in rows())
        weights = {"sample_weight": WEIGHTS, "copy_weight": copies}
        weighted = reference.objective(z, centers, gamma, **options, kl_reduction=reduction, **weights)
        plain = reference.objective(z[origin], centers, of_copies, **options, kl_reduction=reduction)
        assert_value(weighted, plain)
        for actual, expected in zip(*(torch.autograd.grad(x, (z, centers)) for x in (weighted, plain)), strict=True):
            assert_gradient(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("weights", [WEIGHTS, REAL], ids=["integer", "real"])
@pytest.mark.parametrize("meta_assignment", ["hard", "soft", "soft_detached"])
@pytest.mark.parametrize(("proxy", "self_edges"), OPTIONS)
def test_the_weighted_objective_is_that_of_the_reference(dtype, weights, meta_assignment, proxy, self_edges):
    settings = {"alpha": 1.3, "beta": 2.1, "tau": 0.7, "eta": 1.5, "proxy": proxy, "self_edges": self_edges}
    config = FitConfig(**settings, meta_assignment=meta_assignment)
    pairs = repeated_pairs(graph(1.0), weights.numpy(), n_hops=2, dtype=dtype)[0]
    z, centers = rows(dtype=dtype)
    model = PamCGCModel(torch.nn.Identity(), centers, pairs, config, sample_weight=weights.to(dtype))
    z.requires_grad_()
    actual = model.objective(z)
    gamma, copies = dense(repeated_pairs(graph(1.0), weights.numpy(), n_hops=2, dtype=torch.float64)[0])
    double, wide = z.detach().double().requires_grad_(), centers.double().requires_grad_()
    options = {**settings, "meta_assignment": meta_assignment, "kl_reduction": config.kl_reduction}
    expected = reference.objective(double, wide, gamma, **options, sample_weight=weights, copy_weight=copies)
    assert_value(actual.total, expected, dtype=dtype)
    gradients = torch.autograd.grad(actual.total, (z, model.centers))
    for one, other in zip(gradients, torch.autograd.grad(expected, (double, wide)), strict=True):
        assert_gradient(one, other, dtype=dtype)
    assert all(torch.isfinite(value) for value in actual.monitors.values())


def test_self_training_in_blocks_weights_rows_as_in_one_piece(monkeypatch):
    z, centers = rows()
    results = []
    for size in (1 << 22, 20):
        monkeypatch.setattr(clustering, "_NUMBERS_PER_BLOCK", size)
        of_z, of_centers = z.clone().requires_grad_(), centers.clone().requires_grad_()
        value, labels = clustering.self_training(of_z, of_centers, eta=1.0, sample_weight=REAL)
        results.append((value, labels, *torch.autograd.grad(value, (of_z, of_centers))))
    assert_value(results[1][0], results[0][0])
    assert torch.equal(results[1][1], results[0][1])
    for part in (2, 3):
        assert_gradient(results[1][part], results[0][part])


def test_weights_of_one_leave_the_terms_as_they_are():
    case = awkward_case()
    options = {"tau": 0.5, "n_clusters": case.n_clusters, "trusted": True}
    plain = pamc_terms(case.z, case.pairs, case.labels, **options)
    ones = pamc_terms(case.z, case.pairs, case.labels, **options, sample_weight=torch.ones(len(case.z)).double())
    for name in ("positive", "proxy", "alignment", "meta_nodes", "mass"):
        assert_value(getattr(ones, name), getattr(plain, name))


def test_without_weights_the_pairs_are_those_of_the_graph():
    ones = repeated_pairs(graph(0.0), np.ones(N_NODES), n_hops=2)[0]
    plain = positive_pairs(graph(0.0), n_hops=2)[0]
    assert torch.equal(ones.indices, plain.indices)
    assert_value(ones.log_weight.exp(), plain.log_weight.exp(), dtype=torch.float32)
    assert (ones.log_copy_weight == -torch.inf).all()
