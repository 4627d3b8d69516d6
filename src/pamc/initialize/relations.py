"""The weights of several relations over the same rows, found without labels, and the graph that they form together."""

from __future__ import annotations

from typing import Any

import torch

from pamc.data.attributed_graph import AttributedGraph
from pamc.errors import DataError, DataWarning, collected_warnings, warn
from pamc.graph.adjacency import Adjacency, build_adjacency
from pamc.graph.relations import combined
from pamc.graph.smoothing import Floats


def adjacencies(graph: AttributedGraph) -> dict[str, Adjacency]:
    """Return the adjacency matrix (N, N) of each relation of a graph, by name."""
    edges: Any = graph.edges
    parts = {} if graph.relations is None else graph.relations.split(edges, graph.edge_weight)
    matrices = {}
    for name, part in parts.items():
        with collected_warnings() as collected:
            matrices[name] = build_adjacency(*part, n_nodes=graph.n_nodes)
        for warning in collected:
            warn(DataWarning(f"relation {name!r}: {warning}"), stacklevel=2)
        if matrices[name].nnz == 0:
            raise DataError(f"relation {name!r} has no edges between different rows: leave it out")
    return matrices


def graph_of_relations(
    graph: AttributedGraph, rows: Floats, config: Any, *, seed: int, device: torch.device
) -> tuple[Adjacency, dict[str, object]]:
    """Return one weighted graph (N, N) of all relations, and the weights as facts.

    Parameters
    ----------
    graph
        Rows with relations.
    rows
        (N, r) leading directions of the features.
    config, seed, device
        Settings with `n_clusters`, random seed, and device of the computation.
    """
    matrices, given = adjacencies(graph), None if graph.relations is None else graph.relations.weights
    weights = [1.0] * len(matrices) if given is None else list(given)
    total = sum(weights)
    shares = {name: weight / total for name, weight in zip(matrices, weights, strict=True)}
    return combined(list(matrices.values()), list(shares.values())), {"relation_weights": shares}
