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

from pamc.initialize.base import INITIALIZERS, InitContext, InitResult, new_autoencoder
from pamc.initialize.fitting import fit_batches, mean_squared


@INITIALIZERS.register("autoencoder")
def pretrain_autoencoder(context: InitContext) -> InitResult:
    """Train an autoencoder to reconstruct the rows, and return its encoder and decoder.

    As in the paper: Adam on the mean squared error, batches of 256 rows in random order, 30 epochs; layer sizes,
    learning rate and number of epochs are settings.
    """
    rows = context.rows
    autoencoder = new_autoencoder(rows, context.config, seed=context.seed)
    path = _cache_file(context)
    if path is not None and path.is_file():
        autoencoder.load_state_dict(torch.load(path, map_location=rows.device, weights_only=True))
        return InitResult(autoencoder.encoder, autoencoder.decoder, cached=True)

    def reconstruction_error(batch: Tensor) -> Tensor:
        x = rows.dense_batch(batch)
        return mean_squared(autoencoder(x)[0] - x)

    fit_batches(autoencoder, reconstruction_error, context)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Renamed once it is complete, so that no other process reads an incomplete file.
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        torch.save(autoencoder.state_dict(), partial)
        partial.replace(path)
    return InitResult(autoencoder.encoder, autoencoder.decoder)


_FOLDER: ContextVar[Path | None] = ContextVar("cache of pre-trained weights", default=None)

# Settings that determine the weights of an autoencoder, besides the rows and the seed.
_SETTINGS = ("hidden", "n_dims", "pretrain_epochs", "pretrain_lr", "batch_size", "precision")


@contextmanager
def kept_starts(folder: Path | None) -> Iterator[None]:
    """Cache pre-trained weights in a folder for all fits inside this context, and reuse those that it contains.

    Fits with the same rows, seed, type of device and pre-training settings get bitwise identical weights with and
    without the cache. If the folder is None, nothing is cached.
    """
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def _cache_file(context: InitContext) -> Path | None:
    """Return the cache file, named by a hash of rows, settings, seed and type of device, or None without a cache."""
    folder = _FOLDER.get()
    if folder is None:
        return None
    features: Any = context.features
    settings = {name: getattr(context.config, name) for name in _SETTINGS}
    key = [settings, context.seed, context.rows.device.type, features.shape]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode())
    arrays = (features,) if isinstance(features, np.ndarray) else (features.data, features.indices, features.indptr)
    for array in arrays:
        digest.update(str(array.dtype).encode())
        digest.update(np.ascontiguousarray(array).data)
    return folder / f"{digest.hexdigest()[:32]}.pt"
