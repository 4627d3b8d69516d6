"""Calibrated confidence: how often a clustering of half of the rows gives a row the same cluster.

The largest q (Eq 9) of a row is not a calibrated confidence: because of the heavy tails of the kernel it is far below 1
even for the clearest rows, and training pulls doubtful rows to their centers. What separates clear from doubtful rows
is the margin before training: by how much a row was nearer to its own center than to any other. Quick fits to random
halves of the rows map margins to confidence without any labels.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from pamc.initialize.consensus import InputSource, agreed_clusters
from pamc.losses.clustering import log_soft_assignment
from pamc.models.loader import FeatureLoader, encode_chunk, on_device
from pamc.ops.kmeans import Labels
from pamc.runtime import seed_for, side_by_side

# Number of times the rows are split into halves; each half is clustered separately.
_N_SPLITS = 2

# Number of quick clusterings per smoothing strength; their consensus gives the clusters of a half.
_N_REPEATS = 3

# With fewer rows per cluster, the halves are too small to calibrate confidence.
_LEAST_ROWS_PER_CLUSTER = 8

_N_BINS = 10

# The map is fitted to the means of groups of rows with similar margins, so that no single row determines its ends.
_LEAST_IN_A_GROUP, _MOST_GROUPS = 20, 50

# A row is an outlier if it is farther from its center than this multiple of this quantile of the training distances.
_TIMES_USUAL, _USUAL_SHARE = 3.0, 0.95

# Number of rows that are processed at a time if `chunk_size` is not set.
_ROWS_AT_A_TIME = 16384


class SplitHalfFits(NamedTuple):
    """Clusterings of random halves of the rows.

    Parameters
    ----------
    rows
        (n,) indices of the rows that were split into halves.
    labels
        (2·splits, n) cluster of each row in each half, numbered independently in each; −1 outside of the half.
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int32]


class BeforeTraining(NamedTuple):
    """The encoder and the centers before training.

    Parameters
    ----------
    encoder
        A copy that training does not change.
    centers
        (C, n_dims) initial centers.
    """

    encoder: nn.Module
    centers: Tensor

    @classmethod
    def of(cls, model: Any) -> BeforeTraining:
        """Return copies of the encoder and the centers of a model that is about to be trained."""
        return cls(copy.deepcopy(model.encoder).eval().requires_grad_(False), model.centers.detach().clone())

    @torch.no_grad()
    def margins(self, rows: FeatureLoader, labels: Tensor, *, eta: float, chunk_size: int | None = None) -> Tensor:
        """Return (n, 2): the margin of each row, and its distance to the center of its cluster; O(chunk) memory.

        The margin is the difference between log q (Eq 9) of a row's cluster and the largest log q of any other. It is
        negative if training moved the row to another cluster.

        Parameters
        ----------
        labels
            (n,) clusters of the rows after training.
        """
        encoder, centers = on_device(self.encoder, rows.device), self.centers.to(rows.device)
        chunks = []
        for chunk, block in rows.chunks(chunk_size or _ROWS_AT_A_TIME):
            z, cluster = encode_chunk(encoder, chunk, block), labels[chunk].to(rows.device)
            log_q = log_soft_assignment(z, centers, eta=eta)
            others = log_q.scatter(1, cluster[:, None], -torch.inf).amax(dim=1)
            margins = log_q.gather(1, cluster[:, None])[:, 0] - others
            chunks.append(torch.stack([margins, torch.linalg.vector_norm(z - centers[cluster], dim=1)], dim=1))
        return torch.cat(chunks)


