"""Explanations in Python: facts about a fit as tidy pandas tables."""

from __future__ import annotations

import html
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.adapters import as_graph
from pamc.errors import BackendError
from pamc.report.content import with_fitted_edges
from pamc.report.facts import check_rows_of_fit, cluster_facts
from pamc.report.narrative import relation_rows
from pamc.report.noise import NOISE, noise_group, with_noise_group

# Maximum number of rows of each table in a notebook.
_NOTEBOOK_ROWS = 60


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Facts about a fit as pandas data frames; a notebook displays all of them.

    The columns are those of :class:`~pamc.report.facts.ClusterFacts`. `flows` and `similarity` have one row per pair of
    clusters, with columns `cluster`, `other`, `weight` and `share` (of the edge ends of `cluster`; NaN if edges are
    unknown), and `cluster`, `other`, `cosine`. `relations` has one row per relation and cluster, with columns
    `relation`, `weight`, `reason`, `cluster`, `edges_inside` (share of the ends of the cluster's edges of this relation
    that are joined to the same cluster) and `by_chance` (the same share of all clusters, for random edges); it is None
    without relations. `profile` and `cells` are None for plain numbers; a table of mixed types
    has both.
    """

    clusters: Any
    features: Any
    rows: Any
    odd: Any
    flows: Any
    similarity: Any
    profile: Any = None
    cells: Any = None
    relations: Any = None

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {len(table)}" for name, table in self._tables.items())
        return f"Explanation of {len(self.clusters)} clusters (lines of {sizes})"

    def _repr_html_(self) -> str:
        return "".join(
            f"<h4>{html.escape(name)}</h4>{table.to_html(index=False, max_rows=_NOTEBOOK_ROWS, escape=True)}"
            for name, table in self._tables.items()
        )

    @property
    def _tables(self) -> dict[str, Any]:
        tables = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: table for name, table in tables.items() if table is not None}


def explain(
    model: Any,
    X: Any,
    *,
    adjacency: Any = None,
    ids: Any = None,
    feature_names: Any = None,
    n_features: int = 8,
    n_rows: int = 5,
    n_odd: int | None = 50,
) -> Explanation:
    """Explain a fitted model by tidy pandas tables: clusters, features, rows, outliers, flows, similarity.

    Noise (`min_confidence`) is explained as one more cluster with the number −1.

    A table of mixed types is explained in its own columns and values, with a profile of the clusters and the cells of
    the listed rows.

    Parameters
    ----------
    model
        A fitted estimator of any method.
    X
        The rows of the fit, in the same order: an array, a scipy sparse matrix, a pandas DataFrame (whose columns and
        index become names and ids), a torch tensor, an AttributedGraph, a torch_geometric Data or an AnnData. Rows
        whose embedding differs from that of the fit raise an error.
    adjacency
        The graph of the fit, in any form that `fit` accepts. Defaults to the graph of X, or the one that the fit used;
        if neither is available, as for a loaded model, all values about edges are NaN.
    ids, feature_names
        N row ids and d column names, which override those of X.
    n_features, n_rows, n_odd
        Maximum number of features and of rows of each role per cluster, and of outliers in total; `n_odd=None` lists
        all outliers.

    Examples
    --------
    >>> from pamc import PamCGC
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris(as_frame=True).data
    >>> model = PamCGC(3, n_epochs=5, advanced={"hidden": (16,)}, random_state=0, device="cpu").fit(X)
    >>> explanation = explain(model, X)
    >>> explanation.clusters["n_rows"].sum()
    np.int64(150)
    >>> explanation.features.query("cluster == 0")["name"].isin(X.columns).all()
    np.True_
    """
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise BackendError(
            'explain returns pandas tables: pip install "pamc[explain]", or call pamc.report.facts.cluster_facts, '
            "which needs numpy alone"
        ) from error
    encoding = getattr(model, "columns_", None)
    graph = as_graph(X, adjacency, ids=ids, feature_names=feature_names, encoding=encoding)
    check_rows_of_fit(model, graph)
    graph = with_fitted_edges(model, graph)
    facts = cluster_facts(model, graph, n_features=n_features, n_rows=n_rows, n_odd=n_odd)
    flows = np.full_like(facts.flows, np.nan) if graph.edges is None else facts.flows
    volume = flows.sum(axis=1, keepdims=True)
    share = np.divide(flows, volume, out=np.full_like(flows, np.nan), where=volume > 0)
    tables: dict[str, Any] = {name: DataFrame(getattr(facts, name)) for name in ("clusters", "features", "rows", "odd")}
    for name in ("profile", "cells"):
        tables[name] = None if getattr(facts, name) is None else DataFrame(getattr(facts, name))
    relations = relation_rows(model)
    tables |= {
        "relations": DataFrame(relations) if relations else None,
        "flows": DataFrame(_long(weight=flows, share=share)),
        "similarity": DataFrame(_long(cosine=facts.similarity)),
    }
    group = noise_group(with_noise_group(model))
    if group is not None:
        for table in filter(lambda table: table is not None, tables.values()):
            named = [name for name in ("cluster", "other") if name in table]
            table[named] = table[named].replace(group, NOISE)
    return Explanation(**tables)


def _long(**matrices: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return (C, C) matrices as columns with one row per pair of clusters."""
    n_clusters = len(next(iter(matrices.values())))
    cluster, other = np.divmod(np.arange(n_clusters**2), n_clusters)
    return {"cluster": cluster, "other": other, **{name: matrix.ravel() for name, matrix in matrices.items()}}
