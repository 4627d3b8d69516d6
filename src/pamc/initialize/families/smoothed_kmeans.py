"""The consensus of repeated K-means on features that are smoothed along the graph."""

from __future__ import annotations

from pamc.initialize.coassociation import consensus_and_agreement
from pamc.initialize.family import FAMILIES, FamilyInput, repeated_kmeans
from pamc.ops.kmeans import Labels
from pamc.runtime import seed_for


@FAMILIES.register("smoothed k-means")
def cluster_smoothed(given: FamilyInput) -> Labels:
    """Return the consensus of K-means on each of the smoothed embeddings."""
    n_clusters, seed, device = given.n_clusters, given.seed, given.device
    labelings = repeated_kmeans(given.smoothed, n_clusters, given.n_repeats, seed=seed, device=device)
    return consensus_and_agreement(labelings, n_clusters, seed=seed_for(seed, "consensus"), device=device).labels
