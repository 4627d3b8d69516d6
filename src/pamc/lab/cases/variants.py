"""Accuracy as a function of settings, of the kind of meta-nodes, and of known classes (the paper's appendix).

The settings are not run as a full grid: each value is varied on its own with the other settings of Table 1, and a
random part of the grid is the same for both methods and all data sets. Known nodes count towards the meta-node of
their class (`known_labels`), an extension that the paper mentions; the fit uses them nowhere else. A fifth of the nodes
is never known, so that all shares can be compared on the same nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pamc.config import CHOICES
from pamc.errors import ConfigError
from pamc.lab.cell import TASKS, Cell, Row, Scope, register_experiment
from pamc.lab.fits import fit_cell
from pamc.lab.pages.style import (
    MISSING,
    PALETTE,
    acc_of,
    bar_groups,
    by,
    data_sets_in,
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
from pamc.lab.settings import METRICS, Variant, fit_cells, load, n_classes, settings_of
from pamc.results.metrics import evaluate
from pamc.results.table import Table
from pamc.runtime import resolve_device, seed_for

Integers: TypeAlias = "NDArray[np.int64]"

DATA_SETS = ("dblp", "acm", "usps")
METHODS_COMPARED = ("pamcgc", "scgc*")
GRID: dict[str, tuple[float, ...]] = {
    "tau": (0.25, 0.5, 1.0, 2.0),
    "alpha": (0.5, 1.0, 2.0),
    "n_hops": (1, 2, 3),
    "lr": (1e-3, 1e-4),
}
_SYMBOLS = {"tau": "τ", "alpha": "α", "n_hops": "n_hops", "lr": "learning rate"}

# Number of random points of the grid.
N_RANDOM, _N_RANDOM_QUICK = 8, 2


def combinations(data_set: str, *, n_random: int = N_RANDOM) -> list[dict[str, Any]]:
    """Return the distinct settings to run on a data set: one value changed at a time, then random points."""
    table_1 = {name: settings_of("pamcgc", data_set)[name] for name in GRID}
    one_at_a_time = [{**table_1, name: value} for name, values in GRID.items() for value in values]
    grid = [dict(zip(GRID, values, strict=True)) for values in product(*GRID.values())]
    order = np.random.default_rng(seed_for(0, "hyper")).permutation(len(grid))
    random_points = [grid[number] for number in order[:n_random]]
    return list({tuple(point.values()): point for point in [*one_at_a_time, *random_points]}.values())


def _points(scope: Scope, data_set: str, method: str, seed: int) -> list[Variant]:
    n_random = _N_RANDOM_QUICK if scope.quick else N_RANDOM
    return [(point, {}) for point in combinations(data_set, n_random=n_random)]


def _point(row: Row) -> tuple[float, ...]:
    return tuple(row["settings"][name] for name in GRID)


@register_experiment(
    "hyper",
    summary="Accuracy of PamCGC and SCGC* as a function of τ, α, the number of hops and the learning rate.",
    cells=partial(fit_cells, case="hyper", data_sets=DATA_SETS, methods=METHODS_COMPARED, n_seeds=1, variants=_points),
)
def render_hyper(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw the distribution of ACC at each value of each setting, with PamC and the N × N loss, and write a table."""
    data_sets = by(rows, lambda row: str(row["data_set"]))
    methods = [method for method in METHODS_COMPARED if any(row["provider"] == method for row in rows)]
    with drawing(len(data_sets), len(GRID), size=(11, 0.8 + 2.2 * len(data_sets)), sharey="row") as (figure, axes):
        for line, (data_set, group) in zip(axes, data_sets.items(), strict=True):
            for panel, name in zip(line, GRID, strict=True):
                _boxes(panel, group, name, methods)
                panel.set_xlabel(_SYMBOLS[name])
            line[0].set_ylabel(f"{data_set}\nACC (%)")
        from matplotlib.patches import Patch

        handles = [Patch(facecolor=method_color(m), alpha=0.45, edgecolor=method_color(m)) for m in methods]
        names = {"pamcgc": "with PamC (PamCGC)", "scgc*": "with the N × N loss (SCGC*)"}
        figure.legend(handles, [names[method] for method in methods], loc="outside upper center", ncols=2)
        note = "Boxes: quartiles and median over all combinations with this value. Dots: single runs. Last epoch."
        return save_figure(figure, folder, "hyper", rows=rows, note=note) + _hyper_table(rows, folder)


