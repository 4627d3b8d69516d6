"""A mixture of Gaussians, each with its own covariance matrix: clusters that differ in size, shape and orientation.

The logarithm of a Gaussian density is linear in the coordinates of a point and their products. A step of EM is
therefore two matrix products for all components of all mixtures: one for the densities, and one for the moments.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from pamc.graph.smoothing import Floats
from pamc.initialize.family import FAMILIES, FamilyInput
from pamc.ops.kmeans import Labels, kmeans
from pamc.runtime import seed_for

# Number of leading directions in which a covariance matrix can be estimated from few rows.
_N_DIRECTIONS = 20

# Variance added to each direction, as a share of the largest variance, so that a cluster does not shrink to a point.
_ADDED_VARIANCE = 1e-3

# EM has converged when the mean log-likelihood of all mixtures increases by less than this, as in scikit-learn.
_TOLERANCE = 1e-3
_MOST_STEPS = 100

# Maximum number of entries of an (N, components) temporary; further mixtures are fitted in later batches.
_NUMBERS_AT_A_TIME = 1 << 24

_CPU = torch.device("cpu")


@FAMILIES.register("Gaussian mixture")
def cluster_by_mixture(inputs: FamilyInput) -> Labels:
    """Return the most probable component of each row."""
    seed = seed_for(inputs.seed, "family mixture")
    return mixture_labels(inputs.points, inputs.n_clusters, seed=seed, device=inputs.device)


def mixture_labels(
    points: Floats, n_clusters: int, *, seed: int, n_init: int = 1, device: torch.device = _CPU
) -> Labels:
    """Return the most probable component (N,) of each of the points (N, r), in the most likely of `n_init` mixtures.

    Each mixture starts from the clusters of K-means. O(N·C·r²) time per step and mixture.
    """
    leading = points[:, :_N_DIRECTIONS]
    scaled = (leading - leading.mean(axis=0)) / (leading.std(axis=0).max() or 1.0)
    seeds = [seed_for(seed, f"mixture {number}") for number in range(n_init)]
    starts = [fit.labels for fit in kmeans(scaled, n_clusters, seeds=seeds, device=device)]
    terms = _quadratic_terms(torch.from_numpy(scaled).to(device, torch.float64))
    at_a_time = max(1, _NUMBERS_AT_A_TIME // (len(points) * n_clusters))
    fits = [
        _likeliest(terms, torch.from_numpy(np.stack(starts[first : first + at_a_time])).to(device), n_clusters)
        for first in range(0, n_init, at_a_time)
    ]
    return max(fits, key=lambda fit: fit[0])[1].cpu().numpy()


def _quadratic_terms(x: Tensor) -> Tensor:
    """Return (N, 1 + r + r·(r+1)/2): 1, the coordinates, and the products of any two of them."""
    one, other = torch.triu_indices(x.shape[1], x.shape[1], device=x.device)
    return torch.cat([torch.ones_like(x[:, :1]), x, x[:, one] * x[:, other]], dim=1)


def _likeliest(terms: Tensor, labels: Tensor, n_clusters: int) -> tuple[float, Tensor]:
    """Fit mixtures that start from the labels (R, N); return the largest mean log-likelihood and its labels (N,).

    A mixture that has converged takes no further steps.
    """
    n_rows = len(terms)
    members = torch.nn.functional.one_hot(labels.T, n_clusters).to(terms.dtype)
    likelihood = torch.full((len(labels),), -math.inf, dtype=terms.dtype, device=terms.device)
    best: tuple[float, Tensor] = (-math.inf, labels[0])
    for step in range(1, _MOST_STEPS + 1):
        coefficients = _log_densities(members.reshape(n_rows, -1).T @ terms, n_rows)
        log_joint = (terms @ coefficients).reshape(n_rows, -1, n_clusters)
        log_density = log_joint.logsumexp(dim=2, keepdim=True)
        before, likelihood = likelihood, log_density.mean(dim=(0, 2))
        is_running = (likelihood - before >= _TOLERANCE) & (step < _MOST_STEPS)
        finished = likelihood.masked_fill(is_running, -math.inf)
        if float(finished.max()) > best[0]:
            best = float(finished.max()), log_joint[:, int(finished.argmax())].argmax(dim=1)
        if not is_running.any():
            break
        members = (log_joint[:, is_running] - log_density[:, is_running]).exp_()
        likelihood = likelihood[is_running]
    return best


def _log_densities(moments: Tensor, n_rows: int) -> Tensor:
    """Return the coefficients (terms, components) of the log of each component's share times its density.

    `moments` (components, terms) are the sums of the terms over the rows of each component.
    """
    n_dims = (math.isqrt(8 * moments.shape[1] + 1) - 3) // 2
    one, other = torch.triu_indices(n_dims, n_dims, device=moments.device)
    count = moments[:, :1] + 10 * torch.finfo(moments.dtype).eps
    mean, product = moments[:, 1 : 1 + n_dims] / count, moments[:, 1 + n_dims :] / count
    covariance = torch.empty(len(moments), n_dims, n_dims, dtype=moments.dtype, device=moments.device)
    covariance[:, one, other] = covariance[:, other, one] = product - mean[:, one] * mean[:, other]
    covariance.diagonal(dim1=1, dim2=2).add_(_ADDED_VARIANCE)
    factor = torch.linalg.cholesky(covariance)
    precision = torch.cholesky_inverse(factor)
    linear = (precision @ mean[:, :, None])[:, :, 0]
    log_determinant = 2 * factor.diagonal(dim1=1, dim2=2).log().sum(dim=1)
    constant = (count[:, 0] / n_rows).log() - 0.5 * (
        n_dims * math.log(2 * math.pi) + log_determinant + (linear * mean).sum(dim=1)
    )
    # Each product of two different coordinates stands for both of its entries in the precision matrix.
    quadratic = precision[:, one, other] * torch.where(one == other, -0.5, -1.0)
    return torch.cat([constant[:, None], linear, quadratic], dim=1).T
