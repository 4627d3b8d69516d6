"""SCGC and SCGC*: the N × N contrastive loss that PamC replaces."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pamc.config import GraphConfig
from pamc.graph.positives import PositivePairs
from pamc.losses.contrastive import contrastive_loss
from pamc.models.base import LossTerms
from pamc.models.method import BuildInput, register_method
from pamc.models.methods.autoencoders import AutoencoderConfig
from pamc.models.methods.block_contrast import BlockContrastModel

__all__ = ["SCGCConfig", "SCGCModel", "SCGCStarConfig", "build_scgc"]

_REFERENCE = "Kulatilleke, Portmann and Chandra (2022), SCGC: Self-supervised contrastive graph clustering"


@dataclass(frozen=True, kw_only=True)
class _ContrastConfig(GraphConfig, AutoencoderConfig):
    """Settings that SCGC and SCGC* share."""

    alpha: float = 1.0
    beta: float = 1.0
    tau: float = 1.0
    self_edges: str = "drop"
    kl_reduction: str = "mean"


@dataclass(frozen=True, kw_only=True)
class SCGCStarConfig(_ContrastConfig):
    """Settings of SCGC*.

    Parameters
    ----------
    alpha, beta
        Weights of the contrastive and of the clustering term.
    tau
        Multiplies the cosine.
    n_hops, max_positives
        Order of the influence that makes the positives, and how many of them to keep per row.
    self_edges
        "drop", or "keep" as in the released program.
    kl_reduction
        "mean" or "sum".
    """

    n_hops: int = 2
    max_positives: int | None = None


@dataclass(frozen=True, kw_only=True)
class SCGCConfig(_ContrastConfig):
    """Settings of SCGC: those of SCGC*, but the positives are the neighbors, and reconstruction is kept.

    Parameters
    ----------
    reconstruction_weight
        Weight of the mean squared error of the reconstruction.
    """

    reconstruction_weight: float = 1.0


class SCGCModel(BlockContrastModel):
    """The model of SCGC and SCGC*: Eq 12 with the classic loss (Eq 1) in the place of PamC. As in the paper.

    SCGC* has an MLP encoder and positives by influence; it differs from PamCGC in the loss alone. SCGC keeps the
    autoencoder's reconstruction and takes neighbors as positives.
    """

    def contrast(self, z: Tensor, labels: Tensor, log_q: Tensor | None) -> LossTerms:
        """Return the mean of Eq 1 over all nodes. O(N²·n_dims) time, O(N²) memory."""
        loss = contrastive_loss(z, self.pairs, tau=self.config.tau, self_edges=self.config.self_edges)
        return LossTerms(total=loss, parts={"contrast": loss})


@register_method(
    "scgc*",
    title="SCGC*",
    reference=_REFERENCE,
    config=SCGCStarConfig,
    uses_graph=True,
    inductive=True,
    init="autoencoder",
)
@register_method(
    "scgc",
    title="SCGC",
    reference=_REFERENCE,
    config=SCGCConfig,
    uses_graph=True,
    inductive=True,
    init="autoencoder",
)
def build_scgc(given: BuildInput) -> SCGCModel:
    """Return SCGC*, or SCGC with its decoder and neighbors as positives, from an autoencoder's weights."""
    if isinstance(given.config, SCGCStarConfig):
        return SCGCModel(given.encoder, given.centers, given.pairs, given.config)
    neighbors = PositivePairs.from_matrix(given.adjacency, dtype=given.dtype).to(device=given.device)
    return SCGCModel(given.encoder, given.centers, neighbors, given.config, decoder=given.required_decoder())
