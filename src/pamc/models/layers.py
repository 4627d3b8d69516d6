"""Layers: linear maps with gradients summed in a fixed order, MLP, autoencoder, graph convolutions."""

from __future__ import annotations

import math
from collections.abc import MutableMapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import relu
from torch.utils.weak import WeakIdKeyDictionary

from pamc.graph.adjacency import Adjacency, symmetric_normalize, with_self_loops
from pamc.models.loader import SparseBlock
from pamc.models.products import aligned, column_product, row_product
from pamc.ops.dispatch import is_narrow, narrow_product, relu_backward, relu_linear_backward
from pamc.ops.torch.rows import column_sums, csr_tensor

_HALF_TYPES = (torch.bfloat16, torch.float16)

# Padded copies of rows, by the original rows.
_ALIGNED: MutableMapping[Tensor, tuple[int, Tensor]] = WeakIdKeyDictionary()


class _Chain(torch.autograd.Function):
    """Linear maps x Wᵀ + b with a ReLU between them; bitwise equal on a CPU for any number of threads.

    For each layer, the backward pass computes the gradient of the weights and then, in one step, that of the output
    below, masked by its ReLU, and its column sums, which are the gradient of the bias below. A gradient and its masked
    copy are therefore never in memory together. A narrow layer on a GPU does all of this in one pass. The first layer
    may take sparse rows, in O(nnz · n_out) time, whose transposed copy gives the gradient of its weights.

    `layers` contains W (n_out, n_in) and b (n_out,) of each layer in turn.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor | SparseBlock, rectified: bool, tensor_cores: bool, *layers: Tensor) -> Tensor:
        weights, biases = layers[::2], layers[1::2]
        # On a GPU, inputs and outputs of layers stay padded with zero columns until the end.
        inputs: list[Any] = [x if isinstance(x, SparseBlock) else _aligned_once(x)]
        for number, (weight, bias) in enumerate(zip(weights, biases, strict=True), start=1):
            has_relu = rectified or number < len(weights)
            inputs.append(_mapped(inputs[-1], weight, bias, rectified=has_relu, tensor_cores=tensor_cores))
        ctx.rectified, ctx.tensor_cores = rectified, tensor_cores
        ctx.rows = x if isinstance(x, SparseBlock) else None
        activations = inputs[1:] if rectified else inputs[1:-1]
        ctx.save_for_backward(*([] if isinstance(x, SparseBlock) else inputs[:1]), *activations, *weights)
        ctx.n_layers = len(weights)
        y: Tensor = inputs[-1]
        return y[:, : len(weights[-1])]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved, cores = ctx.saved_tensors, ctx.tensor_cores
        weights, inputs = saved[-ctx.n_layers :], list(saved[: -ctx.n_layers])
        if ctx.rows is not None:
            inputs.insert(0, ctx.rows)
        grad_bias: Tensor | None = None
        if ctx.rectified:
            grad, grad_bias = relu_backward(aligned(grad), inputs.pop())
        grads: list[Tensor] = []
        for number in range(ctx.n_layers - 1, -1, -1):
            below, weight = inputs.pop(), weights[number]
            n_out, n_in = weight.shape
            if number > 0 and cores and is_narrow(grad):
                grad, below_bias, *layer_grads = relu_linear_backward(grad, weight, below)
                grads, grad_bias = [*layer_grads, *grads], below_bias
                continue
            grad = aligned(grad)
            grad_bias = column_sums(grad) if grad_bias is None else grad_bias
            grads = [_weight_gradient(grad, below, weight, tensor_cores=cores), grad_bias[:n_out], *grads]
            if number > 0:
                grad = row_product(grad, aligned(weight, rows=True), tensor_cores=cores)
                grad, grad_bias = relu_backward(grad, below)
            elif ctx.needs_input_grad[0]:
                grad = row_product(grad, aligned(weight, rows=True), tensor_cores=cores)[:, :n_in]
        return grad if ctx.needs_input_grad[0] else None, None, None, *grads


def _aligned_once(x: Tensor) -> Tensor:
    """Return x padded. The padded copy of a constant x is cached for as long as x exists, and reused in every epoch."""
    if x.requires_grad or x.is_inference():
        return aligned(x)
    version, padded = _ALIGNED.get(x, (-1, x))
    if version != x._version:
        padded = aligned(x)
        # Neither x itself is cached, which would then never be freed, nor a tensor that a replayed CUDA graph fills.
        if padded is not x and not (x.is_cuda and torch.cuda.is_current_stream_capturing()):
            _ALIGNED[x] = (x._version, padded)
    return padded


def _mapped(x: Tensor | SparseBlock, weight: Tensor, bias: Tensor, *, rectified: bool, tensor_cores: bool) -> Tensor:
    """Return x Wᵀ + b, followed by a ReLU if `rectified`."""
    if isinstance(x, SparseBlock):
        y = torch.addmm(bias, x.matrix, weight.T.contiguous())
        return aligned(y.relu_() if rectified else y)
    if tensor_cores and not rectified and is_narrow(weight.T):
        return narrow_product(x, weight, bias)
    padded = aligned(weight, rows=True).T
    return row_product(x, padded, aligned(bias), rectified=rectified, tensor_cores=tensor_cores)


def _weight_gradient(grad: Tensor, below: Tensor | SparseBlock, weight: Tensor, *, tensor_cores: bool) -> Tensor:
    """Return gradᵀ x, (n_out, n_in), where x is the input of the layer."""
    n_out, n_in = weight.shape
    if isinstance(below, SparseBlock):
        return (below.transposed @ grad[:, :n_out].contiguous()).T.contiguous()
    return column_product(grad, below, tensor_cores=tensor_cores)[:n_out, :n_in].contiguous()


def _chain(x: Tensor | SparseBlock, layers: Sequence[Linear], *, rectified: bool, tensor_cores: bool) -> Tensor:
    """Return the output of the layers, with a ReLU between them and, if `rectified`, after the last one."""
    weights = [values for layer in layers for values in (layer.weight, layer.bias)]
    result: Tensor
    if isinstance(x, Tensor) and x.dtype in _HALF_TYPES and not rectified:
        result = _HalfChain.apply(x, *weights)  # type: ignore[no-untyped-call]
    else:
        result = _Chain.apply(x, rectified, tensor_cores, *weights)  # type: ignore[no-untyped-call]
    return result


class _HalfChain(torch.autograd.Function):
    """The same maps for rows x (n, n_in) in half precision, which receive no gradient.

    Weights and biases stay in float32 and are rounded to the dtype of x for its products. Hidden activations are stored
    in that dtype; sums, the result and the gradients of weights and biases are float32.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, *layers: Tensor) -> Tensor:
        weights = [aligned(weight.to(x.dtype), rows=True) for weight in layers[::2]]
        biases = layers[1::2]
        inputs = [aligned(x)]
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            inputs.append(_rectified(inputs[-1], weight.T, aligned(bias.to(x.dtype))))
        ctx.save_for_backward(*inputs, *weights)
        ctx.sizes = [weight.shape for weight in layers[::2]]
        n_out = len(biases[-1])
        return _summed_in_float32(inputs[-1], weights[-1].T)[:, :n_out] + biases[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        n_layers = len(ctx.sizes)
        inputs, weights = list(ctx.saved_tensors[:n_layers]), ctx.saved_tensors[n_layers:]
        half_grad, grad_bias = grad.to(weights[0].dtype), column_sums(grad)
        grads: list[Tensor] = []
        for number in range(n_layers - 1, -1, -1):
            below, weight, (n_out, n_in) = inputs.pop(), weights[number], ctx.sizes[number]
            if number > 0 and is_narrow(half_grad):
                half_grad, below_bias, grad_weight, _ = relu_linear_backward(half_grad, weight[:n_out], below)
                grads = [grad_weight[:, :n_in].contiguous(), grad_bias[:n_out], *grads]
                grad_bias = below_bias
                continue
            half_grad = aligned(half_grad)
            grad_weight = _summed_in_float32(half_grad.T, below)[:n_out, :n_in].contiguous()
            grads = [grad_weight, grad_bias[:n_out].float(), *grads]
            if number > 0:
                half_grad, grad_bias = relu_backward(half_grad @ weight, below)
        return None, *grads


def _rectified(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the ReLU of x @ weight + bias, fused into the product on a GPU."""
    if x.device.type == "cuda":
        return torch._addmm_activation(bias, x, weight)
    return torch.addmm(bias, x, weight).relu_()


def _summed_in_float32(x: Tensor, y: Tensor) -> Tensor:
    """Return x @ y in float32, for factors in half precision."""
    if x.device.type == "cuda":
        return torch.mm(x, y, out_dtype=torch.float32)
    return x.float() @ y.float()


class Linear(nn.Module):
    """The linear map x Wᵀ + b.

    Parameters
    ----------
    n_in, n_out
        Input and output sizes.
    generator
        Random generator of the initial weights, which are uniform on ±1/√n_in, as in `nn.Linear`.
    rectified
        Whether a ReLU follows, which is fused into the map without a separate pass or copy.
    tensor_cores
        Whether a GPU may compute dense products in TF32.
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
        self.weight, self.bias = (
            nn.Parameter(torch.empty(shape, dtype=dtype).uniform_(-bound, bound, generator=generator))
            for shape in ((n_out, n_in), n_out)
        )

    @torch.no_grad()
    def redraw_without_bias(self, bound: float, generator: torch.Generator) -> None:
        """Draw new weights, uniform on ±bound, and fix the bias at zero."""
        self.weight.uniform_(-bound, bound, generator=generator)
        self.bias.zero_().requires_grad_(False)

    def forward(self, x: Tensor | SparseBlock) -> Tensor:
        """Return (n, n_out) for (n, n_in) dense or sparse rows."""
        return _chain(x, [self], rectified=self.rectified, tensor_cores=self.tensor_cores)


class MLP(nn.Module):
    """Linear maps with ReLU between them; no layer mixes rows.

    Parameters
    ----------
    sizes
        Input size, hidden sizes, output size. With the input size only, the rows are returned unchanged, as dense.
    generator
        Random generator of the initial weights.
    tensor_cores
        Whether a GPU may compute dense products in TF32.
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
        self.sizes, self.tensor_cores = tuple(sizes), tensor_cores
        last = len(self.sizes) - 1
        self.layers = nn.ModuleList(
            Linear(n_in, n_out, generator=generator, dtype=dtype, rectified=number < last, tensor_cores=tensor_cores)
            for number, (n_in, n_out) in enumerate(pairwise(self.sizes), start=1)
        )

    def forward(self, x: Tensor | SparseBlock) -> Tensor:
        """Return (n, n_out) for (n, n_in) rows."""
        if not self.layers:
            return x.matrix.to_dense() if isinstance(x, SparseBlock) else x
        return _chain(x, list(self.layers), rectified=False, tensor_cores=self.tensor_cores)  # type: ignore[arg-type]


class Autoencoder(nn.Module):
    """An encoder d → hidden → n_dims and its mirrored decoder; it takes the parameters of MLP.

    The paper uses 500-500-2000-10.
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

    def forward(self, x: Tensor | SparseBlock) -> tuple[Tensor, Tensor]:
        """Return the reconstruction (n, d) and the embedding (n, n_dims)."""
        z = self.encoder(x)
        return self.decoder(z), z


def normalized_adjacency(adjacency: Adjacency, *, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return Ã = D^(−1/2)(A + I)D^(−1/2) as an (N, N) CSR tensor, the operator of Kipf and Welling (2017)."""
    return csr_tensor(symmetric_normalize(with_self_loops(adjacency)), device=device, dtype=dtype)


class _Propagation(torch.autograd.Function):
    """S h for a constant symmetric S, whose gradient is S g. O(E·d) time, without an N × N tensor."""

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

    The generator draws the initial weights, uniform on ±√(6/(n_in + n_out)) (Glorot and Bengio 2010).
    """

    def __init__(self, n_in: int, n_out: int, *, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = Linear(n_in, n_out, generator=generator, dtype=dtype)
        self.linear.redraw_without_bias(math.sqrt(6 / (n_in + n_out)), generator)

    def forward(self, x: Tensor | SparseBlock, normalized: Tensor) -> Tensor:
        """Return (N, n_out) for x (N, n_in) and Ã (N, N), a CSR tensor. O(E·n_out + N·n_in·n_out) time."""
        return propagate(normalized, self.linear(x))


class GraphEncoder(nn.Module):
    """Two graph convolutions with ReLU between them, z = Ã relu(Ã X W₀ᵀ) W₁ᵀ, with one or several outputs.

    `outputs` names the second convolutions, which share the hidden layer; saved weights use these names.
    """

    def __init__(
        self,
        n_features: int,
        n_hidden: int,
        n_dims: int,
        *,
        generator: torch.Generator,
        dtype: torch.dtype,
        outputs: Sequence[str] = ("second",),
    ) -> None:
        super().__init__()
        self.first = GraphConvolution(n_features, n_hidden, generator=generator, dtype=dtype)
        self.outputs = tuple(outputs)
        for name in self.outputs:
            self.add_module(name, GraphConvolution(n_hidden, n_dims, generator=generator, dtype=dtype))

    def forward(self, x: Tensor | SparseBlock, normalized: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs, each (N, n_dims), for x (N, d) and Ã (N, N). O(E·n_hidden + N·d·n_hidden) time."""
        h = relu(self.first(x, normalized))
        return tuple(getattr(self, name)(h, normalized) for name in self.outputs)
