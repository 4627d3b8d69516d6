"""What the page of a run is made of: one JSON-able object, from which the page can be made again."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc import __version__
from pamc.data.attributed_graph import AttributedGraph, Features
from pamc.report.facts import ClusterFacts, cluster_facts
from pamc.report.narrative import narrative, python_lines, stability
from pamc.report.packing import plain
from pamc.report.points import (
    MOST_POINTS,
    Frame,
    column,
    columns_of,
    density_data,
    feature_column,
    map_data,
    point_data,
    shown_rows,
)
from pamc.report.projection import Projection, project
from pamc.report.truth import truth_data
from pamc.results.record import RunRecord
from pamc.runtime import seed_for

__all__ = ["FORMAT", "TRUE_CLASS", "VERSION", "Extras", "page_data", "put_together", "with_found_edges"]

FORMAT, VERSION = "pamc-report", 1

# Features that the map can be colored by: those that tell the clusters apart most, fewer where rows are many.
_N_FEATURE_COLUMNS, _LEAST_FEATURE_COLUMNS, _MOST_FEATURE_VALUES = 12, 3, 1_200_000

TRUE_CLASS = "true class"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extras:
    """What a caller may add to a page.

    Parameters
    ----------
    columns
        (N,) values by name that the map can be colored by, numbers or anything else.
    class_names
        Names of the true classes, in ascending order of their numbers.
    notes
        What a reader has to know.
    map_by
        "auto", "pca" or "umap".
    """

    columns: Mapping[str, Any] | None = None
    class_names: Sequence[str] | None = None
    notes: tuple[str, ...] = ()
    map_by: str = "auto"


def page_data(model: Any, graph: AttributedGraph, record: RunRecord, extras: Extras) -> dict[str, Any]:
    """Return the page of a fit on a graph in memory. O(N·(d + C·n_dims) + E) time with a map by PCA.

    Parameters
    ----------
    model
        A fitted estimator of any method.
    graph
        The rows it was fitted on. Where it has no edges, those that the fit found are taken, if it still has them.
    record
        Of the run.
    """
    began = time.perf_counter()
    joined = with_found_edges(model, graph)
    facts = cluster_facts(model, joined)
    projection = projected(model, extras.map_by, record.seed)
    named = np.union1d(facts.rows["row"], facts.odd["row"]).astype(np.int64)
    rows = shown_rows(graph.n_nodes, named)
    chosen: Any = slice(None) if rows is None else rows
    columns = columns_of(extras.columns, rows, graph.n_nodes)
    if graph.labels is not None:
        columns.insert(0, truth_column(graph.labels, rows, extras.class_names))
    columns += feature_columns(facts, graph.features[chosen], taken=[each["name"] for each in columns])
    truth = None
    if graph.labels is not None:
        truth = truth_data(graph.labels, model.labels_, model.confidence_, names=extras.class_names)
    notes = list(extras.notes)
    if joined.edges is not None and graph.edges is None:
        made = "of nearest neighbors that the fit made" if record.facts.get("graph") == "knn" else "that was fitted"
        notes.append(f"Edges are those of the graph {made}.")
    return put_together(
        model,
        record,
        facts,
        projection,
        ids=graph.row_ids[chosen],
        rows=rows,
        columns=columns,
        truth=truth,
        has_edges=joined.edges is not None,
        notes=notes,
        began=began,
    )


def put_together(
    model: Any,
    record: RunRecord,
    facts: ClusterFacts | None,
    projection: Projection,
    *,
    ids: NDArray[Any],
    rows: NDArray[np.int64] | None,
    columns: list[dict[str, Any]],
    truth: dict[str, Any] | None,
    has_edges: bool,
    notes: Sequence[str],
    began: float,
) -> dict[str, Any]:
    """Return the object of a page from its parts.

    Parameters
    ----------
    facts
        Of the clusters; None where the rows are not at hand, and cards say no more than size and confidence.
    ids, rows
        Names and numbers of the rows that the page names; `rows` is None for all.
    columns
        That the map can be colored by.
    truth
        What :func:`~pamc.report.truth.truth_data` returns.
    began
        When this was begun, by `time.perf_counter`.
    """
    labels, confidence = np.asarray(model.labels_), np.asarray(model.confidence_, dtype=np.float64)
    n_nodes, n_clusters = len(labels), len(model.cluster_centers_)
    frame = Frame(projection)
    history = {name: list(values) for name, values in record.history.items()}
    about = {field.name: getattr(record, field.name) for field in dataclasses.fields(record) if field.name != "history"}
    tables: dict[str, Any] = {"features": None, "rows": None, "odd": None, "flows": None, "similarity": None}
    if facts is not None:
        tables = {name: getattr(facts, name) for name in tables}
        tables["flows"] = facts.flows if has_edges else None
    clusters = clusters_without_rows(labels, confidence, n_clusters) if facts is None else facts.clusters
    density = None
    if n_nodes > MOST_POINTS:
        density = density_data(frame, projection, labels, confidence, n_clusters)
        notes = [
            *notes,
            f"The map is a density of all {n_nodes:,} rows; {len(ids):,} of them, drawn at random, can be pointed at "
            "and found by id.",
        ]
    data = {
        "format": FORMAT,
        "version": VERSION,
        "title": str(record.data.get("name") or "clusters"),
        "pamc": __version__,
        "written": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "n_rows": n_nodes,
        "n_clusters": n_clusters,
        "record": about,
        "history": history,
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
        "notes": list(notes),
    }
    cleaned: dict[str, Any] = plain(data)
    cleaned["seconds"] = round(time.perf_counter() - began, 3)
    return cleaned


def with_found_edges(model: Any, graph: AttributedGraph) -> AttributedGraph:
    """Return the graph with the edges that the fit found, where it was given none and still has them."""
    adjacency = getattr(getattr(model, "_fit_result", None), "adjacency", None)
    if graph.edges is not None or adjacency is None or adjacency.shape[0] != graph.n_nodes:
        return graph
    found = adjacency.tocoo()
    once = found.row < found.col
    edges = np.stack([found.row[once], found.col[once]]).astype(np.int64)
    return dataclasses.replace(graph, edges=edges, edge_weight=found.data[once], edges_are_neighbors=True)


def projected(model: Any, how: str, seed: int) -> Projection:
    """Return the map of a fitted model's rows."""
    labels = np.asarray(model.labels_)
    centers = np.asarray(model.cluster_centers_)
    return project(np.asarray(model.embedding_), centers, labels, how=how, seed=seed_for(seed, "map"))


