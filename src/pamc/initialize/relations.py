"""The weights of several relations over the same rows, found without labels, and the graph that they form together.

Clusters that are real show in more than one place. So a relation is used only if its edges stay inside clusters that
were found without these edges: from the features, from another relation, or from the other half of its own edges. Its
weight is the larger, the more of its edges stay inside the clusters of all relations together, and the more edges it
has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from pamc.data.attributed_graph import AttributedGraph
from pamc.errors import DataError, DataWarning, collected_warnings, warn
from pamc.graph.adjacency import Adjacency, build_adjacency
from pamc.graph.relations import combined
from pamc.graph.smoothing import Floats, embedding, on_sphere, smoothed
from pamc.initialize.coassociation import consensus_and_agreement
from pamc.initialize.family import repeated_kmeans
from pamc.ops.kmeans import Labels
from pamc.ops.scores import Kept, conductance, edges_kept
from pamc.runtime import one_thread, seed_for

# Number of directions of the features that are smoothed to find the weights, reach of the smoothing, dimensions of the
# embeddings per cluster, and repeats of K-means.
_N_DIRECTIONS, _REACH, _DIMS_PER_CLUSTER, _N_REPEATS = 50, 0.9, 3, 5

# Number of times that clusters are found with the current weights, and weights from these clusters.
_N_ROUNDS = 3

# A relation is used if it keeps clusters that were found without it by this many standard errors more than by chance.
_BEYOND_CHANCE = 4.0

# Variance of the mean over the neighbors of a row: 1 / degree, plus this part, which more edges do not average out. And
# the least weight of a relation that is used.
_COMMON_VARIANCE, _LEAST_WEIGHT = 0.3, 1e-6

# Sources of clusters besides the other relations.
_FEATURES, _HALF = "the features", "half of its edges"


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
    matrices: Mapping[str, Adjacency],
    given: Sequence[float] | None,
    rows: Floats,
    config: Any,
    *,
    seed: int,
    device: torch.device,
) -> tuple[Adjacency, dict[str, object]]:
    """Return one weighted graph (N, N) of all relations, and the weights, with the reason for each, as facts.

    Parameters
    ----------
    matrices
        Adjacency matrix (N, N) of each relation, by name.
    given
        Weights of the relations chosen by the user, or None.
    rows
        (N, r) leading directions of the features.
    config, seed, device
        Settings with `n_clusters`, random seed, and device of the computation.
    """
    if given is not None:
        weights = dict(zip(matrices, given, strict=True))
        reasons = dict.fromkeys(matrices, "chosen by the user")
    else:
        weights, reasons = _found(matrices, rows, config.n_clusters, seed, device)
    total = sum(weights.values())
    shares = {name: weight / total for name, weight in weights.items()}
    adjacency = combined(list(matrices.values()), list(shares.values()))
    return adjacency, {"relation_weights": shares, "relation_reasons": reasons}


def n_combined(facts: Mapping[str, Any]) -> int:
    """Return the number of relations that form the graph of a fit with these facts; 1 for a graph without relations."""
    weights: Mapping[str, float] = facts.get("relation_weights", {})
    return max(1, sum(weight > 0 for weight in weights.values()))


def edges_by_relation(matrices: Mapping[str, Adjacency], labels: Labels, n_clusters: int) -> dict[str, dict[str, Any]]:
    """Return the share of each relation's edges inside clusters: of all edges, of random edges, and of each cluster.

    O(E) time. A cluster without edges of a relation has the share None.
    """
    shares = {}
    for name, matrix in matrices.items():
        kept = edges_kept(matrix, labels)
        volume = np.bincount(labels, np.asarray(matrix.sum(axis=1)).ravel(), minlength=n_clusters)
        inside = np.pad(1 - conductance(matrix, labels), (0, n_clusters - int(labels.max()) - 1))
        of_cluster = [float(share) if total > 0 else None for share, total in zip(inside, volume, strict=True)]
        shares[name] = {"inside": kept.share, "by_chance": kept.by_chance, "of_cluster": of_cluster}
    return shares


def _found(
    matrices: Mapping[str, Adjacency], rows: Floats, n_clusters: int, seed: int, device: torch.device
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the weight of each relation and the reason for it."""
    weights, reasons = dict.fromkeys(matrices, 0.0), _repeated(matrices)
    distinct = {name: matrix for name, matrix in matrices.items() if name not in reasons}
    if len(distinct) == 1 or n_clusters < 2:
        why = "the only relation" if len(distinct) == 1 else "equal weights, because there is one cluster"
        weights |= dict.fromkeys(distinct, 1.0)
        return weights, dict.fromkeys(distinct, why) | reasons
    with one_thread():
        evidence = _evidence(distinct, rows, n_clusters, seed, device)
        best = {name: max(kept, key=lambda source: kept[source].beyond_chance) for name, kept in evidence.items()}
        used = {
            name: matrix
            for name, matrix in distinct.items()
            if evidence[name][best[name]].beyond_chance >= _BEYOND_CHANCE
        }
        # If no relation is related to anything, there is no reason to prefer one.
        used = used or dict(distinct)
        kept = _weighed(used, rows, n_clusters, seed, device)
    for name in distinct:
        weights[name] = _weight(kept[name]) if name in used else 0.0
        reasons[name] = _reason(kept.get(name), evidence[name][best[name]], best[name])
    return weights, {name: reasons[name] for name in matrices}


