"""Data of a report page: a fit of rows in memory or in a store, with true classes if given."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pamc import __version__
from pamc.data.attributed_graph import AttributedGraph, Features
from pamc.data.columns.encoding import TableEncoding
from pamc.data.columns.types import TEXT
from pamc.data.preprocessing import fit_preprocessing
from pamc.data.store import Store
from pamc.graph.relations import combined
from pamc.ops.scores import silhouette
from pamc.report.facts import ClusterFacts, cluster_columns, cluster_facts, edge_flows
from pamc.report.narrative import narrative, python_lines, stability
from pamc.report.noise import noise_group, with_noise_group
from pamc.report.page_file import pack, pack_ids, plain, smallest
from pamc.report.points import column, confidence_steps, listed_rows, map_data
from pamc.report.variables import raw_variables
from pamc.results.metrics import best_matching, contingency
from pamc.results.record import RunRecord

FORMAT, VERSION = "pamc-report", 1

# Number of features offered to color the map, the most distinctive first; fewer for many rows.
_N_FEATURE_COLUMNS, _LEAST_FEATURE_COLUMNS, _MOST_FEATURE_VALUES = 12, 3, 1_200_000

# Number of sampled rows for the silhouette of the features, as for that of the embedding.
_SILHOUETTE_ROWS = 2000

TRUE_CLASS = "true class"

# Facts about the clusters that the page contains under the same names.
_TABLES = ("clusters", "features", "rows", "odd", "flows", "similarity", "leaning")
# Facts that only tables of mixed types have.
_MIXED_TABLES = ("profile", "cells")

# Returns the values (n,) of some features for the rows listed on the page, one array per feature.
ReadFeatures: TypeAlias = Callable[[list[int]], Sequence[NDArray[Any]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extras:
    """Optional additions to a page.

    `columns` maps names to (N,) values of any type that can color the map. `class_names` are the names of the true
    classes, in ascending order of their numbers. `notes` are shown to the reader. `map_by` is the name of a projection.
    `before` is the page data of the run that an update continues, whose clusters keep their names.
    """

    columns: Mapping[str, Any] | None = None
    class_names: Sequence[str] | None = None
    notes: tuple[str, ...] = ()
    map_by: str = "auto"
    before: Mapping[str, Any] | None = None


def page_data(model: Any, data: AttributedGraph | Store, record: RunRecord, extras: Extras) -> dict[str, Any]:
    """Return the page data of a fit on a graph in memory or a store. O(N·(d + C·n_dims) + E) time with a PCA map.

    For a graph without edges, the edges of the kNN graph that the fit built are used, if the model still has them.
    """
    began = time.perf_counter()
    model = with_noise_group(model)
    if isinstance(data, Store):
        return _store_page_data(model, data, record, extras, began)
    graph = data
    joined = with_fitted_edges(model, graph)
    facts = cluster_facts(model, joined)
    rows = listed_rows(graph.n_nodes, facts)
    return assembled(
        model,
        record,
        extras,
        facts,
        ids=graph.row_ids if rows is None else graph.row_ids[rows],
        rows=rows,
        classes=graph.labels,
        read=_reader(graph, rows),
        feature_silhouette=None
        if graph.n_features == 0
        else _feature_silhouette(graph.features, np.asarray(model.labels_), record, graph.encoding),
        began=began,
    )


def assembled(
    model: Any,
    record: RunRecord,
    extras: Extras,
    facts: ClusterFacts | None,
    *,
    ids: NDArray[Any],
    rows: NDArray[np.int64] | None,
    classes: NDArray[np.int64] | None = None,
    read: ReadFeatures | None = None,
    feature_silhouette: float | None = None,
    began: float,
) -> dict[str, Any]:
    """Return the page data, assembled from its parts.

    Parameters
    ----------
    facts
        Facts about the clusters; None if the rows are unavailable, so that cards show only size and confidence.
    ids, rows
        Ids and indices of the rows listed on the page; `rows` is None for all rows.
    classes
        (N,) true classes, if known.
    read, feature_silhouette
        Function that returns some features of the listed rows, and the silhouette of the clusters in the features.
    began
        Start time, from `time.perf_counter`.
    """
    model = with_noise_group(model)
    labels, confidence = np.asarray(model.labels_), np.asarray(model.confidence_, dtype=np.float64)
    n_nodes, n_clusters = len(labels), len(model.cluster_centers_)
    noise = noise_group(model)
    about = {field.name: getattr(record, field.name) for field in dataclasses.fields(record) if field.name != "history"}
    tables: dict[str, Any] = {name: getattr(facts, name, None) for name in _TABLES}
    tables |= {name: getattr(facts, name) for name in _MIXED_TABLES if getattr(facts, name, None) is not None}
    if facts is None:
        tables["clusters"] = cluster_columns(labels, confidence, n_clusters)
    elif not facts.flows.any():
        tables["flows"] = None
    notes, truth = list(extras.notes), None
    if rows is not None:
        notes.append(f"The map is a density of all {n_nodes:,} rows; {len(ids):,} random ones can be selected.")
    columns = [column(str(name), values, rows, n_nodes) for name, values in (extras.columns or {}).items()]
    if classes is not None:
        truth = truth_data(classes, labels, confidence, names=extras.class_names)
        names = np.array(truth["names"], dtype=object)[np.unique(classes, return_inverse=True)[1]]
        columns.insert(0, column(TRUE_CLASS, names, rows, n_nodes))
    if facts is not None and read is not None:
        columns += _feature_columns(facts, len(ids), read, used=[existing["name"] for existing in columns])
    mapped = map_data(model, rows, map_by=extras.map_by, seed=record.seed)
    data = {
        "format": FORMAT,
        "version": VERSION,
        "title": str(record.data.get("name") or "clusters"),
        "pamc": __version__,
        "written": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "n_rows": n_nodes,
        "n_clusters": n_clusters if noise is None else noise,
        "noise": noise,
        "linkage": getattr(model, "linkage_", None),
        "record": about,
        "history": record.history,
        "map": mapped["map"],
        "points": {**_listed_points(labels, confidence, ids, rows), "xy": mapped["xy"]},
        "density": mapped["density"],
        "columns": columns,
        **tables,
        "feature_silhouette": feature_silhouette,
        "truth": truth,
        "story": narrative(about),
        "stability": stability(about, float(confidence.mean())),
        "python": python_lines(about),
        "notes": notes,
        "before": None if extras.before is None else _named_before(extras.before),
    }
    return {**plain(data), "seconds": round(time.perf_counter() - began, 3)}


def _named_before(page: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the data that name the clusters of earlier runs, oldest run first."""
    return [*(page.get("before") or []), {name: page.get(name) for name in ("features", "clusters", "n_clusters")}]


