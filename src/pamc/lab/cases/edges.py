"""What becomes of accuracy, time and memory when edges are dropped, and when edges are wrong: two open questions.

Edges are removed from, or moved in, the graph that is handed to the fit; the positive pairs γ are then built from what
is left. So every pair that the changed graph does not support is gone, with n_hops > 1 also those between nodes that
were joined through a dropped edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
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

# Ways to choose the edges that are dropped, and what they are called in figures.
RULES = {
    "random": "at random",
    "weight": "least γ first",
    "similarity": "least similar features first",
    "neighbors": "fewest common neighbors first",
}
_ROWS_AT_A_TIME = 4096

DROP_SETS = ("usps", "acm")
NOISE_SETS = ("dblp", "acm", "cite", "usps")
NOISE_METHODS = ("pamcgc", "scgc*", "sdcn", "gae", "kmeans")
DROP_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)
_TIMED_SHARES = (0.0, 0.4, 0.8)
NOISE_SHARES = (0.0, 0.1, 0.3, 0.5)

_MARKERS = dict(zip(RULES, "os^D", strict=True))


@TASKS.register("edges")
def fit_with_changed_edges(cell: Cell, device: str) -> dict[str, Any]:
    """Fit a method on a graph some of whose edges were dropped (option `rule`) or moved (`rule` "rewire").

    `homophily` is the share of edges inside a class, a fact about the changed graph that no rule and no fit sees.
    `peak_training_bytes` as in task "time". With option `alone`, a warm-up comes first, and the times count.
    """
    graph, resolved, options = load(cell.data_set, cell.quick), resolve_device(device), cell.parameters
    config = METHODS[cell.provider].config(**{"n_clusters": n_classes(graph), **cell.settings})
    given = undirected(graph, config, seed=cell.seed)
    if options["rule"] == "rewire":
        changed = rewire_edges(given, options["share"], seed=cell.seed)
    else:
        n_hops = getattr(config, "n_hops", 1)
        changed = drop_edges(given, options["share"], options["rule"], n_hops=n_hops, seed=cell.seed)
    if options.get("alone"):
        warm_up(cell, changed, resolved)
    probe = TrainingProbe(resolved, getattr(config, "n_epochs", 0))
    fit = fit_cell(cell, changed, resolved, on_epoch=probe)
    truth, edges = np.asarray(graph.labels), np.asarray(changed.edges)
    return {
        "selection": "last",
        "last": evaluate(truth, fit.labels),
        "n_edges": changed.n_edges,
        "n_edges_before": given.graph.n_edges,
        "n_isolated": graph.n_nodes - len(np.unique(edges)),
        "homophily": float((truth[edges[0]] == truth[edges[1]]).mean()),
        "n_positive_pairs": fit.facts["n_positive_pairs"],
        "seconds": fit.seconds,
        "peak_training_bytes": probe.peak,
        "cluster_sizes": np.bincount(fit.labels, minlength=n_classes(graph)).tolist(),
        "warnings": list(fit.warnings),
    }


def drop_cells(scope: Scope) -> list[Cell]:
    """Return a fit of PamCGC per data set, rule, share and seed; nothing dropped is one cell for all rules.

    Some cells of seed 0 must run alone on their device: their times count.
    """
    shares = _TIMED_SHARES if scope.quick else DROP_SHARES
    changes = [("random", 0.0), *((rule, share) for rule in RULES for share in shares if share)]

    def variants(name: str, method: str, seed: int) -> list[Variant]:
        timed = _TIMED_SHARES if seed == 0 else ()
        return [({}, {"rule": rule, "share": share, "alone": share in timed}) for rule, share in changes]

    return fit_cells(
        scope, "edge-drop", "edges", data_sets=DROP_SETS, methods=("pamcgc",), n_seeds=3, variants=variants
    )


def noise_cells(scope: Scope) -> list[Cell]:
    """Return a fit per data set, method, share of rewired edges and seed; one share for methods without a graph."""
    shares = NOISE_SHARES[::3] if scope.quick else NOISE_SHARES

    def variants(name: str, method: str, seed: int) -> list[Variant]:
        own = shares if METHODS[method].uses_graph else shares[:1]
        return [({}, {"rule": "rewire", "share": share}) for share in own]

    return fit_cells(
        scope, "edge-noise", "edges", data_sets=NOISE_SETS, methods=NOISE_METHODS, n_seeds=3, variants=variants
    )


_BY_EDGE = (
    "Edges are changed in the graph that the fit is given, both directions of a pair together, and γ is built from the "
    "changed graph."
)


@register_experiment(
    "edge-drop",
    summary="PamCGC with 0 to 90 % of the edges dropped: at random, by weight, and by two rules that use the data.",
    cells=drop_cells,
)
def render_drop(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw ACC, number of pairs, training time and memory over the share of edges dropped, and a table of them."""
    return [*_drop_figure(rows, folder), *_drop_table(rows, folder)]


