"""Rows of results: one JSON object per measured cell, appended as soon as it is measured and never edited."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from pamc.errors import DataError
from pamc.lab.cell import CASES, Cell, Row, Scope
from pamc.runtime import environment

QUICK_NOTE = "quick settings: not a result"

# Folder of the published rows in a checkout of the repository; experiments use its subfolder "reproduce".
CHECKOUT = Path(__file__).parents[3]
RESULTS = CHECKOUT / "benchmarks" / "results"

# Fields of a row, in order: what was run, when and where, and the result.
_CELL = tuple(field.name for field in fields(Cell))
FIELDS = (*_CELL, "date", "device", "values", "error", "environment")

# Cached, because the code of a running process does not change.
_environment = lru_cache(maxsize=1)(environment)


def stamp(device: str) -> dict[str, Any]:
    """Return the origin of a row: date, device, versions, commit. Call it before measuring."""
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"date": date, "device": device, "environment": _environment()}


def make_row(
    cell: Cell, origin: dict[str, Any], *, values: dict[str, Any] | None = None, error: str | None = None
) -> Row:
    """Return the row of a cell: what was run, its origin (:func:`stamp`), and the result."""
    row = {**asdict(cell), **origin, "values": values or {}, "error": error}
    return {name: row[name] for name in FIELDS}


def fitted_row(rows: Sequence[Row], sweep: str, seconds: str, **more: float) -> Row:
    """Return a row with the exponents of time and peak memory as a function of a parameter, fitted to ascending rows.

    `sweep` names the parameter, and `seconds` the value that holds the time.
    """
    sizes = [row["parameters"][sweep] for row in rows]
    values = {"time_exponent": fitted_exponent(sizes, [row["values"][seconds] for row in rows])}
    memory = [row["values"]["peak_bytes"] for row in rows]
    if all(memory):
        values["memory_exponent"] = fitted_exponent(sizes, memory)
    parameters = {"sweep": sweep, **rows[-1]["parameters"], sweep: [sizes[0], sizes[-1]]}
    return {**rows[-1], "parameters": parameters, "values": {**values, **more}}


def fitted_exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return b of the least-squares fit values = a · sizes^b.

    Examples
    --------
    >>> round(fitted_exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def key_of(row: Row) -> str:
    """Return the key of the cell that a row belongs to."""
    return Cell(**{name: row[name] for name in _CELL}).key


def kind_of(row: Row) -> str:
    """Return "cuda" or "cpu": the kind of device that a row was measured on."""
    return str(row["device"]).split(":")[0]


def read_rows(path: Path) -> list[Row]:
    """Return all rows of a file, oldest first; empty if there is no file. A truncated last line is ignored."""
    if not path.is_file():
        return []
    *lines, last = path.read_bytes().split(b"\n")
    rows = []
    for number, line in enumerate([*lines, last] if _is_row(last) else lines, start=1):
        if not _is_row(line):
            raise DataError(f"{path}, line {number}, is not a row of results: remove it, and its cell runs again")
        rows.append(json.loads(line))
    return rows


def _is_row(line: bytes) -> bool:
    try:
        row = json.loads(line)
    except ValueError:
        return False
    return isinstance(row, dict) and row.keys() >= set(FIELDS)


class RowFile:
    """A file of rows, open for appending: each row is on disk when :meth:`append` returns.

    Opening the file completes a last line that lacks only its newline, and removes one that was truncated by a kill.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        content = path.read_bytes()
        last = content[content.rfind(b"\n") + 1 :]
        if _is_row(last):
            self._file.write(b"\n")
        elif last:
            self._file.truncate(len(content) - len(last))

    def append(self, row: Row) -> None:
        """Write a row as one line."""
        self._file.write(json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()


def usable(rows: Sequence[Row], *, quick: bool) -> list[Row]:
    """Return the newest row of each cell without errors, either only quick rows or none."""
    return list({key_of(row): row for row in rows if row["error"] is None and row["quick"] is quick}.values())


def latest(rows: Sequence[Row]) -> list[Row]:
    """Return the newest row of each cell and kind of device, including errors, in order of first measurement."""
    return list({(key_of(row), kind_of(row)): row for row in rows}.values())


def current(rows: Sequence[Row], cells: Callable[[Scope], list[Cell]]) -> list[Row]:
    """Return the rows of an experiment's current cells, in their order; either all rows are quick or none."""
    if not rows:
        return []
    n_seeds, quick = 1 + max(row["seed"] for row in rows), is_quick(rows)
    present = dict.fromkeys(row["data_set"] for row in rows)
    usual = dict.fromkeys(cell.data_set for cell in cells(Scope(quick=quick)))
    names = tuple(name for name in {**usual, **present} if name in present)
    scopes = [Scope(n_seeds, names, device=device, quick=quick) for device in sorted({kind_of(row) for row in rows})]
    row_of = {key_of(row): row for row in rows}
    keys = dict.fromkeys(cell.key for scope in scopes for cell in cells(scope))
    return [row_of[key] for key in keys if key in row_of]


def stored(case: str, *, device: str | None = None, every: bool = False) -> list[Row]:
    """Return the published rows of a case of `pamc bench`, for one kind of device or all.

    By default, return the newest row of each cell; with `every`, all rows ever measured, oldest first.
    """
    rows = [row for row in read_rows(RESULTS / f"{case}.jsonl") if not row["quick"]]
    return [row for row in (rows if every else latest(rows)) if device is None or kind_of(row) == device]


def rows_of(name: str) -> list[Row]:
    """Return the published rows of an experiment, without quick rows, errors and outdated settings."""
    return current(usable(read_rows(RESULTS / "reproduce" / f"{name}.jsonl"), quick=False), CASES[name].cells)


def is_quick(rows: Sequence[Row]) -> bool:
    """Return whether rows come from quick runs; raise an error if both kinds are mixed."""
    kinds = {bool(row["quick"]) for row in rows}
    if len(kinds) > 1:
        raise DataError("quick rows and full rows are mixed: a table or figure needs rows of one kind")
    return True in kinds


def machine_of(row: Row) -> str:
    """Return the device name of a row."""
    return str(row["environment"]["gpu" if kind_of(row) == "cuda" else "cpu"])


def machines_of(rows: Sequence[Row]) -> str:
    """Return the distinct device names of rows."""
    return _listed(map(machine_of, rows))


def provenance(rows: Sequence[Row]) -> str:
    """Return one line on the origin of figures: number of runs, devices, dates, commits, versions."""
    if not rows:
        return "no runs"
    dates = sorted(row["date"][:10] for row in rows)
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    stamps = [row["environment"] for row in rows]
    return (
        f"{len(rows)} {'run' if len(rows) == 1 else 'runs'} on {machines_of(rows)}; {when}; "
        f"commit {_listed(stamp['commit'] or 'unknown' for stamp in stamps)}; "
        f"pamc {_listed(stamp['pamc'] for stamp in stamps)}, "
        f"torch {_listed(stamp['packages'].get('torch', 'unknown') for stamp in stamps)}"
    )


def _listed(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values))
