"""The start of a sample, for data too large for the start of all rows.

The encoder takes each row alone, so what it learns from some rows holds for all of them. A sample of rows is drawn,
each seen beside the mean of its neighborhood. Some of them, the core, get a kNN graph of their own and the clusters
that all rows would get by the default start; each row of the sample is told to go where the core's rows like it went,
and the encoder is fitted to that. Nothing here grows with N.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamc.data.attributed_graph import Features
from pamc.data.store import Store
from pamc.data.store.store import StoreFeatures
from pamc.graph.adjacency import build_adjacency
from pamc.graph.neighbors import ANGLE, DIRECTIONS, knn_adjacency, nearest
from pamc.graph.smoothing import Floats, on_sphere, unit_rows
from pamc.initialize.base import INITIALIZERS, InitContext, InitResult, initial_centers, mean_centers
from pamc.initialize.calibration import fit_split_halves
from pamc.initialize.consensus import Agreed, InputSource, agreed_clusters
from pamc.initialize.fitting import fitted_to
from pamc.initialize.inputs import directions_of
from pamc.models.loader import FeatureLoader, encode_rows
from pamc.progress import Progress
from pamc.runtime import one_thread, resolve_dtype, seed_for

__all__ = [
    "CORE_ROWS",
    "SAMPLE_ROWS",
    "Sample",
    "WithNeighbors",
    "initialize_from_sample",
    "sampled_rows",
    "with_neighbors",
]

# Rows whose clusters are sought: enough for clusters of a thousandth of all rows, and some minutes of a CPU.
CORE_ROWS = 10_000

# Rows that the encoder learns from: more of them, or it learns their noise by heart; and the bytes they may take.
SAMPLE_ROWS = 100_000
_SAMPLE_BYTES = 1 << 27

# A larger sample is passed over fewer times: an encoder sees so many times as many rows as of the core alone.
_TIMES_LONGER = 2

# Rows of the core that a row is told to go to, and rows that are told so at a time.
_GUIDES = 5
_TOLD_AT_A_TIME = 2048

_GRAPH_START = "consensus"


@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows, drawn at random.

    Parameters
    ----------
    features
        (n, d) prepared features.
    around
        Returns (n, d) the mean of each row and its neighbors, prepared alike: it is asked for once, and not kept.
    preprocessing
        How they were prepared.
    """

    features: Features
    around: Callable[[], Features]
    preprocessing: str


def sampled_rows(n_nodes: int, n_features: int, *, seed: int) -> NDArray[np.int64]:
    """Return the numbers of rows of a sample, ascending; all, where there are no more.

    Examples
    --------
    >>> sampled_rows(3, 10, seed=0)
    array([0, 1, 2])
    """
    n_rows = max(CORE_ROWS, min(SAMPLE_ROWS, _SAMPLE_BYTES // (4 * n_features)))
    if n_nodes <= n_rows:
        return np.arange(n_nodes)
    drawn = np.random.default_rng(seed_for(seed, "sample")).choice(n_nodes, n_rows, replace=False, shuffle=False)
    return np.sort(drawn)


def initialize_from_sample(
    sample: Sample,
    config: Any,
    *,
    seed: int,
    device: torch.device,
    dtype: torch.dtype,
    progress: Progress,
    numbers: NDArray[np.int64] | None = None,
) -> tuple[InitResult, Tensor]:
    """Return what the start of the settings makes of a sample, and centers (C, n_dims). O(n) time and memory.

    Parameters
    ----------
    config
        Settings whose `n_dims` is known. Starts but the default one see the core alone, and its kNN graph.
    dtype
        Of the rows that the encoder takes.
    numbers
        (n,) of the rows of the sample in the table; 0 … n−1 without.
    """
    rows = FeatureLoader(sample.features, device=device, dtype=dtype)
    core = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), CORE_ROWS)).astype(np.int64))
    with progress.phase("sample"), one_thread():
        directions = directions_of(sample.around(), sample.preprocessing, seed, device)
        adjacency = knn_adjacency(directions[core], min(config.n_neighbors, len(core) - 1), device)
    inputs = InputSource("features and graph", directions[core], adjacency)
    core_rows = FeatureLoader(sample.features[core], device=device, dtype=dtype)
    given = InitContext(core_rows, sample.features[core], adjacency, inputs, config, seed, progress)
    if config.init == _GRAPH_START:
        started = _consensus_start(given, rows, sample, directions, core)
        with progress.phase("confidence"):
            own = core if numbers is None else numbers[core]
            started = started._replace(halves=fit_split_halves(inputs, config, seed=seed, device=device, rows=own))
    else:
        started = INITIALIZERS[config.init](given)
    z = encode_rows(started.encoder, core_rows, chunk_size=config.chunk_size)
    if started.labels is None:
        centers, _ = initial_centers(z, config, seed=seed)
    else:
        centers = mean_centers(z, started.labels, config.n_clusters)
    return started, centers.to(resolve_dtype(config.precision))


