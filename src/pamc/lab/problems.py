"""Graphs and labels to measure losses on: random ones of any size, and a small one with all that goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pamc.errors import ConfigError
from pamc.graph.positives import PositivePairs

__all__ = ["Planted", "Problem", "awkward_problem", "normal", "planted", "random_pairs", "random_problem"]

# Degrees of a power law fall off as rank^-0.75, which is a tail of exponent 2.3, as of many graphs of people and pages.
_RANK_EXPONENT = 0.75

# Ends are drawn for so many times the pairs wanted: repeated pairs and self-edges are thrown away.
_EXCESS = 1.3
_MOST_ROUNDS = 50


@dataclass(frozen=True, eq=False)
class Problem:
    """What a contrastive loss is given beside z.

    Parameters
    ----------
    pairs
        γ over N nodes.
    labels
        (N,) cluster of each node.
    n_clusters
        C.
    tau
        Multiplies the cosine.
    """

    pairs: PositivePairs
    labels: Tensor
    n_clusters: int
    tau: float = 0.5

    def to(self, device: torch.device | str) -> Problem:
        """Return the problem on a device."""
        return replace(self, pairs=self.pairs.to(device=device), labels=self.labels.to(device))


def random_pairs(
    n_nodes: int, n_pairs: int, *, hub: int | None = None, device: torch.device | str = "cpu", seed: int = 0
) -> PositivePairs:
    """Return a random symmetric pattern with the weights of one hop, γ = Ā: built on the device, not reordered.

    Parameters
    ----------
    n_nodes, n_pairs
        N, and the number of stored entries, each unordered pair counting twice.
    hub
        None: both ends of a pair are uniform at random. Else degrees follow a power law whose largest is about this.

    Examples
    --------
    >>> pairs = random_pairs(100, 600)
    >>> pairs.n_pairs, bool((pairs.indptr.diff().max() > 30).item())
    (600, False)
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    n_wanted = n_pairs // 2
    cumulated = None if hub is None else _power_law(n_nodes, n_pairs, hub, device)
    place = torch.randperm(n_nodes, generator=generator, device=device)
    keys = torch.empty(0, dtype=torch.int64, device=device)
    for _ in range(_MOST_ROUNDS):
        ends = _ends(int(_EXCESS * n_wanted) + 8, n_nodes, cumulated, place, generator)
        low, high = ends.amin(dim=0), ends.amax(dim=0)
        keys = torch.unique(torch.cat([keys, (low * n_nodes + high)[low != high]]))
        if len(keys) >= n_wanted:
            break
    else:
        raise ConfigError(f"{n_nodes} nodes have too few pairs for {n_pairs} of them at random")
    chosen = keys[torch.randperm(len(keys), generator=generator, device=device)[:n_wanted]]
    low, high = chosen // n_nodes, chosen % n_nodes
    keys = (torch.cat([low, high]) * n_nodes + torch.cat([high, low])).sort().values
    row, column = keys // n_nodes, keys % n_nodes
    degree = torch.bincount(row, minlength=n_nodes)
    log_share = -(degree + 1).float().log()
    return PositivePairs(
        torch.cat([degree.new_zeros(1), degree.cumsum(0)]), column, log_share[row], log_share[column], log_share
    )


def random_problem(
    n_nodes: int, degree: int, n_clusters: int, *, device: torch.device | str = "cpu", seed: int = 0
) -> Problem:
    """Return a problem with `degree` stored neighbors per node on average, all ends and labels uniform at random."""
    pairs = random_pairs(n_nodes, n_nodes * degree, device=device, seed=seed)
    generator = torch.Generator(device=device).manual_seed(seed + 1)
    labels = torch.randint(n_clusters, (n_nodes,), generator=generator, device=device)
    return Problem(pairs, labels, n_clusters)


def normal(*shape: int, device: torch.device | str = "cpu", seed: int = 0) -> Tensor:
    """Return standard normal numbers, drawn on the device from a generator of their own."""
    return torch.randn(*shape, generator=torch.Generator(device=device).manual_seed(seed), device=device)


def awkward_problem(dtype: torch.dtype) -> tuple[Tensor, Tensor, Problem]:
    """Return z (41, 10), dense γ (41, 41) and the problem: on it every provider is compared with the reference.

    It has a zero row (1), an isolated node (0), a node with a self-edge alone (2), edges in one direction, repeated
    edges, self-edges, an empty cluster in the middle and an empty last one.
    """
    n_nodes, n_clusters = 41, 7
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(n_nodes, 10, generator=generator, dtype=torch.float64).to(dtype)
    z[1] = 0
    edges = torch.randint(3, n_nodes, (2, 4 * n_nodes), generator=generator)
    edges[:, :2] = edges[:, 2:4]
    edges[:, 4:8] = torch.tensor([[1, 2, 7, 5], [4, 2, 7, 1]])
    weight = torch.rand(edges.shape[1], generator=generator, dtype=torch.float64) + 0.1
    gamma = torch.zeros(n_nodes, n_nodes, dtype=torch.float64)
    gamma.index_put_((edges[0], edges[1]), weight, accumulate=True)
    labels = torch.randint(n_clusters, (n_nodes,), generator=generator)
    labels[(labels == n_clusters // 2) | (labels == n_clusters - 1)] = 0
    pairs = PositivePairs.from_edges(edges, weight, n_nodes=n_nodes, dtype=dtype)
    return z, gamma, Problem(pairs, labels, n_clusters)


def _power_law(n_nodes: int, n_pairs: int, hub: int, device: torch.device | str) -> Tensor:
    """Return (N,) the cumulated weights of ends whose degrees are hub·(1 + i/i₀)^-0.75, i the rank, and sum to E."""
    rest = 1 - _RANK_EXPONENT
    first = (n_pairs * rest / (hub * n_nodes**rest)) ** (1 / _RANK_EXPONENT)
    rank = torch.arange(n_nodes, dtype=torch.float64, device=device)
    weight: Tensor = (1 + rank / first).pow(-_RANK_EXPONENT)
    return weight.cumsum(0)


def _ends(n_drawn: int, n_nodes: int, cumulated: Tensor | None, place: Tensor, generator: torch.Generator) -> Tensor:
    """Return (2, n_drawn) ends of pairs, uniform or by the cumulated weights of their ranks."""
    if cumulated is None:
        return torch.randint(n_nodes, (2, n_drawn), generator=generator, device=place.device)
    drawn = torch.rand(2, n_drawn, generator=generator, device=place.device, dtype=torch.float64) * cumulated[-1]
    return place[torch.searchsorted(cumulated, drawn).clamp_(max=n_nodes - 1)]


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
