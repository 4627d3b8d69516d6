"""Tables 2 and 3 of the paper: sixteen methods on graphs (2) and on tables of features (3)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pamc.data.catalog import available
from pamc.experiments.comparison import Comparison
from pamc.experiments.experiment import Cell, Row, Scope, register_experiment
from pamc.experiments.published import paper_decimals, paper_methods, paper_sets
from pamc.experiments.rows import is_quick
from pamc.experiments.settings import quick_settings, settings_of

__all__ = ["render_table2", "render_table3", "table_cells"]

# Stand-ins for REUT, whose features are not public; they are shown under their own names.
STAND_INS = ("news4", "reut21578_4")

_QUICK_SETS: dict[str, tuple[str, ...]] = {"table2": ("blocks",), "table3": ("digits",)}

# The methods that differ from PamCGC the least, and those that cost the least, have as many seeds as in the paper.
_N_SEEDS = dict.fromkeys(("pamcgc", "scgc", "scgc*", "kmeans", "ae"), 10)
_N_SEEDS_OTHERS = 3
_N_SEEDS_QUICK = 2

_REUT_MISSING = (
    "REUT was not run: its features are not public. With reut.npz in $PAMC_DATA it is. news4 and reut21578_4 are other "
    "corpora, made by the same recipe and run with REUT's settings; the paper has no figures for them."
)


def table_cells(table: str, scope: Scope) -> list[Cell]:
    """Return one fit per data set, method and seed of "table2" or "table3".

    The autoencoders come first: the methods that start from one then find it kept.
    """
    cells = [
        Cell(table, "fit", method, data_set, seed, settings=_settings(method, data_set, scope), quick=scope.quick)
        for data_set in _sets(table, scope)
        for method in paper_methods()
        if scope.methods is None or method in scope.methods
        for seed in range(_n_seeds(method, scope))
    ]
    return sorted(cells, key=lambda cell: cell.method != "ae")


def _sets(table: str, scope: Scope) -> list[str]:
    if scope.quick:
        own = _QUICK_SETS[table]
    else:
        own = _all_sets(table)
        if scope.datasets is None and available("reut") is None:
            own = tuple(name for name in own if name != "reut")
    return [name for name in own if scope.datasets is None or name in scope.datasets]


def _all_sets(table: str) -> tuple[str, ...]:
    return (*paper_sets(table), *(STAND_INS if table == "table3" else ()))


def _n_seeds(method: str, scope: Scope) -> int:
    if scope.seeds is not None:
        return scope.seeds
    return _N_SEEDS_QUICK if scope.quick else _N_SEEDS.get(method, _N_SEEDS_OTHERS)


def _settings(method: str, data_set: str, scope: Scope) -> dict[str, object]:
    return {**settings_of(method, data_set), **(quick_settings(method) if scope.quick else {})}


@register_experiment(
    "table2", summary="Table 2: sixteen methods on DBLP, ACM and CITE.", cells=partial(table_cells, "table2")
)
def render_table2(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write Table 2, in full and in short, with the paired t-tests."""
    return _comparison("table2", rows).write(folder, "table2", "Table 2: graphs", [])


@register_experiment(
    "table3",
    summary="Table 3: sixteen methods on USPS, HHAR and REUT, or two stand-ins for REUT.",
    cells=partial(table_cells, "table3"),
)
def render_table3(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write Table 3, in full and in short, with the paired t-tests; REUT is said to be missing where it is."""
    here = any(row["data_set"] == "reut" for row in rows) or is_quick(rows)
    return _comparison("table3", rows).write(
        folder, "table3", "Table 3: tables of features", [] if here else [_REUT_MISSING]
    )


def _comparison(table: str, rows: Sequence[Row]) -> Comparison:
    own = [row for row in rows if row["experiment"] == table and row["task"] == "fit"]
    return Comparison(own, _all_sets(table), paper_decimals(table))
