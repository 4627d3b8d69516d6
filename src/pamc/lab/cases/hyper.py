"""How PamC and the N × N loss depend on τ, α, the number of hops and the learning rate (the paper's appendix).

Not the full product: each value one at a time with Table 1's other settings, and a random part of the product that is
the same for both methods and all data sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from pamc.config import CHOICES
from pamc.lab.cell import Cell, Row, Scope, register_experiment
from pamc.lab.pages.style import (
    bar_groups,
    by,
    drawing,
    legend,
    method_color,
    percent,
    save_figure,
    title_of,
    write_table,
)
from pamc.lab.settings import PAPER_SETS, Variant, fit_cells, settings_of
from pamc.results.table import Table, mean_std
from pamc.runtime import seed_for

__all__ = ["GRID", "cells", "clusters_lost", "combinations", "render"]

DATA_SETS = ("dblp", "acm", "usps")
METHODS_COMPARED = ("pamcgc", "scgc*")
GRID: dict[str, tuple[float, ...]] = {
    "tau": (0.25, 0.5, 1.0, 2.0),
    "alpha": (0.5, 1.0, 2.0),
    "n_hops": (1, 2, 3),
    "lr": (1e-3, 1e-4),
}
_SYMBOLS = {"tau": "τ", "alpha": "α", "n_hops": "n_hops", "lr": "learning rate"}

# Random points of the product beside those that change one value.
N_RANDOM = 8
_N_RANDOM_QUICK = 2


def combinations(data_set: str, *, n_random: int = N_RANDOM) -> list[dict[str, Any]]:
    """Return settings to run on a data set, each once: those that change one value of its own, then random ones.

    Examples
    --------
    >>> len(combinations("acm", n_random=0))
    9
    """
    own = {name: settings_of("pamcgc", data_set)[name] for name in GRID}
    one_at_a_time = [{**own, name: value} for name, values in GRID.items() for value in values]
    everything = [dict(zip(GRID, values, strict=True)) for values in product(*GRID.values())]
    order = np.random.default_rng(seed_for(0, "hyper")).permutation(len(everything))
    drawn = [everything[number] for number in order[:n_random]]
    return list({tuple(point.values()): point for point in [*one_at_a_time, *drawn]}.values())


def cells(scope: Scope) -> list[Cell]:
    """Return a fit per data set, combination, method and seed."""
    n_random = _N_RANDOM_QUICK if scope.quick else N_RANDOM
    return fit_cells(
        scope,
        "hyper",
        data_sets=DATA_SETS,
        methods=METHODS_COMPARED,
        n_seeds=1,
        variants=lambda name, *_: [(point, {}) for point in combinations(name, n_random=n_random)],
    )


def _acc(row: Row) -> float:
    return 100 * float(row["values"]["last"]["acc"])


def _point(row: Row) -> tuple[float, ...]:
    return tuple(row["settings"][name] for name in GRID)


@register_experiment(
    "hyper",
    summary="Accuracy of PamCGC and SCGC* over τ, α, the number of hops and the learning rate.",
    cells=cells,
)
def render(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw the distribution of ACC at each value of each setting, with PamC and with the N × N loss, and a table."""
    return [*_figure(rows, folder), *_table(rows, folder)]


def _figure(rows: Sequence[Row], folder: Path) -> list[Path]:
    data_sets = by(rows, lambda row: str(row["data_set"]))
    methods = [method for method in METHODS_COMPARED if any(row["provider"] == method for row in rows)]
    with drawing(len(data_sets), len(GRID), size=(11, 0.8 + 2.2 * len(data_sets)), sharey="row") as (figure, axes):
        for line, (data_set, own) in zip(axes, data_sets.items(), strict=True):
            for panel, name in zip(line, GRID, strict=True):
                _boxes(panel, own, name, methods)
                panel.set_xlabel(_SYMBOLS[name])
            line[0].set_ylabel(f"{data_set}\nACC (%)")
        from matplotlib.patches import Patch

        handles = [Patch(facecolor=method_color(m), alpha=0.45, edgecolor=method_color(m)) for m in methods]
        names = {"pamcgc": "with PamC (PamCGC)", "scgc*": "with the N × N loss (SCGC*)"}
        figure.legend(handles, [names[method] for method in methods], loc="outside upper center", ncols=2)
        note = "Boxes: quartiles and median over all combinations with that value; dots: single runs. Last epoch."
        return save_figure(figure, folder, "hyper", rows=rows, note=note)


def _boxes(panel: Any, rows: Sequence[Row], name: str, methods: Sequence[str]) -> None:
    values = sorted({row["settings"][name] for row in rows})
    spread = np.random.default_rng(0)
    width = 0.8 / len(methods)
    for number, method in enumerate(methods):
        color = method_color(method)
        groups = [[_acc(r) for r in rows if r["provider"] == method and r["settings"][name] == v] for v in values]
        places = np.arange(len(values)) + (number - (len(methods) - 1) / 2) * width
        full = [(place, group) for place, group in zip(places, groups, strict=True) if group]
        panel.boxplot(
            [group for _, group in full],
            positions=[place for place, _ in full],
            widths=0.8 * width,
            showfliers=False,
            patch_artist=True,
            boxprops={"facecolor": color, "alpha": 0.45, "edgecolor": color},
            medianprops={"color": "black", "linewidth": 1.4},
            whiskerprops={"color": color},
            capprops={"color": color},
            manage_ticks=False,
        )
        for place, group in full:
            x = place + spread.uniform(-0.25, 0.25, len(group)) * width
            panel.plot(x, group, ".", color=color, markersize=3, alpha=0.8)
    panel.set_xticks(range(len(values)), [f"{value:g}" for value in values])


