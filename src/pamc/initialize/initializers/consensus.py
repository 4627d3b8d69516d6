"""The default initializer: the consensus of many quick clusterings."""

from __future__ import annotations

from typing import Any

from pamc.initialize.base import INITIALIZERS, InitContext, InitResult
from pamc.initialize.consensus import agreed_clusters
from pamc.initialize.fitting import fitted_to, labeled_target
from pamc.runtime import one_thread

# If only the graph has clusters, the encoder must memorize them, because the features do not predict them.
_TIMES_LONGER_BY_HEART = 8


@INITIALIZERS.register("consensus")
def fit_consensus(context: InitContext) -> InitResult:
    """Return an encoder fitted to the smoothed features, and the consensus of many quick clusterings.

    See :func:`~pamc.initialize.consensus.agreed_clusters`. The encoder predicts the smoothed embedding of a row from
    the features of that row alone, so new rows need no graph. Departure from the paper, whose initializer uses features
    only.
    """
    inputs: Any = context.inputs
    config = context.config
    with context.progress.phase("consensus"), one_thread():
        agreed = agreed_clusters(inputs, config.n_clusters, seed=context.seed, device=context.rows.device)
    memorizes = inputs.kind == "graph"
    target = labeled_target(agreed.points, agreed.labels, config.n_clusters, config.n_dims)
    encoder = fitted_to(target, context, times_longer=_TIMES_LONGER_BY_HEART if memorizes else 1)
    facts = {"inputs": inputs.kind, "clusters_by": agreed.family, "agreement": agreed.support}
    return InitResult(encoder, labels=agreed.labels, facts=facts)
