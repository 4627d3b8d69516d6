"""`pamc demo`."""

from __future__ import annotations

from pathlib import Path

from pamc.cli.commands.report import add_report
from pamc.cli.options import CLUSTER, command, option, shared
from pamc.cli.show import link_to, near, print_json, print_table, print_text
from pamc.progress import FitProgress, SilentProgress


@command(CLUSTER, 5)
def demo(
    out: Path | None = option("--out DIR", "Write the run to this folder.", show_default="first free pamc-demo-N"),
    seeds: int = option("--seeds N", "Run each method with N seeds.", 3, min=1),
    epochs: int | None = option("--epochs N", "Train for N epochs.", min=0, show_default="chosen by pamc"),
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
        progress = SilentProgress() if quiet else FitProgress()
        runs = list(run_demo(seeds=range(seeds), progress=progress, n_epochs=epochs))
        model, graph, metrics = next((run.model, run.graph, run.metrics) for run in runs if run.model is not None)
        facts = {"name": "digits", "n_nodes": graph.n_nodes, "n_features": graph.n_features, "n_edges": 0, "read": {}}
        record = model.record(data=facts, metrics=metrics, command="pamc demo")
        model.write_run(partial, record=record)
        has_report = add_report(partial, model, graph, record)
    page = target / REPORT_FILE if has_report else None
    methods = list(dict.fromkeys(run.method for run in runs))
    names = list(runs[0].metrics)
    scores = {}
    for method in methods:
        measured = [run.metrics for run in runs if run.method == method]
        scores[method] = {name: mean_std([values[name] for values in measured]) for name in names}
    if as_json:
        print_json(
            {
                "run": str(target),
                "report": None if page is None else str(page),
                "seeds": seeds,
                "mean": {method: {name: mean for name, (mean, _) in scores[method].items()} for method in methods},
            }
        )
        return
    rows = [
        [method, *(f"{100 * mean:.1f} ± {100 * std:.1f}" for mean, std in scores[method].values())]
        for method in methods
    ]
    print_table(f"digits: 1797 images, 10 clusters, {seeds} seeds", ["method", *map(str.upper, names)], rows)
    print_text("Training did not use the true digits; the default settings were chosen on this data set and others.")
    print_text(f"run folder: {near(target)}")
    if page is not None:
        print_text(f"report: {link_to(page)}")
