"""Confidence that means something: how often a clustering of half of the rows gives a row the same cluster.

Eq 9's q says which cluster is nearest, not how often it is right: a kernel of heavy tails leaves the clearest rows far
below 1, and training draws the doubtful ones to their centers. How much nearer a row was to its center than to any
other before training tells them apart; quick fits of random halves of the rows say what that is worth, without any
label.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from pamc.initialize.consensus import InputSource, agreed_clusters
from pamc.losses.clustering import log_soft_assignment
from pamc.models.loader import FeatureLoader, encode_chunk, on_device
from pamc.runtime import one_thread, seed_for

__all__ = [
    "BeforeTraining",
    "Calibration",
    "SplitHalfFits",
    "calibrated",
    "calibration_error",
    "confidence_facts",
    "fit_split_halves",
    "matched_clusters",
]

# The rows are split in halves this many times, and each half is clustered by itself.
_N_SPLITS = 2

# Clusterings of either kind and reach that a half's clusters are the consensus of.
_N_REPEATS = 3

# With fewer rows per cluster halves are too small to say anything.
_LEAST_ROWS_PER_CLUSTER = 8

_N_BINS = 10

# The map is learnt from means over groups of neighboring margins, so that no single row decides about its end.
_LEAST_IN_A_GROUP, _MOST_GROUPS = 20, 50

# A row is like the others up to this many times the distance within which so many rows of the fit are.
_TIMES_USUAL, _USUAL_SHARE = 3.0, 0.95

# Rows that are looked at together where the settings name no number.
_ROWS_AT_A_TIME = 16384


class SplitHalfFits(NamedTuple):
    """Clusters that were found in random halves of the rows.

    Parameters
    ----------
    rows
        (n,) the rows that were shared out.
    labels
        (2·splits, n) cluster of each in each half, numbered differently in each; −1 outside of the half.
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int32]


class BeforeTraining(NamedTuple):
    """The encoder and the centers as training found them.

    Parameters
    ----------
    encoder
        A copy that training does not change.
    centers
        (C, n_dims)
    """

    encoder: nn.Module
    centers: Tensor

    @classmethod
    def of(cls, model: Any) -> BeforeTraining:
        """Return a copy of what a model that is about to be trained starts from."""
        return cls(copy.deepcopy(model.encoder).eval().requires_grad_(False), model.centers.detach().clone())

    @torch.no_grad()
    def places(self, rows: FeatureLoader, labels: Tensor, *, eta: float, chunk_size: int | None = None) -> Tensor:
        """Return (n, 2): the margin of each row, and its distance to the center of its cluster; O(chunk) memory.

        The margin is by how much log q (Eq 9) of a row's cluster exceeded that of any other; below 0 where training has
        moved a row to another cluster.

        Parameters
        ----------
        labels
            (n,) the clusters of the rows after training.
        """
        encoder, centers = on_device(self.encoder, rows.device), self.centers.to(rows.device)
        found = []
        for chunk, block in rows.chunks(chunk_size or _ROWS_AT_A_TIME):
            z, own = encode_chunk(encoder, chunk, block), labels[chunk].to(rows.device)
            log_q = log_soft_assignment(z, centers, eta=eta)
            others = log_q.scatter(1, own[:, None], -torch.inf).amax(dim=1)
            margins = log_q.gather(1, own[:, None])[:, 0] - others
            found.append(torch.stack([margins, torch.linalg.vector_norm(z - centers[own], dim=1)], dim=1))
        return torch.cat(found)


