"""What a user gets who sets nothing: every start on every data set at the last epoch, and what each choice is worth."""

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

# Labeled tables without a graph. Settings are chosen on the first group alone; the second only checks them. The split
# was drawn at random within wide, small and large tables and shapes in the plane, before anything was tuned.
CHOICE_TABLES = (
    *("agnews", "worm_neuron", "page_blocks", "satimage"),
    *("dermatology", "g_other_iris", "g_uci_wine", "soybean", "vehicle"),
    *("g_fcps_lsun", "g_fcps_target", "g_graves_zigzag_noisy", "g_sipu_aggregation", "g_sipu_unbalance", "g_wut_x2"),
)
CHECK_TABLES = (
    *("isolet", "pendigits", "waveform5000", "g_uci_glass", "g_uci_ionosphere", "vote"),
    *("g_fcps_chainlink", "g_other_hdbscan", "g_sipu_compound", "g_sipu_s2"),
)

# These come with a graph: no neighbors are sought.
_GRAPHS = ("dblp", "cite", "acm", "cora", "amazon_photo")
DEFAULT = FitConfig().init
INITIALIZERS = (DEFAULT, *(start for start in CHOICES["init"] if start != DEFAULT))

# One ingredient of the default changed at a time.
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

# Only the last epoch counts; the others are looked at now and then.
_EVALUATED_EVERY = 50

# Label-free scores of a fit, and where its row has them.
_SCORES = {
    "modularity": ("scores", "modularity"),
    "silhouette of z": ("scores", "silhouette"),
    "agreement of the repeats": ("facts", "agreement"),
    "objective": ("scores", "objective"),
}
_MARKERS = dict(zip(INITIALIZERS, cycle("os^Dv"), strict=False))


def _settings(scope: Scope, **changes: Any) -> dict[str, Any]:
    """Return all settings, spelled out: a row of other defaults is not taken for one of these."""
    # Two hops are what the default takes on sets of these sizes.
    config = FitConfig(**{"n_hops": 2, **changes})
    values = {name: value for name, value in config.to_dict().items() if name != "n_clusters"}
    tiny = {name: value for name, value in quick_settings("pamcgc").items() if name not in changes}
    return {**values, **(tiny if scope.quick else {})}


def cells(scope: Scope) -> list[Cell]:
    """Return a fit per data set, start or ablation, and seed, and K-means of the prepared features."""
    found = []
    methods = methods_of(scope, ("pamcgc", "kmeans"))
    for data_set in data_sets_of(scope, DATA_SETS):
        if "pamcgc" in methods:
            for start in INITIALIZERS:
                n_seeds = _N_SEEDS_DEFAULT if start == DEFAULT else _N_SEEDS
                found += _cells(scope, "pamcgc", data_set, _settings(scope, init=start), start, n_seeds)
            for name in tuple(ABLATIONS)[: 1 if scope.quick else None]:
                if "metric" in ABLATIONS[name] and data_set in _GRAPHS:
                    continue
                settings = _settings(scope, **ABLATIONS[name])
                found += _cells(scope, "pamcgc", data_set, settings, name, _N_SEEDS_ABLATION)
        if "kmeans" in methods:
            for preprocessing in ("none", "auto"):
                settings = {"preprocessing": preprocessing, **(quick_settings("kmeans") if scope.quick else {})}
                found += _cells(scope, "kmeans", data_set, settings, f"kmeans {preprocessing}", _N_SEEDS)
    return found


def _cells(
    scope: Scope, method: str, data_set: str, settings: dict[str, Any], variant: str, n_seeds: int
) -> list[Cell]:
    options = {"variant": variant, "own_graph": True, "evaluated_every": _EVALUATED_EVERY}
    return [
        Cell("quality", "fit", method, data_set, seed, settings, options, scope.quick)
        for seed in seeds_of(scope, n_seeds)
    ]


