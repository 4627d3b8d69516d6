"""Graph autoencoders: GAE, VGAE and ARGA."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from pamc.config import GraphConfig, TrainedConfig
from pamc.declarations import Count, Number, Sizes, setting
from pamc.losses.reconstruction import edge_reconstruction_loss, sampled_edge_loss
from pamc.models.base import GraphModel, LossTerms, Reading
from pamc.models.layers import MLP, GraphEncoder, normalized_adjacency
from pamc.models.loader import SparseBlock
from pamc.models.method import BuildInput, register_method
from pamc.runtime import generator

# Maximum number of nodes for which all N² pairs are reconstructed in every epoch.
_EXACT_UP_TO = 40_000

# Upper bound of log σ, and the constant added to a probability before its logarithm, both as in torch_geometric.
_MAX_LOG_STD = 10.0
_EPS = 1e-15


@dataclass(frozen=True, kw_only=True)
class GAEConfig(GraphConfig, TrainedConfig):
    """Settings of GAE. The defaults of graph autoencoders were chosen by accuracy on the labeled sets ACM, CITE, DBLP.

    On these sets, clusters were worse with raw rows than with rows of length 1. They were also worse with more epochs,
    although the reconstruction still improved.
    """

    preprocessing: str = "unit"
    n_hidden: int = setting(512, Count(), "Size of the first graph convolution.")
    n_dims: int = setting(16, Count(), "Size of the embedding z.")
    n_epochs: int = 80


@dataclass(frozen=True, kw_only=True)
class VGAEConfig(GAEConfig):
    """Settings of VGAE: those of GAE with a higher learning rate, without which it needs many more epochs."""

    n_epochs: int = 90
    lr: float = 3e-3


@dataclass(frozen=True, kw_only=True)
class ARGAConfig(GAEConfig):
    """Settings of ARGA: those of GAE and of its discriminator."""

    hidden: tuple[int, ...] = setting((64,), Sizes(), "Sizes of the discriminator's hidden layers.")
    regularization_weight: float = setting(1.0, Number(), "Weight of the encoder's adversarial term.")
    n_epochs: int = 120


@register_method(
    "gae", title="GAE", reference="Kipf and Welling (2016), NIPS workshop", config=GAEConfig, uses_graph=True
)
class GAEModel(GraphModel):
    """The graph autoencoder of Kipf and Welling (2016): z = GCN(X, A), where σ(zzᵀ) reconstructs A + I.

    The reconstruction loss is over all N² pairs (:func:`pamc.losses.reconstruction.edge_reconstruction_loss`) up to
    40 000 nodes; above that, as many negatives as there are edges are sampled in each epoch
    (:func:`pamc.losses.reconstruction.sampled_edge_loss`).
    """

    draws = True
    # Outputs of the encoder, z first; saved weights use these names.
    outputs: ClassVar[Sequence[str]] = ("second",)

    def __init__(self, inputs: BuildInput) -> None:
        super().__init__()
        sizes = (inputs.n_features, inputs.config.n_hidden, inputs.config.n_dims)
        weights = generator(inputs.seed, "weights")
        encoder = GraphEncoder(*sizes, generator=weights, dtype=inputs.dtype, outputs=self.outputs)
        # This name is used by saved weights.
        self.network = nn.ModuleDict({"encoder": encoder})
        self.normalized = normalized_adjacency(inputs.adjacency, device=inputs.device, dtype=inputs.dtype)

    def loss(self, x: Tensor | SparseBlock) -> LossTerms:
        """Return the reconstruction loss. O(N²·n_dims) time up to 40 000 nodes, else O(E·n_dims); O(N + E) memory."""
        reconstruction = self._reconstruction(self.read(x).z)
        return LossTerms(total=reconstruction, parts={"reconstruction": reconstruction})

    def read(self, x: Tensor | SparseBlock) -> Reading:
        """Return z (N, n_dims)."""
        return Reading(self.network["encoder"](x, self.normalized)[0])

    def _reconstruction(self, z: Tensor) -> Tensor:
        # Ã has the entries of A + I.
        loss = edge_reconstruction_loss if len(z) <= _EXACT_UP_TO else sampled_edge_loss
        return loss(z, self.normalized)


@register_method(
    "vgae", title="VGAE", reference="Kipf and Welling (2016), NIPS workshop", config=VGAEConfig, uses_graph=True
)
class VGAEModel(GAEModel):
    r"""The variational graph autoencoder of Kipf and Welling (2016).

    .. math:: \ell_{reconstruction}(z) + \frac{1}{N}\cdot\frac{1}{N}\sum_i KL(N(\mu_i, \sigma_i^2)\,\|\,N(0, I)),
              \quad z_i \sim N(\mu_i, \sigma_i^2)

    This follows their program. The encoder outputs μ and log σ; μ is the embedding. The reconstruction is that of
    :class:`GAEModel`, sampled above 40 000 nodes.
    """

    outputs = ("mean", "log_std")

    def loss(self, x: Tensor | SparseBlock) -> LossTerms:
        """Return the negative evidence lower bound, with terms scaled as in the program. Costs are those of GAE."""
        mean, log_std = self.network["encoder"](x, self.normalized)
        log_std = log_std.clamp(max=_MAX_LOG_STD)
        z = mean + torch.randn_like(log_std) * torch.exp(log_std)
        kl = -0.5 * torch.mean(torch.sum(1 + 2 * log_std - mean**2 - log_std.exp() ** 2, dim=1))
        reconstruction = self._reconstruction(z)
        return LossTerms(total=reconstruction + kl / len(z), parts={"reconstruction": reconstruction, "kl": kl})


@register_method("arga", title="ARGA", reference="Pan et al. (2018), IJCAI", config=ARGAConfig, uses_graph=True)
class ARGAModel(GAEModel):
    r"""The adversarially regularized graph autoencoder of Pan et al. (2018).

    A discriminator D learns to distinguish z from samples of N(0, I); the encoder learns to reconstruct and to fool it.

    .. math:: \ell_{reconstruction}(z) - \lambda\,\frac{1}{N}\sum_i \log D(z_i) \quad\text{for the encoder},\qquad
              -\frac{1}{N}\sum_i \log D(\epsilon_i) - \frac{1}{N}\sum_i \log(1 - D(z_i)) \quad\text{for } D

    Departure from the paper: both are updated simultaneously, once per epoch, from one backward pass. The total is the
    sum of both losses, in which z is constant in D's loss and D is constant in the encoder's. The reconstruction is
    that of :class:`GAEModel`, sampled above 40 000 nodes.
    """

    def __init__(self, inputs: BuildInput) -> None:
        super().__init__(inputs)
        config = inputs.config
        weights = generator(inputs.seed, "discriminator")
        # D before its sigmoid.
        self.network["discriminator"] = MLP((config.n_dims, *config.hidden, 1), generator=weights, dtype=inputs.dtype)
        self.regularization_weight = config.regularization_weight

    def loss(self, x: Tensor | SparseBlock) -> LossTerms:
        """Return the sum of both losses; neither has a gradient in the other's weights. Costs are those of GAE."""
        z = self.read(x).z
        reconstruction = self._reconstruction(z)
        discriminator = self.network["discriminator"]
        with _constant(discriminator):
            regularization = -log_probability(discriminator(z)).mean()
        on_noise, on_rows = discriminator(torch.randn_like(z)), discriminator(z.detach())
        discrimination = -log_probability(on_noise).mean() - log_probability(on_rows, of_not=True).mean()
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
    """Treat the module's parameters as constants inside the context."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def log_probability(score: Tensor, *, of_not: bool = False) -> Tensor:
    """Return log σ(score), or log(1 − σ(score)) if `of_not`; finite for any score."""
    probability = torch.sigmoid(score)
    return torch.log((1 - probability if of_not else probability) + _EPS)
