"""Deep Graph Infomax: a graph convolution that learns to distinguish rows from shuffled rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pamc.config import GraphConfig, TrainedConfig
from pamc.declarations import Count, setting
from pamc.models.base import GraphModel, LossTerms, Reading
from pamc.models.layers import GraphConvolution, normalized_adjacency, propagate
from pamc.models.loader import SparseBlock
from pamc.models.method import BuildInput, register_method
from pamc.models.methods.graph_autoencoders import log_probability
from pamc.ops.torch.rows import column_sums
from pamc.runtime import generator

# Initial negative slope of PReLU, torch's default.
_SLOPE = 0.25


@dataclass(frozen=True, kw_only=True)
class DGIConfig(GraphConfig, TrainedConfig):
    """Settings of DGI."""

    preprocessing: str = "unit"
    n_dims: int = setting(512, Count(), "Size of the embedding z.")


@register_method("dgi", title="DGI", reference="Veličković et al. (2019), ICLR", config=DGIConfig, uses_graph=True)
class DGIModel(GraphModel):
    r"""Deep Graph Infomax of Veličković et al. (2019).

    .. math:: -\frac{1}{N}\sum_i \log D(z_i, s) - \frac{1}{N}\sum_i \log(1 - D(\tilde z_i, s)), \quad
              z = PReLU(ÃXW^T), \quad s = σ(\bar z), \quad D(z, s) = σ(z^T M s)

    z̃ is the embedding of a corrupted graph, with the same edges and the rows of X in random order P, redrawn in each
    epoch. As Ã(PX)Wᵀ = Ã(P(XWᵀ)), rows are shuffled after the linear map: X is multiplied once, and sparse rows need no
    indexing. Departure from the paper: the convolution has no bias, and PReLU has one slope per dimension.
    """

    draws = True

    def __init__(self, inputs: BuildInput) -> None:
        super().__init__()
        n_dims, dtype = inputs.config.n_dims, inputs.dtype
        weights = generator(inputs.seed, "weights")
        convolution = GraphConvolution(inputs.n_features, n_dims, generator=weights, dtype=dtype)
        bound = n_dims**-0.5
        discriminator = torch.empty(n_dims, n_dims, dtype=dtype).uniform_(-bound, bound, generator=weights)
        slope = nn.Parameter(torch.full_like(discriminator[0], _SLOPE))
        # These names are used by saved weights.
        self.network: Any = nn.ModuleDict({"encoder": nn.ParameterDict({"slope": slope})})
        self.network.weight = nn.Parameter(discriminator)
        self.linear = convolution.linear
        self.normalized = normalized_adjacency(inputs.adjacency, device=inputs.device, dtype=dtype)

    def loss(self, x: Tensor | SparseBlock) -> LossTerms:
        """Return the loss of classifying true and shuffled rows. O((N·d + E)·n_dims) time, O(N·n_dims + E) memory."""
        h = self.linear(x)
        z = self._aggregated(h)
        shuffled = self._aggregated(h.index_select(0, torch.randperm(len(h), device=h.device)))
        summary = torch.sigmoid(column_sums(z) / len(z))
        on_rows, on_shuffled = (rows @ (self.network.weight @ summary) for rows in (z, shuffled))
        total = -log_probability(on_rows).mean() - log_probability(on_shuffled, of_not=True).mean()
        return LossTerms(total=total, parts={"infomax": total})

    def read(self, x: Tensor | SparseBlock) -> Reading:
        """Return z (N, n_dims)."""
        return Reading(self._aggregated(self.linear(x)))

    def _aggregated(self, h: Tensor) -> Tensor:
        """Return PReLU(Ãh), the part of a graph convolution after its linear map."""
        return nn.functional.prelu(propagate(self.normalized, h), self.network["encoder"]["slope"])