def _listed_points(
    labels: NDArray[np.int64], confidence: NDArray[np.float64], ids: NDArray[Any], rows: NDArray[np.int64] | None
) -> dict[str, Any]:
    """Return the ids, clusters and confidence of the listed rows."""
    listed: Any = slice(None) if rows is None else rows
    return {
        "n": len(ids),
        "rows": None if rows is None else pack(rows, "u4"),
        "ids": pack_ids(ids),
        "cluster": pack(labels[listed], smallest(int(labels.max()))),
        "confidence": confidence_steps(confidence[listed]),
    }


def _reader(graph: AttributedGraph, rows: NDArray[np.int64] | None) -> ReadFeatures:
    """Return the function that reads features of a graph, which are the raw columns of a table of mixed types."""
    listed: Any = slice(None) if rows is None else rows
    if graph.encoding is not None:
        return lambda numbers: _raw_columns(graph, numbers, listed)
    features = graph.features[listed]

    def read(numbers: list[int]) -> Sequence[NDArray[Any]]:
        return list((features[:, numbers] if isinstance(features, np.ndarray) else features[:, numbers].toarray()).T)

    return read


def _raw_columns(graph: AttributedGraph, numbers: list[int], rows: Any = slice(None)) -> list[NDArray[Any]]:
    variables = raw_variables(graph)
    return [variables[number].colors[rows] for number in numbers]


