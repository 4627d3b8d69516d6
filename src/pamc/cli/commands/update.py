"""`pamc update`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pamc.cli.options import CLUSTER, command, option, shared
from pamc.cli.show import near, note, print_json, print_table, print_text
from pamc.errors import ConfigError, counted

if TYPE_CHECKING:
    from pamc.results.record import RunRecord

# Exit code if the drift exceeds a bound; the new run is written nevertheless.
EXIT_DRIFT = 5

_COMPARISON_FILE = "comparison.html"


@command(CLUSTER, 4)
def update(
    run: Path = typer.Argument(..., help="Run folder of the previous fit, which is not changed."),
    new_rows: list[Path] = typer.Argument(
        ..., help="Files of new rows, with the columns of the run; a row with an old id replaces the old row."
    ),
    edges: list[str] | None = option("--edges FILE", "Read additional edges, between any rows, from this file."),
    only_new: bool = option("--only-new", "Fit the new rows alone, without the rows of the run.", False),
    max_moved: float | None = option(
        "--max-moved X", "Exit with code 5 if more than this share of the old rows moved to another cluster."
    ),
    max_unlike: float | None = option(
        "--max-unlike X", "Exit with code 5 if more than this share of the new rows is unlike the rows of the run."
    ),
    max_shift: float | None = option(
        "--max-shift X",
        "Exit with code 5 if the mean of a feature in a cluster shifted by more than X standard deviations.",
    ),
    fail_on_change: bool = option(
        "--fail-on-change", "Exit with code 5 if a cluster appeared, vanished, split or merged.", False
    ),
    out: Path | None = option("--out DIR", "Write the new run to this folder.", show_default="first free pamc-run-N"),
    overwrite: bool = option("--overwrite", "Replace an existing run.", False),
    with_report: bool = option("--report/--no-report", "Write HTML reports to report.html and comparison.html.", True),
    device: str = shared("--device"),
    quiet: bool = shared("--quiet"),
    as_json: bool = shared("--json"),
) -> None:
    """Update a run with new rows; clusters keep their numbers, names and colors.

    The new run records which clusters appeared, vanished, split or merged, and how far the rows have drifted. The old
    run is not changed, so you can go back to it at any time.

    \b
    Examples:
      pamc update pamc-run-1 march.csv
      pamc update pamc-run-1 march.csv --max-moved 0.05 --max-unlike 0.1 --out pamc-run-2
      pamc update papers-run new-papers.csv --edges new-citations.csv
    """  # noqa: D301
    from pamc.cli.commands.report import add_report
    from pamc.data.readers.later_rows import with_later_rows
    from pamc.estimator.methods import load_model
    from pamc.estimator.update import check_updatable
    from pamc.progress import FitProgress, SilentProgress
    from pamc.report.runs import REPORT_FILE, fitted_columns, rows_of_run
    from pamc.results.run_folder import new_run_folder, next_free_folder

    target = out or next_free_folder(Path.cwd())
    if target.resolve() == run.resolve():
        raise ConfigError("--out must differ from the folder of the run, which is not changed; name another folder")
    old, _ = load_model(run, device=device)
    fit = check_updatable(old)
    _check_relations(run)
    first = None if only_new else rows_of_run(run)
    graph = with_later_rows(first, new_rows, fitted_columns(run), edges or [])
    model = type(old).from_config(fit.config, random_state=old.random_state, device=device)
    model.types = old.types
    with new_run_folder(target, overwrite=overwrite) as partial:
        progress = SilentProgress() if quiet else FitProgress()
        model.fit_graph(graph, previous=old, progress=progress)
        record = _record(run, model, graph, new_rows, edges or [], target, only_new=only_new)
        model.write_run(partial, ids=graph.row_ids, record=record)
        has_report = with_report and add_report(partial, model, graph, record, before=run)
        has_comparison = has_report and _add_comparison(run, partial, target)
    pages = {"report": REPORT_FILE if has_report else None, "comparison": _COMPARISON_FILE if has_comparison else None}
    bounds = {"moved": max_moved, "unlike": max_unlike, "shift": max_shift}
    exceeded = _exceeded(model.update_, bounds, fail_on_change=fail_on_change)
    _show(record, target, pages, exceeded, as_json=as_json)
    if exceeded:
        raise typer.Exit(EXIT_DRIFT)


def _check_relations(run: Path) -> None:
    """Raise a ConfigError for a run with several relations, to which no edges can be added."""
    from pamc.report.runs import record_of

    data = record_of(run).data
    if isinstance(data.get("edges"), dict) or data.get("members"):
        raise ConfigError(
            f"{run} was fitted to several relations: update it in Python, PamCGC(…).fit(X, adjacency=…, previous=model)"
        )


def _record(
    run: Path,
    model: Any,
    graph: Any,
    new_rows: list[Path],
    edges: list[str],
    target: Path,
    *,
    only_new: bool,
) -> RunRecord:
    from pamc.cli.fit_run import way_back
    from pamc.report.runs import record_of, relocated

    old = record_of(run)
    data = relocated(old, run, start=Path.cwd())
    earlier = {name: [] if only_new else list(data.get(name) or []) for name in ("new_rows", "new_edges")}
    data |= {
        "n_nodes": graph.n_nodes,
        "n_edges": graph.n_edges,
        "new_rows": [*earlier["new_rows"], *map(str, new_rows)],
        "new_edges": [*earlier["new_edges"], *edges],
        "only_new": only_new or bool(data.get("only_new")),
        "update_of": str(run),
        "folder": way_back(target),
    }
    record: RunRecord = model.record(data=data, command=shlex.join(["pamc", *sys.argv[1:]]))
    return record


def _add_comparison(run: Path, partial: Path, target: Path) -> bool:
    """Write the page that compares the runs before and after; return False if they cannot be compared."""
    from pamc.errors import PamcError
    from pamc.report.writing import write_comparison

    try:
        write_comparison([run, partial], partial / _COMPARISON_FILE, names=[str(run), str(target)])
    except PamcError as error:
        note(f"note: {_COMPARISON_FILE} was not written: {error}")
        return False
    return True


def _exceeded(update: Any, bounds: dict[str, float | None], *, fail_on_change: bool) -> list[str]:
    """Return the bounds that the drift exceeds, as text."""
    named = {name: update[name] for name, bound in bounds.items() if bound is not None and update[name] is not None}
    texts = [f"{name} {value:.3g} > {bounds[name]:g}" for name, value in named.items() if value > (bounds[name] or 0)]
    return texts + ([counted(len(update["changes"]), "change")] if fail_on_change and update["changes"] else [])


def change_text(change: dict[str, Any]) -> str:
    """Return a change of clusters as a sentence.

    Examples
    --------
    >>> change_text({"kind": "split", "cluster": 5, "other": 2, "n_rows": 31})
    'cluster 2 split: 31 of its rows are cluster 5'
    """
    cluster, other, rows = change["cluster"], change["other"], counted(change["n_rows"], "row")
    texts = {
        "appeared": f"cluster {cluster} appeared, with {rows}",
        "split": f"cluster {other} split: {change['n_rows']} of its rows are cluster {cluster}",
        "merged": f"cluster {cluster} merged into cluster {other}, with {rows}",
        "vanished": f"cluster {cluster} vanished",
    }
    return texts[change["kind"]]


def _show(record: RunRecord, target: Path, pages: dict[str, str | None], exceeded: list[str], *, as_json: bool) -> None:
    update: Any = record.facts["update"]
    if as_json:
        paths = {name: None if page is None else str(target / page) for name, page in pages.items()}
        sizes = {"n_nodes": record.data["n_nodes"], "cluster_sizes": record.cluster_sizes}
        print_json({"run": str(target), **sizes, "update": update, "exceeded": exceeded, **paths})
        return
    before = update["sizes_before"]
    rows = [
        [str(cluster), str(before[cluster]) if cluster < len(before) else "–", str(size)]
        for cluster, size in enumerate(record.cluster_sizes)
    ]
    title = f"{counted(update['n_old_rows'], 'old row')} and {counted(update['n_new_rows'], 'new row')}"
    print_table(title, ["cluster", "before", "now"], rows)
    for change in update["changes"]:
        print_text(change_text(change))
    moved, shift = update["moved"], update["shift"]
    parts = [] if moved is None else [f"{100 * moved:.1f} % of the old rows moved"]
    parts += [f"{100 * update['unlike']:.1f} % of the new rows are unlike the previous rows"]
    parts += [] if shift is None else [f"largest shift {shift:.2f} standard deviations"]
    print_text("drift: " + ", ".join(parts))
    print_text(f"run folder: {near(target)}")
    if exceeded:
        note(f"drift exceeds a bound: {', '.join(exceeded)}")
