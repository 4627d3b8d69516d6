"""`pamc report`, and the report that `pamc fit` and `pamc demo` write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pamc.cli import show
from pamc.cli.completion import maps_named
from pamc.cli.options import CLUSTER, command, option, shared
from pamc.cli.show import check_output_file, link_to, note, print_json, print_text
from pamc.errors import ConfigError, DataError, UnknownNameError

if TYPE_CHECKING:
    from pamc.results.record import RunRecord

_COMPARISON_FILE = "pamc-comparison.html"


@command(CLUSTER, 3)
def report(
    runs: list[Path] = typer.Argument(..., help="Run folder with the report to rewrite, or several to compare."),
    out: Path | None = option(
        "--out FILE", "Write the report to this file.", show_default="RUN/report.html, or pamc-comparison.html"
    ),
    map_by: str | None = option("--map NAME", "Redraw the map with layout, pca, umap or auto.", complete=maps_named),
    rebuild: bool = option("--rebuild", "Build the report from the run's files instead of the existing report.", False),
    overwrite: bool = option("--overwrite", "Replace an existing file.", False),
    as_json: bool = shared("--json"),
) -> None:
    """Rewrite the report of a run, or compare several runs.

    \b
    Examples:
      pamc report pamc-run-1
      pamc report pamc-run-1 --map umap
      pamc report pamc-run-1 pamc-run-2 --out comparison.html
    """  # noqa: D301
    from pamc.report.projection import MAPS
    from pamc.report.writing import write_comparison, write_run_report

    if map_by is not None and map_by not in MAPS:
        raise UnknownNameError("map", map_by, MAPS)
    if len(runs) == 1:
        if out is not None:
            check_output_file(out, overwrite=overwrite)
        written = write_run_report(runs[0], map_by=map_by, rebuild=rebuild, out=out)
    else:
        target = out or Path(_COMPARISON_FILE)
        # A comparison under its default name is replaced; any other file of that name is not.
        check_output_file(target, overwrite=overwrite or (out is None and _is_comparison(target)))
        if map_by is not None or rebuild:
            raise ConfigError("--map and --rebuild apply to a single run: rewrite its report first, then compare")
        written = write_comparison(runs, target)
    if as_json:
        print_json({"report": str(written), "runs": [str(run) for run in runs]})
    else:
        print_text(f"report: {link_to(written)}")


def add_report(
    folder: Path,
    model: Any,
    data: Any,
    record: RunRecord,
    *,
    features: Path | None = None,
    truth: str | None = None,
    color: list[str] | None = None,
    map_by: str = "auto",
    before: Path | None = None,
) -> bool:
    """Write the report of a fit into its folder and return whether this succeeded; a failure never loses the fit.

    Parameters
    ----------
    folder
        Temporary folder of the run.
    data
        Graph or store that was fitted.
    features, truth, color
        Path of the table, its column of true classes, and columns to color the map by.
    before
        Folder of the run that an update continues.
    """
    from pamc.data.attributed_graph import AttributedGraph
    from pamc.data.readers import is_table, open_table
    from pamc.report.points import class_names, color_column
    from pamc.report.runs import REPORT_FILE
    from pamc.report.writing import write_fit_report

    try:
        columns, names = None, None
        if features is not None and isinstance(data, AttributedGraph) and is_table(features):
            table = open_table(features)
            columns = {name: color_column(table, name) for name in color or []}
            names = None if truth is None or data.labels is None else class_names(table, truth, data.labels)
        options: dict[str, Any] = {"columns": columns, "class_names": names, "map_by": map_by, "before": before}
        write_fit_report(folder, model, data, record, **options)
    except Exception as error:
        if show.debugging:
            raise
        (folder / REPORT_FILE).unlink(missing_ok=True)
        note(
            f"note: the report could not be written ({type(error).__name__}: {' '.join(str(error).split())}); the "
            "other files of the run are complete"
        )
        return False
    return True


def _is_comparison(path: Path) -> bool:
    from pamc.report.comparison import COMPARISON
    from pamc.report.page_file import read_page

    try:
        read_page(path, formats=(COMPARISON,))
    except DataError:
        return False
    return True
