"""The page of a fit from files: what can be counted is counted over all rows, the rest is said of a sample."""

from __future__ import annotations

import dataclasses
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.store import Store
from pamc.report.content import Extras, clusters_without_rows, feature_columns, projected, put_together, truth_column
from pamc.report.facts import ClusterFacts, cluster_facts
from pamc.report.points import columns_of, shown_rows
from pamc.report.truth import truth_data
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

    Parameters
    ----------
    model
        A fitted estimator.
    store
        What it was fitted on.
    record
        Of the run.
    """
    began = time.perf_counter()
    labels, confidence = np.asarray(model.labels_), np.asarray(model.confidence_, dtype=np.float64)
    n_clusters = len(model.cluster_centers_)
    sample = _sampled(store)
    features = np.array(store.features[sample], dtype=np.float32)
    classes = None if store.labels is None else np.array(store.labels)
    graph = AttributedGraph(features, ids=_ids_of(store, sample), feature_names=store.feature_names, name=store.name)
    facts = cluster_facts(_part(model, sample), graph)
    clusters = clusters_without_rows(labels, confidence, n_clusters)
    flows = _flows(store, labels, n_clusters) if store.has_edges else facts.flows
    volume = flows.sum(axis=1)
    clusters["edges_inside"] = np.divide(np.diag(flows), volume, out=np.full(n_clusters, np.nan), where=volume > 0)
    facts = dataclasses.replace(facts, **_with_numbers(facts, sample), clusters=clusters, flows=flows)

    named = np.union1d(facts.rows["row"], facts.odd["row"]).astype(np.int64)
    rows = shown_rows(store.n_nodes, named)
    everything = np.arange(store.n_nodes) if rows is None else rows
    columns = columns_of(extras.columns, rows, store.n_nodes)
    truth = None
    if classes is not None:
        columns.insert(0, truth_column(classes, rows, extras.class_names))
        truth = truth_data(classes, labels, confidence, names=extras.class_names)
    columns += _feature_columns(facts, store, everything, taken=[each["name"] for each in columns])
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
        projected(model, extras.map_by, record.seed),
        ids=_ids_of(store, everything),
        rows=rows,
        columns=columns,
        truth=truth,
        has_edges=store.has_edges,
        notes=notes,
        began=began,
    )


def _sampled(store: Store) -> NDArray[np.int64]:
    """Return rows drawn at random, in order: the same of every store of that size."""
    most = min(_SAMPLED_ROWS, max(1, _SAMPLED_BYTES // (4 * store.n_features)), store.n_nodes)
    drawn = np.random.default_rng(store.n_nodes).choice(store.n_nodes, most, replace=False, shuffle=False)
    return np.sort(drawn)


def _part(model: Any, rows: NDArray[np.int64]) -> SimpleNamespace:
    """Return what is known of some rows of a fitted model."""
    return SimpleNamespace(
        labels_=np.asarray(model.labels_)[rows],
        confidence_=np.asarray(model.confidence_)[rows],
        embedding_=np.asarray(model.embedding_)[rows],
        cluster_centers_=model.cluster_centers_,
        meta_nodes_=model.meta_nodes_,
    )


def _with_numbers(facts: ClusterFacts, sample: NDArray[np.int64]) -> dict[str, Any]:
    """Return the tables that name rows with their numbers among all."""
    return {name: {**table, "row": sample[table["row"]]} for name, table in (("rows", facts.rows), ("odd", facts.odd))}


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


def _feature_columns(
    facts: ClusterFacts, store: Store, rows: NDArray[np.int64], *, taken: list[str]
) -> list[dict[str, Any]]:
    """Return the features that tell clusters apart most, read for the rows of the page."""
    wanted = np.unique(facts.features["feature"])
    if not len(wanted):
        return []
    values = np.empty((len(rows), len(wanted)), dtype=np.float32)
    for start in range(0, len(rows), _ROWS_PER_BLOCK):
        block = slice(start, start + _ROWS_PER_BLOCK)
        values[block] = store.features[rows[block]][:, wanted]
    renumbered = {**facts.features, "feature": np.searchsorted(wanted, facts.features["feature"])}
    return feature_columns(dataclasses.replace(facts, features=renumbered), values, taken=taken)


def _flows(store: Store, labels: NDArray[np.int64], n_clusters: int) -> NDArray[np.float64]:
    """Return (C, C) the weight of the edges between clusters, from the files, block by block."""
    flows = np.zeros(n_clusters * n_clusters)
    ends = np.append(np.arange(0, store.n_nodes, _ROWS_PER_BLOCK), store.n_nodes)
    for start, stop in pairwise(ends):
        entries = slice(int(store.indptr[start]), int(store.indptr[stop]))
        own = np.repeat(labels[start:stop], np.diff(store.indptr[start : stop + 1]))
        weight = None if store.weight is None else np.asarray(store.weight[entries], dtype=np.float64)
        flows += np.bincount(own * n_clusters + labels[store.indices[entries]], weight, minlength=len(flows))
    return flows.reshape(n_clusters, n_clusters)
