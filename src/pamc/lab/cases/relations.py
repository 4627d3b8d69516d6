"""Experiments with several relations, graphs without features, and images; and the cost of several relations."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from pamc.config import FitConfig
from pamc.data.attributed_graph import AttributedGraph, Features
from pamc.data.synthetic import block_model
from pamc.errors import DataWarning
from pamc.estimator.pamcgc import PamCGC
from pamc.graph.adjacency import Adjacency, build_adjacency
from pamc.graph.influence import positive_pairs
from pamc.graph.smoothing import leading_directions
from pamc.initialize.relations import graph_of_relations
from pamc.lab.cell import TASKS, Cell, Row, Scope, register_case, register_experiment
from pamc.lab.measure import call_values
from pamc.lab.pages.style import MISSING, by, mean_text, percent, write_table
from pamc.lab.rivals import leiden_communities
from pamc.lab.rows import fitted_row, rows_of
from pamc.lab.settings import (
    BLOCKS,
    GRAPHS_ALONE,
    KARATE,
    RELATION_SETS,
    bench_cells,
    load,
    load_unlinked,
    n_classes,
    quick_settings,
    relations_path,
    seeds_of,
)
from pamc.ops.scores import modularity
from pamc.results.metrics import evaluate
from pamc.results.table import Table

# What is fitted: all relations, one of them, and two additions that should change nothing.
ALL, RANDOM, TWICE = "all relations", "all, and random edges", "all, and the last one twice"

# Sides of images by data set.
IMAGES = {"digits": (8, 8), "usps": (16, 16)}

# Rows, groups and degree of the generated graphs without features, and the graph of a quick run.
_PLANTED, _QUICK_PLANTED, _PLANTED_DEGREE = (10_000, 50), (300, 4), 20.0
_QUICK_GRAPH = "planted-0.3"

_N_SEEDS, _N_SEEDS_ADDED, _N_SEEDS_GRAPHS, _N_SEEDS_IMAGES = 10, 3, 3, 3
_TASKS = ("relations", "graph alone", "images")

# Sizes of the graphs whose cost is measured: numbers of edges of three relations together, and edges per row.
_COST_EDGES = (120_000, 240_000, 480_000, 960_000)
_QUICK_COST_EDGES = (6_000, 12_000)
_COST_DEGREES, _COST_CLUSTERS, _COST_FEATURES = {"a": 4.0, "b": 8.0, "c": 12.0}, 10, 32


def cells(scope: Scope) -> list[Cell]:
    """Return the fits of graphs without features, of images, and of rows with several relations."""
    tiny = quick_settings("pamcgc") if scope.quick else {}
    listed = [
        _cell(scope, "graph alone", name, seed, tiny)
        for name in ((_QUICK_GRAPH,) if scope.quick else GRAPHS_ALONE)
        for seed in seeds_of(scope, _N_SEEDS_GRAPHS)
    ]
    for name in (BLOCKS,) if scope.quick else RELATION_SETS:
        for graph in (ALL, *RELATION_SETS.get(name, ("a", "b")), RANDOM, TWICE):
            seeds = seeds_of(scope, _N_SEEDS_ADDED if graph in (RANDOM, TWICE) else _N_SEEDS)
            listed += [_cell(scope, "relations", name, seed, tiny, graph=graph) for seed in seeds]
    for name in ("digits",) if scope.quick else IMAGES:
        settings = {**tiny, "image_shape": list(IMAGES[name])}
        listed += [_cell(scope, "images", name, seed, settings) for seed in seeds_of(scope, _N_SEEDS_IMAGES)]
    return [cell for cell in listed if scope.data_sets is None or cell.data_set in scope.data_sets]


def _cell(scope: Scope, task: str, data_set: str, seed: int, settings: dict[str, Any], **parameters: Any) -> Cell:
    return Cell("relations", task, "pamcgc", data_set, seed, settings, parameters, scope.quick)


def _fitted(cell: Cell, n_clusters: int, device: str, X: Any, **graph: Any) -> tuple[PamCGC, float]:
    """Return a model with the defaults and the settings of a cell, and the seconds of its fit."""
    config = FitConfig(n_clusters=n_clusters, **cell.settings)
    model = PamCGC.from_config(config, random_state=cell.seed, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        started = time.perf_counter()
        model.fit(X, **graph)
    return model, time.perf_counter() - started


@TASKS.register("relations")
def cluster_relations(cell: Cell, device: str) -> dict[str, Any]:
    """Cluster rows by all relations, by one of them, or by all and another one; compare the labels with the classes."""
    features, truth, relations = _related(cell)
    graph = cell.parameters["graph"]
    if graph in relations:
        relations = {graph: relations[graph]}
    elif graph == TWICE:
        relations["again"] = list(relations.values())[-1]
    elif graph == RANDOM:
        relations["random"] = _random_edges(sum(map(len, relations.values())), len(truth), cell.seed)
    model, seconds = _fitted(cell, len(np.unique(truth)), device, features, adjacency=relations)
    facts = model.record().facts
    kept: dict[str, Any] = {
        name: facts[name] for name in ("relation_weights", "share_assigned_by_edges") if name in facts
    }
    return {"last": evaluate(truth, model.labels_), "seconds": seconds, **kept}


def _random_edges(n_edges: int, n_nodes: int, seed: int) -> NDArray[np.int64]:
    """Return distinct random edges (E, 2), nearly as many as asked for."""
    rng = np.random.default_rng(seed)
    n_pairs = n_nodes * (n_nodes - 1) // 2
    # Some pairs are drawn more than once.
    n_drawn = round(-n_pairs * np.log1p(-min(n_edges / n_pairs, 0.9)))
    ends = np.sort(rng.integers(n_nodes, size=(n_drawn, 2)), axis=1)
    return np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)


def _related(cell: Cell) -> tuple[Features, NDArray[np.int64], dict[str, NDArray[np.int64]]]:
    """Return the features and classes of rows, and the edges (E, 2) of each relation; halves of one graph if quick."""
    if cell.data_set == BLOCKS:
        graph = load(BLOCKS, cell.quick)
        edges: Any = graph.edges
        return graph.features, np.asarray(graph.labels), {"a": edges[:, ::2].T, "b": edges[:, 1::2].T}
    with np.load(relations_path(cell.data_set)) as file:
        features = sp.csr_matrix((file["x_data"], file["x_indices"], file["x_indptr"]), shape=tuple(file["x_shape"]))
        return (
            features,
            file["y"].astype(np.int64),
            {name: file[f"edges_{name}"] for name in RELATION_SETS[cell.data_set]},
        )


@TASKS.register("graph alone")
def cluster_graph_alone(cell: Cell, device: str) -> dict[str, Any]:
    """Cluster a graph without features by pamc and by the Leiden method, with as many clusters as the latter finds."""
    adjacency, truth, n_true = _graph_alone(cell)
    started = time.perf_counter()
    communities = leiden_communities(adjacency, cell.seed)
    leiden_s = time.perf_counter() - started
    n_clusters = n_true or int(communities.max()) + 1
    model, seconds = _fitted(cell, n_clusters, device, None, adjacency=adjacency)
    values: dict[str, Any] = {"n_clusters": n_clusters, "seconds": seconds, "leiden_s": leiden_s}
    for name, labels in (("pamcgc", model.labels_), ("leiden", communities)):
        values[name] = {"modularity": modularity(adjacency, labels), "n_clusters": len(np.unique(labels))}
        values[name] |= {} if truth is None else evaluate(truth, labels)
    return values


def _graph_alone(cell: Cell) -> tuple[Adjacency, NDArray[np.int64] | None, int | None]:
    """Return the adjacency of a graph, its true groups or None, and the number of clusters or None."""
    import networkx as nx

    name, mixing = cell.data_set, GRAPHS_ALONE[cell.data_set]
    if mixing is not None:
        n_nodes, n_groups = _QUICK_PLANTED if cell.quick else _PLANTED
        homophily = 1 - mixing
        graph = block_model(
            n_nodes, n_groups, n_features=2, degree=_PLANTED_DEGREE, homophily=homophily, random_state=cell.seed
        )
        planted: Any = graph.edges
        return build_adjacency(planted, n_nodes=n_nodes), graph.labels, None
    known = nx.karate_club_graph() if name == KARATE else nx.les_miserables_graph()
    adjacency = sp.csr_matrix(nx.to_scipy_sparse_array(known, dtype=np.float64))
    if name != KARATE:
        return adjacency, None, None
    factions = np.array([int(known.nodes[node]["club"] == "Officer") for node in known])
    return adjacency, factions, len(np.unique(factions))


@TASKS.register("images")
def cluster_images(cell: Cell, device: str) -> dict[str, Any]:
    """Cluster images with their shape, and compare the labels with the classes."""
    graph = load_unlinked(cell.data_set, cell.quick)
    shape = tuple(cell.settings["image_shape"])
    cell = Cell(**{**vars(cell), "settings": {**cell.settings, "image_shape": shape}})
    model, seconds = _fitted(cell, n_classes(graph), device, np.asarray(graph.features))
    return {"last": evaluate(np.asarray(graph.labels), model.labels_), "seconds": seconds}


@register_experiment(
    "relations",
    summary="Accuracy with several relations, on graphs without features, and on images with their shape.",
    cells=cells,
)
def render(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write what relations add, the comparison with Leiden's method, and what the shape of images adds."""
    of_task = by(rows, lambda row: str(row["task"]))
    parts = zip(_TASKS, (_write_relations, _write_graphs, _write_images), strict=True)
    return [path for task, write in parts if task in of_task for path in write(of_task[task], folder)]


