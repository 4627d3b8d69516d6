"""Minibatch training of encoders, shared by the initializers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pamc.graph.smoothing import Floats, unit_rows
from pamc.initialize.base import InitContext, mean_centers
from pamc.initialize.consensus import Agreed
from pamc.models.layers import MLP
from pamc.models.loader import FeatureLoader, encode_rows
from pamc.ops.cuda_graph import Captured
from pamc.ops.kmeans import Labels
from pamc.ops.torch.adam import fused_adam
from pamc.ops.torch.rows import hidden_values
from pamc.runtime import generator, on_tensor_cores, resolve_dtype, seed_for

# Small data sets use smaller batches, so that an epoch has several steps.
_BATCHES_PER_EPOCH, _LEAST_BATCH = 8, 32

# With so few columns none is redundant, so none is hidden.
_FEW_COLUMNS = 16

# If only the graph has clusters, the encoder must memorize them, because the features do not predict them.
_TIMES_LONGER_BY_HEART = 8

# With fewer rows than this, pre-training runs more epochs to see as many rows, up to this many times longer.
_FEW_ROWS, _MOST_TIMES_LONGER_OF_FEW = 1200, 3


# Share of the squared length of a target that codes the initial cluster; the rest codes the smoothed features.
_CLUSTER_SHARE = 0.5

# An encoder of the smoothed features alone is used if the score of its clusters is at most this much lower than that of
# the initial clusters. The latter is the best of several scores, which makes it too high.
_TOLERANCE = 0.1

# An encoder that has to learn the initial clusters of many rows is fitted for more epochs.
_TIMES_LONGER_FOR_CLUSTERS = 2


def fitted_encoder(
    agreed: Agreed,
    context: InitContext,
    *,
    clustered: FeatureLoader | None = None,
    spread: Callable[[Floats], Floats] = lambda targets: targets,
    by_heart: bool = False,
) -> tuple[MLP, str]:
    """Return an encoder in whose embedding the initial clusters stay apart, and the name of its targets.

    The encoder learns to predict the smoothed features of a row from the row itself. This often improves the clusters,
    because rows at their borders follow their features. But centers in the smoothed features cannot tell all clusters
    apart: one may surround another, or the features may not predict them. If the features have few columns, or if the
    judge scores the encoder's clusters far below the initial ones, the targets also code the initial clusters, and no
    feature is hidden from the encoder.

    Parameters
    ----------
    agreed
        The initial clusters of the clustered rows.
    clustered
        The clustered rows if they are a part of the rows that the encoder is fitted to; None if they are all of them.
    spread
        Maps the targets of the clustered rows to those of all rows.
    by_heart
        Whether the encoder must learn the clusters of individual rows, because features do not predict them.
    """
    config, judge = context.config, agreed.judge
    can_code = config.n_dims > config.n_clusters > 1
    few_columns = context.rows.n_features <= _FEW_COLUMNS
    if not can_code or not (few_columns or by_heart):
        encoder = fitted_to(spread(_unit(agreed.points, config.n_dims)), context)
        if not can_code or judge is None:
            return encoder, "smoothed features"
        rows = context.rows if clustered is None else clustered
        z = encode_rows(encoder, rows, chunk_size=config.chunk_size)
        nearest = torch.cdist(z, mean_centers(z, agreed.labels, config.n_clusters)).argmin(dim=1).cpu().numpy()
        if judge.score(nearest).value >= judge.score(agreed.labels).value - _TOLERANCE:
            return encoder, "smoothed features"
    targets = labeled_targets(agreed.points, agreed.labels, config.n_clusters, config.n_dims)
    times_longer = _TIMES_LONGER_BY_HEART if by_heart else _TIMES_LONGER_FOR_CLUSTERS
    if len(context.rows) < _FEW_ROWS and not by_heart:
        times_longer = 1
    return fitted_to(spread(targets), context, times_longer=times_longer, dropout=0.0), "initial clusters"


def labeled_targets(points: Floats, labels: Labels, n_clusters: int, n_dims: int) -> Floats:
    """Return targets (N, n_dims) of length 1 that code the smoothed features and the initial cluster of each row.

    Clusters of any shape become compact: one coordinate per cluster separates those that the smoothed features do not.

    Parameters
    ----------
    points
        (N, r) smoothed embedding with rows of length 1, leading directions first.
    n_dims
        Number of dimensions, more than clusters.
    """
    code = np.sqrt(_CLUSTER_SHARE) * np.eye(n_clusters)[labels]
    return np.concatenate([np.sqrt(1 - _CLUSTER_SHARE) * _unit(points, n_dims - n_clusters), code], axis=1)


def _unit(points: Floats, n_dims: int) -> Floats:
    """Return the first `n_dims` columns with rows of length 1, with zeros for missing columns."""
    leading = points[:, :n_dims]
    return np.pad(unit_rows(leading), ((0, 0), (0, n_dims - leading.shape[1])))


def fitted_to(
    target: NDArray[np.floating], context: InitContext, *, times_longer: int = 1, dropout: float | None = None
) -> MLP:
    """Return an encoder fitted to (N, n_dims) targets of length 1, then scaled to `embedding_scale`.

    `dropout` replaces the setting `pretrain_dropout`.
    """
    config, rows, dtype = context.config, context.rows, resolve_dtype(context.config.precision)
    encoder = MLP(
        (rows.n_features, *config.hidden, config.n_dims),
        generator=generator(context.seed, "weights"),
        dtype=dtype,
        tensor_cores=on_tensor_cores(config.precision),
    ).to(rows.device)
    targets = torch.from_numpy(target).to(device=rows.device, dtype=dtype)

    share = config.pretrain_dropout if dropout is None else dropout
    step = torch.zeros((), dtype=torch.int64, device=rows.device)
    seed = seed_for(context.seed, "hidden features")

    def distance_to_target(batch: Tensor) -> Tensor:
        x = rows.dense_batch(batch)
        if share > 0:
            # As in dropout, the remaining values are scaled up.
            hidden = hidden_values(step, batch, x.shape[1], share=share, seed=seed)
            x = x.masked_fill(hidden, 0.0) / (1 - share)
            step.add_(1)
        return mean_squared(encoder(x) - targets[batch])

    n_nodes = len(rows)
    size = min(config.batch_size, max(_LEAST_BATCH, -(-n_nodes // _BATCHES_PER_EPOCH)))
    # With few rows and few passes, clusters would depend on the random dropout and row order.
    few = min(_MOST_TIMES_LONGER_OF_FEW, max(1, -(-_FEW_ROWS // n_nodes)))
    fit_batches(encoder, distance_to_target, context, times_longer=few * times_longer, batch_size=size)
    with torch.no_grad():
        for parameter in encoder.layers[-1].parameters():
            parameter.mul_(config.embedding_scale)
    return encoder


def fit_batches(
    module: nn.Module,
    error: Callable[[Tensor], Tensor],
    context: InitContext,
    *,
    times_longer: int = 1,
    batch_size: int | None = None,
) -> None:
    """Minimize with Adam the error of random batches of rows; `error` receives the indices of the rows of a batch.

    On a GPU, a step on a full batch is captured once as a CUDA graph and replayed.
    """
    config, rows = context.config, context.rows
    batch_size = min(batch_size or config.batch_size, len(rows))
    optimizer = fused_adam(list(module.parameters()), lr=config.pretrain_lr)
    batch = torch.zeros(batch_size, dtype=torch.int64, device=rows.device)

    def step(indices: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = error(indices)
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.detach()

    full_step = Captured(lambda: step(batch), device=rows.device, enabled=rows.holds_batches)
    order = np.random.default_rng(seed_for(context.seed, "row order"))
    n_epochs = times_longer * config.pretrain_epochs
    try:
        with context.progress.phase("pre-training", n_epochs) as phase:
            for _ in range(n_epochs):
                shuffled = torch.from_numpy(order.permutation(len(rows))).to(rows.device)
                losses = []
                for indices in torch.split(shuffled, batch_size):
                    if len(indices) == batch_size:
                        batch.copy_(indices)
                        losses.append(full_step())
                    else:
                        losses.append(step(indices))
                phase.advance(error=float(torch.stack(losses).mean()))
    finally:
        full_step.release()
        rows.release_batches()


def mean_squared(difference: Tensor) -> Tensor:
    """Return the mean square of a matrix (n, d): the mean over rows of the mean over columns."""
    return difference.square().mean(dim=1).mean()
