"""Tables of mixed types and with missing cells: the default settings compared with other methods."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.columns.parsing import read_numbers
from pamc.data.columns.raw import RawColumn, RawTable
from pamc.data.columns.types import NUMBER, find_types
from pamc.data.customers import make_customers
from pamc.data.readers import open_table, raw_columns
from pamc.data.readers.columns import label_texts
from pamc.data.readers.labels import codes_of
from pamc.data.rows import table_graph
from pamc.errors import DataWarning
from pamc.estimator.pamcgc import PamCGC
from pamc.lab.cell import TASKS, Cell, Row, Scope, register_experiment
from pamc.lab.mixed_rivals import MIXED_RIVALS, MixedTable
from pamc.lab.pages.style import MISSING, by, write_table
from pamc.lab.settings import CUSTOMERS, MIXED_TABLES, load, methods_of, mixed_path, quick_settings, seeds_of
from pamc.results.metrics import evaluate
from pamc.results.table import Table, mean_std

_QUICK_CUSTOMERS = 120

# Tables from which a share of the cells is removed at random, and the methods that are compared on them.
EMPTIED_TABLES = ("g_uci_wine", "dermatology", "pendigits", "vote", "mushroom")
EMPTIED_SHARE = 0.3
_EMPTIED_METHODS = ("pamcgc", "one-hot k-means")

_N_SEEDS = 3
_METRICS = ("ari", "nmi", "acc")
_TASK = "mixed"


def cells(scope: Scope) -> list[Cell]:
    """Return the fits of every table by every method, and of tables with removed cells by pamc and K-means."""
    names = [CUSTOMERS] if scope.quick else [*MIXED_TABLES, CUSTOMERS]
    methods = methods_of(scope, _EMPTIED_METHODS if scope.quick else ("pamcgc", *MIXED_RIVALS))
    result = [
        _cell(scope, name, method, seed) for name in names for method in methods for seed in _seeds(scope, method)
    ]
    if scope.quick:
        return result
    for name in EMPTIED_TABLES:
        for method in methods_of(scope, _EMPTIED_METHODS):
            shares = (0.0, EMPTIED_SHARE) if name not in MIXED_TABLES else (EMPTIED_SHARE,)
            result += [_cell(scope, name, method, seed, share) for share in shares for seed in _seeds(scope, method)]
    return [cell for cell in result if scope.data_sets is None or cell.data_set in scope.data_sets]


def _seeds(scope: Scope, method: str) -> range:
    is_random = method == "pamcgc" or MIXED_RIVALS[method].is_random
    return seeds_of(scope, _N_SEEDS) if is_random else range(1)


def _cell(scope: Scope, name: str, method: str, seed: int, emptied: float = 0.0) -> Cell:
    settings = quick_settings("pamcgc") if scope.quick and method == "pamcgc" else {}
    return Cell("mixed", _TASK, method, name, seed, settings, {"emptied": emptied}, scope.quick)


@TASKS.register(_TASK)
def cluster_mixed(cell: Cell, device: str) -> dict[str, Any]:
    """Cluster a table, after removing some of its cells if requested, and compare the labels with the true classes."""
    table, truth = _table(cell)
    n_clusters = len(np.unique(truth))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        started = time.perf_counter()
        if cell.provider != "pamcgc":
            points: Any = MixedTable.of(find_types(table))
            labels = MIXED_RIVALS[cell.provider].cluster(points, n_clusters, cell.seed)
        else:
            config = PamCGC(n_clusters).config.with_(**cell.settings)
            model = PamCGC.from_config(config, random_state=cell.seed, device=device)
            labels = model.fit_graph(_graph(table)).labels_
        seconds = time.perf_counter() - started
    return {"last": evaluate(truth, np.unique(labels, return_inverse=True)[1]), "seconds": seconds}


def _graph(table: RawTable) -> AttributedGraph:
    """Return the rows as `pamc fit` reads them: a table of plain numbers as it is, any other table encoded."""
    columns = [read_numbers(column.distinct.texts) for column in table.columns if column.texts is not None]
    if not all(numbers.is_number.all() and numbers.differs is None for numbers in columns):
        return table_graph(table)
    values = [find_types(RawTable([column], table.n_rows), {column.name: NUMBER})[0].values for column in table.columns]
    return AttributedGraph(np.stack([value for value in values if value is not None], axis=1))


def _table(cell: Cell) -> tuple[RawTable, NDArray[np.int64]]:
    """Return the raw columns of a table and its true classes."""
    name = cell.data_set
    if name == CUSTOMERS:
        customers = make_customers(**({"n_rows": _QUICK_CUSTOMERS} if cell.quick else {}))
        columns = [RawColumn(column, texts=texts) for column, texts in customers.columns.items()]
        table, truth = RawTable(columns, len(customers.segments)), customers.segments
    elif name in MIXED_TABLES:
        file = open_table(mixed_path(name))
        table = raw_columns(file, [column for column in file.names if column != "truth"])
        truth = codes_of(label_texts(file, "truth", "a truth"))
    else:
        graph = load(name, cell.quick)
        features: Any = graph.features
        columns = [RawColumn(f"c{i}", numbers=values.astype(np.float64)) for i, values in enumerate(features.T)]
        table, truth = RawTable(columns, graph.n_nodes), np.asarray(graph.labels)
    return _emptied(table, cell.parameters["emptied"], cell.seed), truth


def _emptied(table: RawTable, share: float, seed: int) -> RawTable:
    """Return the table without a random share of its cells."""
    if share == 0:
        return table
    rng = np.random.default_rng(seed)
    columns = []
    for column in table.columns:
        hidden = rng.random(table.n_rows) < share
        if column.numbers is not None:
            columns.append(RawColumn(column.name, numbers=np.where(hidden, np.nan, column.numbers)))
        else:
            texts = np.array(column.texts, dtype=object)
            texts[hidden] = None
            columns.append(RawColumn(column.name, texts=texts))
    return RawTable(columns, table.n_rows, table.source)


@register_experiment(
    "mixed",
    summary="Accuracy of the default settings and of other methods on tables of mixed types and with missing cells.",
    cells=cells,
)
def render(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write the scores of all methods on every table, and the loss of accuracy due to removed cells."""
    groups = by(rows, lambda row: (row["data_set"], row["provider"], row["parameters"]["emptied"]))
    return [*_write_scores(rows, groups, folder), *_write_emptied(rows, groups, folder)]


