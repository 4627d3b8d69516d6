"""Initialization from a sample, for data too large to initialize from all rows.

The encoder is row-wise, so it generalizes from a sample to all rows. A random sample is drawn, together with the mean
of each row's neighborhood. A subset of the sample, the core, is clustered along its kNN graph, as the default
initializer clusters all rows. The target of every other row of the sample is the mean target of the most similar core
rows, and the encoder is fitted to these targets. Time and memory do not depend on N.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamc.data.attributed_graph import Features
from pamc.data.preprocessing import Preprocessing
from pamc.data.store import Store
from pamc.data.store.store import StoreFeatures
from pamc.graph.adjacency import Adjacency, build_adjacency
from pamc.graph.neighbors import ANGLE, DIRECTIONS, knn_adjacency, nearest
from pamc.graph.smoothing import Floats, on_sphere, unit_rows
from pamc.initialize.base import INITIALIZERS, InitContext, InitResult, initial_centers, mean_centers
from pamc.initialize.calibration import fit_split_halves
from pamc.initialize.consensus import InputSource, agreed_clusters
from pamc.initialize.family import FAMILIES
from pamc.initialize.fitting import fitted_encoder
from pamc.initialize.inputs import compared_by_angle, directions_of, family_for
from pamc.models.loader import FeatureLoader, encode_rows
from pamc.progress import Progress
from pamc.runtime import one_thread, resolve_dtype, seed_for

# Number of rows that are clustered, enough to represent a cluster that has a thousandth of all rows.
CORE_ROWS = 10_000

# Maximum number of rows that the encoder is fitted to (more than the core, to avoid overfitting), and of their bytes.
SAMPLE_ROWS = 100_000
_SAMPLE_BYTES = 1 << 27

# Number of core rows whose mean is the target of another row, and number of targets that are computed at a time.
_GUIDES = 5
_TARGETS_AT_A_TIME = 2048

_CONSENSUS = "consensus"


@dataclass(frozen=True, eq=False)
class Sample:
    """A random sample of the rows.

    Parameters
    ----------
    features
        (n, d) preprocessed features.
    around
        Function that returns the mean (n, d) of each preprocessed row and its neighbors; it is called once.
    preprocessing
        Preprocessing of the features.
    is_knn
        Whether the neighbors of a row are those nearest to it, and not those in a given graph.
    """

    features: Features
    around: Callable[[], Features]
    preprocessing: Preprocessing
    is_knn: bool = False


def sampled_rows(n_nodes: int, n_features: int, *, seed: int) -> NDArray[np.int64]:
    """Return the ascending indices of the rows of a sample, or of all rows if they are few enough.

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
    """Run the initializer of the settings on a sample; return its result and centers (C, n_dims).

    O(n) time and memory.

    Parameters
    ----------
    config
        Settings, with a number for `n_dims`. Initializers other than the default receive the core and its kNN graph
        only.
    dtype
        Data type of the rows passed to the encoder.
    numbers
        (n,) indices of the sampled rows in the table; by default 0 … n−1.
    """
    rows = FeatureLoader(sample.features, device=device, dtype=dtype)
    core = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), CORE_ROWS)).astype(np.int64))
    family = family_for(sample.preprocessing) if sample.is_knn else None
    with progress.phase("sample"), one_thread():
        # In a table with many categories, the nearest rows of a row do not predict its cluster.
        features = sample.around() if family is None else sample.features
        directions = directions_of(features, sample.preprocessing, seed, device)
        adjacency = knn_adjacency(directions[core], min(config.n_neighbors, len(core) - 1), device)
    is_text = compared_by_angle(sample.features, sample.preprocessing)
    inputs = InputSource(
        "features and graph", directions[core], adjacency, is_knn=True, by_angle=is_text, family=family
    )
    core_rows = FeatureLoader(sample.features[core], device=device, dtype=dtype)
    context = InitContext(core_rows, sample.features[core], adjacency, inputs, config, seed, progress)
    if config.init == _CONSENSUS:
        result = _consensus_init(context, rows, sample, directions, core)
        with progress.phase("confidence"):
            core_index = core if numbers is None else numbers[core]
            halves = fit_split_halves(inputs, config, seed=seed, device=device, family=result.family, rows=core_index)
        judge = None if result.judge is None else replace(result.judge, rows=core_index)
        result = result._replace(halves=halves, judge=judge)
    else:
        result = INITIALIZERS[config.init](context)
    z = encode_rows(result.encoder, core_rows, chunk_size=config.chunk_size)
    if result.labels is None:
        centers, _ = initial_centers(z, config, seed=seed)
    else:
        centers = mean_centers(z, result.labels, config.n_clusters)
    return result, centers.to(resolve_dtype(config.precision))


