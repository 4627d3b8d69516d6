"""Where our figures differ from the paper's: the same systems under other settings, one cause at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pamc.lab.cell import Cell, Row, Scope, register_experiment
from pamc.lab.pages.style import by, percent, title_of, write_table
from pamc.lab.settings import PAPER_SETS, data_sets_of, methods_of, run_settings, seeds_of
from pamc.models.method import METHODS
from pamc.results.table import Table

__all__ = ["OWN_PROGRAM", "RELEASED", "VARIANTS", "cells", "render", "variants_of"]

_N_SEEDS = 2

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
# The tables give SCGC* the settings of PamCGC, from which it differs in the loss alone.
OWN_PROGRAM = "the settings of its own program"
RELEASED = "Eq 6 and self-edges, as in the released program"
_OF_A_START = tuple(VARIANTS)[:4]
_OF_A_NETWORK = ("features as they are", "rows of unit length", "tf-idf", "30 epochs of training")
_OF_A_DECOMPOSITION = ("2 dimensions", "100 dimensions")
_OF_ROWS = ("rows of unit length", "tf-idf")


def variants_of(method: str) -> tuple[str, ...]:
    """Return what is tried out for a method.

    Examples
    --------
    >>> variants_of("svd")
    ('2 dimensions', '100 dimensions')
    """
    entry = METHODS[method]
    if method == "kmeans":
        return _OF_ROWS
    if not entry.uses_features:
        return _OF_A_DECOMPOSITION
    return _OF_A_START if entry.init == "autoencoder" or "init" in entry.config.names() else _OF_A_NETWORK


METHODS_TRIED = (
    "kmeans", "svd", "ae", "dec", "idec", "gae", "vgae", "arga", "dgi", "daegc", "sdcn", "agcn", "cgc", "scgc", "scgc*",
    "pamcgc",
)  # fmt: skip


def cells(scope: Scope) -> list[Cell]:
    """Return a fit per data set, method, variant that differs from the tables' settings, and seed."""
    found = []
    for data_set in data_sets_of(scope, PAPER_SETS):
        for method in methods_of(scope, METHODS_TRIED):
            base = run_settings(scope, method, data_set)
            if method == "scgc*":
                own = run_settings(scope, method, data_set, own_program=True)
                found += _cells(scope, method, data_set, own, {"variant": OWN_PROGRAM})
            if method == "pamcgc":
                released = run_settings(scope, method, data_set, proxy="eq6", self_edges="keep")
                found += _cells(scope, method, data_set, released, {"variant": RELEASED})
            for variant in variants_of(method)[: 1 if scope.quick else None]:
                changes = VARIANTS[variant]
                settings = run_settings(scope, method, data_set, **changes)
                if METHODS[method].config(**settings) == METHODS[method].config(**base) and not scope.quick:
                    continue
                found += _cells(scope, method, data_set, settings, {"variant": variant})
    return found


def _cells(scope: Scope, method: str, data_set: str, settings: dict[str, Any], options: dict[str, Any]) -> list[Cell]:
    return [
        Cell("differences", "fit", method, data_set, seed, settings, options, scope.quick)
        for seed in seeds_of(scope, _N_SEEDS)
    ]


@register_experiment(
    "differences",
    summary="Every system under other settings, one at a time: what a difference to the paper's figures is due to.",
    cells=cells,
)
def render(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write a table: one line per method and variant, one column per data set."""
    data_sets = list(by(rows, lambda row: str(row["data_set"])))
    body = []
    for (method, variant), group in by(rows, lambda row: (row["provider"], row["parameters"]["variant"])).items():
        line = [title_of(method), variant]
        for data_set in data_sets:
            own = [row["values"] for row in group if row["data_set"] == data_set]
            both = [percent([value[epoch]["acc"] for value in own]) for epoch in ("last", "oracle")]
            line.append(" / ".join(both) if own else "–")
        body.append(line)
    table = Table(["method", "instead of the tables' settings", *data_sets], body, "ll" + "r" * len(data_sets))
    note = (
        "ACC in percent, mean ± standard deviation over the seeds: last epoch / oracle epoch (chosen with the true "
        "labels). A variant that is the tables' own setting is left out."
    )
    return write_table(
        table, folder, "differences", title="The same systems under other settings", rows=rows, note=note
    )
