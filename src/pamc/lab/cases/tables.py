"""Tables 2 and 3 of the paper, sixteen methods on graphs (2) and on tables of features (3), and their differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from pamc.data.catalog import available
from pamc.lab.cell import Cell, Row, Scope, register_experiment
from pamc.lab.pages.style import MISSING, by, data_sets_in, percent, title_of, write_table
from pamc.lab.rows import is_quick
from pamc.lab.settings import (
    METRICS,
    PAPER_SETS,
    Variant,
    fit_cells,
    paper_decimals,
    paper_figure,
    paper_methods,
    paper_sets,
    paper_title,
    run_settings,
)
from pamc.models.method import METHODS
from pamc.results.table import MeanStd, Table, mean_std, paired_t_test

# Substitutes for REUT, whose features are not public; they are listed under their own names.
STAND_INS = ("news4", "reut21578_4")

# Methods that differ least from PamCGC, and the cheapest ones, have as many seeds as in the paper.
_MANY_SEEDS = ("pamcgc", "scgc", "scgc*", "kmeans", "ae")
_N_SEEDS = {method: 10 if method in _MANY_SEEDS else 3 for method in paper_methods()}

_BASE = "pamcgc"
_EPOCHS = ("last", "oracle")
_NOTE = (
    "All values are percentages, mean ± standard deviation over seeds. Last epoch: neither the fit nor the choice of "
    "the epoch uses labels. The settings are those of the authors, chosen with labels, or ours, chosen with the "
    "paper's values in view. Oracle epoch: the best epoch of each metric separately, chosen with the true labels, as "
    "in the released program and presumably in the paper; it includes the initialization. Methods that assign clusters "
    "once, by K-means, are evaluated every 20 epochs and the others in each epoch; more evaluations raise the maximum."
)
_REUT_MISSING = (
    " REUT was not run because its features are not public; place reut.npz in $PAMC_DATA to run it. news4 and "
    "reut21578_4 are other corpora, prepared in the same way and run with the settings of REUT; the paper has no "
    "values for them."
)
_HIDDEN_NOTE = " † The column is in the LaTeX source of the paper's table but is not printed."
_TESTS_NOTE = (
    "Paired t-test between our runs of PamCGC and of each other method at the last epoch, over their common seeds, "
    "without correction for multiple tests."
)


def table_cells(table: str, scope: Scope) -> list[Cell]:
    """Return one fit per data set, method and seed of "table2" or "table3".

    Autoencoders come first, so that methods that are initialized from one find it in the cache.
    """
    with_reut = scope.data_sets is not None or available("reut") is not None
    sets = [name for name in _all_sets(table) if with_reut or name != "reut"]
    cells = fit_cells(scope, table, data_sets=sets, methods=paper_methods(), n_seeds=_N_SEEDS)
    return sorted(cells, key=lambda cell: cell.provider != "ae")


def _all_sets(table: str) -> tuple[str, ...]:
    return (*paper_sets(table), *(STAND_INS if table == "table3" else ()))


@register_experiment(
    "table2", summary="Table 2: sixteen methods on DBLP, ACM and CITE.", cells=partial(table_cells, "table2")
)
def render_table2(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write the full and the short Table 2 and the paired t-tests."""
    return Comparison(rows, _all_sets("table2"), paper_decimals("table2")).write(folder, "table2", "Table 2: graphs")


