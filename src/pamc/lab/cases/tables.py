"""Tables 2 and 3 of the paper, sixteen methods on graphs (2) and on tables of features (3), and why figures differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pamc.data.catalog import available
from pamc.lab.cell import Cell, Row, Scope, register_experiment
from pamc.lab.pages.style import MISSING, by, percent, title_of, write_table
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

# Stand-ins for REUT, whose features are not public; they are shown under their own names.
STAND_INS = ("news4", "reut21578_4")

# The methods that differ from PamCGC the least, and those that cost the least, have as many seeds as in the paper.
_MANY_SEEDS = ("pamcgc", "scgc", "scgc*", "kmeans", "ae")
_N_SEEDS = {method: 10 if method in _MANY_SEEDS else 3 for method in paper_methods()}

_BASE = "pamcgc"
_NOTE = (
    "All figures are percentages: mean ± standard deviation over seeds. Last epoch: no label reached the fit or chose "
    "the epoch. The settings are the authors', chosen with labels, or ours, chosen with the paper's figures in view. "
    "Oracle epoch: the best epoch of each metric on its own, chosen with the true labels, as the released program "
    "reports; the paper's figures are presumably chosen so. As there, the first epoch looked at is the start. Methods "
    "that assign once, by K-means, are looked at every 20th epoch, the others in each: more looks find more."
)
_REUT_MISSING = (
    " REUT was not run: its features are not public. With reut.npz in $PAMC_DATA it is. news4 and reut21578_4 are "
    "other corpora, made by the same recipe and run with REUT's settings; the paper has no figures for them."
)
_HIDDEN_NOTE = " † The column stands in the source of the paper's table and is not printed."
_TESTS_NOTE = (
    "Paired t-test of PamCGC against each other method at the last epoch, ours against ours, over the seeds that both "
    "have; not corrected for their number."
)


def table_cells(table: str, scope: Scope) -> list[Cell]:
    """Return one fit per data set, method and seed of "table2" or "table3".

    The autoencoders come first: the methods that start from one then find it kept.
    """
    here = scope.data_sets is not None or available("reut") is not None
    sets = [name for name in _all_sets(table) if here or name != "reut"]
    cells = fit_cells(scope, table, data_sets=sets, methods=paper_methods(), n_seeds=_N_SEEDS)
    return sorted(cells, key=lambda cell: cell.provider != "ae")


def _all_sets(table: str) -> tuple[str, ...]:
    return (*paper_sets(table), *(STAND_INS if table == "table3" else ()))


@register_experiment(
    "table2", summary="Table 2: sixteen methods on DBLP, ACM and CITE.", cells=partial(table_cells, "table2")
)
def render_table2(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write Table 2, in full and in short, with the paired t-tests."""
    return Comparison(rows, _all_sets("table2"), paper_decimals("table2")).write(folder, "table2", "Table 2: graphs")


