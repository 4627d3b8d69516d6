"""`pamc reproduce` and `pamc bench`: the paper's experiments, and measurements on this machine."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pamc.cli.completion import cases_named, experiments_named, methods_named
from pamc.cli.options import LABORATORY, command, option, shared, split_names
from pamc.cli.show import Interrupted, note, print_json, print_table, print_text
from pamc.errors import ConfigError, DataError, OutputError, PamcError, UnknownNameError
from pamc.progress import Phase, Progress, SilentProgress, redraws, terminal

if TYPE_CHECKING:
    from pamc.lab.cell import Case, Cell, Row, Scope

_PRECISIONS = ("auto", "float32", "tf32")

# Folder in OUT that caches pre-trained autoencoders until the command has finished.
_STARTS = ".pamc-starts"


@dataclass
class _Outcome:
    """Result of one experiment."""

    artefacts: list[Path] = field(default_factory=list)
    n_run: int = 0
    n_reused: int = 0
    n_failed: int = 0
    exit_code: int = 0


@command(LABORATORY, 1)
def reproduce(
    what: list[str] | None = typer.Argument(
        None, help="Run these experiments, or all (see --list).", autocompletion=experiments_named
    ),
    out: Path | None = option(
        "--out DIR", "Write rows, tables and figures to this folder.", show_default="pamc-reproduce"
    ),
    seeds: int | None = option(
        "--seeds N", "Run each method with N seeds.", min=1, show_default="set by the experiment"
    ),
    datasets: list[str] | None = shared("--dataset"),
    methods: list[str] | None = option(
        "--method NAMES", "Run only these methods (comma-separated).", complete=methods_named
    ),
    device: str = shared("--device"),
    jobs: int = option("--jobs N", "Run N cells in parallel, each in its own process.", 1, min=1),
    quick: bool = option("--quick", "Use tiny settings on small data, to check that everything runs.", False),
    render_only: bool = option("--render-only", "Render from existing rows without running anything.", False),
    list_them: bool = option("--list", "List the experiments.", False),
    quiet: bool = shared("--quiet"),
    as_json: bool = shared("--json"),
) -> None:
    """Run the paper's experiments and write their tables and figures.

    Each finished cell is a row in OUT/rows. Run the same command again to resume; finished cells are not repeated.

    \b
    Examples:
      pamc reproduce table2 --method kmeans,pamcgc --seeds 3
      pamc reproduce all --quick
    """  # noqa: D301
    from pamc.lab.cell import Scope, select_cases
    from pamc.lab.settings import check_name
    from pamc.models.method import METHODS
    from pamc.runtime import resolve_device

    if list_them:
        _list("experiment", "summary", as_json=as_json)
        return
    experiments = select_cases("experiment", what)
    data_set_names = _names(datasets, "--dataset", check_name)
    method_names = _names(methods, "--method", METHODS.__getitem__)
    resolve_device(device)
    scope = Scope(seeds, data_set_names, method_names, device=device, quick=quick)
    folder = _existing_or_new(out or Path("pamc-reproduce-quick" if quick else "pamc-reproduce"))
    try:
        if render_only:
            outcomes = [_render(experiment, folder, quick=quick) for experiment in experiments]
        else:
            progress = SilentProgress() if quiet else CellProgress()
            outcomes = [
                _run(experiment, cells, folder, scope, jobs=jobs, progress=progress)
                for experiment, cells in _runnable(experiments, scope)
            ]
            shutil.rmtree(folder / _STARTS, ignore_errors=True)
    except KeyboardInterrupt:
        raise Interrupted(f"finished cells are in {folder / 'rows'}; run the same command to resume") from None
    _summarize(outcomes, as_json=as_json)
    if code := _exit_code(outcomes, render_only=render_only):
        raise typer.Exit(code)


@command(LABORATORY, 2)
def bench(
    cases: list[str] | None = typer.Argument(
        None, help="Run these cases, or all (see --list).", autocompletion=cases_named
    ),
    out: Path = option("--out DIR", "Append rows to files in this folder, one per case.", Path("pamc-bench")),
    data_sets: list[str] | None = shared("--dataset"),
    device: str = shared("--device"),
    precision: str = option(
        "--precision TYPE", "Compute matrix products in this type: float32, tf32 or auto (tf32 on a GPU).", "auto"
    ),
    quick: bool = option("--quick", "Use small sizes to check that everything runs; not for results.", False),
    list_them: bool = option("--list", "List the cases.", False),
    quiet: bool = shared("--quiet"),
    as_json: bool = shared("--json"),
) -> None:
    """Measure time and memory on this machine, compared with the released program and the N × N loss.

    Each measurement is a row in OUT, with device, versions and commit. An implementation whose loss or gradient differs
    from the float64 reference is not timed. Running out of memory is recorded as a row.

    \b
    Examples:
      pamc bench loss --quick
      pamc bench epoch fit --device cuda --dataset usps
    """  # noqa: D301
    from pamc.lab.cell import Scope, select_cases
    from pamc.lab.pages.style import tables
    from pamc.lab.rows import QUICK_NOTE
    from pamc.lab.settings import check_name
    from pamc.lab.sweep import OUT_OF_MEMORY, run_case
    from pamc.runtime import resolve_device

    if list_them:
        _list("case", "about", as_json=as_json)
        return
    selected = select_cases("case", cases)
    if precision not in _PRECISIONS:
        raise UnknownNameError("precision", precision, _PRECISIONS)
    resolved = resolve_device(device)
    if precision == "auto":
        precision = "tf32" if resolved.type == "cuda" else "float32"
    names = _names(data_sets, "--dataset", check_name)
    scope = Scope(data_sets=names, device=str(resolved), quick=quick, precision=precision)
    _existing_or_new(out)
    rows: list[Row] = []
    progress = SilentProgress() if quiet else CellProgress()
    try:
        for case in selected:
            measured = run_case(case, scope, out, progress=progress, note=note)
            rows += measured
            if not as_json:
                for title, table in tables(case.name, measured):
                    print_table(title, table.columns, table.rows)
    except KeyboardInterrupt:
        raise Interrupted(f"finished measurements are in {out}") from None
    if as_json:
        print_json({"out": str(out), "rows": rows})
    else:
        print_text(f"rows: {len(rows)} in {out}{f' ({QUICK_NOTE})' if quick else ''}")
    if any(row["error"] not in (None, OUT_OF_MEMORY) for row in rows):
        raise typer.Exit(1)


class CellProgress:
    """A progress bar on standard error over the cells of an experiment, with the estimated time left.

    If the terminal cannot redraw, each experiment prints one line at its end.
    """

    @contextmanager
    def phase(self, name: str, total: int | None = None) -> Iterator[Phase]:
        """Yield a phase whose values `reused` and `failed` count cells."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        console = terminal(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
        status = TextColumn("{task.fields[times]}  {task.fields[counts]}")
        with Bar(*columns, status, console=console, disable=not redraws(console)) as bar:
            phase = _Cells(bar, bar.add_task(name, total=total, times="", counts=""), total or 0)
            yield phase
        if not redraws(console):
            elapsed = _clock(time.monotonic() - phase.started)
            note(f"{name}: {total} cells, {phase.counts or 'none reused, none failed'}, {elapsed}")


