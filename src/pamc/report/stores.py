"""The page of a fit from files: what can be counted is counted over all rows, the rest is said of a sample."""

from __future__ import annotations

import dataclasses
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.store import Store
from pamc.report.content import Extras, put_together
from pamc.report.facts import cluster_columns, cluster_facts, edge_flows
from pamc.report.points import shown_rows
from pamc.results.record import RunRecord

__all__ = ["store_page_data"]

# Rows of which cards are made, and bytes of features that are held for them.
_SAMPLED_ROWS, _SAMPLED_BYTES = 50_000, 1 << 27

_ROWS_PER_BLOCK = 1 << 16
_IDS_PER_BLOCK = 1 << 20


def store_page_data(model: Any, store: Store, record: RunRecord, extras: Extras) -> dict[str, Any]:
    """Return the page of a fit of a store, which is not read into memory.

    Sizes, confidence and edges are counted over all rows; features, central, border and odd rows are those of a sample.
    O(N·n_dims + E) time; memory grows with N·n_dims, as that of the fit.
    """
    began = time.perf_counter()
    labels, confidence = np.asarray(model.labels_), np.asarray(model.confidence_, dtype=np.float64)
    n_clusters = len(model.cluster_centers_)
    sample = _sampled(store)
    features = np.array(store.features[sample], dtype=np.float32)
    graph = AttributedGraph(features, ids=_ids_of(store, sample), feature_names=store.feature_names, name=store.name)
    facts = cluster_facts(_part(model, sample), graph)
    flows = facts.flows
    if store.has_edges:
        flows = edge_flows(store.indptr, store.indices, store.weight, labels, n_clusters)
    facts = dataclasses.replace(
        facts,
        clusters=cluster_columns(labels, confidence, n_clusters, flows),
        flows=flows,
        rows={**facts.rows, "row": sample[facts.rows["row"]]},
        odd={**facts.odd, "row": sample[facts.odd["row"]]},
    )
    rows = shown_rows(store.n_nodes, facts)
    shown = np.arange(store.n_nodes) if rows is None else rows

    def read(numbers: list[int]) -> NDArray[Any]:
        values = np.empty((len(shown), len(numbers)), dtype=np.float32)
        for start in range(0, len(shown), _ROWS_PER_BLOCK):
            block = slice(start, start + _ROWS_PER_BLOCK)
            values[block] = store.features[shown[block]][:, numbers]
        return values

    notes = list(extras.notes)
    if len(sample) < store.n_nodes:
        notes.append(
            f"What makes clusters different, and central, border and odd rows, are those of {len(sample):,} rows drawn "
            "at random; sizes, confidence and edges are counted over all."
        )
    if not store.has_edges:
        notes.append("The graph of nearest neighbors was made for the fit and is not kept: edges are left out.")
    return put_together(
        model,
        record,
        facts,
        dataclasses.replace(extras, notes=tuple(notes)),
        ids=_ids_of(store, shown),
        rows=rows,
        classes=None if store.labels is None else np.array(store.labels),
        read=read,
        has_edges=store.has_edges,
        began=began,
    )


def _sampled(store: Store) -> NDArray[np.int64]:
    """Return rows drawn at random, in order: the same of every store of that size."""
    most = min(_SAMPLED_ROWS, max(1, _SAMPLED_BYTES // (4 * store.n_features)), store.n_nodes)
    drawn = np.random.default_rng(store.n_nodes).choice(store.n_nodes, most, replace=False, shuffle=False)
    return np.sort(drawn)


def _part(model: Any, rows: NDArray[np.int64]) -> SimpleNamespace:
    """Return what is known of some rows of a fitted model."""
    of_rows = {name: np.asarray(getattr(model, name))[rows] for name in ("labels_", "confidence_", "embedding_")}
    return SimpleNamespace(**of_rows, cluster_centers_=model.cluster_centers_, meta_nodes_=model.meta_nodes_)


def _ids_of(store: Store, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return the ids of rows given in order; blocks without one of them are not read."""
    if store.id_kind == "rows":
        return rows
    parts = []
    for start in range(0, store.n_nodes, _IDS_PER_BLOCK):
        within = rows[(rows >= start) & (rows < start + _IDS_PER_BLOCK)]
        if len(within):
            parts.append(store.ids(start, start + _IDS_PER_BLOCK)[within - start])
    return np.concatenate(parts)