def _training_s(row: Row) -> float | None:
    return float(row["values"]["seconds"]["training"]) if row["parameters"]["alone"] else None


def _mebibytes(row: Row) -> float | None:
    peak = row["values"]["peak_training_bytes"]
    return None if peak is None else peak / (1 << 20)


_DROP_PANELS: dict[str, Callable[[Row], float | None]] = {
    "ACC (%)": acc_of,
    "positive pairs (thousands)": lambda row: row["values"]["n_positive_pairs"] / 1000,
    "training (s)": _training_s,
    "peak GPU memory (MiB)": _mebibytes,
}


def _of_rule(rows: Sequence[Row], rule: str) -> list[Row]:
    """Return the rows of a rule and, with them, those in which nothing was dropped."""
    return [row for row in rows if row["parameters"]["rule"] == rule or row["parameters"]["share"] == 0]


def _drop_figure(rows: Sequence[Row], folder: Path) -> list[Path]:
    panels = {name: value for name, value in _DROP_PANELS.items() if any(value(row) is not None for row in rows)}
    data_sets = by(rows, lambda row: str(row["data_set"]))
    size = (3.1 * len(panels), 0.9 + 2.5 * len(data_sets))
    with drawing(len(data_sets), len(panels), size=size, sharex=True) as (figure, axes):
        for line, (data_set, own) in zip(axes, data_sets.items(), strict=True):
            for panel, (name, value) in zip(line, panels.items(), strict=True):
                for color, rule in zip(PALETTE, RULES, strict=False):
                    points: dict[float, list[float]] = {}
                    for row in _of_rule(own, rule):
                        if (number := value(row)) is not None:
                            points.setdefault(100 * row["parameters"]["share"], []).append(number)
                    line_with_band(panel, points, label=RULES[rule], color=color, marker=_MARKERS[rule])
                panel.set_title(f"{data_set}: {name}")
                if name != "ACC (%)":
                    panel.set_ylim(0, 1.08 * panel.dataLim.y1)
        for panel in axes[-1]:
            panel.set_xlabel("edges dropped (%)")
        legend(figure, axes[0, 0], loc="outside upper center", ncols=len(RULES))
        note = "Last epoch; bands: one standard deviation over the seeds; times of runs that were alone."
        return save_figure(figure, folder, "edge-drop", rows=rows, note=f"{machines_of(rows)}. {note}")


def _drop_table(rows: Sequence[Row], folder: Path) -> list[Path]:
    body = []
    for (data_set, rule, share), group in by(
        rows, lambda row: (row["data_set"], row["parameters"]["rule"], row["parameters"]["share"])
    ).items():
        values = [row["values"] for row in group]
        metrics = [percent([value["last"][name] for value in values]) for name in ("acc", "nmi")]
        counted = ("n_edges", "n_positive_pairs", "n_isolated")
        counts = [mean_text([value[name] for value in values], 0) for name in counted]
        times, memory = ([n for row in group if (n := value(row)) is not None] for value in (_training_s, _mebibytes))
        inside = percent([value["homophily"] for value in values])
        dropped = [RULES[rule] if share else "none dropped", f"{100 * share:.0f}"]
        body.append([data_set, *dropped, *metrics, *counts, inside, mean_text(times, 2), mean_text(memory, 0)])
    columns = ["data set", "rule", "dropped (%)", "ACC", "NMI", "edges", "positive pairs", "isolated", "inside classes"]
    columns += ["training (s)", "memory (MiB)"]
    note = (
        f"PamCGC with Table 1's settings. {_BY_EDGE} Percent, mean ± standard deviation over the seeds, last epoch. "
        "Inside classes is the share of edges whose ends have one class, which no rule and no fit sees. Times are "
        "those of runs that had the device to themselves."
    )
    table = Table(columns, body, "ll" + "r" * (len(columns) - 2))
    return write_table(table, folder, "edge-drop", title="Dropping edges", rows=rows, note=note)


