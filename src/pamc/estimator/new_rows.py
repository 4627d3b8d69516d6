"""Assignment of new rows by their edges to fitted rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamc.data.rows import as_features
from pamc.errors import ConfigError, DataError
from pamc.training.assign import uses_given_graph
from pamc.training.phases import Fit

# Share of the edges in the assignment of a new row if the fit did not measure how far to trust its graph.
_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class EdgesOfNewRows:
    """The edges between new rows and fitted rows.

    Parameters
    ----------
    weight
        (n, N) weights, divided by their sum in each row.
    share
        (n, 1) share of the edges in the assignment of each row, between 0 for a row without edges and 1.
    """

    weight: Any
    share: NDArray[np.float64]

    def mixed(self, by_features: Tensor | None, fitted: Tensor) -> Tensor:
        """Return values (n, m) of the new rows: a mean of those by their features and those of their neighbors.

        Parameters
        ----------
        by_features
            (n, m) values by the features of the new rows; None without features, so that only neighbors count.
        fitted
            (N, m) values of the fitted rows.
        """
        neighbors = torch.from_numpy(self.weight @ fitted.double().cpu().numpy()).to(fitted)
        if by_features is None:
            return neighbors
        share = torch.from_numpy(self.share).to(by_features)
        return (1 - share) * by_features + share * neighbors.to(by_features)


def edges_of_new_rows(adjacency: Any, fit: Fit, *, n_rows: int | None) -> EdgesOfNewRows:
    """Return validated edges (n, N) between new and fitted rows; `n_rows` is None for rows without features."""
    if not uses_given_graph(fit.facts):
        raise ConfigError(
            "the model was fitted without a graph, so edges do not help to assign new rows: leave out adjacency"
        )
    weight = sp.csr_matrix(as_features(adjacency)[0], dtype=np.float64)
    n_fitted = len(fit.labels)
    if weight.shape[1] != n_fitted or n_rows not in (None, weight.shape[0]):
        rows = "a row for each new row" if n_rows is None else f"{n_rows} rows, one for each row of X,"
        raise DataError(
            f"adjacency must have {rows} and a column for each of the {n_fitted} fitted rows, got shape {weight.shape}"
        )
    if not np.isfinite(weight.data).all() or (weight.data < 0).any():
        raise DataError("the weights of the edges of new rows must be finite numbers of at least 0")
    total = np.asarray(weight.sum(axis=1))
    missing = np.flatnonzero(total == 0)
    if n_rows is None and len(missing):
        raise DataError(
            f"row {missing[0]} has no edge to a fitted row ({len(missing)} of {len(total)} rows have none), and the "
            "model was fitted without features: leave such rows out, or fit again with them"
        )
    trust: Any = fit.facts.get("graph_trust", _SHARE)
    scale = sp.diags_array(1 / np.where(total > 0, total, 1).ravel())
    return EdgesOfNewRows(sp.csr_matrix(scale @ weight), np.where(total > 0, float(trust), 0.0))