def truth_column(
    classes: NDArray[np.int64], rows: NDArray[np.int64] | None, names: Sequence[str] | None
) -> dict[str, Any]:
    """Return the true classes as a column of the map."""
    kinds, codes = np.unique(classes, return_inverse=True)
    called = np.array([str(name) for name in (kinds.tolist() if names is None else names)], dtype=object)
    return column(TRUE_CLASS, called[codes], rows, len(classes))


def feature_columns(facts: ClusterFacts, features: Features, *, taken: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the features that tell clusters apart most as columns of the map; `features` are those of its rows.

    A feature that is called like a column that the map has already, one of `taken`, is left out.
    """
    order = np.argsort(-np.abs(facts.features["difference"]), kind="stable")
    names = dict(zip(facts.features["feature"][order].tolist(), facts.features["name"][order].tolist(), strict=True))
    n_columns = min(_N_FEATURE_COLUMNS, max(_LEAST_FEATURE_COLUMNS, _MOST_FEATURE_VALUES // features.shape[0]))
    free = [(number, name) for number, name in names.items() if name not in taken]
    return [feature_column(name, features, number) for number, name in free[:n_columns]]


def clusters_without_rows(
    labels: NDArray[np.int64], confidence: NDArray[np.float64], n_clusters: int
) -> dict[str, NDArray[Any]]:
    """Return the table of clusters where nothing but labels and confidence is known."""
    count = np.bincount(labels, minlength=n_clusters)
    sums = np.bincount(labels, confidence, minlength=n_clusters)
    undefined = np.full(n_clusters, np.nan)
    return {
        "cluster": np.arange(n_clusters),
        "n_rows": count,
        "share": count / len(labels),
        "confidence": np.divide(sums, count, out=undefined.copy(), where=count > 0),
        "edges_inside": undefined,
    }
