"""K-means of the rows, and of a truncated SVD of the adjacency."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pamc.config import GraphConfig, MethodConfig
from pamc.declarations import Count, setting
from pamc.models.base import GraphModel, LossTerms, Reading
from pamc.models.layers import MLP
from pamc.models.loader import SparseBlock
from pamc.models.method import BuildInput, register_method
from pamc.models.methods.autoencoders import StartOnly
from pamc.runtime import generator, one_thread, seed_for


@register_method(
    "kmeans",
    title="K-means",
    reference="Hartigan and Wong (1979); scikit-learn's Lloyd iterations",
    config=MethodConfig,
    uses_graph=False,
    inductive=True,
)
def build_kmeans(inputs: BuildInput) -> StartOnly:
    """Return the preprocessed rows themselves as the embedding."""
    return StartOnly(MLP((inputs.n_features,), generator=generator(inputs.seed, "weights"), dtype=inputs.dtype))


@dataclass(frozen=True, kw_only=True)
class SVDConfig(GraphConfig):
    """Settings of the SVD of the adjacency."""

    n_dims: int = setting(10, Count(), "Number of leading singular directions to use.")


class _Fixed(GraphModel):
    """A fixed embedding that is not trained."""

    z: Tensor

    def __init__(self, z: Tensor) -> None:
        super().__init__()
        self.register_buffer("z", z)

    def loss(self, x: Tensor | SparseBlock) -> LossTerms:
        """Return a zero loss, because there is nothing to train."""
        return LossTerms(total=self.z.sum() * 0, parts={})

    def read(self, x: Tensor | SparseBlock) -> Reading:
        """Return the embedding."""
        return Reading(self.z)


@register_method(
    "svd",
    title="SVD",
    reference="Golub and Reinsch (1970): singular values of the adjacency; then K-means",
    config=SVDConfig,
    uses_graph=True,
    uses_features=False,
)
def build_svd(inputs: BuildInput) -> GraphModel:
    """Return U·S of the leading singular directions of the adjacency A (N, N); features are not used."""
    from sklearn.decomposition import TruncatedSVD

    rank = max(1, min(inputs.config.n_dims, inputs.n_nodes - 1))
    z = np.zeros((inputs.n_nodes, inputs.config.n_dims))
    if inputs.n_nodes > 1:
        svd = TruncatedSVD(rank, random_state=seed_for(inputs.seed, "svd"))
        with one_thread(), np.errstate(invalid="ignore", divide="ignore"):
            # K-means is invariant to a common scale, and scaling the largest weight to 1 keeps squares finite.
            z[:, :rank] = svd.fit_transform(inputs.adjacency / (inputs.adjacency.max() or 1.0))
    return _Fixed(torch.from_numpy(z).to(device=inputs.device, dtype=inputs.dtype))
