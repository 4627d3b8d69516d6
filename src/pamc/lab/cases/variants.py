"""How accuracy depends on settings, on the kind of meta-nodes, and on classes that are known (the paper's appendix).

Settings are not run in the full product: each value one at a time with Table 1's others, and a random part of the
product that is the same for both methods and all data sets. Known nodes count for the meta-node of their class
(`known_labels`), which the paper calls possible and leaves open; nothing else of the fit sees them. A fifth of the
nodes is never known, whatever the share, so that all shares can be compared on the same nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from pamc.lab.settings import PAPER_SETS, Variant, fit_cells, load, n_classes, settings_of
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

# Random points of the product beside those that change one value.
N_RANDOM = 8
_N_RANDOM_QUICK = 2


def combinations(data_set: str, *, n_random: int = N_RANDOM) -> list[dict[str, Any]]:
    """Return settings to run on a data set, each once: those that change one value of its own, then random ones."""
    own = {name: settings_of("pamcgc", data_set)[name] for name in GRID}
    one_at_a_time = [{**own, name: value} for name, values in GRID.items() for value in values]
    everything = [dict(zip(GRID, values, strict=True)) for values in product(*GRID.values())]
    order = np.random.default_rng(seed_for(0, "hyper")).permutation(len(everything))
    drawn = [everything[number] for number in order[:n_random]]
    return list({tuple(point.values()): point for point in [*one_at_a_time, *drawn]}.values())


def hyper_cells(scope: Scope) -> list[Cell]:
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


def _point(row: Row) -> tuple[float, ...]:
    return tuple(row["settings"][name] for name in GRID)


@register_experiment(
    "hyper",
    summary="Accuracy of PamCGC and SCGC* as a function of τ, α, the number of hops and the learning rate.",
    cells=hyper_cells,
)
def render_hyper(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw the distribution of ACC at each value of each setting, with PamC and with the N × N loss, and a table."""
    return [*_hyper_figure(rows, folder), *_hyper_table(rows, folder)]


def _hyper_figure(rows: Sequence[Row], folder: Path) -> list[Path]:
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
        groups = [[acc_of(r) for r in rows if r["provider"] == method and r["settings"][name] == v] for v in values]
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


def _hyper_table(rows: Sequence[Row], folder: Path) -> list[Path]:
    body = []
    for data_set, own in by(rows, lambda row: str(row["data_set"])).items():
        for name in GRID:
            for value in sorted({row["settings"][name] for row in own}):
                at = [row for row in own if row["settings"][name] == value]
                texts = [_summary([acc_of(row) for row in at if row["provider"] == m]) for m in METHODS_COMPARED]
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
    return f"{np.median(values):.1f} ({min(values):.1f} to {max(values):.1f})" if values else MISSING


