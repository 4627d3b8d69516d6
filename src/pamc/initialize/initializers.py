"""Starts by name: how an encoder gets its first weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from pamc.graph.adjacency import Adjacency, symmetric_normalize, with_self_loops
from pamc.graph.smoothing import unit_rows
from pamc.initialize.base import INITIALIZERS, InitContext, InitResult
from pamc.initialize.cache import keep_start, kept_start
from pamc.initialize.consensus import agreed_clusters
from pamc.models.layers import MLP, Autoencoder
from pamc.models.loader import FeatureLoader
from pamc.models.products import column_product, row_product
from pamc.ops.cuda_graph import Captured
from pamc.ops.torch.rows import csr_tensor, hidden_values
from pamc.runtime import generator, on_tensor_cores, resolve_dtype, seed_for

__all__ = [
    "INITIALIZERS",
    "fit_consensus",
    "fit_propagated_svd",
    "fitted_to",
    "pretrain_autoencoder",
    "pretrain_propagated_autoencoder",
    "train_spectral",
]

# Where the graph alone has clusters, the encoder must learn them by heart: features say nothing of them.
_TIMES_LONGER_BY_HEART = 8

# Few rows are fitted to their target in smaller batches: an epoch of one step teaches little.
_BATCHES_PER_EPOCH, _LEAST_BATCH = 8, 16

# Below so many rows pre-training goes on until it has seen as many, up to so many times longer.
_FEW_ROWS, _MOST_TIMES_LONGER_OF_FEW = 1200, 3

# Full-batch steps that stand for an epoch of small batches.
_SPECTRAL_STEPS_PER_EPOCH = 4


@INITIALIZERS.register("autoencoder")
def pretrain_autoencoder(given: InitContext) -> InitResult:
    """Return encoder and decoder of an autoencoder trained to reconstruct the rows.

    As in the paper: Adam on the mean squared error, batches of 256 rows in random order, 30 epochs; the sizes, the rate
    and the number of epochs are settings.
    """
    autoencoder = _new_autoencoder(given)
    rows = given.rows
    path, weights = kept_start(given.features, given.config, seed=given.seed, device=rows.device)
    if weights is not None:
        autoencoder.load_state_dict(weights)
        return InitResult(autoencoder.encoder, autoencoder.decoder, kept=True)

    def reconstruction_error(batch: Tensor) -> Tensor:
        x = rows.dense_batch(batch)
        return _mean_squared(autoencoder(x)[0] - x)

    _fit_batches(autoencoder, reconstruction_error, given)
    keep_start(path, autoencoder.state_dict())
    return InitResult(autoencoder.encoder, autoencoder.decoder)


@INITIALIZERS.register("propagated_autoencoder")
def pretrain_propagated_autoencoder(given: InitContext) -> InitResult:
    """Return the encoder of an autoencoder that reconstructs Ã²X from X: a row's neighborhood from the row alone.

    Departure from the paper, whose autoencoder knows no graph. O(E·d) time beside that of the autoencoder.
    """
    autoencoder = _new_autoencoder(given)
    rows = given.rows
    targets = FeatureLoader(_propagated(given), device=rows.device, dtype=resolve_dtype(given.config.precision))

    def reconstruction_error(batch: Tensor) -> Tensor:
        return _mean_squared(autoencoder(rows.dense_batch(batch))[0] - targets.dense_batch(batch))

    _fit_batches(autoencoder, reconstruction_error, given)
    targets.release_batches()
    return InitResult(_at_scale(autoencoder.encoder, given))


@INITIALIZERS.register("propagated_svd")
def fit_propagated_svd(given: InitContext) -> InitResult:
    """Return an encoder fitted to a truncated SVD of the features propagated twice over the graph.

    The target knows the graph, the encoder needs none: it maps a row's own features to what its neighborhood looks
    like. Departure from the paper, whose start sees features only. O(E·d + N·d·n_dims) time.
    """
    return InitResult(fitted_to(_propagated_svd(given), given))


@INITIALIZERS.register("consensus")
def fit_consensus(given: InitContext) -> InitResult:
    """Return an encoder fitted to the smoothed features, and the clusters that many quick clusterings agree on.

    See :func:`~pamc.initialize.consensus.agreed_clusters`. The encoder learns the place of each row among its neighbors
    from the row's own features, so new rows need no graph. Departure from the paper, whose start sees features only.
    """
    inputs: Any = given.inputs
    config = given.config
    with given.progress.phase("consensus"), threadpool_limits(limits=1):
        agreed = agreed_clusters(
            inputs.rows,
            inputs.adjacency,
            config.n_clusters,
            n_dims=config.n_dims,
            seed=given.seed,
            device=given.rows.device,
        )
    by_heart = inputs.kind == "graph"
    encoder = fitted_to(agreed.points, given, times_longer=_TIMES_LONGER_BY_HEART if by_heart else 1)
    facts = {"inputs": inputs.kind, "clusters_by": agreed.how, "agreement": agreed.agreement}
    return InitResult(encoder, labels=agreed.labels, facts=facts)


@INITIALIZERS.register("spectral")
def train_spectral(given: InitContext) -> InitResult:
    r"""Return an encoder trained on the spectral contrast of HaoChen et al. (2021), Provable guarantees … Eq 6.

    .. math:: L = -\frac{2}{N} \sum_i z_i^\top (\tilde{A}^2 Z)_i + \left\| \frac{1}{N} Z^\top Z \right\|_F^2

    The second term is the mean of (z_iᵀz_j)² over all pairs, exactly, in O(N·n_dims²): every negative counts.
    """
    config, rows = given.config, given.rows
    encoder = _new_encoder(given)
    adjacency: Any = given.adjacency
    step = csr_tensor(
        symmetric_normalize(with_self_loops(adjacency)), device=rows.device, dtype=resolve_dtype(config.precision)
    )
    optimizer = torch.optim.Adam(encoder.parameters(), lr=config.pretrain_lr, fused=True)
    x, n_nodes = rows.whole(), len(rows)
    with given.progress.phase("pre-training", config.pretrain_epochs) as phase:
        for _ in range(config.pretrain_epochs):
            for _ in range(_SPECTRAL_STEPS_PER_EPOCH):
                z = encoder(x)
                fixed = z.detach()
                walked, gram = step @ (step @ fixed), column_product(fixed, fixed) / n_nodes
                optimizer.zero_grad(set_to_none=True)
                # The gradient of L in z, written out: Ã² is symmetric.
                z.backward((row_product(fixed, gram) - walked) * (4 / n_nodes))
                optimizer.step()
            loss = gram.square().sum() - 2 * (fixed * walked).sum() / n_nodes
            phase.advance(error=float(loss))
    return InitResult(_at_scale(encoder, given))


def _new_encoder(given: InitContext) -> MLP:
    config = given.config
    sizes = (given.rows.n_features, *config.hidden, config.n_dims)
    weights = generator(given.seed, "weights")
    cores = on_tensor_cores(config.precision)
    encoder = MLP(sizes, generator=weights, dtype=resolve_dtype(config.precision), tensor_cores=cores)
    return encoder.to(given.rows.device)


def _new_autoencoder(given: InitContext) -> Autoencoder:
    config = given.config
    return Autoencoder(
        given.rows.n_features,
        config.hidden,
        config.n_dims,
        generator=generator(given.seed, "weights"),
        dtype=resolve_dtype(config.precision),
        tensor_cores=on_tensor_cores(config.precision),
    ).to(given.rows.device)


def fitted_to(target: NDArray[np.floating], given: InitContext, *, times_longer: int = 1) -> MLP:
    """Return an encoder of rows fitted to (N, n_dims) targets of length 1, then scaled to `embedding_scale`."""
    config, rows = given.config, given.rows
    encoder = _new_encoder(given)
    targets = torch.from_numpy(target).to(device=rows.device, dtype=resolve_dtype(config.precision))

    share, step = config.pretrain_dropout, torch.zeros((), dtype=torch.int64, device=rows.device)
    seed = seed_for(given.seed, "hidden features")

    def distance_to_target(batch: Tensor) -> Tensor:
        x = rows.dense_batch(batch)
        if share > 0:
            # The other values are raised to make up for those that are hidden.
            hidden = hidden_values(step, batch, x.shape[1], share=share, seed=seed)
            x = x.masked_fill(hidden, 0.0) / (1 - share)
            step.add_(1)
        return _mean_squared(encoder(x) - targets[batch])

    n_nodes = len(rows)
    size = min(config.batch_size, max(_LEAST_BATCH, -(-n_nodes // _BATCHES_PER_EPOCH)))
    # Of few rows the encoder needs more passes, or what was hidden and in which order decides between clusters.
    few = min(_MOST_TIMES_LONGER_OF_FEW, max(1, -(-_FEW_ROWS // n_nodes)))
    _fit_batches(encoder, distance_to_target, given, times_longer=few * times_longer, batch_size=size)
    return _scaled(encoder, config.embedding_scale)


@torch.no_grad()
def _at_scale(encoder: MLP, given: InitContext) -> MLP:
    """Return an encoder whose rows have a mean length of `embedding_scale`, whatever its loss left."""
    from pamc.models.loader import encode_rows

    z = encode_rows(encoder, given.rows, chunk_size=given.config.chunk_size)
    length = float(z.norm(dim=1).mean())
    return _scaled(encoder, given.config.embedding_scale / length if length > 0 else 1.0)


@torch.no_grad()
def _scaled(encoder: MLP, factor: float) -> MLP:
    last: Any = encoder.layers[-1]
    last.weight *= factor
    last.bias *= factor
    return encoder


def _propagated(given: InitContext) -> Any:
    adjacency: Any = given.adjacency
    smoothing: Adjacency = symmetric_normalize(with_self_loops(adjacency))
    return smoothing @ (smoothing @ given.features)


def _propagated_svd(given: InitContext) -> NDArray[np.floating]:
    """Return (N, n_dims) rows of length 1: the leading directions of Ã²X, Ã the symmetrically normalized adjacency.

    Fewer features than dimensions leave room: one further column gets the typical length of a row before all rows are
    scaled to length 1, so that rows which differ in length alone stay apart.
    """
    from sklearn.decomposition import TruncatedSVD

    propagated = _propagated(given)
    n_nodes, n_features = propagated.shape
    n_dims = given.config.n_dims
    target = np.zeros((n_nodes, n_dims))
    rank = min(n_dims, n_features, n_nodes)
    if n_features == 1:
        target[:, :1] = propagated if isinstance(propagated, np.ndarray) else propagated.toarray()
    else:
        svd = TruncatedSVD(rank, random_state=seed_for(given.seed, "svd"))
        with threadpool_limits(limits=1), np.errstate(invalid="ignore", divide="ignore"):
            target[:, :rank] = svd.fit_transform(propagated)
    if rank < n_dims:
        target[:, rank] = np.sqrt(np.square(target).sum(axis=1).mean())
    return unit_rows(target)


def _fit_batches(
    module: nn.Module,
    error: Callable[[Tensor], Tensor],
    given: InitContext,
    *,
    times_longer: int = 1,
    batch_size: int | None = None,
) -> None:
    """Minimize the error of batches of rows, given by their numbers, in random order by Adam.

    On a GPU a step on a whole batch is captured once and replayed.
    """
    config, rows = given.config, given.rows
    batch_size = min(batch_size or config.batch_size, len(rows))
    on_gpu = rows.device.type == "cuda"
    optimizer = torch.optim.Adam(module.parameters(), lr=config.pretrain_lr, fused=True, capturable=on_gpu)
    batch = torch.zeros(batch_size, dtype=torch.int64, device=rows.device)

    def step(numbers: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = error(numbers)
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.detach()

    whole_step = Captured(lambda: step(batch), device=rows.device, enabled=rows.holds_batches)
    order = np.random.default_rng(seed_for(given.seed, "row order"))
    n_epochs = times_longer * config.pretrain_epochs
    try:
        with given.progress.phase("pre-training", n_epochs) as phase:
            for _ in range(n_epochs):
                shuffled = torch.from_numpy(order.permutation(len(rows))).to(rows.device)
                losses = []
                for numbers in torch.split(shuffled, batch_size):
                    if len(numbers) == batch_size:
                        batch.copy_(numbers)
                        losses.append(whole_step())
                    else:
                        losses.append(step(numbers))
                phase.advance(error=float(torch.stack(losses).mean()))
    finally:
        whole_step.release()
        rows.release_batches()


def _mean_squared(difference: Tensor) -> Tensor:
    return difference.square().mean(dim=1).mean()
