"""Starts: how the encoder and the centers come to their first values."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from pamc.config import MethodConfig
from pamc.data.attributed_graph import Features
from pamc.errors import CollapseWarning, ModelFileError
from pamc.graph.adjacency import Adjacency, symmetric_normalize, with_self_loops
from pamc.models.layers import MLP, Autoencoder
from pamc.models.rows import FeatureRows
from pamc.registry import Registry
from pamc.runtime import generator, resolve_dtype, seed_for
from pamc.training.kept_starts import keep_start, kept_start
from pamc.training.progress import Progress

__all__ = [
    "STARTS",
    "StartInput",
    "Started",
    "align_clusters",
    "fit_propagated_svd",
    "load_sdcn_weights",
    "pretrain_autoencoder",
    "starting_centers",
]

# The layers by their names in the state dicts of SDCN (Bo et al. 2020), which the paper starts from.
_SDCN_ENCODER = ("enc_1", "enc_2", "enc_3", "z_layer")
_SDCN_DECODER = ("dec_1", "dec_2", "dec_3", "x_bar_layer")


@dataclass(frozen=True, eq=False)
class StartInput:
    """What a start may use.

    Parameters
    ----------
    rows
        The prepared features, as the encoder takes them.
    features
        The same, whole.
    adjacency
        (N, N) symmetric weights; None for a method without a graph.
    config, seed, progress
        Settings, the source of randomness, and where to show how it goes.
    """

    rows: FeatureRows
    features: Features
    adjacency: Adjacency | None
    config: Any
    seed: int
    progress: Progress


class Started(NamedTuple):
    """What a start leaves: encoder, decoder where it is an autoencoder, and whether both are of an earlier fit."""

    encoder: MLP
    decoder: MLP | None = None
    kept: bool = False


Start: TypeAlias = Callable[[StartInput], Started]
STARTS: Registry[Start] = Registry("start")


@STARTS.register("autoencoder")
def pretrain_autoencoder(given: StartInput) -> Started:
    """Return encoder and decoder of an autoencoder trained to reconstruct the rows.

    As in the paper: Adam on the mean squared error, batches of 256 rows in random order, 30 epochs; the sizes, the rate
    and the number of epochs are settings.
    """
    config, rows = given.config, given.rows
    autoencoder = Autoencoder(
        rows.n_features,
        config.hidden,
        config.n_dims,
        generator=generator(given.seed, "weights"),
        dtype=resolve_dtype(config.precision),
    ).to(rows.device)
    path, weights = kept_start(given.features, config, seed=given.seed, device=rows.device)
    if weights is not None:
        autoencoder.load_state_dict(weights)
        return Started(autoencoder.encoder, autoencoder.decoder, kept=True)

    def reconstruction_error(batch: NDArray[np.int64]) -> Tensor:
        x = rows.dense_batch(batch)
        return _mean_squared(autoencoder(x)[0] - x)

    _fit_batches(autoencoder, reconstruction_error, given)
    keep_start(path, autoencoder.state_dict())
    return Started(autoencoder.encoder, autoencoder.decoder)


@STARTS.register("propagated_svd")
def fit_propagated_svd(given: StartInput) -> Started:
    """Return an encoder fitted to a truncated SVD of the features propagated twice over the graph.

    The target knows the graph, the encoder needs none: it maps a row's own features to what its neighborhood looks
    like. Departure from the paper, whose start sees features only. O(E·d + N·d·n_dims) time.
    """
    config, rows = given.config, given.rows
    encoder = MLP(
        (rows.n_features, *config.hidden, config.n_dims),
        generator=generator(given.seed, "weights"),
        dtype=resolve_dtype(config.precision),
    ).to(rows.device)
    target = torch.from_numpy(_propagated_svd(given)).to(device=rows.device, dtype=resolve_dtype(config.precision))

    def distance_to_target(batch: NDArray[np.int64]) -> Tensor:
        return _mean_squared(encoder(rows.dense_batch(batch)) - target[torch.from_numpy(batch)])

    _fit_batches(encoder, distance_to_target, given)
    with torch.no_grad():
        last: Any = encoder.layers[-1]
        last.weight *= config.embedding_scale
        last.bias *= config.embedding_scale
    return Started(encoder)


def _propagated_svd(given: StartInput) -> NDArray[np.floating]:
    """Return (N, n_dims) rows of length 1: the leading directions of Ã²X, Ã the symmetrically normalized adjacency.

    Fewer features than dimensions leave room: one further column gets the typical length of a row before all rows are
    scaled to length 1, so that rows which differ in length alone stay apart.
    """
    from sklearn.decomposition import TruncatedSVD
    from threadpoolctl import threadpool_limits

    adjacency: Any = given.adjacency
    smoothing = symmetric_normalize(with_self_loops(adjacency))
    propagated = smoothing @ (smoothing @ given.features)
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
    lengths = np.linalg.norm(target, axis=1, keepdims=True)
    unit: NDArray[np.floating] = np.divide(target, lengths, out=np.zeros_like(target), where=lengths > 0)
    return unit


def _fit_batches(module: nn.Module, error: Callable[[NDArray[np.int64]], Tensor], given: StartInput) -> None:
    """Minimize the error of batches of rows in random order by Adam."""
    config = given.config
    optimizer = torch.optim.Adam(module.parameters(), lr=config.pretrain_lr, fused=True)
    order = np.random.default_rng(seed_for(given.seed, "row order"))
    with given.progress.phase("pre-training", config.pretrain_epochs) as phase:
        for _ in range(config.pretrain_epochs):
            rows = order.permutation(len(given.rows))
            losses = []
            for start in range(0, len(rows), config.batch_size):
                loss = error(rows[start : start + config.batch_size])
                optimizer.zero_grad(set_to_none=True)
                torch.autograd.backward(loss)
                optimizer.step()
                losses.append(loss.detach())
            phase.advance(error=float(torch.stack(losses).mean()))
    given.rows.release_batches()


def _mean_squared(difference: Tensor) -> Tensor:
    return difference.square().mean(dim=1).mean()


def load_sdcn_weights(path: str | Path, rows: FeatureRows, config: Any) -> Started:
    """Return an encoder with the weights of a state dict in SDCN's layout, and the decoder where the file has one.

    The encoder's layers are enc_1, enc_2, enc_3, z_layer, the decoder's dec_1, dec_2, dec_3, x_bar_layer. The file is
    read weights-only: no code in it is run. Its sizes must be those of the settings.
    """
    try:
        state: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ModelFileError(f"{path}: no such file of pre-trained weights") from None
    except Exception as error:
        raise ModelFileError(f"{path} is not a file of weights: {_first_line(error)}") from None
    sizes = (rows.n_features, *config.hidden, config.n_dims)
    dtype = resolve_dtype(config.precision)
    encoder = _filled(path, state, _SDCN_ENCODER, MLP(sizes, generator=generator(0, "weights"), dtype=dtype))
    decoder = None
    if f"{_SDCN_DECODER[0]}.weight" in state:
        mirror = MLP(sizes[::-1], generator=generator(0, "weights"), dtype=dtype)
        decoder = _filled(path, state, _SDCN_DECODER, mirror).to(rows.device)
    return Started(encoder.to(rows.device), decoder)


def _filled(path: str | Path, state: dict[str, Tensor], names: tuple[str, ...], network: MLP) -> MLP:
    """Return the network with the weights of the named layers."""
    if len(network.layers) != len(names):
        raise ModelFileError(f"{path} has {len(names)} encoder layers, the settings ask for {len(network.layers)}")
    with torch.no_grad():
        for layer, name in zip(network.layers, names, strict=True):
            for kind in ("weight", "bias"):
                parameter: Any = getattr(layer, kind)
                value = state.get(f"{name}.{kind}")
                if value is None:
                    raise ModelFileError(f"{path} has no {name}.{kind}; expected are SDCN's layers {', '.join(names)}")
                if value.shape != parameter.shape:
                    raise ModelFileError(
                        f"{path}: {name}.{kind} has shape {tuple(value.shape)}, expected {tuple(parameter.shape)}"
                    )
                parameter.copy_(value)
    return network


def starting_centers(z: Tensor, config: MethodConfig, *, seed: int) -> tuple[Tensor, NDArray[np.int64]]:
    """Return centers (C, n_dims) and labels (N,) of the best of `n_init` K-means runs on z (N, n_dims).

    As in the paper (20 starts). One thread, so that sums are taken in one order and the result is the same bits on any
    number of threads.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    kmeans = KMeans(config.n_clusters, n_init=config.n_init, random_state=seed_for(seed, "k-means"))
    with threadpool_limits(limits=1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        kmeans.fit(z.detach().double().cpu().numpy())
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        warnings.warn(
            f"the embedding has fewer distinct points than the {config.n_clusters} clusters asked for",
            CollapseWarning,
            stacklevel=2,
        )
    centers = torch.from_numpy(kmeans.cluster_centers_).to(device=z.device, dtype=z.dtype)
    return centers, kmeans.labels_.astype(np.int64)


def align_clusters(centers: Tensor, labels: NDArray[np.int64], known_labels: NDArray[np.int64]) -> Tensor:
    """Return the centers in an order in which cluster c agrees best with known class c.

    Parameters
    ----------
    centers
        (C, n_dims).
    labels
        (N,) cluster of each row.
    known_labels
        (N,) known class in 0 … C−1, or −1.
    """
    n_clusters = len(centers)
    known = known_labels >= 0
    agreement = np.zeros((n_clusters, n_clusters), dtype=np.int64)
    np.add.at(agreement, (known_labels[known], labels[known]), 1)
    _, cluster_of_class = linear_sum_assignment(-agreement)
    return centers[torch.from_numpy(cluster_of_class).to(centers.device)]


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:200]
