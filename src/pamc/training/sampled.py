"""The start of a sample, for data too large for the start of all rows.

The encoder takes each row alone, so what it learns from some rows holds for all of them. A sample of rows, each seen
beside the mean of its neighborhood, gets a kNN graph of its own and the start that all rows would get; its clusters
give the centers. Nothing here grows with N.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from pamc.data.attributed_graph import Features
from pamc.models.rows import FeatureRows
from pamc.runtime import resolve_dtype, seed_for
from pamc.training.consensus import Evidence, knn_adjacency
from pamc.training.engine import encode_rows
from pamc.training.graphs import directions_of
from pamc.training.initialize import Started, StartInput, mean_centers, starting_centers
from pamc.training.progress import Progress
from pamc.training.starts import STARTS

__all__ = ["SAMPLE_ROWS", "Sample", "sampled_rows", "start_of_sample"]

# Rows of a sample: enough for clusters of a thousandth of the rows.
SAMPLE_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows, drawn at random.

    Parameters
    ----------
    features
        (n, d) prepared features.
    around
        (n, d) the mean of each row and its neighbors, prepared alike; the features themselves where there is no graph.
    preparation
        How they were prepared.
    """

    features: Features
    around: Features
    preparation: str


def sampled_rows(n_nodes: int, *, seed: int, n_rows: int = SAMPLE_ROWS) -> NDArray[np.int64]:
    """Return the numbers of rows of a sample, ascending; all, where there are no more.

    Examples
    --------
    >>> sampled_rows(3, seed=0)
    array([0, 1, 2])
    """
    if n_nodes <= n_rows:
        return np.arange(n_nodes)
    drawn = np.random.default_rng(seed_for(seed, "sample")).choice(n_nodes, n_rows, replace=False, shuffle=False)
    return np.sort(drawn)


def start_of_sample(
    sample: Sample, config: Any, *, seed: int, device: torch.device, dtype: torch.dtype, progress: Progress
) -> tuple[Started, Tensor]:
    """Return what the start of the settings makes of a sample, and centers (C, n_dims). O(n) time and memory.

    Parameters
    ----------
    config
        Settings whose `n_dims` is known. A start that needs a graph is given the kNN graph of the sample.
    dtype
        Of the rows that the encoder takes.
    """
    rows = FeatureRows(sample.features, device=device, dtype=dtype)
    with progress.phase("sample"), threadpool_limits(limits=1):
        directions = directions_of(sample.around, sample.preparation, seed, device)
        n_neighbors = min(config.n_neighbors, len(rows) - 1)
        adjacency = knn_adjacency(directions, n_neighbors, device)
    evidence = Evidence("features and graph", directions, adjacency)
    started = STARTS[config.start](StartInput(rows, sample.features, adjacency, evidence, config, seed, progress))
    z = encode_rows(started.encoder, rows, chunk_size=config.chunk_size)
    if started.labels is None:
        centers, _ = starting_centers(z, config, seed=seed)
    else:
        centers = mean_centers(z, started.labels, config.n_clusters)
    return started, centers.to(resolve_dtype(config.precision))
