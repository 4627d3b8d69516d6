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
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.store import Store
from pamc.report.facts import ClusterFacts, cluster_columns, cluster_facts, edge_flows
from pamc.report.narrative import narrative, python_lines, stability
from pamc.report.page_file import plain
from pamc.report.points import (
    MOST_POINTS,
    Frame,
    column,
    density_data,
    map_data,
    number_column,
    point_data,
    shown_rows,
)
from pamc.report.projection import Projection, project
from pamc.results.metrics import best_matching, contingency
from pamc.results.record import RunRecord
from pamc.runtime import seed_for

FORMAT, VERSION = "pamc-report", 1

# Number of features offered to color the map, the most distinctive first; fewer for many rows.
_N_FEATURE_COLUMNS, _LEAST_FEATURE_COLUMNS, _MOST_FEATURE_VALUES = 12, 3, 1_200_000

TRUE_CLASS = "true class"

# Returns the (n, len(numbers)) values of some feature columns for the rows listed on the page.
ReadFeatures: TypeAlias = Callable[[list[int]], NDArray[Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extras:
    """Optional additions to a page.

    `columns` maps names to (N,) values of any type that can color the map. `class_names` are the names of the true
    classes, in ascending order of their numbers. `notes` are shown to the reader. `map_by` is "auto", "pca" or
    "umap".
    """

    columns: Mapping[str, Any] | None = None
    class_names: Sequence[str] | None = None
    notes: tuple[str, ...] = ()
    map_by: str = "auto"


def page_data(model: Any, graph: AttributedGraph, record: RunRecord, extras: Extras) -> dict[str, Any]:
    """Return the page data of a fit on a graph in memory. O(N·(d + C·n_dims) + E) time with a PCA map.

    If the graph has no edges, those that the fit built are used, if the model still has them.
    """
    began = time.perf_counter()
    joined = with_found_edges(model, graph)
    facts = cluster_facts(model, joined)
    rows = shown_rows(graph.n_nodes, facts)
    features = graph.features if rows is None else graph.features[rows]

    def read(numbers: list[int]) -> NDArray[Any]:
        return features[:, numbers] if isinstance(features, np.ndarray) else features[:, numbers].toarray()

    notes = list(extras.notes)
    if joined.edges is not None and graph.edges is None:
        made = "of nearest neighbors that the fit made" if record.facts.get("graph") == "knn" else "that was fitted"
        notes.append(f"Edges are those of the graph {made}.")
    return put_together(
        model,
        record,
        facts,
        dataclasses.replace(extras, notes=tuple(notes)),
        ids=graph.row_ids if rows is None else graph.row_ids[rows],
        rows=rows,
        classes=graph.labels,
        read=read,
        has_edges=joined.edges is not None,
        began=began,
    )


def put_together(
    model: Any,
    record: RunRecord,
    facts: ClusterFacts | None,
    extras: Extras,
    *,
    ids: NDArray[Any],
    rows: NDArray[np.int64] | None,
    classes: NDArray[np.int64] | None = None,
    read: ReadFeatures | None = None,
    has_edges: bool,
    began: float,
) -> dict[str, Any]:
    """Assemble the page data from its parts.

    Parameters
    ----------
    facts
        Facts about the clusters; None if the rows are unavailable, so that cards show only size and confidence.
    ids, rows
        Ids and indices of the rows listed on the page; `rows` is None for all rows.
    classes
        (N,) true classes, if known.
    read
        Function that returns some features of the listed rows.
    began
        Start time, from `time.perf_counter`.
    """
    labels, confidence = np.asarray(model.labels_), np.asarray(model.confidence_, dtype=np.float64)
    n_nodes, n_clusters = len(labels), len(model.cluster_centers_)
    projection = projected(model, extras.map_by, record.seed)
    frame = Frame(projection)
    about = {field.name: getattr(record, field.name) for field in dataclasses.fields(record) if field.name != "history"}
    tables: dict[str, Any] = dict.fromkeys(("features", "rows", "odd", "flows", "similarity"))
    clusters = cluster_columns(labels, confidence, n_clusters)
    if facts is not None:
        clusters, tables = facts.clusters, {name: getattr(facts, name) for name in tables}
        tables["flows"] = facts.flows if has_edges else None
    notes, density, truth = list(extras.notes), None, None
    if n_nodes > MOST_POINTS:
        density = density_data(frame, projection, labels, confidence, n_clusters)
        notes.append(
            f"The map is a density of all {n_nodes:,} rows; {len(ids):,} of them, drawn at random, can be pointed at "
            "and found by id."
        )
    columns = [column(str(name), values, rows, n_nodes) for name, values in (extras.columns or {}).items()]
    if classes is not None:
        truth = truth_data(classes, labels, confidence, names=extras.class_names)
        columns.insert(0, _truth_column(classes, rows, truth["names"]))
    if facts is not None and read is not None:
        columns += _feature_columns(facts, len(ids), read, taken=[each["name"] for each in columns])
    data = {
        "format": FORMAT,
        "version": VERSION,
        "title": str(record.data.get("name") or "clusters"),
        "pamc": __version__,
        "written": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "n_rows": n_nodes,
        "n_clusters": n_clusters,
        "record": about,
        "history": record.history,
        "map": map_data(projection, frame),
        "points": point_data(frame, projection, labels, confidence, ids, rows),
        "density": density,
        "columns": columns,
        "clusters": clusters,
        **tables,
        "truth": truth,
        "story": narrative(about),
        "stability": stability(about, float(confidence.mean())),
        "python": python_lines(about),
        "notes": notes,
    }
    return {**plain(data), "seconds": round(time.perf_counter() - began, 3)}


def with_found_edges(model: Any, graph: AttributedGraph) -> AttributedGraph:
    """Return the graph with the edges that the fit built, if it was given none and still has them."""
    adjacency = getattr(getattr(model, "_fit_result", None), "adjacency", None)
    if graph.edges is not None or adjacency is None or adjacency.shape[0] != graph.n_nodes:
        return graph
    found = adjacency.tocoo()
    once = found.row < found.col
    edges = np.stack([found.row[once], found.col[once]]).astype(np.int64)
    return dataclasses.replace(graph, edges=edges, edge_weight=found.data[once], edges_are_neighbors=True)


def projected(model: Any, how: str, seed: int) -> Projection:
    """Return the map of a fitted model's rows."""
    z, centers, labels = (np.asarray(part) for part in (model.embedding_, model.cluster_centers_, model.labels_))
    return project(z, centers, labels, how=how, seed=seed_for(seed, "map"))


def _truth_column(classes: NDArray[np.int64], rows: NDArray[np.int64] | None, names: Sequence[str]) -> dict[str, Any]:
    """Return the true classes as a column of the map."""
    codes = np.unique(classes, return_inverse=True)[1]
    return column(TRUE_CLASS, np.array(names, dtype=object)[codes], rows, len(classes))


def _feature_columns(
    facts: ClusterFacts, n_shown: int, read: ReadFeatures, *, taken: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the most distinctive features as columns of the map, without names that are already in use."""
    order = np.argsort(-np.abs(facts.features["difference"]), kind="stable")
    names = dict(zip(facts.features["feature"][order].tolist(), facts.features["name"][order].tolist(), strict=True))
    n_columns = min(_N_FEATURE_COLUMNS, max(_LEAST_FEATURE_COLUMNS, _MOST_FEATURE_VALUES // n_shown))
    free = [number for number, name in names.items() if name not in taken][:n_columns]
    return [number_column(names[number], values) for number, values in zip(free, read(free).T, strict=True)]


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
    >>> told = truth_data(np.array([0, 0, 1, 1]), np.array([3, 3, 5, 3]), np.array([0.9, 0.8, 0.7, 0.4]))
    >>> told["clusters"], told["table"], told["curve"]["accuracy"]
    ([3, 5], [[2, 0], [1, 1]], [0.0, 1.0, 1.0, 1.0])
    """
    kinds, class_of = np.unique(classes, return_inverse=True)
    clusters, cluster_of = np.unique(labels, return_inverse=True)
    table = contingency(classes, labels)
    matched, clusters_matched = best_matching(table)
    cluster_for = np.full(len(kinds), -1)
    cluster_for[matched] = clusters_matched
    right = cluster_for[class_of] == cluster_of
    # First the matched cluster of each class, then the other clusters.
    order = [*cluster_for[cluster_for >= 0], *np.setdiff1d(np.arange(len(clusters)), clusters_matched)]
    return {
        "names": [str(name) for name in (kinds.tolist() if names is None else names)],
        "clusters": clusters[order].tolist(),
        "table": table[:, order].tolist(),
        "curve": _curve(right, np.asarray(confidence, dtype=np.float64)),
    }


def _curve(right: NDArray[np.bool_], confidence: NDArray[np.float64]) -> dict[str, list[float]]:
    """Return mean confidence, accuracy and size of groups of rows, in order of increasing confidence."""
    order = np.argsort(confidence, kind="stable")
    groups = [group for group in np.array_split(order, _N_GROUPS) if len(group)]
    return {
        "confidence": [float(confidence[group].mean()) for group in groups],
        "accuracy": [float(right[group].mean()) for group in groups],
        "n": [len(group) for group in groups],
    }


# Maximum number of sampled rows for the cards, and maximum bytes of their features.
_SAMPLED_ROWS, _SAMPLED_BYTES = 50_000, 1 << 27

_ROWS_PER_BLOCK = 1 << 16
_IDS_PER_BLOCK = 1 << 20


def store_page_data(model: Any, store: Store, record: RunRecord, extras: Extras) -> dict[str, Any]:
    """Return the page data of a fit of a store, without reading it into memory.

    Sizes, confidence and edges cover all rows; features and central, border and outlier rows come from a sample.
    O(N·n_dims + E) time; memory grows with N·n_dims, as in the fit.
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
    """Return a sorted random sample of rows, which depends only on the size of the store."""
    most = min(_SAMPLED_ROWS, max(1, _SAMPLED_BYTES // (4 * store.n_features)), store.n_nodes)
    drawn = np.random.default_rng(store.n_nodes).choice(store.n_nodes, most, replace=False, shuffle=False)
    return np.sort(drawn)


def _part(model: Any, rows: NDArray[np.int64]) -> SimpleNamespace:
    """Return the results of a fitted model for some rows."""
    of_rows = {name: np.asarray(getattr(model, name))[rows] for name in ("labels_", "confidence_", "embedding_")}
    return SimpleNamespace(**of_rows, cluster_centers_=model.cluster_centers_, meta_nodes_=model.meta_nodes_)


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