@register_experiment(
    "quality",
    summary="Accuracy of every initialization on all data sets, with default settings, no labels, at the last epoch.",
    cells=cells,
)
def render(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write the default beside K-means, the paper and the best rival; all starts; the ablations; the scores."""
    return [
        *_summary(rows, folder),
        *_starts(rows, folder),
        *_decisions(rows, folder),
        *_ablations(rows, folder),
        *_scores(rows, folder),
    ]


def _of(rows: Sequence[Row], variant: str, data_set: str) -> dict[int, Row]:
    """Return the rows of a variant on a data set by seed."""
    own = [row for row in rows if row["parameters"]["variant"] == variant and row["data_set"] == data_set]
    return {row["seed"]: row for row in own}


def figures_of(rows: Sequence[Row], variant: str, data_set: str, metric: str = "acc") -> list[float]:
    """Return a metric of a variant on a data set at the last epoch, one value per seed."""
    return [float(row["values"]["last"][metric]) for row in _of(rows, variant, data_set).values()]


def summary_table(rows: Sequence[Row], data_sets: Sequence[str], metrics: Sequence[str] = ("acc", "nmi")) -> Table:
    """Return metrics of the default beside K-means, the paper and the best label-free rival."""
    lines = []
    for metric in metrics:
        title = metric.upper()
        for name, variant in (("K-means, features as they are", "kmeans none"), ("K-means, prepared", "kmeans auto")):
            lines.append(
                [f"{title}: {name}", *(percent(figures_of(rows, variant, each, metric)) for each in data_sets)]
            )
        paper = [paper_figure(name, "pamcgc", metric) for name in data_sets]
        lines.append([f"{title}: paper", *(MISSING if each is None else f"{each.mean:.1f}" for each in paper)])
        lines.append([f"{title}: best rival", *(rival_figure(name, metric) for name in data_sets)])
        ours = [percent(figures_of(rows, DEFAULT, data_set, metric)) for data_set in data_sets]
        lines.append([f"**{title}: pamc, defaults**", *(f"**{text}**" for text in ours)])
    return Table(["", *data_sets], lines)


def _summary(rows: Sequence[Row], folder: Path) -> list[Path]:
    means = []
    for metric in ("acc", "nmi"):
        seven = [figures_of(rows, DEFAULT, name, metric) for name in SEVEN]
        if all(seven):
            means.append(f"{metric.upper()} {100 * float(np.mean([np.mean(values) for values in seven])):.1f}")
    note = (
        "Percent, mean ± standard deviation over the seeds. pamc and K-means: no label is read, one configuration for "
        "all sets, the last epoch. paper: settings per set and presumably the best epoch, chosen with labels. best "
        "rival: the highest of other programs, each run on these very files without labels and with one fixed setting."
        + (f" Mean over the first seven: {', '.join(means)}." if means else "")
    )
    table = summary_table(rows, data_sets_in(rows))
    return write_table(table, folder, "quality", title="Without labels and without settings", rows=rows, note=note)


def _starts(rows: Sequence[Row], folder: Path) -> list[Path]:
    data_sets, present = data_sets_in(rows), by(rows, lambda row: str(row["parameters"]["variant"]))
    body = []
    for start in (start for start in INITIALIZERS if start in present):
        groups = [list(_of(rows, start, data_set).values()) for data_set in data_sets]
        body.append([start, *(percent([row["values"]["last"]["acc"] for row in g]) + _losses(g) for g in groups)])
    note = (
        "ACC in percent at the last epoch, mean ± standard deviation over the seeds; every other setting is the "
        "default's. In brackets: runs that ended with fewer clusters than were asked for."
    )
    table = Table(["start", *data_sets], body)
    return write_table(table, folder, "quality-starts", title="Every start", rows=rows, note=note)


def _losses(rows: Sequence[Row]) -> str:
    """Return how many runs lost a cluster, in brackets, where any did."""
    lost = sum(0 in row["values"]["cluster_sizes"] for row in rows)
    return f" ({lost})" if lost else ""


def _decisions(rows: Sequence[Row], folder: Path) -> list[Path]:
    body = []
    for data_set in data_sets_in(rows):
        values = [row["values"] for row in _of(rows, DEFAULT, data_set).values()]
        if not values:
            continue
        facts = [value["facts"] for value in values]
        said = [_said(facts, name) for name in ("preprocessing", "graph", "inputs", "clusters_by", "fallback")]
        seconds = [sum(v for k, v in value["seconds"].items() if k != "evaluation") for value in values]
        agreed = mean_text([float(each["agreement"]) for each in facts], 2)
        body.append([data_set, *said, agreed, mean_text(seconds, 1)])
    columns = ["data set", "preprocessing", "graph", "relies on", "clusters by", "fallback", "agreement", "fit (s)"]
    note = "What the default decided, from the data alone; with the number of seeds where they differ."
    table = Table(columns, body, "llllllrr")
    return write_table(table, folder, "quality-decisions", title="Decisions", rows=rows, note=note)


def _said(facts: Sequence[dict[str, Any]], name: str) -> str:
    counts = Counter(str(each.get(name) or "none") for each in facts)
    return ", ".join(value if len(counts) == 1 else f"{value} ({count})" for value, count in counts.items())


def _ablations(rows: Sequence[Row], folder: Path) -> list[Path]:
    data_sets = data_sets_in(rows)
    body = [["the default", *(percent(figures_of(rows, DEFAULT, data_set)) for data_set in data_sets)]]
    present = {row["parameters"]["variant"] for row in rows}
    shown = [name for name in ABLATIONS if name in present]
    body += [[name, *(_against_default(rows, name, data_set) for data_set in data_sets)] for name in shown]
    note = (
        "ACC in percent at the last epoch; below the first line, the difference to the default on the same seeds, in "
        "points. In brackets: runs that lost clusters."
    )
    table = Table(["", *data_sets], body)
    return write_table(table, folder, "quality-ablations", title="One ingredient at a time", rows=rows, note=note)


def _against_default(rows: Sequence[Row], name: str, data_set: str) -> str:
    default, own = (_of(rows, variant, data_set) for variant in (DEFAULT, name))
    seeds = sorted(default.keys() & own.keys())
    if not seeds:
        return MISSING
    differences = [own[seed]["values"]["last"]["acc"] - default[seed]["values"]["last"]["acc"] for seed in seeds]
    return f"{100 * float(np.mean(differences)):+.1f}" + _losses([own[seed] for seed in seeds])


def _score(row: Row, where: tuple[str, str]) -> float | None:
    value = row["values"].get(where[0], {}).get(where[1])
    return None if value is None else float(value)


def _scores(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw ACC over each label-free score, all starts and seeds of a set in one color, and rank correlations."""
    fits = [row for row in rows if row["parameters"]["variant"] in INITIALIZERS]
    shown = {name: where for name, where in _SCORES.items() if any(_score(row, where) is not None for row in fits)}
    groups = by(fits, lambda row: str(row["data_set"]))
    body = []
    with drawing(1, len(shown), size=(1.2 + 3.2 * len(shown), 3.6)) as (figure, axes):
        for panel, (name, where) in zip(axes[0], shown.items(), strict=True):
            line = [name]
            for color, (data_set, group) in zip(CLASS_COLORS, groups.items(), strict=False):
                scored = [row for row in group if _score(row, where) is not None]
                for start, own in by(scored, lambda row: str(row["parameters"]["variant"])).items():
                    x, y = [_score(row, where) for row in own], [acc_of(row) for row in own]
                    panel.scatter(x, y, s=9, color=color, marker=_MARKERS[start], alpha=0.7)
                panel.scatter([], [], s=12, color=color, label=data_set)
                line.append(_rank_correlation([_score(row, where) for row in scored], [acc_of(row) for row in scored]))
            panel.set_xlabel(name)
            body.append(line)
        axes[0, 0].set_ylabel("ACC (%)")
        legend(figure, axes[0, 0])
        note = "One point per fit. Markers: " + ", ".join(f"{m} {s}" for s, m in _MARKERS.items()) + "."
        paths = save_figure(figure, folder, "quality-scores", rows=rows, note=note)
    note = "Spearman's rank correlation between a label-free score and ACC, over all starts and seeds of a data set."
    table, title = Table(["score", *groups], body), "Which score agrees with accuracy"
    return paths + write_table(table, folder, "quality-scores", title=title, rows=rows, note=note)


def _rank_correlation(x: Sequence[float | None], y: Sequence[float]) -> str:
    if len(set(x)) < 2 or len(set(y)) < 2:
        return MISSING
    return f"{float(spearmanr(x, y).statistic):+.2f}"
