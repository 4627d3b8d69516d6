"""Accuracy, time and memory of fits on graphs with dropped or rewired edges: two open questions of the paper.

Edges are changed in the graph before the fit, which builds the positive pairs γ from it. Every pair without support in
the changed graph disappears; with n_hops > 1, also pairs of nodes that were connected through a dropped edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.config import GraphConfig
from pamc.data.attributed_graph import AttributedGraph, Features
from pamc.data.preprocessing import fit_preprocessing
from pamc.errors import ConfigError, UnknownNameError
from pamc.graph.adjacency import Adjacency, build_adjacency
from pamc.graph.influence import influence
from pamc.initialize.inputs import neighbor_edges
from pamc.lab.cases.time_memory import measured, training_s
from pamc.lab.cell import TASKS, Cell, Row, Scope, register_experiment
from pamc.lab.fits import TrainingProbe, fit_cell, warm_up
from pamc.lab.pages.style import (
    PALETTE,
    acc_of,
    by,
    drawing,
    legend,
    line_with_band,
    mean_text,
    method_color,
    percent,
    save_figure,
    title_of,
    write_table,
)
from pamc.lab.rows import machines_of
from pamc.lab.settings import Variant, fit_cells, load, n_classes
from pamc.models.method import METHODS
from pamc.results.metrics import evaluate
from pamc.results.table import Table, mean_std
from pamc.runtime import resolve_device, seed_for

# Rules for the order in which edges are dropped, and their names in figures.
RULES = {
    "random": "at random",
    "weight": "least γ first",
    "similarity": "least similar features first",
    "neighbors": "fewest common neighbors first",
}
DROP_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)
_TIMED_SHARES = (0.0, 0.4, 0.8)
NOISE_SHARES = (0.0, 0.1, 0.3, 0.5)
NOISE_SETS = ("dblp", "acm", "cite", "usps")
NOISE_METHODS = ("pamcgc", "scgc*", "sdcn", "gae", "kmeans")


@TASKS.register("edges")
def fit_with_changed_edges(cell: Cell, device: str) -> dict[str, Any]:
    """Fit a method on a graph with dropped edges (parameter `rule`) or rewired edges (`rule` "rewire").

    `homophily` is the share of edges within a class of the changed graph; neither the rules nor the fit use it.
    `peak_training_bytes` is defined as in task "time". Cells with parameter `alone` are timed after a warm-up.
    """
    graph, resolved, parameters = load(cell.data_set, cell.quick), resolve_device(device), cell.parameters
    config = METHODS[cell.provider].config(**{"n_clusters": n_classes(graph), **cell.settings})
    original, share = undirected(graph, config, seed=cell.seed), parameters["share"]
    if parameters["rule"] == "rewire":
        changed = rewire_edges(original, share, seed=cell.seed)
    else:
        n_hops = getattr(config, "n_hops", 1)
        changed = drop_edges(original, share, parameters["rule"], n_hops=n_hops, seed=cell.seed)
    if parameters.get("alone"):
        warm_up(cell, changed, resolved)
    probe = TrainingProbe(resolved, getattr(config, "n_epochs", 0))
    fit = fit_cell(cell, changed, resolved, on_epoch=probe)
    truth, edges = np.asarray(graph.labels), np.asarray(changed.edges)
    return {
        "selection": "last",
        "last": evaluate(truth, fit.labels),
        "n_edges": changed.n_edges,
        "n_edges_before": original.graph.n_edges,
        "n_isolated": graph.n_nodes - len(np.unique(edges)),
        "homophily": float((truth[edges[0]] == truth[edges[1]]).mean()),
        "n_positive_pairs": fit.facts["n_positive_pairs"],
        "seconds": fit.seconds,
        "peak_training_bytes": probe.peak,
        "cluster_sizes": np.bincount(fit.labels, minlength=n_classes(graph)).tolist(),
        "warnings": list(fit.warnings),
    }


def _dropped(scope: Scope, data_set: str, method: str, seed: int) -> list[Variant]:
    """Return the rules and shares to run; without dropped edges, one rule stands for all.

    Some cells of seed 0 are timed and must run alone on their device.
    """
    shares = _TIMED_SHARES if scope.quick else DROP_SHARES
    changes = [("random", 0.0), *((rule, share) for rule in RULES for share in shares if share)]
    timed = _TIMED_SHARES if seed == 0 else ()
    return [({}, {"rule": rule, "share": share, "alone": share in timed}) for rule, share in changes]


def _rewired(scope: Scope, data_set: str, method: str, seed: int) -> list[Variant]:
    """Return the shares to run, for methods without a graph only the first."""
    shares = NOISE_SHARES[::3] if scope.quick else NOISE_SHARES
    return [({}, {"rule": "rewire", "share": share}) for share in shares if share == 0 or METHODS[method].uses_graph]


_BY_EDGE = (
    "Edges are changed before the fit, both directions of a pair together, and γ is built from the changed graph."
)


_DROP_PANELS: dict[str, Callable[[Sequence[Row]], list[float]]] = {
    "ACC (%)": lambda rows: list(map(acc_of, rows)),
    "positive pairs (thousands)": lambda rows: [row["values"]["n_positive_pairs"] / 1000 for row in rows],
    "training (s)": training_s,
    "peak GPU memory (MiB)": partial(measured, measure="memory"),
}


@register_experiment(
    "edge-drop",
    summary="PamCGC with 0 to 90 % of the edges dropped: at random, by weight, and by two rules that use the data.",
    cells=partial(fit_cells, case="edge-drop", task="edges", data_sets=("usps", "acm"), variants=_dropped),
)
def render_drop(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw ACC, number of pairs, training time and memory over the share of dropped edges, and write a table."""
    panels = {name: values for name, values in _DROP_PANELS.items() if values(rows)}
    data_sets = by(rows, lambda row: str(row["data_set"]))
    size = (3.1 * len(panels), 0.9 + 2.5 * len(data_sets))
    with drawing(len(data_sets), len(panels), size=size, sharex=True) as (figure, axes):
        for line, (data_set, group) in zip(axes, data_sets.items(), strict=True):
            for panel, (name, values) in zip(line, panels.items(), strict=True):
                for color, marker, (rule, label) in zip(PALETTE, "os^D", RULES.items(), strict=False):
                    # Rows without dropped edges belong to every rule.
                    same_rule = [
                        row for row in group if rule == row["parameters"]["rule"] or not row["parameters"]["share"]
                    ]
                    by_share = by(same_rule, lambda row: 100 * row["parameters"]["share"])
                    points = {share: numbers for share, same in by_share.items() if (numbers := values(same))}
                    line_with_band(panel, points, label=label, color=color, marker=marker)
                panel.set_title(f"{data_set}: {name}")
                if name != "ACC (%)":
                    panel.set_ylim(0, 1.08 * panel.dataLim.y1)
        for panel in axes[-1]:
            panel.set_xlabel("edges dropped (%)")
        legend(figure, axes[0, 0], loc="outside upper center", ncols=len(RULES))
        note = "Last epoch. Bands: one standard deviation over the seeds. Timed runs had the device to themselves."
        paths = save_figure(figure, folder, "edge-drop", rows=rows, note=f"{machines_of(rows)}. {note}")
    return paths + _drop_table(rows, folder)


