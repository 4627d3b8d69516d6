"""`pamc evaluate`, `pamc describe`, `pamc methods`, `pamc datasets` and `pamc doctor`."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from pamc.cli.launch import launched_group, own_rank
from pamc.cli.options import CLUSTER, LOOK_UP, command, option, parse_types, shared, split_names
from pamc.cli.show import print_json, print_table, print_text

_OPTIONAL = ("duckdb", "pandas", "networkx", "torch_geometric", "anndata", "faiss", "matplotlib", "umap")


@command(CLUSTER, 4)
def evaluate(
    truth: Path = typer.Argument(
        ..., help="File of true classes: .csv with a label column and optionally an id column, .npy or .npz."
    ),
    labels: Path = typer.Argument(..., help="File of clusters: labels.csv of a run, or a file as above."),
    as_json: bool = shared("--json"),
) -> None:
    """Compare clusters with true classes: ACC, NMI, ARI and macro-F1.

    Rows are matched by id if both files have ids, else by position.

    \b
    Example:
      pamc evaluate truth.csv pamc-run-1/labels.csv
    """  # noqa: D301
    from pamc.data.readers import read_label_pairs
    from pamc.results import metrics

    scores = metrics.evaluate(*read_label_pairs(truth, labels))
    if as_json:
        print_json(scores)
    else:
        rows = [[name.upper(), f"{100 * value:.2f}"] for name, value in scores.items()]
        print_table("comparison with the true classes", ["metric", "%"], rows)


@command(CLUSTER, 5)
def describe(
    table: Path = typer.Argument(..., help="Table to describe: .csv .tsv .parquet .xlsx .feather."),
    id_column: str | None = shared("--id"),
    truth: str | None = shared("--truth"),
    columns: list[str] | None = shared("--columns"),
    drop: list[str] | None = shared("--drop"),
    types: list[str] | None = shared("--types"),
    as_json: bool = shared("--json"),
) -> None:
    """Show the inferred type and the encoding of each column of a table, without a fit.

    \b
    Examples:
      pamc describe customers.csv
      pamc describe customers.csv --types zip=category,size=S<M<L
    """  # noqa: D301
    from pamc.data.readers import describe_table

    roles = {"columns": split_names(columns, "--columns"), "drop": split_names(drop, "--drop")}
    rows = describe_table(table, id_column=id_column, truth_column=truth, types=parse_types(types), **roles)
    if as_json:
        print_json(rows)
        return
    names = ("name", "type", "encoding", "missing", "example", "note")
    shown = [{**row, "missing": f"{100 * row['missing']:.0f} %", "note": row["note"] or ""} for row in rows]
    cells = [[_cut(row[name]) for name in names] for row in shown]
    print_table(f"columns of {table}", names, cells, texts=("type", "encoding", "example", "note"))


# Longest text that is shown in a cell.
_LONGEST_CELL = 60


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…"


@command(LOOK_UP, 1)
def methods(as_json: bool = shared("--json")) -> None:
    """List the methods of pamc fit, the inputs each uses, and whether it can label new rows.

    \b
    Example:
      pamc methods
    """  # noqa: D301
    from pamc.models.method import METHODS

    all_methods = [METHODS[name] for name in METHODS]
    if as_json:
        fields = ("name", "title", "reference", "uses_features", "uses_graph", "inductive")
        print_json([{field: getattr(method, field) for field in fields} for method in all_methods])
        return
    rows = []
    for method in all_methods:
        inputs = ["features"] * method.uses_features + ["graph"] * method.uses_graph
        rows.append([method.name, ", ".join(inputs), "yes" if method.inductive else "no", method.reference])
    print_table("methods", ["name", "inputs", "new rows", "reference"], rows)


@command(LOOK_UP, 2)
def datasets(as_json: bool = shared("--json")) -> None:
    """List the built-in data sets and where each was found.

    \b
    Example:
      PAMC_DATA=my-data pamc datasets
    """  # noqa: D301
    from pamc.data.catalog import CATALOG, available

    if as_json:
        print_json([{"name": name, "available": available(name) is not None} for name in CATALOG])
        return
    rows = []
    for name, entry in CATALOG.items():
        counts = (entry.n_nodes, entry.n_features, entry.n_classes, entry.n_edges)
        rows.append([name, entry.modality, *map(str, counts), available(name) or "–"])
    print_table("built-in data sets", ["name", "kind", "rows", "features", "classes", "edges", "found"], rows)
    print_text("To add a missing data set, put NAME.npz into the folder that the variable PAMC_DATA names.")


@command(LOOK_UP, 3)
def doctor(
    distributed: bool = option("--distributed", "Check the processes that torchrun started.", False),
    device: str = option("--device DEVICE", "Check this device (with --distributed): auto, cpu or cuda.", "auto"),
    as_json: bool = shared("--json"),
) -> None:
    """Print versions, device, optional packages and data folder for a bug report.

    \b
    Examples:
      pamc doctor
      torchrun --nproc-per-node 4 -m pamc doctor --distributed
    """  # noqa: D301
    import importlib.util

    from pamc.runtime import environment, resolve_device

    if distributed:
        _show_processes(device, as_json=as_json)
        return
    facts = environment()
    facts["device"] = str(resolve_device("auto"))
    facts["optional"] = {name: importlib.util.find_spec(name) is not None for name in _OPTIONAL}
    facts["data_folder_set"] = bool(os.environ.get("PAMC_DATA"))
    if as_json:
        print_json(facts)
        return
    packages, optional = facts.pop("packages"), facts.pop("optional")
    rows = [[name.replace("_", " "), "–" if value is None else str(value)] for name, value in facts.items()]
    rows += [[f"package {name}", version] for name, version in packages.items()]
    rows += [[f"optional package {name}", "yes" if installed else "no"] for name, installed in optional.items()]
    print_table("environment of pamc", ["item", "value"], rows)


def _show_processes(device: str, *, as_json: bool) -> None:
    """Show the processes, whether their sums are correct, and their bandwidth; only the first process prints."""
    from pamc.distributed.probe import probe_group
    from pamc.ops.group import SINGLE_PROCESS
    from pamc.runtime import resolve_device

    with launched_group(device) as group:
        facts = probe_group(group or SINGLE_PROCESS, resolve_device(device) if group is None else group.device)
    if own_rank():
        return
    if as_json:
        print_json(facts)
        return
    columns = ("rank", "host", "device", "backend")
    rows = [[str(process[name]) for name in columns] for process in facts["processes"]]
    print_table(f"{facts['n_processes']} process{'es' if len(rows) > 1 else ''}", columns, rows)
    speed = facts["bandwidth_bytes_per_s"]
    bandwidth = "none (a single process)" if speed is None else f"{speed / 1e6:.0f} MB/s"
    print_text(f"sums: {facts['sums']}   latency: {1e3 * facts['latency_s']:.3f} ms   bandwidth: {bandwidth}")
