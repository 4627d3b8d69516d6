"""A low-dimensional layout of the kNN graph as in UMAP (McInnes, Healy and Melville 2018), clustered by a mixture.

Neighbors attract each other and all other rows repel each other, so that dense regions contract to compact clusters,
whatever their shape. Repulsion comes from a few rows that are drawn anew in each epoch and shared by all rows, which
makes an epoch a handful of matrix products.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from pamc.graph.adjacency import Adjacency
from pamc.graph.smoothing import Floats
from pamc.initialize.coassociation import consensus_and_agreement
from pamc.initialize.families.gaussian_mixture import mixture_labels
from pamc.initialize.families.spectral import leading_eigenvectors
from pamc.initialize.family import FAMILIES, FamilyInput, squared_lengths
from pamc.ops.cuda_graph import Captured
from pamc.ops.kmeans import Labels
from pamc.runtime import seed_for, side_by_side

_MOST_DIMS = 10
_N_EPOCHS = 300

# There is one layout for every six repeats. For each layout, the most likely of several mixtures is used, because a
# mixture that merges two clusters has a lower likelihood. The mixtures of all layouts form a consensus.
_REPEATS_PER_LAYOUT = 6
_N_MIXTURES = 10

# Number of rows that repel all others in an epoch, and number of repulsions per edge of weight 1, as in UMAP.
_N_REPELLING = 64
_REPULSIONS_PER_EDGE = 5

# The attraction of two rows at distance d is 1 / (1 + a·d^2b), UMAP's curve for a minimum distance of 0.1.
_A, _B = 1.577, 0.8951

# Step size of the first epoch, the largest repulsion by one row, and the largest change of a coordinate in an epoch.
_STEP, _MOST_FORCE, _MOST_STEP = 0.25, 4.0, 10.0

# Size of the initial layout, and of the noise that separates copies of a row.
_EXTENT, _NOISE = 10.0, 1e-3

_BISECTIONS = 24

_DTYPES = (np.int64, np.float32, np.int64, np.int64, np.int64)


@FAMILIES.register("layout")
def cluster_layout(inputs: FamilyInput) -> Labels:
    """Return the consensus of Gaussian mixtures of several layouts."""
    n_clusters, device = inputs.n_clusters, inputs.device
    n_dims = min(_MOST_DIMS, max(2, inputs.points.shape[1]))
    graph = fuzzy_graph(inputs.points, inputs.neighbors, inputs.distances)
    start = initial_layout(graph, n_dims, seed=seed_for(inputs.seed, "initial layout"))

    def clusters_of(number: int) -> Labels:
        seed = seed_for(inputs.seed, f"family layout {number}")
        positions = layout(graph, start, seed=seed, device=device)
        return mixture_labels(positions, n_clusters, seed=seed, n_init=_N_MIXTURES, device=device)

    tasks = [partial(clusters_of, number) for number in range(max(1, inputs.n_repeats // _REPEATS_PER_LAYOUT))]
    labelings = side_by_side(tasks, device, n_rows=len(start))
    seed = seed_for(inputs.seed, "consensus of layouts")
    return consensus_and_agreement(labelings, n_clusters, seed=seed, device=device).labels


def fuzzy_graph(points: Floats, neighbors: Adjacency, distances: Adjacency | None = None) -> Adjacency:
    """Return the kNN graph with UMAP's weights: 1 for the nearest neighbor, falling off at a scale set by each row.

    The scale is such that the weights of the k edges of a row sum to log₂ k. The two weights a, b of an edge, one from
    each end, are combined to a + b − ab.
    """
    edges: Any = neighbors.tocoo()
    distance = np.sqrt(squared_lengths(points, edges.row, edges.col, distances))
    n_nodes, degree = len(points), np.bincount(edges.row, minlength=len(points))
    nearest = np.full(n_nodes, np.inf)
    np.minimum.at(nearest, edges.row, distance)
    excess, target = distance - nearest[edges.row], np.log2(np.maximum(degree, 2))
    low, high, scale = np.zeros(n_nodes), np.full(n_nodes, np.inf), np.ones(n_nodes)
    for _ in range(_BISECTIONS):
        total = np.bincount(edges.row, np.exp(-excess / scale[edges.row]), minlength=n_nodes)
        low, high = np.where(total > target, low, scale), np.where(total > target, scale, high)
        scale = np.where(np.isinf(high), 2 * scale, (low + high) / 2)
    scale = np.maximum(scale, _NOISE * distance.mean())
    one_way = sp.csr_matrix((np.exp(-excess / scale[edges.row]), (edges.row, edges.col)), shape=neighbors.shape)
    return sp.csr_matrix(one_way + one_way.T - one_way.multiply(one_way.T))


def initial_layout(graph: Adjacency, n_dims: int, *, seed: int) -> Floats:
    """Return positions (N, n_dims) from the leading eigenvectors of the graph, all dimensions with the same extent."""
    vectors = leading_eigenvectors(graph, n_dims + 1, seed=seed)[:, 1:]
    vectors = _EXTENT * vectors / np.maximum(np.abs(vectors).max(axis=0), np.finfo(np.float64).tiny)
    return np.pad(vectors, ((0, 0), (0, n_dims - vectors.shape[1])))


def layout(graph: Adjacency, start: Floats, *, seed: int, device: torch.device) -> Floats:
    """Return positions (N, n_dims) of the rows of a weighted graph, starting from initial positions."""
    rng = np.random.default_rng(seed)
    start = start + rng.normal(scale=_NOISE, size=start.shape)
    positions = torch.from_numpy(start).to(device, torch.float32)
    scaled = sp.csr_matrix(graph / (graph.max() or 1.0))
    edges = _edges_of(scaled, device)
    total = torch.from_numpy(np.asarray(scaled.sum(axis=1))).to(device, torch.float32)
    repulsion = total * (_REPULSIONS_PER_EDGE / _N_REPELLING)
    drawn = torch.from_numpy(rng.integers(len(start), size=(_N_EPOCHS, _N_REPELLING))).to(device)
    step_size = (_STEP * (1 - torch.arange(_N_EPOCHS, dtype=torch.float64) / _N_EPOCHS)).to(positions)
    epoch = torch.zeros(1, dtype=torch.int64, device=device)

    def step() -> Tensor:
        force = _attraction(positions, edges)
        repelling = positions[drawn.index_select(0, epoch)[0]]
        force += repulsion * _repulsion(positions, repelling)
        positions.add_(force.clamp_(-_MOST_STEP, _MOST_STEP).mul_(step_size.index_select(0, epoch)))
        return epoch.add_(1)

    captured = Captured(step, device=device)
    for _ in range(_N_EPOCHS):
        captured()
    captured.release()
    return np.asarray(positions.cpu().numpy(), dtype=np.float64)


class _Edges(NamedTuple):
    """The E edges of a graph, and the 2E entries of its adjacency matrix, ordered by row.

    Parameters
    ----------
    ends
        (2, E) rows that each edge joins.
    weight
        (E,) weight of each edge.
    edge, column, first
        Edge (2E,) and column (2E,) of each entry, and the first entry of each row (N,). A sum over the entries of a row
        does not depend on the number of threads.
    """

    ends: Tensor
    weight: Tensor
    edge: Tensor
    column: Tensor
    first: Tensor


def _edges_of(graph: Adjacency, device: torch.device) -> _Edges:
    entries: Any = sp.csr_matrix(graph)
    entries.sort_indices()
    rows = np.repeat(np.arange(entries.shape[0]), np.diff(entries.indptr))
    low, high = np.minimum(rows, entries.indices), np.maximum(rows, entries.indices)
    once = np.flatnonzero(rows < entries.indices)
    pair = low.astype(np.int64) * entries.shape[0] + high
    # The entries above the diagonal are in ascending order of their pairs.
    edge = np.searchsorted(pair[once], pair)
    parts = (np.stack([low[once], high[once]]), entries.data[once], edge, entries.indices, entries.indptr[:-1])
    return _Edges(
        *(torch.from_numpy(part.astype(dtype)).to(device) for part, dtype in zip(parts, _DTYPES, strict=True))
    )


def _attraction(positions: Tensor, edges: _Edges) -> Tensor:
    """Return the sum (N, n_dims) of the forces along the edges."""
    # Sums over dimensions are fastest if the coordinates of a dimension are contiguous.
    by_dim = positions.T.contiguous()
    difference = by_dim.index_select(1, edges.ends[0]).sub_(by_dim.index_select(1, edges.ends[1]))
    squared = difference.square_().sum(dim=0).clamp_(min=1e-8)
    power = _power(squared)
    # In place, because allocating memory takes longer than computing.
    grad = power.mul(2 * _A * _B).mul_(edges.weight).div_(squared.mul_(power.mul_(_A).add_(1)))
    # The weighted sum over the neighbors of each row.
    weight = grad.index_select(0, edges.edge)
    options: dict[str, Any] = {"offsets": edges.first, "mode": "sum", "per_sample_weights": weight}
    pulled = nn.functional.embedding_bag(edges.column, positions, **options)
    total = nn.functional.embedding_bag(edges.column, torch.ones_like(positions[:, :1]), **options)
    return pulled - total * positions


def _repulsion(positions: Tensor, repelling: Tensor) -> Tensor:
    """Return the sum (N, n_dims) of the forces that the repelling rows (M, n_dims) exert."""
    squared = torch.addmm(repelling.square().sum(dim=1), positions, repelling.T, alpha=-2)
    squared = squared.add_(positions.square().sum(dim=1, keepdim=True)).clamp_(min=0)
    bounded = squared.sqrt().clamp_(min=1e-6).reciprocal_().mul_(_MOST_FORCE)
    grad = _power(squared).mul_(_A).add_(1).mul_(squared.add_(1e-3)).reciprocal_().mul_(2 * _B)
    grad = torch.minimum(grad, bounded, out=grad)
    return grad.sum(dim=1, keepdim=True) * positions - grad @ repelling


def _power(squared: Tensor) -> Tensor:
    """Return d^2b for squared distances d², in less than half of the time of the operator `**`."""
    return squared.log().mul_(_B).exp_()
