"""Updates: twenty rounds of 10 % new rows, and planted clusters that appear or split.

In each round, a model is updated and, for comparison, fitted from scratch to the same rows. Classes are used only to
measure the result and to plant changes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.synthetic import block_model
from pamc.estimator import PamCGC
from pamc.lab.cell import Cell, register_case
from pamc.lab.settings import bench_cells, load_unlinked
from pamc.results.metrics import evaluate

GRAPHS = ("planted graph, clear", "planted graph, noisy")
SETS = ("digits", *GRAPHS)
PLANTED = ("nothing", "new cluster", "split")

# Share of new rows per round, number of rounds, and the round in which something is planted.
_GROWTH, _N_ROUNDS, _PLANTED_IN = 0.1, 20, 10
_QUICK_ROUNDS, _QUICK_PLANTED_IN = 2, 1

# Planted graphs: rows, clusters and options of `block_model`.
_SIZE = (2000, 6)
_OPTIONS: dict[str, dict[str, Any]] = {
    GRAPHS[0]: {"degree": 20},
    GRAPHS[1]: {"degree": 20, "homophily": 0.7, "feature_noise": 1.5},
}


def _arrivals(graph: AttributedGraph, planted: str, n_rounds: int, when: int, seed: int) -> list[NDArray[np.int64]]:
    """Return the rows that are present after each round, 0 to `n_rounds`; those of a new cluster come from `when` on.

    The last class is the planted new cluster.
    """
    rng, classes = np.random.default_rng(seed), np.asarray(graph.labels)
    order = rng.permutation(graph.n_nodes)
    n_rows = [round(graph.n_nodes / (1 + _GROWTH) ** (n_rounds - number)) for number in range(n_rounds + 1)]
    if planted != "new cluster":
        return [order[:n] for n in n_rows]
    is_late = classes[order] == classes.max()
    early, late = order[~is_late], order[is_late]
    present = [early[:n] for n in n_rows[:when]]
    # The new cluster makes up half of the new rows of a round as long as rows of it are left.
    n_late = 0
    for number in range(when, n_rounds + 1):
        n_new = n_rows[number] - n_rows[number - 1]
        n_late = min(n_late + n_new // 2, len(late))
        n_early = min(n_rows[number] - n_late, len(early))
        present.append(np.concatenate([early[:n_early], late[:n_late]]))
    return present


def _with_split(graph: AttributedGraph, seed: int) -> AttributedGraph:
    """Return the rows after half of the rows of class 0 have become another class, with other features and edges."""
    rng, classes = np.random.default_rng(seed), np.asarray(graph.labels).copy()
    of_class = np.flatnonzero(classes == 0)
    leaving = rng.permutation(of_class)[: len(of_class) // 2]
    features = np.array(graph.features)
    if graph.edges is None:
        # Images of digits, which are turned by 90 degrees.
        side = int(np.sqrt(graph.n_features))
        images = features[leaving].reshape(-1, side, side)
        features[leaving] = np.rot90(images, axes=(1, 2)).reshape(len(leaving), -1)
    else:
        features[leaving] += rng.normal(size=graph.n_features).astype(features.dtype) * np.sqrt(2)
    classes[leaving] = classes.max() + 1
    edges = graph.edges
    if edges is not None:
        edges = edges.copy()
        has_left, remains = np.isin(edges, leaving), np.isin(edges, np.setdiff1d(of_class, leaving))
        between = has_left.any(axis=0) & remains.any(axis=0)
        # An edge between the two halves stays at its first end and gets another second end in the same half.
        halves = {True: leaving, False: np.setdiff1d(of_class, leaving)}
        for place in np.flatnonzero(between):
            half = halves[bool(np.isin(edges[0, place], leaving))]
            edges[1, place] = rng.choice(half[half != edges[0, place]])
    return replace(graph, features=features, labels=classes, edges=edges)


def _rows_of(cell: Cell) -> AttributedGraph:
    if cell.data_set in _OPTIONS:
        graph = block_model(*_SIZE, random_state=cell.seed, **_OPTIONS[cell.data_set])
        return replace(graph, features=np.asarray(graph.features, dtype=np.float32))
    graph = load_unlinked(cell.data_set)
    if cell.parameters["planted"] == "split":
        # The class of the digit 6, whose images differ most when they are turned.
        labels = np.asarray(graph.labels)
        return replace(graph, labels=np.where(labels == 6, 0, np.where(labels == 0, 6, labels)))
    return graph


def _measured(fit: Any) -> tuple[Any, float]:
    """Return the result of a function and its processor time, which does not depend on other processes."""
    started = time.process_time()
    return fit(), time.process_time() - started


@register_case(
    "updates",
    "twenty updates by 10 % new rows, compared with fits from scratch, with planted changes",
    cells=partial(
        bench_cells,
        case="updates",
        measured=[("pamcgc", {"planted": planted}) for planted in PLANTED],
        data_sets=SETS,
        quick_sets=("digits",),
    ),
    in_all=False,
)
def updates(cell: Cell, device: str) -> dict[str, Any]:
    """Return, for each round, the ACC of the update and of a fit from scratch, their cost, kept numbers and changes."""
    planted = cell.parameters["planted"]
    n_rounds, when = (_QUICK_ROUNDS, _QUICK_PLANTED_IN) if cell.quick else (_N_ROUNDS, _PLANTED_IN)
    graph = _rows_of(cell)
    later = _with_split(graph, cell.seed) if planted == "split" else graph
    present = _arrivals(graph, planted, n_rounds, when, cell.seed)
    classes = np.asarray(graph.labels)
    n_clusters = len(np.unique(classes[present[0]]))
    estimator = partial(PamCGC, random_state=cell.seed, device=device)
    model = estimator(n_clusters).fit_graph(_named(graph, present[0]))
    rounds: list[dict[str, Any]] = []
    for number in range(1, n_rounds + 1):
        source = later if number >= when else graph
        rows, truth = _named(source, present[number]), np.asarray(source.labels)[np.sort(present[number])]
        update, update_s = _measured(partial(estimator(n_clusters).fit_graph, rows, previous=model))
        line: dict[str, Any] = {"n_rows": rows.n_nodes, "kept": _kept(model, update, when == number and planted)}
        line |= {"changes": [change["kind"] for change in update.update_["changes"]], "update_s": update_s}
        line["acc"] = evaluate(truth, update.labels_)["acc"]
        if planted == "nothing":
            fresh, line["fit_s"] = _measured(partial(estimator(len(np.unique(truth))).fit_graph, rows))
            line["fresh_acc"] = evaluate(truth, fresh.labels_)["acc"]
        rounds.append(line)
        model = update
    return {"rounds": rounds, "planted_in": None if planted == "nothing" else when, **_summary(rounds, planted, when)}


def _named(graph: AttributedGraph, rows: NDArray[np.int64]) -> AttributedGraph:
    """Return some rows with the edges between them; ids are row numbers, and earlier rows come first."""
    part = graph.only(np.sort(rows))
    return replace(part, labels=None)


def _kept(model: Any, update: Any, planted: Any) -> float:
    """Return the share of old rows that keep their number, apart from those of a planted split."""
    places = {name: place for place, name in enumerate(update._row_ids.tolist())}
    now = update.labels_[[places[name] for name in model._row_ids.tolist()]]
    stays = now == model.labels_
    if planted == "split":
        stays = stays[now < len(model.cluster_centers_)]
    return float(stays.mean())


def _summary(rounds: Sequence[dict[str, Any]], planted: str, when: int) -> dict[str, Any]:
    expected = {"nothing": [], "new cluster": ["appeared"], "split": ["split"]}[planted]
    reported = [line["changes"] for line in rounds]
    values: dict[str, Any] = {
        "least_kept": min(line["kept"] for line in rounds),
        "acc": mean(line["acc"] for line in rounds),
        "n_false_changes": sum(len(kinds) for number, kinds in enumerate(reported, 1) if number != when),
        "is_reported": reported[when - 1] == expected,
    }
    if planted == "nothing":
        values["n_false_changes"] = sum(map(len, reported))
        values["fresh_acc"] = mean(line["fresh_acc"] for line in rounds)
        values["cost"] = mean(line["update_s"] for line in rounds) / mean(line["fit_s"] for line in rounds)
        values["most_cost"] = max(line["update_s"] / line["fit_s"] for line in rounds)
    return values
