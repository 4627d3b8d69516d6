"""K-means: scikit-learn's on the CPU, batched runs on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import Tensor

from pamc.runtime import seed_for, side_by_side

Labels: TypeAlias = "NDArray[np.int64]"

_CPU = torch.device("cpu")

_MOST_ITERATIONS = 300

# Fraction of the mean variance of the columns: a run has converged when the squared shift of its centers is below it.
_TOLERANCE = 1e-4

# Number of iterations between convergence checks, each of which synchronizes with the device.
_CHECK_EVERY = 5

# Maximum number of entries of a (runs, N, C) temporary; further runs are computed in later batches.
_NUMBERS_AT_A_TIME = 1 << 28


@dataclass(frozen=True, eq=False)
class KMeansFit:
    """The result of K-means.

    Parameters
    ----------
    labels
        (N,) cluster of each row.
    centers
        (C, d) mean of each cluster.
    inertia
        Sum of the squared distances of rows to their cluster center.
    predict
        Function that maps rows (M, d) to the index (M,) of the nearest center.
    """

    labels: Labels
    centers: NDArray[np.floating[Any]]
    inertia: float
    predict: Callable[[NDArray[np.floating[Any]]], NDArray[np.integer]]


def kmeans(
    points: NDArray[np.floating[Any]] | Tensor,
    n_clusters: int,
    *,
    seeds: Sequence[int],
    n_init: int = 1,
    device: torch.device = _CPU,
) -> list[KMeansFit]:
    """Return for each seed the best of `n_init` runs of K-means, initialized by k-means++ with local trials.

    The CPU runs scikit-learn's K-means in the dtype of the points: one seed in the calling thread, several in parallel.
    A GPU runs :func:`batched_kmeans` in float32, all runs at once. With fewer distinct points than clusters, some
    clusters stay empty; :data:`~pamc.runtime.quiet_libraries` silences scikit-learn's warning about it.

    Parameters
    ----------
    points
        (N, d) rows.
    n_clusters
        Number of clusters, C, at most N.
    seeds
        One random seed per fit; fits are independent of each other.
    n_init
        Number of runs per seed, of which the one with the lowest inertia is returned.
    device
        Device of the computation.

    Examples
    --------
    >>> kmeans(np.array([[0.0], [0.5], [5.0]]), 2, seeds=[0])[0].labels.tolist() in ([0, 0, 1], [1, 1, 0])
    True
    """
    if device.type == "cpu":
        fits = [partial(_fit_by_scikit_learn, np.asarray(points), n_clusters, n_init, seed) for seed in seeds]
        return [fits[0]()] if len(fits) == 1 else side_by_side(fits)
    return _fits_in_batches(torch.as_tensor(points).to(device, torch.float32), n_clusters, n_init, seeds)


def _fit_by_scikit_learn(points: NDArray[Any], n_clusters: int, n_init: int, seed: int) -> KMeansFit:
    model = KMeans(n_clusters, n_init=n_init, random_state=seed).fit(points)
    return KMeansFit(model.labels_.astype(np.int64), model.cluster_centers_, float(model.inertia_), model.predict)


def _fits_in_batches(points: Tensor, n_clusters: int, n_init: int, seeds: Sequence[int]) -> list[KMeansFit]:
    run_seeds = seeds if n_init == 1 else [seed_for(seed, f"start {run}") for seed in seeds for run in range(n_init)]
    runs = batched_kmeans(points, n_clusters, seeds=run_seeds)
    labels, centers, inertia = (result.cpu().numpy() for result in runs)
    best = [first + int(inertia[first : first + n_init].argmin()) for first in range(0, len(run_seeds), n_init)]
    return [KMeansFit(labels[i], centers[i], float(inertia[i]), partial(_nearest_center, centers[i])) for i in best]


def _nearest_center(centers: NDArray[Any], points: NDArray[Any]) -> NDArray[np.integer]:
    nearest: NDArray[np.integer] = (np.square(centers).sum(axis=1) - 2 * points @ centers.T).argmin(axis=1)
    return nearest


def batched_kmeans(points: Tensor, n_clusters: int, *, seeds: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return labels (R, N), centers (R, C, d) and inertia (R,) of one run of K-means for each seed.

    Bitwise reproducible on one device, because sums over clusters are matrix products. The center of an empty cluster
    is the mean of all rows. O(R·N·C·d) time per iteration; as many runs at a time as fit into a gibibyte of memory.

    Examples
    --------
    >>> labels, _, inertia = batched_kmeans(torch.tensor([[0.0], [0.5], [5.0]]), 2, seeds=[0, 1])
    >>> (labels[:, 0] == labels[:, 1]).tolist(), inertia.round(decimals=3).tolist()
    ([True, True], [0.125, 0.125])
    """
    at_a_time = max(1, _NUMBERS_AT_A_TIME // (len(points) * n_clusters))
    mean = points.mean(dim=0)
    centered = points - mean
    labels = torch.cat(
        [
            _lloyd(centered, _plus_plus(centered, n_clusters, seeds[first : first + at_a_time]))
            for first in range(0, len(seeds), at_a_time)
        ]
    )
    means, inertia = zip(*(_means_and_inertia(centered, run, n_clusters) for run in labels), strict=True)
    return labels, torch.stack(means) + mean, torch.stack(inertia)


def _means_and_inertia(points: Tensor, labels: Tensor, n_clusters: int) -> tuple[Tensor, Tensor]:
    """Return the means (C, d) of clusters, and the sum of squared distances of rows to them, in float64."""
    members = _members(labels, n_clusters, points.dtype)
    means = (members.T @ points) / members.sum(dim=0).clamp(min=1)[:, None]
    return means, (points - means[labels]).square().sum(dtype=torch.float64)


def _members(labels: Tensor, n_clusters: int, dtype: torch.dtype) -> Tensor:
    """Return the (…, C) one-hot encoding of the labels (…)."""
    return (labels[..., None] == torch.arange(n_clusters, device=labels.device)).to(dtype)


def _plus_plus(points: Tensor, n_clusters: int, seeds: Sequence[int]) -> Tensor:
    """Return (R, C, d) initial centers: each is the best of a few rows sampled by distance from earlier centers."""
    n_rows, n_trials = len(points), 2 + int(math.log(n_clusters))
    draws = torch.stack(
        [torch.rand(n_clusters, n_trials, generator=torch.Generator().manual_seed(seed)) for seed in seeds], dim=1
    ).to(points)
    lengths = points.square().sum(dim=1)
    run = torch.arange(len(seeds), device=points.device)
    chosen = (draws[0, :, 0] * n_rows).long().clamp(max=n_rows - 1)
    centers = [points[chosen]]
    nearest = _distances(points, lengths, centers[0][:, None]).squeeze(1)
    for number in range(1, n_clusters):
        total = nearest.cumsum(dim=1)
        thresholds = draws[number] * total[:, -1:]
        candidates = torch.searchsorted(total, thresholds).clamp(max=n_rows - 1)
        closer = torch.minimum(_distances(points, lengths, points[candidates]), nearest[:, None])
        best = closer.sum(dim=2).argmin(dim=1)
        nearest = closer[run, best]
        centers.append(points[candidates[run, best]])
    return torch.stack(centers, dim=1)


def _distances(points: Tensor, lengths: Tensor, centers: Tensor) -> Tensor:
    """Return (R, C, N) squared distances of rows (N, d) to centers (R, C, d)."""
    squared = (centers @ points.T).mul_(-2).add_(lengths)
    return squared.add_(centers.square().sum(dim=2, keepdim=True)).clamp_(min=0)


def _lloyd(points: Tensor, centers: Tensor) -> Tensor:
    """Return (R, N) labels after Lloyd's iterations; an empty cluster keeps its center."""
    n_clusters = centers.shape[1]
    limit = _TOLERANCE * float(points.var(dim=0, correction=0).mean())
    for iteration in range(1, _MOST_ITERATIONS + 1):
        members = _members(_nearest(points, centers), n_clusters, points.dtype)
        counts = members.sum(dim=1)
        sums = members.transpose(1, 2) @ points
        means = torch.where(counts[:, :, None] > 0, sums / counts.clamp(min=1)[:, :, None], centers)
        shift = (means - centers).square().sum(dim=(1, 2))
        centers = means
        if iteration % _CHECK_EVERY == 0 and float(shift.max()) <= limit:
            break
    return _nearest(points, centers)


def _nearest(points: Tensor, centers: Tensor) -> Tensor:
    """Return the (R, N) nearest of the centers (R, C, d) of each row (N, d)."""
    scores = (points @ centers.transpose(1, 2)).mul_(-2).add_(centers.square().sum(dim=2)[:, None])
    return scores.argmin(dim=2)
