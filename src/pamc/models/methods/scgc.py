"""SCGC and SCGC*, with the N × N contrastive loss that PamC replaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pamc.config import ClusteringTermConfig, ContrastConfig, GraphConfig, InfluenceConfig
from pamc.declarations import Number, setting
from pamc.graph.positives import PositivePairs
from pamc.losses.contrastive import contrastive_loss
from pamc.models.base import LossTerms
from pamc.models.method import BuildInput, register_method
from pamc.models.methods.autoencoders import AutoencoderConfig
from pamc.models.methods.pamcgc import BlockContrastModel

_REFERENCE = "Kulatilleke, Portmann and Chandra (2022), SCGC: Self-supervised contrastive graph clustering"
_FACTS: dict[str, Any] = {"reference": _REFERENCE, "uses_graph": True, "inductive": True, "init": "autoencoder"}


@dataclass(frozen=True, kw_only=True)
class SCGCStarConfig(ContrastConfig, ClusteringTermConfig, InfluenceConfig, GraphConfig, AutoencoderConfig):
    """Settings of SCGC*."""


@dataclass(frozen=True, kw_only=True)
class SCGCConfig(ContrastConfig, ClusteringTermConfig, GraphConfig, AutoencoderConfig):
    """Settings of SCGC: those of SCGC*, but with neighbors as positives, and with reconstruction."""

    reconstruction_weight: float = setting(1.0, Number(), "Weight of the mean squared error of the reconstruction.")


class SCGCModel(BlockContrastModel):
    """The model of SCGC and SCGC*: Eq 12 with the classic loss (Eq 1) instead of PamC. This follows the paper.

    SCGC* has an MLP encoder and positives by influence, and differs from PamCGC only in the loss. SCGC adds the
    autoencoder's reconstruction and uses neighbors as positives.
    """

    def contrast(self, z: Tensor, labels: Tensor, log_q: Tensor | None) -> LossTerms:
        """Return the mean of Eq 1 over all nodes. O(N²·n_dims) time, O(N²) memory."""
        loss = contrastive_loss(z, self.pairs, tau=self.config.tau, self_edges=self.config.self_edges)
        return LossTerms(total=loss, parts={"contrast": loss})


@register_method("scgc*", title="SCGC*", config=SCGCStarConfig, **_FACTS)
@register_method("scgc", title="SCGC", config=SCGCConfig, **_FACTS)
def build_scgc(inputs: BuildInput) -> SCGCModel:
    """Return SCGC*, or SCGC with its decoder and neighbors as positives, with an autoencoder's weights."""
    if isinstance(inputs.config, SCGCStarConfig):
        return SCGCModel(inputs.encoder, inputs.centers, inputs.pairs, inputs.config)
    neighbors = PositivePairs.from_matrix(inputs.adjacency, dtype=inputs.dtype).to(device=inputs.device)
    return SCGCModel(inputs.encoder, inputs.centers, neighbors, inputs.config, decoder=inputs.required_decoder())