def _drop_table(rows: Sequence[Row], folder: Path) -> list[Path]:
    groups = by(rows, lambda row: (row["data_set"], row["parameters"]["rule"], row["parameters"]["share"]))
    body = []
    for (data_set, rule, share), group in groups.items():
        values = [row["values"] for row in group]
        metrics = [percent([value["last"][name] for value in values]) for name in ("acc", "nmi")]
        counted = ("n_edges", "n_positive_pairs", "n_isolated")
        counts = [mean_text([value[name] for value in values], 0) for name in counted]
        inside = percent([value["homophily"] for value in values])
        costs = [mean_text(training_s(group), 2), mean_text(measured(group, "memory"), 0)]
        dropped = [RULES[rule] if share else "none dropped", f"{100 * share:.0f}"]
        body.append([data_set, *dropped, *metrics, *counts, inside, *costs])
    columns = ["data set", "rule", "dropped (%)", "ACC", "NMI", "edges", "positive pairs", "isolated", "inside classes"]
    columns += ["training (s)", "memory (MiB)"]
    note = (
        f"PamCGC with the settings of Table 1. {_BY_EDGE} Percent, mean ± standard deviation over the seeds, last "
        "epoch. Inside classes is the share of edges between nodes of the same class, which neither the rules nor the "
        "fit use. Timed runs had the device to themselves."
    )
    table = Table(columns, body, "ll" + "r" * (len(columns) - 2))
    return write_table(table, folder, "edge-drop", title="Dropping edges", rows=rows, note=note)


