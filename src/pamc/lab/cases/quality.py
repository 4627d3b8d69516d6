"""Quality of the default on graphs and tables: other methods beside it, initializations, ablations, constants."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from pamc.config import CHOICES, FitConfig
from pamc.lab.cell import TASKS, Cell, Row, Scope, register_experiment
from pamc.lab.pages.style import (
    CLASS_COLORS,
    MISSING,
    acc_of,
    by,
    data_sets_in,
    drawing,
    legend,
    mean_text,
    percent,
    save_figure,
    write_table,
)
from pamc.lab.rivals import N_TEXT_DIRECTIONS, RIVALS, points_of
from pamc.lab.settings import (
    CHECK_TABLES,
    CHOICE_TABLES,
    TABLES,
    data_sets_of,
    load,
    methods_of,
    n_classes,
    paper_figure,
    quick_settings,
    rival_figure,
    seeds_of,
)
from pamc.results.metrics import evaluate
from pamc.results.table import Table
from pamc.training.constants import fit_constants

SEVEN = ("dblp", "cite", "acm", "usps", "hhar", "cora", "amazon_photo")
DATA_SETS = (*SEVEN, "news4", "reut21578_4", "digits")

# Data sets with a graph, for which no neighbors are searched.
GRAPHS = ("dblp", "cite", "acm", "cora", "amazon_photo")
DEFAULT = FitConfig().init
INITIALIZERS = (DEFAULT, *(name for name in CHOICES["init"] if name != DEFAULT))

# One setting of the default changed at a time, by the names that rows refer to.
UNTRAINED, WITHOUT_CONTRAST, CONTRAST_ALONE = "no training", "no contrast (α 0)", "contrast alone (β 0)"
ABLATIONS: dict[str, dict[str, Any]] = {
    UNTRAINED: {"n_epochs": 0},
    WITHOUT_CONTRAST: {"alpha": 0.0},
    CONTRAST_ALONE: {"beta": 0.0},
    "the same contrast for every graph (α 1)": {"alpha": 1.0},
    "Eq 6": {"proxy": "eq6"},
    "soft meta-nodes": {"meta_assignment": "soft"},
    "1 hop": {"n_hops": 1},
    "encoder of 500, 500 and 2000": {"hidden": [500, 500, 2000]},
    "raw features": {"preprocessing": "none"},
    "no features hidden": {"pretrain_dropout": 0.0},
}

# Names of ablations in tables, where they differ from those that rows refer to.
_TITLES = {
    "encoder of 500, 500 and 2000": "hidden layers of 500, 500 and 2000 units",
    "no features hidden": "no dropout of features in pre-training",
}

# Constants of the default that are not settings, by module, each with a smaller and a larger value.
CONSTANTS: dict[str, tuple[float, float]] = {
    "initialize.family._CONDUCTANCE_WEIGHT": (0.05, 0.2),
    "initialize.family._LEAST_CONDUCTANCE": (1e-5, 1e-3),
    "initialize.family._N_SUPPORTERS": (1, 3),
    "initialize.family._NEARLY_EQUAL": (0.1, 0.2),
    "initialize.consensus._N_NEIGHBORS": (7, 15),
    "initialize.consensus.N_REPEATS": (9, 36),
    "initialize.partitions._MIN_SHARE": (0.2, 0.4),
    "initialize.families.layout._N_EPOCHS": (150, 600),
    "initialize.fitting._LEAST_STEPS": (300, 1200),
    "initialize.fitting._TOLERANCE": (0.05, 0.2),
    "training.fallback._TOLERANCE": (0.02, 0.1),
    "training.pipeline._MOST_ALPHA": (2.0, 8.0),
}

_N_SEEDS, _N_SEEDS_TABLES, _N_SEEDS_PARTS, _N_SEEDS_ABLATION = 10, 5, 5, 2

# Only the last epoch counts, so the others are evaluated rarely.
_EVALUATED_EVERY = 50

# Label-free scores of a fit, and their location in a row.
_SCORES = {
    "modularity": ("scores", "modularity"),
    "silhouette of z": ("scores", "silhouette"),
    "agreement of families": ("facts", "support"),
    "objective": ("scores", "objective"),
}
_MARKERS = dict(zip(INITIALIZERS, cycle("os^Dv"), strict=False))

# Phases that are part of another one, or no part of the fit.
_NOT_ADDED = ("confidence", "centers", "evaluation")

# The fits with the shipped constants, with which fits with other constants are compared on the same machine.
_SHIPPED = "constants as they are"

# A change of the mean ACC, in points, below which a constant hardly matters.
_HARMLESS = 0.5

# A table is lost if pamc is more than this far below the better of K-means and a Gaussian mixture.
_LOST = 0.05


def _settings(scope: Scope, **changes: Any) -> dict[str, Any]:
    """Return all settings explicitly, so that rows of other defaults are not mistaken for these."""
    # Two hops are the default for data sets of these sizes.
    values = FitConfig(**{"n_hops": 2, **changes}).to_dict()
    # The number of clusters is that of the classes, no row is noise, and rows are no images.
    for name in ("n_clusters", "min_confidence", "image_shape"):
        del values[name]
    tiny = {name: value for name, value in quick_settings("pamcgc").items() if name not in changes}
    return {**values, **(tiny if scope.quick else {})}


def cells(scope: Scope) -> list[Cell]:
    """Return fits of all data sets with the default, other initializations and ablations, and of tables with rivals."""
    ablated = [UNTRAINED] if scope.quick else list(ABLATIONS)
    runs = [("pamcgc", name, _settings(scope, init=name), _n_seeds(name)) for name in INITIALIZERS]
    runs += [("pamcgc", name, _settings(scope, **ABLATIONS[name]), _n_seeds(name)) for name in ablated]
    for name in ("none", "auto"):
        settings = {"preprocessing": name, **(quick_settings("kmeans") if scope.quick else {})}
        runs.append(("kmeans", f"kmeans {name}", settings, _N_SEEDS))
    wanted = methods_of(scope, ("pamcgc", "kmeans"))
    known = [
        _fit(scope, data_set, method, variant, settings, seed)
        for data_set in data_sets_of(scope, DATA_SETS)
        for method, variant, settings, n_seeds in runs
        if method in wanted
        for seed in seeds_of(scope, n_seeds)
    ]
    return known + ([] if scope.quick else [*_table_cells(scope), *_constant_cells(scope)])


def _n_seeds(variant: str) -> int:
    if variant in (UNTRAINED, WITHOUT_CONTRAST, CONTRAST_ALONE):
        return _N_SEEDS_PARTS
    return _N_SEEDS if variant == DEFAULT else _N_SEEDS_ABLATION


def _fit(
    scope: Scope, data_set: str, method: str, variant: str, settings: dict[str, Any], seed: int, **more: Any
) -> Cell:
    parameters = {"variant": variant, "own_graph": True, "evaluated_every": _EVALUATED_EVERY, **more}
    return Cell("quality", "fit", method, data_set, seed, settings, parameters, scope.quick)


def _table_cells(scope: Scope) -> list[Cell]:
    """Return fits of the tables with the default and without training, and with other methods."""
    result = []
    for data_set in data_sets_of(scope, TABLES):
        if "pamcgc" in methods_of(scope, ("pamcgc",)):
            for variant, changes in ((DEFAULT, {}), (UNTRAINED, ABLATIONS[UNTRAINED])):
                settings = _settings(scope, **changes)
                seeds = seeds_of(scope, _N_SEEDS_TABLES)
                result += [_fit(scope, data_set, "pamcgc", variant, settings, seed) for seed in seeds]
        for name, rival in RIVALS.items():
            if scope.methods is None:
                seeds = seeds_of(scope, _N_SEEDS_TABLES) if rival.is_random else range(1)
                parameters = {"variant": name}
                result += [Cell("quality", "rival", name, data_set, seed, {}, parameters) for seed in seeds]
    return result


def _constant_cells(scope: Scope) -> list[Cell]:
    """Return one fit of each data set for each value of each constant, and one with the shipped constants."""
    if "pamcgc" not in methods_of(scope, ("pamcgc",)):
        return []
    changes: dict[str, dict[str, float]] = {_SHIPPED: {}}
    changes |= {f"{name} {value:g}": {name: value} for name, values in CONSTANTS.items() for value in values}
    return [
        _fit(scope, data_set, "pamcgc", variant, _settings(scope), 0, constants=constants)
        for data_set in data_sets_of(scope, (*DATA_SETS, *TABLES))
        for variant, constants in changes.items()
    ]


@TASKS.register("rival")
def cluster_by_rival(cell: Cell, device: str) -> dict[str, Any]:
    """Cluster a table by another method and compare its labels with the true classes."""
    graph = load(cell.data_set, cell.quick)
    truth = np.asarray(graph.labels)
    started = time.perf_counter()
    points = points_of(graph.features, seed=cell.seed)
    labels = RIVALS[cell.provider].cluster(points, n_classes(graph), cell.seed)
    seconds = time.perf_counter() - started
    scored = truth >= 0
    return {"last": evaluate(truth[scored], np.unique(labels, return_inverse=True)[1][scored]), "seconds": seconds}


@register_experiment(
    "quality",
    summary="Accuracy of the default settings, without labels, on graphs and tables; comparison and ablations.",
    cells=cells,
)
def render(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write the default and its competitors, what each part adds, the decisions, the ablations and the scores."""
    known = [row for row in rows if row["data_set"] not in TABLES and "constants" not in row["parameters"]]
    tables = [row for row in rows if row["data_set"] in TABLES and "constants" not in row["parameters"]]
    parts = (_summary, _initializations, _decisions, _ablations, _scores)
    paths = [path for part in parts for path in part(known, folder)]
    if tables:
        paths += [*_tables(tables, folder), *_parts(known, tables, folder), *_constants(rows, folder)]
    return paths


