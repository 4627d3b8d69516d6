"""`pamc bench`."""

from __future__ import annotations

from pathlib import Path

import typer

from pamc.cli.reproduce_command import CellProgress, print_summaries
from pamc.cli.show import Interrupted, note, print_json, print_table, print_text
from pamc.errors import OutputError, UnknownNameError
from pamc.lab.cell import Case, Row, Scope, cases_of, select_cases
from pamc.lab.pages.style import tables
from pamc.lab.rows import QUICK_NOTE
from pamc.lab.settings import check_name
from pamc.lab.sweep import OUT_OF_MEMORY, run_case
from pamc.progress import SilentProgress
from pamc.runtime import resolve_device

__all__ = ["bench"]

_PRECISIONS = ("auto", "float32", "tf32")


def bench(
    *,
    cases: list[str] | None,
    out: Path,
    data_sets: list[str] | None,
    device: str,
    precision: str,
    quick: bool,
    list_them: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure time and memory on this machine, beside the released program and the N × N loss."""
    if list_them:
        _list(as_json=as_json)
        return
    chosen = select_cases("case", cases)
    scope = _scope(device, precision, data_sets, quick=quick)
    if out.exists() and not out.is_dir():
        raise OutputError(f"{out} is a file; name a folder")
    rows: list[Row] = []
    progress = SilentProgress() if quiet else CellProgress()
    try:
        for case in chosen:
            own = run_case(case, scope, out, progress=progress, note=note)
            rows += own
            if not as_json:
                _show(case, own)
    except KeyboardInterrupt:
        raise Interrupted(f"what was measured is in {out}") from None
    if as_json:
        print_json({"out": str(out), "rows": rows})
    else:
        print_text(f"rows: {len(rows)} in {out}{f' ({QUICK_NOTE})' if quick else ''}")
    if any(row["error"] not in (None, OUT_OF_MEMORY) for row in rows):
        raise typer.Exit(1)


def _scope(device: str, precision: str, data_sets: list[str] | None, *, quick: bool) -> Scope:
    if precision not in _PRECISIONS:
        raise UnknownNameError("precision", precision, _PRECISIONS)
    resolved = resolve_device(device)
    if precision == "auto":
        precision = "tf32" if resolved.type == "cuda" else "float32"
    names = tuple(name.strip() for value in data_sets or () for name in value.split(",") if name.strip())
    for name in names:
        check_name(name)
    return Scope(device=str(resolved), quick=quick, precision=precision, data_sets=names or None)


def _list(*, as_json: bool) -> None:
    found = cases_of("case").values()
    if as_json:
        print_json([{"name": case.name, "about": case.summary} for case in found])
    else:
        print_summaries(found)


def _show(case: Case, rows: list[Row]) -> None:
    for table in tables(case.name, rows):
        print_table(table.title, table.columns, table.rows)