@register_experiment(
    "table3",
    summary="Table 3: sixteen methods on USPS, HHAR and REUT, or two stand-ins for REUT.",
    cells=partial(table_cells, "table3"),
)
def render_table3(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write the full and the short Table 3 and the paired t-tests; the note says if REUT is missing."""
    with_reut = any(row["data_set"] == "reut" for row in rows) or is_quick(rows)
    comparison = Comparison(rows, _all_sets("table3"), paper_decimals("table3"))
    return comparison.write(folder, "table3", "Table 3: tables of features", "" if with_reut else _REUT_MISSING)


@dataclass(frozen=True)
class Comparison:
    """Comparison of our results with those of the paper.

    Parameters
    ----------
    rows
        Rows of task "fit", either all quick or none. For each method and data set, only the rows with the settings of
        the newest are used.
    sets
        Data sets in the order of the tables, shown if the paper or a row has results for them.
    decimals
        Number of decimals of our results.
    """

    rows: Sequence[Row]
    sets: tuple[str, ...]
    decimals: int

    @cached_property
    def runs(self) -> dict[tuple[str, str], dict[int, Row]]:
        """Rows by data set and method, and by seed."""
        groups = by(self.rows, lambda row: (str(row["data_set"]), str(row["provider"])))
        return {
            key: {
                row["seed"]: row
                for row in sorted(group, key=lambda row: int(row["seed"]))
                if row["settings"] == group[-1]["settings"]
            }
            for key, group in groups.items()
        }

    @cached_property
    def shown(self) -> list[str]:
        """Data sets with results: those of the paper among `sets`, unless rows are quick, and those of the rows."""
        with_rows = {data_set for data_set, _ in self.runs}
        in_paper = set() if is_quick(self.rows) else {name for name in self.sets if _in_paper(name)}
        return [*(name for name in self.sets if name in with_rows | in_paper), *sorted(with_rows - set(self.sets))]

    def ours(self, data_set: str, method: str, metric: str, epoch: str) -> MeanStd | None:
        """Return our result as a share, or None without runs. `epoch` is "last" or "oracle"."""
        rows = self.runs.get((data_set, method))
        return None if rows is None else mean_std([row["values"][epoch][metric] for row in rows.values()])

    def _texts(self, data_set: str, method: str, metric: str) -> list[str]:
        """Return our results at the last and at the oracle epoch, and their differences from the paper."""
        results = [self.ours(data_set, method, metric, epoch) for epoch in _EPOCHS]
        paper = paper_figure(data_set, method, metric)
        texts = [MISSING if result is None else result.percent(decimals=self.decimals) for result in results]
        gaps = [None if result is None or paper is None else 100 * result.mean - paper.mean for result in results]
        return texts + [MISSING if gap is None else f"{gap:+.{self.decimals}f}" for gap in gaps]

    def full(self) -> Table:
        """Return all methods and metrics on all data sets."""
        columns = ["data set", "method", "metric", "paper", "ours, last epoch (no label chose it)"]
        columns += ["ours, oracle epoch (chosen with the true labels, as the released program reports)"]
        columns += ["last - paper", "oracle - paper", "seeds"]
        lines = []
        for data_set, method, metric in product(self.shown, paper_methods(), METRICS):
            n_seeds = str(len(self.runs.get((data_set, method), ())) or MISSING)
            names = [_set_title(data_set), paper_title(method), metric.upper(), _paper(data_set, method, metric)]
            lines.append([*names, *self._texts(data_set, method, metric), n_seeds])
        return Table(columns, lines, align="lllrrrrrr")

    def short(self) -> Table:
        """Return ACC alone, one line per method."""
        columns, lines = ["ACC"], [[paper_title(method)] for method in paper_methods()]
        for data_set in self.shown:
            title, in_paper = _set_title(data_set), _in_paper(data_set)
            columns += [f"{title}, paper"] if in_paper else []
            columns += [f"{title}, last epoch", f"{title}, oracle epoch (chosen with the true labels)"]
            for method, line in zip(paper_methods(), lines, strict=True):
                line += [_paper(data_set, method, "acc")] if in_paper else []
                line += self._texts(data_set, method, "acc")[:2]
        return Table(columns, lines)

    def tests(self) -> Table:
        """Return the paired t-test of the ACC of PamCGC against every other method, at the last epoch."""
        lines = []
        with_rows = {data_set for data_set, _ in self.runs}
        for data_set, method in product(self.shown, paper_methods()[:-1]):
            if data_set not in with_rows:
                continue
            base, others = (self.runs.get((data_set, name), {}) for name in (_BASE, method))
            seeds = sorted(base.keys() & others.keys())
            a, b = ([rows[seed]["values"]["last"]["acc"] for seed in seeds] for rows in (base, others))
            names = [_set_title(data_set), paper_title(method)]
            lines.append([*names, str(len(seeds) or MISSING), *_tested(a, b)])
        return Table(["data set", "PamCGC against", "seeds", "ACC difference", "t", "p"], lines, align="llrrrr")

    def write(self, folder: Path, stem: str, title: str, more: str = "") -> list[Path]:
        """Write `STEM`, `STEM-short` and `STEM-tests`, and return their paths."""
        figures = [paper_figure(data_set, method, "acc") for data_set, method in product(self.shown, paper_methods())]
        note = _NOTE + more + (_HIDDEN_NOTE if any(figure and figure.hidden for figure in figures) else "")
        write = partial(write_table, folder=folder, rows=self.rows)
        return [
            *write(self.full(), stem=stem, title=title, note=note),
            *write(self.short(), stem=f"{stem}-short", title=title, note=note),
            *write(self.tests(), stem=f"{stem}-tests", title=f"{title}: paired t-tests", note=_TESTS_NOTE),
        ]


def _in_paper(data_set: str) -> bool:
    return paper_figure(data_set, _BASE, "acc") is not None


def _paper(data_set: str, method: str, metric: str) -> str:
    return str(paper_figure(data_set, method, metric) or MISSING)


def _set_title(data_set: str) -> str:
    """Return the name of a data set, in capitals if it is in the paper."""
    return data_set.upper() if _in_paper(data_set) else data_set


def _tested(a: Sequence[float], b: Sequence[float]) -> list[str]:
    if len(a) < 2:
        return [MISSING] * 3
    test = paired_t_test(a, b)
    return [f"{100 * (mean_std(a).mean - mean_std(b).mean):+.2f}", f"{test.statistic:.2f}", f"{test.p_value:.2g}"]


# Changes that may explain a difference, by the names that rows refer to: of the pre-trained autoencoder, of other
# networks, of K-means, of methods without features, and of single methods. The tables use the settings of PamCGC for
# SCGC*, which differs from it only in the loss.
_Changes: TypeAlias = dict[str, dict[str, Any]]
_AUTOENCODER: _Changes = {
    "a start from the features as they are": {"preprocessing": "none"},
    "a start from rows of root mean square 1": {"preprocessing": "rms"},
    "a start from rows of unit length, 100 epochs of pre-training": {"preprocessing": "unit", "pretrain_epochs": 100},
    "a start from standardized columns": {"preprocessing": "standardize"},
}
_ROWS: _Changes = {"rows of unit length": {"preprocessing": "unit"}, "tf-idf": {"preprocessing": "tfidf"}}
_NETWORK = {"features as they are": {"preprocessing": "none"}, **_ROWS, "30 epochs of training": {"n_epochs": 30}}
_DECOMPOSITION: _Changes = {"2 dimensions": {"n_dims": 2}, "100 dimensions": {"n_dims": 100}}
_ONE_METHOD: dict[str, _Changes] = {
    "scgc*": {"the settings of its own program": {"own_program": True}},
    "pamcgc": {"Eq 6 and self-edges, as in the released program": {"proxy": "eq6", "self_edges": "keep"}},
}


def variant_title(name: str) -> str:
    """Return the name of a variant as tables show it."""
    return name.replace("a start from", "initialization from").replace("features as they are", "raw features")


def _changes_of(method: str) -> _Changes:
    """Return the changes to try for a method."""
    entry = METHODS[method]
    if method == "kmeans":
        return _ROWS
    if not entry.uses_features:
        return _DECOMPOSITION
    with_autoencoder = entry.init == "autoencoder" or "init" in entry.config.names()
    return {**_ONE_METHOD.get(method, {}), **(_AUTOENCODER if with_autoencoder else _NETWORK)}


def _changed(scope: Scope, data_set: str, method: str, seed: int) -> list[Variant]:
    """Return the variants that differ from the settings of the tables; in a quick run, the first."""
    variants = [(changes, {"variant": name}) for name, changes in _changes_of(method).items()]
    if scope.quick:
        return variants[:1]
    config = METHODS[method].config
    unchanged = config(**run_settings(scope, method, data_set))
    return [
        (changes, parameters)
        for changes, parameters in variants
        if config(**run_settings(scope, method, data_set, **changes)) != unchanged
    ]


@register_experiment(
    "differences",
    summary="Every method with one setting changed at a time, to explain differences from the paper's figures.",
    cells=partial(fit_cells, case="differences", methods=paper_methods(), n_seeds=2, variants=_changed),
)
def render_differences(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write a table with one line per method and variant and one column per data set."""
    data_sets = data_sets_in(rows)
    body = []
    for (method, variant), group in by(rows, lambda row: (row["provider"], row["parameters"]["variant"])).items():
        line = [title_of(method), variant_title(variant)]
        for data_set in data_sets:
            values = [row["values"] for row in group if row["data_set"] == data_set]
            texts = [percent([value[epoch]["acc"] for value in values]) for epoch in _EPOCHS]
            line.append(" / ".join(texts) if values else MISSING)
        body.append(line)
    table = Table(["method", "instead of the tables' settings", *data_sets], body, "ll" + "r" * len(data_sets))
    note = (
        "ACC in percent, mean ± standard deviation over the seeds: last epoch / oracle epoch (chosen with the true "
        "labels). Variants that equal the settings of the tables are omitted."
    )
    title = "The same methods under other settings"
    return write_table(table, folder, "differences", title=title, rows=rows, note=note)


# ACC differences above this many points are explained.
LARGE = 3.0


def _accuracies(rows: Sequence[Row], method: str, data_set: str, epoch: str, variant: str | None = None) -> list[float]:
    """Return the ACC of the runs of a method on a data set, in percent."""
    wanted = (method, data_set, variant)
    return [
        100 * row["values"][epoch]["acc"]
        for row in rows
        if (row["provider"], row["data_set"], row["parameters"].get("variant")) == wanted
    ]


def _acc(rows: Sequence[Row], method: str, data_set: str, epoch: str, variant: str | None = None) -> float | None:
    """Return the mean ACC of a method on a data set in percent, or None without rows."""
    values = _accuracies(rows, method, data_set, epoch, variant)
    return mean_std(values).mean if values else None


def differences(tables: Sequence[Row], others: Sequence[Row]) -> str:
    """Return a Markdown table of all ACC differences from the paper, with a reason for those above `LARGE`."""
    body = []
    for method, data_set in product(paper_methods(), PAPER_SETS):
        paper = paper_figure(data_set, method, "acc")
        last, oracle = (_acc(tables, method, data_set, epoch) for epoch in _EPOCHS)
        if paper is None or last is None or oracle is None:
            continue
        gaps = [last - paper.mean, oracle - paper.mean]
        why = reason(tables, others, method, data_set) if max(map(abs, gaps)) > LARGE else ""
        texts = [f"{value:.1f}" for value in (paper.mean, last, oracle)]
        body.append([paper_title(method), data_set.upper(), *texts, *(f"{gap:+.1f}" for gap in gaps), why])
    columns = ["method", "data set", "paper", "last", "oracle", "last − paper", "oracle − paper", "why"]
    return Table(columns, body, "llrrrrrl").markdown()


def reason(tables: Sequence[Row], others: Sequence[Row], method: str, data_set: str) -> str:
    """Return one or two sentences on the measured cause of the difference of a method on a data set."""
    figure, oracle = paper_figure(data_set, method, "acc"), _acc(tables, method, data_set, "oracle")
    if figure is None or oracle is None:
        return ""
    if abs(oracle - figure.mean) <= LARGE:
        return f"The epoch: {oracle:.1f} at the oracle epoch."
    variants = by(others, lambda row: (row["provider"], row["data_set"], row["parameters"]["variant"]))
    tried = {
        variant_title(name): mean_std([100 * row["values"]["oracle"]["acc"] for row in rows]).mean
        for (other, where, name), rows in variants.items()
        if (other, where) == (method, data_set)
    }
    parts = [_settings_reason(tried, oracle, figure.mean)] if tried else []
    if METHODS[method].init_of(METHODS[method].config()) is not None and method != "ae":
        parts += _autoencoder_reason(tables, data_set)
    if parts:
        return " ".join(parts)
    values = _accuracies(tables, method, data_set, "oracle")
    return f"The seeds: {min(values):.1f} to {max(values):.1f} over {len(values)} of them."


def _settings_reason(tried: dict[str, float], ours: float, paper: float) -> str:
    """Return whether one of the tried settings explains the difference."""
    closest = min(tried, key=lambda name: abs(tried[name] - paper))
    if abs(tried[closest] - paper) < abs(ours - paper) / 2:
        return f"The settings: {tried[closest]:.1f} at the oracle epoch with {closest}."
    lowest, highest = min(tried, key=tried.__getitem__), max(tried, key=tried.__getitem__)
    if min(tried[lowest], ours) <= paper <= max(tried[highest], ours):
        other = lowest if abs(tried[lowest] - ours) > abs(tried[highest] - ours) else highest
        return f"The settings, whose range includes the paper's value: {tried[other]:.1f} with {other}."
    listed = ", ".join(f"{value:.1f} with {name}" for name, value in tried.items())
    return f"Not the settings tried: {listed}."


def _autoencoder_reason(tables: Sequence[Row], data_set: str) -> list[str]:
    """Return how the autoencoder of the initialization compares with the paper's, which is not public."""
    paper, ours = paper_figure(data_set, "ae", "acc"), _acc(tables, "ae", data_set, "last")
    if paper is None or ours is None:
        return []
    both = f"K-means on its autoencoder gives {ours:.1f}, on the paper's, which is not public, {paper.mean:.1f}"
    different = abs(ours - paper.mean) > LARGE
    return [f"The initialization: {both}." if different else f"Not the initialization, judged by K-means: {both}."]
