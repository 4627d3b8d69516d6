"""Initializers: what they receive and return, and the initial centers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from pamc.config import MethodConfig
from pamc.data.attributed_graph import Features
from pamc.errors import CollapseWarning, ModelFileError, warn
from pamc.graph.adjacency import Adjacency
from pamc.initialize.calibration import SplitHalfFits
from pamc.initialize.consensus import InputSource
from pamc.initialize.family import Judge
from pamc.models.layers import MLP, Autoencoder
from pamc.models.loader import FeatureLoader
from pamc.models.views import Views
from pamc.ops.kmeans import kmeans
from pamc.progress import Progress
from pamc.registry import Registry
from pamc.runtime import generator, on_tensor_cores, one_thread, quiet_libraries, resolve_dtype, seed_for

# Names of the layers in the state dicts of SDCN (Bo et al. 2020), whose weights the paper uses.
_SDCN_ENCODER = ("enc_1", "enc_2", "enc_3", "z_layer")
_SDCN_DECODER = ("dec_1", "dec_2", "dec_3", "x_bar_layer")


@dataclass(frozen=True, eq=False)
class InitContext:
    """The input of an initializer.

    Parameters
    ----------
    rows
        The preprocessed features as the encoder receives them.
    features
        The preprocessed features as one matrix.
    adjacency
        (N, N) symmetric weights; None for a method without a graph.
    inputs
        The features and graph in which to find clusters; None if the initializer does not need them.
    config, seed, progress
        Settings, random seed and progress display.
    views
        Random copies of the rows, which the encoder sees in their place; None without any.
    """

    rows: FeatureLoader
    features: Features
    adjacency: Adjacency | None
    inputs: InputSource | None
    config: Any
    seed: int
    progress: Progress
    views: Views | None = None


class InitResult(NamedTuple):
    """The result of an initializer.

    Parameters
    ----------
    encoder, decoder
        Initialized networks; the decoder is None unless the initializer trains an autoencoder.
    cached
        Whether the networks were read from the cache of an earlier fit.
    labels
        (N,) clusters that the initializer found; None to use K-means on the embedding.
    facts
        Decisions of the initializer, as plain values for the record of the fit.
    halves
        Clusterings of random halves of the rows, which calibrate confidence; None if there are none.
    judge
        Object that scores partitions of the rows without labels; training that lowers the score is undone. None if
        training is never undone.
    """

    encoder: MLP
    decoder: MLP | None = None
    cached: bool = False
    labels: NDArray[np.int64] | None = None
    facts: Mapping[str, object] = MappingProxyType({})
    halves: SplitHalfFits | None = None
    judge: Judge | None = None

    @property
    def family(self) -> str | None:
        """Name of the family of clusterings with the best score; None for other initializers."""
        names = self.facts.get("clusters_by")
        return None if names is None else str(names).partition(", ")[0]


Initializer: TypeAlias = Callable[[InitContext], InitResult]
INITIALIZERS: Registry[Initializer] = Registry("init", "pamc.initialize.initializers")


def load_sdcn_weights(path: str | Path, rows: FeatureLoader, config: Any) -> InitResult:
    """Return an encoder with the weights of a state dict in SDCN's layout, and a decoder if the file has one.

    The layers of the encoder are enc_1, enc_2, enc_3 and z_layer, those of the decoder dec_1, dec_2, dec_3 and
    x_bar_layer. The file is loaded with `weights_only=True`, so no code in it is run. Its layer sizes must match the
    settings.
    """
    try:
        state: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ModelFileError(f"{path}: no such file of pre-trained weights") from None
    except Exception as error:
        first_line = str(error).strip().split("\n", 1)[0][:200]
        raise ModelFileError(f"{path} is not a file of weights: {first_line}") from None
    networks = new_autoencoder(rows, config, seed=0)
    _fill(path, state, _SDCN_ENCODER, networks.encoder)
    if f"{_SDCN_DECODER[0]}.weight" not in state:
        return InitResult(networks.encoder)
    _fill(path, state, _SDCN_DECODER, networks.decoder)
    return InitResult(networks.encoder, networks.decoder)


def new_autoencoder(rows: FeatureLoader, config: Any, *, seed: int) -> Autoencoder:
    """Return an untrained autoencoder with the layer sizes and the precision of the settings."""
    return Autoencoder(
        rows.n_features,
        config.hidden,
        config.n_dims,
        generator=generator(seed, "weights"),
        dtype=resolve_dtype(config.precision),
        tensor_cores=on_tensor_cores(config.precision),
    ).to(rows.device)


def _fill(path: str | Path, state: dict[str, Tensor], names: tuple[str, ...], network: MLP) -> None:
    """Copy the weights of the named layers into a network."""
    if len(network.layers) != len(names):
        raise ModelFileError(f"{path} has {len(names)} encoder layers, the settings require {len(network.layers)}")
    with torch.no_grad():
        for layer, name in zip(network.layers, names, strict=True):
            for kind in ("weight", "bias"):
                parameter: Any = getattr(layer, kind)
                value = state.get(f"{name}.{kind}")
                if value is None:
                    raise ModelFileError(f"{path} has no {name}.{kind}; expected SDCN's layers {', '.join(names)}")
                if value.shape != parameter.shape:
                    raise ModelFileError(
                        f"{path}: {name}.{kind} has shape {tuple(value.shape)}, expected {tuple(parameter.shape)}"
                    )
                parameter.copy_(value)


def initial_centers(z: Tensor, config: MethodConfig, *, seed: int) -> tuple[Tensor, NDArray[np.int64]]:
    """Return centers (C, n_dims) and labels (N,) of the best of `n_init` K-means runs on z (N, n_dims).

    As in the paper (20 runs). K-means runs on one thread, which fixes the order of summation, so the result does not
    depend on the number of threads available.
    """
    rows = z.detach().double().cpu()
    with one_thread(), quiet_libraries:
        fit = kmeans(rows, config.n_clusters, seeds=[seed_for(seed, "k-means")], n_init=config.n_init)[0]
    if len(np.unique(fit.labels)) < config.n_clusters:
        warn(
            CollapseWarning(f"the embedding has fewer distinct points than the requested {config.n_clusters} clusters"),
            stacklevel=2,
        )
    return torch.from_numpy(fit.centers).to(device=z.device, dtype=z.dtype), fit.labels


def mean_centers(z: Tensor, labels: NDArray[np.int64], n_clusters: int) -> Tensor:
    """Return the (C, n_dims) means of z (N, n_dims) over clusters; an empty cluster gets the mean of all rows."""
    rows = z.detach().double().cpu().numpy()
    means = [rows[labels == c].mean(axis=0) if (labels == c).any() else rows.mean(axis=0) for c in range(n_clusters)]
    return torch.from_numpy(np.stack(means)).to(device=z.device, dtype=z.dtype)


def align_clusters(centers: Tensor, labels: NDArray[np.int64], known_labels: NDArray[np.int64]) -> Tensor:
    """Reorder the centers so that cluster c agrees best with known class c, and return them.

    Parameters
    ----------
    centers
        (C, n_dims) cluster centers.
    labels
        (N,) cluster of each row.
    known_labels
        (N,) known class of each row in 0 … C−1, or −1 if it is unknown.
    """
    n_clusters = len(centers)
    known = known_labels >= 0
    agreement = np.zeros((n_clusters, n_clusters), dtype=np.int64)
    np.add.at(agreement, (known_labels[known], labels[known]), 1)
    _, cluster_of_class = linear_sum_assignment(-agreement)
    return centers[torch.from_numpy(cluster_of_class).to(centers.device)]
