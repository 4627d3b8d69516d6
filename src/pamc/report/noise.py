"""Noise in a report: one more group of rows, after the clusters."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

# The group of noise has no center: this one is farther than any other.
_FAR = 1e30

# The number of noise in the labels of a fit.
NOISE = -1


def with_noise_group(model: Any) -> Any:
    """Return a fitted model in which noise is a group of its own, numbered after the clusters.

    The model itself is returned if it has no noise. The group has a center that is nearest to no row, and a meta-node
    of zero.
    """
    labels = getattr(model, "labels_", None)
    if labels is None or not (np.asarray(labels) == NOISE).any():
        return model
    grouped, centers = copy.copy(model), np.asarray(model.cluster_centers_)
    grouped.labels_ = np.where(np.asarray(labels) == NOISE, len(centers), labels)
    grouped.cluster_centers_ = np.vstack([centers, np.full_like(centers[:1], _FAR)])
    grouped.meta_nodes_ = np.vstack([model.meta_nodes_, np.zeros_like(np.asarray(model.meta_nodes_)[:1])])
    grouped.noise_group = len(centers)
    return grouped


def noise_group(model: Any) -> int | None:
    """Return the number of the group of noise in a model that :func:`with_noise_group` returned, None without noise."""
    return getattr(model, "noise_group", None)
