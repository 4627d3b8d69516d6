"""AE with K-means, DEC and IDEC, which use features only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from pamc.config import AssigningConfig, EncoderConfig, MethodConfig
from pamc.declarations import Count, Number, setting
from pamc.losses.clustering import kl_loss, log_soft_assignment, log_target_distribution
from pamc.models.base import LossTerms, Model
from pamc.models.layers import MLP
from pamc.models.method import BuildInput, register_method

_FACTS: dict[str, Any] = {"uses_graph": False, "inductive": True, "init": "autoencoder"}


@dataclass(frozen=True, kw_only=True)
class AEConfig(EncoderConfig, MethodConfig):
    """Settings of an autoencoder, whose decoder mirrors its encoder."""

    n_dims: int = setting(10, Count(), "Size of the embedding z.")


@dataclass(frozen=True, kw_only=True)
class AutoencoderConfig(AEConfig, AssigningConfig):
    """Settings of a method that is initialized with a pretrained autoencoder."""


@dataclass(frozen=True, kw_only=True)
class IDECConfig(AutoencoderConfig):
    """Settings of IDEC."""

    kl_weight: float = setting(0.1, Number(), "Weight γ of the clustering term.")


class StartOnly(Model):
    """An encoder that is not trained further; clusters are K-means of its embedding."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def objective(self, z: Tensor) -> LossTerms:
        """Return a zero loss, because there is nothing to train."""
        return LossTerms(total=0 * z.sum(), parts={})


@register_method(
    "ae",
    title="AE",
    reference="Hinton and Salakhutdinov (2006), Science 313; then K-means",
    config=AEConfig,
    **_FACTS,
)
def build_ae(inputs: BuildInput) -> StartOnly:
    """Return the encoder of the autoencoder unchanged; clusters are K-means of its z."""
    return StartOnly(inputs.encoder)


class DECModel(Model):
    r"""DEC and IDEC: an encoder and centers trained on the KL divergence to the sharpened assignment.

    .. math:: L = KL(P \,\|\, Q) \quad\text{(DEC)}, \qquad
              L = \tfrac{1}{N}\textstyle\sum_i \|x_i - \hat x_i\|^2/d + \gamma\,KL(P \,\|\, Q) \quad\text{(IDEC)}

    q and p are Eqs 9 and 10, and the divergence is divided by N. Departure from the papers: full-batch Adam with p of
    the same epoch, whereas their programs use batches and update p at intervals.

    Parameters
    ----------
    encoder, centers
        Initialized encoder and (C, n_dims) centers.
    config
        Settings: `eta`, and `kl_weight` for IDEC.
    decoder
        Decoder of the reconstruction term (IDEC); None omits the term (DEC).
    """

    def __init__(self, encoder: nn.Module, centers: Tensor, config: Any, *, decoder: MLP | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.centers: nn.Parameter = nn.Parameter(centers.detach().clone())
        self.decoder = decoder
        self.eta = config.eta
        self.kl_weight = getattr(config, "kl_weight", 1.0)

    def objective(self, z: Tensor) -> LossTerms:
        """Return γ·KL(P‖Q) for z (N, n_dims). O(N·C·n_dims) time."""
        log_q = log_soft_assignment(z, self.centers, eta=self.eta)
        kl = kl_loss(log_target_distribution(log_q.detach()), log_q)
        return LossTerms(total=self.kl_weight * kl, parts={"kl": kl}, labels=log_q.detach().argmax(dim=1))


@register_method(
    "idec",
    title="IDEC",
    reference="Guo et al. (2017), IJCAI, Improved deep embedded clustering with local structure preservation",
    config=IDECConfig,
    **_FACTS,
)
@register_method(
    "dec",
    title="DEC",
    reference="Xie, Girshick and Farhadi (2016), ICML, Unsupervised deep embedding for clustering analysis",
    config=AutoencoderConfig,
    **_FACTS,
)
def build_dec(inputs: BuildInput) -> DECModel:
    """Return DEC, or IDEC with its decoder, with an autoencoder's weights."""
    decoder = inputs.required_decoder() if isinstance(inputs.config, IDECConfig) else None
    return DECModel(inputs.encoder, inputs.centers, inputs.config, decoder=decoder)
