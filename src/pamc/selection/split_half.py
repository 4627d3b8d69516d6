"""Would another sample give the same clusters? Random halves of the rows, clustered apart and compared.

The same of data that are like the given ones but have no clusters says what such a comparison gives by chance, and the
two together which number of clusters the data speak for, if any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from pamc.graph.adjacency import Adjacency, build_adjacency
from pamc.graph.neighbors import ANGLE, DIRECTIONS, knn_adjacency, nearest
from pamc.graph.smoothing import Floats, on_sphere, smoothed, unit_rows
from pamc.initialize.consensus import ROWS_PER_GROUP, InputSource
from pamc.initialize.partitions import EdgeList, Labels, edge_list, merged_labels
from pamc.ops.kmeans import KMeansFit, kmeans
from pamc.runtime import quiet_libraries, seed_for, side_by_side

__all__ = ["WAYS", "Decision", "clusters_of", "decide", "null_reference", "split_half_agreement"]

# How clusters are found: as a consensus start finds them.
WAYS = ("k-means", "merged groups")

# How far the walk goes that smooths the rows: the middle one of a consensus start.
_REACH = 0.9

_KMEANS_STARTS = 20

# Groups per cluster that are merged, and rows that a group has at least, on average.
_GROUPS_PER_CLUSTER = 6

# Directions in which rows are compared, random pairs that say what is usual, nearest rows, and candidates for an end.
_PAIRS, _NEAREST, _CANDIDATES = 20_000, 32, 48
_EDGES_AT_A_TIME = 1 << 12

Dims: TypeAlias = Callable[[int], int]


@dataclass(frozen=True, eq=False)
class _Points:
    """Smoothed rows, the directions in which they are clustered, and the edges between them."""

    rows: Floats
    directions: Floats
    edges: EdgeList

    @classmethod
    def of(cls, placed: Floats, adjacency: Adjacency) -> _Points:
        rows = smoothed(placed, adjacency, [_REACH])[0]
        spread, directions = np.linalg.eigh(rows.T @ rows)
        # As in `embedding`: each direction is weighted by the root of its spread.
        scale = np.maximum(spread[::-1], 0.0) ** 0.25
        kept = scale > 1e-6 * scale.max(initial=0.0)
        return cls(rows, directions[:, ::-1][:, kept] / scale[kept], edge_list(adjacency))

    def embedded(self, directions: Floats) -> Floats:
        return unit_rows(self.rows @ directions)


@dataclass(frozen=True, eq=False)
class _Clusters:
    """Clusters of points, and what gives them to other points."""

    labels: Labels
    directions: Floats
    kmeans: KMeansFit
    cluster_of_group: NDArray[np.int64]

    def of(self, points: _Points) -> Labels:
        found: Labels = self.cluster_of_group[self.kmeans.predict(points.embedded(self.directions))]
        return found


def clusters_of(inputs: InputSource, n_clusters: int, *, n_dims: int, way: str, seed: int) -> tuple[Labels, Floats]:
    """Return quick clusters (N,) of all rows, and the points (N, n_dims) of length 1 in which they lie."""
    points = _Points.of(on_sphere(inputs.rows), inputs.adjacency)
    found = _found(points, n_clusters, n_dims, way, seed)
    return found.labels, points.embedded(found.directions)


def split_half_agreement(
    inputs: InputSource, candidates: Sequence[int], *, dims: Dims, n_splits: int, seed: int
) -> NDArray[np.float64]:
    """Return (2, n_splits, K) how well clusters of two random halves of the rows agree, for each way and candidate.

    Each half is smoothed along its own edges and clustered by itself; its clusters are given to the rows of the other
    half, by the nearest center, and compared with those that were found there: the mean of the two adjusted Rand
    indices. 1 where both halves tell the same, 0 by chance. `dims` returns the dimensions in which a number of clusters
    is sought. O(E·r + N·r·(r + C)) time for each split.
    """
    placed = on_sphere(inputs.rows)
    order = np.random.default_rng(seed_for(seed, "splits"))
    result = np.empty((len(WAYS), n_splits, len(candidates)))
    for split in range(n_splits):
        halves = [np.sort(half) for half in np.array_split(order.permutation(len(placed)), 2)]
        sides = [_Points.of(placed[half], inputs.adjacency[half][:, half]) for half in halves]
        with quiet_libraries:
            compared = side_by_side(
                partial(_compared, sides, k, dims(k), way, seed_for(seed, f"split {split}"))
                for way in WAYS
                for k in candidates
            )
        result[:, split] = np.reshape(compared, result[:, split].shape)
    return result


def null_reference(
    inputs: InputSource, *, shape: str, own_graph: bool, n_neighbors: int, seed: int, device: torch.device
) -> InputSource:
    """Return rows of the same spread in every direction, "gaussian" or "uniform", and a graph, but no clusters.

    With `own_graph` that is the kNN graph of the rows. Otherwise as many edges are drawn as are given, of which each
    joins rows as alike, among all, as one of the given edges does: a graph that follows the features as far.
    """
    drawn = np.random.default_rng(seed_for(seed, "rows without clusters"))
    size = inputs.rows.shape
    values = drawn.normal(size=size) if shape == "gaussian" else drawn.uniform(-np.sqrt(3), np.sqrt(3), size=size)
    rows = inputs.rows.mean(axis=0) + values * inputs.rows.std(axis=0)
    n_neighbors = min(n_neighbors, len(rows) - 1)
    if own_graph:
        return InputSource(inputs.kind, rows, knn_adjacency(rows, n_neighbors, device, seed=seed))
    edges = edge_list(inputs.adjacency)
    given, new = _Likeness(inputs.rows, drawn), _Likeness(rows, drawn)
    # Edges have no direction: which of the ends is kept is drawn.
    turned = drawn.random(len(edges.rows)) < 0.5
    source = np.where(turned, edges.columns, edges.rows)
    target = np.where(turned, edges.rows, edges.columns)
    share = given.share(given.of(source, target))
    ends = _ends_as_alike(new, source, share, np.concatenate([source, target]), drawn)
    near = min(_NEAREST, len(rows) - 1)
    neighbors = nearest(rows, near, metric=ANGLE, device=device, seed=seed).edges[1].reshape(-1, near)
    # Where an edge joins nearest rows, random candidates are too far: one of the nearest is taken.
    close = (1 - share) * len(rows) < near
    ends[close] = neighbors[source[close], drawn.integers(near, size=np.count_nonzero(close))]
    pairs = np.unique(np.sort(np.stack([source, ends]), axis=0), axis=1)
    pairs = pairs[:, pairs[0] != pairs[1]]
    return InputSource(inputs.kind, rows, build_adjacency(pairs, None, n_nodes=len(rows)))


class _Likeness:
    """The cosine of centered rows in their leading directions, and how usual it is among random pairs."""

    def __init__(self, rows: Floats, drawn: np.random.Generator) -> None:
        self.unit = unit_rows(rows[:, :DIRECTIONS] - rows[:, :DIRECTIONS].mean(axis=0))
        self.usual = np.sort(self.of(*drawn.integers(len(rows), size=(2, _PAIRS))))

    def of(self, one: NDArray[np.integer], other: NDArray[np.integer]) -> Floats:
        cosines: Floats = (self.unit[one] * self.unit[other]).sum(axis=1)
        return cosines

    def share(self, cosines: Floats) -> Floats:
        """Return the share of random pairs that are less alike."""
        return np.asarray(np.searchsorted(self.usual, cosines) / len(self.usual), dtype=np.float64)

    def cosine(self, share: Floats) -> Floats:
        """Return the cosine that a share of random pairs stays below."""
        place = np.minimum((share * len(self.usual)).astype(np.int64), len(self.usual) - 1)
        return np.asarray(self.usual[place], dtype=np.float64)


def _ends_as_alike(
    likeness: _Likeness,
    source: NDArray[np.integer],
    share: Floats,
    ends: NDArray[np.integer],
    drawn: np.random.Generator,
) -> NDArray[np.int64]:
    """Return other ends (E,) of edges, each of some random `ends` the one whose likeness to the source is nearest."""
    wanted = likeness.cosine(share)
    found = np.empty(len(source), dtype=np.int64)
    for first in range(0, len(source), _EDGES_AT_A_TIME):
        block = slice(first, first + _EDGES_AT_A_TIME)
        own = source[block]
        others = ends[drawn.integers(len(ends), size=(len(own), _CANDIDATES))]
        cosines = np.einsum("ed,ecd->ec", likeness.unit[own], likeness.unit[others])
        best = np.abs(cosines - wanted[block, None]).argmin(axis=1)
        found[block] = others[np.arange(len(own)), best]
    return found


def _compared(sides: list[_Points], n_clusters: int, n_dims: int, way: str, seed: int) -> float:
    here, there = (_found(points, n_clusters, n_dims, way, seed) for points in sides)
    pairs = ((there.labels, here.of(sides[1])), (here.labels, there.of(sides[0])))
    return float(np.mean([adjusted_rand_score(*pair) for pair in pairs]))


def _found(points: _Points, n_clusters: int, n_dims: int, way: str, seed: int) -> _Clusters:
    directions = points.directions[:, :n_dims]
    embedded = points.embedded(directions)
    if way == "k-means":
        fit = kmeans(embedded, n_clusters, seeds=[seed], n_init=_KMEANS_STARTS)[0]
        return _Clusters(fit.labels, directions, fit, np.arange(n_clusters))
    n_groups = max(n_clusters, min(_GROUPS_PER_CLUSTER * n_clusters, len(embedded) // ROWS_PER_GROUP))
    fit = kmeans(embedded, n_groups, seeds=[seed])[0]
    labels = merged_labels(fit.labels, points.edges, n_clusters)
    cluster_of_group = np.zeros(n_groups, dtype=np.int64)
    cluster_of_group[fit.labels] = labels
    return _Clusters(labels, directions, fit, cluster_of_group)


# Disagreement counts in halves and doubles; below this it counts no further.
_LEAST_DISAGREEMENT = 0.02

# What beats chance: disagreement of at most 55 % (e^−0.6) of that without clusters, and as many standard deviations of
# it between data sets without clusters, which is at least so large.
_LEAST_GAIN, _LEAST_DEVIATIONS, _LEAST_SPREAD = 0.6, 3.5, 0.1

# To cut one of k equal clusters where there is nothing to cut costs an agreement of about 0.4 / k. A number that is
# behind by no more than a quarter of that, or than one standard error, is equally stable; so many may be.
_EQUAL_TIMES_K, _MOST_EQUAL = 0.1, 3

# So many candidates are soon named, and say little of all numbers.
_FEW = 3


class Decision(NamedTuple):
    """What the agreement of halves says of K candidates.

    `chosen` is the place of the recommended one, None where the data do not say, and `why` one sentence. `stability`,
    its standard `error` and `chance`, the agreement without clusters, are those of the better `way` of each candidate.
    The recommended number is more stable than the next one, the `rival`, by `margin`. `equal` are the places of other
    candidates that are as stable; those of a recommendation are smaller numbers.
    """

    chosen: int | None
    why: str
    stability: NDArray[np.float64]
    error: NDArray[np.float64]
    chance: NDArray[np.float64]
    way: NDArray[np.int64]
    beats_chance: NDArray[np.bool_]
    margin: float = 0.0
    margin_error: float = 0.0
    rival: int | None = None
    equal: tuple[int, ...] = ()


def decide(
    candidates: list[int], agreement: NDArray[np.float64], by_chance: NDArray[np.float64], *, most: int | None = None
) -> Decision:
    """Return the decision from the agreement (2, splits, K) of the data and (2, draws, K) of data without clusters.

    The most stable number is taken of those that beat chance. Where a larger one is as stable it is taken: its clusters
    are parts of those of the smaller one, and say more. Nothing is recommended where no number beats chance, where many
    are equally stable, or where stability does not fall before the candidates end. The largest number that the rows
    allow, `most`, decides nothing but the words: no larger one can be tried.
    """
    stability, chance = agreement.mean(axis=1), by_chance.mean(axis=1)
    null = _gain(by_chance)
    gain = _gain(stability) - null.mean(axis=1)
    beyond = gain >= _LEAST_DEVIATIONS * np.hypot(null.std(axis=1, ddof=1), _LEAST_SPREAD)
    beats = beyond & (gain >= _LEAST_GAIN)
    # Of the two ways, one that beats chance; of two that do, or do not, the more stable one.
    way = (10 * beats + stability).argmax(axis=0)
    place = np.arange(len(candidates))
    splits, beats, chance = agreement[way, :, place].T, beats[way, place], chance[way, place]
    stability = splits.mean(axis=0)
    said = (stability, _error(splits), chance, way, beats)
    if not beats.any():
        return Decision(None, _not_beyond_chance(candidates, most), *said)
    best = int(np.where(beats, stability, -np.inf).argmax())
    behind = splits[:, [best]] - splits
    equal = beats & (behind.mean(axis=0) <= np.maximum(_EQUAL_TIMES_K / np.array(candidates), _error(behind)))
    among = ", ".join(str(candidates[i]) for i in np.flatnonzero(equal))
    if np.count_nonzero(equal) > _MOST_EQUAL:
        tied = tuple(np.flatnonzero(equal).tolist())
        return Decision(None, f"{among} clusters are equally stable: the data do not say which", *said, equal=tied)
    chosen = int(np.flatnonzero(equal).max())
    if chosen == len(candidates) - 1 and len(candidates) > 1:
        return Decision(None, _does_not_fall(candidates[chosen], most), *said, equal=(chosen,))
    # A number that does not beat chance counts with what it has above it.
    credited = np.where(beats, splits, splits - chance)
    others = np.flatnonzero(~equal)
    why = (
        f"{candidates[chosen]} clusters are found again in other halves of the rows "
        f"({stability[chosen]:.2f}, by chance {chance[chosen]:.2f})"
    )
    if len(others) == 0:
        return Decision(chosen, f"{why}; no other number was compared with them", *said)
    lead = credited[:, [chosen]] - credited[:, others]
    nearest = int(lead.mean(axis=0).argmin())
    margin, rival = float(lead[:, nearest].mean()), int(others[nearest])
    return Decision(
        chosen,
        f"{why}, {candidates[rival]} less so",
        *said,
        margin=margin,
        margin_error=float(_error(lead[:, nearest : nearest + 1])[0]),
        rival=rival,
        equal=tuple(int(i) for i in np.flatnonzero(equal) if i != chosen),
    )


def _not_beyond_chance(candidates: list[int], most: int | None) -> str:
    if len(candidates) > _FEW:
        return (
            "no number of clusters is more stable than on data without clusters: the data do not say how many there "
            "are, or have none"
        )
    tried = " or ".join(map(str, candidates))
    limit = ": the rows are too few to say" if candidates[-1] == most else ""
    return f"{tried} clusters are no more stable than on data without clusters, and no other number was tried{limit}"


def _does_not_fall(last: int, most: int | None) -> str:
    if last == most:
        tried = f"{last} clusters, the most that can be tried on so few rows, are as stable as any"
        return f"{tried}: there may be {last} or more"
    return f"{last} clusters, the last candidate, are as stable as any: try larger numbers too (candidates of choose_k)"


def _gain(stability: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(-np.log(1 + _LEAST_DISAGREEMENT - np.minimum(stability, 1.0)))


def _error(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard error of the mean of each column; 0 of one row."""
    return np.asarray(values.std(axis=0, ddof=min(1, len(values) - 1)) / np.sqrt(len(values)))