@dataclass(frozen=True, eq=False)
class Calibration:
    """A monotone map from the margin of a row before training to the share of half fits that agree with its cluster.

    Parameters
    ----------
    before
        What margins follow from.
    scores, values
        (m,) ascending: the map is linear between them and constant beyond.
    reach
        Distance from its center up to which a row is like those that the map was learnt from.
    error
        Expected calibration error on rows and half fits that the map was not learnt from.
    """

    before: BeforeTraining
    scores: NDArray[np.float64]
    values: NDArray[np.float64]
    reach: float
    error: float

    def apply(self, places: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Return the confidence (n,) of rows with these margins and distances (n, 2).

        Beyond the reach it falls towards a guess, inversely to the distance.
        """
        margins, distances = places.astype(np.float64).T
        guess = 1 / len(self.before.centers)
        alike = np.divide(self.reach, distances, out=np.ones(len(distances)), where=distances > self.reach)
        confidence: NDArray[np.float64] = guess + alike * (np.interp(margins, self.scores, self.values) - guess)
        return confidence.astype(places.dtype)


def fit_split_halves(
    inputs: InputSource | None,
    config: Any,
    *,
    seed: int,
    device: torch.device,
    rows: NDArray[np.int64] | None = None,
) -> SplitHalfFits | None:
    """Return the clusters of random halves of the rows, each found as the start finds its own, with fewer repeats.

    None where there is nothing to compare: no consensus start, one cluster, or too few rows. Each split costs about a
    twentieth of the consensus.

    Parameters
    ----------
    inputs
        Rows and graph that the start clusters.
    rows
        (n,) the numbers of its rows in the table, where they are a sample.
    """
    if inputs is None or config.n_clusters < 2:
        return None
    n_rows = len(inputs.rows)
    if n_rows < _LEAST_ROWS_PER_CLUSTER * config.n_clusters:
        return None
    order = np.random.default_rng(seed_for(seed, "halves"))
    labels = np.full((2 * _N_SPLITS, n_rows), -1, dtype=np.int32)
    with one_thread():
        for split in range(_N_SPLITS):
            shuffled = order.permutation(n_rows)
            for side, half in enumerate((shuffled[: n_rows // 2], shuffled[n_rows // 2 :])):
                half = np.sort(half)
                number = 2 * split + side
                labels[number, half] = agreed_clusters(
                    inputs.rows[half],
                    inputs.adjacency[half][:, half],
                    config.n_clusters,
                    n_dims=config.n_dims,
                    seed=seed_for(seed, f"half {number}"),
                    device=device,
                    n_repeats=_N_REPEATS,
                ).labels
    return SplitHalfFits(np.arange(n_rows) if rows is None else rows, labels)


def calibrated(
    places: NDArray[np.floating[Any]],
    labels: NDArray[np.int64],
    halves: SplitHalfFits,
    before: BeforeTraining,
) -> Calibration:
    """Return how confidence follows from the margins and distances (N, 2) of rows with these labels (N,)."""
    n_clusters = len(before.centers)
    agrees = np.stack([_agreement(own, labels[halves.rows], n_clusters) for own in halves.labels])
    # Each split holds every row once, in one of its halves.
    by_split = np.nanmax(agrees.reshape(-1, 2, agrees.shape[1]), axis=1)
    margins, distances = places[halves.rows].astype(np.float64).T
    found = _isotonic(margins, by_split.mean(axis=0), n_clusters)
    reach = _TIMES_USUAL * float(np.quantile(distances, _USUAL_SHARE))
    return Calibration(before, *found, reach=reach, error=_held_out_error(margins, by_split, n_clusters))


def confidence_facts(calibration: Calibration | None) -> dict[str, object]:
    """Return what a record says of confidence: where it comes from, and its error."""
    if calibration is None:
        return {"confidence": "largest q"}
    return {"confidence": "agreement of half fits", "confidence_error": calibration.error}


def matched_clusters(found: NDArray[Any], labels: NDArray[np.int64], n_clusters: int) -> NDArray[np.int64]:
    """Return the found clusters (n,) by the numbers of the labels (n,) that they share most rows with, one to one.

    Examples
    --------
    >>> matched_clusters(np.array([1, 1, 0, 0]), np.array([0, 0, 1, 0]), 2)
    array([0, 0, 1, 1])
    """
    shared = np.zeros((n_clusters, n_clusters), dtype=np.int64)
    np.add.at(shared, (found, labels), 1)
    number = np.empty(n_clusters, dtype=np.int64)
    own, other = linear_sum_assignment(-shared)
    number[own] = other
    matched: NDArray[np.int64] = number[found]
    return matched


def calibration_error(confidence: NDArray[np.floating[Any]], outcome: NDArray[Any], *, n_bins: int = _N_BINS) -> float:
    """Return the expected calibration error: the mean difference of confidence and outcome over bins of equal counts.

    Parameters
    ----------
    confidence
        (n,) what was said.
    outcome
        (n,) what came: 0, 1 or a share.

    Examples
    --------
    >>> calibration_error(np.array([0.5, 0.5, 1.0, 1.0]), np.array([0, 1, 1, 1]), n_bins=2)
    0.0
    """
    order = np.argsort(confidence, kind="stable")
    parts = [part for part in np.array_split(order, n_bins) if len(part)]
    gaps = [len(part) * abs(float(np.mean(confidence[part])) - float(np.mean(outcome[part]))) for part in parts]
    return sum(gaps) / len(order)


def _agreement(found: NDArray[np.int32], labels: NDArray[np.int64], n_clusters: int) -> NDArray[np.float64]:
    """Return (n,) 1 where a half gives a row its cluster, 0 where another one, NaN outside of the half."""
    result = np.full(len(found), np.nan)
    inside = found >= 0
    result[inside] = matched_clusters(found[inside], labels[inside], n_clusters) == labels[inside]
    return result


def _isotonic(
    margins: NDArray[np.float64], agrees: NDArray[np.float64], n_clusters: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners of the best monotone map from margin to agreement; no row is below a random guess."""
    from sklearn.isotonic import IsotonicRegression

    n_groups = max(1, min(_MOST_GROUPS, len(margins) // _LEAST_IN_A_GROUP))
    groups = np.array_split(np.argsort(margins, kind="stable"), n_groups)
    means = [[values[group].mean() for group in groups] for values in (margins, agrees)]
    curve = IsotonicRegression(y_min=1 / n_clusters, y_max=1.0)
    curve.fit(*means, sample_weight=[len(group) for group in groups])
    return np.asarray(curve.X_thresholds_, np.float64), np.asarray(curve.y_thresholds_, np.float64)


def _held_out_error(margins: NDArray[np.float64], by_split: NDArray[np.float64], n_clusters: int) -> float:
    """Return the error of a map learnt from every other row in one split, on the other rows in the next split."""
    even = np.arange(len(margins)) % 2 == 0
    errors = []
    for learnt, held_out in ((0, 1), (1, 0)):
        for rows in (even, ~even):
            curve = _isotonic(margins[rows], by_split[learnt, rows], n_clusters)
            said = np.interp(margins[~rows], *curve)
            errors.append(calibration_error(said, by_split[held_out, ~rows]))
    # No more digits than mean something: the last ones depend on the order of sums.
    return round(float(np.mean(errors)), 4)