@register_experiment(
    "edge-noise",
    summary="PamCGC, SCGC*, SDCN, GAE and K-means with 0 to 50 % of the edges rewired at random.",
    cells=partial(
        fit_cells, case="edge-noise", task="edges", data_sets=NOISE_SETS, methods=NOISE_METHODS, variants=_rewired
    ),
)
def render_noise(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw ACC over the share of rewired edges, one panel per data set, and write a table."""
    data_sets = by(rows, lambda row: str(row["data_set"]))
    shares = sorted({row["parameters"]["share"] for row in rows})
    body = []
    with drawing(1, len(data_sets), size=(1.0 + 3.1 * len(data_sets), 3.4)) as (figure, axes):
        for panel, (data_set, group) in zip(axes[0], data_sets.items(), strict=True):
            methods = by(group, lambda row: str(row["provider"]))
            for marker, (method, same) in zip("osD^v", methods.items(), strict=False):
                by_share = by(same, lambda row: row["parameters"]["share"])
                points = {100 * share: [acc_of(row) for row in at] for share, at in by_share.items()}
                look = {"label": title_of(method), "color": method_color(method)}
                if METHODS[method].uses_graph:
                    line_with_band(panel, points, marker=marker, **look)
                else:
                    panel.axhline(mean_std(points[0]).mean, ls="dotted", **look)
                accs = [percent([row["values"]["last"]["acc"] for row in by_share.get(share, [])]) for share in shares]
                body.append([data_set, title_of(method), *accs])
            panel.set(title=data_set, xlabel="edges rewired (%)")
        axes[0, 0].set_ylabel("ACC (%)")
        legend(figure, axes[0, 0])
        note = "Last epoch. Bands: one standard deviation over the seeds. K-means does not use the graph."
        paths = save_figure(figure, folder, "edge-noise", rows=rows, note=note)
    columns = ["data set", "method", *(f"{100 * share:.0f} %" for share in shares)]
    note = (
        f"ACC in percent, mean ± standard deviation over the seeds, last epoch. {_BY_EDGE} Rewiring moves one end of "
        "an edge to a random node; the number of edges stays the same."
    )
    table = Table(columns, body, "ll" + "r" * len(shares))
    return paths + write_table(table, folder, "edge-noise", title="Rewired edges", rows=rows, note=note)


Integers: TypeAlias = "NDArray[np.int64]"


class UndirectedGraph(NamedTuple):
    """A graph with its edges as (2, P) sorted, distinct pairs i < j, its adjacency, and preprocessed features."""

    graph: AttributedGraph
    adjacency: Adjacency
    features: Features

    @property
    def pairs(self) -> Integers:
        """(2, P)."""
        edges: Any = self.graph.edges
        return np.asarray(edges)


def undirected(graph: AttributedGraph, config: Any, *, seed: int = 0) -> UndirectedGraph:
    """Return a graph with each pair of neighbors once; without edges, with the kNN graph that a fit would build."""
    preprocessing = fit_preprocessing(graph.features, config.preprocessing)
    features = preprocessing.apply(graph.features)
    edges, weight, is_knn = graph.edges, graph.edge_weight, graph.edges_are_neighbors
    if edges is None:
        # For a method without graph settings, build the graph of the other methods.
        graph_settings = config if isinstance(config, GraphConfig) else GraphConfig()
        edges, is_knn = neighbor_edges(features, graph_settings, seed=seed, preprocessing=preprocessing), True
    adjacency = build_adjacency(edges, weight, n_nodes=graph.n_nodes, expect_directed=is_knn)
    upper = sp.triu(adjacency, k=1).tocoo()
    order = np.lexsort((upper.col, upper.row))
    pairs = np.stack([upper.row, upper.col])[:, order].astype(np.int64)
    weights = None if weight is None else upper.data[order]
    return UndirectedGraph(replace(graph, edges=pairs, edge_weight=weights), adjacency, features)


def drop_order(original: UndirectedGraph, rule: str, *, n_hops: int = 1, seed: int = 0) -> Integers:
    """Return (P,) the pairs in the order in which a rule drops them, with ties broken at random.

    "weight" drops the smallest γ_ij + γ_ji first, with γ of `n_hops`; "similarity" the smallest cosine of the
    preprocessed features; "neighbors" the fewest common neighbors, and among ties the smallest cosine. No rule uses
    labels.
    """
    pairs = original.pairs
    chance = np.random.default_rng(seed_for(seed, "edge drop")).permutation(pairs.shape[1])
    if rule == "random":
        return np.argsort(chance)
    if rule == "weight":
        gamma = influence(original.adjacency, n_hops=n_hops)
        return np.lexsort((chance, np.asarray(gamma[*pairs] + gamma[*pairs[::-1]], dtype=np.float64).ravel()))
    if rule == "similarity":
        return np.lexsort((chance, _cosines(original.features, pairs)))
    if rule == "neighbors":
        common = _row_products((original.adjacency != 0).astype(np.int64).tocsr(), pairs)
        return np.lexsort((chance, _cosines(original.features, pairs), common))
    raise UnknownNameError("rule", rule, RULES)


def drop_edges(
    original: UndirectedGraph, share: float, rule: str, *, n_hops: int = 1, seed: int = 0
) -> AttributedGraph:
    """Return the graph without a share of its pairs, rounded to whole pairs; larger shares include smaller ones."""
    pairs, weight = original.pairs, original.graph.edge_weight
    keep = np.ones(pairs.shape[1], dtype=bool)
    keep[drop_order(original, rule, n_hops=n_hops, seed=seed)[: _count(share, pairs.shape[1])]] = False
    return replace(original.graph, edges=pairs[:, keep], edge_weight=None if weight is None else weight[keep])


def rewire_edges(original: UndirectedGraph, share: float, *, seed: int = 0) -> AttributedGraph:
    """Return the graph with one end of a share of its pairs moved to a random node; pairs keep their weights.

    The pairs, the ends and the new nodes are random. A moved pair is never a loop, a pair of the original graph or
    another moved pair, so the number of pairs stays the same and the share of new pairs is exact.
    """
    n_nodes, pairs = original.graph.n_nodes, original.pairs.copy()
    rng = np.random.default_rng(seed_for(seed, "edge noise"))
    waiting = rng.permutation(pairs.shape[1])[: _count(share, pairs.shape[1])]
    if pairs.shape[1] + len(waiting) > n_nodes * (n_nodes - 1) // 2:
        raise ConfigError(f"{n_nodes} nodes have no room for {len(waiting)} new edges beside {pairs.shape[1]}")
    taken = set((pairs[0] * n_nodes + pairs[1]).tolist())
    while len(waiting):
        stays = pairs[rng.integers(2, size=len(waiting)), waiting]
        moved = np.sort(np.stack([stays, rng.integers(n_nodes, size=len(waiting))]), axis=0)
        failed = []
        for number, key in enumerate((moved[0] * n_nodes + moved[1]).tolist()):
            if moved[0, number] == moved[1, number] or key in taken:
                failed.append(number)
            else:
                taken.add(key)
                pairs[:, waiting[number]] = moved[:, number]
        waiting = waiting[failed]
    return replace(original.graph, edges=pairs)


def _count(share: float, n_pairs: int) -> int:
    if not 0 <= share <= 1:
        raise ConfigError(f"share must lie between 0 and 1, got {share}")
    return round(share * n_pairs)


def _row_products(rows: Any, pairs: Integers) -> NDArray[np.float64]:
    """Return (P,) the inner products of pairs of rows."""
    first, second = rows[pairs[0]], rows[pairs[1]]
    if isinstance(rows, np.ndarray):
        return np.asarray(np.einsum("ij,ij->i", first, second, dtype=np.float64))
    return np.asarray(first.multiply(second).sum(axis=1), dtype=np.float64).ravel()


def _cosines(features: Features, pairs: Integers) -> NDArray[np.float64]:
    """Return (P,) the cosines of pairs of rows, 0 for zero rows."""
    squares = _row_products(features, np.tile(np.arange(features.shape[0]), (2, 1)))
    norms = np.sqrt(squares[pairs[0]] * squares[pairs[1]])
    cosines = np.zeros(len(norms))
    np.divide(_row_products(features, pairs), norms, out=cosines, where=norms > 0)
    return cosines
