"""Synthetic graphs and tables with planted clusters, generated in linear time in memory or directly into a store.

Random numbers of a store are drawn in units, each with a generator keyed by the seed, the purpose and the unit's
index: the store is identical for any amount of memory and any number of threads.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.store import Store, index_dtype, row_blocks
from pamc.data.store.neighbor_sort import NeighborSorter, bucket_starts, in_order
from pamc.data.store.writer import StoreWriter
from pamc.declarations import Count, Kind, Number
from pamc.errors import ConfigError
from pamc.progress import Progress, SilentProgress

_VALUES_PER_UNIT = 1 << 20
_PAIRS_PER_UNIT = 1 << 18
_LABELS_PER_BLOCK = 1 << 22
_MOST_RANGES = 4096
_BOUNDS: dict[str, Kind] = {
    "n_features": Count(),
    "seed": Count(0),
    "degree": Number(),
    "homophily": Number(at_most=1),
    "feature_noise": Number(),
}
# Lower bounds of exponents: the distribution of a smaller exponent has no finite mean.
_EXPONENTS = {"power_law": 2, "size_power_law": 1}


def block_model(
    n_nodes: int,
    n_clusters: int,
    *,
    n_features: int = 32,
    degree: float = 10,
    homophily: float = 0.8,
    feature_noise: float = 1.0,
    sizes: Sequence[int] | None = None,
    power_law: float | None = None,
    random_state: int | np.random.Generator | None = 0,
) -> AttributedGraph:
    """Return an attributed stochastic block model with its planted labels, in random row order.

    Each of N·degree/2 draws starts at a random node and ends in the same cluster with probability ``homophily``, else
    in any other cluster. There are no self-loops, and a pair drawn twice is one edge. Features are those of `blobs`.

    Parameters
    ----------
    n_nodes, n_clusters
        Number of nodes, N, and of clusters, C.
    n_features
        Number of features, d.
    degree
        Mean number of draws per node, which is its mean degree except for pairs that are drawn more than once.
    homophily
        Expected fraction of edges inside clusters. A cluster of one node has outside edges only; with one cluster all
        edges are inside.
    feature_noise
        Standard deviation of features around their cluster's center, whose coordinates have standard deviation 1.
    sizes
        C cluster sizes that sum to N; as equal as possible by default.
    power_law
        Exponent (> 2) of the distribution of expected degrees; None makes all expected degrees equal.
    random_state
        Random seed or generator.

    O(N·d + E log E) time, O(N·d + E) memory.

    Examples
    --------
    >>> graph = block_model(100, 4, degree=6)
    >>> graph.n_nodes, graph.n_features, len(set(graph.labels.tolist()))
    (100, 32, 4)
    """
    counts = _cluster_sizes(n_nodes, n_clusters, sizes)
    _check(degree=degree, homophily=homophily, power_law=power_law)
    rng = np.random.default_rng(random_state)
    # Nodes are ordered by cluster until the final permutation, so that a cluster is a range of positions.
    weight = _expected_degrees(n_nodes, power_law, rng)
    drawn = _edges(counts, weight, round(n_nodes * degree / 2), homophily, rng)
    _, first = np.unique(drawn.min(axis=0) * n_nodes + drawn.max(axis=0), return_index=True)
    edges = drawn[:, np.sort(first)]
    order = rng.permutation(n_nodes)
    features, labels = _features(counts, order, n_features, feature_noise, rng)
    return AttributedGraph(features, edges=order[edges], labels=labels, name="block_model")


def blobs(
    n_nodes: int,
    n_clusters: int,
    *,
    n_features: int = 32,
    feature_noise: float = 1.0,
    sizes: Sequence[int] | None = None,
    random_state: int | np.random.Generator | None = 0,
) -> AttributedGraph:
    """Return Gaussian clusters without edges: centers from N(0, 1), points from N(center, feature_noise²). O(N·d) time.

    Examples
    --------
    >>> graph = blobs(10, 2, n_features=3)
    >>> graph.features.shape, graph.edges is None
    ((10, 3), True)
    """
    counts = _cluster_sizes(n_nodes, n_clusters, sizes)
    rng = np.random.default_rng(random_state)
    features, labels = _features(counts, rng.permutation(n_nodes), n_features, feature_noise, rng)
    return AttributedGraph(features, labels=labels, name="blobs")


def _cluster_sizes(n_nodes: int, n_clusters: int, sizes: Sequence[int] | None) -> NDArray[np.int64]:
    _check_n_clusters(n_clusters, n_nodes)
    if sizes is None:
        return np.full(n_clusters, n_nodes // n_clusters) + (np.arange(n_clusters) < n_nodes % n_clusters)
    counts = np.asarray(sizes, dtype=np.int64)
    if counts.shape != (n_clusters,) or counts.sum() != n_nodes or counts.min() < 1:
        raise ConfigError(
            f"sizes must be {n_clusters} positive integers that sum to n_nodes = {n_nodes}, got {list(sizes)}"
        )
    return counts


def _expected_degrees(n_nodes: int, power_law: float | None, rng: np.random.Generator) -> NDArray[np.float64] | None:
    """Return (N,) relative expected degrees: a Pareto sample clipped at sqrt(N) times its minimum."""
    if power_law is None:
        return None
    return np.minimum(1 + rng.pareto(power_law - 1, n_nodes), max(1.0, np.sqrt(n_nodes)))


def _edges(
    counts: NDArray[np.int64],
    weight: NDArray[np.float64] | None,
    n_edges: int,
    homophily: float,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Return (2, E) positions; each node owns an interval of [0, total weight), and so does each cluster."""
    n_nodes = int(counts.sum())
    if n_nodes == 1:
        return np.zeros((2, 0), dtype=np.int64)
    line = np.arange(n_nodes + 1.0) if weight is None else np.concatenate([[0.0], np.cumsum(weight)])

    def node_at(point: NDArray[np.float64]) -> NDArray[np.int64]:
        node = point.astype(np.int64) if weight is None else np.searchsorted(line, point, side="right") - 1
        return np.minimum(node, n_nodes - 1)

    ends = np.cumsum(counts)
    source = node_at(rng.random(n_edges) * line[-1])
    cluster = np.searchsorted(ends, source, side="right")
    first, last = (ends - counts)[cluster], ends[cluster]
    low, high = line[first], line[last]
    inside = (rng.random(n_edges) < homophily) & (last - first > 1) | (len(counts) == 1)
    draw = rng.random(n_edges)
    # Clipping corrects draws that rounding moved past the end of their interval.
    within = np.clip(node_at(low + draw * (high - low)), first, last - 1)
    within = np.where(within != source, within, np.where(within + 1 < last, within + 1, first))
    around = draw * (line[-1] - (high - low))
    beyond = (around >= low) & (last < n_nodes)
    outside = node_at(around + np.where(beyond, high - low, 0))
    outside = np.where(beyond, np.maximum(outside, last), np.minimum(outside, first - 1))
    return np.stack([source, np.where(inside, within, outside)])


