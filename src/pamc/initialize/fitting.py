"""Minibatch training of encoders, shared by the initializers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pamc.graph.smoothing import Floats, unit_rows
from pamc.initialize.base import InitContext, mean_centers
from pamc.initialize.consensus import Agreed
from pamc.models.layers import MLP
from pamc.models.loader import FeatureLoader, SparseBlock, encode_rows
from pamc.ops.cuda_graph import Captured
from pamc.ops.kmeans import Labels
from pamc.ops.torch.adam import FusedAdam
from pamc.ops.torch.rows import hidden_entries, hidden_values
from pamc.runtime import generator, on_tensor_cores, resolve_dtype, seed_for, threads_for

# Small data sets use smaller batches, so that an epoch has several steps.
_BATCHES_PER_EPOCH, _LEAST_BATCH = 8, 32

# With at most this many columns, no column is redundant, so dropout hides none.
_FEW_COLUMNS = 16

# Factor of the number of epochs if only the graph has clusters: the encoder must memorize them, because the features do
# not predict them.
_TIMES_LONGER_BY_HEART = 8

# Default number of epochs, and the least and the largest number of batches, which decide how well an encoder fits its
# targets: with few rows, pre-training runs more epochs, and with many rows, fewer.
_N_EPOCHS, _LEAST_STEPS, _MOST_STEPS = 20, 600, 2400

# Share of the squared length of a target that encodes the initial cluster; the rest encodes the smoothed features.
_CLUSTER_SHARE = 0.5

# An encoder of the smoothed features alone is used if the score of its clusters is at most this much lower than that of
# the initial clusters. The latter is the best of several scores, which biases it upward.
_TOLERANCE = 0.1

# An encoder that has to learn the initial clusters of at least this many rows from scratch is fitted for more epochs.
_MANY_ROWS, _TIMES_LONGER_FOR_CLUSTERS = 1200, 2


def fitted_encoder(
    agreed: Agreed,
    context: InitContext,
    *,
    clustered: FeatureLoader | None = None,
    spread: Callable[[Floats], Floats] = lambda targets: targets,
    by_heart: bool = False,
    coded: bool = False,
) -> tuple[MLP, str]:
    """Return an encoder whose embedding keeps the initial clusters separate, and the name of its targets.

    The encoder learns to predict the smoothed features of a row from the row itself. This often improves the clusters,
    because rows at their borders follow their features. But centers in the smoothed features cannot separate all
    clusters: one may surround another, or the features may not predict them. In two cases, the targets therefore also
    encode the initial clusters, and no feature is hidden from the encoder: if there are few columns, or if assigning
    rows to the nearest center, in the smoothed features or in the embedding, gives clusters with a far lower score.

    Parameters
    ----------
    agreed
        The initial clusters of the clustered rows.
    clustered
        The clustered rows if they are a part of the rows that the encoder is fitted to; None if they are all of them.
    spread
        Function that maps the targets of the clustered rows to those of all rows.
    by_heart
        Whether the encoder must memorize the clusters of individual rows, because features do not predict them.
    coded
        Whether the targets always encode the initial clusters, because smoothed features do not separate them: if they
        follow the kNN graph of a table of categories, or if the clusters come from several relations.
    """
    config = context.config
    can_code = config.n_dims > config.n_clusters > 1
    few_columns = context.rows.n_features <= _FEW_COLUMNS
    points, encoder = _unit(agreed.points, config.n_dims), None
    if not can_code or not (few_columns or by_heart or coded or _loses_clusters(torch.from_numpy(points), agreed)):
        encoder = fitted_to(spread(points), context)
        rows = context.rows if clustered is None else clustered
        if not can_code or not _loses_clusters(encode_rows(encoder, rows, chunk_size=config.chunk_size), agreed):
            return encoder, "smoothed features"
    targets = labeled_targets(agreed.points, agreed.labels, config.n_clusters, config.n_dims)
    times_longer = 1
    if by_heart:
        times_longer = _TIMES_LONGER_BY_HEART
    elif encoder is None and len(context.rows) >= _MANY_ROWS:
        times_longer = _TIMES_LONGER_FOR_CLUSTERS
    options: dict[str, Any] = {"start": encoder, "times_longer": times_longer, "dropout": 0.0}
    return fitted_to(spread(targets), context, **options), "initial clusters"


def _loses_clusters(z: Tensor, agreed: Agreed) -> bool:
    """Return whether the clusters of the nearest centers in z (N, d) have a far lower score than the initial ones."""
    if agreed.judge is None:
        return False
    centers = mean_centers(z, agreed.labels, int(agreed.labels.max()) + 1)
    nearest = torch.cdist(z, centers).argmin(dim=1).cpu().numpy()
    return agreed.judge.score(nearest).value < agreed.judge.score(agreed.labels).value - _TOLERANCE


def labeled_targets(points: Floats, labels: Labels, n_clusters: int, n_dims: int) -> Floats:
    """Return targets (N, n_dims) of length 1 that encode the smoothed features and the initial cluster of each row.

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
    target: NDArray[np.floating],
    context: InitContext,
    *,
    start: MLP | None = None,
    times_longer: float = 1,
    dropout: float | None = None,
) -> MLP:
    """Return an encoder fitted to (N, n_dims) targets of length 1, then scaled to `embedding_scale`.

    Parameters
    ----------
    start
        An encoder that this function returned for other targets, which is fitted further in place; None starts from
        random weights.
    times_longer
        Factor by which the number of epochs is multiplied.
    dropout
        Share of the features that are hidden at random; None uses the setting `pretrain_dropout`.
    """
    config, rows, dtype = context.config, context.rows, resolve_dtype(context.config.precision)
    if start is None:
        encoder = MLP(
            (rows.n_features, *config.hidden, config.n_dims),
            generator=generator(context.seed, "weights"),
            dtype=dtype,
            tensor_cores=on_tensor_cores(config.precision),
        ).to(rows.device)
    else:
        encoder = _with_scaled_output(start, 1 / config.embedding_scale)
    targets = torch.from_numpy(target).to(device=rows.device, dtype=dtype)

    share = config.pretrain_dropout if dropout is None else dropout
    step = torch.zeros((), dtype=torch.int64, device=rows.device)
    seed = seed_for(context.seed, "hidden features")

    def distance_to_target(batch: Tensor) -> Tensor:
        # On a GPU, dense batches have a fixed shape, so that their step can be captured.
        if rows.sparse and rows.device.type == "cpu":
            x: Any = _sparse_with_hidden(rows, batch, step, share=share, seed=seed)
        else:
            x = rows.dense_batch(batch)
            if context.views is not None:
                x = context.views.of(x, batch, step)
            if share > 0:
                hidden = hidden_values(step, batch, x.shape[1], share=share, seed=seed)
                # As in dropout, the remaining values are scaled up.
                x = x.masked_fill(hidden, 0.0) / (1 - share)
        step.add_(1)
        return mean_squared(encoder(x) - targets[batch])

    n_nodes = len(rows)
    size = min(config.batch_size, max(_LEAST_BATCH, -(-n_nodes // _BATCHES_PER_EPOCH)))
    n_epochs = config.pretrain_epochs
    if n_epochs is None:
        n_batches = -(-n_nodes // size)
        n_epochs = max(1, min(max(_N_EPOCHS * n_batches, _LEAST_STEPS), _MOST_STEPS) // n_batches)
    fit_batches(encoder, distance_to_target, context, n_epochs=max(1, round(times_longer * n_epochs)), batch_size=size)
    return _with_scaled_output(encoder, config.embedding_scale)


@torch.no_grad()
def _with_scaled_output(encoder: MLP, factor: float) -> MLP:
    for parameter in encoder.layers[-1].parameters():
        parameter.mul_(factor)
    return encoder


def _sparse_with_hidden(rows: FeatureLoader, batch: Tensor, step: Tensor, *, share: float, seed: int) -> SparseBlock:
    """Return sparse rows of which a share of the values is hidden, the same ones as in dense rows."""
    block = rows.sparse_batch(batch)
    numbers = batch.repeat_interleave(torch.from_numpy(np.diff(block.indptr)))
    hidden = hidden_entries(step, numbers, torch.from_numpy(block.indices).long(), share=share, seed=seed)
    block.data = np.where(hidden.numpy(), 0, block.data) / (1 - share)
    return SparseBlock.from_scipy(block, device=rows.device, dtype=rows.dtype)


def fit_batches(
    module: nn.Module,
    error: Callable[[Tensor], Tensor],
    context: InitContext,
    *,
    n_epochs: int | None = None,
    batch_size: int | None = None,
) -> None:
    """Minimize with Adam the error of random batches of rows; `error` receives the indices of the rows of a batch.

    On a GPU, a step on a full batch is captured once as a CUDA graph and replayed.
    """
    config, rows = context.config, context.rows
    batch_size = min(batch_size or config.batch_size, len(rows))
    optimizer = FusedAdam(list(module.parameters()), lr=config.pretrain_lr)
    batch = torch.zeros(batch_size, dtype=torch.int64, device=rows.device)

    def step(indices: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = error(indices)
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.detach()

    full_step = Captured(lambda: step(batch), device=rows.device, enabled=rows.holds_batches)
    order = np.random.default_rng(seed_for(context.seed, "row order"))
    n_epochs = config.pretrain_epochs if n_epochs is None else n_epochs
    try:
        with context.progress.phase("pre-training", n_epochs) as phase:
            for _ in range(n_epochs):
                shuffled = torch.from_numpy(order.permutation(len(rows))).to(rows.device)
                losses = []
                with threads_for(module, batch_size, rows.device):
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
