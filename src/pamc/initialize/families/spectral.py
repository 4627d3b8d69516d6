"""Spectral clustering (Ng, Jordan and Weiss 2002) with local scaling (Zelnik-Manor and Perona 2004)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from pamc.graph.adjacency import Adjacency, symmetric_normalize
from pamc.graph.smoothing import Floats, unit_rows
from pamc.initialize.family import FAMILIES, FamilyInput, squared_lengths
from pamc.ops.kmeans import Labels, kmeans
from pamc.runtime import seed_for

_N_INIT = 10

# The scale of a row is its distance to the neighbor of this rank.
_SCALE_RANK = 7

# Up to this many rows, all eigenvectors are computed at once.
_MOST_DENSE_ROWS = 1500

# Weight of a self-loop, without which an isolated row would have no direction.
_SELF_LOOP = 1e-6

_MOST_ITERATIONS = 3000


@FAMILIES.register("spectral")
def cluster_spectrally(inputs: FamilyInput) -> Labels:
    """Return K-means of the leading eigenvectors of the normalized kNN graph, with rows of length 1."""
    seed = seed_for(inputs.seed, "family spectral")
    graph = locally_scaled(inputs.points, inputs.neighbors, inputs.distances)
    vectors = leading_eigenvectors(graph, inputs.n_clusters, seed=seed)
    return kmeans(unit_rows(vectors), inputs.n_clusters, seeds=[seed], n_init=_N_INIT, device=inputs.device)[0].labels


def locally_scaled(points: Floats, neighbors: Adjacency, distances: Adjacency | None = None) -> Adjacency:
    """Return the kNN graph with weights exp(−d²(i, j) / (σ_i σ_j)), where σ is the distance to the 7th neighbor."""
    edges: Any = neighbors.tocoo()
    squared = squared_lengths(points, edges.row, edges.col, distances)
    # The distances of each row in ascending order: sort by row first, then by distance.
    order = np.lexsort((squared, edges.row))
    first = np.searchsorted(edges.row[order], np.arange(len(points)))
    last = np.append(first[1:], len(order)) - 1
    rank = np.minimum(first + _SCALE_RANK - 1, np.maximum(last, 0))
    scale = np.sqrt(squared[order][rank])
    product = np.maximum(scale[edges.row] * scale[edges.col], np.finfo(np.float64).tiny)
    return sp.csr_matrix((np.exp(-squared / product), (edges.row, edges.col)), shape=neighbors.shape)


def leading_eigenvectors(graph: Adjacency, n_vectors: int, *, seed: int) -> Floats:
    """Return (N, n_vectors) eigenvectors of the largest eigenvalues of D^-½ A D^-½."""
    n_nodes = graph.shape[0]
    normalized = symmetric_normalize(graph + _SELF_LOOP * sp.identity(n_nodes, format="csr"))
    if n_nodes <= _MOST_DENSE_ROWS or n_vectors >= n_nodes - 1:
        return np.asarray(np.linalg.eigh(normalized.toarray())[1][:, ::-1][:, :n_vectors])
    start = np.random.default_rng(seed).uniform(-1, 1, n_nodes)
    try:
        values, vectors = eigsh(normalized, n_vectors, which="LA", v0=start, tol=1e-4, maxiter=_MOST_ITERATIONS)
    except ArpackNoConvergence as stopped:
        values, vectors = stopped.eigenvalues, stopped.eigenvectors
    return np.asarray(vectors[:, np.argsort(-values)])
