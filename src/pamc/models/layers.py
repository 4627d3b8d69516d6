"""Layers: a linear map with gradients summed in a fixed order, the MLP encoder, the autoencoder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pamc.models.products import aligned, column_product, row_product
from pamc.models.rows import SparseRows
from pamc.ops.slopes import sloped

__all__ = ["MLP", "Autoencoder", "Linear"]


class _LinearMap(torch.autograd.Function):
    """x Wᵀ + b for dense x, cut at 0 where asked for; the same bits for any number of threads."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, rectified: bool, tensor_cores: bool) -> Tensor:
        x, filled = aligned(x), aligned(weight, rows=True)
        y = row_product(x, filled.T, aligned(bias), rectified=rectified, tensor_cores=tensor_cores)
        y = y[:, : len(weight)]
        ctx.save_for_backward(x, weight, *([y] if rectified else []))
        ctx.tensor_cores = tensor_cores
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None]:
        x, weight, *outputs = ctx.saved_tensors
        n_out, n_in = weight.shape
        grad, grad_bias = sloped(grad, *outputs)
        grad = aligned(grad)
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = row_product(grad, aligned(weight, rows=True), tensor_cores=ctx.tensor_cores)[:, :n_in]
        grad_weight = column_product(grad, x, tensor_cores=ctx.tensor_cores)[:n_out, :n_in]
        return grad_x, grad_weight.contiguous(), grad_bias, None, None


class _SparseLinearMap(torch.autograd.Function):
    """The same for sparse x, whose transposed copy gives the gradient of W. O(nnz · d_out) time."""

    @staticmethod
    def forward(ctx: Any, rows: SparseRows, weight: Tensor, bias: Tensor, rectified: bool, _: bool) -> Tensor:
        y = torch.addmm(bias, rows.matrix, weight.T.contiguous())
        y = y.relu_() if rectified else y
        ctx.rows = rows
        ctx.save_for_backward(*([y] if rectified else []))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, None, None]:
        grad, grad_bias = sloped(grad, *ctx.saved_tensors)
        return None, (ctx.rows.transposed @ grad.contiguous()).T.contiguous(), grad_bias, None, None


class Linear(nn.Module):
    """x Wᵀ + b with weights drawn from a generator of its own.

    Parameters
    ----------
    n_in, n_out
        Sizes.
    generator
        Source of the starting weights, uniform on ±1/√n_in, which is torch's own rule for `nn.Linear`.
    rectified
        Whether a ReLU follows: it is part of the map, and costs neither a pass of its own nor a copy.
    tensor_cores
        Let a GPU take dense products in TF32.
    """

    def __init__(
        self,
        n_in: int,
        n_out: int,
        *,
        generator: torch.Generator,
        dtype: torch.dtype,
        rectified: bool = False,
        tensor_cores: bool = False,
    ) -> None:
        super().__init__()
        self.rectified, self.tensor_cores = rectified, tensor_cores
        bound = max(1, n_in) ** -0.5
        draw = [
            torch.empty(shape, dtype=dtype).uniform_(-bound, bound, generator=generator)
            for shape in ((n_out, n_in), n_out)
        ]
        self.weight, self.bias = (nn.Parameter(values) for values in draw)

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Return (n, n_out) for (n, n_in) dense or sparse rows."""
        function: Any = _SparseLinearMap if isinstance(x, SparseRows) else _LinearMap
        result: Tensor = function.apply(x, self.weight, self.bias, self.rectified, self.tensor_cores)
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
        last = len(self.sizes) - 1
        self.layers = nn.ModuleList(
            Linear(n_in, n_out, generator=generator, dtype=dtype, rectified=number < last, tensor_cores=tensor_cores)
            for number, (n_in, n_out) in enumerate(pairwise(self.sizes), start=1)
        )

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Return (n, n_out) for (n, n_in) rows."""
        return self.activations(x)[-1]

    def activations(self, x: Tensor | SparseRows) -> list[Tensor]:
        """Return the output of every layer, hidden ones after their ReLU; the last is what `forward` returns."""
        if not self.layers:
            return [x.matrix.to_dense() if isinstance(x, SparseRows) else x]
        outputs: list[Tensor] = []
        for layer in self.layers:
            outputs.append(layer(outputs[-1] if outputs else x))
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
