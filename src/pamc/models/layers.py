"""Layers: a linear map with gradients summed in a fixed order, the MLP encoder, the autoencoder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import relu

from pamc.models.products import column_product, row_product
from pamc.models.rows import SparseRows
from pamc.ops.torch_ops import column_sums

__all__ = ["MLP", "Autoencoder", "Linear"]


class _LinearMap(torch.autograd.Function):
    """x Wᵀ + b for dense x, with products that are the same bits for any number of threads."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, tensor_cores: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.tensor_cores = tensor_cores
        return row_product(x, weight.T, bias, tensor_cores=tensor_cores)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        cores = ctx.tensor_cores
        grad_x = row_product(grad, weight, tensor_cores=cores) if ctx.needs_input_grad[0] else None
        return grad_x, column_product(grad, x, tensor_cores=cores), column_sums(grad), None


class _SparseLinearMap(torch.autograd.Function):
    """x Wᵀ + b for sparse x, whose transposed copy gives the gradient of W. O(nnz · d_out) time."""

    @staticmethod
    def forward(ctx: Any, rows: SparseRows, weight: Tensor, bias: Tensor, _: bool) -> Tensor:
        ctx.rows = rows
        return torch.addmm(bias, rows.matrix, weight.T.contiguous())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, None]:
        return None, (ctx.rows.transposed @ grad.contiguous()).T.contiguous(), column_sums(grad), None


class Linear(nn.Module):
    """x Wᵀ + b with weights drawn from a generator of its own.

    Parameters
    ----------
    n_in, n_out
        Sizes.
    generator
        Source of the starting weights, uniform on ±1/√n_in, which is torch's own rule for `nn.Linear`.
    tensor_cores
        Let a GPU take dense products in TF32.
    """

    def __init__(
        self, n_in: int, n_out: int, *, generator: torch.Generator, dtype: torch.dtype, tensor_cores: bool = False
    ) -> None:
        super().__init__()
        self.tensor_cores = tensor_cores
        bound = max(1, n_in) ** -0.5
        draw = [
            torch.empty(shape, dtype=dtype).uniform_(-bound, bound, generator=generator)
            for shape in ((n_out, n_in), n_out)
        ]
        self.weight, self.bias = (nn.Parameter(values) for values in draw)

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Return (n, n_out) for (n, n_in) dense or sparse rows."""
        function: Any = _SparseLinearMap if isinstance(x, SparseRows) else _LinearMap
        result: Tensor = function.apply(x, self.weight, self.bias, self.tensor_cores)
        return result


class MLP(nn.Module):
    """Linear maps with ReLU between them; no layer mixes rows.

    Parameters
    ----------
    sizes
        Input size, hidden sizes, output size. With the input size alone the rows are returned as they are, dense.
    generator
        Source of the starting weights.
    tensor_cores
        Let a GPU take dense products in TF32.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        tensor_cores: bool = False,
    ) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        self.layers = nn.ModuleList(
            Linear(n_in, n_out, generator=generator, dtype=dtype, tensor_cores=tensor_cores)
            for n_in, n_out in pairwise(self.sizes)
        )

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Return (n, n_out) for (n, n_in) rows."""
        return self.activations(x)[-1]

    def activations(self, x: Tensor | SparseRows) -> list[Tensor]:
        """Return the output of every layer, hidden ones after their ReLU; the last is what `forward` returns."""
        if not self.layers:
            return [x.matrix.to_dense() if isinstance(x, SparseRows) else x]
        outputs: list[Tensor] = []
        for number, layer in enumerate(self.layers, start=1):
            h = layer(outputs[-1] if outputs else x)
            outputs.append(h if number == len(self.layers) else relu(h))
        return outputs


class Autoencoder(nn.Module):
    """An encoder d → hidden → n_dims and its mirror image; the paper has 500-500-2000-10.

    Parameters
    ----------
    n_features, hidden, n_dims
        Sizes.
    generator, tensor_cores
        As of :class:`MLP`.
    """

    def __init__(
        self,
        n_features: int,
        hidden: Sequence[int],
        n_dims: int,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        tensor_cores: bool = False,
    ) -> None:
        super().__init__()
        sizes = (n_features, *hidden, n_dims)
        self.encoder = MLP(sizes, generator=generator, dtype=dtype, tensor_cores=tensor_cores)
        self.decoder = MLP(sizes[::-1], generator=generator, dtype=dtype, tensor_cores=tensor_cores)

    def forward(self, x: Tensor | SparseRows) -> tuple[Tensor, Tensor]:
        """Return (reconstruction (n, d), embedding (n, n_dims))."""
        z = self.encoder(x)
        return self.decoder(z), z
