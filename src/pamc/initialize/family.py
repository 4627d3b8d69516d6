"""Families of quick clusterings of the same rows, and the choice of one of their partitions without labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from pamc.graph.adjacency import Adjacency
from pamc.graph.smoothing import Floats, embedding, on_sphere, smoothed
from pamc.ops.kmeans import Labels, kmeans, nearest_centers
from pamc.ops.scores import adjusted_rand, conductance, modularity
from pamc.registry import Registry
from pamc.runtime import seed_for

# Reaches of the random walks that smooth the features. The encoder is fitted to the embedding of the middle one.
_REACHES = (0.8, 0.9, 0.95)
MIDDLE = 1

# Dimensions of the smoothed embeddings: per cluster, and at most.
_DIMS_PER_CLUSTER, _MOST_DIMS = 2, 32

# Dimensions per cluster if several relations form the graph, because each adds directions of its own.
_DIMS_OF_RELATIONS = 4

# Size of the random sample of rows on which K-means runs if there are more: at least in total, and per cluster.
_MOST_SAMPLED, _SAMPLED_PER_CLUSTER = 4000, 50

# Number of other families whose partitions support a partition: those most similar to it.
_N_SUPPORTERS = 2

# Weight of the log conductance relative to the support, and the constant that is added to the conductance before.
_CONDUCTANCE_WEIGHT = 0.1
_LEAST_CONDUCTANCE = 1e-4

# Factor of the modularity in the score of the partitions of a graph without features.
_MODULARITY_WEIGHT = 10.0

# Number of edges whose lengths are computed at a time.
_EDGES_AT_A_TIME = 4096

# Partitions whose scores are at most this far below the best are combined, if there are at least this many.
_NEARLY_EQUAL, LEAST_COMBINED = 0.15, 3


@dataclass(frozen=True, eq=False)
class FamilyInput:
    """The input of a family of clusterings.

    Parameters
    ----------
    rows
        (N, r) rows in their leading directions, to be smoothed along a graph.
    points
        (N, r) the same rows in fewer directions, with mean squared length 1, compared by Euclidean distance.
    neighbors
        (N, N) symmetric kNN graph of the points.
    adjacency
        (N, N) symmetric weights of the graph of the fit.
    smoothed
        (N, n_dims) embeddings of the rows, smoothed along the graph of the fit, one for each reach.
    distances
        (N, N) distances of the neighbors, if they are not those between the points.
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
    distances: Adjacency | None = None


Family: TypeAlias = Callable[[FamilyInput], Labels]

FAMILIES: Registry[Family] = Registry("family of clusterings", "pamc.initialize.families")


class Score(NamedTuple):
    """The label-free score of a partition; a larger value is better.

    Parameters
    ----------
    support
        Mean adjusted Rand index between the partition and the two most similar ones of families other than its own.
    conductance
        Mean over clusters of the share of a cluster's edges that lead to other clusters.
    """

    support: float
    conductance: float

    @property
    def value(self) -> float:
        """The support minus 0.1 times the logarithm of the conductance."""
        return self.support - _CONDUCTANCE_WEIGHT * math.log(self.conductance + _LEAST_CONDUCTANCE)


@dataclass(frozen=True, eq=False)
class Judge:
    """Scores partitions of the rows by their agreement with other partitions and with a graph, without labels.

    Real clusters are found by more than one family, so a partition is supported by similar partitions. But families of
    one kind may make the same mistake: K-means and Gaussian mixtures both cut rings into halves. Therefore, a partition
    that cuts few edges is preferred.

    Parameters
    ----------
    partitions
        (F, N) partitions by all families. The family whose partition is most similar to the judged one counts as its
        own, and does not support it. Without any (F = 0), the score is the modularity on the graph alone.
    graph
        (N, N) symmetric weights of the edges that clusters should not cut.
    rows
        (N,) indices of the judged rows in the table if they are a sample; None if they are all rows.
    """

    partitions: NDArray[np.int64]
    graph: Adjacency
    rows: NDArray[np.int64] | None = None

    def score(self, labels: Labels) -> Score | Modularity:
        """Return the score of the clusters of all rows of the table."""
        labels = np.unique(labels if self.rows is None else labels[self.rows], return_inverse=True)[1]
        if len(self.partitions) == 0:
            return Modularity(modularity(self.graph, labels))
        similarity = sorted(adjusted_rand(other, labels) for other in self.partitions)
        supporters = similarity[:-1][-_N_SUPPORTERS:]
        return Score(float(np.mean(supporters)), float(conductance(self.graph, labels).mean()))


