"""The exact full-batch gradient, computed in one chunk or in many.

The loss depends on the encoder only through the embedding z, which is small. The exact gradient of the full objective
can therefore be computed chunk by chunk:

1. encode the rows chunk by chunk without recording gradients: z (N, n_dims);
2. compute all loss terms, dL/dz and dL/dcenters from z alone;
3. encode each chunk again with gradients and backpropagate its rows of dL/dz, together with the row-wise terms that
   need the features (reconstruction).

When all rows fit in one chunk, step 3 reuses the autograd graph of step 1: one forward pass per epoch, and nothing is
computed twice. Networks that mix rows along the graph always use one chunk.

In a process group, each process takes these steps with its share of the rows; the objective gathers what it needs from
the others, and the gradients of all processes are summed at the end.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from pamc.models.base import GraphModel, LossTerms, Model
from pamc.models.loader import FeatureLoader, encode_chunk, encode_rows
from pamc.ops.group import ProcessGroup


def accumulate_gradient(model: Model | GraphModel, rows: FeatureLoader, *, chunk_size: int | None = None) -> LossTerms:
    """Return the loss of all rows and add its full-batch gradient to the parameters' `grad`.

    O(N) encoder time (twice that with several chunks); activations are in memory for one chunk at a time. In a process
    group, each process has a share of the rows and labels; loss and gradient are bitwise identical on all ranks.
    """
    if isinstance(model, GraphModel):
        terms = model.loss(rows.whole())
        torch.autograd.backward(terms.total)
        return terms
    terms = _accumulate(model, rows, chunk_size)
    if model.group.size > 1:
        _sum_gradients([p for p in model.parameters() if p.requires_grad], model.group)
    return terms


def _accumulate(model: Model, rows: FeatureLoader, chunk_size: int | None) -> LossTerms:
    if chunk_size is None or chunk_size >= len(rows):
        ((chunk, block),) = rows.chunks(None)
        z = encode_chunk(model.encoder, chunk, block)
        terms = _with_row_loss(model, model.objective(z), model.row_loss(z, block), _n_nodes(model, rows))
        torch.autograd.backward(terms.total)
        return terms
    z = encode_rows(model.encoder, rows, chunk_size=chunk_size).requires_grad_()
    terms = model.objective(z)
    torch.autograd.backward(terms.total)
    gradient = torch.zeros_like(z) if z.grad is None else z.grad
    row_losses = []
    for chunk, block in rows.chunks(chunk_size):
        z_chunk = encode_chunk(model.encoder, chunk, block)
        row_loss = model.row_loss(z_chunk, block)
        if row_loss is None:
            torch.autograd.backward(z_chunk, gradient[chunk])
        else:
            weighted = row_loss * (model.row_weight / _n_nodes(model, rows))
            torch.autograd.backward((z_chunk, weighted), (gradient[chunk], torch.ones_like(weighted)))
            row_losses.append(row_loss.detach())
    total = torch.stack(row_losses).sum() if row_losses else None
    return _with_row_loss(model, terms, total, _n_nodes(model, rows))


def _with_row_loss(model: Model, terms: LossTerms, row_loss: Tensor | None, n_nodes: int) -> LossTerms:
    """Return the terms with the weighted mean of the row-wise loss added, if there is one.

    In a process group, the value is the mean over all rows, and the gradient is the part of this process's rows.
    """
    if row_loss is None:
        return terms
    mean = row_loss / n_nodes
    if model.group.size > 1:
        mean = mean + (model.group.sum(mean.detach()) - mean.detach())
    return dataclasses.replace(
        terms, total=terms.total + model.row_weight * mean, parts={**terms.parts, model.row_term: mean}, numbers=None
    )


def _n_nodes(model: Model, rows: FeatureLoader) -> int:
    """Return the number of rows of all processes."""
    pairs: Any = getattr(model, "pairs", None)
    return len(rows) if model.group.size == 1 else int(pairs.n_nodes)


def _sum_gradients(parameters: list[nn.Parameter], group: ProcessGroup) -> None:
    """Replace the gradients by their sum over all processes, in one collective."""
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    summed = group.sum(torch.cat([gradient.ravel() for gradient in gradients]))
    for parameter, values in zip(parameters, torch.split(summed, [p.numel() for p in parameters]), strict=True):
        parameter.grad = values.view(parameter.shape)
