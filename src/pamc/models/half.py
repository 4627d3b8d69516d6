"""The MLP of rows in half precision: half the memory traffic of float32, and products at the rate of tensor cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pamc.models.products import aligned
from pamc.ops.dispatch import is_narrow, relu_backward, relu_linear_backward
from pamc.ops.torch.rows import column_sums

__all__ = ["HALF_TYPES", "half_chain"]

HALF_TYPES = (torch.bfloat16, torch.float16)


def half_chain(x: Tensor, layers: Sequence[Tensor]) -> Tensor:
    """Return what the layers, W (n_out, n_in) and b (n_out,) in turn with a ReLU between them, make of x (n, n_in).

    Weights and biases stay in float32 and are rounded to the type of x for its products. What stands between layers is
    stored in that type; sums, the result and the gradients of weights and biases are float32. Rows get no gradient.
    """
    result: Tensor = _HalfChain.apply(x, *layers)  # type: ignore[no-untyped-call]
    return result


class _HalfChain(torch.autograd.Function):
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
        slope, grad_bias = grad.to(weights[0].dtype), column_sums(grad)
        grads: list[Tensor] = []
        for number in range(n_layers - 1, -1, -1):
            below, weight, (n_out, n_in) = inputs.pop(), weights[number], ctx.sizes[number]
            if number > 0 and is_narrow(slope):
                slope, below_bias, grad_weight, _ = relu_linear_backward(slope, weight[:n_out], below)
                grads = [grad_weight[:, :n_in].contiguous(), grad_bias[:n_out], *grads]
                grad_bias = below_bias
                continue
            slope = aligned(slope)
            grad_weight = _summed_in_float32(slope.T, below)[:n_out, :n_in].contiguous()
            grads = [grad_weight, grad_bias[:n_out].float(), *grads]
            if number > 0:
                slope, grad_bias = relu_backward(slope @ weight, below)
        return None, *grads


def _rectified(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the ReLU of x @ weight + bias, on a GPU in the last step of the product itself."""
    if x.device.type == "cuda":
        return torch._addmm_activation(bias, x, weight)
    return torch.addmm(bias, x, weight).relu_()


def _summed_in_float32(x: Tensor, y: Tensor) -> Tensor:
    """Return x @ y in float32, of factors in half precision."""
    if x.device.type == "cuda":
        return torch.mm(x, y, out_dtype=torch.float32)
    return x.float() @ y.float()