@dataclass(frozen=True, eq=False)
class Calibration:
    """A monotone map from the margin of a row before training to the share of split-half fits that agree with it.

    Parameters
    ----------
    before
        Encoder and centers before training, from which margins are computed.
    scores, values
        (m,) ascending knots: the map is linear between them and constant beyond.
    reach
        Distance from its center beyond which a row is an outlier.
    error
        Expected calibration error on held-out rows and split-half fits.
    """

    before: BeforeTraining
    scores: NDArray[np.float64]
    values: NDArray[np.float64]
    reach: float
    error: float

    def apply(self, margins_and_distances: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Return the confidence (n,) of rows with these margins and distances (n, 2).

        For outliers, the confidence decreases toward 1 / C, in inverse proportion to the distance.
        """
        margins, distances = margins_and_distances.astype(np.float64).T
        by_chance = 1 / len(self.before.centers)
        factor = np.divide(self.reach, distances, out=np.ones(len(distances)), where=distances > self.reach)
        agreement = np.interp(margins, self.scores, self.values)
        confidence: NDArray[np.float64] = by_chance + factor * (agreement - by_chance)
        return confidence.astype(margins_and_distances.dtype)


def fit_split_halves(
    inputs: InputSource | None,
    config: Any,
    *,
    seed: int,
    device: torch.device,
    family: str | None = None,
    rows: NDArray[np.int64] | None = None,
) -> SplitHalfFits | None:
    """Cluster random halves of the rows by the family that found the initial clusters, with fewer repeats.

    Returns None if there is nothing to compare: no consensus initializer, one cluster, or too few rows. Each split
    costs about a twentieth of the consensus.

    Parameters
    ----------
    inputs
        Rows and graph that the initializer clusters.
    family
        Name of the family of clusterings; None chooses one for each half.
    rows
        (n,) indices of these rows in the table if they are a sample; None if they are all rows.
    """
    if inputs is None or config.n_clusters < 2:
        return None
    n_rows = len(inputs.rows)
    if n_rows < _LEAST_ROWS_PER_CLUSTER * config.n_clusters:
        return None
    rng = np.random.default_rng(seed_for(seed, "halves"))
    shuffled = [rng.permutation(n_rows) for _ in range(_N_SPLITS)]
    halves = [np.sort(half) for order in shuffled for half in (order[: n_rows // 2], order[n_rows // 2 :])]

    def clusters_of(number: int) -> Labels:
        half = halves[number]
        part = inputs.among(half)
        options: dict[str, Any] = {"seed": seed_for(seed, f"half {number}"), "device": device, "family": family}
        return agreed_clusters(part, config.n_clusters, n_repeats=_N_REPEATS, **options).labels

    labels = np.full((len(halves), n_rows), -1, dtype=np.int32)
    half_labels = side_by_side(
        [partial(clusters_of, number) for number in range(len(halves))], device, n_rows=n_rows // 2
    )
    for number, clusters in enumerate(half_labels):
        labels[number, halves[number]] = clusters
    return SplitHalfFits(np.arange(n_rows) if rows is None else rows, labels)


def calibrated(
    margins_and_distances: NDArray[np.floating[Any]],
    labels: NDArray[np.int64],
    halves: SplitHalfFits,
    before: BeforeTraining,
) -> Calibration:
    """Fit the calibration to the margins and distances (N, 2) and the labels (N,) of all rows, and return it."""
    n_clusters = len(before.centers)
    agrees = np.stack([_agreement(half, labels[halves.rows], n_clusters) for half in halves.labels])
    # In each split, every row is in exactly one of the two halves.
    by_split = np.nanmax(agrees.reshape(-1, 2, agrees.shape[1]), axis=1)
    margins, distances = margins_and_distances[halves.rows].astype(np.float64).T
    knots = _isotonic(margins, by_split.mean(axis=0), n_clusters)
    reach = _TIMES_USUAL * float(np.quantile(distances, _USUAL_SHARE))
    return Calibration(before, *knots, reach=reach, error=_held_out_error(margins, by_split, n_clusters))


def confidence_facts(calibration: Calibration | None) -> dict[str, object]:
    """Return the source of the confidence and its calibration error, for the record of a fit."""
    if calibration is None:
        return {"confidence": "largest q"}
    return {"confidence": "agreement of half fits", "confidence_error": calibration.error}


def matched_clusters(clusters: NDArray[Any], labels: NDArray[np.int64], n_clusters: int) -> NDArray[np.int64]:
    """Renumber clusters (n,) to match labels (n,), one to one, so that they agree on as many rows as possible.

    Examples
    --------
    >>> matched_clusters(np.array([1, 1, 0, 0]), np.array([0, 0, 1, 0]), 2)
    array([0, 0, 1, 1])
    """
    shared = np.zeros((n_clusters, n_clusters), dtype=np.int64)
    np.add.at(shared, (clusters, labels), 1)
    number = np.empty(n_clusters, dtype=np.int64)
    old, new = linear_sum_assignment(-shared)
    number[old] = new
    matched: NDArray[np.int64] = number[clusters]
    return matched


def calibration_error(confidence: NDArray[np.floating[Any]], outcome: NDArray[Any], *, n_bins: int = _N_BINS) -> float:
    """Return the expected calibration error: the mean |confidence − outcome| over bins of equal counts.

    Parameters
    ----------
    confidence
        (n,) predicted confidence.
    outcome
        (n,) observed outcome: 0, 1 or a share.

    Examples
    --------
    >>> calibration_error(np.array([0.5, 0.5, 1.0, 1.0]), np.array([0, 1, 1, 1]), n_bins=2)
    0.0
    """
    order = np.argsort(confidence, kind="stable")
    parts = [part for part in np.array_split(order, n_bins) if len(part)]
    gaps = [len(part) * abs(float(np.mean(confidence[part])) - float(np.mean(outcome[part]))) for part in parts]
    return sum(gaps) / len(order)


def _agreement(half: NDArray[np.int32], labels: NDArray[np.int64], n_clusters: int) -> NDArray[np.float64]:
    """Return (n,) 1 where the clustering of a half agrees with the label of a row, else 0, and NaN outside the half."""
    result = np.full(len(half), np.nan)
    inside = half >= 0
    result[inside] = matched_clusters(half[inside], labels[inside], n_clusters) == labels[inside]
    return result


def _isotonic(
    margins: NDArray[np.float64], agrees: NDArray[np.float64], n_clusters: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the knots of the isotonic regression of agreement on margin, bounded below by 1 / C."""
    from sklearn.isotonic import IsotonicRegression

    n_groups = max(1, min(_MOST_GROUPS, len(margins) // _LEAST_IN_A_GROUP))
    groups = np.array_split(np.argsort(margins, kind="stable"), n_groups)
    means = [[values[group].mean() for group in groups] for values in (margins, agrees)]
    curve = IsotonicRegression(y_min=1 / n_clusters, y_max=1.0)
    curve.fit(*means, sample_weight=[len(group) for group in groups])
    return np.asarray(curve.X_thresholds_, np.float64), np.asarray(curve.y_thresholds_, np.float64)


def _held_out_error(margins: NDArray[np.float64], by_split: NDArray[np.float64], n_clusters: int) -> float:
    """Return the error of maps fitted to every other row of one split, on the remaining rows of the other split."""
    even = np.arange(len(margins)) % 2 == 0
    errors = []
    for fitted, held_out in ((0, 1), (1, 0)):
        for rows in (even, ~even):
            curve = _isotonic(margins[rows], by_split[fitted, rows], n_clusters)
            predicted = np.interp(margins[~rows], *curve)
            errors.append(calibration_error(predicted, by_split[held_out, ~rows]))
    # Rounded, because the last digits depend on the order of summation.
    return round(float(np.mean(errors)), 4)
