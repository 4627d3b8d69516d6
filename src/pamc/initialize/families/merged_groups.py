"""The consensus of repeated groupings of smoothed features, whose groups are merged along a graph.

There are two families: one smooths and merges along the graph of the fit, the other along the kNN graph of the points.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pamc.initialize.coassociation import consensus_and_agreement
from pamc.initialize.family import FAMILIES, FamilyInput, repeated_kmeans, smoothed_embeddings
from pamc.initialize.partitions import edge_list, merged_labels
from pamc.ops.kmeans import Labels
from pamc.runtime import seed_for

# Number of groups per cluster that K-means forms before merging, and minimum number of rows per group on average.
_GROUPS_PER_CLUSTER = (4, 6, 8)
_ROWS_PER_GROUP = 5

# Repeats per grouping, for each number of groups.
_REPEATS_PER_GROUPING = 9


@FAMILIES.register("merged groups")
def cluster_by_merging(inputs: FamilyInput) -> Labels:
    """Return the consensus of small groups of each of the smoothed embeddings, merged along the graph."""
    n_clusters, seed = inputs.n_clusters, inputs.seed
    most = max(n_clusters, len(inputs.points) // _ROWS_PER_GROUP)
    groupings = []
    for per_cluster in _GROUPS_PER_CLUSTER:
        n_repeats = max(1, inputs.n_repeats // _REPEATS_PER_GROUPING)
        options: dict[str, Any] = {"seed": seed, "device": inputs.device, "name": f"groups {per_cluster}"}
        groupings += repeated_kmeans(inputs.smoothed, min(per_cluster * n_clusters, most), n_repeats, **options)
    edges = edge_list(inputs.adjacency)
    # Not in threads: counting edges holds the interpreter lock.
    labelings = [merged_labels(groups, edges, n_clusters) for groups in groupings]
    consensus_seed = seed_for(seed, "consensus of merged")
    return consensus_and_agreement(labelings, n_clusters, seed=consensus_seed, device=inputs.device).labels


@FAMILIES.register("merged neighbors")
def cluster_by_merging_neighbors(inputs: FamilyInput) -> Labels:
    """Return :func:`cluster_by_merging` along the kNN graph of the points."""
    smoothed = smoothed_embeddings(inputs.rows, inputs.neighbors, inputs.n_clusters, inputs.device)
    return cluster_by_merging(replace(inputs, adjacency=inputs.neighbors, smoothed=smoothed))
