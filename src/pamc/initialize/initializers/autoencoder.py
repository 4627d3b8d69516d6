"""The paper's initializer: an autoencoder of the features."""

from __future__ import annotations

from torch import Tensor

from pamc.initialize.base import INITIALIZERS, InitContext, InitResult
from pamc.initialize.cache import keep_start, kept_start
from pamc.initialize.fitting import fit_batches, mean_squared
from pamc.models.layers import Autoencoder
from pamc.runtime import generator, on_tensor_cores, resolve_dtype

__all__ = ["pretrain_autoencoder"]


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
