"""The typical value of each column of a table in each cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.columns.types import DATE, NUMBER, ORDERED, TEXT, TIME
from pamc.report.traits import Members
from pamc.report.variables import RawVariable, middle_of_day
from pamc.report.wording import clock_text, date_text

# The cluster number that stands for all rows.
ALL_ROWS = -1

# Number of words that are listed for a text column.
_N_WORDS = 3


def profile_columns(
    variables: Sequence[RawVariable], labels: NDArray[np.int64], n_clusters: int
) -> dict[str, NDArray[Any]]:
    """Return a table, by column, of the typical value of each variable in all rows and in each cluster. O(N·d) time."""
    members = Members(labels, n_clusters)
    groups = [(ALL_ROWS, np.arange(len(labels))), *enumerate(members.rows)]
    lines = [
        {"cluster": cluster, "column": variable.name, "type": variable.kind, **_typical(variable, rows)}
        for cluster, rows in groups
        for variable in variables
    ]
    names = ("cluster", "column", "type", "typical", "share", "missing")
    dtypes = {"cluster": np.int64, "share": np.float64, "missing": np.float64}
    return {name: np.array([line[name] for line in lines], dtype=dtypes.get(name, str)) for name in names}


def cell_columns(
    variables: Sequence[RawVariable], rows: NDArray[np.int64], ids: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """Return the original cells of some rows, "" if missing, with one entry per row and column of the table."""
    rows = np.unique(rows)
    cells = np.array([variable.texts(rows) for variable in variables], dtype=object).reshape(len(variables), len(rows))
    return {
        "row": np.repeat(rows, len(variables)),
        "id": np.repeat(ids[rows], len(variables)),
        "column": np.tile(np.array([variable.name for variable in variables], dtype=str), len(rows)),
        "cell": cells.T.ravel().astype(str),
    }


def _typical(variable: RawVariable, rows: NDArray[np.int64]) -> dict[str, Any]:
    missing = variable.missing[rows]
    share = float(missing.mean()) if len(rows) else np.nan
    known = variable.values[rows[~missing]]
    if not len(known):
        return {"typical": "", "share": np.nan, "missing": share}
    text, of_known = _middle(variable, known)
    return {"typical": text, "share": of_known, "missing": share}


def _middle(variable: RawVariable, known: NDArray[Any]) -> tuple[str, float]:
    """Return the typical value among known values as text, and its share, or NaN if it is not a most frequent value."""
    if variable.kind == NUMBER:
        return variable.format.text(float(np.median(known))), np.nan
    if variable.kind == DATE:
        return date_text(np.datetime64(int(np.median(known.astype(np.int64))), "s")), np.nan
    if variable.kind == TIME:
        return clock_text(middle_of_day(known)), np.nan
    if variable.kind == ORDERED:
        return variable.levels[int(np.median(known))], np.nan
    if variable.kind == TEXT:
        # The most distinctive words: a word that is frequent in all rows does not characterize a cluster.
        usual = variable.values[~variable.missing].mean(axis=0)
        more = known.mean(axis=0) - usual if len(known) < (~variable.missing).sum() else usual
        top = np.argsort(-more, kind="stable")[:_N_WORDS]
        return ", ".join(variable.levels[i] for i in top if more[i] > 0), np.nan
    counts = np.bincount(known, minlength=len(variable.levels))
    level = int(counts.argmax())
    return variable.levels[level] or "not given", float(counts[level] / counts.sum())