def _write_relations(rows: Sequence[Row], folder: Path) -> list[Path]:
    body = []
    for (data_set, graph), group in by(rows, lambda row: (row["data_set"], row["parameters"]["graph"])).items():
        scores = [percent([row["values"]["last"][metric] for row in group]) for metric in ("acc", "nmi")]
        weights = [row["values"].get("relation_weights", {}) for row in group]
        mean = {name: np.mean([each[name] for each in weights]) for name in weights[0]}
        found = ", ".join(f"{name} {weight:.2f}" for name, weight in mean.items())
        body.append([data_set, graph, *scores, found, str(len(group))])
    columns = ["data set", "graph", "ACC", "NMI", "weights", "seeds"]
    note = (
        "Percent, mean ± standard deviation over the seeds, with the default settings. The random edges are as many as "
        "those of all relations together. The weights are found from the data, without the classes."
    )
    title = "One relation and several"
    return write_table(Table(columns, body, "llrrlr"), folder, "relations", title=title, rows=rows, note=note)


def _write_graphs(rows: Sequence[Row], folder: Path) -> list[Path]:
    body = []
    for name, group in by(rows, lambda row: str(row["data_set"])).items():
        values = [row["values"] for row in group]
        ours, theirs = ([value[method] for value in values] for method in ("pamcgc", "leiden"))
        q, q_leiden = (float(np.mean([each["modularity"] for each in found])) for found in (ours, theirs))
        n_clusters = [mean_text([each["n_clusters"] for each in found], 0) for found in (ours, theirs)]
        scores = [
            percent([each[metric] for each in found]) if metric in found[0] else MISSING
            for metric in ("acc", "nmi")
            for found in (ours, theirs)
        ]
        body.append([name, *n_clusters, f"{q:.3f}", f"{q_leiden:.3f}", *scores])
    pairs = ("clusters", "modularity", "ACC", "NMI")
    columns = ["graph", *(f"{title}, {method}" for title in pairs for method in ("pamc", "Leiden"))]
    note = (
        "Means over the seeds. pamc is asked for as many clusters as Leiden's method (leidenalg) finds, and for the "
        "two factions of the karate club. The planted graphs have 10,000 rows of degree "
        f"{_PLANTED_DEGREE:.0f} in 50 groups; the mixing is the share of edges that leave their group."
    )
    title = "Graphs without features"
    return write_table(Table(columns, body), folder, "graphs-alone", title=title, rows=rows, note=note)


