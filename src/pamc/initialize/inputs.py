"""Choose the graph of a fit (that of the data, or a kNN graph) and the inputs from which initial clusters are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from pamc.data.attributed_graph import AttributedGraph, Features
from pamc.data.preprocessing import THIN_SHARE, Preprocessing
from pamc.errors import DataError, DataWarning, counted, warn
from pamc.graph.adjacency import Adjacency, build_adjacency
from pamc.graph.images import image_neighbors
from pamc.graph.influence import positive_pairs, repeated_pairs
from pamc.graph.neighbors import ANGLE, Neighbors, nearest
from pamc.graph.positives import PositivePairs
from pamc.graph.smoothing import Floats, leading_directions, shared_directions
from pamc.initialize.consensus import GRAPH_ALONE, InputSource, choose_inputs, directions_of_graph
from pamc.initialize.relations import adjacencies, graph_of_relations, n_combined
from pamc.models.method import Method
from pamc.runtime import one_thread, seed_for

_CPU = torch.device("cpu")

# Features up to this size in float64 are moved to a GPU to compute their leading directions. A sparse entry takes the
# space of three numbers.
_MOST_BYTES_ON_DEVICE = 1 << 32
_NUMBERS_PER_ENTRY = 3

# End of the warning about unrelated features and graph, by the kind of the inputs that are used.
_USED = {
    "features": "only the features are used, and the graph is left out",
    "graph": "only the graph is used, and the features are left out",
}

# The family that clusters the rows of tables with many categories.
_FAMILY_OF_DISCRETE = "k-means"


def graph_and_inputs(
    method: Method,
    graph: AttributedGraph,
    features: Features,
    config: Any,
    *,
    seed: int,
    preprocessing: Preprocessing,
    device: torch.device,
) -> tuple[Adjacency | None, InputSource | None, dict[str, object]]:
    """Return the graph of a fit, the inputs of the initial clusters if the initializer needs them, and facts.

    If a kNN graph is built by angle, the facts are the name of the search method and its recall.

    Parameters
    ----------
    features, preprocessing
        (N, d) preprocessed features, and their preprocessing.
    device
        Device of the neighbor search and of the clusterings.
    """
    needs_inputs = getattr(config, "init", None) == "consensus"
    by_angle = graph.edges is None and method.uses_graph and getattr(config, "metric", None) == "auto"
    has_relations = method.uses_graph and graph.relations is not None
    directions, is_text = None, compared_by_angle(features, preprocessing)
    with one_thread():
        if needs_inputs or by_angle or has_relations:
            directions = directions_of(features, preprocessing, seed, device)
    # Not limited to one thread: the neighbor search gives the same result for any number of threads.
    known = None
    if graph.edges is None and method.uses_graph and getattr(config, "image_shape", None) is not None:
        known = image_neighbors(np.asarray(features), config.image_shape, config.n_neighbors, device=device)
        graph = replace(graph, edges=known.edges, edges_are_neighbors=True)
    adjacency, facts = _adjacency(
        method, graph, features, config, directions if by_angle or has_relations else None, seed, device
    )
    if known is not None:
        facts = {"neighbors_by": "tangent distance"}
    if not needs_inputs or adjacency is None or directions is None:
        return adjacency, None, facts
    if graph.described_by_edges:
        return adjacency, InputSource(GRAPH_ALONE, np.asarray(features, dtype=np.float64), adjacency), facts
    if graph.edges is None or known is not None or config.graph_trust == "always":
        is_knn = graph.edges is None or known is not None
        family = family_for(preprocessing) if is_knn else None
        options: dict[str, Any] = {"by_angle": is_text, "family": family, "neighbors": known}
        inputs = InputSource("features and graph", directions, adjacency, is_knn, **options)
        return adjacency, replace(inputs, n_relations=n_combined(facts)), facts
    with one_thread():
        inputs = choose_inputs(
            directions,
            adjacency,
            config.n_clusters,
            n_neighbors=config.n_neighbors,
            seed=seed,
            device=device,
            by_angle=is_text,
        )
    if inputs.kind != "features and graph":
        warn(
            DataWarning(
                f"features and graph are unrelated, because rows joined by an edge are no more similar than others: "
                f"{_USED[inputs.kind]}. graph_trust='always' uses both"
            ),
            stacklevel=2,
        )
    n_relations = 1 if inputs.kind == "features" else n_combined(facts)
    return inputs.adjacency, replace(inputs, n_relations=n_relations), facts


def _adjacency(
    method: Method,
    graph: AttributedGraph,
    features: Features,
    config: Any,
    directions: Floats | None,
    seed: int,
    device: torch.device,
) -> tuple[Adjacency | None, dict[str, object]]:
    """Return the adjacency of the edges of the data, or of a kNN graph if a method needs one, and facts about it."""
    edges, weight = graph.edges, graph.edge_weight
    facts: dict[str, object] = {}
    if not method.uses_graph:
        if edges is None:
            return None, facts
        warn(DataWarning(f"{method.title} uses the features only: the graph is ignored"), stacklevel=2)
    elif not method.uses_features and edges is not None and not graph.described_by_edges:
        warn(DataWarning(f"{method.title} uses the graph only: the features are ignored"), stacklevel=2)
    if edges is None:
        neighbors = _neighbors(features, directions, config, seed, device)
        edges = neighbors.edges
        if directions is not None:
            facts = {"neighbors_by": neighbors.method, "neighbors_recall": neighbors.recall}
    if graph.relations is not None and directions is not None:
        given = graph.relations.weights
        return graph_of_relations(adjacencies(graph), given, directions, config, seed=seed, device=device)
    are_neighbors = graph.edges is None or graph.edges_are_neighbors
    adjacency = build_adjacency(edges, weight, n_nodes=graph.n_nodes, expect_directed=are_neighbors)
    if method.uses_graph and adjacency.nnz == 0 and graph.n_nodes > 1:
        raise DataError("the graph has no edges between different rows; leave it out to use a kNN graph")
    return adjacency, facts


def described_by_edges(graph: AttributedGraph, n_clusters: int, *, seed: int) -> AttributedGraph:
    """Return a graph whose rows have no features with the leading directions of the graph as features.

    The edges are those of its adjacency, each in one direction.
    """
    edges: Any = graph.edges
    adjacency = build_adjacency(edges, graph.edge_weight, n_nodes=graph.n_nodes)
    if adjacency.nnz == 0:
        raise DataError("the graph has no edges between different rows, and no features: there is nothing to cluster")
    n_isolated = int((np.diff(adjacency.indptr) == 0).sum())
    if n_isolated:
        warn(DataWarning(f"{counted(n_isolated, 'row')} without edges cannot be distinguished"), stacklevel=2)
    with one_thread():
        features = directions_of_graph(adjacency, n_clusters, seed)
    once: Any = sp.triu(adjacency).tocoo()
    weight = None if (once.data == 1).all() else once.data
    ends = np.stack([once.row, once.col])
    return replace(graph, features=features, edges=ends, edge_weight=weight, relations=None, described_by_edges=True)


def neighbor_edges(features: Features, config: Any, *, seed: int, preprocessing: Preprocessing) -> NDArray[np.int64]:
    """Return the directed edges (2, N·k) of the kNN graph that a fit with these settings builds."""
    directions = None
    if config.metric == "auto":
        with one_thread():
            directions = directions_of(features, preprocessing, seed, _CPU)
    return _neighbors(features, directions, config, seed, _CPU).edges


def _neighbors(
    features: Features, directions: Floats | None, config: Any, seed: int, device: torch.device
) -> Neighbors:
    """Return neighbors by the angle between `directions`, or by the metric of the settings if they are None."""
    if directions is None:
        return nearest(features, config.n_neighbors, metric=config.metric)
    return nearest(directions, config.n_neighbors, metric=ANGLE, device=device, seed=seed)


def family_for(preprocessing: Preprocessing) -> str | None:
    """Return the only family that clusters rows without a graph, or None to compare all families.

    Rows with different categories are a fixed distance apart, so the kNN graph of a table with many categories breaks
    into components of equal categories. Families that use this graph would split the rows by single variables.
    """
    return _FAMILY_OF_DISCRETE if preprocessing.is_discrete else None


def compared_by_angle(features: Features, preprocessing: Preprocessing) -> bool:
    """Return whether preprocessed features are treated as text: not centered, and compared by angle only."""
    if preprocessing.kind == "variables":
        return False
    return bool(preprocessing.kind == "tfidf" or (features != 0).sum() <= THIN_SHARE * np.prod(features.shape))


def directions_of(features: Features, preprocessing: Preprocessing, seed: int, device: torch.device) -> Floats:
    """Return the coordinates (N, r) of preprocessed features in their leading directions.

    For a table with many categories, only directions that several variables share are used.
    """
    if preprocessing.is_discrete:
        variable = preprocessing.arrays["variable"]
        return shared_directions(np.asarray(features), variable, seed=seed_for(seed, "directions"))
    centered = not compared_by_angle(features, preprocessing)
    seed = seed_for(seed, "directions")
    n_values = features.size if isinstance(features, np.ndarray) else _NUMBERS_PER_ENTRY * features.nnz
    fits = n_values * np.float64().itemsize <= _MOST_BYTES_ON_DEVICE
    return leading_directions(features, seed=seed, centered=centered, device=device if fits else _CPU)


def positives(
    adjacency: Adjacency | None,
    config: Any,
    device: torch.device,
    dtype: torch.dtype,
    *,
    sample_weight: NDArray[np.float64] | None = None,
) -> tuple[PositivePairs | None, float]:
    """Return the positive pairs γ, or None for settings without `n_hops`, and their share of the total influence.

    With `sample_weight` (N,), the diagonal of the adjacency contains the weights of edges between copies of a row.
    """
    if adjacency is None or "n_hops" not in config.names():
        return None, 1.0
    options: dict[str, Any] = {"n_hops": config.n_hops, "max_positives": config.max_positives, "dtype": dtype}
    if sample_weight is None:
        pairs, report = positive_pairs(adjacency, **options)
    else:
        pairs, report = repeated_pairs(adjacency, sample_weight, **options)
    return pairs.to(device=device), report.kept_mass


def kind_of_graph(method: Method, graph: AttributedGraph) -> str:
    """Return the origin of the graph: "given", "knn" or "not used"."""
    if not method.uses_graph:
        return "not used"
    return "given" if graph.edges is not None else "knn"
