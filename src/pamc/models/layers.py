"""Layers: a linear map with gradients summed in a fixed order, the MLP encoder, the autoencoder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, relu

from pamc.models.rows import SparseRows
from pamc.ops.torch_ops import column_sums

__all__ = ["MLP", "Autoencoder", "Linear"]


# A BLAS divides the columns of a product among its threads, and rounds differently where a share is not a whole number
# of vectors. Below this width, and for all widths in float64, columns are filled up to a multiple of 16.
_WIDE = 320
_VECTOR = 16


class _LinearMap(torch.autograd.Function):
    """x Wᵀ + b for dense x; on a CPU the same bits for any number of threads, in value and gradient.

    The gradient of W is a product over all rows. Written narrow-first it would be split over the rows in as many parts
    as there are threads; written wide-first it is not.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        n_out, n_in = weight.shape
        x = _filled(x, columns=n_in)
        ctx.save_for_backward(x, weight)
        filled_bias = _filled(bias[None], columns=n_out)[0]
        return torch.addmm(filled_bias, x, _filled(weight, rows=n_out, columns=n_in).T)[:, :n_out]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        n_out, n_in = weight.shape
        filled = _filled(grad, columns=n_out)
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = (filled @ _filled(weight, rows=n_out, columns=n_in))[:, :n_in]
        grad_weight = (x.T @ filled).T if n_out < n_in else filled.T @ x
        return grad_x, grad_weight[:n_out, :n_in].contiguous(), column_sums(grad)


def _filled(x: Tensor, *, rows: int | None = None, columns: int) -> Tensor:
    """Return x with zero columns, and rows where asked, up to a width that the BLAS divides evenly."""
    if x.device.type != "cpu":
        return x

    def missing(width: int) -> int:
        even = width >= _WIDE and x.dtype == torch.float32
        return 0 if even else -width % _VECTOR

    more_rows = 0 if rows is None else missing(rows)
    more_columns = missing(columns)
    return pad(x, (0, more_columns, 0, more_rows)) if more_rows or more_columns else x


class _SparseLinearMap(torch.autograd.Function):
    """x Wᵀ + b for sparse x, whose transposed copy gives the gradient of W. O(nnz · d_out) time."""

    @staticmethod
    def forward(ctx: Any, rows: SparseRows, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.rows = rows
        return torch.addmm(bias, rows.matrix, weight.T.contiguous())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        return None, (ctx.rows.transposed @ grad.contiguous()).T.contiguous(), column_sums(grad)


class Linear(nn.Module):
    """x Wᵀ + b with weights drawn from a generator of its own.

    Parameters
    ----------
    n_in, n_out
        Sizes.
    generator
        Source of the starting weights, uniform on ±1/√n_in, which is torch's own rule for `nn.Linear`.
    """

    def __init__(self, n_in: int, n_out: int, *, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        bound = max(1, n_in) ** -0.5
        draw = [
            torch.empty(shape, dtype=dtype).uniform_(-bound, bound, generator=generator)
            for shape in ((n_out, n_in), n_out)
        ]
        self.weight, self.bias = (nn.Parameter(values) for values in draw)

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Return (n, n_out) for (n, n_in) dense or sparse rows."""
        function: Any = _SparseLinearMap if isinstance(x, SparseRows) else _LinearMap
        result: Tensor = function.apply(x, self.weight, self.bias)
        return result


class MLP(nn.Module):
    """Linear maps with ReLU between them; no layer mixes rows.

    Parameters
    ----------
    sizes
        Input size, hidden sizes, output size.
    generator
        Source of the starting weights.
    """

    def __init__(self, sizes: Sequence[int], *, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        self.layers = nn.ModuleList(
            Linear(n_in, n_out, generator=generator, dtype=dtype) for n_in, n_out in pairwise(self.sizes)
        )

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Return (n, n_out) for (n, n_in) rows."""
        *inner, last = self.layers
        for layer in inner:
            x = relu(layer(x))
        result: Tensor = last(x)
        return result


class Autoencoder(nn.Module):
    """An encoder d → hidden → n_dims and its mirror image; the paper has 500-500-2000-10.

    Parameters
    ----------
    n_features, hidden, n_dims
        Sizes.
    generator
        Source of the starting weights.
    """

    def __init__(
        self,
        n_features: int,
        hidden: Sequence[int],
        n_dims: int,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        sizes = (n_features, *hidden, n_dims)
        self.encoder = MLP(sizes, generator=generator, dtype=dtype)
        self.decoder = MLP(sizes[::-1], generator=generator, dtype=dtype)

    def forward(self, x: Tensor | SparseRows) -> tuple[Tensor, Tensor]:
        """Return (reconstruction (n, d), embedding (n, n_dims))."""
        z = self.encoder(x)
        return self.decoder(z), z
