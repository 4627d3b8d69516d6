"""How hard and soft meta-nodes, and the two forms of the proxy, change accuracy: an open question of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from pamc.config import CHOICES
from pamc.experiments.experiment import Cell, Row, Scope, register_experiment
from pamc.experiments.figures import bar_groups, by, drawing, percent, save_figure, write_table
from pamc.experiments.scopes import data_sets_of, methods_of, run_settings, seeds_of
from pamc.results.table import Table, mean_std

__all__ = ["cells", "clusters_lost", "render"]

DATA_SETS = ("dblp", "acm", "cite", "usps", "hhar")
VARIANTS = tuple(product(CHOICES["meta_assignment"], CHOICES["proxy"]))

# One hue per assignment, the darker shade for Eq 2.
_COLORS = {
    ("hard", "eq2"): "#0072B2",
    ("hard", "eq6"): "#8EC3E6",
    ("soft", "eq2"): "#D55E00",
    ("soft", "eq6"): "#F2B48C",
    ("soft_detached", "eq2"): "#009E73",
    ("soft_detached", "eq6"): "#93D3BF",
}


def cells(scope: Scope) -> list[Cell]:
    """Return a fit of PamCGC per data set, way of assignment, proxy and seed."""
    return [
        Cell(
            "assignment",
            "fit",
            method,
            data_set,
            seed,
            run_settings(scope, method, data_set, meta_assignment=assignment, proxy=proxy),
            quick=scope.quick,
        )
        for data_set in data_sets_of(scope, DATA_SETS)
        for method in methods_of(scope, ("pamcgc",))
        for assignment, proxy in VARIANTS
        for seed in seeds_of(scope, 3)
    ]


def clusters_lost(row: Row) -> int:
    """Return how many clusters have no member at the end."""
    return sum(size == 0 for size in row["values"]["cluster_sizes"])


@register_experiment(
    "assignment",
    summary="PamCGC with hard, soft and soft detached meta-nodes and both forms of the proxy.",
    cells=cells,
)
def render(rows: Sequence[Row], folder: Path) -> list[Path]:
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
    return paths + _figure(rows, data_sets, groups, folder)


def _figure(
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
            bar_groups(panel, data_sets, bars, colors=[_COLORS[variant] for variant in VARIANTS], spread="ACC" in title)
            panel.set_title(title)
            panel.set_ylim(bottom=0)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center")
        return save_figure(figure, folder, "assignment", rows=rows)