def _write_images(rows: Sequence[Row], folder: Path) -> list[Path]:
    default = FitConfig().init
    plain = [row for row in rows_of("quality") if row["parameters"].get("variant") == default]
    body = []
    for name, group in by(rows, lambda row: str(row["data_set"])).items():
        without = [row for row in plain if row["data_set"] == name and "constants" not in row["parameters"]]
        scores = [
            percent([row["values"]["last"][metric] for row in of_kind]) if of_kind else MISSING
            for metric in ("acc", "nmi")
            for of_kind in (without, group)
        ]
        body.append([name, *scores, str(len(group))])
    columns = ["data set", *(f"{metric}, {how}" for metric in ("ACC", "NMI") for how in ("rows", "images"))]
    note = "Percent, mean ± standard deviation over the seeds. For images, `image_shape` is the only changed setting."
    table = Table([*columns, "seeds"], body)
    return write_table(table, folder, "images", title="Images with their shape", rows=rows, note=note)


def _exponent(rows: Sequence[Row]) -> list[Row]:
    """Return the exponent of time as a function of the number of edges of all relations together."""
    return [fitted_row(sorted(rows, key=lambda row: row["parameters"]["n_edges"]), "n_edges", "fastest_s")]


def cost_cells(scope: Scope) -> list[Cell]:
    """Return a cell per number of edges."""
    sizes = _QUICK_COST_EDGES if scope.quick else _COST_EDGES
    return bench_cells(scope, "relation-cost", [("pamc", {"n_edges": n_edges}) for n_edges in sizes])


