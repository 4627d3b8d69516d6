"""A planted block model made on the device, for graphs that are too large to travel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pamc.graph.positives import PositivePairs

__all__ = ["Planted", "planted"]

# Rows whose features are drawn at a time.
_DRAWN_AT_A_TIME = 1 << 21


@dataclass(frozen=True, eq=False)
class Planted:
    """Rows in blocks, joined mostly inside their block.

    Parameters
    ----------
    features
        (N, d) the center of a row's block, and noise.
    pairs
        Positive pairs of one hop; every row has the same number of neighbors.
    labels
        (N,) int64 block of each row, which nothing but the metrics may read.
    """

    features: Tensor
    pairs: PositivePairs
    labels: Tensor


def planted(
    n_nodes: int,
    *,
    n_clusters: int,
    n_features: int,
    n_neighbors: int,
    inside: float,
    noise: float,
    device: torch.device,
    dtype: torch.dtype,
    seed: int = 0,
) -> Planted:
    """Return a graph whose every row has `n_neighbors` neighbors, a share `inside` of them in its own block.

    Neighbors come in twos: all rows, or those of each block, are put in a ring of random order, and a row is joined
    with the one before and the one behind it. So the graph is symmetric as it is made, without a sort of all edges, and
    the ends of edges are uniform at random. A pair may be joined by two rings, rarely, and then counts twice. O(N·(d +
    n_neighbors)) time and memory.

    Parameters
    ----------
    n_neighbors
        Even.
    noise
        Standard deviation of each feature around the center of the block, whose own is 1.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    labels = torch.arange(n_nodes, device=device).mul_(n_clusters).div_(n_nodes, rounding_mode="floor")
    first = torch.searchsorted(labels, torch.arange(n_clusters + 1, device=device))
    indices = torch.empty(n_nodes, n_neighbors, dtype=torch.int32, device=device)
    n_rings = n_neighbors // 2
    for number in range(n_rings):
        if number < round(inside * n_rings):
            # Blocks are whole ranges of rows: sorted by block first, the rows of each are only shuffled.
            key = torch.rand(n_nodes, generator=generator, device=device, dtype=torch.float64).add_(labels)
            order = key.argsort()
            del key
            behind = order.roll(-1)
            behind[first[1:] - 1] = order[first[:-1]]
        else:
            order = torch.randperm(n_nodes, generator=generator, device=device)
            behind = order.roll(-1)
        indices[order, 2 * number] = behind.int()
        indices[behind, 2 * number + 1] = order.int()
        del order, behind
    indptr = torch.arange(0, n_nodes * n_neighbors + 1, n_neighbors, device=device)
    centers = torch.randn(n_clusters, n_features, generator=generator, device=device)
    features = torch.empty(n_nodes, n_features, dtype=dtype, device=device)
    for start in range(0, n_nodes, _DRAWN_AT_A_TIME):
        own = slice(start, min(start + _DRAWN_AT_A_TIME, n_nodes))
        drawn = torch.randn(own.stop - own.start, n_features, generator=generator, device=device)
        features[own] = drawn.mul_(noise).add_(centers[labels[own]])
    return Planted(features, PositivePairs.even(indptr, indices.view(-1)), labels)
