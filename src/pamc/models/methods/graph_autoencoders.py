"""Graph autoencoders: GAE, VGAE and ARGA, the models of torch_geometric around our graph convolutions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from pamc.config import GraphConfig, TrainedConfig
from pamc.declarations import Count, Number, Sizes, setting
from pamc.errors import BackendError
from pamc.losses.reconstruction import edge_reconstruction_loss, sampled_edge_loss
from pamc.models.base import GraphModel, LossTerms, Reading
from pamc.models.graph_layers import GraphConvolution, normalized_adjacency
from pamc.models.layers import MLP
from pamc.models.loader import SparseBlock
from pamc.models.method import BuildInput, register_method
from pamc.runtime import generator

__all__ = [
    "ARGAConfig",
    "ARGAModel",
    "GAEConfig",
    "GAEModel",
    "GraphEncoder",
    "VGAEConfig",
    "VGAEModel",
    "VariationalGraphEncoder",
    "geometric_models",
]

# Up to this many nodes all N² pairs are reconstructed in every epoch.
_EXACT_UP_TO = 40_000

# torch_geometric's bound on log σ.
_MAX_LOG_STD = 10.0


@dataclass(frozen=True, kw_only=True)
class GAEConfig(GraphConfig, TrainedConfig):
    """Settings of GAE. The defaults of graph autoencoders were chosen by accuracy on the labeled sets ACM, CITE, DBLP.

    Raw rows in the place of rows of length 1 gave worse clusters on these sets, and so did more epochs, although the
    reconstruction still improved.
    """

    preprocessing: str = "unit"
    n_hidden: int = setting(512, Count(), "Size that the first graph convolution has.")
    n_dims: int = setting(16, Count(), "Size that the embedding z has.")
    n_epochs: int = 80


@dataclass(frozen=True, kw_only=True)
class VGAEConfig(GAEConfig):
    """Settings of VGAE: those of GAE with a higher rate, without which it takes many more epochs."""

    n_epochs: int = 90
    lr: float = 3e-3


@dataclass(frozen=True, kw_only=True)
class ARGAConfig(GAEConfig):
    """Settings of ARGA: those of GAE, and of its discriminator."""

    hidden: tuple[int, ...] = setting((64,), Sizes(), "Sizes that the hidden layers of the discriminator have.")
    regularization_weight: float = setting(1.0, Number(), "Weigh the adversarial term of the encoder.")
    n_epochs: int = 120


def geometric_models() -> Any:
    """Return torch_geometric's module of models; it is an optional package."""
    try:
        with warnings.catch_warnings():
            # Of no concern to a user: some versions compile parts of themselves in a way that torch deprecates.
            warnings.simplefilter("ignore", DeprecationWarning)
            from torch_geometric.nn import models
    except ImportError as error:
        raise BackendError(
            f'this method needs torch_geometric ({error}); install it with pip install "pamc[baselines]"'
        ) from error
    return models


