"""`pamc bench`."""

from __future__ import annotations

from pathlib import Path

import typer

from pamc.bench.case import CASES, Case, Scope
from pamc.bench.rows import Row
from pamc.bench.run import OUT_OF_MEMORY, run_case
from pamc.bench.shown import tables
from pamc.cli.reproduce_command import CellProgress
from pamc.cli.show import Interrupted, note, print_json, print_table, print_text
from pamc.errors import ConfigError, OutputError, UnknownNameError
from pamc.experiments.data import check_name
from pamc.experiments.rows import QUICK_NOTE
from pamc.runtime import resolve_device
from pamc.training.progress import SilentProgress

__all__ = ["bench"]

_PRECISIONS = ("auto", "float32", "tf32")


def bench(
    cases: list[str] | None = typer.Argument(None, help="Cases by name, or all; see --list."),
    out: Path = typer.Option(Path("pamc-bench"), "--out", help="Folder to which rows are appended, a file per case."),
    data_sets: list[str] | None = typer.Option(None, "--data-sets", help="Only these data sets (comma-separated)."),
    device: str = typer.Option("auto", "--device", help="auto, cpu, cuda, cuda:1 …"),
    precision: str = typer.Option(
        "auto", "--precision", help="Of all matrix products: float32, tf32, or auto: tf32 on a GPU."
    ),
    quick: bool = typer.Option(False, "--quick", help="Small sizes: shows that all of it runs, and is no result."),
    list_them: bool = typer.Option(False, "--list", help="List the cases."),
    quiet: bool = typer.Option(False, "--quiet", help="Show no progress."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Measure time and memory on this machine, beside the released program and the N × N loss.

    Every measurement is a row in OUT, with device, versions and commit. A provider whose loss or gradient is not that
    of the float64 reference is not timed. What runs out of memory is a row that says so.

    Examples:  pamc bench loss --quick
               pamc bench epoch fit --device cuda --data-sets usps
    """
    if list_them:
        _list(as_json=as_json)
        return
    chosen = _cases(cases)
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
    if any(row.get("error") not in (None, OUT_OF_MEMORY) for row in rows):
        raise typer.Exit(1)


def _cases(names: list[str] | None) -> list[Case]:
    if not names:
        raise ConfigError(f"name one or more cases, or all: {', '.join(CASES)}")
    named = [CASES[name] for name in dict.fromkeys(names) if name != "all"]
    return [CASES[name] for name in CASES] if "all" in names else named


def _scope(device: str, precision: str, data_sets: list[str] | None, *, quick: bool) -> Scope:
    if precision not in _PRECISIONS:
        raise UnknownNameError("precision", precision, _PRECISIONS)
    resolved = resolve_device(device)
    if precision == "auto":
        precision = "tf32" if resolved.type == "cuda" else "float32"
    names = tuple(name.strip() for value in data_sets or () for name in value.split(",") if name.strip())
    for name in names:
        check_name(name)
    return Scope(resolved, quick=quick, precision=precision, data_sets=names or None)


def _list(*, as_json: bool) -> None:
    found = [CASES[name] for name in CASES]
    if as_json:
        print_json([{"name": case.name, "about": case.about} for case in found])
        return
    width = max(len(case.name) for case in found)
    for case in found:
        print_text(f"{case.name:<{width}}  {case.about}")


def _show(case: Case, rows: list[Row]) -> None:
    for table in tables(case.name, rows):
        print_table(table.title, table.columns, table.rows)