def _wins(rows: Sequence[Row]) -> tuple[int, int]:
    """Return in how many combinations PamC is at least as good as the N × N loss, and how many have both."""
    found = {(row["provider"], row["seed"], _point(row)): acc_of(row) for row in rows}
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
    summary="PamCGC with hard, soft and detached soft meta-nodes and both forms of the proxy.",
    cells=assignment_cells,
)
def render_assignment(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw ACC and clusters lost of every variant on every data set, and a table of them."""
    data_sets = data_sets_in(rows)
    groups = by(rows, lambda row: (row["settings"]["meta_assignment"], row["settings"]["proxy"], row["data_set"]))
    body = []
    for data_set in data_sets:
        for variant in VARIANTS:
            group = groups.get((*variant, data_set), [])
            lost = [clusters_lost(row) for row in group]
            metrics = [percent([row["values"]["last"][name] for row in group]) for name in ("acc", "nmi", "ari", "f1")]
            runs = f"{sum(n > 0 for n in lost)} of {len(lost)}"
            body.append([data_set, *variant, *metrics, mean_text(lost, 1), runs])
    columns = ["data set", "meta-nodes", "proxy", "ACC", "NMI", "ARI", "F1", "clusters lost", "runs that lost any"]
    note = "Percent, mean ± standard deviation over the seeds, last epoch. A cluster is lost when no row is in it."
    table, title = Table(columns, body, "lllrrrrrr"), "Hard and soft meta-nodes, Eq 2 and Eq 6"
    paths = write_table(table, folder, "assignment", title=title, rows=rows, note=note)
    return paths + _assignment_figure(rows, folder)


def _assignment_figure(rows: Sequence[Row], folder: Path) -> list[Path]:
    data_sets = data_sets_in(rows)
    groups = by(rows, lambda row: (row["settings"]["meta_assignment"], row["settings"]["proxy"], row["data_set"]))
    panels = {"ACC (%), last epoch": acc_of, "clusters lost, mean of the runs": clusters_lost}
    with drawing(1, 2, size=(11, 3.6), width_ratios=[1.4, 1]) as (figure, axes):
        for panel, (title, value) in zip(axes[0], panels.items(), strict=True):
            bars = {
                f"{assignment.replace('_', ', ')}, {proxy.replace('eq', 'Eq ')}": [
                    [value(row) for row in groups.get((assignment, proxy, data_set), [])] for data_set in data_sets
                ]
                for assignment, proxy in VARIANTS
            }
            bar_groups(panel, data_sets, bars, colors=list(_VARIANT_COLORS.values()), spread="ACC" in title)
            panel.set_title(title)
            panel.set_ylim(bottom=0)
        legend(figure, axes[0, 0])
        return save_figure(figure, folder, "assignment", rows=rows)


SHARES = (0.0, 0.01, 0.05, 0.1, 1.0)

# Share of the nodes that is never known.
HELD_OUT = 0.2


def _stratified_order(labels: Integers, *, seed: int) -> Integers:
    """Return (N,) the nodes in a random order over which each class is spread evenly: parts have the classes' shares.

    The i-th drawn node of a class of n stands at the place (i − ½)/n, and chance decides between equal places.
    """
    chance = np.random.default_rng(seed_for(seed, "known labels")).permutation(len(labels))
    place = np.empty(len(labels))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        members = members[np.argsort(chance[members])]
        place[members] = (np.arange(len(members)) + 0.5) / len(members)
    return np.lexsort((chance, place))


def reveal(labels: Integers, share: float, *, seed: int) -> tuple[Integers, NDArray[np.bool_]]:
    """Return known labels (N,), −1 where unknown, and which nodes (N,) are held out.

    A share of all N nodes is known, rounded to whole nodes, but never the held-out fifth: a share of 1 is all others.
    Of one seed, the nodes known at a share are known at every larger one, and the held-out nodes are the same.
    Classes become 0 … C−1 in ascending order.
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


def supervision_cells(scope: Scope) -> list[Cell]:
    """Return a fit of PamCGC per data set, share of known labels and seed."""
    return fit_cells(
        scope,
        "supervision",
        "known-labels",
        data_sets=PAPER_SETS,
        methods=("pamcgc",),
        n_seeds=3,
        variants=lambda *_: [({}, {"share": share}) for share in SHARES],
    )


@TASKS.register("known-labels")
def fit_with_known_labels(cell: Cell, device: str) -> dict[str, Any]:
    """Fit a method with the classes of some nodes known and evaluate it on the others.

    `unknown` has the metrics of all nodes that were not known, `held_out` those of the fifth that is known at no share.
    `agreement` is the share of nodes whose cluster has the number of their class, with no matching: the fit numbers its
    clusters by the known labels. It is None where none were known.
    """
    graph = load(cell.data_set, cell.quick)
    labels = np.unique(np.asarray(graph.labels), return_inverse=True)[1].astype(np.int64)
    known, held_out = reveal(labels, cell.parameters["share"], seed=cell.seed)
    given = known if (known >= 0).any() else None
    fit = fit_cell(cell, graph, resolve_device(device), known_labels=given)

    def measured(nodes: NDArray[np.bool_]) -> dict[str, float | None]:
        agreement = None if given is None else float((fit.labels[nodes] == labels[nodes]).mean())
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


_CURVES = {
    "ACC by matching, unknown nodes": ("unknown", "acc"),
    "agreement without matching, unknown nodes": ("unknown", "agreement"),
    "ACC by matching, the same fifth of nodes": ("held_out", "acc"),
}


@register_experiment(
    "supervision",
    summary="PamCGC with known classes for 0 to 100 % of the nodes, evaluated on the others.",
    cells=supervision_cells,
)
def render_supervision(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw accuracy on unknown nodes over the share of known ones, one panel per data set, and a table."""
    return [*_supervision_figure(rows, folder), *_supervision_table(rows, folder)]


def _share(share: float) -> str:
    return f"{100 * share:g}" if share < 1 else f"{100 * (1 - HELD_OUT):g}"


def _values(rows: Sequence[Row], nodes: str, metric: str) -> list[float]:
    return [value for row in rows if (value := row["values"][nodes][metric]) is not None]


def _supervision_figure(rows: Sequence[Row], folder: Path) -> list[Path]:
    data_sets = by(rows, lambda row: str(row["data_set"]))
    shares = sorted({row["parameters"]["share"] for row in rows})
    styles = zip(PALETTE, "osD", ("solid", "dashed", "dotted"), strict=False)
    looks = dict(zip(_CURVES, styles, strict=False))
    with drawing(1, len(data_sets), size=(0.6 + 2.7 * len(data_sets), 3.4)) as (figure, axes):
        for panel, (data_set, own) in zip(axes[0], data_sets.items(), strict=True):
            for name, (nodes, metric) in _CURVES.items():
                points = {}
                for place, share in enumerate(shares):
                    found = _values([row for row in own if row["parameters"]["share"] == share], nodes, metric)
                    if found:
                        points[float(place)] = [100 * value for value in found]
                color, marker, style = looks[name]
                line_with_band(panel, points, label=name, color=color, marker=marker, linestyle=style)
            panel.set_xticks(range(len(shares)), [_share(share) for share in shares])
            panel.set(title=data_set, xlabel="nodes of known class (%)")
        axes[0, 0].set_ylabel("%")
        legend(figure, axes[0, 0], loc="outside upper center", ncols=3 if len(data_sets) > 3 else 1)
        note = (
            "Last epoch; bands: one standard deviation over the seeds. The last point: all but a held-out fifth known."
        )
        return save_figure(figure, folder, "supervision", rows=rows, note=note)


def _supervision_table(rows: Sequence[Row], folder: Path) -> list[Path]:
    body = []
    for (data_set, share), group in by(rows, lambda row: (row["data_set"], row["parameters"]["share"])).items():
        n_known = f"{group[0]['values']['n_known']}"
        metrics = [("unknown", name) for name in ("acc", "agreement", "nmi", "ari", "f1")]
        metrics += [("held_out", name) for name in ("acc", "agreement")]
        body.append([data_set, _share(share), n_known, *(percent(_values(group, *metric)) for metric in metrics)])
    columns = ["data set", "known (%)", "known", "ACC", "agreement", "NMI", "ARI", "F1", "ACC, same fifth"]
    columns.append("agreement, same fifth")
    note = (
        "Percent, mean ± standard deviation over the seeds, last epoch, on the nodes that were not known; the last two "
        "columns on a fifth of the nodes that is known at no share. ACC matches clusters with classes; agreement does "
        "not: the fit numbers its clusters by the known labels. Known nodes are drawn at random, class by class in "
        "proportion."
    )
    table = Table(columns, body)
    return write_table(table, folder, "supervision", title="Known classes", rows=rows, note=note)
