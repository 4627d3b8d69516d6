"""Families of quick clusterings of the same rows, and the choice of one of their partitions without labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score

from pamc.graph.adjacency import Adjacency
from pamc.graph.smoothing import Floats, embedding, on_sphere, smoothed
from pamc.ops.kmeans import Labels, kmeans
from pamc.ops.scores import conductance
from pamc.registry import Registry
from pamc.runtime import seed_for

# Reaches of the random walks that smooth the features. The encoder is fitted to the embedding of the middle one.
_REACHES = (0.8, 0.9, 0.95)
MIDDLE = 1

# Dimensions of the smoothed embeddings: per cluster, and at most.
_DIMS_PER_CLUSTER, _MOST_DIMS = 2, 32

# Number of other families whose partitions support a partition: those most similar to it.
_N_SUPPORTERS = 2

# Weight of the logarithm of the conductance against the support, and the conductance that counts as none.
_CONDUCTANCE_WEIGHT = 0.1
_LEAST_CONDUCTANCE = 1e-4


@dataclass(frozen=True, eq=False)
class FamilyInput:
    """The input of a family of clusterings.

    Parameters
    ----------
    rows
        (N, r) rows in their leading directions, to be smoothed along a graph.
    points
        (N, r) the same in fewer directions, with mean squared length 1, compared by Euclidean distance.
    neighbors
        (N, N) symmetric kNN graph of the points.
    adjacency
        (N, N) symmetric weights of the graph of the fit.
    smoothed
        (N, n_dims) embeddings of the rows, smoothed along the graph of the fit, one for each reach.
    n_clusters, n_repeats, seed, device
        Number of clusters, repeats of randomized clusterings, random seed, and device of the computation.
    """

    rows: Floats
    points: Floats
    neighbors: Adjacency
    adjacency: Adjacency
    smoothed: list[Floats]
    n_clusters: int
    n_repeats: int
    seed: int
    device: torch.device


Family: TypeAlias = Callable[[FamilyInput], Labels]

FAMILIES: Registry[Family] = Registry("family of clusterings", "pamc.initialize.families")


class Choice(NamedTuple):
    """The chosen partition.

    Parameters
    ----------
    family
        Name of the family that found it.
    support
        Mean adjusted Rand index between the partition and the two most similar partitions of other families.
    """

    family: str
    support: float


def choose_partition(partitions: Mapping[str, Labels], graph: Adjacency) -> Choice:
    """Return the partition that other families support and that cuts few edges of the graph.

    Clusters that exist are found by more than one family: the support of a partition is its mean adjusted Rand index
    with the two most similar ones. Families of one kind may share a mistake, however; K-means and Gaussian mixtures
    both cut rings into halves. A partition that hardly cuts any edges is therefore preferred: the score is the support
    minus 0.1 times the logarithm of the mean conductance of the clusters.
    """
    names = list(partitions)
    similarity = np.array([[adjusted_rand_score(partitions[a], partitions[b]) for a in names] for b in names])
    np.fill_diagonal(similarity, -np.inf)
    n_supporters = min(_N_SUPPORTERS, len(names) - 1)
    if n_supporters == 0:
        return Choice(names[0], 1.0)
    support = np.sort(similarity, axis=1)[:, -n_supporters:].mean(axis=1)
    cut = np.array([conductance(graph, partitions[name]).mean() for name in names])
    best = int(np.argmax(support - _CONDUCTANCE_WEIGHT * np.log(cut + _LEAST_CONDUCTANCE)))
    return Choice(names[best], float(support[best]))


def smoothed_embeddings(rows: Floats, adjacency: Adjacency, n_clusters: int, device: torch.device) -> list[Floats]:
    """Return the (N, 2C) embedding of the smoothed rows for each reach, with at most 32 columns."""
    n_dims = min(_DIMS_PER_CLUSTER * n_clusters, _MOST_DIMS)
    return [embedding(smooth, n_dims) for smooth in smoothed(on_sphere(rows), adjacency, _REACHES, device=device)]


def repeated_kmeans(
    embeddings: list[Floats], n_clusters: int, n_repeats: int, *, seed: int, device: torch.device, name: str = "k-means"
) -> list[Labels]:
    """Return the labels of repeated K-means on each of the smoothed embeddings; `name` tells random streams apart."""
    labelings = []
    for number, points in enumerate(embeddings):
        seeds = [seed_for(seed, f"{name} {number} {repeat}") for repeat in range(n_repeats)]
        labelings += [fit.labels for fit in kmeans(points, n_clusters, seeds=seeds, device=device)]
    return labelings