def _consensus_start(
    given: InitContext, rows: FeatureLoader, sample: Sample, directions: Floats, core: NDArray[np.int64]
) -> InitResult:
    """Return the default start of the core, with its labels, and an encoder that has learnt from the whole sample."""
    config, device, inputs = given.config, rows.device, given.inputs
    sizes: dict[str, Any] = {"n_dims": config.n_dims, "seed": given.seed, "device": device}
    with given.progress.phase("consensus"), one_thread():
        agreed: Agreed = agreed_clusters(inputs.rows, inputs.adjacency, config.n_clusters, **sizes)  # type: ignore[union-attr]
        targets = _guided(directions, core, agreed.points, device)
    share = _TIMES_LONGER * len(core) / len(rows)
    longer = config.with_(pretrain_epochs=max(1, round(min(1.0, share) * config.pretrain_epochs)))
    learning = InitContext(rows, sample.features, None, None, longer, given.seed, given.progress)
    facts = {
        "inputs": "features and graph",
        "clusters_by": agreed.how,
        "agreement": agreed.agreement,
        "sampled_rows": len(rows),
        "clustered_rows": len(core),
    }
    return InitResult(fitted_to(targets, learning), labels=agreed.labels, facts=facts)


def _guided(directions: Floats, core: NDArray[np.int64], points: Floats, device: torch.device) -> Floats:
    """Return (n, n_dims) unit rows: the points of the core, and for other rows the mean of those nearest by angle."""
    placed = torch.from_numpy(on_sphere(directions)).to(device=device, dtype=torch.float32)
    there, guides = placed[core], torch.from_numpy(points).to(device)
    told = [
        guides[(block @ there.T).topk(min(_GUIDES, len(core)), dim=1).indices].mean(dim=1)
        for block in torch.split(placed, _TOLD_AT_A_TIME)
    ]
    targets = unit_rows(torch.cat(told).cpu().numpy())
    targets[core] = points
    return targets


# Rows that are turned into the directions in which they are compared, at a time.
_TURNED_AT_A_TIME = 1 << 14


class WithNeighbors:
    """A store, and neighbors of its rows that were found instead of given. In all else it is that store."""

    has_edges = True
    weight = None

    def __init__(self, store: Store, indptr: NDArray[np.int64], indices: NDArray[Any], recall: float) -> None:
        self._store, self.indptr, self.indices = store, indptr, indices
        self.recall = recall

    @property
    def n_stored(self) -> int:
        """The number of stored neighbors."""
        return len(self.indices)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def with_neighbors(
    store: Store,
    rows: StoreFeatures,
    numbers: NDArray[np.int64],
    n_neighbors: int,
    *,
    seed: int,
    device: torch.device,
) -> WithNeighbors:
    """Return the store with the nearest rows of each, and the recall that was measured.

    O(N·√N) time, O(N·(50 + k)) memory.

    Parameters
    ----------
    rows
        All rows, prepared.
    numbers
        Rows of a sample: the directions are theirs.
    """
    sample = np.asarray(rows[numbers], dtype=np.float64)
    mean = sample.mean(axis=0)
    centered = sample - mean
    _, vectors = np.linalg.eigh(centered.T @ centered)
    leading = vectors[:, ::-1][:, :DIRECTIONS]
    turned = np.empty((len(rows), leading.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), _TURNED_AT_A_TIME):
        own = slice(start, start + _TURNED_AT_A_TIME)
        turned[own] = (rows[own] - mean) @ leading
    # Half the memory of float64, in which such rows are kept otherwise.
    placed: Any = turned
    found = nearest(placed, n_neighbors, metric=ANGLE, device=device, seed=seed)
    adjacency = build_adjacency(found.edges, None, n_nodes=len(rows), expect_directed=True)
    return WithNeighbors(store, adjacency.indptr.astype(np.int64), adjacency.indices, found.recall)
