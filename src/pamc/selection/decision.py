"""Which number of clusters the agreement of halves speaks for, if any."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Decision", "decide"]

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
    """What the agreement of halves says.

    Parameters
    ----------
    chosen
        Place of the recommended candidate; None where the data do not say.
    why
        One sentence.
    stability, error, chance
        (K,) agreement, its standard error, and agreement without clusters, of the better way of each candidate.
    way
        (K,) which way that is.
    beats_chance
        (K,) whether it is beyond what data without clusters reach.
    margin, margin_error, rival
        By how much the recommended number is more stable than the next one, with its standard error; 0 without one.
    equal
        Places of other candidates that are as stable; those of a recommendation are smaller numbers.
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
    if len(others) == 0:
        why = (
            f"{candidates[chosen]} clusters are found again in other halves of the rows ({stability[chosen]:.2f}, by "
            f"chance {chance[chosen]:.2f}); no other number was compared with them"
        )
        return Decision(chosen, why, *said)
    lead = credited[:, [chosen]] - credited[:, others]
    nearest = int(lead.mean(axis=0).argmin())
    margin, rival = float(lead[:, nearest].mean()), int(others[nearest])
    return Decision(
        chosen,
        f"{candidates[chosen]} clusters are found again in other halves of the rows "
        f"({stability[chosen]:.2f}, by chance {chance[chosen]:.2f}), {candidates[rival]} less so",
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
    if len(values) < 2:
        return np.zeros(values.shape[1])
    return np.asarray(values.std(axis=0, ddof=1) / np.sqrt(len(values)))
