"""An initializer without clusters: a truncated SVD of the features propagated over the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.graph.adjacency import Adjacency, symmetric_normalize, with_self_loops
from pamc.graph.smoothing import unit_rows
from pamc.initialize.base import INITIALIZERS, InitContext, InitResult
from pamc.initialize.fitting import fitted_to
from pamc.runtime import one_thread, seed_for


@INITIALIZERS.register("propagated_svd")
def fit_propagated_svd(context: InitContext) -> InitResult:
    """Return an encoder fitted to a truncated SVD of the features propagated twice over the graph.

    The targets depend on the graph, the encoder does not: it predicts the propagated features of a row from the
    features of that row alone. Departure from the paper, whose initializer uses features only. O(E·d + N·d·n_dims)
    time.
    """
    return InitResult(fitted_to(_propagated_svd(context), context))


def _propagated_svd(context: InitContext) -> NDArray[np.floating]:
    """Return unit rows (N, n_dims): the truncated SVD of Ã²X, with Ã the symmetrically normalized adjacency.

    If there are fewer features than dimensions, one further column is set to the root mean square length of a row
    before normalization, so that rows which differ only in length stay distinct.
    """
    from sklearn.decomposition import TruncatedSVD

    adjacency: Any = context.adjacency
    smoothing: Adjacency = symmetric_normalize(with_self_loops(adjacency))
    propagated: Any = smoothing @ (smoothing @ context.features)
    n_nodes, n_features = propagated.shape
    n_dims = context.config.n_dims
    target = np.zeros((n_nodes, n_dims))
    rank = min(n_dims, n_features, n_nodes)
    if n_features == 1:
        target[:, :1] = propagated if isinstance(propagated, np.ndarray) else propagated.toarray()
    else:
        svd = TruncatedSVD(rank, random_state=seed_for(context.seed, "svd"))
        with one_thread(), np.errstate(invalid="ignore", divide="ignore"):
            target[:, :rank] = svd.fit_transform(propagated)
    if rank < n_dims:
        target[:, rank] = np.sqrt(np.square(target).sum(axis=1).mean())
    return unit_rows(target)