def _consensus_init(
    core_context: InitContext, rows: FeatureLoader, sample: Sample, directions: Floats, core: NDArray[np.int64]
) -> InitResult:
    """Return the consensus clusters of the core, and an encoder fitted to the whole sample."""
    config, device, inputs, seed = core_context.config, rows.device, core_context.inputs, core_context.seed
    with core_context.progress.phase("consensus", len(FAMILIES)) as phase:
        options: dict[str, Any] = {"seed": seed, "device": device, "on_family": phase.advance}
        agreed = agreed_clusters(inputs, config.n_clusters, **options)  # type: ignore[arg-type]
    context = InitContext(rows, sample.features, None, None, config, seed, core_context.progress)

    def spread(points: Floats) -> Floats:
        with one_thread():
            return _sample_targets(directions, core, points, device)

    coded = inputs is not None and inputs.family is not None
    encoder, targets = fitted_encoder(agreed, context, clustered=core_context.rows, spread=spread, coded=coded)
    facts = {
        "inputs": "features and graph",
        "encoder_fitted_to": targets,
        **agreed.facts(),
        "sampled_rows": len(rows),
        "clustered_rows": len(core),
    }
    return InitResult(encoder, labels=agreed.labels, facts=facts, judge=agreed.judge)


def _sample_targets(directions: Floats, core: NDArray[np.int64], points: Floats, device: torch.device) -> Floats:
    """Return unit targets (n, n_dims): the points of core rows, and for others the mean of those nearest by angle."""
    unit = torch.from_numpy(on_sphere(directions)).to(device=device, dtype=torch.float32)
    core_unit, core_points = unit[core], torch.from_numpy(points).to(device)
    means = [
        core_points[(block @ core_unit.T).topk(min(_GUIDES, len(core)), dim=1).indices].mean(dim=1)
        for block in torch.split(unit, _TARGETS_AT_A_TIME)
    ]
    targets = unit_rows(torch.cat(means).cpu().numpy())
    targets[core] = points
    return targets


# Number of rows that are projected to the leading directions at a time.
_PROJECTED_AT_A_TIME = 1 << 14


class WithNeighbors:
    """A store with computed neighbors in memory; all other attributes are those of the store."""

    has_edges = True

    def __init__(self, store: Any, adjacency: Adjacency, *, recall: float | None = None) -> None:
        self._store, self.recall = store, recall
        self.indptr, self.indices = adjacency.indptr.astype(np.int64), adjacency.indices
        self.weight = None if recall is not None or (adjacency.data == 1).all() else adjacency.data

    @property
    def n_stored(self) -> int:
        """Number of stored neighbors."""
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
    """Return the store with approximate nearest neighbors, and their measured recall.

    O(N·√N) time, O(N·(50 + k)) memory.

    Parameters
    ----------
    rows
        All rows, preprocessed.
    numbers
        Indices of the sampled rows, from which the leading directions are computed.
    """
    projected = leading_columns(rows, numbers)
    neighbors = nearest(projected, n_neighbors, metric=ANGLE, device=device, seed=seed)
    adjacency = build_adjacency(neighbors.edges, None, n_nodes=len(rows), expect_directed=True)
    return WithNeighbors(store, adjacency, recall=neighbors.recall)


def leading_columns(rows: StoreFeatures, numbers: NDArray[np.int64]) -> Floats:
    """Return (N, r) coordinates of all rows in the leading directions of a sample of rows, in float32."""
    sample = np.asarray(rows[numbers], dtype=np.float64)
    mean = sample.mean(axis=0)
    centered = sample - mean
    _, vectors = np.linalg.eigh(centered.T @ centered)
    leading = vectors[:, ::-1][:, :DIRECTIONS]
    # Unlike elsewhere, coordinates are in float32, which takes half the memory of float64.
    projected: Any = np.empty((len(rows), leading.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), _PROJECTED_AT_A_TIME):
        block = slice(start, start + _PROJECTED_AT_A_TIME)
        projected[block] = (rows[block] - mean) @ leading
    return np.asarray(projected)
