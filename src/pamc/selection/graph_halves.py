"""Measure the stability of the clusters of a graph without features between random halves of its edges."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.graph.adjacency import Adjacency, build_adjacency
from pamc.graph.smoothing import on_sphere
from pamc.initialize.consensus import InputSource, directions_of_graph
from pamc.initialize.relations import halves_of_edges
from pamc.ops.kmeans import Labels
from pamc.ops.scores import adjusted_rand
from pamc.runtime import quiet_libraries, seed_for, side_by_side
from pamc.selection.clusterings import Dims, Points, clusterings


def edge_half_agreement(
    adjacency: Adjacency, candidates: Sequence[int], *, dims: Dims, n_splits: int, seed: int
) -> NDArray[np.float64]:
    """Return the agreement (2, n_splits, K) of clusterings of two halves of the edges, by method and candidate.

    The rows are the same in both halves, so their clusters are compared directly, by the adjusted Rand index. Rows
    without edges in one of the halves do not count. `dims` maps a number of clusters to the size of the embedding.
    O(E·r + N·r·(r + C)) time per split.
    """
    seeds = [seed_for(seed, f"halves of edges {split}") for split in range(n_splits)]
    tasks = [partial(_agreements, adjacency, candidates, dims, split_seed) for split_seed in seeds]
    with quiet_libraries:
        return np.stack(side_by_side(tasks), axis=1)


def _agreements(adjacency: Adjacency, candidates: Sequence[int], dims: Dims, seed: int) -> NDArray[np.float64]:
    """Return the agreement (2, K) of two halves for each clustering method and candidate."""
    halves = halves_of_edges(adjacency, seed)
    joined = np.logical_and(*(np.diff(half.indptr) > 0 for half in halves))
    if not joined.any():
        return np.zeros((2, len(candidates)))
    labels = [_labels(half, candidates, dims, seed) for half in halves]
    return np.array(
        [
            [adjusted_rand(_numbered(one[joined]), _numbered(other[joined])) for one, other in zip(*way, strict=True)]
            for way in zip(*labels, strict=True)
        ]
    )


def _labels(half: Adjacency, candidates: Sequence[int], dims: Dims, seed: int) -> list[list[Labels]]:
    """Return the clusters (N,) of a half for each clustering method and candidate."""
    rows = on_sphere(directions_of_graph(half, candidates[-1], seed))
    points = Points.of(rows, half, n_dims=dims(candidates[-1]))
    by_way = clusterings(points, candidates, dims=dims, seed=seed)
    return [[clusters.labels for clusters in of_way] for of_way in by_way]


def _numbered(labels: Labels) -> Labels:
    return np.unique(labels, return_inverse=True)[1]


def rewired(inputs: InputSource, *, seed: int) -> InputSource:
    """Return a random graph without clusters but with nearly the same degrees (a configuration model)."""
    once: Any = sp.triu(inputs.adjacency, k=1, format="coo")
    rng = np.random.default_rng(seed)
    ends = rng.permutation(np.concatenate([once.row, once.col])).reshape(2, -1)
    differ = ends[0] != ends[1]
    low, high = np.sort(ends[:, differ], axis=0)
    # A pair that is drawn twice is joined once.
    first = np.unique(low.astype(np.int64) * inputs.adjacency.shape[0] + high, return_index=True)[1]
    drawn = np.stack([low, high])[:, first].astype(np.int64)
    adjacency = build_adjacency(drawn, once.data[differ][first], n_nodes=inputs.adjacency.shape[0])
    return InputSource(inputs.kind, inputs.rows, adjacency)
