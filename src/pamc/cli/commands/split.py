"""`pamc split`."""

from __future__ import annotations

from pathlib import Path

import typer

from pamc.cli.options import CLUSTER, command, option, shared
from pamc.cli.show import near, print_json, print_text
from pamc.errors import counted


@command(CLUSTER, 3)
def split(
    run: Path = typer.Argument(..., help="Run folder with the model."),
    cluster: int = typer.Argument(..., help="Number of the cluster to divide."),
    n_clusters: int = option("--n-clusters -k K", "Divide the cluster into K clusters.", 2),
    out: Path | None = option(
        "--out DIR", "Write the new run to this folder.", show_default="RUN-CLUSTER, such as run-3"
    ),
    overwrite: bool = option("--overwrite", "Replace an existing run.", False),
    device: str = shared("--device"),
    as_json: bool = shared("--json"),
) -> None:
    """Divide one cluster of a run further: fit its rows alone, with the settings of the run.

    The rows are read again from the files that the run names. Edges inside the cluster are kept.

    \b
    Example:
      pamc split pamc-run-1 3 -k 4
    """  # noqa: D301
    from pamc.cli.commands.report import add_report
    from pamc.estimator import estimator_class
    from pamc.estimator.levels import rows_of_cluster
    from pamc.report.runs import rows_of_run
    from pamc.results.run_folder import MODEL_FILE, new_run_folder
    from pamc.results.saved_fit import read_model

    _, about = read_model(run / MODEL_FILE)
    fitted = estimator_class(about["method"]).load(run, device=device)
    part = rows_of_run(run).only(rows_of_cluster(fitted, cluster))
    config = fitted.config.with_(n_clusters=n_clusters)
    target = out or run.with_name(f"{run.name}-{cluster}")
    with new_run_folder(target, overwrite=overwrite) as partial:
        model = type(fitted).from_config(config, random_state=fitted.random_state, device=device).fit_graph(part)
        origin = {"name": f"cluster {cluster} of {run.name}", "n_edges": part.n_edges, "split_of": str(run)}
        record = model.record(data=origin, command=f"pamc split {run} {cluster} -k {n_clusters}")
        model.write_run(partial, ids=part.row_ids, record=record)
        add_report(partial, model, part, record)
    if as_json:
        print_json({"run": str(target), "n_nodes": part.n_nodes, "cluster_sizes": record.cluster_sizes})
    else:
        print_text(f"{counted(part.n_nodes, 'row')} of cluster {cluster} → {near(target)}: {record.cluster_sizes}")