class GraphEncoder(nn.Module):
    """Two graph convolutions with ReLU between them: z = Ã relu(Ã X W₀ᵀ) W₁ᵀ.

    Parameters
    ----------
    n_features, n_hidden, n_dims
        Sizes.
    generator
        Source of the starting weights.
    """

    def __init__(
        self, n_features: int, n_hidden: int, n_dims: int, *, generator: torch.Generator, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.first = GraphConvolution(n_features, n_hidden, generator=generator, dtype=dtype)
        self.second = GraphConvolution(n_hidden, n_dims, generator=generator, dtype=dtype)

    def forward(self, x: Tensor | SparseBlock, normalized: Tensor) -> Tensor:
        """Return z (N, n_dims) for x (N, d) and Ã (N, N), a CSR tensor. O(E·n_hidden + N·d·n_hidden) time."""
        result: Tensor = self.second(relu(self.first(x, normalized)), normalized)
        return result


class VariationalGraphEncoder(nn.Module):
    """A graph encoder with two outputs: mean μ and log σ of a Gaussian for each row.

    Parameters
    ----------
    n_features, n_hidden, n_dims
        Sizes.
    generator
        Source of the starting weights.
    """

    def __init__(
        self, n_features: int, n_hidden: int, n_dims: int, *, generator: torch.Generator, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.first = GraphConvolution(n_features, n_hidden, generator=generator, dtype=dtype)
        self.mean = GraphConvolution(n_hidden, n_dims, generator=generator, dtype=dtype)
        self.log_std = GraphConvolution(n_hidden, n_dims, generator=generator, dtype=dtype)

    def forward(self, x: Tensor | SparseBlock, normalized: Tensor) -> tuple[Tensor, Tensor]:
        """Return μ and log σ, each (N, n_dims), for x (N, d) and Ã (N, N), a CSR tensor."""
        h = relu(self.first(x, normalized))
        return self.mean(h, normalized), self.log_std(h, normalized)


class GAEModel(GraphModel):
    """The graph autoencoder of Kipf and Welling (2016): z = GCN(X, A), and σ(zzᵀ) is to be A + I.

    The reconstruction loss is over all N² pairs (:func:`pamc.losses.reconstruction.edge_reconstruction_loss`) up to
    40 000 nodes; above, its negatives are sampled, as many as there are edges, anew in each epoch
    (:func:`pamc.losses.reconstruction.sampled_edge_loss`).

    Parameters
    ----------
    network
        A `GAE` of torch_geometric around a :class:`GraphEncoder`.
    normalized
        (N, N) CSR tensor Ã.
    """

    draws = True

    def __init__(self, network: Any, normalized: Tensor) -> None:
        super().__init__()
        self.network = network
        self.normalized = normalized

    def loss(self, x: Tensor | SparseBlock) -> LossTerms:
        """Return the reconstruction loss. O(N²·n_dims) time up to 40 000 nodes, else O(E·n_dims); O(N + E) memory."""
        reconstruction = self._reconstruction(self.network.encode(x, self.normalized))
        return LossTerms(total=reconstruction, parts={"reconstruction": reconstruction})

    def read(self, x: Tensor | SparseBlock) -> Reading:
        """Return z (N, n_dims)."""
        return Reading(self.network.encode(x, self.normalized))

    def _reconstruction(self, z: Tensor) -> Tensor:
        # Ã has the entries of A + I.
        loss = edge_reconstruction_loss if len(z) <= _EXACT_UP_TO else sampled_edge_loss
        return loss(z, self.normalized)


class VGAEModel(GAEModel):
    r"""The variational graph autoencoder of Kipf and Welling (2016).

    .. math:: \ell_{reconstruction}(z) + \frac{1}{N}\cdot\frac{1}{N}\sum_i KL(N(\mu_i, \sigma_i^2)\,\|\,N(0, I)),
              \quad z_i \sim N(\mu_i, \sigma_i^2)

    As in their program. The embedding that is read is μ. Reconstruction as in :class:`GAEModel`: sampled above 40 000
    nodes.

    Parameters
    ----------
    network
        A `VGAE` of torch_geometric around a :class:`VariationalGraphEncoder`.
    normalized
        (N, N) CSR tensor Ã.
    """

    def loss(self, x: Tensor | SparseBlock) -> LossTerms:
        """Return the negative evidence lower bound, each term scaled as in the program. Time and memory as GAE."""
        # Not `encode`, which would keep μ and log σ, and the tape behind them, in the network.
        mean, log_std = self.network.encoder(x, self.normalized)
        z = self.network.reparametrize(mean, log_std.clamp(max=_MAX_LOG_STD))
        reconstruction, kl = self._reconstruction(z), self.network.kl_loss(mean, log_std)
        return LossTerms(total=reconstruction + kl / len(z), parts={"reconstruction": reconstruction, "kl": kl})

    def read(self, x: Tensor | SparseBlock) -> Reading:
        """Return the mean μ (N, n_dims) as the embedding."""
        return Reading(self.network.encoder(x, self.normalized)[0])


class ARGAModel(GAEModel):
    r"""The adversarially regularized graph autoencoder of Pan et al. (2018).

    A discriminator D learns to tell z from draws of N(0, I); the encoder learns to reconstruct and to mislead it.

    .. math:: \ell_{reconstruction}(z) - \lambda\,\frac{1}{N}\sum_i \log D(z_i) \quad\text{for the encoder},\qquad
              -\frac{1}{N}\sum_i \log D(\epsilon_i) - \frac{1}{N}\sum_i \log(1 - D(z_i)) \quad\text{for } D

    Departure from the paper: both take their step at the same time, once per epoch, from one backward pass. The total
    is the sum of the two losses, in which z is a constant of D's loss and D a constant of the encoder's. Reconstruction
    as in :class:`GAEModel`: sampled above 40 000 nodes.

    Parameters
    ----------
    network
        An `ARGA` of torch_geometric around a :class:`GraphEncoder` and a discriminator of rows.
    normalized
        (N, N) CSR tensor Ã.
    regularization_weight
        λ.
    """

    def __init__(self, network: Any, normalized: Tensor, *, regularization_weight: float = 1.0) -> None:
        super().__init__(network, normalized)
        self.regularization_weight = regularization_weight

    def loss(self, x: Tensor | SparseBlock) -> LossTerms:
        """Return the sum of both losses; neither has a gradient in the other's weights. Time and memory as GAE."""
        z = self.network.encode(x, self.normalized)
        reconstruction = self._reconstruction(z)
        with _constant(self.network.discriminator):
            regularization = self.network.reg_loss(z)
        discrimination = self.network.discriminator_loss(z)
        return LossTerms(
            total=reconstruction + self.regularization_weight * regularization + discrimination,
            parts={
                "reconstruction": reconstruction,
                "regularization": regularization,
                "discrimination": discrimination,
            },
        )


@contextmanager
def _constant(module: nn.Module) -> Iterator[None]:
    """Record the module's parameters as constants in what is computed inside."""
    learnt = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in learnt:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learnt:
            parameter.requires_grad_(True)


@register_method(
    "gae", title="GAE", reference="Kipf and Welling (2016), NIPS workshop", config=GAEConfig, uses_graph=True
)
def build_gae(given: BuildInput) -> GAEModel:
    """Return an untrained GAE."""
    return GAEModel(geometric_models().GAE(_encoder(given, GraphEncoder)).to(given.device), _normalized(given))


@register_method(
    "vgae", title="VGAE", reference="Kipf and Welling (2016), NIPS workshop", config=VGAEConfig, uses_graph=True
)
def build_vgae(given: BuildInput) -> VGAEModel:
    """Return an untrained VGAE."""
    encoder = _encoder(given, VariationalGraphEncoder)
    return VGAEModel(geometric_models().VGAE(encoder).to(given.device), _normalized(given))


@register_method("arga", title="ARGA", reference="Pan et al. (2018), IJCAI", config=ARGAConfig, uses_graph=True)
def build_arga(given: BuildInput) -> ARGAModel:
    """Return an untrained ARGA."""
    config = given.config
    sizes = (config.n_dims, *config.hidden, 1)
    discriminator = MLP(sizes, generator=generator(given.seed, "discriminator"), dtype=given.dtype)
    network = geometric_models().ARGA(_encoder(given, GraphEncoder), discriminator).to(given.device)
    return ARGAModel(network, _normalized(given), regularization_weight=config.regularization_weight)


def _encoder(given: BuildInput, kind: Any) -> nn.Module:
    config = given.config
    weights = generator(given.seed, "weights")
    encoder: nn.Module = kind(given.n_features, config.n_hidden, config.n_dims, generator=weights, dtype=given.dtype)
    return encoder


def _normalized(given: BuildInput) -> Tensor:
    return normalized_adjacency(given.adjacency, device=given.device, dtype=given.dtype)
