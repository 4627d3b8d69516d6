"""Deep Graph Infomax: torch_geometric's model around one graph convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pamc.config import GraphConfig, TrainedConfig
from pamc.declarations import Count, setting
from pamc.models.base import GraphModel, LossTerms, Reading
from pamc.models.graph_layers import GraphConvolution, normalized_adjacency, propagate
from pamc.models.loader import SparseBlock
from pamc.models.method import BuildInput, register_method
from pamc.models.methods.graph_autoencoders import geometric_models
from pamc.ops.torch.rows import column_sums
from pamc.runtime import generator

__all__ = ["DGIConfig", "DGIModel"]

# Slope of PReLU below 0, before training: torch's own.
_SLOPE = 0.25


@dataclass(frozen=True, kw_only=True)
class DGIConfig(GraphConfig, TrainedConfig):
    """Settings of DGI."""

    preprocessing: str = "unit"
    n_dims: int = setting(512, Count(), "Size that the embedding z has.")


class _Aggregation(nn.Module):
    """PReLU(Ãh): what a graph convolution does after its linear map."""

    def __init__(self, n_dims: int, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.full((n_dims,), _SLOPE, dtype=dtype))

    def forward(self, h: Tensor, normalized: Tensor) -> Tensor:
        return nn.functional.prelu(propagate(normalized, h), self.slope)


class DGIModel(GraphModel):
    r"""Deep Graph Infomax of Veličković et al. (2019).

    .. math:: -\frac{1}{N}\sum_i \log D(z_i, s) - \frac{1}{N}\sum_i \log(1 - D(\tilde z_i, s)), \quad
              z = PReLU(ÃXW^T), \quad s = σ(\bar z), \quad D(z, s) = σ(z^T M s)

    z̃ is the embedding of a corrupted graph: the same edges, the rows of X in random order P, drawn anew in each epoch.
    As Ã(PX)Wᵀ = Ã(P(XWᵀ)), the rows are shuffled after the linear map: X is multiplied once, and sparse rows need no
    indexing. The model of torch_geometric is therefore handed XWᵀ in the place of X. Departure from the paper: the
    convolution has no bias, and PReLU has a slope for each dimension.

    Parameters
    ----------
    network
        A `DeepGraphInfomax` of torch_geometric whose encoder takes XWᵀ and Ã.
    convolution
        Whose linear map is W.
    normalized
        (N, N) CSR tensor Ã.
    """

    draws = True

    def __init__(self, network: Any, convolution: GraphConvolution, normalized: Tensor) -> None:
        super().__init__()
        self.network = network
        self.linear = convolution.linear
        self.normalized = normalized

    def loss(self, x: Tensor | SparseBlock) -> LossTerms:
        """Return the loss of telling true from shuffled rows. O(N·d·n_dims + E·n_dims) time, O(N·n_dims + E) memory."""
        total = self.network.loss(*self.network(self.linear(x), self.normalized))
        return LossTerms(total=total, parts={"infomax": total})

    def read(self, x: Tensor | SparseBlock) -> Reading:
        """Return z (N, n_dims)."""
        return Reading(self.network.encoder(self.linear(x), self.normalized))


@register_method("dgi", title="DGI", reference="Veličković et al. (2019), ICLR", config=DGIConfig, uses_graph=True)
def build_dgi(given: BuildInput) -> DGIModel:
    """Return an untrained DGI."""
    n_dims = given.config.n_dims
    source = generator(given.seed, "weights")
    convolution = GraphConvolution(given.n_features, n_dims, generator=source, dtype=given.dtype)
    models = geometric_models()
    # The constructor draws weights from torch's global generator: its state is put back, and M is drawn again below.
    with torch.random.fork_rng(devices=[]):
        network = models.DeepGraphInfomax(n_dims, _Aggregation(n_dims, dtype=given.dtype), _summary, _shuffled)
    bound = n_dims**-0.5
    network.to(given.dtype)
    with torch.no_grad():
        network.weight.uniform_(-bound, bound, generator=source)
    normalized = normalized_adjacency(given.adjacency, device=given.device, dtype=given.dtype)
    return DGIModel(network, convolution, normalized).to(given.device)


def _summary(z: Tensor, *_: Tensor) -> Tensor:
    """Return s (n_dims,), the mean row of z through a sigmoid."""
    return torch.sigmoid(column_sums(z) / len(z))


def _shuffled(h: Tensor, normalized: Tensor) -> tuple[Tensor, Tensor]:
    return h.index_select(0, torch.randperm(len(h), device=h.device)), normalized
