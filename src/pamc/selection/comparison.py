"""Compare numbers of clusters: all small ones, and the large ones around the most stable of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pamc.initialize.consensus import GRAPH_ALONE, InputSource
from pamc.initialize.family import smoothed_dims
from pamc.progress import Phase, SilentPhase
from pamc.runtime import seed_for
from pamc.selection.graph_halves import edge_half_agreement, rewired
from pamc.selection.split_half import Decision, decide, null_reference, split_half_agreement

# Number of splits of the data into halves, of splits in the search among large numbers, of null data sets (which
# alternate between the two shapes), and of splits of each null data set.
_N_SPLITS, _N_QUICK_SPLITS, _N_NULLS, _N_NULL_SPLITS = 8, 2, 6, 2
_SHAPES = ("gaussian", "uniform")

# Steps of the progress display: one for the data, and one for each null data set.
_N_STEPS = 1 + _N_NULLS

# Numbers up to this one are always compared, and so are larger ones if there are only a few.
_ALWAYS = 20
_FEW = 8

# Agreement changes slowly with the number of clusters, so the search among large numbers and the agreement of null data
# sets use steps of this factor.
_STEP = 1.12

# The best large number is compared, with this many neighbors on either side, unless its agreement in the search is
# lower than that of the best small number by more than this slack, or lower than this minimum.
_N_NEIGHBORS, _SLACK, _LEAST_OF_INTEREST = 3, 0.05, 0.3

# Maximum number of dimensions in which many clusters are separated.
_MOST_DIMS = 64


@dataclass(frozen=True, eq=False)
class Compared:
    """The compared candidates, their agreement (2, splits, K), and that of data without clusters (2, draws, K)."""

    numbers: list[int]
    agreement: NDArray[np.float64]
    by_chance: NDArray[np.float64]
    halves_of: str = "rows"

    def decide(self, most: int | None = None) -> Decision:
        """Return the decision between the candidates; see :func:`pamc.selection.split_half.decide`."""
        return decide(self.numbers, self.agreement, self.by_chance, most=most, halves_of=self.halves_of)

    def joined(self, other: Compared) -> Compared:
        """Return the candidates of both, in ascending order."""
        numbers = [*self.numbers, *other.numbers]
        order = np.argsort(numbers)
        agreement = np.concatenate([self.agreement, other.agreement], axis=2)
        by_chance = np.concatenate([self.by_chance, other.by_chance], axis=2)
        sorted_numbers = [numbers[index] for index in order]
        return Compared(sorted_numbers, agreement[:, :, order], by_chance[:, :, order], self.halves_of)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Comparison of numbers of clusters on the same halves of the rows.

    Parameters
    ----------
    inputs
        The features and graph to cluster.
    is_knn_graph
        Whether the graph is the kNN graph of the features.
    n_neighbors
        Number of neighbors in the kNN graph of null data sets.
    seed
        Random seed.
    device
        Device of the neighbor search.
    phase
        Object that displays the progress.
    """

    inputs: InputSource
    is_knn_graph: bool
    n_neighbors: int
    seed: int
    device: torch.device
    phase: Phase = field(default_factory=SilentPhase)

    def of(self, numbers: Sequence[int]) -> Compared:
        """Return the comparison of the ascending numbers; of many large ones, only the promising ones are compared."""
        small = [k for k in numbers if k <= _ALWAYS]
        large = list(numbers[len(small) :])
        if len(large) <= _FEW:
            return self._compared(list(numbers))
        if not small:
            return self._compared(self._around_peak(large, -np.inf))
        compared = self._compared(small)
        decision = compared.decide()
        beyond = self._around_peak(large, _bar(decision))
        if not beyond and decision.chosen is None and decision.equal[-1:] == (len(small) - 1,):
            # Without a larger number, it remains unknown whether agreement decreases.
            beyond = large[:1]
        if beyond:
            return compared.joined(self._compared(beyond))
        for _ in range(_N_STEPS):
            self.phase.advance()
        return compared

    @staticmethod
    def n_steps(numbers: Sequence[int]) -> int:
        """Return how often the phase advances."""
        n_small = sum(k <= _ALWAYS for k in numbers)
        return _N_STEPS * (2 if n_small and len(numbers) - n_small > _FEW else 1)

    def _compared(self, numbers: list[int]) -> Compared:
        agreement = self._agreement(self.inputs, numbers, _N_SPLITS, "halves")
        self.phase.advance()
        halves_of = "edges" if self.inputs.kind == GRAPH_ALONE else "rows"
        return Compared(numbers, agreement, self._by_chance(numbers), halves_of)

    def _agreement(self, inputs: InputSource, numbers: list[int], n_splits: int, name: str) -> NDArray[np.float64]:
        options: dict[str, Any] = {"dims": dims, "n_splits": n_splits, "seed": seed_for(self.seed, name)}
        if inputs.kind == GRAPH_ALONE:
            return edge_half_agreement(inputs.adjacency, numbers, **options)
        return split_half_agreement(inputs, numbers, **options)

    def _by_chance(self, numbers: list[int]) -> NDArray[np.float64]:
        """Return the agreement (2, draws, K) of data without clusters, interpolated between some of the numbers."""
        steps = thinned(numbers)
        draws = []
        for number, null in enumerate(self._nulls):
            drawn = self._agreement(null, steps, _N_NULL_SPLITS, f"halves without clusters {number}").mean(axis=1)
            draws.append([np.interp(np.log(numbers), np.log(steps), of_way) for of_way in drawn])
            self.phase.advance()
        return np.stack(draws, axis=1)

    @cached_property
    def _nulls(self) -> list[InputSource]:
        seeds = [seed_for(self.seed, f"without clusters {number}") for number in range(_N_NULLS)]
        if self.inputs.kind == GRAPH_ALONE:
            return [rewired(self.inputs, seed=seed) for seed in seeds]
        make = partial(null_reference, self.inputs, is_knn_graph=self.is_knn_graph, n_neighbors=self.n_neighbors)
        return [
            make(shape=_SHAPES[number % len(_SHAPES)], seed=seed, device=self.device)
            for number, seed in enumerate(seeds)
        ]

    def _around_peak(self, numbers: list[int], bar: float) -> list[int]:
        """Return the numbers around the peak of the agreement, and a larger one; none if the peak is too low."""
        steps = thinned(numbers)
        quick = self._quick_agreement(steps)
        peak = int(quick.argmax())
        if quick[peak] < bar:
            return []
        # The steps next to the peak enclose the numbers that were skipped.
        low, high = steps[max(peak - 1, 0)], steps[min(peak + 1, len(steps) - 1)]
        near = [k for k in numbers if low <= k <= high]
        best = numbers.index(near[int(self._quick_agreement(near).argmax())])
        around = numbers[max(best - _N_NEIGHBORS, 0) : best + _N_NEIGHBORS + 1]
        return [*around, *[k for k in steps if k > around[-1]][:1]]

    def _quick_agreement(self, numbers: list[int]) -> NDArray[np.float64]:
        """Return the agreement (K,) of the better way on a few splits."""
        best: NDArray[np.float64] = (
            self._agreement(self.inputs, numbers, _N_QUICK_SPLITS, "halves").mean(axis=1).max(axis=0)
        )
        return best


def dims(n_clusters: int) -> int:
    """Return the number of dimensions to cluster in: that of a fit, but more for many clusters."""
    return max(smoothed_dims(n_clusters), min(n_clusters, _MOST_DIMS))


def thinned(numbers: Sequence[int]) -> list[int]:
    """Return the first and the last number, and numbers in between in steps of at least 12 %.

    Examples
    --------
    >>> thinned(range(2, 21))
    [2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 17, 20]
    """
    steps = [numbers[0]]
    for k in numbers[1:]:
        if k >= _STEP * steps[-1]:
            steps.append(k)
    return steps if steps[-1] == numbers[-1] else [*steps, numbers[-1]]


def _bar(decision: Decision) -> float:
    """Return the minimum agreement of a large number that is compared."""
    stable = decision.stability[decision.beats_chance]
    return float(max(stable.max(initial=0.0) - _SLACK, _LEAST_OF_INTEREST))
