"""The default initializer: the clusters that many quick clusterings agree on."""

from __future__ import annotations

from typing import Any

from pamc.initialize.base import INITIALIZERS, InitContext, InitResult
from pamc.initialize.consensus import agreed_clusters
from pamc.initialize.fitting import fitted_to
from pamc.runtime import one_thread

__all__ = ["fit_consensus"]

# Where the graph alone has clusters, the encoder must learn them by heart: features say nothing of them.
_TIMES_LONGER_BY_HEART = 8


@INITIALIZERS.register("consensus")
def fit_consensus(given: InitContext) -> InitResult:
    """Return an encoder fitted to the smoothed features, and the clusters that many quick clusterings agree on.

    See :func:`~pamc.initialize.consensus.agreed_clusters`. The encoder learns the place of each row among its neighbors
    from the row's own features, so new rows need no graph. Departure from the paper, whose start sees features only.
    """
    inputs: Any = given.inputs
    config = given.config
    with given.progress.phase("consensus"), one_thread():
        agreed = agreed_clusters(
            inputs.rows,
            inputs.adjacency,
            config.n_clusters,
            n_dims=config.n_dims,
            seed=given.seed,
            device=given.rows.device,
        )
    by_heart = inputs.kind == "graph"
    encoder = fitted_to(agreed.points, given, times_longer=_TIMES_LONGER_BY_HEART if by_heart else 1)
    facts = {"inputs": inputs.kind, "clusters_by": agreed.how, "agreement": agreed.agreement}
    return InitResult(encoder, labels=agreed.labels, facts=facts)
