"""Split-half stability: random halves of the rows are clustered separately and compared.

The same comparison on null data, which resemble the input but have no clusters, gives the chance level. The two
together determine which number of clusters the data support, if any.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pamc.graph.adjacency import Adjacency, build_adjacency
from pamc.graph.neighbors import ANGLE, DIRECTIONS, knn_adjacency, nearest
from pamc.graph.smoothing import Floats, on_sphere, unit_rows
from pamc.initialize.consensus import InputSource
from pamc.initialize.partitions import edge_list
from pamc.ops.kmeans import KMeansFit, Labels
from pamc.ops.scores import adjusted_rand
from pamc.runtime import quiet_libraries, seed_for, side_by_side
from pamc.selection.clusterings import Clusters, Dims, Points, clusterings

# Number of random pairs that sample the distribution of cosines, of nearest neighbors, and of candidate ends per edge.
_PAIRS, _NEAREST, _CANDIDATES = 20_000, 32, 48
_EDGES_AT_A_TIME = 1 << 12


def split_half_agreement(
    inputs: InputSource, candidates: Sequence[int], *, dims: Dims, n_splits: int, seed: int
) -> NDArray[np.float64]:
    """Return the agreement (2, n_splits, K) of clusterings of two random halves, for each way and candidate.

    Each half is smoothed along its own edges and clustered separately; the rows of the other half are then assigned to
    its clusters by the nearest center and compared with their own clusters. The agreement is the mean of the two
    adjusted Rand indices: 1 if both halves have the same clusters, 0 by chance. `dims` returns the size of the
    embedding for a number of clusters. O(E·r + N·r·(r + C)) time per split.
    """
    placed = on_sphere(inputs.rows)
    rng = np.random.default_rng(seed_for(seed, "splits"))
    halves = [[np.sort(half) for half in np.array_split(rng.permutation(len(placed)), 2)] for _ in range(n_splits)]
    compare = partial(_agreements, placed, inputs.adjacency, candidates, dims)
    tasks = [partial(compare, pair, seed_for(seed, f"split {split}")) for split, pair in enumerate(halves)]
    with quiet_libraries:
        return np.stack(side_by_side(tasks), axis=1)


def _agreements(
    placed: Floats,
    adjacency: Adjacency,
    candidates: Sequence[int],
    dims: Dims,
    halves: list[NDArray[np.int64]],
    seed: int,
) -> NDArray[np.float64]:
    """Return the agreement (2, K) of two halves for each way and candidate."""
    n_dims = dims(max(candidates))
    sides = [Points.of(placed[half], adjacency[half][:, half], n_dims=n_dims) for half in halves]
    clusters = [clusterings(points, candidates, dims=dims, seed=seed) for points in sides]
    assigned = [_Assigned(one.rows @ other.directions) for one, other in (sides, sides[::-1])]
    return np.array(
        [
            [
                (adjusted_rand(a.labels, assigned[0].to(b)) + adjusted_rand(b.labels, assigned[1].to(a))) / 2
                for a, b in zip(*of_way, strict=True)
            ]
            for of_way in zip(*clusters, strict=True)
        ]
    )


class _Assigned:
    """The rows of one half, assigned to the clusters of the other half by the nearest center."""

    def __init__(self, coordinates: Floats) -> None:
        # Coordinates (N, r) along the directions of the other half.
        self._coordinates = coordinates
        # Groups are shared by several clusterings.
        self._group = cache(self._nearest_group)

    def to(self, clusters: Clusters) -> Labels:
        labels: Labels = clusters.cluster_of_group[self._group(clusters.groups, clusters.n_dims)]
        return labels

    def _nearest_group(self, groups: KMeansFit, n_dims: int) -> NDArray[np.integer]:
        return groups.predict(unit_rows(self._coordinates[:, :n_dims]))


def null_reference(
    inputs: InputSource, *, shape: str, is_knn_graph: bool, n_neighbors: int, seed: int, device: torch.device
) -> InputSource:
    """Return data without clusters: rows of the same spread in every direction, "gaussian" or "uniform", and a graph.

    If `is_knn_graph` is True, the graph is the kNN graph of the rows. Otherwise it has as many random edges as the
    input, and each joins two rows whose similarity has the same quantile as that of an edge of the input, so that the
    graph is as strongly related to the features.
    """
    rng = np.random.default_rng(seed_for(seed, "rows without clusters"))
    size = inputs.rows.shape
    values = rng.normal(size=size) if shape == "gaussian" else rng.uniform(-np.sqrt(3), np.sqrt(3), size=size)
    rows = inputs.rows.mean(axis=0) + values * inputs.rows.std(axis=0)
    n_neighbors = min(n_neighbors, len(rows) - 1)
    if is_knn_graph:
        return InputSource(inputs.kind, rows, knn_adjacency(rows, n_neighbors, device, seed=seed))
    edges = edge_list(inputs.adjacency)
    similarity, null_similarity = _Similarity(inputs.rows, rng), _Similarity(rows, rng)
    # Edges have no direction, so the end that is preserved is chosen at random.
    swapped = rng.random(len(edges.rows)) < 0.5
    source = np.where(swapped, edges.columns, edges.rows)
    target = np.where(swapped, edges.rows, edges.columns)
    share = similarity.share(similarity.of(source, target))
    ends = _similar_ends(null_similarity, source, share, np.concatenate([source, target]), rng)
    near = min(_NEAREST, len(rows) - 1)
    neighbors = nearest(rows, near, metric=ANGLE, device=device, seed=seed).edges[1].reshape(-1, near)
    # For an edge between nearest neighbors, random candidates are too dissimilar: one of the neighbors is used.
    close = (1 - share) * len(rows) < near
    ends[close] = neighbors[source[close], rng.integers(near, size=np.count_nonzero(close))]
    pairs = np.unique(np.sort(np.stack([source, ends]), axis=0), axis=1)
    pairs = pairs[:, pairs[0] != pairs[1]]
    return InputSource(inputs.kind, rows, build_adjacency(pairs, None, n_nodes=len(rows)))


class _Similarity:
    """The cosine of centered rows in their leading directions, and its distribution over random pairs."""

    def __init__(self, rows: Floats, rng: np.random.Generator) -> None:
        self.unit = unit_rows(rows[:, :DIRECTIONS] - rows[:, :DIRECTIONS].mean(axis=0))
        self.random = np.sort(self.of(*rng.integers(len(rows), size=(2, _PAIRS))))

    def of(self, one: NDArray[np.integer], other: NDArray[np.integer]) -> Floats:
        cosines: Floats = (self.unit[one] * self.unit[other]).sum(axis=1)
        return cosines

    def share(self, cosines: Floats) -> Floats:
        """Return the share of random pairs that are less similar."""
        return np.asarray(np.searchsorted(self.random, cosines) / len(self.random), dtype=np.float64)

    def cosine(self, share: Floats) -> Floats:
        """Return the quantile of the cosine of random pairs."""
        place = np.minimum((share * len(self.random)).astype(np.int64), len(self.random) - 1)
        return np.asarray(self.random[place], dtype=np.float64)


def _similar_ends(
    similarity: _Similarity,
    source: NDArray[np.integer],
    share: Floats,
    ends: NDArray[np.integer],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Return the other end (E,) of each edge: among random `ends`, the one with the closest similarity."""
    wanted = similarity.cosine(share)
    targets = np.empty(len(source), dtype=np.int64)
    for first in range(0, len(source), _EDGES_AT_A_TIME):
        block = slice(first, first + _EDGES_AT_A_TIME)
        sources = source[block]
        candidates = ends[rng.integers(len(ends), size=(len(sources), _CANDIDATES))]
        cosines = np.einsum("ed,ecd->ec", similarity.unit[sources], similarity.unit[candidates])
        best = np.abs(cosines - wanted[block, None]).argmin(axis=1)
        targets[block] = candidates[np.arange(len(sources)), best]
    return targets


