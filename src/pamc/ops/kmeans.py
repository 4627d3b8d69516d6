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

from pamc.runtime import has_few_rows, seed_for, side_by_side

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

    The CPU runs scikit-learn's iterations in the dtype of the points: one seed in the calling thread, several in
    parallel. A GPU runs :func:`batched_kmeans` in float32, all runs at once. With fewer distinct points than clusters,
    some clusters stay empty; :data:`~pamc.runtime.quiet_libraries` silences scikit-learn's warning about it.

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
    if device.type != "cpu":
        return _fits_in_batches(torch.as_tensor(points).to(device, torch.float32), n_clusters, n_init, seeds)
    points, run_seeds = np.asarray(points), _seeds_of_runs(seeds, n_init)
    # The initial centers of all runs are drawn together if there are few rows, because a single draw is too short.
    at_a_time = len(run_seeds) if has_few_rows(len(points)) else 1
    parts = [run_seeds[first : first + at_a_time] for first in range(0, len(run_seeds), at_a_time)]
    tasks = [partial(_runs_by_scikit_learn, points, n_clusters, part) for part in parts]
    runs = [run for part in ([tasks[0]()] if len(tasks) == 1 else side_by_side(tasks)) for run in part]
    return [min(runs[first : first + n_init], key=lambda run: run.inertia) for first in range(0, len(runs), n_init)]


def _runs_by_scikit_learn(points: NDArray[Any], n_clusters: int, seeds: Sequence[int]) -> list[KMeansFit]:
    """Return a run of scikit-learn's K-means for each seed, from initial centers that are drawn for all runs at once.

    Scikit-learn draws those of one run at a time, which takes longer than its iterations if there are few rows.
    """
    mean = points.mean(axis=0)
    centered = points - mean
    starts = centered[_plus_plus(torch.from_numpy(centered), n_clusters, seeds).numpy()] + mean
    models = [KMeans(n_clusters, init=start, n_init=1).fit(points) for start in starts]
    return [
        KMeansFit(model.labels_.astype(np.int64), model.cluster_centers_, float(model.inertia_), model.predict)
        for model in models
    ]


def initial_centers(
    points: NDArray[np.floating[Any]], weight: NDArray[np.floating[Any]], n_clusters: int, *, seeds: Sequence[int]
) -> NDArray[np.int64]:
    """Return (R, C) points that k-means++ chooses as initial centers, in one run for each seed, on the CPU.

    The weight (N,) of a point is the number of times it counts. The first k points are initial centers of k clusters.
    """
    chosen = _plus_plus(torch.from_numpy(points), n_clusters, seeds, torch.from_numpy(weight))
    return np.asarray(chosen.numpy(), dtype=np.int64)


def best_centers(
    points: NDArray[np.floating[Any]],
    centers: NDArray[np.floating[Any]],
    *,
    n_best: int,
    weight: NDArray[np.floating[Any]] | None = None,
    n_iterations: int = _MOST_ITERATIONS,
) -> NDArray[np.floating[Any]]:
    """Return the `n_best` centers (n_best, C, d) with the lowest inertia, the best first, on the CPU in float32.

    Lloyd's iterations run from all initial centers (R, C, d) at once, and the weight (N,) of a point is the number of
    times it counts. An empty cluster keeps its center. For a few hundred points, or few runs, this is several times as
    fast as scikit-learn, which mostly checks its input. O(R·N·C·d) time per iteration, O(R·N·C) memory.
    """
    rows, current = points.astype(np.float32), centers.astype(np.float32)
    weights = np.ones(len(rows), dtype=np.float32) if weight is None else weight.astype(np.float32)
    weighted, limit = rows * weights[:, None], _TOLERANCE * float(rows.var(axis=0).mean())
    for _ in range(n_iterations):
        scores = _scores_of_rows(rows, current)
        members = (scores == scores.min(axis=1, keepdims=True)).astype(np.float32)
        sums = (members.reshape(-1, len(rows)) @ weighted).reshape(current.shape)
        counts = (members @ weights)[:, :, None]
        means = np.where(counts > 0, sums / np.maximum(counts, 1), current)
        shift = np.square(means - current).sum(axis=(1, 2)).max()
        current = means
        if shift <= limit:
            break
    inertia = _scores_of_rows(rows, current).min(axis=1) @ weights
    best: NDArray[np.floating[Any]] = current[np.argsort(inertia, kind="stable")[:n_best]]
    return best


