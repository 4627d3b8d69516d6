"""Quality of the default settings: every initialization on every data set at the last epoch, and ablations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from pamc.config import CHOICES, FitConfig
from pamc.lab.cell import Cell, Row, Scope, register_experiment
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
from pamc.lab.settings import data_sets_of, methods_of, paper_figure, quick_settings, rival_figure, seeds_of
from pamc.results.table import Table

SEVEN = ("dblp", "cite", "acm", "usps", "hhar", "cora", "amazon_photo")
DATA_SETS = (*SEVEN, "news4", "reut21578_4", "digits")

# Labeled tables without a graph. Settings are chosen on the first group only, and the second checks them. The split was
# drawn at random among wide, small and large tables and shapes in the plane, before any tuning.
CHOICE_TABLES = (
    *("agnews", "worm_neuron", "page_blocks", "satimage"),
    *("dermatology", "g_other_iris", "g_uci_wine", "soybean", "vehicle"),
    *("g_fcps_lsun", "g_fcps_target", "g_graves_zigzag_noisy", "g_sipu_aggregation", "g_sipu_unbalance", "g_wut_x2"),
)
CHECK_TABLES = (
    *("isolet", "pendigits", "waveform5000", "g_uci_glass", "g_uci_ionosphere", "vote"),
    *("g_fcps_chainlink", "g_other_hdbscan", "g_sipu_compound", "g_sipu_s2"),
)

# Data sets with a graph, for which no neighbors are searched.
_GRAPHS = ("dblp", "cite", "acm", "cora", "amazon_photo")
DEFAULT = FitConfig().init
INITIALIZERS = (DEFAULT, *(name for name in CHOICES["init"] if name != DEFAULT))

# One setting of the default changed at a time, by the names that rows refer to.
ABLATIONS: dict[str, dict[str, Any]] = {
    "no training, the start alone": {"n_epochs": 0},
    "no contrast (α 0)": {"alpha": 0.0},
    "weaker clustering term (β 1)": {"beta": 1.0},
    "τ 1": {"tau": 1.0},
    "τ 0.25": {"tau": 0.25},
    "Eq 6": {"proxy": "eq6"},
    "γ_ii kept": {"self_edges": "keep"},
    "soft meta-nodes": {"meta_assignment": "soft"},
    "1 hop": {"n_hops": 1},
    "learning rate 1e-3": {"lr": 1e-3},
    "stopped when no label changes in an epoch (tol 1e-9)": {"tol": 1e-9},
    "features as they are": {"preprocessing": "none"},
    "neighbors by distance": {"metric": "euclidean"},
    "10 dimensions": {"n_dims": 10},
    "no features hidden": {"pretrain_dropout": 0.0},
    "sharper first assignment (scale 8)": {"embedding_scale": 8.0},
}
_N_SEEDS, _N_SEEDS_ABLATION = 10, 3
# Enough fits to count those that lose a cluster.
_N_SEEDS_DEFAULT = 20

# Only the last epoch counts, so the others are evaluated rarely.
_EVALUATED_EVERY = 50

# Label-free scores of a fit, and their location in a row.
_SCORES = {
    "modularity": ("scores", "modularity"),
    "silhouette of z": ("scores", "silhouette"),
    "agreement of the repeats": ("facts", "agreement"),
    "objective": ("scores", "objective"),
}
_MARKERS = dict(zip(INITIALIZERS, cycle("os^Dv"), strict=False))


def _settings(scope: Scope, **changes: Any) -> dict[str, Any]:
    """Return all settings explicitly, so that rows of other defaults are not mistaken for these."""
    # Two hops are the default for data sets of these sizes.
    values = FitConfig(**{"n_hops": 2, **changes}).to_dict()
    del values["n_clusters"]
    tiny = {name: value for name, value in quick_settings("pamcgc").items() if name not in changes}
    return {**values, **(tiny if scope.quick else {})}


def cells(scope: Scope) -> list[Cell]:
    """Return a fit per data set, initialization or ablation, and seed, and K-means of raw and preprocessed features."""
    runs = [
        ("pamcgc", name, _settings(scope, init=name), _N_SEEDS_DEFAULT if name == DEFAULT else _N_SEEDS)
        for name in INITIALIZERS
    ]
    ablations = tuple(ABLATIONS)[: 1 if scope.quick else None]
    runs += [("pamcgc", name, _settings(scope, **ABLATIONS[name]), _N_SEEDS_ABLATION) for name in ablations]
    for name in ("none", "auto"):
        settings = {"preprocessing": name, **(quick_settings("kmeans") if scope.quick else {})}
        runs.append(("kmeans", f"kmeans {name}", settings, _N_SEEDS))
    parameters = {"own_graph": True, "evaluated_every": _EVALUATED_EVERY}
    return [
        Cell("quality", "fit", method, data_set, seed, settings, {"variant": variant, **parameters}, scope.quick)
        for data_set in data_sets_of(scope, DATA_SETS)
        for method, variant, settings, n_seeds in runs
        if method in methods_of(scope, ("pamcgc", "kmeans"))
        if not (data_set in _GRAPHS and "metric" in ABLATIONS.get(variant, {}))
        for seed in seeds_of(scope, n_seeds)
    ]


@register_experiment(
    "quality",
    summary="Accuracy of every initialization on all data sets, with default settings, no labels, at the last epoch.",
    cells=cells,
)
def render(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write the default and its competitors, all initializations, the decisions, the ablations and the scores."""
    parts = (_summary, _initializations, _decisions, _ablations, _scores)
    return [path for part in parts for path in part(rows, folder)]


def _of(rows: Sequence[Row], variant: str, data_set: str) -> dict[int, Row]:
    """Return the rows of a variant on a data set by seed."""
    wanted = (variant, data_set)
    return {row["seed"]: row for row in rows if (row["parameters"]["variant"], row["data_set"]) == wanted}


def figures_of(rows: Sequence[Row], variant: str, data_set: str, metric: str = "acc") -> list[float]:
    """Return a metric of a variant on a data set at the last epoch, one value per seed."""
    return [float(row["values"]["last"][metric]) for row in _of(rows, variant, data_set).values()]


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
        decisions = [_decision(facts, name) for name in ("preprocessing", "graph", "inputs", "clusters_by", "fallback")]
        seconds = [sum(v for k, v in value["seconds"].items() if k != "evaluation") for value in values]
        agreement = mean_text([float(fact["agreement"]) for fact in facts], 2)
        body.append([data_set, *decisions, agreement, mean_text(seconds, 1)])
    columns = ["data set", "preprocessing", "graph", "relies on", "clusters by", "fallback", "agreement", "fit (s)"]
    note = "Decisions of the default, based on the data alone; if they differ, with the number of seeds."
    table = Table(columns, body, "llllllrr")
    return write_table(table, folder, "quality-decisions", title="Decisions", rows=rows, note=note)


def _decision(facts: Sequence[dict[str, Any]], name: str) -> str:
    counts = Counter(str(fact.get(name) or "none") for fact in facts)
    return ", ".join(value if len(counts) == 1 else f"{value} ({count})" for value, count in counts.items())


def _ablations(rows: Sequence[Row], folder: Path) -> list[Path]:
    data_sets, present = data_sets_in(rows), {row["parameters"]["variant"] for row in rows}
    body = [["the default", *(percent(figures_of(rows, DEFAULT, data_set)) for data_set in data_sets)]]
    for name in (name for name in ABLATIONS if name in present):
        title = name.replace("the start", "initialization").replace("features as they are", "raw features")
        body.append([title, *(_against_default(rows, name, data_set) for data_set in data_sets)])
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
