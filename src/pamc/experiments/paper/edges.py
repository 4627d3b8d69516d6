"""What becomes of accuracy, time and memory when edges are dropped, and when edges are wrong: two open questions.

Edges are removed from, or moved in, the graph that is handed to the fit; the positive pairs γ are then built from what
is left. So every pair that the changed graph does not support is gone, with n_hops > 1 also those between nodes that
were joined through a dropped edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pamc.data.attributed_graph import AttributedGraph
from pamc.experiments.data import load, n_classes
from pamc.experiments.edge_changes import RULES, drop_edges, rewire_edges, undirected
from pamc.experiments.experiment import Cell, Row, Scope, register_experiment
from pamc.experiments.figures import (
    PALETTE,
    by,
    drawing,
    line_with_band,
    method_color,
    percent,
    save_figure,
    title_of,
    write_table,
)
from pamc.experiments.rows import machine_of
from pamc.experiments.scopes import data_sets_of, methods_of, run_settings, seeds_of
from pamc.experiments.tasks import TASKS
from pamc.experiments.timing import TrainingProbe, fit_cell, warm_up
from pamc.models.method import METHODS
from pamc.results.metrics import evaluate
from pamc.results.table import Table, mean_std
from pamc.runtime import resolve_device

__all__ = ["drop_cells", "fit_with_changed_edges", "noise_cells", "render_drop", "render_noise"]

DROP_SETS = ("usps", "acm")
NOISE_SETS = ("dblp", "acm", "cite", "usps")
NOISE_METHODS = ("pamcgc", "scgc*", "sdcn", "gae", "kmeans")
DROP_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)
_TIMED_SHARES = (0.0, 0.4, 0.8)
NOISE_SHARES = (0.0, 0.1, 0.3, 0.5)

_MARKERS = dict(zip(RULES, "os^D", strict=True))


def _homophily(graph: AttributedGraph) -> float:
    labels, edges = np.asarray(graph.labels), np.asarray(graph.edges)
    return float((labels[edges[0]] == labels[edges[1]]).mean())


@TASKS.register("edges")
def fit_with_changed_edges(cell: Cell, device: str) -> dict[str, Any]:
    """Fit a method on a graph some of whose edges were dropped (option `rule`) or moved (`rule` "rewire").

    `homophily` is the share of edges inside a class, a fact about the changed graph that no rule and no fit sees.
    `peak_training_bytes` as in task "time". With option `alone`, a warm-up comes first, and the times count.
    """
    graph, resolved, options = load(cell.data_set, cell.quick), resolve_device(device), cell.options
    config = METHODS[cell.method].config(**{"n_clusters": n_classes(graph), **cell.settings})
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
    degree = np.bincount(np.asarray(changed.edges).ravel(), minlength=graph.n_nodes)
    return {
        "selection": "last",
        "last": evaluate(np.asarray(graph.labels), fit.labels),
        "n_edges": changed.n_edges,
        "n_edges_before": given.graph.n_edges,
        "n_isolated": int((degree == 0).sum()),
        "homophily": _homophily(changed),
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
    return [
        Cell(
            "edge-drop",
            "edges",
            method,
            data_set,
            seed,
            run_settings(scope, method, data_set),
            {"rule": rule, "share": share, "alone": seed == 0 and share in _TIMED_SHARES},
            scope.quick,
        )
        for data_set in data_sets_of(scope, DROP_SETS)
        for method in methods_of(scope, ("pamcgc",))
        for seed in seeds_of(scope, 3)
        for rule, share in changes
    ]


def noise_cells(scope: Scope) -> list[Cell]:
    """Return a fit per data set, method, share of rewired edges and seed; one share for methods without a graph."""
    shares = NOISE_SHARES[::3] if scope.quick else NOISE_SHARES
    return [
        Cell(
            "edge-noise",
            "edges",
            method,
            data_set,
            seed,
            run_settings(scope, method, data_set),
            {"rule": "rewire", "share": share},
            scope.quick,
        )
        for data_set in data_sets_of(scope, NOISE_SETS)
        for method in methods_of(scope, NOISE_METHODS)
        for seed in seeds_of(scope, 3)
        for share in (shares if METHODS[method].uses_graph else shares[:1])
    ]


_BY_EDGE = (
    "Edges are changed in the graph that the fit is given, both directions of a pair together, and γ is built from the "
    "changed graph."
)


@register_experiment(
    "edge-drop",
    summary="PamCGC with 0 to 90 % of the edges dropped: at random, by weight, and by two rules that look at the data.",
    cells=drop_cells,
)
def render_drop(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw ACC, number of pairs, training time and memory over the share of edges dropped, and a table of them."""
    return [*_drop_figure(rows, folder), *_drop_table(rows, folder)]


def _acc(row: Row) -> float:
    return 100 * float(row["values"]["last"]["acc"])


def _training_s(row: Row) -> float | None:
    return float(row["values"]["seconds"]["training"]) if row["options"]["alone"] else None


