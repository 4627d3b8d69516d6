"""The paper's initializer: an autoencoder of the features, optionally cached between fits."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pamc.data.attributed_graph import Features
from pamc.initialize.base import INITIALIZERS, InitContext, InitResult
from pamc.initialize.fitting import fit_batches, mean_squared
from pamc.models.layers import Autoencoder
from pamc.runtime import generator, on_tensor_cores, resolve_dtype


@INITIALIZERS.register("autoencoder")
def pretrain_autoencoder(given: InitContext) -> InitResult:
    """Train an autoencoder to reconstruct the rows, and return its encoder and decoder.

    As in the paper: Adam on the mean squared error, batches of 256 rows in random order, 30 epochs; layer sizes,
    learning rate and number of epochs are settings.
    """
    autoencoder = _new_autoencoder(given)
    rows = given.rows
    path, weights = kept_start(given.features, given.config, seed=given.seed, device=rows.device)
    if weights is not None:
        autoencoder.load_state_dict(weights)
        return InitResult(autoencoder.encoder, autoencoder.decoder, kept=True)

    def reconstruction_error(batch: Tensor) -> Tensor:
        x = rows.dense_batch(batch)
        return mean_squared(autoencoder(x)[0] - x)

    fit_batches(autoencoder, reconstruction_error, given)
    keep_start(path, autoencoder.state_dict())
    return InitResult(autoencoder.encoder, autoencoder.decoder)


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


_FOLDER: ContextVar[Path | None] = ContextVar("folder of kept starts", default=None)

# Settings that determine the weights of an autoencoder, besides the rows and the seed.
_SETTINGS = ("hidden", "n_dims", "pretrain_epochs", "pretrain_lr", "batch_size", "precision")


@contextmanager
def kept_starts(folder: Path | None) -> Iterator[None]:
    """Cache pre-trained weights in a folder inside this block, and reuse those that are already there.

    Fits with the same rows, seed, type of device and pre-training settings get bitwise identical weights either way.
    With None nothing is cached, as outside of any block.
    """
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def kept_start(features: Features, config: Any, *, seed: int, device: torch.device) -> tuple[Path | None, Any]:
    """Return the cache file and the weights in it: the file is None without a cache, the weights if it is missing."""
    folder = _FOLDER.get()
    if folder is None:
        return None, None
    path = folder / f"{_digest(features, config, seed, device)}.pt"
    return path, torch.load(path, map_location=device, weights_only=True) if path.is_file() else None


def keep_start(path: Path | None, weights: dict[str, Tensor]) -> None:
    """Write pre-trained weights atomically; do nothing if the path is None."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    torch.save(weights, partial)
    partial.replace(path)


def _digest(features: Features, config: Any, seed: int, device: torch.device) -> str:
    """Return the cache key of pre-trained weights: a hash of rows, settings, seed and type of device."""
    settings = {name: getattr(config, name) for name in _SETTINGS}
    digest = hashlib.sha256(json.dumps([settings, seed, device.type, features.shape], sort_keys=True).encode())
    arrays = (features,) if isinstance(features, np.ndarray) else (features.data, features.indices, features.indptr)
    for array in arrays:
        digest.update(str(array.dtype).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]