class _Cells:
    def __init__(self, bar: Any, task: Any, total: int) -> None:
        self._bar, self._task, self._total, self._done = bar, task, total, 0
        self.started, self.counts = time.monotonic(), ""

    def advance(self, **values: float) -> None:
        """Count one cell."""
        self._done += 1
        n_run = self._done - int(values.get("reused", 0))
        elapsed = time.monotonic() - self.started
        left = _clock(elapsed / n_run * (self._total - self._done)) if n_run > 0 else "?"
        self.counts = ", ".join(f"{value:.0f} {name}" for name, value in values.items())
        self._bar.update(self._task, advance=1, times=f"{_clock(elapsed)} elapsed, {left} left", counts=self.counts)


def _existing_or_new(folder: Path) -> Path:
    """Return a folder to write to; raise OutputError if it is a file."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; name a folder")
    return folder


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _names(values: list[str] | None, option: str, check: Callable[[str], object]) -> tuple[str, ...] | None:
    """Return the checked names of a comma-separated option, or None if it was not given."""
    names = split_names(values, option)
    for name in names or ():
        check(name)
    return None if names is None else tuple(names)


def _runnable(experiments: Sequence[Case], scope: Scope) -> list[tuple[Case, list[Cell]]]:
    """Return the experiments with the cells whose data are available, and report missing data."""
    from pamc.lab.settings import why_missing

    runnable: list[tuple[Case, list[Cell]]] = []
    missing: dict[str, str | None] = {}
    unused = {*(scope.data_sets or ()), *(scope.methods or ())}
    for experiment in experiments:
        cells = experiment.cells(scope)
        unused -= {name for cell in cells for name in (cell.data_set, cell.provider)}
        names = dict.fromkeys(cell.data_set for cell in cells)
        missing |= {name: why_missing(name) for name in names if name not in missing}
        available = [cell for cell in cells if missing[cell.data_set] is None]
        if available or (not cells and _needs_no_rows(experiment)):
            runnable.append((experiment, available))
        elif not cells:
            note(f"note: {experiment.name} has nothing to run for these data sets and methods")
    if unused:
        quick_sets = " (a quick run uses only digits and blocks)" if scope.quick else ""
        note(f"note: {', '.join(sorted(unused))}: in none of these experiments{quick_sets}")
    reasons = "; ".join(filter(None, missing.values()))
    if reasons:
        reasons += ". Set $PAMC_DATA to the folder that contains them"
    if not runnable and reasons:
        raise DataError(f"nothing can run: {reasons}")
    if not runnable:
        raise DataError("no experiment uses these data sets and methods")
    if reasons:
        note(f"skipped: {reasons}")
    return runnable


def _run(
    experiment: Case, cells: Sequence[Cell], folder: Path, scope: Scope, *, jobs: int, progress: Progress
) -> _Outcome:
    from pamc.lab.rows import key_of, read_rows
    from pamc.lab.sweep import run_cells

    path = _rows_file(experiment, folder)
    existing = read_rows(path)
    # The tables and figures of one kind would replace those of the other.
    if any(row["quick"] is not scope.quick for row in existing):
        kinds = ("full", "quick") if scope.quick else ("quick", "full")
        raise ConfigError(f"{path} contains rows of {kinds[0]} runs; choose another --out for {kinds[1]} runs")
    reused = {key_of(row) for row in existing if row["error"] is None} & {cell.key for cell in cells}
    rows = run_cells(cells, path, device=scope.device, jobs=jobs, progress=progress, starts=folder / _STARTS)
    failed = [row for row in rows if row["error"] is not None]
    for row in failed:
        note(f"failed: {experiment.name}, {row['provider']} on {row['data_set']}, seed {row['seed']}: {row['error']}")
    outcome = _render(experiment, folder, quick=scope.quick)
    outcome.n_run, outcome.n_reused, outcome.n_failed = len(rows) - len(reused), len(reused), len(failed)
    return outcome


def _render(experiment: Case, folder: Path, *, quick: bool) -> _Outcome:
    """Render an experiment from its rows; a failure is reported and does not stop the other experiments."""
    from pamc.lab.rows import current, read_rows, usable

    outcome = _Outcome()
    path = _rows_file(experiment, folder)
    rows: list[Row] = current(usable(read_rows(path), quick=quick), experiment.cells)
    if not rows and not _needs_no_rows(experiment):
        note(f"{experiment.name} was not rendered: {path} has no {'quick ' if quick else ''}row without an error")
        return outcome
    try:
        outcome.artefacts = [] if experiment.render is None else experiment.render(rows, folder)
    except PamcError as error:
        note(f"{experiment.name} was not rendered, but its rows are saved: {error}")
        outcome.exit_code = error.exit_code
    return outcome


def _needs_no_rows(experiment: Case) -> bool:
    """Return whether an experiment has no cells because it is rendered from formulas."""
    from pamc.lab.cell import Scope

    return not experiment.cells(Scope(device="cpu"))


def _rows_file(experiment: Case, folder: Path) -> Path:
    return folder / "rows" / f"{experiment.name}.jsonl"


def _exit_code(outcomes: Sequence[_Outcome], *, render_only: bool) -> int:
    """Return 1 if cells failed, else the code of a rendering error, or 3 if there was nothing to render."""
    if any(outcome.n_failed for outcome in outcomes):
        return 1
    code = max(outcome.exit_code for outcome in outcomes)
    nothing = render_only and not any(outcome.artefacts for outcome in outcomes)
    return DataError.exit_code if nothing and not code else code


def _list(kind: str, about: str, *, as_json: bool) -> None:
    """List the cases of a kind by name and summary; `about` is the JSON key of the summary."""
    from pamc.lab.cell import cases_of

    cases = cases_of(kind).values()
    if as_json:
        print_json([{"name": case.name, about: case.summary} for case in cases])
        return
    width = max(len(case.name) for case in cases)
    for case in cases:
        print_text(f"{case.name:<{width}}  {case.summary}")


def _summarize(outcomes: Sequence[_Outcome], *, as_json: bool) -> None:
    names = ("run", "reused", "failed")
    counts = {name: sum(getattr(outcome, f"n_{name}") for outcome in outcomes) for name in names}
    paths = [str(path) for outcome in outcomes for path in outcome.artefacts]
    if as_json:
        print_json({"artefacts": paths, **{f"n_{name}": count for name, count in counts.items()}})
        return
    for path in paths:
        print_text(path)
    print_text("cells: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
