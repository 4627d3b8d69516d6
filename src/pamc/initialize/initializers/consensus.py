"""The default initializer: the partition on which families of quick clusterings agree."""

from __future__ import annotations

from typing import Any

from pamc.initialize.base import INITIALIZERS, InitContext, InitResult
from pamc.initialize.consensus import GRAPH_ALONE, agreed_clusters
from pamc.initialize.family import FAMILIES
from pamc.initialize.fitting import fitted_encoder


@INITIALIZERS.register("consensus")
def fit_consensus(context: InitContext) -> InitResult:
    """Return the partition on which families of quick clusterings agree, and an encoder that separates its clusters.

    See :func:`~pamc.initialize.consensus.agreed_clusters` and :func:`~pamc.initialize.fitting.fitted_encoder`. The
    encoder sees the features of a row alone, so new rows need no graph. Departure from the paper, whose initializer
    uses features only.
    """
    inputs: Any = context.inputs
    config = context.config
    with context.progress.phase("consensus", len(FAMILIES)) as phase:
        options: dict[str, Any] = {"seed": context.seed, "device": context.rows.device, "on_family": phase.advance}
        agreed = agreed_clusters(inputs, config.n_clusters, **options)
    # The clusters of several relations follow from the edges of a row, and its features alone predict them less well.
    coded = inputs.family is not None or inputs.kind == GRAPH_ALONE or inputs.n_relations > 1
    encoder, targets = fitted_encoder(agreed, context, by_heart=inputs.kind == "graph", coded=coded)
    facts = {"inputs": inputs.kind, "encoder_fitted_to": targets, **agreed.facts()}
    return InitResult(encoder, labels=agreed.labels, facts=facts, judge=agreed.judge)