def _scores_of_rows(rows: NDArray[np.float32], centers: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (R, C, N) squared distances of rows (N, d) to centers (R, C, d), less the squared length of the row."""
    scores = centers.reshape(-1, centers.shape[2]) @ rows.T
    scores *= -2
    scores += np.square(centers).sum(axis=2).reshape(-1, 1)
    return scores.reshape(*centers.shape[:2], len(rows))


def kmeans_fit(points: NDArray[np.floating[Any]], centers: NDArray[np.floating[Any]]) -> KMeansFit:
    """Return the result of K-means that converged to the centers (C, d)."""
    labels = _nearest_center(centers, points).astype(np.int64, copy=False)
    return KMeansFit(
        labels, centers, float(np.square(points - centers[labels]).sum()), partial(_nearest_center, centers)
    )


def _seeds_of_runs(seeds: Sequence[int], n_init: int) -> Sequence[int]:
    """Return the seeds of `n_init` runs for each seed."""
    return seeds if n_init == 1 else [seed_for(seed, f"start {run}") for seed in seeds for run in range(n_init)]


def _fits_in_batches(points: Tensor, n_clusters: int, n_init: int, seeds: Sequence[int]) -> list[KMeansFit]:
    run_seeds = _seeds_of_runs(seeds, n_init)
    runs = batched_kmeans(points, n_clusters, seeds=run_seeds)
    labels, centers, inertia = (result.cpu().numpy() for result in runs)
    best = [first + int(inertia[first : first + n_init].argmin()) for first in range(0, len(run_seeds), n_init)]
    return [KMeansFit(labels[i], centers[i], float(inertia[i]), partial(_nearest_center, centers[i])) for i in best]


def nearest_centers(
    points: NDArray[np.floating[Any]], centers: Sequence[NDArray[np.floating[Any]]], device: torch.device = _CPU
) -> list[Labels]:
    """Return for each of several sets of centers (C, d) the index (N,) of the center nearest to each of the points.

    O(N·C) memory.

    Examples
    --------
    >>> nearest_centers(np.array([[0.0], [4.0]]), [np.array([[5.0], [1.0]])])[0]
    array([1, 0])
    """
    rows = torch.as_tensor(points).to(device)
    return [_nearest(rows, torch.as_tensor(each).to(rows)[None])[0].cpu().numpy() for each in centers]


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
            _lloyd(centered, centered[_plus_plus(centered, n_clusters, seeds[first : first + at_a_time])])
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


def _plus_plus(points: Tensor, n_clusters: int, seeds: Sequence[int], weight: Tensor | None = None) -> Tensor:
    """Return (R, C) rows as initial centers: each is the best of a few, sampled by distance from earlier centers."""
    n_rows, n_trials = len(points), 2 + int(math.log(n_clusters))
    draws = torch.stack(
        [torch.rand(n_clusters, n_trials, generator=torch.Generator().manual_seed(seed)) for seed in seeds], dim=1
    ).to(points)
    lengths = points.square().sum(dim=1)
    run = torch.arange(len(seeds), device=points.device)
    chosen = (draws[0, :, 0] * n_rows).long().clamp(max=n_rows - 1)
    centers = [chosen]
    nearest = _distances(points, lengths, points[chosen][:, None]).squeeze(1)
    for number in range(1, n_clusters):
        total = (nearest if weight is None else nearest * weight).cumsum(dim=1)
        thresholds = draws[number] * total[:, -1:]
        candidates = torch.searchsorted(total, thresholds).clamp(max=n_rows - 1)
        closer = torch.minimum(_distances(points, lengths, points[candidates]), nearest[:, None])
        best = (closer.sum(dim=2) if weight is None else closer @ weight).argmin(dim=1)
        nearest = closer[run, best]
        centers.append(candidates[run, best])
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