def _repeated(matrices: Mapping[str, Adjacency]) -> dict[str, str]:
    """Return a reason to leave out each relation whose edges and weights are those of an earlier one."""
    reasons: dict[str, str] = {}
    names = list(matrices)
    for place, name in enumerate(names):
        same = (other for other in names[:place] if other not in reasons and _equal(matrices[name], matrices[other]))
        if (first := next(same, None)) is not None:
            reasons[name] = f"not used: its edges are those of {first!r}"
    return reasons


def _equal(one: Adjacency, other: Adjacency) -> bool:
    parts = ((one.indptr, other.indptr), (one.indices, other.indices), (one.data, other.data))
    return one.nnz == other.nnz and all(np.array_equal(a, b) for a, b in parts)


def _evidence(
    matrices: Mapping[str, Adjacency], rows: Floats, n_clusters: int, seed: int, device: torch.device
) -> dict[str, dict[str, Kept]]:
    """Return how well each relation keeps clusters that were found without its edges, by the source of the clusters."""
    labels = {_FEATURES: _clusters(rows, None, n_clusters, seed, device)}
    labels |= {name: _clusters(rows, matrix, n_clusters, seed, device) for name, matrix in matrices.items()}
    evidence = {}
    for name, matrix in matrices.items():
        seen, hidden = halves_of_edges(matrix, seed_for(seed, "halves of edges"))
        by_half = edges_kept(hidden, _clusters(rows, seen, n_clusters, seed, device))
        others = {source: edges_kept(matrix, found) for source, found in labels.items() if source != name}
        evidence[name] = {_HALF: by_half, **others}
    return evidence


def halves_of_edges(matrix: Adjacency, seed: int) -> tuple[Adjacency, Adjacency]:
    """Return two graphs with a random half of the edges each."""
    upper: Any = sp.triu(matrix, k=1, format="coo")
    first = np.random.default_rng(seed).permutation(upper.nnz) % 2 == 0
    parts = []
    for chosen in (first, ~first) if upper.nnz > 1 else (first, first):
        half = sp.csr_matrix((upper.data[chosen], (upper.row[chosen], upper.col[chosen])), shape=matrix.shape)
        parts.append(sp.csr_matrix(half + half.T))
    return parts[0], parts[1]


def _weighed(
    matrices: Mapping[str, Adjacency], rows: Floats, n_clusters: int, seed: int, device: torch.device
) -> dict[str, Kept]:
    """Return how well each relation keeps the clusters of all of them, weighted by how well they keep these clusters.

    The first weights are equal.
    """
    relations: Sequence[Adjacency] = list(matrices.values())
    weights = [1.0] * len(relations)
    kept: list[Kept] = []
    for _ in range(_N_ROUNDS):
        labels = _clusters(rows, combined(relations, weights), n_clusters, seed, device)
        kept = [edges_kept(matrix, labels) for matrix in relations]
        weights = [_weight(each) for each in kept]
    return dict(zip(matrices, kept, strict=True))


def _weight(kept: Kept) -> float:
    """Return the weight of a relation: its signal divided by the variance of the noise, as in a mean of measurements.

    The signal is the assortativity of its edges; the noise is smaller if there are more edges.
    """
    return max(kept.assortativity / (1 / kept.degree + _COMMON_VARIANCE), _LEAST_WEIGHT)


def _clusters(rows: Floats, adjacency: Adjacency | None, n_clusters: int, seed: int, device: torch.device) -> Labels:
    """Return the consensus of repeated K-means on the leading directions, smoothed along a graph if there is one."""
    points = on_sphere(rows[:, :_N_DIRECTIONS])
    if adjacency is not None:
        points = smoothed(points, adjacency, [_REACH], device=device)[0]
    embedded = [embedding(points, _DIMS_PER_CLUSTER * n_clusters)]
    labelings = repeated_kmeans(embedded, n_clusters, _N_REPEATS, seed=seed, device=device, name="relations")
    consensus_seed = seed_for(seed, "consensus of relations")
    return consensus_and_agreement(labelings, n_clusters, seed=consensus_seed, device=device).labels


def _reason(together: Kept | None, best: Kept, source: str) -> str:
    if together is not None:
        return f"{together.text()} of all relations together"
    by = source if source in (_FEATURES, _HALF) else f"relation {source!r}"
    return f"not used: its edges are not predicted by the features or by other edges; {best.text()} of {by}"