@register_case(
    "relation-cost",
    "time to weigh and combine three relations and to find their positive pairs, over the edges of all of them",
    cells=cost_cells,
    sum_up=_exponent,
)
def relation_cost(cell: Cell, device: str) -> dict[str, Any]:
    """Return the time from three relations with unknown weights to positive pairs, and peak memory."""
    place = torch.device(device)
    n_nodes = round(2 * cell.parameters["n_edges"] / sum(_COST_DEGREES.values()))
    matrices = {}
    for number, (name, degree) in enumerate(_COST_DEGREES.items()):
        graph = block_model(
            n_nodes, _COST_CLUSTERS, n_features=_COST_FEATURES, degree=degree, homophily=0.6, random_state=number
        )
        edges: Any = graph.edges
        # The groups of all relations are the same: rows are sorted by their label.
        place_of = np.argsort(np.argsort(np.asarray(graph.labels), kind="stable"), kind="stable")
        matrices[name] = build_adjacency(place_of[edges], n_nodes=n_nodes)
    rows = leading_directions(_sorted_rows(graph), seed=0)
    config = FitConfig(n_clusters=_COST_CLUSTERS)

    def combine() -> object:
        combined, _ = graph_of_relations(matrices, None, rows, config, seed=0, device=place)
        return positive_pairs(combined, n_hops=1)

    values = call_values(combine, place, budget_s=0.0)
    n_stored = sum(matrix.nnz for matrix in matrices.values())
    return {**values, "n_stored": n_stored, "ns_per_edge": 1e9 * values["fastest_s"] / n_stored}


def _sorted_rows(graph: AttributedGraph) -> NDArray[Any]:
    """Return the features of a graph, sorted by the labels of its rows."""
    features: Any = graph.features
    return np.asarray(features[np.argsort(np.asarray(graph.labels), kind="stable")])
