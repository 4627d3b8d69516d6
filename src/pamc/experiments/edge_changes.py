"""Graphs with some of their edges dropped or moved; the two directions of a pair stay together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.config import GraphConfig
from pamc.data.attributed_graph import AttributedGraph, Features
from pamc.data.preprocessing import fit_preprocessing
from pamc.errors import ConfigError, UnknownNameError
from pamc.graph.adjacency import Adjacency, build_adjacency
from pamc.graph.influence import influence
from pamc.initialize.inputs import neighbor_edges
from pamc.runtime import seed_for

__all__ = ["RULES", "UndirectedGraph", "drop_edges", "drop_order", "rewire_edges", "undirected"]

Integers: TypeAlias = "NDArray[np.int64]"

# Ways to choose the edges that are dropped, and what they are called in figures.
RULES = {
    "random": "at random",
    "weight": "least γ first",
    "similarity": "least similar features first",
    "neighbors": "fewest common neighbors first",
}
_ROWS_AT_A_TIME = 4096


class UndirectedGraph(NamedTuple):
    """Rows and the undirected edges between them.

    Parameters
    ----------
    graph
        Its edges are (2, P) pairs i < j, each once, in ascending order.
    adjacency
        (N, N) symmetric weights of the same pairs.
    features
        (N, d) prepared features.
    """

    graph: AttributedGraph
    adjacency: Adjacency
    features: Features

    @property
    def pairs(self) -> Integers:
        """(2, P)."""
        edges: Any = self.graph.edges
        return np.asarray(edges)


def undirected(graph: AttributedGraph, config: Any, *, seed: int = 0) -> UndirectedGraph:
    """Return a graph with each pair of neighbors once; without edges, with the kNN graph that a fit would build."""
    preprocessing = fit_preprocessing(graph.features, config.preprocessing)
    features = preprocessing.apply(graph.features)
    edges, weight, own_list = graph.edges, graph.edge_weight, graph.edges_are_neighbors
    if edges is None:
        # A method without a graph gets the one that the others build.
        graph_settings = config if isinstance(config, GraphConfig) else GraphConfig()
        edges, own_list = neighbor_edges(features, graph_settings, seed=seed, preprocessing=preprocessing.kind), True
    adjacency = build_adjacency(edges, weight, n_nodes=graph.n_nodes, expect_directed=own_list)
    upper = sp.triu(adjacency, k=1).tocoo()
    order = np.lexsort((upper.col, upper.row))
    pairs = np.stack([upper.row, upper.col])[:, order].astype(np.int64)
    weights = None if weight is None else upper.data[order]
    return UndirectedGraph(replace(graph, edges=pairs, edge_weight=weights), adjacency, features)


def drop_order(given: UndirectedGraph, rule: str, *, n_hops: int = 1, seed: int = 0) -> Integers:
    """Return (P,) the pairs in the order in which a rule drops them. No rule looks at labels.

    Parameters
    ----------
    rule
        "random"; "weight": the least γ_ij + γ_ji first, γ of `n_hops`; "similarity": the least cosine of the prepared
        features first; "neighbors": the fewest common neighbors first and, of equals, the least cosine.
    seed
        Of the random order, which also decides between equals.
    """
    pairs = given.pairs
    chance = np.random.default_rng(seed_for(seed, "edge drop")).permutation(pairs.shape[1])
    if rule == "random":
        return np.argsort(chance)
    if rule == "weight":
        gamma = influence(given.adjacency, n_hops=n_hops)
        return np.lexsort((chance, _entries(gamma, pairs) + _entries(gamma, pairs[::-1])))
    if rule == "similarity":
        return np.lexsort((chance, _cosines(given.features, pairs)))
    if rule == "neighbors":
        pattern = (given.adjacency != 0).astype(np.int64).tocsr()
        common = _by_blocks(pairs, lambda i, j: np.asarray(pattern[i].multiply(pattern[j]).sum(axis=1)).ravel())
        return np.lexsort((chance, _cosines(given.features, pairs), common))
    raise UnknownNameError("rule", rule, RULES)


def drop_edges(given: UndirectedGraph, share: float, rule: str, *, n_hops: int = 1, seed: int = 0) -> AttributedGraph:
    """Return the graph without a share of its pairs, rounded to whole pairs; larger shares drop the same and more."""
    pairs = given.pairs
    n_dropped = _count(share, pairs.shape[1])
    kept = np.ones(pairs.shape[1], dtype=bool)
    kept[drop_order(given, rule, n_hops=n_hops, seed=seed)[:n_dropped]] = False
    weight = given.graph.edge_weight
    return replace(given.graph, edges=pairs[:, kept], edge_weight=None if weight is None else weight[kept])


def rewire_edges(given: UndirectedGraph, share: float, *, seed: int = 0) -> AttributedGraph:
    """Return the graph with one end of a share of its pairs moved to a random node, weights kept.

    Which pairs, which of the two ends and where to are random. No pair becomes a loop, a pair that the graph has or
    had, or another moved one: the number of pairs stays, and the share of new ones is exact.
    """
    n_nodes, pairs = given.graph.n_nodes, given.pairs.copy()
    rng = np.random.default_rng(seed_for(seed, "edge noise"))
    waiting = rng.permutation(pairs.shape[1])[: _count(share, pairs.shape[1])]
    if pairs.shape[1] + len(waiting) > n_nodes * (n_nodes - 1) // 2:
        raise ConfigError(f"{n_nodes} nodes have no room for {len(waiting)} new edges beside {pairs.shape[1]}")
    taken = set(_keys(pairs, n_nodes).tolist())
    while len(waiting):
        stays = pairs[rng.integers(2, size=len(waiting)), waiting]
        moved = np.sort(np.stack([stays, rng.integers(n_nodes, size=len(waiting))]), axis=0)
        failed = []
        for number, key in enumerate(_keys(moved, n_nodes).tolist()):
            if moved[0, number] == moved[1, number] or key in taken:
                failed.append(number)
            else:
                taken.add(key)
                pairs[:, waiting[number]] = moved[:, number]
        waiting = waiting[failed]
    return replace(given.graph, edges=pairs)


def _count(share: float, n_pairs: int) -> int:
    if not 0 <= share <= 1:
        raise ConfigError(f"share must lie between 0 and 1, got {share}")
    return round(share * n_pairs)


def _keys(pairs: Integers, n_nodes: int) -> Integers:
    return np.asarray(pairs[0] * n_nodes + pairs[1])


def _entries(matrix: Adjacency, pairs: Integers) -> NDArray[np.float64]:
    return np.asarray(matrix[pairs[0], pairs[1]], dtype=np.float64).ravel()


def _by_blocks(pairs: Integers, value: Callable[[Integers, Integers], Any]) -> NDArray[np.float64]:
    starts = range(0, pairs.shape[1], _ROWS_AT_A_TIME)
    blocks = [value(*pairs[:, start : start + _ROWS_AT_A_TIME]) for start in starts]
    return np.concatenate([np.zeros(0), *blocks])


def _cosines(features: Features, pairs: Integers) -> NDArray[np.float64]:
    def products(i: Integers, j: Integers) -> Any:
        if isinstance(features, np.ndarray):
            return np.einsum("ij,ij->i", features[i], features[j], dtype=np.float64)
        return np.asarray(features[i].multiply(features[j]).sum(axis=1), dtype=np.float64).ravel()

    own = np.arange(features.shape[0])
    squares = _by_blocks(np.stack([own, own]), products)
    norms = np.sqrt(squares[pairs[0]] * squares[pairs[1]])
    cosines = np.zeros(pairs.shape[1])
    np.divide(_by_blocks(pairs, products), norms, out=cosines, where=norms > 0)
    return cosines