def with_fitted_edges(model: Any, graph: AttributedGraph) -> AttributedGraph:
    """Return the graph with the edges that the fit built, if it still has them.

    It built them if it was given none, or several relations, which it combined.
    """
    adjacency = getattr(getattr(model, "_fit_result", None), "adjacency", None)
    was_given = graph.edges is not None and graph.relations is None
    if was_given or adjacency is None or adjacency.shape[0] != graph.n_nodes:
        return graph
    entries = adjacency.tocoo()
    upper = entries.row < entries.col
    edges = np.stack([entries.row[upper], entries.col[upper]]).astype(np.int64)
    weight = entries.data[upper]
    return dataclasses.replace(graph, edges=edges, edge_weight=weight, edges_are_neighbors=True, relations=None)


def _feature_silhouette(
    features: Features, labels: NDArray[np.int64], record: RunRecord, table: TableEncoding | None = None
) -> float:
    """Return the silhouette of the clusters in the features, preprocessed as in the fit, on a sample of the rows."""
    n_sampled = min(_SILHOUETTE_ROWS, len(labels))
    sample = np.random.default_rng(record.seed).choice(len(labels), n_sampled, replace=False)
    preprocessing = fit_preprocessing(features, record.facts.get("preprocessing") or "auto", table=table)
    return silhouette(preprocessing.apply(features[sample]), labels[sample])


