"""Runs cases: the gate first, then cell by cell, each row kept the moment it is known."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pamc.bench.case import Case, Cell, Scope
from pamc.bench.measure import is_out_of_memory, release
from pamc.bench.providers import PROVIDERS, available, why_refused
from pamc.bench.rows import Row, append, stamp
from pamc.experiments.data import why_missing
from pamc.models.products import products_in_tf32
from pamc.progress import Progress, SilentProgress

__all__ = ["OUT_OF_MEMORY", "run_case"]

OUT_OF_MEMORY = "out of memory"


def run_case(
    case: Case,
    scope: Scope,
    folder: Path,
    *,
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> list[Row]:
    """Return the rows of a case; each is appended to `folder` as soon as its cell is measured.

    A provider that cannot work on the device is left out, and one that does not compute what the reference does is
    refused: both are said by `note`. A cell that runs out of memory, or fails, is a row with an `error`.
    """
    origin = stamp(quick=scope.quick, device=scope.device.type)
    said = note or (lambda text: None)
    cells, rows = case.cells(scope), []
    release(scope.device)
    usable = {name: _usable(name, scope.device, said) for name in dict.fromkeys(cell.provider for cell in cells)}
    cells = [cell for cell in cells if usable[cell.provider]]
    missing = {name: why_missing(name) for name in dict.fromkeys(map(_data_set, cells)) if name}
    for reason in filter(None, missing.values()):
        said(f"skipped: {reason}")
    cells = [cell for cell in cells if missing.get(_data_set(cell)) is None]
    n_rounds = 1 if scope.quick or scope.device.type == "cuda" else case.n_rounds
    with (progress or SilentProgress()).phase(case.name, n_rounds * len(cells)) as phase:
        earlier: dict[int, list[Row]] = {number: [] for number in range(len(cells))}
        for _ in range(n_rounds - 1):
            for number, cell in enumerate(cells):
                earlier[number].append(_measured(cell, scope))
                phase.advance(failed=0)
        for number, cell in enumerate(cells):
            row = _fastest([*earlier[number], _measured(cell, scope)])
            if row.get("error") not in (None, OUT_OF_MEMORY):
                said(f"failed: {case.name}, {cell.provider}, {json.dumps(cell.parameters)}: {row['error']}")
            append(folder, case.name, [row], origin)
            rows.append(row)
            phase.advance(failed=sum("error" in row for row in rows))
    more = case.sum_up([row for row in rows if "error" not in row])
    append(folder, case.name, more, origin)
    return [{"case": case.name, **row, **origin} for row in [*rows, *more]]


def _fastest(rounds: list[Row]) -> Row:
    """Return the row of the fastest round; that of the last one where all failed."""
    return min(rounds[::-1], key=lambda row: row["values"].get("seconds", math.inf))


def _data_set(cell: Cell) -> str:
    return str(cell.parameters.get("data_set", ""))


def _usable(name: str, device: torch.device, said: Callable[[str], None]) -> bool:
    if name not in PROVIDERS:
        return True
    reason = available(name, device)
    if reason is not None:
        said(f"{name} is left out: {reason}")
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = why_refused(PROVIDERS[name], device)
    if wrong is not None:
        said(f"{name} is refused and not timed: {wrong}")
    return wrong is None


def _measured(cell: Cell, scope: Scope) -> Row:
    row: Row = {"provider": cell.provider, "parameters": cell.parameters, "values": {}}
    try:
        with warnings.catch_warnings(), products_in_tf32(False):
            warnings.simplefilter("ignore")
            # Through JSON and back: the row is now what the file will hold.
            values: dict[str, Any] = json.loads(json.dumps(cell.measure(), allow_nan=False))
    except Exception as error:
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"[:1000]
        return {**row, "error": OUT_OF_MEMORY if is_out_of_memory(error) else text}
    finally:
        release(scope.device)
    return {**row, "values": values}
