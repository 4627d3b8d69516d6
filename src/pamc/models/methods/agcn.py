"""AGCN: attention between the layers of a graph network and an autoencoder, optionally with a contrastive term."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, normalize

from pamc.models.layers import Linear, propagate
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

_REFERENCE = "Peng et al. (2021), ACM MM, Attention-driven graph clustering network"
_WITH_CONTRAST = f"{_REFERENCE}; {CONTRAST}"

# Negative slope of the graph convolutions, as in the released program; its attention uses torch's default slope.
_SLOPE = 0.2


@dataclass(frozen=True, kw_only=True)
class AGCNContrastConfig(ContrastSettings, DualConfig):
    """Settings of AGCN with the classic contrastive loss."""


@dataclass(frozen=True, kw_only=True)
class AGCNPamCConfig(PamCSettings, DualConfig):
    """Settings of AGCN with the PamC loss."""


class BlockLinear(nn.Module):
    r"""[X_1 ‖ … ‖ X_k]Wᵀ without concatenating rows: Σ_b X_b W_bᵀ, where W_b are blocks of columns of W. No bias.

    `sizes` are the widths of the k blocks, `n_out` that of the result. Initial weights are uniform on ±bound.
    """

    def __init__(
        self, sizes: Sequence[int], n_out: int, *, bound: float, generator: torch.Generator, dtype: torch.dtype
    ) -> None:
        super().__init__()
        blocks = [Linear(size, n_out, generator=generator, dtype=dtype) for size in sizes]
        for block in blocks:
            block.redraw_without_bias(bound, generator)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, blocks: Sequence[Tensor], shares: Tensor | None = None) -> Tensor:
        """Return (N, n_out) for k blocks (N, size); `shares` (N, k) scales the blocks of each row."""
        products = [layer(block) for layer, block in zip(self.blocks, blocks, strict=True)]
        if shares is not None:
            # Scaling the rows of a product X_b W_bᵀ is the same as scaling those of X_b, and the product is narrower.
            products = [shares[:, k : k + 1] * product for k, product in enumerate(products)]
        return torch.stack(products).sum(dim=0)


class Attention(nn.Module):
    r"""The weights of k blocks in each row, positive and of Euclidean norm 1.

    .. math:: M = \ell_2(softmax(LeakyReLU([X_1 \,\|\, \dots \,\|\, X_k]\,W)))

    `sizes` are the widths of the k blocks. Initial weights are uniform on ±1/√(sum of the widths), as in
    `nn.Linear`.
    """

    def __init__(self, sizes: Sequence[int], *, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        bound = sum(sizes) ** -0.5
        self.scores = BlockLinear(sizes, len(sizes), bound=bound, generator=generator, dtype=dtype)

    def forward(self, blocks: Sequence[Tensor]) -> Tensor:
        """Return (N, k) for k blocks (N, size)."""
        shares = torch.softmax(leaky_relu(self.scores(blocks)), dim=1)
        return normalize(shares, dim=1)


@register_method("agcn+contrast", title="AGCN + contrast", reference=_WITH_CONTRAST, config=AGCNContrastConfig, **DUAL)
@register_method("agcn+pamc", title="AGCN + PamC", reference=_WITH_CONTRAST, config=AGCNPamCConfig, **DUAL)
@register_method("agcn", title="AGCN", reference=_REFERENCE, config=DualConfig, **DUAL)
class AGCNModel(DualNetwork):
    r"""AGCN: for each row, attention weighs the layers of both networks, and the layers in the output.

    .. math:: Z_1 = \phi(\tilde A X W_1), \quad
              Z_{l+1} = \phi(\tilde A\,(m_1 \odot Z_l + m_2 \odot H_l)\,W_{l+1}), \quad
              Z = softmax(\tilde A\,[u_1 \odot Z_1 \,\|\, \dots \,\|\, u_L \odot Z_L \,\|\, u_{L+1} \odot z]\,W)

    m is the :class:`Attention` of [Z_l ‖ H_l], u that of [Z_1 ‖ … ‖ Z_L ‖ z], φ the LeakyReLU of slope 0.2, H_l the
    hidden activations of the encoder. This follows the paper; its program adds a bias to the attention. Rows are
    neither repeated nor concatenated: a column of m or u is multiplied with the narrowest factor of a product.
    """

    def add_graph_network(self, sizes: Sequence[int], *, generator: torch.Generator, dtype: torch.dtype) -> None:
        """Initialize graph convolutions, the attention between networks and between layers, and the last layer."""
        weights: Any = {"generator": generator, "dtype": dtype}
        _, *hidden, n_dims = sizes
        scales = (*hidden, n_dims, n_dims)
        self.convolutions = graph_convolutions(sizes, **weights)
        self.fusions = nn.ModuleList(Attention((size, size), **weights) for size in hidden)
        self.scale_attention = Attention(scales, **weights)
        bound = math.sqrt(6 / (sum(scales) + len(self.centers)))
        self.classifier = BlockLinear(scales, len(self.centers), bound=bound, **weights)

    def output(self, x: Tensor | SparseBlock, hidden: Sequence[Tensor], z: Tensor) -> Tensor:
        """Return the output of the last layer (N, C) before its softmax."""
        first, *others = self.convolutions
        scales = [leaky_relu(first(x, self.normalized), _SLOPE)]
        for layer, attention, activation in zip(others, self.fusions, hidden, strict=True):
            m = attention((scales[-1], activation))
            fused = m[:, :1] * scales[-1] + m[:, 1:] * activation
            scales.append(leaky_relu(layer(fused, self.normalized), _SLOPE))
        scales.append(z)
        return propagate(self.normalized, self.classifier(scales, self.scale_attention(scales)))