def _feature_columns(
    facts: ClusterFacts, n_listed: int, read: ReadFeatures, *, used: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the most distinctive features as columns of the map, without names that are already in use."""
    order = np.argsort(-np.abs(facts.features["difference"]), kind="stable")
    # A free text does not color a map.
    order = order[facts.features["kind"][order] != TEXT]
    names = dict(zip(facts.features["feature"][order].tolist(), facts.features["name"][order].tolist(), strict=True))
    n_columns = min(_N_FEATURE_COLUMNS, max(_LEAST_FEATURE_COLUMNS, _MOST_FEATURE_VALUES // n_listed))
    numbers = [number for number, name in names.items() if name not in used][:n_columns]
    return [
        column(names[number], values, None, n_listed) for number, values in zip(numbers, read(numbers), strict=True)
    ]


# Number of equally large groups of rows in the plot of accuracy against confidence.
_N_GROUPS = 10


def truth_data(
    classes: NDArray[np.int64],
    labels: NDArray[np.int64],
    confidence: NDArray[Any],
    *,
    names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return the confusion matrix of classes and clusters, and accuracy as a function of confidence.

    A row is correct if its cluster matches its class in the best one-to-one matching. `names` are the class names in
    ascending order of their numbers; without names, the numbers are shown.

    Examples
    --------
    >>> truth = truth_data(np.array([0, 0, 1, 1]), np.array([3, 3, 5, 3]), np.array([0.9, 0.8, 0.7, 0.4]))
    >>> truth["clusters"], truth["table"], truth["curve"]["accuracy"]
    ([3, 5], [[2, 0], [1, 1]], [0.0, 1.0, 1.0, 1.0])
    """
    kinds, class_of = np.unique(classes, return_inverse=True)
    clusters, cluster_of = np.unique(labels, return_inverse=True)
    table = contingency(classes, labels)
    matched, clusters_matched = best_matching(table)
    cluster_for = np.full(len(kinds), -1)
    cluster_for[matched] = clusters_matched
    correct = cluster_for[class_of] == cluster_of
    # The matched cluster of each class comes first, then the other clusters.
    order = [*cluster_for[cluster_for >= 0], *np.setdiff1d(np.arange(len(clusters)), clusters_matched)]
    ascending = np.argsort(confidence, kind="stable")
    groups = [group for group in np.array_split(ascending, _N_GROUPS) if len(group)]
    return {
        "names": [str(name) for name in (kinds.tolist() if names is None else names)],
        "clusters": clusters[order].tolist(),
        "table": table[:, order].tolist(),
        "curve": {
            "confidence": [float(np.mean(confidence[group], dtype=np.float64)) for group in groups],
            "accuracy": [float(correct[group].mean()) for group in groups],
            "n": [len(group) for group in groups],
        },
    }


# Maximum number of sampled rows for the cards, and maximum bytes of their features.
_SAMPLED_ROWS, _SAMPLED_BYTES = 50_000, 1 << 27

_ROWS_PER_BLOCK = 1 << 16
_IDS_PER_BLOCK = 1 << 20


def _store_page_data(model: Any, store: Store, record: RunRecord, extras: Extras, began: float) -> dict[str, Any]:
    """Return the page data of a fit of a store, without reading it into memory.

    Sizes, confidence and edges cover all rows; features and central, border and outlier rows come from a sample.
    O(N·n_dims + E) time; memory grows with N·n_dims, as in the fit.
    """
    labels, confidence = np.asarray(model.labels_), np.asarray(model.confidence_, dtype=np.float64)
    n_clusters = len(model.cluster_centers_)
    # A random sample that depends only on the size of the store.
    n_sampled = min(_SAMPLED_ROWS, max(1, _SAMPLED_BYTES // (4 * store.n_features)), store.n_nodes)
    sample = np.random.default_rng(store.n_nodes).choice(store.n_nodes, n_sampled, replace=False, shuffle=False)
    sample.sort()
    features = np.array(store.features[sample], dtype=np.float32)
    encoding: TableEncoding | None = getattr(store, "encoding", None)
    about: dict[str, Any] = {"feature_names": store.feature_names, "name": store.name, "encoding": encoding}
    graph = AttributedGraph(features, ids=_ids_of(store, sample), **about)
    part = {name: np.asarray(getattr(model, name))[sample] for name in ("labels_", "confidence_", "embedding_")}
    shared = {name: getattr(model, name) for name in ("cluster_centers_", "meta_nodes_")}
    facts = cluster_facts(SimpleNamespace(**part, **shared), graph)
    flows = facts.flows
    if store.relations is not None:
        graph_of_all = combined(
            list(store.relation_matrices().values()), list(record.facts["relation_weights"].values())
        )
        flows = edge_flows(graph_of_all.indptr, graph_of_all.indices, graph_of_all.data, labels, n_clusters)
    elif store.has_edges:
        flows = edge_flows(store.indptr, store.indices, store.weight, labels, n_clusters)
    facts = dataclasses.replace(
        facts,
        clusters={**facts.clusters, **cluster_columns(labels, confidence, n_clusters, flows)},
        flows=flows,
        rows={**facts.rows, "row": sample[facts.rows["row"]]},
        odd={**facts.odd, "row": sample[facts.odd["row"]]},
        cells=None if facts.cells is None else {**facts.cells, "row": sample[facts.cells["row"]]},
    )
    rows = listed_rows(store.n_nodes, facts)
    listed = np.arange(store.n_nodes) if rows is None else rows

    def read(numbers: list[int]) -> Sequence[NDArray[Any]]:
        if encoding is not None:
            return _raw_columns(dataclasses.replace(graph, features=store.features[listed], ids=None), numbers)
        values = np.empty((len(listed), len(numbers)), dtype=np.float32)
        for start in range(0, len(listed), _ROWS_PER_BLOCK):
            block = slice(start, start + _ROWS_PER_BLOCK)
            values[block] = store.features[listed[block]][:, numbers]
        return list(values.T)

    if len(sample) < store.n_nodes:
        note = (
            f"Differences between clusters, blending, and typical, border and unusual rows come from {len(sample):,} "
            "rows drawn at random; sizes, confidence and edges come from all rows."
        )
        extras = dataclasses.replace(extras, notes=(*extras.notes, note))
    return assembled(
        model,
        record,
        extras,
        facts,
        ids=_ids_of(store, listed),
        rows=rows,
        classes=None if store.labels is None else np.array(store.labels),
        read=read,
        feature_silhouette=_feature_silhouette(features, labels[sample], record, encoding),
        began=began,
    )


def _ids_of(store: Store, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return the ids of sorted rows; blocks without any of them are not read."""
    if store.id_kind == "rows":
        return rows
    parts = []
    for start in range(0, store.n_nodes, _IDS_PER_BLOCK):
        within = rows[(rows >= start) & (rows < start + _IDS_PER_BLOCK)]
        if len(within):
            parts.append(store.ids(start, start + _IDS_PER_BLOCK)[within - start])
    return np.concatenate(parts)