def _boxes(panel: Any, rows: Sequence[Row], name: str, methods: Sequence[str]) -> None:
    values = sorted({row["settings"][name] for row in rows})
    jitter = np.random.default_rng(0)
    width = 0.8 / len(methods)
    for number, method in enumerate(methods):
        color = method_color(method)
        groups = by([row for row in rows if row["provider"] == method], lambda row: row["settings"][name])
        shift = (number - (len(methods) - 1) / 2) * width
        boxes = {values.index(value) + shift: [acc_of(row) for row in groups[value]] for value in sorted(groups)}
        panel.boxplot(
            list(boxes.values()),
            positions=list(boxes),
            widths=0.8 * width,
            showfliers=False,
            patch_artist=True,
            boxprops={"facecolor": color, "alpha": 0.45, "edgecolor": color},
            medianprops={"color": "black", "linewidth": 1.4},
            whiskerprops={"color": color},
            capprops={"color": color},
            manage_ticks=False,
        )
        for center, accuracies in boxes.items():
            x = center + jitter.uniform(-0.25, 0.25, len(accuracies)) * width
            panel.plot(x, accuracies, ".", color=color, markersize=3, alpha=0.8)
    panel.set_xticks(range(len(values)), [f"{value:g}" for value in values])


def _hyper_table(rows: Sequence[Row], folder: Path) -> list[Path]:
    data_sets = by(rows, lambda row: str(row["data_set"]))
    body = []
    for data_set, group in data_sets.items():
        for name in GRID:
            for value in sorted({row["settings"][name] for row in group}):
                at = [row for row in group if row["settings"][name] == value]
                texts = [_summary([acc_of(row) for row in at if row["provider"] == m]) for m in METHODS_COMPARED]
                body.append([data_set, name, f"{value:g}", *texts, _wins(at)])
    counts = ", ".join(f"{len(set(map(_point, group)))} on {name}" for name, group in data_sets.items())
    n_all = int(np.prod([len(values) for values in GRID.values()]))
    note = (
        "ACC in percent at the last epoch: median (minimum to maximum) over the combinations with this value. "
        f"Combinations run: {counts}. They vary one value at a time with the other settings of Table 1, and include a "
        f"random part of the full grid of {n_all}, the same for both methods. The last column counts the combinations "
        "in which PamC is at least as good."
    )
    titles = [title_of(method) for method in METHODS_COMPARED]
    table = Table(["data set", "setting", "value", *titles, "PamC ≥ N × N"], body, "llrrrr")
    return write_table(table, folder, "hyper", title="Settings and accuracy", rows=rows, note=note)


def _summary(values: Sequence[float]) -> str:
    return f"{np.median(values):.1f} ({min(values):.1f} to {max(values):.1f})" if values else MISSING


def _wins(rows: Sequence[Row]) -> str:
    """Return in how many of the combinations that have both methods PamC is at least as good as the N × N loss."""
    ours, theirs = (
        {(row["seed"], _point(row)): acc_of(row) for row in rows if row["provider"] == method}
        for method in METHODS_COMPARED
    )
    wins = [ours[key] >= theirs[key] for key in ours.keys() & theirs.keys()]
    return f"{sum(wins)} of {len(wins)}"


VARIANTS = tuple(product(CHOICES["meta_assignment"], CHOICES["proxy"]))

# One hue per assignment, with the darker shade for Eq 2.
_VARIANT_COLORS = ("#0072B2", "#8EC3E6", "#D55E00", "#F2B48C", "#009E73", "#93D3BF")


def clusters_lost(row: Row) -> int:
    """Return the number of clusters without members at the end."""
    return int(row["values"]["cluster_sizes"].count(0))


def _assignments(scope: Scope, data_set: str, method: str, seed: int) -> list[Variant]:
    return [({"meta_assignment": assignment, "proxy": proxy}, {}) for assignment, proxy in VARIANTS]