# Disagreement is compared on a log scale; this is its smallest value.
_LEAST_DISAGREEMENT = 0.02

# A candidate beats chance if its disagreement is at most 55 % (e^−0.6) of that without clusters, and lower by this many
# standard deviations over data sets without clusters, to which this spread is added in quadrature.
_LEAST_GAIN, _LEAST_DEVIATIONS, _LEAST_SPREAD = 0.6, 3.5, 0.1

# Splitting one of k equal clusters arbitrarily costs an agreement of about 0.4 / k. A candidate that is behind by at
# most a quarter of that, or by at most one standard error, is equally stable. If more than this many candidates are
# equally stable, none is recommended.
_EQUAL_TIMES_K, _MOST_EQUAL = 0.1, 3

# With this agreement, the clusters of the largest number are certain, and equally stable smaller numbers merge them.
_CERTAIN = 0.98

# If there are at most this many candidates, the answer lists them and makes no statement about other numbers.
_FEW = 3


class Decision(NamedTuple):
    """The decision between K candidates from their split-half agreement.

    `chosen` is the index of the recommended candidate, None if the data do not support one, and `why` the reason in one
    sentence. `stability`, its standard `error` and `chance`, the agreement without clusters, are those of the better
    `way` of each candidate. The recommended number is more stable than the next one, the `rival`, by `margin`. `equal`
    has the indices of other candidates that are equally stable; with a recommendation, these are smaller numbers.
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
    candidates: list[int],
    agreement: NDArray[np.float64],
    by_chance: NDArray[np.float64],
    *,
    most: int | None = None,
    halves_of: str = "rows",
) -> Decision:
    """Return the decision from the agreement (2, splits, K) of the data and (2, draws, K) of data without clusters.

    Of the candidates that beat chance, the most stable one is chosen, or the largest of several equally stable ones,
    because its clusters refine those of the smaller numbers. Nothing is recommended if no candidate beats chance, if
    many are equally stable and none is certain, or if stability does not fall before the last candidate. `most`, the
    largest number that the rows allow, and `halves_of`, the name of what was halved, affect only the text.
    """
    stability, chance = agreement.mean(axis=1), by_chance.mean(axis=1)
    null = _gain(by_chance)
    gain = _gain(stability) - null.mean(axis=1)
    beyond = gain >= _LEAST_DEVIATIONS * np.hypot(null.std(axis=1, ddof=1), _LEAST_SPREAD)
    beats = beyond & (gain >= _LEAST_GAIN)
    # Of the two ways, prefer one that beats chance, then the more stable one.
    way = (10 * beats + stability).argmax(axis=0)
    index = np.arange(len(candidates))
    splits, beats, chance = agreement[way, :, index].T, beats[way, index], chance[way, index]
    stability = splits.mean(axis=0)
    details = (stability, _error(splits), chance, way, beats)
    if not beats.any():
        return Decision(None, _not_beyond_chance(candidates, most), *details)
    best = int(np.where(beats, stability, -np.inf).argmax())
    behind = splits[:, [best]] - splits
    equal = beats & (behind.mean(axis=0) <= np.maximum(_EQUAL_TIMES_K / np.array(candidates), _error(behind)))
    *smaller, chosen = np.flatnonzero(equal).tolist()
    if len(smaller) >= _MOST_EQUAL and stability[chosen] < _CERTAIN:
        tied = ", ".join(str(candidates[index]) for index in (*smaller, chosen))
        why = f"{tied} clusters are equally stable: the data do not say which"
        return Decision(None, why, *details, equal=(*smaller, chosen))
    if chosen == len(candidates) - 1 and len(candidates) > 1:
        return Decision(None, _does_not_fall(candidates[chosen], most), *details, equal=(chosen,))
    # A candidate that does not beat chance is credited only with its agreement above chance.
    credited = np.where(beats, splits, splits - chance)
    others = np.flatnonzero(~equal)
    scores = f"agreement {stability[chosen]:.2f}, by chance {chance[chosen]:.2f}"
    why = f"{candidates[chosen]} clusters are stable between halves of the {halves_of} ({scores})"
    if len(others) == 0:
        return Decision(chosen, f"{why}; no other number was compared", *details)
    lead = credited[:, [chosen]] - credited[:, others]
    nearest = int(lead.mean(axis=0).argmin())
    rival = int(others[nearest])
    return Decision(
        chosen,
        f"{why}; {candidates[rival]} clusters are less stable",
        *details,
        margin=float(lead[:, nearest].mean()),
        margin_error=float(_error(lead[:, nearest : nearest + 1])[0]),
        rival=rival,
        equal=tuple(smaller),
    )


def _not_beyond_chance(candidates: list[int], most: int | None) -> str:
    if len(candidates) > _FEW:
        return (
            "no number of clusters is more stable than on data without clusters: the data do not say how many there "
            "are, or have none"
        )
    tried = " or ".join(map(str, candidates))
    limit = ": the rows are too few for more" if candidates[-1] == most else ""
    return f"{tried} clusters are no more stable than on data without clusters, and no other number was tried{limit}"


def _does_not_fall(last: int, most: int | None) -> str:
    if last == most:
        tried = f"{last} clusters, the most that can be tried on so few rows, are as stable as any"
        return f"{tried}: there may be {last} or more"
    return f"{last} clusters, the last candidate, are as stable as any: try larger numbers too (candidates of choose_k)"


def _gain(stability: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(-np.log(1 + _LEAST_DISAGREEMENT - np.minimum(stability, 1.0)))


def _error(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard error of the mean of each column, 0 for a single row."""
    return np.asarray(values.std(axis=0, ddof=min(1, len(values) - 1)) / np.sqrt(len(values)))
