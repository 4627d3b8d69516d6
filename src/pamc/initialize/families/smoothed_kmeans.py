"""The consensus of repeated K-means on features that are smoothed along the graph."""

from __future__ import annotations

from pamc.initialize.coassociation import consensus_and_agreement
from pamc.initialize.family import FAMILIES, MIDDLE, FamilyInput, repeated_kmeans
from pamc.ops.kmeans import Labels
from pamc.runtime import seed_for

# Maximum number of clusters in all labelings of a consensus.
_MOST_IN_CONSENSUS = 1024


@FAMILIES.register("smoothed k-means")
def cluster_smoothed(inputs: FamilyInput) -> Labels:
    """Return the consensus of K-means on each of the smoothed embeddings.

    With many clusters there are fewer repeats, and with very many a single one: the time of a consensus grows with the
    third power of the number of clusters in all labelings.
    """
    n_clusters, seed, device, embeddings = inputs.n_clusters, inputs.seed, inputs.device, inputs.smoothed
    n_repeats = min(inputs.n_repeats, _MOST_IN_CONSENSUS // (len(embeddings) * n_clusters))
    if n_repeats == 0:
        embeddings, n_repeats = [embeddings[MIDDLE]], 1
    labelings = repeated_kmeans(embeddings, n_clusters, n_repeats, seed=seed, device=device)
    if len(labelings) == 1:
        return labelings[0]
    return consensus_and_agreement(labelings, n_clusters, seed=seed_for(seed, "consensus"), device=device).labels