@register_experiment(
    "assignment",
    summary="PamCGC with hard, soft and detached soft meta-nodes and both forms of the proxy.",
    cells=partial(fit_cells, case="assignment", variants=_assignments),
)
def render_assignment(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw ACC and lost clusters of every variant on every data set, and write a table of them."""
    data_sets = data_sets_in(rows)
    groups = by(rows, lambda row: (row["settings"]["meta_assignment"], row["settings"]["proxy"], row["data_set"]))
    body = []
    for data_set, variant in product(data_sets, VARIANTS):
        group = groups.get((*variant, data_set), [])
        lost = [clusters_lost(row) for row in group]
        metrics = [percent([row["values"]["last"][name] for row in group]) for name in METRICS]
        runs = f"{len(lost) - lost.count(0)} of {len(lost)}"
        body.append([data_set, *variant, *metrics, mean_text(lost, 1), runs])
    columns = ["data set", "meta-nodes", "proxy", "ACC", "NMI", "ARI", "F1", "clusters lost", "runs that lost any"]
    note = "Percent, mean ± standard deviation over the seeds, last epoch. A cluster without members is lost."
    table, title = Table(columns, body, "lllrrrrrr"), "Hard and soft meta-nodes, Eq 2 and Eq 6"
    paths = write_table(table, folder, "assignment", title=title, rows=rows, note=note)
    panels = {"ACC (%), last epoch": acc_of, "clusters lost, mean of the runs": clusters_lost}
    with drawing(1, 2, size=(11, 3.6), width_ratios=[1.4, 1]) as (figure, axes):
        for panel, (title, value) in zip(axes[0], panels.items(), strict=True):
            bars = {
                f"{nodes.replace('_', ', ')}, {proxy.replace('eq', 'Eq ')}": [
                    [value(row) for row in groups.get((nodes, proxy, data_set), [])] for data_set in data_sets
                ]
                for nodes, proxy in VARIANTS
            }
            bar_groups(panel, data_sets, bars, colors=_VARIANT_COLORS, spread="ACC" in title)
            panel.set_title(title)
            panel.set_ylim(bottom=0)
        legend(figure, axes[0, 0])
        return paths + save_figure(figure, folder, "assignment", rows=rows)


SHARES = (0.0, 0.01, 0.05, 0.1, 1.0)

# Share of the nodes that are never known.
HELD_OUT = 0.2


def _stratified_order(labels: Integers, *, seed: int) -> Integers:
    """Return (N,) the nodes in a random order in which every part has about the class proportions of the whole.

    The i-th node of a class of n is ranked by (i − ½)/n; ties are broken at random.
    """
    shuffled = np.random.default_rng(seed_for(seed, "known labels")).permutation(len(labels))
    rank = np.empty(len(labels))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        members = members[np.argsort(shuffled[members])]
        rank[members] = (np.arange(len(members)) + 0.5) / len(members)
    return np.lexsort((shuffled, rank))


def reveal(labels: Integers, share: float, *, seed: int) -> tuple[Integers, NDArray[np.bool_]]:
    """Return the known labels (N,), −1 for unknown, and a mask (N,) of the held-out nodes.

    A share of all N nodes is known, rounded to whole nodes, but never the held-out fifth: with a share of 1, all other
    nodes are known. For a given seed, a larger share includes the nodes of a smaller one, and the held-out nodes stay
    the same. Classes become 0 … C−1 in ascending order.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"share must lie between 0 and 1, got {share}")
    order = _stratified_order(labels, seed=seed)
    n_nodes = len(labels)
    n_held_out = round(HELD_OUT * n_nodes)
    n_known = min(round(share * n_nodes), n_nodes - n_held_out)
    known = np.full(n_nodes, -1, dtype=np.int64)
    known[order[:n_known]] = np.unique(labels, return_inverse=True)[1][order[:n_known]]
    held_out = np.zeros(n_nodes, dtype=bool)
    held_out[order[n_nodes - n_held_out :]] = True
    return known, held_out


@TASKS.register("known-labels")
def fit_with_known_labels(cell: Cell, device: str) -> dict[str, Any]:
    """Fit a method with known classes for some nodes and evaluate it on the others.

    `unknown` has the metrics on all nodes whose class was not known, `held_out` those on the fifth that is never known.
    `agreement` is the share of nodes whose cluster number equals their class, without matching, because the fit numbers
    its clusters by the known labels; None if no labels were known.
    """
    graph = load(cell.data_set, cell.quick)
    labels = np.unique(np.asarray(graph.labels), return_inverse=True)[1].astype(np.int64)
    known, held_out = reveal(labels, cell.parameters["share"], seed=cell.seed)
    any_known = bool((known >= 0).any())
    fit = fit_cell(cell, graph, resolve_device(device), known_labels=known if any_known else None)

    def measured(nodes: NDArray[np.bool_]) -> dict[str, float | None]:
        agreement = float((fit.labels[nodes] == labels[nodes]).mean()) if any_known else None
        return {**evaluate(labels[nodes], fit.labels[nodes]), "agreement": agreement}

    return {
        "selection": "last",
        "n_known": int((known >= 0).sum()),
        "n_held_out": int(held_out.sum()),
        "unknown": measured(known < 0),
        "held_out": measured(held_out),
        "seconds": fit.seconds,
        "cluster_sizes": np.bincount(fit.labels, minlength=n_classes(graph)).tolist(),
        "warnings": list(fit.warnings),
    }


