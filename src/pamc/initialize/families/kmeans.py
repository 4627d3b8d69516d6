"""K-means of the points: the best of several runs, so that small clusters are not missed."""

from __future__ import annotations

from pamc.initialize.family import FAMILIES, FamilyInput
from pamc.ops.kmeans import Labels, kmeans
from pamc.runtime import seed_for

_N_INIT = 20


@FAMILIES.register("k-means")
def cluster_by_kmeans(inputs: FamilyInput) -> Labels:
    """Return the clusters of K-means."""
    seed = seed_for(inputs.seed, "family k-means")
    return kmeans(inputs.points, inputs.n_clusters, seeds=[seed], n_init=_N_INIT, device=inputs.device)[0].labels
