"""K-means on the device, many runs at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["best_kmeans", "kmeans_runs"]

_MOST_ITERATIONS = 300

# Of the mean variance of the columns: a run is done when its centers together moved no farther, squared.
_TOLERANCE = 1e-4

# Iterations between two looks at whether all runs are done: each look waits for the device.
_LOOK_EVERY = 5

# Numbers of one (runs, N, C) temporary; more runs take turns.
_NUMBERS_AT_A_TIME = 1 << 28


def kmeans_runs(points: Tensor, n_clusters: int, *, seeds: Sequence[int]) -> Tensor:
    """Return (R, N) clusters of one run of K-means for each seed, from k-means++ with local trials.

    Repeats bit by bit on one device: sums over clusters are matrix products. O(R·N·C·d) time per iteration, and memory
    for as many runs at a time as fit into a gibibyte.

    Parameters
    ----------
    points
        (N, d) rows.
    n_clusters
        C, at most N.
    seeds
        One for each run: what a run gives does not depend on the others.

    Examples
    --------
    >>> labels = kmeans_runs(torch.tensor([[0.0], [0.1], [5.0]]), 2, seeds=[0, 1])
    >>> bool((labels[:, 0] == labels[:, 1]).all()), bool((labels[:, 0] != labels[:, 2]).all())
    (True, True)
    """
    at_a_time = max(1, _NUMBERS_AT_A_TIME // (len(points) * n_clusters))
    centered = points - points.mean(dim=0)
    found = [
        _lloyd(centered, _plus_plus(centered, n_clusters, seeds[first : first + at_a_time]))
        for first in range(0, len(seeds), at_a_time)
    ]
    return torch.cat(found)


def best_kmeans(points: Tensor, n_clusters: int, *, seeds: Sequence[int]) -> Tensor:
    """Return (N,) clusters of that of the runs of :func:`kmeans_runs` whose rows lie closest to their means.

    Examples
    --------
    >>> labels = best_kmeans(torch.tensor([[0.0], [0.1], [5.0], [9.0]]), 3, seeds=[0, 1, 2])
    >>> bool(labels[0] == labels[1]), len(labels.unique())
    (True, 3)
    """
    runs = kmeans_runs(points, n_clusters, seeds=seeds)
    centered = points - points.mean(dim=0)
    best = torch.stack([_inertia(centered, labels, n_clusters) for labels in runs]).argmin()
    return runs[best]


def _inertia(points: Tensor, labels: Tensor, n_clusters: int) -> Tensor:
    """Return the sum of squared distances of rows to the mean of their cluster, in float64."""
    members = _members(labels, n_clusters, points.dtype)
    means = (members.T @ points) / members.sum(dim=0).clamp(min=1)[:, None]
    return (points - means[labels]).square().sum(dtype=torch.float64)


def _members(labels: Tensor, n_clusters: int, dtype: torch.dtype) -> Tensor:
    """Return (…, C) with a 1 for the cluster of each of the labels (…)."""
    return (labels[..., None] == torch.arange(n_clusters, device=labels.device)).to(dtype)


def _plus_plus(points: Tensor, n_clusters: int, seeds: Sequence[int]) -> Tensor:
    """Return (R, C, d) starting centers: each the best of a few rows drawn by their distance to those before it."""
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
        wanted = draws[number] * total[:, -1:]
        candidates = torch.searchsorted(total, wanted).clamp(max=n_rows - 1)
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
    """Return (R, N) labels after alternating means and nearest centers; a center without rows stays."""
    n_clusters = centers.shape[1]
    limit = _TOLERANCE * float(points.var(dim=0, correction=0).mean())
    for iteration in range(1, _MOST_ITERATIONS + 1):
        members = _members(_nearest(points, centers), n_clusters, points.dtype)
        counts = members.sum(dim=1)
        sums = members.transpose(1, 2) @ points
        means = torch.where(counts[:, :, None] > 0, sums / counts.clamp(min=1)[:, :, None], centers)
        moved = (means - centers).square().sum(dim=(1, 2))
        centers = means
        if iteration % _LOOK_EVERY == 0 and float(moved.max()) <= limit:
            break
    return _nearest(points, centers)


def _nearest(points: Tensor, centers: Tensor) -> Tensor:
    """Return (R, N) the nearest of the centers (R, C, d) of each row (N, d)."""
    scores = (points @ centers.transpose(1, 2)).mul_(-2).add_(centers.square().sum(dim=2)[:, None])
    return scores.argmin(dim=2)