def _table(rows: Sequence[Row], folder: Path) -> list[Path]:
    body = []
    for data_set, own in by(rows, lambda row: str(row["data_set"])).items():
        for name in GRID:
            for value in sorted({row["settings"][name] for row in own}):
                at = [row for row in own if row["settings"][name] == value]
                texts = [_summary([_acc(row) for row in at if row["provider"] == m]) for m in METHODS_COMPARED]
                better, n_pairs = _wins(at)
                body.append([data_set, name, f"{value:g}", *texts, f"{better} of {n_pairs}"])
    n_points = {name: len({_point(row) for row in own}) for name, own in by(rows, lambda r: r["data_set"]).items()}
    listed = ", ".join(f"{count} on {name}" for name, count in n_points.items())
    n_all = int(np.prod([len(values) for values in GRID.values()]))
    note = (
        "ACC in percent at the last epoch: median (least to greatest) over the combinations with that value. "
        f"Combinations run: {listed}; each value one at a time with Table 1's other settings, and a random part of the "
        f"{n_all} in the full product, the same for both methods. The last column counts the combinations in which "
        "PamC is at least as good."
    )
    titles = [title_of(method) for method in METHODS_COMPARED]
    table = Table(["data set", "setting", "value", *titles, "PamC ≥ N × N"], body, "llrrrr")
    return write_table(table, folder, "hyper", title="Settings and accuracy", rows=rows, note=note)


def _summary(values: Sequence[float]) -> str:
    if not values:
        return "–"
    return f"{np.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def _wins(rows: Sequence[Row]) -> tuple[int, int]:
    """Return in how many combinations PamC is at least as good as the N × N loss, and how many have both."""
    found = {(row["provider"], row["seed"], _point(row)): _acc(row) for row in rows}
    pairs = [
        (acc, found["scgc*", seed, point])
        for (method, seed, point), acc in found.items()
        if method == "pamcgc" and ("scgc*", seed, point) in found
    ]
    return sum(ours >= theirs for ours, theirs in pairs), len(pairs)


VARIANTS = tuple(product(CHOICES["meta_assignment"], CHOICES["proxy"]))

# One hue per assignment, the darker shade for Eq 2.
_VARIANT_COLORS = {
    ("hard", "eq2"): "#0072B2",
    ("hard", "eq6"): "#8EC3E6",
    ("soft", "eq2"): "#D55E00",
    ("soft", "eq6"): "#F2B48C",
    ("soft_detached", "eq2"): "#009E73",
    ("soft_detached", "eq6"): "#93D3BF",
}


def assignment_cells(scope: Scope) -> list[Cell]:
    """Return a fit of PamCGC per data set, way of assignment, proxy and seed."""
    changes: list[Variant] = [({"meta_assignment": assignment, "proxy": proxy}, {}) for assignment, proxy in VARIANTS]
    return fit_cells(
        scope, "assignment", data_sets=PAPER_SETS, methods=("pamcgc",), n_seeds=3, variants=lambda *_: changes
    )


def clusters_lost(row: Row) -> int:
    """Return how many clusters have no member at the end."""
    return sum(size == 0 for size in row["values"]["cluster_sizes"])


@register_experiment(
    "assignment",
    summary="PamCGC with hard, soft and soft detached meta-nodes and both forms of the proxy.",
    cells=assignment_cells,
)
def render_assignment(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw ACC and clusters lost of every variant on every data set, and a table of them."""
    data_sets = list(dict.fromkeys(row["data_set"] for row in rows))
    groups = by(rows, lambda row: (row["settings"]["meta_assignment"], row["settings"]["proxy"], row["data_set"]))
    body = []
    for data_set in data_sets:
        for variant in VARIANTS:
            group = groups.get((*variant, data_set), [])
            lost = [clusters_lost(row) for row in group]
            metrics = [percent([row["values"]["last"][name] for row in group]) for name in ("acc", "nmi", "ari", "f1")]
            mean_lost = f"{mean_std(lost).mean:.1f}" if lost else "–"
            body.append([data_set, *variant, *metrics, mean_lost, f"{sum(n > 0 for n in lost)} of {len(lost)}"])
    columns = ["data set", "meta-nodes", "proxy", "ACC", "NMI", "ARI", "F1", "clusters lost", "runs that lost any"]
    note = "Percent, mean ± standard deviation over the seeds, last epoch. A cluster is lost when no row is in it."
    paths = write_table(
        Table(columns, body, "lllrrrrrr"),
        folder,
        "assignment",
        title="Hard and soft meta-nodes, Eq 2 and Eq 6",
        rows=rows,
        note=note,
    )
    return paths + _assignment_figure(rows, data_sets, groups, folder)


def _assignment_figure(
    rows: Sequence[Row], data_sets: Sequence[str], groups: dict[tuple[str, str, str], list[Row]], folder: Path
) -> list[Path]:
    panels = {
        "ACC (%), last epoch": lambda row: 100 * row["values"]["last"]["acc"],
        "clusters lost, mean of the runs": clusters_lost,
    }
    with drawing(1, 2, size=(11, 3.6), width_ratios=[1.4, 1]) as (figure, axes):
        for panel, (title, value) in zip(axes[0], panels.items(), strict=True):
            bars = {
                f"{assignment.replace('_', ', ')}, {proxy.replace('eq', 'Eq ')}": [
                    [value(row) for row in groups.get((assignment, proxy, data_set), [])] for data_set in data_sets
                ]
                for assignment, proxy in VARIANTS
            }
            bar_groups(
                panel, data_sets, bars, colors=[_VARIANT_COLORS[variant] for variant in VARIANTS], spread="ACC" in title
            )
            panel.set_title(title)
            panel.set_ylim(bottom=0)
        legend(figure, axes[0, 0])
        return save_figure(figure, folder, "assignment", rows=rows)
