"""What a fit refuses at the door: too few rows, known labels out of range, embeddings that are not finite."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamc.data.attributed_graph import Features
from pamc.errors import ConfigError, DataError, TrainingError

__all__ = ["check_embedding", "check_enough_rows", "check_known_labels", "count_distinct"]


def check_embedding(values: Tensor, n_nodes: int, when: str, help_with: str) -> None:
    """Refuse an embedding of another shape than (N, n_dims), or with values that are not finite."""
    if values.ndim != 2 or len(values) != n_nodes:
        raise ConfigError(
            f"encoder must map (n, d) rows to (n, n_dims): for {n_nodes} rows it returned shape {tuple(values.shape)}"
        )
    if not torch.isfinite(values).all():
        raise TrainingError(f"{when}: the embedding is not finite. {help_with} may help")


def check_enough_rows(features: Features, n_clusters: int, *, distinct: bool = True) -> None:
    """Refuse more clusters than there are rows, or than there are distinct ones where a method tells them by these."""
    n_nodes = features.shape[0]
    if n_clusters > n_nodes:
        raise ConfigError(
            f"n_clusters={n_clusters} is more than the number of rows, n_samples={n_nodes}: ask for fewer clusters"
        )
    if not distinct:
        return
    n_distinct = count_distinct(features, at_most=n_clusters)
    if n_distinct < n_clusters:
        raise DataError(
            f"n_clusters={n_clusters} is more than the number of distinct rows, {n_distinct} (compared as "
            f"{features.dtype}): ask for fewer clusters, or add columns that tell the rows apart"
        )


def count_distinct(features: Features, *, at_most: int) -> int:
    """Return the number of distinct rows, counting no further than `at_most`."""
    seen: set[bytes] = set()
    for row in range(features.shape[0]):
        if len(seen) >= at_most:
            break
        values = features[row].toarray() if sp.issparse(features) else features[row]
        seen.add((np.asarray(values) + 0.0).tobytes())
    return len(seen)


def check_known_labels(known_labels: NDArray[np.int64], n_nodes: int, n_clusters: int) -> None:
    """Refuse known labels that are not one integer of −1 … C−1 per row."""
    if known_labels.shape != (n_nodes,) or known_labels.dtype.kind not in "iu":
        raise DataError(
            f"known_labels must be {n_nodes} integers, got {known_labels.dtype} of shape {known_labels.shape}"
        )
    if known_labels.min() < -1 or known_labels.max() >= n_clusters:
        raise DataError(f"known_labels must lie between -1 (unknown) and n_clusters - 1 = {n_clusters - 1}")
