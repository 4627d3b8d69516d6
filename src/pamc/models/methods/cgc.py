"""CGC: a graph network trained by contrast at three levels, without reconstruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from pamc.config import GraphConfig, TrainedConfig
from pamc.declarations import Count, Number, setting
from pamc.graph.adjacency import Adjacency, row_normalize, with_self_loops
from pamc.losses.contrastive import feature_contrast_loss, neighbor_contrast_loss, prototype_contrast_loss
from pamc.models.base import GraphModel, LossTerms, Reading
from pamc.models.layers import GraphConvolution, Linear, normalized_adjacency
from pamc.models.loader import SparseBlock
from pamc.models.method import BuildInput, register_method
from pamc.models.methods.daegc import walk_sums
from pamc.ops.torch.clustering import cluster_sums, squared_distances
from pamc.ops.torch.rows import unit_rows
from pamc.runtime import generator


@dataclass(frozen=True, kw_only=True)
class CGCConfig(GraphConfig, TrainedConfig):
    """Settings of CGC."""

    n_hidden: int = setting(256, Count(), "Size of the first graph convolution.")
    n_dims: int = setting(256, Count(), "Size of the embedding z, the output of the second graph convolution.")
    tau: float = setting(1.0, Number(positive=True), "Inverse temperature that multiplies the cosines of all levels.")
    feature_weight: float = setting(1.0, Number(), "Weight of the contrast of a node's embedding with its features.")
    neighbor_weight: float = setting(1.0, Number(), "Weight of the contrast of a node with its neighbors.")
    prototype_weight: float = setting(0.1, Number(), "Weight of the contrast of a node with the prototypes.")
    n_negatives: int = setting(5, Count(), "Number of negatives to sample for each node in each epoch.")
    n_levels: int = setting(3, Count(), "Number of levels of the hierarchy, with C, 2C, 4C, … prototypes, at most N.")
    n_lloyd: int = setting(3, Count(), "Number of steps of Lloyd's algorithm that move the prototypes in each epoch.")


class Neighbors(nn.Module):
    r"""The positives of each node with their weights, and a sampler of its negatives.

    .. math:: w_{ij} = \frac{1 + t_{ij}}{\sum_k (1 + t_{ik})}

    t_ij is the number of triangles on the edge i, j, so that neighbors with many common neighbors have more weight.
    O(number of walks of two steps) time once, O(E) memory.

    Parameters
    ----------
    adjacency
        (N, N) symmetric adjacency without diagonal; its weights are ignored.
    """

    edges: Tensor
    weight: Tensor
    excluded: Tensor

    def __init__(self, adjacency: Adjacency, *, dtype: torch.dtype) -> None:
        super().__init__()
        binary = adjacency.copy()
        binary.data[:] = 1
        # A + A² on the edges: one for the edge itself, plus one for each parallel walk of two steps.
        weight = row_normalize(walk_sums(binary, binary, n_steps=2)).tocoo()
        loops = with_self_loops(binary).tocoo()
        self.n_nodes = adjacency.shape[0]
        self.register_buffer(
            "edges", torch.from_numpy(np.stack([weight.row, weight.col]).astype(np.int64)), persistent=False
        )
        self.register_buffer("weight", torch.from_numpy(weight.data).to(dtype), persistent=False)
        excluded = np.sort(loops.row.astype(np.int64) * self.n_nodes + loops.col)
        self.register_buffer("excluded", torch.from_numpy(excluded), persistent=False)

    def draw_negatives(self, n_negatives: int) -> tuple[Tensor, Tensor]:
        """Return (N, K) random nodes for each node, and (N, K) whether each is neither the node nor its neighbor.

        Draws from torch's global generator of the device. O(N·K·log E) time.
        """
        device = self.excluded.device
        drawn = torch.randint(self.n_nodes, (self.n_nodes, n_negatives), device=device)
        key = torch.arange(self.n_nodes, device=device)[:, None] * self.n_nodes + drawn
        position = torch.searchsorted(self.excluded, key).clamp(max=len(self.excluded) - 1)
        return drawn, self.excluded[position] != key


class Prototypes(nn.Module):
    """The prototypes of one level, which follow the embedding.

    Departure from the paper, which reruns K-means: a few steps of Lloyd's algorithm continue from the prototypes of the
    last epoch. They are initialized with random rows of the first embedding. A prototype without rows does not move.

    Parameters
    ----------
    n_nodes, n_dims, n_clusters
        Sizes; there are min(n_clusters, n_nodes) prototypes.
    generator
        Random generator of the initial choice.
    """

    first_rows: Tensor
    prototypes: Tensor

    def __init__(
        self, n_nodes: int, n_dims: int, n_clusters: int, *, generator: torch.Generator, dtype: torch.dtype
    ) -> None:
        super().__init__()
        rows = torch.randperm(n_nodes, generator=generator)[:n_clusters]
        self.register_buffer("first_rows", rows)
        # NaN until the first embedding is computed.
        self.register_buffer("prototypes", torch.full((len(rows), n_dims), torch.nan, dtype=dtype))

    @torch.no_grad()
    def forward(self, z: Tensor, *, n_steps: int) -> tuple[Tensor, Tensor]:
        """Move the prototypes to z (N, n_dims); return them and the (N,) nearest of each row. O(N·C·n_dims) time."""
        moved = torch.where(self.prototypes.isnan(), z[self.first_rows], self.prototypes)
        for _ in range(n_steps):
            sums, counts = cluster_sums(z, _nearest(z, moved), len(moved))
            moved = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], moved)
        self.prototypes.copy_(moved)
        return moved, _nearest(z, moved)


def _nearest(z: Tensor, prototypes: Tensor) -> Tensor:
    return squared_distances(z, prototypes).argmin(dim=1)


@register_method("cgc", title="CGC", reference="Park et al. (2022), WWW", config=CGCConfig, uses_graph=True)
class CGCModel(GraphModel):
    r"""Contrastive graph clustering of Park et al. (2022), for one static graph.

    .. math:: L = \lambda_F\,\ell_F(z, f) + \lambda_H\,\ell_H(z; w)
              + \lambda_C\,\frac{1}{L}\sum_{l=0}^{L-1}\ell_C(z; 2^l C \text{ prototypes})

    z = ÃReLU(ÃXW₁ᵀ)W₂ᵀ is a graph convolutional network, and f = XWᵀ + b; the levels are defined in
    :mod:`pamc.losses.contrastive`. This implementation follows the paper's description, not its program. Departures:
    graph convolutions are the encoder; cosines times τ replace inner products and a bilinear form over a temperature;
    the levels of features and of neighbors share one uniform sample of negatives; all neighbors are used, with weights,
    instead of a sample; prototypes follow the embedding (:class:`Prototypes`). Clusters are K-means of the final z.
    """

    draws = True

    def __init__(self, inputs: BuildInput) -> None:
        super().__init__()
        self.config: CGCConfig = inputs.config
        n_features, n_hidden, n_dims = inputs.n_features, self.config.n_hidden, self.config.n_dims
        weights: Any = {"generator": generator(inputs.seed, "weights"), "dtype": inputs.dtype}
        self.first = GraphConvolution(n_features, n_hidden, **weights)
        self.second = GraphConvolution(n_hidden, n_dims, **weights)
        self.features = Linear(n_features, n_dims, **weights)
        self.normalized = normalized_adjacency(inputs.adjacency, device=inputs.device, dtype=inputs.dtype)
        self.neighbors = Neighbors(inputs.adjacency, dtype=inputs.dtype)
        choice = generator(inputs.seed, "prototypes")
        # The coarsest level first.
        sizes = [self.config.n_clusters * 2**level for level in range(self.config.n_levels)]
        self.hierarchy = nn.ModuleList(
            Prototypes(inputs.n_nodes, n_dims, size, generator=choice, dtype=inputs.dtype) for size in sizes
        )

    def embed(self, x: Tensor | SparseBlock) -> Tensor:
        """Return z (N, n_dims) with rows of length 1, because every level uses cosines."""
        return unit_rows(self.second(relu(self.first(x, self.normalized)), self.normalized))

    def loss(self, x: Tensor | SparseBlock) -> LossTerms:
        """Return the loss of all rows, after moving the prototypes to their embedding.

        O(E·(n_hidden + n_dims) + N·d·n_hidden + N·(n_negatives + n_levels·C)·n_dims) time and
        O((E + N·n_negatives)·n_dims) memory.
        """
        config, z = self.config, self.embed(x)
        drawn, is_negative = self.neighbors.draw_negatives(config.n_negatives)
        pairs = self.neighbors
        feature = feature_contrast_loss(z, self.features(x), drawn, tau=config.tau)
        neighbor = neighbor_contrast_loss(z, pairs.edges, pairs.weight, drawn, is_negative=is_negative, tau=config.tau)
        levels = []
        for level in self.hierarchy:
            prototypes, labels = level(z.detach(), n_steps=config.n_lloyd)
            levels.append(prototype_contrast_loss(z, prototypes, labels, tau=config.tau))
        prototype = torch.stack(levels).mean()
        return LossTerms(
            total=config.feature_weight * feature
            + config.neighbor_weight * neighbor
            + config.prototype_weight * prototype,
            parts={"feature": feature, "neighbor": neighbor, "prototype": prototype},
        )

    def read(self, x: Tensor | SparseBlock) -> Reading:
        """Return z (N, n_dims)."""
        return Reading(self.embed(x))
