"""Graph convolution: sparse products with one symmetric matrix."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pamc.graph.adjacency import Adjacency, symmetric_normalize, with_self_loops
from pamc.models.layers import Linear
from pamc.models.loader import SparseBlock
from pamc.ops.torch.rows import csr_tensor

__all__ = ["GraphConvolution", "normalized_adjacency", "propagate"]


def normalized_adjacency(adjacency: Adjacency, *, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return Ã = D^(−1/2)(A + I)D^(−1/2) as an (N, N) CSR tensor, the operator of Kipf and Welling (2017)."""
    return csr_tensor(symmetric_normalize(with_self_loops(adjacency)), device=device, dtype=dtype)


class _Propagation(torch.autograd.Function):
    """S h for a constant symmetric S: the gradient is S g. O(E·d) time, nothing of size N × N."""

    @staticmethod
    def forward(ctx: Any, symmetric: Tensor, h: Tensor) -> Tensor:
        ctx.symmetric = symmetric
        return symmetric @ h.contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, ctx.symmetric @ grad.contiguous()


def propagate(symmetric: Tensor, h: Tensor) -> Tensor:
    """Return S h (N, d) for a symmetric (N, N) CSR tensor S and dense h (N, d). O(E·d) time."""
    result: Tensor = _Propagation.apply(symmetric, h)  # type: ignore[no-untyped-call]
    return result


class GraphConvolution(nn.Module):
    """One layer ÃXWᵀ of a graph convolutional network, without bias; sparse X stays sparse.

    Parameters
    ----------
    n_in, n_out
        Sizes.
    generator
        Source of the starting weights, uniform on ±√(6/(n_in + n_out)) (Glorot and Bengio 2010).
    """

    def __init__(self, n_in: int, n_out: int, *, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = Linear(n_in, n_out, generator=generator, dtype=dtype)
        bound = math.sqrt(6 / (n_in + n_out))
        with torch.no_grad():
            self.linear.weight.uniform_(-bound, bound, generator=generator)
            self.linear.bias.zero_()
        self.linear.bias.requires_grad_(False)

    def forward(self, x: Tensor | SparseBlock, normalized: Tensor) -> Tensor:
        """Return (N, n_out) for x (N, n_in) and Ã (N, N), a CSR tensor. O(E·n_out + N·n_in·n_out) time."""
        return propagate(normalized, self.linear(x))