def _of(rows: Sequence[Row], variant: str, data_set: str) -> dict[int, Row]:
    """Return the rows of a variant on a data set by seed."""
    wanted = (variant, data_set)
    return {row["seed"]: row for row in rows if (row["parameters"]["variant"], row["data_set"]) == wanted}


def figures_of(rows: Sequence[Row], variant: str, data_set: str, metric: str = "acc") -> list[float]:
    """Return a metric of a variant on a data set at the last epoch, one value per seed."""
    return [float(row["values"]["last"][metric]) for row in _of(rows, variant, data_set).values()]


def table_mean(rows: Sequence[Row], variant: str, metric: str = "acc", names: Sequence[str] = TABLES) -> float:
    """Return the mean over tables of a metric of a variant, in percent; NaN if a table has no row."""
    values = [figures_of(rows, variant, name, metric) for name in names]
    return 100 * float(np.mean([np.mean(of_table) for of_table in values])) if all(values) else math.nan


def measured(rows: Sequence[Row], variants: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the data sets that have rows of all variants."""
    return [name for name in names if all(_of(rows, variant, name) for variant in variants)]


def summary_table(rows: Sequence[Row], data_sets: Sequence[str], metrics: Sequence[str] = ("acc", "nmi")) -> Table:
    """Return metrics of K-means, the paper, the best other label-free program, and the default."""
    lines = []
    for metric in metrics:
        title = metric.upper()
        raw, prepared, ours = (
            [percent(figures_of(rows, variant, name, metric)) for name in data_sets]
            for variant in ("kmeans none", "kmeans auto", DEFAULT)
        )
        paper = [paper_figure(name, "pamcgc", metric) for name in data_sets]
        lines += [
            [f"{title}: K-means, raw features", *raw],
            [f"{title}: K-means, preprocessed", *prepared],
            [f"{title}: paper", *(MISSING if figure is None else f"{figure.mean:.1f}" for figure in paper)],
            [f"{title}: best other program", *(rival_figure(name, metric) for name in data_sets)],
            [f"**{title}: pamc, defaults**", *(f"**{text}**" for text in ours)],
        ]
    return Table(["", *data_sets], lines)


def _summary(rows: Sequence[Row], folder: Path) -> list[Path]:
    means = []
    for metric in ("acc", "nmi"):
        seven = [figures_of(rows, DEFAULT, name, metric) for name in SEVEN]
        if all(seven):
            means.append(f"{metric.upper()} {100 * float(np.mean([np.mean(values) for values in seven])):.1f}")
    note = (
        "Percent, mean ± standard deviation over the seeds. pamc and K-means use no labels, the same settings for all "
        "data sets, and the last epoch. The paper's values use settings per data set and presumably the best epoch, "
        "both chosen with labels. The best other program is the best of several, each run on these files without "
        "labels and with fixed settings." + (f" Mean over the first seven: {', '.join(means)}." if means else "")
    )
    table = summary_table(rows, data_sets_in(rows))
    return write_table(table, folder, "quality", title="Default settings, without labels", rows=rows, note=note)


def _initializations(rows: Sequence[Row], folder: Path) -> list[Path]:
    data_sets, present = data_sets_in(rows), {row["parameters"]["variant"] for row in rows}
    body = []
    for name in (name for name in INITIALIZERS if name in present):
        groups = [list(_of(rows, name, data_set).values()) for data_set in data_sets]
        body.append([name, *(percent([row["values"]["last"]["acc"] for row in g]) + _losses(g) for g in groups)])
    note = (
        "ACC in percent at the last epoch, mean ± standard deviation over the seeds, with all other settings at their "
        "defaults. In parentheses: number of runs that lost clusters."
    )
    table = Table(["initialization", *data_sets], body)
    return write_table(table, folder, "quality-starts", title="All initializations", rows=rows, note=note)


def _losses(rows: Sequence[Row]) -> str:
    """Return the number of runs that lost a cluster, in parentheses, or nothing."""
    lost = sum(0 in row["values"]["cluster_sizes"] for row in rows)
    return f" ({lost})" if lost else ""


def _decisions(rows: Sequence[Row], folder: Path) -> list[Path]:
    body = []
    for data_set in data_sets_in(rows):
        values = [row["values"] for row in _of(rows, DEFAULT, data_set).values()]
        if not values:
            continue
        facts = [value["facts"] for value in values]
        names = ("preprocessing", "graph", "inputs", "clusters_by", "fallback")
        decisions = [_decision([_shortened(each) for each in facts], name) for name in names]
        seconds = seconds_of(rows, data_set)
        trust = [100 * float(fact["graph_trust"]) for fact in facts if "graph_trust" in fact]
        trusted = f"{np.mean(trust):.0f} %" if trust else MISSING
        body.append([data_set, *decisions, trusted, mean_text(seconds, 1)])
    columns = ["data set", "preprocessing", "graph", "inputs", "clusters by", "fallback", "graph trust", "fit (s)"]
    note = (
        "Decisions of the default settings, which depend on the data alone. If seeds differ, the number of seeds is in "
        "parentheses."
    )
    table = Table(columns, body, "llllllrr")
    return write_table(table, folder, "quality-decisions", title="Decisions", rows=rows, note=note)


def seconds_of(rows: Sequence[Row], data_set: str) -> list[float]:
    """Return the time of each fit of a data set with the default."""
    phases = [row["values"]["seconds"] for row in _of(rows, DEFAULT, data_set).values()]
    return [sum(value for name, value in times.items() if name not in _NOT_ADDED) for times in phases]


def _shortened(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts with a short text for clusters that are a consensus of several families."""
    n_families = str(facts.get("clusters_by", "")).count(",") + 1
    return {**facts, "clusters_by": f"{n_families} families"} if n_families > 1 else facts


def _decision(facts: Sequence[dict[str, Any]], name: str) -> str:
    counts = Counter(str(fact.get(name) or "none") for fact in facts)
    return ", ".join(value if len(counts) == 1 else f"{value} ({count})" for value, count in counts.items())


def _ablations(rows: Sequence[Row], folder: Path) -> list[Path]:
    data_sets, present = data_sets_in(rows), {row["parameters"]["variant"] for row in rows}
    body = [["the default", *(percent(figures_of(rows, DEFAULT, data_set)) for data_set in data_sets)]]
    ablated = [name for name in ABLATIONS if name in present]
    body += [
        [_TITLES.get(name, name), *(_against_default(rows, name, data_set) for data_set in data_sets)]
        for name in ablated
    ]
    note = (
        "ACC in percent at the last epoch; below the first line, differences from the default on the same seeds, in "
        "points. In parentheses: number of runs that lost clusters."
    )
    table = Table(["", *data_sets], body)
    return write_table(table, folder, "quality-ablations", title="One change at a time", rows=rows, note=note)


def _against_default(rows: Sequence[Row], name: str, data_set: str) -> str:
    default, ablated = (_of(rows, variant, data_set) for variant in (DEFAULT, name))
    seeds = sorted(default.keys() & ablated.keys())
    if not seeds:
        return MISSING
    differences = [ablated[seed]["values"]["last"]["acc"] - default[seed]["values"]["last"]["acc"] for seed in seeds]
    return f"{100 * float(np.mean(differences)):+.1f}" + _losses([ablated[seed] for seed in seeds])


def _tables(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write the accuracy of pamc and of other methods on each table, and means over both groups of tables."""
    variants = {
        **{name: rival.title for name, rival in RIVALS.items()},
        UNTRAINED: "pamc, no training",
        DEFAULT: "pamc",
    }

    def mean(variant: str, data_set: str) -> float:
        return table_mean(rows, variant, names=[data_set])

    compared = measured(rows, [*RIVALS, DEFAULT], TABLES)

    body = [[name, *(_number(mean(variant, name)) for variant in variants)] for name in compared]
    body += [
        [f"**{len(names)} {title}** (ACC / NMI)", *(f"**{_pair(rows, variant, names)}**" for variant in variants)]
        for title, group in (
            ("tables used to choose the defaults", CHOICE_TABLES),
            ("held-out tables", CHECK_TABLES),
            ("tables", TABLES),
        )
        if (names := [name for name in group if name in compared])
    ]
    lost = [
        name
        for name in compared
        if mean(DEFAULT, name) < max(mean("k-means", name), mean("mixture", name)) - 100 * _LOST
    ]
    trained = measured(rows, [UNTRAINED, DEFAULT], TABLES)
    fallbacks = [row["values"]["facts"]["fallback"] for row in rows if row["parameters"]["variant"] == DEFAULT]
    note = (
        f"ACC in percent, mean over up to {_N_SEEDS_TABLES} seeds. Every method has one setting and knows the "
        "number of clusters, except HDBSCAN, which finds its own. Other methods get standardized columns or, for "
        f"sparse text, {N_TEXT_DIRECTIONS} leading directions. pamc is more than {100 * _LOST:.0f} points below the "
        f"better of K-means and the mixture on {len(lost)} tables{': ' if lost else ''}{', '.join(lost)}. "
        f"{sum(f is not None for f in fallbacks)} of {len(fallbacks)} fits were undone or repeated."
    )
    if set(trained) & set(CHECK_TABLES):
        gains = {name: mean(DEFAULT, name) - mean(UNTRAINED, name) for name in trained}
        checked = [gains[name] for name in CHECK_TABLES if name in gains]
        worst = min(gains, key=lambda name: gains[name])
        change = (
            f" Training changes the mean ACC over the {len(checked)} held-out tables by {np.mean(checked):+.1f} points"
        )
        note += f"{change}; on {worst}, where it is worst, by {gains[worst]:+.1f}."
    table = Table(["", *variants.values()], body)
    return write_table(table, folder, "quality-tables", title="Tables", rows=rows, note=note)


def _number(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:.1f}"


def _parts(known: Sequence[Row], tables: Sequence[Row], folder: Path) -> list[Path]:
    """Write what initialization, training and the contrast add on graphs and on tables."""
    features_only = [name for name in DATA_SETS if name not in GRAPHS]
    lines = {variant: variant for variant in (UNTRAINED, WITHOUT_CONTRAST, CONTRAST_ALONE)} | {DEFAULT: "default"}
    groups = {}
    for title, rows, wanted, variants in (
        ("graphs", known, GRAPHS, [*lines]),
        ("images, sensors and text", known, features_only, [*lines]),
        ("tables", tables, TABLES, [UNTRAINED, DEFAULT]),
    ):
        rows = _of_shared_seeds(rows, variants, wanted)
        names = measured(rows, variants, wanted)
        if names:
            groups[f"{len(names)} {title}"] = (rows, names)
    body = [
        [title, *(_pair(rows, variant, names) for rows, names in groups.values())] for variant, title in lines.items()
    ]
    note = (
        "ACC / NMI in percent, means over the seeds that all lines share and over the data sets of a group for which "
        "all lines were measured."
    )
    table, title = Table(["", *groups], body), "What training and the contrast add"
    return write_table(table, folder, "quality-parts", title=title, rows=[*known, *tables], note=note)


def _of_shared_seeds(rows: Sequence[Row], variants: Sequence[str], names: Sequence[str]) -> list[Row]:
    """Return the rows whose seeds were measured with all variants on the same data set."""
    shared = {name: set.intersection(*(set(_of(rows, variant, name)) for variant in variants)) for name in names}
    return [row for row in rows if row["seed"] in shared.get(row["data_set"], ())]


def _pair(rows: Sequence[Row], variant: str, names: Sequence[str]) -> str:
    acc, nmi = (table_mean(rows, variant, metric, names) for metric in ("acc", "nmi"))
    return MISSING if math.isnan(acc) else f"{acc:.1f} / {nmi:.1f}"


def _constants(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write how the mean ACC over all data sets changes with each constant."""
    variants = [f"{constant} {value:g}" for constant, values in CONSTANTS.items() for value in values]
    names = measured(rows, [_SHIPPED, *variants], (*DATA_SETS, *TABLES))
    body = []
    for constant, values in CONSTANTS.items():
        default = fit_constants()[constant]
        line, harmless = [f"`{constant}`", f"{default:g}"], [float(default)]
        for value in values:
            changes = [_change(rows, f"{constant} {value:g}", name) for name in names]
            present = [change for change in changes if change is not None]
            mean = 100 * float(np.mean(present)) if present else math.nan
            line.append(f"{value:g}: {mean:+.1f}" if present else MISSING)
            harmless += [value] if abs(mean) < _HARMLESS else []
        body.append([*line, f"{min(harmless):g} to {max(harmless):g}" if len(harmless) > 1 else "the default only"])
    every = len(names) == len(DATA_SETS) + len(TABLES)
    sets = f"all {len(names)} data sets" if every else ", ".join(names)
    note = (
        f"Change of the mean ACC over {sets}, in points, one fit each with the same seed and on the same machine. The "
        "last column is the range of measured values with a change of less than half a point."
    )
    table = Table(["constant", "default", "smaller value", "larger value", "range of little change"], body, "lrrrr")
    return write_table(table, folder, "quality-constants", title="Constants", rows=rows, note=note)


def _change(rows: Sequence[Row], variant: str, data_set: str) -> float | None:
    default, changed = (_of(rows, name, data_set).get(0) for name in (_SHIPPED, variant))
    if default is None or changed is None:
        return None
    return float(changed["values"]["last"]["acc"] - default["values"]["last"]["acc"])


def _score(row: Row, name: str) -> float | None:
    section, key = _SCORES[name]
    value = row["values"].get(section, {}).get(key)
    return None if value is None else float(value)


def _scores(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw ACC over each label-free score, one color per data set, and write a table of rank correlations."""
    fits = [row for row in rows if row["parameters"]["variant"] in INITIALIZERS]
    names = [name for name in _SCORES if any(_score(row, name) is not None for row in fits)]
    groups = by(fits, lambda row: str(row["data_set"]))
    body = []
    with drawing(1, len(names), size=(1.2 + 3.2 * len(names), 3.6)) as (figure, axes):
        for panel, name in zip(axes[0], names, strict=True):
            line = [name]
            for color, (data_set, group) in zip(CLASS_COLORS, groups.items(), strict=False):
                scored = [(value, row) for row in group if (value := _score(row, name)) is not None]
                for initializer, marker in _MARKERS.items():
                    points = [(x, acc_of(row)) for x, row in scored if row["parameters"]["variant"] == initializer]
                    if points:
                        panel.scatter(*zip(*points, strict=True), s=9, color=color, marker=marker, alpha=0.7)
                panel.scatter([], [], s=12, color=color, label=data_set)
                line.append(_rank_correlation([x for x, _ in scored], [acc_of(row) for _, row in scored]))
            panel.set_xlabel(name)
            body.append(line)
        axes[0, 0].set_ylabel("ACC (%)")
        legend(figure, axes[0, 0])
        note = "One point per fit. Markers: " + ", ".join(f"{m} {name}" for name, m in _MARKERS.items()) + "."
        paths = save_figure(figure, folder, "quality-scores", rows=rows, note=note)
    note = "Spearman's rank correlation of a label-free score and ACC, over all initializations and seeds."
    table, title = Table(["score", *groups], body), "Agreement of scores with accuracy"
    return paths + write_table(table, folder, "quality-scores", title=title, rows=rows, note=note)


def _rank_correlation(x: Sequence[float], y: Sequence[float]) -> str:
    if len(set(x)) < 2 or len(set(y)) < 2:
        return MISSING
    return f"{float(spearmanr(x, y).statistic):+.2f}"
