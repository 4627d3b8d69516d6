"""Graphs and tables with planted clusters, of any size, in linear time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import AttributedGraph
from pamc.errors import ConfigError

__all__ = ["blobs", "block_model"]


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
    """Return an attributed stochastic block model with its planted labels; the rows are in random order.

    Each of N·degree/2 draws starts at a random node and ends in the same cluster with probability ``homophily``, else
    in any other. No edge is a loop, and a pair that is drawn again is one edge. Features are those of `blobs`.

    Parameters
    ----------
    n_nodes, n_clusters
        N and C.
    n_features
        d.
    degree
        Mean number of draws at a node: its mean number of edges, but for pairs that are drawn again.
    homophily
        Share of edges inside clusters, up to chance. Where a cluster has one node its edges go outside; with one
        cluster all edges are inside.
    feature_noise
        Standard deviation of features around their cluster's center, whose coordinates have standard deviation 1.
    sizes
        C cluster sizes that add up to N, as equal as possible by default.
    power_law
        Exponent (> 2) of the distribution of expected degrees; None makes all expected degrees equal.
    random_state
        Seed or generator.

    O(N·d + E log E) time, O(N·d + E) memory.

    Examples
    --------
    >>> graph = block_model(100, 4, degree=6)
    >>> graph.n_nodes, graph.n_features, len(set(graph.labels.tolist()))
    (100, 32, 4)
    """
    counts = _cluster_sizes(n_nodes, n_clusters, sizes)
    _check_range("degree", degree, 0, np.inf)
    _check_range("homophily", homophily, 0, 1)
    rng = np.random.default_rng(random_state)
    # Nodes stand cluster by cluster until the end, so that a cluster is a range of positions.
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
    """Return Gaussian clusters without edges: centers from N(0, 1), points from N(center, feature_noise²). O(N·d).

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
    if not 1 <= n_clusters <= n_nodes:
        raise ConfigError(f"n_clusters must be between 1 and n_nodes = {n_nodes}, got {n_clusters}")
    if sizes is None:
        return np.full(n_clusters, n_nodes // n_clusters) + (np.arange(n_clusters) < n_nodes % n_clusters)
    counts = np.asarray(sizes, dtype=np.int64)
    if counts.shape != (n_clusters,) or counts.sum() != n_nodes or counts.min() < 1:
        raise ConfigError(
            f"sizes must be {n_clusters} numbers from 1 that add up to n_nodes = {n_nodes}, got {list(sizes)}"
        )
    return counts


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high or np.isinf(value):
        raise ConfigError(f"{name} must be a finite number from {low:g} to {high:g}, got {value}")


def _expected_degrees(n_nodes: int, power_law: float | None, rng: np.random.Generator) -> NDArray[np.float64] | None:
    """Return (N,) relative expected degrees, a Pareto sample cut off at sqrt(N) times its least value."""
    if power_law is None:
        return None
    if not power_law > 2:
        raise ConfigError(f"power_law must be an exponent above 2, where the mean degree is finite, got {power_law}")
    return np.minimum(1 + rng.pareto(power_law - 1, n_nodes), max(1.0, np.sqrt(n_nodes)))


def _edges(
    counts: NDArray[np.int64],
    weight: NDArray[np.float64] | None,
    n_edges: int,
    homophily: float,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Return (2, E) positions. The line [0, total weight) is divided among the nodes; a cluster is an interval."""
    n_nodes = int(counts.sum())
    if n_nodes == 1:
        return np.zeros((2, 0), dtype=np.int64)
    line = np.arange(n_nodes + 1.0) if weight is None else np.concatenate([[0.0], np.cumsum(weight)])

    def node_at(point: NDArray[np.float64]) -> NDArray[np.int64]:
        found = point.astype(np.int64) if weight is None else np.searchsorted(line, point, side="right") - 1
        return np.minimum(found, n_nodes - 1)

    ends = np.cumsum(counts)
    source = node_at(rng.random(n_edges) * line[-1])
    cluster = np.searchsorted(ends, source, side="right")
    first, last = (ends - counts)[cluster], ends[cluster]
    low, high = line[first], line[last]
    inside = (rng.random(n_edges) < homophily) & (last - first > 1) | (len(counts) == 1)
    draw = rng.random(n_edges)
    # Clips keep a draw that rounding carried over an end of its interval on the right side of it.
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
    if n_features < 1:
        raise ConfigError(f"n_features must be at least 1, got {n_features}")
    _check_range("feature_noise", noise, 0, np.inf)
    labels = np.empty(len(order), dtype=np.int64)
    labels[order] = np.repeat(np.arange(len(counts)), counts)
    centers = rng.standard_normal((len(counts), n_features), dtype=np.float32)
    features = rng.standard_normal((len(order), n_features), dtype=np.float32)
    features *= noise
    features += centers[labels]
    return features, labels