# Nodes and metric of each curve, and its color, marker and line style.
_CURVES = {
    "ACC by matching, unknown nodes": ("unknown", "acc", PALETTE[0], "o", "solid"),
    "agreement without matching, unknown nodes": ("unknown", "agreement", PALETTE[1], "s", "dashed"),
    "ACC by matching, the same fifth of nodes": ("held_out", "acc", PALETTE[2], "D", "dotted"),
}


def _known_shares(scope: Scope, data_set: str, method: str, seed: int) -> list[Variant]:
    return [({}, {"share": share}) for share in SHARES]


@register_experiment(
    "supervision",
    summary="PamCGC with known classes for 0 to 100 % of the nodes, evaluated on the others.",
    cells=partial(fit_cells, case="supervision", task="known-labels", variants=_known_shares),
)
def render_supervision(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw accuracy on unknown nodes over the share of known ones, one panel per data set, and write a table."""
    data_sets = by(rows, lambda row: str(row["data_set"]))
    shares = sorted({row["parameters"]["share"] for row in rows})
    with drawing(1, len(data_sets), size=(0.6 + 2.7 * len(data_sets), 3.4)) as (figure, axes):
        for panel, (data_set, group) in zip(axes[0], data_sets.items(), strict=True):
            by_share = by(group, lambda row: float(shares.index(row["parameters"]["share"])))
            for label, (nodes, metric, color, marker, style) in _CURVES.items():
                values = {position: _values(same, nodes, metric) for position, same in by_share.items()}
                points = {x: [100 * value for value in y] for x, y in values.items() if y}
                line_with_band(panel, points, label=label, color=color, marker=marker, linestyle=style)
            panel.set_xticks(range(len(shares)), map(_share, shares))
            panel.set(title=data_set, xlabel="nodes of known class (%)")
        axes[0, 0].set_ylabel("%")
        legend(figure, axes[0, 0], loc="outside upper center", ncols=3 if len(data_sets) > 3 else 1)
        note = "Last epoch. Bands: one standard deviation over the seeds. Last point: all known but a held-out fifth."
        return save_figure(figure, folder, "supervision", rows=rows, note=note) + _supervision_table(rows, folder)


def _share(share: float) -> str:
    return f"{100 * min(share, 1 - HELD_OUT):g}"


def _values(rows: Sequence[Row], nodes: str, metric: str) -> list[float]:
    return [value for row in rows if (value := row["values"][nodes][metric]) is not None]


def _supervision_table(rows: Sequence[Row], folder: Path) -> list[Path]:
    metrics = [("unknown", name) for name in ("acc", "agreement", "nmi", "ari", "f1")]
    metrics += [("held_out", name) for name in ("acc", "agreement")]
    body = [
        [data_set, _share(share), str(group[0]["values"]["n_known"]), *(percent(_values(group, *m)) for m in metrics)]
        for (data_set, share), group in by(rows, lambda row: (row["data_set"], row["parameters"]["share"])).items()
    ]
    columns = ["data set", "known (%)", "known", "ACC", "agreement", "NMI", "ARI", "F1", "ACC, same fifth"]
    columns.append("agreement, same fifth")
    note = (
        "Percent, mean ± standard deviation over the seeds, last epoch, on the nodes of unknown class; the last two "
        "columns are for the fifth of the nodes that is never known. ACC matches clusters with classes. Agreement does "
        "not, because the fit numbers its clusters by the known labels. Known nodes are drawn at random, in proportion "
        "to the sizes of the classes."
    )
    table = Table(columns, body)
    return write_table(table, folder, "supervision", title="Known classes", rows=rows, note=note)