class Modularity(NamedTuple):
    """The score of a partition of a graph without features.

    Parameters
    ----------
    initial_modularity
        The modularity of the partition on the graph.
    """

    initial_modularity: float

    @property
    def value(self) -> float:
        """Ten times the modularity, whose differences are then comparable to those of :class:`Score`."""
        return _MODULARITY_WEIGHT * self.initial_modularity


class Choice(NamedTuple):
    """The families whose partitions are used, in the order of their scores, and the judge that compared them.

    There is more than one family if several partitions are nearly equally good. A single partition needs no judge.
    """

    families: tuple[str, ...]
    judge: Judge | None


def choose_partitions(partitions: Mapping[str, Labels], graph: Adjacency) -> Choice:
    """Return the family whose partition has the best score, with those whose scores are nearly as good.

    A choice between partitions with nearly equal scores would be a matter of chance, and would depend on the random
    seed; their consensus hardly does.
    """
    if len(partitions) == 1:
        return Choice(tuple(partitions), None)
    judge = Judge(np.stack(list(partitions.values())), graph)
    value = {name: judge.score(labels).value for name, labels in partitions.items()}
    ranked = sorted(value, key=lambda name: -value[name])
    best = [name for name in ranked if value[name] >= value[ranked[0]] - _NEARLY_EQUAL]
    return Choice(tuple(best if len(best) >= LEAST_COMBINED else best[:1]), judge)


def choose_communities(partitions: Mapping[str, Labels], graph: Adjacency) -> Choice:
    """Return the family whose partition has the largest modularity on a graph without features, and its judge."""
    judge = Judge(np.empty((0, graph.shape[0]), dtype=np.int64), graph)
    return Choice((max(partitions, key=lambda name: judge.score(partitions[name]).value),), judge)


def squared_lengths(
    points: Floats, row: NDArray[np.integer], column: NDArray[np.integer], distances: Adjacency | None
) -> Floats:
    """Return the squared lengths (E,) of the edges of a kNN graph, from known distances or from the points."""
    if distances is None:
        # In blocks whose temporary arrays fit into the cache: allocating large arrays takes longer than computing.
        parts = [slice(first, first + _EDGES_AT_A_TIME) for first in range(0, len(row), _EDGES_AT_A_TIME)]
        blocks = [np.square(points[row[part]] - points[column[part]]).sum(axis=1) for part in parts]
        return np.concatenate([np.empty(0), *blocks])
    return np.asarray(np.square(distances[row, column])).ravel()


def smoothed_dims(n_clusters: int, *, has_relations: bool = False) -> int:
    """Return the number of dimensions of the smoothed embeddings."""
    return min((_DIMS_OF_RELATIONS if has_relations else _DIMS_PER_CLUSTER) * n_clusters, _MOST_DIMS)


def smoothed_embeddings(
    rows: Floats, adjacency: Adjacency, n_clusters: int, device: torch.device, *, has_relations: bool = False
) -> list[Floats]:
    """Return the embedding of the smoothed rows for each reach, with at most 32 columns.

    It has 2C columns, or 4C if the graph consists of several relations.
    """
    n_dims = smoothed_dims(n_clusters, has_relations=has_relations)
    return [embedding(smooth, n_dims) for smooth in smoothed(on_sphere(rows), adjacency, _REACHES, device=device)]


def repeated_kmeans(
    embeddings: list[Floats], n_clusters: int, n_repeats: int, *, seed: int, device: torch.device, name: str = "k-means"
) -> list[Labels]:
    """Return the labels of repeated K-means on each of the smoothed embeddings; `name` keys the random streams.

    The centers are those of a random sample if there are many rows.
    """
    labelings: list[Labels] = []
    for number, points in enumerate(embeddings):
        seeds = [seed_for(seed, f"{name} {number} {repeat}") for repeat in range(n_repeats)]
        # In float32, as on a GPU: twice as fast, and as good for a quick clustering.
        rows = points.astype(np.float32)
        n_sampled = max(_MOST_SAMPLED, _SAMPLED_PER_CLUSTER * n_clusters)
        if len(rows) <= n_sampled:
            labelings += [fit.labels for fit in kmeans(rows, n_clusters, seeds=seeds, device=device)]
            continue
        rng = np.random.default_rng(seed_for(seed, f"sample of {name} {number}"))
        sample = rows[np.sort(rng.choice(len(rows), n_sampled, replace=False, shuffle=False))]
        fits = kmeans(sample, n_clusters, seeds=seeds, device=device)
        labelings += nearest_centers(rows, [fit.centers for fit in fits], device)
    return labelings
