"""SDCN: a graph network that mixes in a fixed share of an autoencoder's activations, optionally with contrast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import relu

from pamc.declarations import Number, setting
from pamc.models.loader import SparseBlock
from pamc.models.method import register_method
from pamc.models.methods.dual_networks import (
    CONTRAST,
    DUAL,
    ContrastSettings,
    DualConfig,
    DualNetwork,
    PamCSettings,
    graph_convolutions,
)

_REFERENCE = "Bo et al. (2020), WWW, Structural deep clustering network"
_WITH_CONTRAST = f"{_REFERENCE}; {CONTRAST}"


@dataclass(frozen=True, kw_only=True)
class SDCNConfig(DualConfig):
    """Settings of SDCN."""

    sigma: float = setting(
        0.5, Number(at_most=1), "Share σ of the autoencoder's activations in the input of a graph convolution."
    )


@dataclass(frozen=True, kw_only=True)
class SDCNContrastConfig(ContrastSettings, SDCNConfig):
    """Settings of SDCN with the classic contrastive loss."""


@dataclass(frozen=True, kw_only=True)
class SDCNPamCConfig(PamCSettings, SDCNConfig):
    """Settings of SDCN with the PamC loss."""


@register_method("sdcn+contrast", title="SDCN + contrast", reference=_WITH_CONTRAST, config=SDCNContrastConfig, **DUAL)
@register_method("sdcn+pamc", title="SDCN + PamC", reference=_WITH_CONTRAST, config=SDCNPamCConfig, **DUAL)
@register_method("sdcn", title="SDCN", reference=_REFERENCE, config=SDCNConfig, **DUAL)
class SDCNModel(DualNetwork):
    r"""SDCN: each layer of the graph network mixes in a fixed share of the corresponding autoencoder layer.

    .. math:: Z_1 = relu(\tilde A X W_1), \quad
              Z_{l+1} = relu(\tilde A\,((1 - \sigma) Z_l + \sigma H_l)\,W_{l+1}), \quad
              Z = softmax(\tilde A\,((1 - \sigma) Z_L + \sigma z)\,W)

    H_l are the hidden activations of the encoder; no layer has a bias. This follows the paper.
    """

    def add_graph_network(self, sizes: Sequence[int], *, generator: torch.Generator, dtype: torch.dtype) -> None:
        """Initialize a graph convolution from each size to the next, and to the clusters."""
        self.convolutions = graph_convolutions((*sizes, len(self.centers)), generator=generator, dtype=dtype)

    def output(self, x: Tensor | SparseBlock, hidden: Sequence[Tensor], z: Tensor) -> Tensor:
        """Return the output of the last layer (N, C) before its softmax."""
        first, *others = self.convolutions
        out: Tensor = first(x, self.normalized)
        for layer, activation in zip(others, (*hidden, z), strict=True):
            out = layer(torch.lerp(relu(out), activation, self.config.sigma), self.normalized)
        return out