@register_experiment(
    "table3",
    summary="Table 3: sixteen methods on USPS, HHAR and REUT, or two stand-ins for REUT.",
    cells=partial(table_cells, "table3"),
)
def render_table3(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write Table 3, in full and in short, with the paired t-tests; REUT is said to be missing where it is."""
    here = any(row["data_set"] == "reut" for row in rows) or is_quick(rows)
    table = Comparison(rows, _all_sets("table3"), paper_decimals("table3"))
    return table.write(folder, "table3", "Table 3: tables of features", "" if here else _REUT_MISSING)


@dataclass(frozen=True)
class Comparison:
    """Rows of fits beside the paper's figures.

    Parameters
    ----------
    rows
        Rows of task "fit", all quick or none; of one method on one set, those with the settings of the newest count.
    sets
        Data sets in the order of the tables; shown where the paper or a row has figures for them.
    decimals
        Of our figures.
    """

    rows: Sequence[Row]
    sets: tuple[str, ...]
    decimals: int

    @cached_property
    def runs(self) -> dict[tuple[str, str], dict[int, Row]]:
        """Rows by data set and method, and by seed."""
        newest = {(row["data_set"], row["provider"]): row["settings"] for row in self.rows}
        found: dict[tuple[str, str], dict[int, Row]] = {}
        for row in sorted(self.rows, key=lambda row: int(row["seed"])):
            place = row["data_set"], row["provider"]
            if row["settings"] == newest[place]:
                found.setdefault(place, {})[row["seed"]] = row
        return found

    @cached_property
    def shown(self) -> list[str]:
        """The data sets that have figures: the paper's own among `sets`, unless all is quick, and those of the rows."""
        ran = {data_set for data_set, _ in self.runs}
        printed = set() if is_quick(self.rows) else {name for name in self.sets if _in_paper(name)}
        return [*(name for name in self.sets if name in ran | printed), *sorted(ran - set(self.sets))]

    def ours(self, data_set: str, method: str, metric: str, epoch: str) -> MeanStd | None:
        """Return our figure (a share), None where there is no run. `epoch` is "last" or "oracle"."""
        rows = self.runs.get((data_set, method))
        return None if rows is None else mean_std([row["values"][epoch][metric] for row in rows.values()])

    def _both(self, data_set: str, method: str, metric: str) -> list[str]:
        """Return our figures at the last and at the oracle epoch as text."""
        figures = [self.ours(data_set, method, metric, epoch) for epoch in ("last", "oracle")]
        return [MISSING if figure is None else figure.percent(decimals=self.decimals) for figure in figures]

    def full(self) -> Table:
        """Return all methods and metrics on all data sets."""
        columns = ["data set", "method", "metric", "paper", "ours, last epoch (no label chose it)"]
        columns += ["ours, oracle epoch (chosen with the true labels, as the released program reports)"]
        columns += ["last - paper", "oracle - paper", "seeds"]
        lines = []
        for data_set in self.shown:
            for method in paper_methods():
                seeds = str(len(self.runs.get((data_set, method), ())) or MISSING)
                for metric in METRICS:
                    name = [_set_title(data_set), paper_title(method), metric.upper(), _paper(data_set, method, metric)]
                    texts = self._both(data_set, method, metric)
                    lines.append([*name, *texts, *self._gaps(data_set, method, metric), seeds])
        return Table(columns, lines, align="lllrrrrrr")

    def _gaps(self, data_set: str, method: str, metric: str) -> list[str]:
        paper = paper_figure(data_set, method, metric)
        ours = [self.ours(data_set, method, metric, epoch) for epoch in ("last", "oracle")]
        if paper is None:
            return [MISSING, MISSING]
        return [MISSING if o is None else f"{100 * o.mean - paper.mean:+.{self.decimals}f}" for o in ours]

    def short(self) -> Table:
        """Return ACC alone: one line per method."""
        columns = ["ACC"]
        for data_set in self.shown:
            name = _set_title(data_set)
            columns += [f"{name}, paper"] if _in_paper(data_set) else []
            columns += [f"{name}, last epoch", f"{name}, oracle epoch (chosen with the true labels)"]
        lines = []
        for method in paper_methods():
            line = [paper_title(method)]
            for data_set in self.shown:
                line += [_paper(data_set, method, "acc")] if _in_paper(data_set) else []
                line += self._both(data_set, method, "acc")
            lines.append(line)
        return Table(columns, lines)

    def tests(self) -> Table:
        """Return the paired t-test of ACC of PamCGC against every other method, at the last epoch."""
        lines = []
        ran = {data_set for data_set, _ in self.runs}
        for data_set in (name for name in self.shown if name in ran):
            base = self.runs.get((data_set, _BASE), {})
            for method in paper_methods()[:-1]:
                others = self.runs.get((data_set, method), {})
                seeds = sorted(base.keys() & others.keys())
                a, b = ([rows[seed]["values"]["last"]["acc"] for seed in seeds] for rows in (base, others))
                line = [_set_title(data_set), paper_title(method), str(len(seeds) or MISSING)]
                lines.append([*line, *_tested(a, b)])
        return Table(["data set", "PamCGC against", "seeds", "ACC difference", "t", "p"], lines, align="llrrrr")

    def write(self, folder: Path, stem: str, title: str, more: str = "") -> list[Path]:
        """Write `STEM`, `STEM-short` and `STEM-tests`, and return their paths."""
        figures = [paper_figure(data_set, method, "acc") for data_set in self.shown for method in paper_methods()]
        note = _NOTE + more + (_HIDDEN_NOTE if any(figure and figure.hidden for figure in figures) else "")
        documents = {
            stem: (title, self.full(), note),
            f"{stem}-short": (title, self.short(), note),
            f"{stem}-tests": (f"{title}: paired t-tests", self.tests(), _TESTS_NOTE),
        }
        paths: list[Path] = []
        for name, (heading, table, text) in documents.items():
            paths += write_table(table, folder, name, title=heading, rows=self.rows, note=text)
        return paths


def _in_paper(data_set: str) -> bool:
    return paper_figure(data_set, _BASE, "acc") is not None


def _paper(data_set: str, method: str, metric: str) -> str:
    return str(paper_figure(data_set, method, metric) or MISSING)


def _set_title(data_set: str) -> str:
    """Return a name as the paper has it, in capitals; sets that are not in the paper keep their own."""
    return data_set.upper() if _in_paper(data_set) else data_set


def _tested(a: Sequence[float], b: Sequence[float]) -> list[str]:
    if len(a) < 2:
        return [MISSING] * 3
    test = paired_t_test(a, b)
    return [f"{100 * (mean_std(a).mean - mean_std(b).mean):+.2f}", f"{test.statistic:.2f}", f"{test.p_value:.2g}"]


_N_SEEDS_VARIANT = 2

# What may explain a difference, in words, and the settings that try it out.
VARIANTS: dict[str, dict[str, Any]] = {
    "a start from the features as they are": {"preprocessing": "none"},
    "a start from rows of root mean square 1": {"preprocessing": "rms"},
    "a start from rows of unit length, 100 epochs of pre-training": {"preprocessing": "unit", "pretrain_epochs": 100},
    "a start from standardized columns": {"preprocessing": "standardize"},
    "features as they are": {"preprocessing": "none"},
    "rows of unit length": {"preprocessing": "unit"},
    "tf-idf": {"preprocessing": "tfidf"},
    "30 epochs of training": {"n_epochs": 30},
    "2 dimensions": {"n_dims": 2},
    "100 dimensions": {"n_dims": 100},
}
_OF_A_START = tuple(VARIANTS)[:4]
_OF_A_NETWORK = ("features as they are", "rows of unit length", "tf-idf", "30 epochs of training")
_OF_A_DECOMPOSITION = ("2 dimensions", "100 dimensions")
_OF_ROWS = ("rows of unit length", "tf-idf")

# The tables give SCGC* the settings of PamCGC, from which it differs in the loss alone.
_OF_ONE_METHOD: dict[str, dict[str, dict[str, Any]]] = {
    "scgc*": {"the settings of its own program": {"own_program": True}},
    "pamcgc": {"Eq 6 and self-edges, as in the released program": {"proxy": "eq6", "self_edges": "keep"}},
}
METHODS_TRIED = (
    "kmeans", "svd", "ae", "dec", "idec", "gae", "vgae", "arga", "dgi", "daegc", "sdcn", "agcn", "cgc", "scgc", "scgc*",
    "pamcgc",
)  # fmt: skip


def _variants_of(method: str) -> dict[str, dict[str, Any]]:
    """Return what is tried out for a method: its name and the settings that change."""
    entry = METHODS[method]
    names: tuple[str, ...]
    if method == "kmeans":
        names = _OF_ROWS
    elif not entry.uses_features:
        names = _OF_A_DECOMPOSITION
    else:
        names = _OF_A_START if entry.init == "autoencoder" or "init" in entry.config.names() else _OF_A_NETWORK
    return {**_OF_ONE_METHOD.get(method, {}), **{name: VARIANTS[name] for name in names}}


def difference_cells(scope: Scope) -> list[Cell]:
    """Return a fit per data set, method, variant that differs from the tables' settings, and seed."""

    def variants(data_set: str, method: str, seed: int) -> list[Variant]:
        config = METHODS[method].config
        tables = config(**run_settings(scope, method, data_set))
        tried = [(changes, {"variant": name}) for name, changes in _variants_of(method).items()]
        if scope.quick:
            return tried[:1]
        return [each for each in tried if config(**run_settings(scope, method, data_set, **each[0])) != tables]

    return fit_cells(
        scope,
        "differences",
        data_sets=PAPER_SETS,
        methods=METHODS_TRIED,
        n_seeds=_N_SEEDS_VARIANT,
        variants=variants,
    )


@register_experiment(
    "differences",
    summary="Every method with one setting changed at a time, to explain differences from the paper's figures.",
    cells=difference_cells,
)
def render_differences(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write a table: one line per method and variant, one column per data set."""
    data_sets = list(by(rows, lambda row: str(row["data_set"])))
    body = []
    for (method, variant), group in by(rows, lambda row: (row["provider"], row["parameters"]["variant"])).items():
        line = [title_of(method), variant]
        for data_set in data_sets:
            own = [row["values"] for row in group if row["data_set"] == data_set]
            both = [percent([value[epoch]["acc"] for value in own]) for epoch in ("last", "oracle")]
            line.append(" / ".join(both) if own else MISSING)
        body.append(line)
    table = Table(["method", "instead of the tables' settings", *data_sets], body, "ll" + "r" * len(data_sets))
    note = (
        "ACC in percent, mean ± standard deviation over the seeds: last epoch / oracle epoch (chosen with the true "
        "labels). A variant that is the tables' own setting is left out."
    )
    return write_table(
        table, folder, "differences", title="The same systems under other settings", rows=rows, note=note
    )


# Points of ACC from which a difference is explained.
LARGE = 3.0


def _acc(rows: Sequence[Row], method: str, data_set: str, epoch: str, variant: str | None = None) -> float | None:
    """Return the mean ACC in percent of a system on a set, None without rows."""
    values = [
        row["values"][epoch]["acc"]
        for row in rows
        if (row["provider"], row["data_set"], row["parameters"].get("variant")) == (method, data_set, variant)
    ]
    return 100 * mean_std(values).mean if values else None


def differences(tables: Sequence[Row], others: Sequence[Row]) -> str:
    """Return a table of every difference of ACC, with a reason for each of more than three points, as Markdown."""
    body = []
    for method in paper_methods():
        for data_set in PAPER_SETS:
            paper = paper_figure(data_set, method, "acc")
            last, oracle = (_acc(tables, method, data_set, epoch) for epoch in ("last", "oracle"))
            if paper is None or last is None or oracle is None:
                continue
            gaps = [last - paper.mean, oracle - paper.mean]
            why = reason(tables, others, method, data_set) if max(map(abs, gaps)) > LARGE else ""
            texts = [f"{value:.1f}" for value in (paper.mean, last, oracle)]
            body.append([paper_title(method), data_set.upper(), *texts, *(f"{gap:+.1f}" for gap in gaps), why])
    columns = ["method", "data set", "paper", "last", "oracle", "last − paper", "oracle − paper", "why"]
    return Table(columns, body, "llrrrrrl").markdown()


def reason(tables: Sequence[Row], others: Sequence[Row], method: str, data_set: str) -> str:
    """Return one or two sentences on what the difference of a system on a set is due to, as far as it was measured."""
    figure = paper_figure(data_set, method, "acc")
    last, oracle = (_acc(tables, method, data_set, epoch) for epoch in ("last", "oracle"))
    if figure is None or last is None or oracle is None:
        return ""
    paper = figure.mean
    if abs(oracle - paper) <= LARGE:
        return f"The epoch: {oracle:.1f} at the oracle epoch."
    tried = _variants(others, method, data_set)
    parts = [_about_the_settings(tried, oracle, paper)] if tried else []
    if METHODS[method].init_of(METHODS[method].config()) is not None:
        parts += _about_the_start(tables, method, data_set)
    return " ".join(parts or [_spread(tables, method, data_set)])


def _variants(others: Sequence[Row], method: str, data_set: str) -> dict[str, float]:
    names = dict.fromkeys(
        row["parameters"]["variant"] for row in others if row["provider"] == method and row["data_set"] == data_set
    )
    found = {name: _acc(others, method, data_set, "oracle", name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _about_the_settings(tried: dict[str, float], ours: float, paper: float) -> str:
    """Return what the settings that were tried out say: that one of them explains the difference, or that none does."""
    closest = min(tried, key=lambda name: abs(tried[name] - paper))
    if abs(tried[closest] - paper) < abs(ours - paper) / 2:
        return f"The settings: with {closest} it is {tried[closest]:.1f} at the oracle epoch."
    lowest, highest = min(tried, key=tried.__getitem__), max(tried, key=tried.__getitem__)
    if min(tried[lowest], ours) <= paper <= max(tried[highest], ours):
        other = lowest if abs(tried[lowest] - ours) > abs(tried[highest] - ours) else highest
        return f"The settings, which swing it past the paper's figure: with {other} it is {tried[other]:.1f}."
    listed = ", ".join(f"{value:.1f} with {name}" for name, value in tried.items())
    return f"Not the settings tried: {listed}."


def _about_the_start(tables: Sequence[Row], method: str, data_set: str) -> list[str]:
    """Return how the autoencoder that a system starts from compares with the paper's, which is private."""
    paper, ours = paper_figure(data_set, "ae", "acc"), _acc(tables, "ae", data_set, "last")
    if method == "ae" or paper is None or ours is None:
        return []
    both = f"K-means on its autoencoder is {ours:.1f}, on the paper's, which is private, {paper.mean:.1f}"
    apart = abs(ours - paper.mean) > LARGE
    return [f"The start: {both}." if apart else f"Not the start, as far as K-means can tell: {both}."]


def _spread(tables: Sequence[Row], method: str, data_set: str) -> str:
    values = [
        100 * row["values"]["oracle"]["acc"]
        for row in tables
        if (row["provider"], row["data_set"]) == (method, data_set)
    ]
    return f"The seeds: {min(values):.1f} to {max(values):.1f} over {len(values)} of them."
