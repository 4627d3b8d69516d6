import math

import pytest
import scipy.sparse as sp
import torch
from torch.autograd import gradcheck
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils._python_dispatch import TorchDispatchMode

from pamc.losses.reconstruction import edge_reconstruction_loss, feature_reconstruction, sampled_edge_loss
from pamc.models.loader import SparseBlock
from pamc.ops.torch.rows import csr_tensor
from tests.tolerances import assert_gradient, assert_value

CPU = torch.device("cpu")


def csr(dense):
    """Return the entries of a dense matrix as a CSR tensor whose values say nothing."""
    return csr_tensor(7 * sp.csr_matrix(dense.numpy()), device=CPU, dtype=torch.float32)


def graph(n_nodes, *, degree=4, seed=0):
    """Return A + I (dense, 0 and 1) of a random graph whose first node has no neighbor."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(min(1, n_nodes - 1), n_nodes, (2, degree * n_nodes // 2), generator=generator)
    dense = torch.eye(n_nodes, dtype=torch.float64)
    dense[edges[0], edges[1]] = dense[edges[1], edges[0]] = 1
    return dense


def embedding(n_nodes, n_dims, *, scale=1.0, seed=1, dtype=torch.float64):
    z = torch.randn(n_nodes, n_dims, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale
    z[n_nodes // 2] = 0
    return z.to(dtype).requires_grad_()


def program(z, target):
    """Return the loss as the program of Kipf and Welling has it, over a dense zzᵀ."""
    n_nodes = len(z)
    n_edges = float(target.sum()) - n_nodes
    weight = torch.tensor((n_nodes**2 - n_edges) / n_edges, dtype=torch.float64)
    entropy = binary_cross_entropy_with_logits(z @ z.T, target, pos_weight=weight)
    return n_nodes**2 / (2 * (n_nodes**2 - n_edges)) * entropy


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n_nodes", "n_dims", "scale"), [(2, 1, 1.0), (41, 10, 0.1), (41, 1, 3.0), (401, 16, 1.0)])
def test_the_edge_loss_is_that_of_the_program_in_value_and_gradient(n_nodes, n_dims, scale, dtype):
    target = graph(n_nodes) if n_nodes > 2 else torch.ones(2, 2, dtype=torch.float64)
    z = embedding(n_nodes, n_dims, scale=scale, dtype=dtype)
    exact = z.detach().double().requires_grad_()
    value, expected = edge_reconstruction_loss(z, csr(target)), program(exact, target)
    assert value.dtype == dtype
    assert_value(value, expected, dtype=dtype)
    gradient, expected_gradient = torch.autograd.grad(3 * value, z)[0], torch.autograd.grad(3 * expected, exact)[0]
    assert_gradient(gradient, expected_gradient, dtype=dtype)


def test_the_edge_loss_is_a_sum_over_pairs():
    target, z = graph(9), embedding(9, 3)
    n_edges = int(target.sum()) - 9
    total = 0.0
    for i in range(9):
        for j in range(9):
            score = sum(a * b for a, b in zip(z[i].tolist(), z[j].tolist(), strict=True))
            if target[i, j]:
                total += math.log1p(math.exp(-score)) / (2 * n_edges)
            else:
                total += math.log1p(math.exp(score)) / (2 * (81 - n_edges))
    assert_value(edge_reconstruction_loss(z, csr(target)), total)


def test_every_size_of_block_gives_the_same_value_and_gradient():
    target, z = graph(13), embedding(13, 3)
    expected = program(z, target)
    expected_gradient = torch.autograd.grad(expected, z)[0]
    for n_rows in range(1, 15):
        value = edge_reconstruction_loss(z, csr(target), n_rows=n_rows)
        assert_value(value, expected)
        assert_gradient(torch.autograd.grad(value, z)[0], expected_gradient)


def test_the_edge_loss_passes_gradcheck():
    pattern, z = csr(graph(7)), embedding(7, 3)
    assert gradcheck(lambda z: edge_reconstruction_loss(z, pattern, n_rows=3), z)


class LargestTensor(TorchDispatchMode):
    n_elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for item in result if isinstance(result, list | tuple) else [result]:
            if isinstance(item, torch.Tensor) and item.layout == torch.strided:
                self.n_elements = max(self.n_elements, item.numel())
        return result


def test_no_tensor_of_all_pairs_is_held():
    z, pattern = embedding(2000, 4, dtype=torch.float32), csr(graph(2000))
    with LargestTensor() as seen:
        edge_reconstruction_loss(z, pattern, n_rows=64).backward()
    assert 2000 * 64 <= seen.n_elements <= 2100 * 64
    with LargestTensor() as seen:
        edge_reconstruction_loss(z, pattern)
    assert 2000 * 64 < seen.n_elements <= 1 << 20


def test_extreme_scores_neither_overflow_nor_lose_their_gradient():
    # Two pairs of twins: scores of 10^6 within a pair, −10^6 between pairs.
    z = torch.tensor([[1e3], [1e3], [-1e3], [-1e3]], requires_grad=True)
    twins = torch.block_diag(torch.ones(2, 2), torch.ones(2, 2))
    assert edge_reconstruction_loss(z, csr(twins)) == 0
    # Without edges, the four pairs of different twins are wrong by 10^6 each.
    strangers = torch.eye(4)
    value = edge_reconstruction_loss(z, csr(strangers))
    assert value.item() == pytest.approx(4 * 1e6 / (2 * 12), rel=1e-6)
    assert torch.autograd.grad(value, z)[0][0, 0].item() == pytest.approx(2 * 1e3 / (2 * 12), rel=1e-6)


def test_a_graph_without_edges_has_a_loss_of_its_self_loops():
    z = embedding(5, 2)
    scores = z @ z.T
    off = scores[~torch.eye(5, dtype=torch.bool)]
    expected = torch.log1p(torch.exp(-scores.diagonal())).sum() / 10 + torch.log1p(torch.exp(off)).sum() / 40
    assert_value(edge_reconstruction_loss(z, csr(torch.eye(5))), expected)
    one = torch.ones(1, 1, requires_grad=True)
    assert edge_reconstruction_loss(one, csr(torch.eye(1))).item() == pytest.approx(math.log1p(math.exp(-1)) / 2)


def test_a_nan_in_z_is_a_nan_in_the_loss():
    z = torch.full((3, 1), math.nan)
    assert edge_reconstruction_loss(z, csr(torch.eye(3))).isnan()


def test_the_edge_loss_is_the_same_bits_for_any_number_of_threads():
    z, pattern = embedding(1500, 16, dtype=torch.float32), csr(graph(1500))
    n_threads = torch.get_num_threads()
    results = []
    try:
        for n in (1, 2, 4):
            torch.set_num_threads(n)
            value = edge_reconstruction_loss(z, pattern)
            results.append((value.detach(), torch.autograd.grad(value, z)[0]))
    finally:
        torch.set_num_threads(n_threads)
    for value, gradient in results[1:]:
        assert torch.equal(value, results[0][0])
        assert torch.equal(gradient, results[0][1])


def test_the_sampled_loss_is_the_exact_one_on_average():
    target, z = graph(400, degree=6), embedding(400, 4, scale=0.7)
    pattern = csr(target)
    exact = edge_reconstruction_loss(z, pattern)
    exact_gradient = torch.autograd.grad(exact, z)[0]
    values, gradients = [], []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for _ in range(400):
            value = sampled_edge_loss(z, pattern)
            values.append(value.detach())
            gradients.append(torch.autograd.grad(value, z)[0])
    values = torch.stack(values)
    assert values.std() > 1e-4
    # Edges among the drawn pairs: a share of 2 % of a term of about 0.4.
    assert values.mean().item() == pytest.approx(exact.item(), abs=4 * values.std().item() / 20 + 0.01)
    mean = torch.stack(gradients).mean(dim=0)
    assert torch.cosine_similarity(mean.flatten(), exact_gradient.flatten(), dim=0) > 0.98


def test_the_sampled_loss_draws_from_torchs_global_generator_anew_in_each_call():
    z, pattern = embedding(41, 3), csr(graph(41))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first, second = sampled_edge_loss(z, pattern), sampled_edge_loss(z, pattern)
        torch.manual_seed(3)
        again = sampled_edge_loss(z, pattern)
    assert first == again
    assert first != second


def test_the_positive_term_of_the_sampled_loss_has_every_edge():
    target = graph(41)
    # All scores are 4: whichever pairs are drawn, a negative adds log(1 + e⁴).
    z = torch.full((41, 1), 2.0, dtype=torch.float64)
    n_entries = int(target.sum())
    expected = n_entries / (n_entries - 41) * math.log1p(math.exp(-4)) + math.log1p(math.exp(4))
    assert_value(sampled_edge_loss(z, csr(target)), expected / 2)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n_extra", [0, 5])
def test_the_feature_loss_is_summed_over_rows_and_averaged_over_features(sparse, n_extra):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(11 + n_extra, 6, generator=generator, dtype=torch.float64)
    x[x.abs() < 1] = 0
    decoded = torch.randn(11, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    rows = sp.csr_matrix(x.numpy())
    block = SparseBlock.from_scipy(rows, device=CPU, dtype=torch.float64) if sparse else x
    total = sum((decoded[i, f].item() - x[i, f].item()) ** 2 / 6 for i in range(11) for f in range(6))
    value = feature_reconstruction(decoded, block)
    assert_value(value, total)
    assert_gradient(torch.autograd.grad(value, decoded)[0], (decoded - x[:11]) * 2 / 6)
    assert gradcheck(lambda decoded: feature_reconstruction(decoded, block), decoded)


def test_the_feature_loss_of_chunks_adds_up():
    x, decoded = torch.randn(2, 41, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parts = sum(feature_reconstruction(decoded[i : i + 10], x[i : i + 10]) for i in range(0, 41, 10))
    assert_value(parts, feature_reconstruction(decoded, x))
