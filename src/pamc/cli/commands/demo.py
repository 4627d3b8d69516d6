"""`pamc demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pamc.cli.commands.report import add_report
from pamc.cli.options import CLUSTER, command, option, shared
from pamc.cli.show import link_to, near, print_json, print_table, print_text
from pamc.progress import RichProgress, SilentProgress

if TYPE_CHECKING:
    from pamc.lab.fits import DemoRun


@command(CLUSTER, 5)
def demo(
    out: Path | None = option("--out DIR", "Write the run to this folder.", show_default="first free pamc-demo-N"),
    seeds: int = option("--seeds N", "Run each method with N seeds.", 3, min=1),
    epochs: int = option("--epochs N", "Train for N epochs.", 200, min=0),
    quiet: bool = shared("--quiet"),
    as_json: bool = shared("--json"),
) -> None:
    """Cluster handwritten digits offline and compare with K-means on the same pixels.

    \b
    Example:
      pamc demo --seeds 1
    """  # noqa: D301
    from pamc.lab.fits import run_demo
    from pamc.report.runs import REPORT_FILE
    from pamc.results.run_folder import new_run_folder, next_free_folder
    from pamc.results.table import mean_std

    target = out or next_free_folder(Path.cwd(), "pamc-demo")
    with new_run_folder(target) as partial:
        progress = SilentProgress() if quiet else RichProgress()
        runs = list(run_demo(seeds=range(seeds), progress=progress, n_epochs=epochs))
        best = next(run for run in runs if run.model is not None)
        reported = _write(best, partial)
    page = target / REPORT_FILE if reported else None
    methods = list(dict.fromkeys(run.method for run in runs))
    names = list(runs[0].metrics)
    scores = {m: {n: mean_std([r.metrics[n] for r in runs if r.method == m]) for n in names} for m in methods}
    if as_json:
        print_json(
            {
                "run": str(target),
                "report": None if page is None else str(page),
                "seeds": seeds,
                "mean": {m: {n: v[0] for n, v in s.items()} for m, s in scores.items()},
            }
        )
        return
    rows = [[m, *(f"{100 * mean:.1f} ± {100 * std:.1f}" for mean, std in scores[m].values())] for m in methods]
    print_table(f"digits: 1797 images, 10 clusters, {seeds} seeds", ["method", *(n.upper() for n in names)], rows)
    print_text("training did not see the true digits; digits was among the sets on which the defaults were chosen")
    print_text(f"run folder: {near(target)}")
    if page is not None:
        print_text(f"report: {link_to(page)}")


def _write(run: DemoRun, folder: Path) -> bool:
    """Write the run of a model and return whether its report could be written."""
    model: Any = run.model
    record = model.record(data=_facts(run), metrics=run.metrics, command="pamc demo")
    model.write_run(folder, record=record)
    return add_report(folder, model, run.graph, record)


def _facts(run: DemoRun) -> dict[str, object]:
    graph = run.graph
    return {"name": "digits", "n_nodes": graph.n_nodes, "n_features": graph.n_features, "n_edges": 0, "read": {}}