def _features(
    counts: NDArray[np.int64], order: NDArray[np.int64], n_features: int, noise: float, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    _check(n_features=n_features, feature_noise=noise)
    labels = np.empty(len(order), dtype=np.int64)
    labels[order] = np.repeat(np.arange(len(counts)), counts)
    centers = rng.standard_normal((len(counts), n_features), dtype=np.float32)
    features = rng.standard_normal((len(order), n_features), dtype=np.float32)
    features *= noise
    features += centers[labels]
    return features, labels


@dataclass(frozen=True, kw_only=True)
class BlockModel:
    """Parameters of a streamed block model: edges are drawn as in `block_model`, and rows are in random order.

    Parameters
    ----------
    n_nodes, n_clusters, n_features
        Number of nodes, N, of blocks, C, and of features, d.
    degree
        Mean number of neighbors of a row, except for pairs that are drawn more than once.
    homophily
        Fraction of edges inside blocks. A block of one node has outside edges only; with one block all are inside.
    feature_noise
        Standard deviation of each feature around its block's center; centers have a root mean square distance of 1.
    power_law
        Exponent (> 2) of the distribution of expected degrees, which are clipped at √N times the minimum; None makes
        them equal.
    size_power_law
        Exponent (> 1) of the distribution of block sizes; None makes them as equal as possible.
    seed
        Random seed.
    dtype
        Data type of the features, "float32" or "float16".
    """

    n_nodes: int
    n_clusters: int
    n_features: int = 128
    degree: float = 28.0
    homophily: float = 0.8
    feature_noise: float = 0.2
    power_law: float | None = None
    size_power_law: float | None = None
    seed: int = 0
    dtype: str = "float32"

    def __post_init__(self) -> None:
        _check_n_clusters(self.n_clusters, self.n_nodes)
        _check(**vars(self))
        if self.dtype not in ("float32", "float16"):
            raise ConfigError(f"dtype must be 'float32' or 'float16', got {self.dtype!r}")

    @property
    def n_pairs(self) -> int:
        """Number of pairs that are drawn."""
        return 0 if self.n_nodes == 1 else round(self.n_nodes * self.degree / 2)

    def block_sizes(self) -> NDArray[np.int64]:
        """Return (C,) positive block sizes that sum to N, in descending order.

        Examples
        --------
        >>> BlockModel(n_nodes=10, n_clusters=3).block_sizes().tolist()
        [4, 3, 3]
        """
        rank = np.arange(1.0, self.n_clusters + 1)
        shares = rank ** (0.0 if self.size_power_law is None else -1 / (self.size_power_law - 1))
        ideal = shares / shares.sum() * (self.n_nodes - self.n_clusters)
        sizes: NDArray[np.int64] = 1 + np.floor(ideal).astype(np.int64)
        sizes[: self.n_nodes - int(sizes.sum())] += 1
        return sizes


def write_block_model(
    out: str | PathLike[str],
    model: BlockModel,
    *,
    overwrite: bool = False,
    memory_bytes: int = 1 << 30,
    n_threads: int = 2,
    progress: Progress | None = None,
) -> Store:
    """Write a block model, with its blocks as labels, to a new store and return the store.

    O(N·d + E log E) time; O(N) memory (4 bytes per node) plus ``memory_bytes`` for sorting.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = write_block_model(Path(folder, "s"), BlockModel(n_nodes=100, n_clusters=4, n_features=3))
    ...     store.features.shape, sorted(set(store.labels.tolist()))
    ((100, 3), [0, 1, 2, 3])
    """
    reporter = SilentProgress() if progress is None else progress
    with StoreWriter(out, overwrite=overwrite) as writer:
        row_of = _generator(model, "rows").permuted(np.arange(model.n_nodes, dtype=index_dtype(model.n_nodes)))
        labels = _write_labels(writer, model, row_of)
        _write_features(writer, model, labels, reporter, n_threads)
        _write_pairs(writer, model, row_of, reporter, n_threads=n_threads, memory_bytes=memory_bytes)
        return writer.finish(sources=["pamc synthesize"], options={"block_model": asdict(model)})


def _generator(model: BlockModel, purpose: str, unit: int = 0) -> np.random.Generator:
    seed = np.random.SeedSequence([model.seed, zlib.crc32(purpose.encode()), unit])
    return np.random.Generator(np.random.SFC64(seed))


def _write_labels(writer: StoreWriter, model: BlockModel, row_of: NDArray[Any]) -> NDArray[np.int64]:
    ends = np.cumsum(model.block_sizes())
    labels: NDArray[np.int64] = writer.create("labels", model.n_nodes, np.int64)
    for block in row_blocks(model.n_nodes, _LABELS_PER_BLOCK):
        labels[row_of[block]] = np.searchsorted(ends, np.arange(block.start, block.stop), side="right")
    return labels


def _write_features(
    writer: StoreWriter, model: BlockModel, labels: NDArray[np.int64], progress: Progress, n_threads: int
) -> None:
    shape = (model.n_clusters, model.n_features)
    # The root mean square distance of two points of N(0, s²) in d dimensions is √(2d)·s.
    centers = _generator(model, "centers").standard_normal(shape, dtype=np.float32)
    centers /= np.sqrt(np.float32(2 * model.n_features))
    features = writer.create("features", (model.n_nodes, model.n_features), model.dtype)
    units = row_blocks(model.n_nodes, max(1, _VALUES_PER_UNIT // model.n_features))

    def fill(unit: int) -> None:
        rows = units[unit]
        size = (rows.stop - rows.start, model.n_features)
        values = _generator(model, "features", unit).standard_normal(size, dtype=np.float32)
        values *= np.float32(model.feature_noise)
        values += centers[labels[rows]]
        features[rows] = values

    with ThreadPoolExecutor(n_threads) as pool, progress.phase("features", len(units)) as phase:
        for _ in in_order(pool, fill, range(len(units)), ahead=n_threads):
            phase.advance()


def _write_pairs(
    writer: StoreWriter,
    model: BlockModel,
    row_of: NDArray[Any],
    progress: Progress,
    *,
    n_threads: int,
    memory_bytes: int,
) -> None:
    # Rows are in random order, so equal ranges of rows have nearly equal numbers of neighbors.
    n_ranges = min(model.n_nodes, _MOST_RANGES)
    counts = np.full(n_ranges, -(-2 * model.n_pairs // n_ranges), dtype=np.int64)
    starts = bucket_starts(model.n_nodes, counts, memory_bytes=memory_bytes, weighted=False)
    sorter = NeighborSorter(writer.scratch, model.n_nodes, starts, weighted=False)
    n_units = -(-model.n_pairs // _PAIRS_PER_UNIT)
    draw = _PairDraws(model)

    def add(unit: int) -> None:
        source, target = draw(unit)
        sorter.add(row_of[source], row_of[target])

    with ThreadPoolExecutor(n_threads) as pool, progress.phase("pairs", n_units) as phase:
        for _ in in_order(pool, add, range(n_units), ahead=n_threads):
            phase.advance()
    sorter.write(writer, progress=progress, n_threads=n_threads)


class _PairDraws:
    """Draws random pairs of positions, unit by unit. Nodes are ordered by block, so a block is a range of positions."""

    def __init__(self, model: BlockModel) -> None:
        self._model = model
        self._sizes = model.block_sizes()
        self._ends = np.cumsum(self._sizes)

    def __call__(self, unit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the source and target positions of one unit of pairs. O(unit) time and memory."""
        model, rng = self._model, _generator(self._model, "pairs", unit)
        n = min(_PAIRS_PER_UNIT, model.n_pairs - unit * _PAIRS_PER_UNIT)
        block = np.searchsorted(self._ends, rng.integers(model.n_nodes, size=n), side="right")
        size = self._sizes[block]
        first = self._ends[block] - size
        source = first + self._within(rng.random(n), size)
        inside = ((rng.random(n) < model.homophily) & (size > 1)) | (model.n_clusters == 1)
        # A uniform position outside the block, drawn on a line from which the block is removed.
        around = (rng.random(n) * (model.n_nodes - size)).astype(np.int64)
        other = np.searchsorted(self._ends, around + np.where(around >= first, size, 0), side="right")
        block = np.where(inside, block, np.minimum(other, model.n_clusters - 1))
        size = self._sizes[block]
        first = self._ends[block] - size
        target = first + self._within(rng.random(n), size)
        following = np.where(target + 1 < first + size, target + 1, first)
        return source, np.where(target == source, following, target)

    def _within(self, draw: NDArray[np.float64], size: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return positions 0 … size−1, drawn in proportion to the expected degrees.

        Expected degrees fall with the position x as (x + x₀)^(−s), s = 1/(power_law − 1), which is a sample of the
        power law in descending order; x₀ makes the first √N times the last. Positions are drawn by inverting the CDF.
        """
        if self._model.power_law is None:
            position: NDArray[np.int64] = (draw * size).astype(np.int64)
            return np.minimum(position, size - 1)
        s = 1 / (self._model.power_law - 1)
        # With N = 1 there are no pairs; a ratio of at least 2 avoids 0/0 in a tiny graph.
        ratio = max(2.0, np.sqrt(self._model.n_nodes)) ** (1 / s)
        offset = 1 / (ratio - 1)
        low, high = offset ** (1 - s), (1 + offset) ** (1 - s)
        share = (low + draw * (high - low)) ** (1 / (1 - s)) - offset
        position = (share * size).astype(np.int64)
        return np.clip(position, 0, size - 1)


def _check_n_clusters(n_clusters: int, n_nodes: int) -> None:
    if not 1 <= n_clusters <= n_nodes:
        raise ConfigError(f"n_clusters must be between 1 and n_nodes = {n_nodes}, got {n_clusters}")


def _check(**values: Any) -> None:
    """Raise ConfigError for a parameter outside its bounds."""
    for name, value in values.items():
        if name in _BOUNDS:
            _BOUNDS[name].check(name, value)
        elif name in _EXPONENTS and value is not None and not _EXPONENTS[name] < value < np.inf:
            raise ConfigError(f"{name} must be an exponent above {_EXPONENTS[name]}, got {value}")