@register_experiment(
    "edge-noise",
    summary="PamCGC, SCGC*, SDCN, GAE and K-means with 0 to 50 % of the edges rewired at random.",
    cells=noise_cells,
)
def render_noise(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw ACC over the share of rewired edges, one panel per data set, and a table."""
    return [*_noise_figure(rows, folder), *_noise_table(rows, folder)]


def _noise_figure(rows: Sequence[Row], folder: Path) -> list[Path]:
    data_sets = by(rows, lambda row: str(row["data_set"]))
    with drawing(1, len(data_sets), size=(1.0 + 3.1 * len(data_sets), 3.4)) as (figure, axes):
        for panel, (data_set, own) in zip(axes[0], data_sets.items(), strict=True):
            methods = by(own, lambda row: str(row["provider"]))
            for marker, (method, group) in zip("osD^v", methods.items(), strict=False):
                at = by(group, lambda row: 100 * row["parameters"]["share"])
                points = {share: [acc_of(row) for row in same] for share, same in at.items()}
                look = {"label": title_of(method), "color": method_color(method)}
                if METHODS[method].uses_graph:
                    line_with_band(panel, points, marker=marker, **look)
                else:
                    panel.axhline(mean_std(points[0]).mean, ls="dotted", **look)
            panel.set(title=data_set, xlabel="edges rewired (%)")
        axes[0, 0].set_ylabel("ACC (%)")
        legend(figure, axes[0, 0])
        note = "Last epoch; bands: one standard deviation over the seeds. K-means does not look at the graph."
        return save_figure(figure, folder, "edge-noise", rows=rows, note=note)


def _noise_table(rows: Sequence[Row], folder: Path) -> list[Path]:
    shares = sorted({row["parameters"]["share"] for row in rows})
    body = []
    for (data_set, method), group in by(rows, lambda row: (row["data_set"], row["provider"])).items():
        at = by(group, lambda row: row["parameters"]["share"])
        accs = [percent([row["values"]["last"]["acc"] for row in at.get(share, [])]) for share in shares]
        body.append([data_set, title_of(method), *accs])
    columns = ["data set", "method", *(f"{100 * share:.0f} %" for share in shares)]
    note = (
        f"ACC in percent, mean ± standard deviation over the seeds, last epoch. {_BY_EDGE} Of a rewired edge one end "
        "moves to a random node; the number of edges stays."
    )
    table = Table(columns, body, "ll" + "r" * len(shares))
    return write_table(table, folder, "edge-noise", title="Rewired edges", rows=rows, note=note)


Integers: TypeAlias = "NDArray[np.int64]"


class UndirectedGraph(NamedTuple):
    """A graph whose edges are (2, P) pairs i < j, ascending and each once, their adjacency, and prepared features."""

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
    edges, weight, own_list = graph.edges, graph.edge_weight, graph.edges_are_neighbors
    if edges is None:
        # A method without a graph gets the one that the others build.
        graph_settings = config if isinstance(config, GraphConfig) else GraphConfig()
        edges, own_list = neighbor_edges(features, graph_settings, seed=seed, preprocessing=preprocessing.kind), True
    adjacency = build_adjacency(edges, weight, n_nodes=graph.n_nodes, expect_directed=own_list)
    upper = sp.triu(adjacency, k=1).tocoo()
    order = np.lexsort((upper.col, upper.row))
    pairs = np.stack([upper.row, upper.col])[:, order].astype(np.int64)
    weights = None if weight is None else upper.data[order]
    return UndirectedGraph(replace(graph, edges=pairs, edge_weight=weights), adjacency, features)


def drop_order(given: UndirectedGraph, rule: str, *, n_hops: int = 1, seed: int = 0) -> Integers:
    """Return (P,) the pairs in the order in which a rule drops them; of equals, chance decides. No rule sees labels.

    "weight" drops the least γ_ij + γ_ji first, γ of `n_hops`; "similarity" the least cosine of the prepared features;
    "neighbors" the fewest common neighbors and, of equals, the least cosine.
    """
    pairs = given.pairs
    chance = np.random.default_rng(seed_for(seed, "edge drop")).permutation(pairs.shape[1])
    if rule == "random":
        return np.argsort(chance)
    if rule == "weight":
        gamma = influence(given.adjacency, n_hops=n_hops)
        return np.lexsort((chance, _entries(gamma, pairs) + _entries(gamma, pairs[::-1])))
    if rule == "similarity":
        return np.lexsort((chance, _cosines(given.features, pairs)))
    if rule == "neighbors":
        pattern = (given.adjacency != 0).astype(np.int64).tocsr()
        common = _by_blocks(pairs, lambda i, j: np.asarray(pattern[i].multiply(pattern[j]).sum(axis=1)).ravel())
        return np.lexsort((chance, _cosines(given.features, pairs), common))
    raise UnknownNameError("rule", rule, RULES)


def drop_edges(given: UndirectedGraph, share: float, rule: str, *, n_hops: int = 1, seed: int = 0) -> AttributedGraph:
    """Return the graph without a share of its pairs, rounded to whole pairs; larger shares drop the same and more."""
    pairs = given.pairs
    n_dropped = _count(share, pairs.shape[1])
    kept = np.ones(pairs.shape[1], dtype=bool)
    kept[drop_order(given, rule, n_hops=n_hops, seed=seed)[:n_dropped]] = False
    weight = given.graph.edge_weight
    return replace(given.graph, edges=pairs[:, kept], edge_weight=None if weight is None else weight[kept])


def rewire_edges(given: UndirectedGraph, share: float, *, seed: int = 0) -> AttributedGraph:
    """Return the graph with one end of a share of its pairs moved to a random node, weights kept.

    Which pairs, which of the two ends and where to are random. No pair becomes a loop, a pair that the graph has or
    had, or another moved one: the number of pairs stays, and the share of new ones is exact.
    """
    n_nodes, pairs = given.graph.n_nodes, given.pairs.copy()
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
    return replace(given.graph, edges=pairs)


def _count(share: float, n_pairs: int) -> int:
    if not 0 <= share <= 1:
        raise ConfigError(f"share must lie between 0 and 1, got {share}")
    return round(share * n_pairs)


def _entries(matrix: Adjacency, pairs: Integers) -> NDArray[np.float64]:
    return np.asarray(matrix[pairs[0], pairs[1]], dtype=np.float64).ravel()


def _by_blocks(pairs: Integers, value: Callable[[Integers, Integers], Any]) -> NDArray[np.float64]:
    starts = range(0, pairs.shape[1], _ROWS_AT_A_TIME)
    blocks = [value(*pairs[:, start : start + _ROWS_AT_A_TIME]) for start in starts]
    return np.concatenate([np.zeros(0), *blocks])


def _cosines(features: Features, pairs: Integers) -> NDArray[np.float64]:
    def products(i: Integers, j: Integers) -> Any:
        if isinstance(features, np.ndarray):
            return np.einsum("ij,ij->i", features[i], features[j], dtype=np.float64)
        return np.asarray(features[i].multiply(features[j]).sum(axis=1), dtype=np.float64).ravel()

    own = np.arange(features.shape[0])
    squares = _by_blocks(np.stack([own, own]), products)
    norms = np.sqrt(squares[pairs[0]] * squares[pairs[1]])
    cosines = np.zeros(pairs.shape[1])
    np.divide(_by_blocks(pairs, products), norms, out=cosines, where=norms > 0)
    return cosines