def _mean(group: Sequence[Row], metric: str) -> float:
    return 100 * mean_std([row["values"]["last"][metric] for row in group]).mean


def _write_scores(rows: Sequence[Row], groups: dict[Any, list[Row]], folder: Path) -> list[Path]:
    names = [name for name in (*MIXED_TABLES, CUSTOMERS) if any(key[0] == name and not key[2] for key in groups)]
    methods = [name for name in (*MIXED_RIVALS, "pamcgc") if any(key[1] == name for key in groups)]
    titles = [MIXED_RIVALS[name].title if name in MIXED_RIVALS else "pamc" for name in methods]
    body = []
    for name in names:
        measured = [groups.get((name, method, 0.0)) for method in methods]
        body.append([name, *(MISSING if group is None else _scores(group) for group in measured)])
    complete = [name for name in MIXED_TABLES if all((name, method, 0.0) in groups for method in methods)]
    if complete:
        means = (
            [np.mean([_mean(groups[name, method, 0.0], metric) for name in complete]) for metric in _METRICS]
            for method in methods
        )
        body.append([f"**mean of {len(complete)} tables**", *(_joined(values, bold=True) for values in means)])
    note = "ARI / NMI / ACC in percent, mean over the seeds. Only the metrics use the classes."
    table = Table(["table", *titles], body, "l" + "r" * len(titles))
    return write_table(table, folder, "mixed", title="Tables of mixed types", rows=rows, note=note)


def _scores(group: Sequence[Row]) -> str:
    return _joined([_mean(group, metric) for metric in _METRICS])


def _joined(values: Sequence[Any], *, bold: bool = False) -> str:
    text = " / ".join(f"{value:.1f}" for value in values)
    return f"**{text}**" if bold else text


def _write_emptied(rows: Sequence[Row], groups: dict[Any, list[Row]], folder: Path) -> list[Path]:
    body = []
    for name in EMPTIED_TABLES:
        for method in _EMPTIED_METHODS:
            before, after = (groups.get((name, method, share)) for share in (0.0, EMPTIED_SHARE))
            if before and after:
                values = [_mean(group, "nmi") for group in (before, after)]
                title = MIXED_RIVALS[method].title if method in MIXED_RIVALS else "pamc"
                body.append([name, title, *(f"{value:.1f}" for value in (*values, values[0] - values[1]))])
    if not body:
        return []
    columns = ["table", "method", "NMI, complete", f"NMI, {EMPTIED_SHARE:.0%} of the cells emptied", "loss"]
    note = "Mean over the seeds. K-means uses the median for missing numbers."
    title = "Tables with emptied cells"
    return write_table(Table(columns, body, "llrrr"), folder, "emptied", title=title, rows=rows, note=note)
