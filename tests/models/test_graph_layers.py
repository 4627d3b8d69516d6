import numpy as np
import pytest
import scipy.sparse as sp
import torch

from pamc.data.synthetic import block_model
from pamc.graph.adjacency import build_adjacency
from pamc.models.layers import GraphConvolution, normalized_adjacency, propagate
from pamc.models.loader import SparseBlock
from pamc.runtime import generator

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def adjacency():
    graph = block_model(41, 3, degree=4, random_state=0)
    return build_adjacency(graph.edges, n_nodes=41)


def dense_operator(adjacency):
    looped = adjacency.toarray() + np.eye(adjacency.shape[0])
    root = 1 / np.sqrt(looped.sum(axis=1))
    return torch.from_numpy(root[:, None] * looped * root[None, :])


def test_the_operator_is_the_symmetric_normalization_with_self_loops(adjacency):
    sparse = normalized_adjacency(adjacency, device=CPU, dtype=torch.float64)
    assert torch.allclose(sparse.to_dense(), dense_operator(adjacency), atol=1e-15)


def test_propagation_is_the_dense_product_in_value_and_gradient(adjacency):
    sparse, dense = normalized_adjacency(adjacency, device=CPU, dtype=torch.float64), dense_operator(adjacency)
    h = torch.randn(41, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    weight = torch.randn(41, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    value = propagate(sparse, h)
    assert torch.allclose(value, dense @ h, atol=1e-14)
    (grad,) = torch.autograd.grad((value * weight).sum(), h)
    assert torch.allclose(grad, dense.T @ weight, atol=1e-14)


def test_a_layer_takes_sparse_and_dense_rows_and_has_no_trained_bias(adjacency):
    operator = normalized_adjacency(adjacency, device=CPU, dtype=torch.float64)
    layer = GraphConvolution(12, 5, generator=generator(0, "weights"), dtype=torch.float64)
    rows = sp.random(41, 12, density=0.2, random_state=0, format="csr")
    dense = torch.from_numpy(rows.toarray())
    expected = operator.to_dense() @ dense @ layer.linear.weight.T
    assert torch.allclose(layer(dense, operator), expected, atol=1e-13)
    sparse = SparseBlock.from_scipy(rows, device=CPU, dtype=torch.float64)
    assert torch.allclose(layer(sparse, operator), expected, atol=1e-13)
    assert [p.shape for p in layer.parameters() if p.requires_grad] == [(5, 12)]
    assert layer.linear.weight.abs().max() <= (6 / 17) ** 0.5
