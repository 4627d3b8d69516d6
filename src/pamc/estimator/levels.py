"""Divide one cluster of a fitted model further."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from pamc.errors import ConfigError, DataError


def split_cluster(model: Any, cluster: int, X: Any, *, n_clusters: int, adjacency: Any = None) -> Any:
    """Return a model fitted to the rows of one cluster; see :meth:`pamc.PamCGC.split`."""
    rows = rows_of_cluster(model, cluster)
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if n_rows != len(model.labels_):
        raise DataError(f"the model was fitted on {len(model.labels_)} rows, X has {n_rows}: pass the rows of the fit")
    part = X.iloc[rows] if hasattr(X, "iloc") else X[rows]
    graph = None if adjacency is None else adjacency[rows][:, rows]
    return clone(model).set_params(n_clusters=n_clusters).fit(part, adjacency=graph)


def rows_of_cluster(model: Any, cluster: int) -> NDArray[np.int64]:
    """Return the rows of a cluster; raise a ConfigError if it does not exist or has no rows."""
    n_clusters = len(model.cluster_centers_)
    if isinstance(cluster, bool) or not hasattr(cluster, "__index__") or not 0 <= cluster < n_clusters:
        raise ConfigError(f"cluster must be an integer from 0 to {n_clusters - 1}, got {cluster!r}")
    rows = np.flatnonzero(model.labels_ == cluster)
    if not len(rows):
        raise ConfigError(f"cluster {cluster} has no rows")
    return rows
