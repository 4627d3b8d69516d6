"""The options of every command. What a command does stands in a module of its own, loaded when the command runs.

So help, completion and mistyped options answer at once: nothing here imports torch.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import typer

from pamc.cli.completion import (
    cases_named,
    datasets_named,
    devices_named,
    experiments_named,
    maps_named,
    methods_named,
    presets_named,
    settings_named,
)
from pamc.config import FitConfig

__all__ = [
    "bench",
    "datasets",
    "demo",
    "doctor",
    "evaluate",
    "fit",
    "ingest",
    "methods",
    "predict",
    "report",
    "reproduce",
    "synthesize",
]

# The panels of the help of `pamc fit`.
INPUT, MODEL, OUTPUT, LONG_RUNS, REPORT = "Input", "Model", "Output", "Long runs", "Report"


def _setting_option(name: str, option: str, metavar: str, *, also: str = "") -> Any:
    """Return the option of a setting of PamCGC, with the help and the default that its declaration has."""
    declared = FitConfig.settings()[name]
    return typer.Option(
        None,
        option,
        help=declared.about + also,
        metavar=metavar,
        show_default=f"{declared.default:g}",
        rich_help_panel=MODEL,
    )


def _as_json(panel: str | None = None) -> Any:
    told = "Print one JSON object on standard output, and nothing else."
    return typer.Option(False, "--json", help=told, rich_help_panel=panel)


def _quiet(panel: str | None = None) -> Any:
    return typer.Option(False, "--quiet", help="Show no progress.", rich_help_panel=panel)


def _device(panel: str | None = None) -> Any:
    told = "Where to compute: auto takes a GPU where there is one; cpu, cuda, cuda:1 …"
    return typer.Option(
        "auto", "--device", help=told, metavar="DEVICE", autocompletion=devices_named, rich_help_panel=panel
    )


def _id(panel: str | None = None) -> Any:
    return typer.Option(None, "--id", help="Column that names the rows.", metavar="COLUMN", rich_help_panel=panel)


def _truth(panel: str | None = None) -> Any:
    told = "Column of true classes: it serves the metrics, never training."
    return typer.Option(None, "--truth", help=told, metavar="COLUMN", rich_help_panel=panel)


def _columns(panel: str | None = None) -> Any:
    told = "Feature columns to use (comma-separated)."
    return typer.Option(None, "--columns", help=told, metavar="NAMES", rich_help_panel=panel)


def _drop(panel: str | None = None) -> Any:
    told = "Columns to leave out (comma-separated)."
    return typer.Option(None, "--drop", help=told, metavar="NAMES", rich_help_panel=panel)


def _seed(panel: str | None = None) -> Any:
    return typer.Option(0, "--seed", min=0, help="Random seed to use.", metavar="N", rich_help_panel=panel)


def _datasets() -> Any:
    return typer.Option(
        None,
        "--dataset",
        help="Run these data sets only (comma-separated).",
        metavar="NAMES",
        autocompletion=datasets_named,
    )


_STORE = typer.Option(..., "--out", help="Folder of the store to write.", metavar="DIR")
_STORED_TYPE = typer.Option("float32", "--dtype", help="Type to store features in: float32 or float16.", metavar="TYPE")
_REPLACE_STORE = typer.Option(False, "--overwrite", help="Replace a store that stands in the folder.")


def _call(module: str, name: str, options: dict[str, Any]) -> None:
    """Run a command with its options."""
    getattr(importlib.import_module(f"pamc.cli.{module}"), name)(**options)


def fit(
    features: Path | None = typer.Argument(
        None, help="Rows to cluster: .csv .tsv .parquet .npy .npz .mtx .svm; or a store.", rich_help_panel=INPUT
    ),
    dataset: str | None = typer.Option(
        None,
        "--dataset",
        help="Cluster a known data set instead (see pamc datasets).",
        metavar="NAME",
        autocompletion=datasets_named,
        rich_help_panel=INPUT,
    ),
    edges: Path | None = typer.Option(
        None,
        "--edges",
        help="Edge list to read: source, target[, weight]. Without it a kNN graph is built.",
        metavar="FILE",
        rich_help_panel=INPUT,
    ),
    id_column: str | None = _id(INPUT),
    truth: str | None = _truth(INPUT),
    columns: list[str] | None = _columns(INPUT),
    drop: list[str] | None = _drop(INPUT),
    n_clusters: str | None = typer.Option(
        None,
        "--n-clusters",
        "-k",
        help="Number of clusters to form, 2 or more; auto looks for one.",
        metavar="K",
        rich_help_panel=MODEL,
    ),
    method: str = typer.Option(
        "pamcgc",
        "--method",
        help="Method to cluster by (see pamc methods).",
        metavar="NAME",
        autocompletion=methods_named,
        rich_help_panel=MODEL,
    ),
    preset_name: str = typer.Option(
        "default",
        "--preset",
        help="Settings to begin with: default, paper or released.",
        metavar="NAME",
        autocompletion=presets_named,
        rich_help_panel=MODEL,
    ),
    epochs: int | None = _setting_option("n_epochs", "--epochs", "N"),
    alpha: float | None = _setting_option("alpha", "--alpha", "X"),
    beta: float | None = _setting_option("beta", "--beta", "X"),
    n_hops: int | None = _setting_option("n_hops", "--n-hops", "N"),
    settings: list[str] | None = typer.Option(
        None,
        "--set",
        help="Set any other setting (see docs/parameters.md); may be repeated.",
        metavar="NAME=VALUE",
        autocompletion=settings_named,
        rich_help_panel=MODEL,
    ),
    config_file: Path | None = typer.Option(
        None, "--config", help="Read settings from a TOML file.", metavar="FILE", rich_help_panel=MODEL
    ),
    seed: int = _seed(MODEL),
    device: str = _device(MODEL),
    out: Path | None = typer.Option(
        None,
        "--out",
        help="Folder to write.",
        metavar="DIR",
        show_default="pamc-run-N, the first that is free",
        rich_help_panel=OUTPUT,
    ),
    labels_format: str = typer.Option(
        "csv",
        "--labels-format",
        help="Format to write the labels in: csv or parquet.",
        metavar="TYPE",
        rich_help_panel=OUTPUT,
    ),
    overwrite: bool = typer.Option(
        False, "--overwrite", help="Replace a run that stands in the folder.", rich_help_panel=OUTPUT
    ),
    quiet: bool = _quiet(OUTPUT),
    as_json: bool = _as_json(OUTPUT),
    checkpoint_every: int | None = typer.Option(
        None, "--checkpoint-every", help="Keep a checkpoint every N epochs.", metavar="N", rich_help_panel=LONG_RUNS
    ),
    checkpoint_minutes: float | None = typer.Option(
        None, "--checkpoint-minutes", help="Keep a checkpoint every X minutes.", metavar="X", rich_help_panel=LONG_RUNS
    ),
    resume: bool = typer.Option(
        False,
        "--resume",
        help="Go on from the checkpoints of a run that was stopped.",
        rich_help_panel=LONG_RUNS,
    ),
    memory: str | None = typer.Option(
        None,
        "--memory",
        help="Memory that training of a large store may use: 4GB.",
        metavar="SIZE",
        rich_help_panel=LONG_RUNS,
    ),
    verify: bool = typer.Option(
        True,
        "--verify/--no-verify",
        help="Compare the checksums of a store before its first fit.",
        rich_help_panel=LONG_RUNS,
    ),
    with_report: bool = typer.Option(
        True, "--report/--no-report", help="Write report.html, a page to look at.", rich_help_panel=REPORT
    ),
    map_by: str = typer.Option(
        "auto",
        "--map",
        help="How to draw the map of the report: pca, umap, or auto.",
        metavar="NAME",
        autocompletion=maps_named,
        rich_help_panel=REPORT,
    ),
    color: list[str] | None = typer.Option(
        None,
        "--color",
        help="Columns to color the map of the report by (comma-separated).",
        metavar="NAMES",
        rich_help_panel=REPORT,
    ),
) -> None:
    """Cluster rows and write labels, embedding, model, record and a report to a folder.

    \b
    Examples:
      pamc fit customers.csv --id customer --n-clusters 5
      pamc fit customers.csv --id customer --n-clusters auto
      pamc fit papers.csv --id doi --edges citations.csv -k 7
      pamc fit papers-store --n-clusters 7      (see pamc ingest)
      pamc fit --dataset acm --preset paper --n-clusters 3
      torchrun --nproc-per-node 4 -m pamc fit big.npy -k 20 --out run

    Defaults of the settings are those of the preset "default"; every other setting is given by --set.
    """  # noqa: D301
    _call("fit_command", "fit", locals())


def predict(
    run: Path = typer.Argument(..., help="Folder of the run to use."),
    features: Path = typer.Argument(..., help="New rows to assign, with the columns of the training file."),
    out: Path = typer.Option(
        ..., "--out", help="File to write: .csv or .parquet with id, cluster, confidence.", metavar="FILE"
    ),
    id_column: str | None = typer.Option(
        None, "--id", help="Column that names the rows.", metavar="COLUMN", show_default="as in the run"
    ),
    columns: list[str] | None = typer.Option(
        None, "--columns", help="Feature columns to use.", metavar="NAMES", show_default="as in the run"
    ),
    drop: list[str] | None = typer.Option(
        None, "--drop", help="Columns to leave out.", metavar="NAMES", show_default="as in the run"
    ),
    device: str = _device(),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace the file."),
    as_json: bool = _as_json(),
) -> None:
    """Assign new rows to the clusters of a saved run; no graph is needed.

    \b
    Example:
      pamc predict pamc-run-1 new-customers.csv --out clusters.csv
    """  # noqa: D301
    _call("predict_command", "predict", locals())


def report(
    runs: list[Path] = typer.Argument(
        ..., help="Folders of runs: the page of one is written again, several are compared."
    ),
    out: Path | None = typer.Option(
        None,
        "--out",
        help="File to write.",
        metavar="FILE",
        show_default="RUN/report.html, or pamc-comparison.html",
    ),
    map_by: str | None = typer.Option(
        None, "--map", help="Draw the map again: pca, umap or auto.", metavar="NAME", autocompletion=maps_named
    ),
    rebuild: bool = typer.Option(
        False, "--rebuild", help="Make the page from the run's files, not from the page that exists."
    ),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace a file that exists."),
    as_json: bool = _as_json(),
) -> None:
    """Write the page of a run again, or a page that compares several runs.

    \b
    Examples:
      pamc report pamc-run-1
      pamc report pamc-run-1 --map umap
      pamc report pamc-run-1 pamc-run-2 --out comparison.html
    """  # noqa: D301
    _call("report_command", "report", locals())


def ingest(
    features: str = typer.Argument(
        ..., help="Rows to read: .csv .tsv .parquet; a file, a folder of parts, or a 'pattern*'."
    ),
    edges: str | None = typer.Argument(None, help="Edges to read: source, target[, weight]; named like the rows."),
    out: Path = _STORE,
    id_column: str | None = _id(),
    columns: list[str] | None = _columns(),
    drop: list[str] | None = _drop(),
    truth: str | None = _truth(),
    dtype: str = _STORED_TYPE,
    memory: str = typer.Option("2GB", "--memory", help="Memory to use; the rest goes to the disk.", metavar="SIZE"),
    skip_bad_rows: bool = typer.Option(False, "--skip-bad-rows", help="Leave bad rows out and list them."),
    overwrite: bool = _REPLACE_STORE,
    resume: bool = typer.Option(False, "--resume", help="Go on with an ingest that was stopped."),
    quiet: bool = _quiet(),
    as_json: bool = _as_json(),
) -> None:
    """Turn tables of any size into a store that pamc fit reads from the disk.

    \b
    Examples:
      pamc ingest papers.csv citations.csv --id doi --out papers-store
      pamc ingest rows 'edges/*.parquet' --id user --memory 4GB --out users
    """  # noqa: D301
    _call("store_commands", "ingest", locals())


def synthesize(
    out: Path = _STORE,
    n_nodes: str = typer.Option(..., "--n-nodes", help="Number of rows to make, such as 1e6.", metavar="N"),
    n_clusters: str = typer.Option(..., "--n-clusters", "-k", help="Number of clusters to plant.", metavar="K"),
    n_features: str = typer.Option("128", "--n-features", help="Number of features to make.", metavar="N"),
    degree: float = typer.Option(28.0, "--degree", help="Number of neighbors that a row has on average.", metavar="X"),
    homophily: float = typer.Option(0.8, "--homophily", help="Share of edges that stay inside clusters.", metavar="X"),
    feature_noise: float = typer.Option(
        0.2, "--feature-noise", help="Spread that rows have around centers at distance 1.", metavar="X"
    ),
    power_law: float | None = typer.Option(
        None,
        "--power-law",
        help="Exponent that the degrees follow, above 2.",
        metavar="X",
        show_default="equal degrees",
    ),
    size_power_law: float | None = typer.Option(
        None,
        "--size-power-law",
        help="Exponent that the cluster sizes follow, above 1.",
        metavar="X",
        show_default="equal sizes",
    ),
    seed: int = _seed(),
    dtype: str = _STORED_TYPE,
    memory: str = typer.Option(
        "1GB", "--memory", help="Memory to use for sorting, beside 4 to 8 bytes a row.", metavar="SIZE"
    ),
    overwrite: bool = _REPLACE_STORE,
    quiet: bool = _quiet(),
    as_json: bool = _as_json(),
) -> None:
    """Make a store of a random attributed graph with planted clusters, of any size.

    \b
    Example:
      pamc synthesize --n-nodes 1e6 --n-features 512 -k 50 --out million
    """  # noqa: D301
    _call("store_commands", "synthesize", locals())


def evaluate(
    truth: Path = typer.Argument(
        ..., help="True classes to compare with: .csv with one label column, or id and label; .npy; .npz"
    ),
    labels: Path = typer.Argument(..., help="Clusters to compare: labels.csv of a run, or a file as above."),
    as_json: bool = _as_json(),
) -> None:
    """Compare clusters with true classes: ACC, NMI, ARI and macro-F1.

    Rows are matched by id when both files have ids, else by their order.

    \b
    Example:
      pamc evaluate truth.csv pamc-run-1/labels.csv
    """  # noqa: D301
    _call("data_commands", "evaluate", locals())


def demo(
    out: Path | None = typer.Option(
        None, "--out", help="Folder to write.", metavar="DIR", show_default="pamc-demo-N, the first that is free"
    ),
    seeds: int = typer.Option(3, "--seeds", min=1, help="Number of times to run each method.", metavar="N"),
    epochs: int = typer.Option(200, "--epochs", min=0, help="Number of epochs to train for.", metavar="N"),
    quiet: bool = _quiet(),
    as_json: bool = _as_json(),
) -> None:
    """Cluster handwritten digits, offline, with K-means on the same pixels beside it.

    \b
    Example:
      pamc demo --seeds 1
    """  # noqa: D301
    _call("demo_command", "demo", locals())


def datasets(as_json: bool = _as_json()) -> None:
    """List the known data sets and where each was found.

    \b
    Example:
      PAMC_DATA=my-data pamc datasets
    """  # noqa: D301
    _call("data_commands", "datasets", locals())


def methods(as_json: bool = _as_json()) -> None:
    """List the methods of pamc fit: what each looks at, and whether it can label new rows.

    \b
    Example:
      pamc methods
    """  # noqa: D301
    _call("data_commands", "methods", locals())


def doctor(
    distributed: bool = typer.Option(False, "--distributed", help="Look at the processes that torchrun started."),
    device: str = typer.Option(
        "auto", "--device", help="With --distributed, where to compute: auto, cpu or cuda.", metavar="DEVICE"
    ),
    as_json: bool = _as_json(),
) -> None:
    """Print what a bug report needs: versions, device, optional packages, data folder.

    \b
    Examples:
      pamc doctor
      torchrun --nproc-per-node 4 -m pamc doctor --distributed
    """  # noqa: D301
    _call("data_commands", "doctor", locals())


def reproduce(
    what: list[str] | None = typer.Argument(
        None, help="Experiments to run by name, or all; see --list.", autocompletion=experiments_named
    ),
    out: Path | None = typer.Option(
        None, "--out", help="Folder to write rows, tables and figures to.", metavar="DIR", show_default="pamc-reproduce"
    ),
    seeds: int | None = typer.Option(
        None,
        "--seeds",
        min=1,
        help="Number of seeds to run each method with.",
        metavar="N",
        show_default="as the experiment says",
    ),
    datasets: list[str] | None = _datasets(),
    methods: list[str] | None = typer.Option(
        None,
        "--method",
        help="Run these methods only (comma-separated).",
        metavar="NAMES",
        autocompletion=methods_named,
    ),
    device: str = _device(),
    jobs: int = typer.Option(
        1, "--jobs", min=1, help="Number of cells to run at the same time, each in its process.", metavar="N"
    ),
    quick: bool = typer.Option(False, "--quick", help="Use tiny settings on small data, to see that all of it runs."),
    render_only: bool = typer.Option(False, "--render-only", help="Run nothing: draw from the rows that exist."),
    list_them: bool = typer.Option(False, "--list", help="List the experiments."),
    quiet: bool = _quiet(),
    as_json: bool = _as_json(),
) -> None:
    """Run the paper's experiments and write their tables and figures.

    Every finished cell is a row in OUT/rows: the same command goes on where it was stopped, and runs nothing twice.

    \b
    Examples:
      pamc reproduce table2 --method kmeans,pamcgc --seeds 3
      pamc reproduce all --quick
    """  # noqa: D301
    _call("reproduce_command", "reproduce", locals())


def bench(
    cases: list[str] | None = typer.Argument(
        None, help="Cases to run by name, or all; see --list.", autocompletion=cases_named
    ),
    out: Path = typer.Option(
        Path("pamc-bench"), "--out", help="Folder to which rows are appended, a file per case.", metavar="DIR"
    ),
    data_sets: list[str] | None = _datasets(),
    device: str = _device(),
    precision: str = typer.Option(
        "auto",
        "--precision",
        help="Type to take matrix products in: float32, tf32, or auto: tf32 on a GPU.",
        metavar="TYPE",
    ),
    quick: bool = typer.Option(
        False, "--quick", help="Use small sizes, to see that all of it runs; these are no results."
    ),
    list_them: bool = typer.Option(False, "--list", help="List the cases."),
    quiet: bool = _quiet(),
    as_json: bool = _as_json(),
) -> None:
    """Measure time and memory on this machine, beside the released program and the N × N loss.

    Every measurement is a row in OUT, with device, versions and commit. A provider whose loss or gradient is not that
    of the float64 reference is not timed. What runs out of memory is a row that says so.

    \b
    Examples:
      pamc bench loss --quick
      pamc bench epoch fit --device cuda --dataset usps
    """  # noqa: D301
    _call("bench_command", "bench", locals())
