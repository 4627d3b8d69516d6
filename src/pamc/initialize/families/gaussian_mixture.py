"""A mixture of Gaussians, each with its own covariance matrix: clusters that differ in size, shape and orientation."""

from __future__ import annotations

import numpy as np

from pamc.graph.smoothing import Floats
from pamc.initialize.family import FAMILIES, FamilyInput
from pamc.ops.kmeans import Labels
from pamc.runtime import seed_for

# Number of leading directions in which a covariance matrix can be estimated from few rows.
_N_DIRECTIONS = 20

# Variance added to each direction, as a share of the largest variance, so that a cluster does not shrink to a point.
_ADDED_VARIANCE = 1e-3


@FAMILIES.register("Gaussian mixture")
def cluster_by_mixture(given: FamilyInput) -> Labels:
    """Return the most probable component of each row."""
    return mixture_labels(given.points, given.n_clusters, seed=seed_for(given.seed, "family mixture"))


def mixture_labels(points: Floats, n_clusters: int, *, seed: int, n_init: int = 1) -> Labels:
    """Return the most probable component (N,) of each of the points (N, r), in the likeliest of `n_init` mixtures."""
    from sklearn.mixture import GaussianMixture

    leading = points[:, :_N_DIRECTIONS]
    scaled = leading / (leading.std(axis=0).max() or 1.0)
    model = GaussianMixture(n_clusters, n_init=n_init, reg_covar=_ADDED_VARIANCE, random_state=seed)
    return np.asarray(model.fit_predict(scaled), dtype=np.int64)