def _mebibytes(row: Row) -> float | None:
    peak = row["values"]["peak_training_bytes"]
    return None if peak is None else peak / (1 << 20)


_DROP_PANELS: dict[str, Callable[[Row], float | None]] = {
    "ACC (%)": _acc,
    "positive pairs (thousands)": lambda row: row["values"]["n_positive_pairs"] / 1000,
    "training (s)": _training_s,
    "peak GPU memory (MiB)": _mebibytes,
}


def _of_rule(rows: Sequence[Row], rule: str) -> list[Row]:
    """Return the rows of a rule and, with them, those in which nothing was dropped."""
    return [row for row in rows if row["options"]["rule"] == rule or row["options"]["share"] == 0]


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
                            points.setdefault(100 * row["options"]["share"], []).append(number)
                    line_with_band(panel, points, label=RULES[rule], color=color, marker=_MARKERS[rule])
                panel.set_title(f"{data_set}: {name}")
                if name != "ACC (%)":
                    panel.set_ylim(0, 1.08 * panel.dataLim.y1)
        for panel in axes[-1]:
            panel.set_xlabel("edges dropped (%)")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(RULES))
        machines = ", ".join(dict.fromkeys(map(machine_of, rows)))
        note = f"{machines}. Last epoch; bands: one standard deviation over the seeds; times of runs that were alone."
        return save_figure(figure, folder, "edge-drop", rows=rows, note=note)


def _drop_table(rows: Sequence[Row], folder: Path) -> list[Path]:
    body = []
    for (data_set, rule, share), group in by(
        rows, lambda row: (row["data_set"], row["options"]["rule"], row["options"]["share"])
    ).items():
        values = [row["values"] for row in group]
        times, memory = ([n for row in group if (n := value(row)) is not None] for value in (_training_s, _mebibytes))
        body.append(
            [
                data_set,
                RULES[rule] if share else "none dropped",
                f"{100 * share:.0f}",
                percent([value["last"]["acc"] for value in values]),
                percent([value["last"]["nmi"] for value in values]),
                f"{mean_std([value['n_edges'] for value in values]).mean:.0f}",
                f"{mean_std([value['n_positive_pairs'] for value in values]).mean:.0f}",
                f"{mean_std([value['n_isolated'] for value in values]).mean:.0f}",
                percent([value["homophily"] for value in values]),
                f"{mean_std(times).mean:.2f}" if times else "–",
                f"{mean_std(memory).mean:.0f}" if memory else "–",
            ]
        )
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
    summary="PamCGC, SCGC*, SDCN, GAE and K-means with 0 to 50 % of the edges moved to random ends.",
    cells=noise_cells,
)
def render_noise(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw ACC over the share of rewired edges, one panel per data set, and a table."""
    return [*_noise_figure(rows, folder), *_noise_table(rows, folder)]


def _noise_figure(rows: Sequence[Row], folder: Path) -> list[Path]:
    data_sets = by(rows, lambda row: str(row["data_set"]))
    with drawing(1, len(data_sets), size=(1.0 + 3.1 * len(data_sets), 3.4)) as (figure, axes):
        for panel, (data_set, own) in zip(axes[0], data_sets.items(), strict=True):
            for marker, (method, group) in zip("osD^v", by(own, lambda row: str(row["method"])).items(), strict=False):
                points = {100 * s: [_acc(r) for r in g] for s, g in by(group, lambda r: r["options"]["share"]).items()}
                if not METHODS[method].uses_graph:
                    ((_, flat),) = points.items()
                    panel.axhline(mean_std(flat).mean, color=method_color(method), ls="dotted", label=title_of(method))
                else:
                    line_with_band(panel, points, label=title_of(method), color=method_color(method), marker=marker)
            panel.set(title=data_set, xlabel="edges rewired (%)")
        axes[0, 0].set_ylabel("ACC (%)")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center")
        note = "Last epoch; bands: one standard deviation over the seeds. K-means does not look at the graph."
        return save_figure(figure, folder, "edge-noise", rows=rows, note=note)


def _noise_table(rows: Sequence[Row], folder: Path) -> list[Path]:
    shares = sorted({row["options"]["share"] for row in rows})
    body = []
    for (data_set, method), group in by(rows, lambda row: (row["data_set"], row["method"])).items():
        at = by(group, lambda row: row["options"]["share"])
        accs = [percent([row["values"]["last"]["acc"] for row in at.get(share, [])]) for share in shares]
        body.append([data_set, title_of(method), *accs])
    columns = ["data set", "method", *(f"{100 * share:.0f} %" for share in shares)]
    note = (
        f"ACC in percent, mean ± standard deviation over the seeds, last epoch. {_BY_EDGE} Of a rewired edge one end "
        "moves to a random node; the number of edges stays."
    )
    table = Table(columns, body, "ll" + "r" * len(shares))
    return write_table(table, folder, "edge-noise", title="Rewired edges", rows=rows, note=note)
