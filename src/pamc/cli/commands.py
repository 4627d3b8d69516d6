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

_AS_JSON = typer.Option(False, "--json", help="Print one JSON object on standard output, and nothing else.")
_QUIET = typer.Option(False, "--quiet", help="Show no progress.")
_DEVICE = typer.Option(
    "auto", "--device", help="auto, cpu, cuda, cuda:1 …", metavar="DEVICE", autocompletion=devices_named
)
_ID = typer.Option(None, "--id", help="Column that names the rows.", metavar="COLUMN")
_TRUTH = typer.Option(
    None, "--truth", help="Column of true classes: for the metrics only, never for training.", metavar="COLUMN"
)
_COLUMNS = typer.Option(None, "--columns", help="Feature columns to use (comma-separated).", metavar="NAMES")
_DROP = typer.Option(None, "--drop", help="Columns to leave out (comma-separated).", metavar="NAMES")
_STORE = typer.Option(..., "--out", help="Folder of the store to write.", metavar="DIR")
_STORED_TYPE = typer.Option("float32", "--dtype", help="Stored features: float32 or float16.", metavar="TYPE")
_REPLACE_STORE = typer.Option(False, "--overwrite", help="Replace a store that stands in the folder.")


def _call(module: str, name: str, options: dict[str, Any]) -> None:
    """Run a command with its options."""
    getattr(importlib.import_module(f"pamc.cli.{module}"), name)(**options)


def fit(
    features: Path | None = typer.Argument(None, help="Rows: .csv .tsv .parquet .npy .npz .mtx .svm; or a store."),
    dataset: str | None = typer.Option(
        None,
        "--dataset",
        help="A known data set instead (see pamc datasets).",
        metavar="NAME",
        autocompletion=datasets_named,
    ),
    edges: Path | None = typer.Option(
        None, "--edges", help="Edge list: source, target[, weight]. Without: a kNN graph.", metavar="FILE"
    ),
    n_clusters: str | None = typer.Option(
        None, "--n-clusters", "-k", help="Number of clusters, 2 or more; auto finds one.", metavar="K"
    ),
    out: Path | None = typer.Option(
        None, "--out", help="Folder to write.", metavar="DIR", show_default="pamc-run-N, the first that is free"
    ),
    method: str = typer.Option(
        "pamcgc", "--method", help="Clustering method (see pamc methods).", metavar="NAME", autocompletion=methods_named
    ),
    preset_name: str = typer.Option(
        "default", "--preset", help="default, paper or released.", metavar="NAME", autocompletion=presets_named
    ),
    seed: int = typer.Option(0, "--seed", min=0, help="Source of all randomness.", metavar="N"),
    device: str = _DEVICE,
    id_column: str | None = _ID,
    truth: str | None = _TRUTH,
    columns: list[str] | None = _COLUMNS,
    drop: list[str] | None = _DROP,
    epochs: int | None = typer.Option(None, "--epochs", help="Training epochs.", metavar="N", show_default="200"),
    alpha: float | None = typer.Option(
        None, "--alpha", help="Weight of the contrastive term.", metavar="X", show_default="1"
    ),
    beta: float | None = typer.Option(
        None, "--beta", help="Weight of the clustering term.", metavar="X", show_default="10"
    ),
    tau: float | None = typer.Option(None, "--tau", help="Multiplies the cosine.", metavar="X", show_default="0.5"),
    n_hops: int | None = typer.Option(
        None,
        "--n-hops",
        help="Order of the influence; 1 for a store of more than 50,000 rows.",
        metavar="N",
        show_default="2",
    ),
    settings: list[str] | None = typer.Option(
        None, "--set", help="Any other setting; may be repeated.", metavar="NAME=VALUE", autocompletion=settings_named
    ),
    config_file: Path | None = typer.Option(None, "--config", help="Settings as a TOML file.", metavar="FILE"),
    labels_format: str = typer.Option("csv", "--labels-format", help="csv or parquet.", metavar="TYPE"),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace a run that stands in the folder."),
    checkpoint_every: int | None = typer.Option(
        None, "--checkpoint-every", help="Keep a checkpoint every N epochs.", metavar="N"
    ),
    checkpoint_minutes: float | None = typer.Option(
        None, "--checkpoint-minutes", help="… or every so many minutes.", metavar="X"
    ),
    resume: bool = typer.Option(False, "--resume", help="Go on from the checkpoints of a run that was stopped."),
    memory: str | None = typer.Option(
        None, "--memory", help="Memory that training of a large store may use: 4GB.", metavar="SIZE"
    ),
    verify: bool = typer.Option(
        True, "--verify/--no-verify", help="Compare the checksums of a store before its first fit."
    ),
    with_report: bool = typer.Option(True, "--report/--no-report", help="Write report.html, a page to look at."),
    map_by: str = typer.Option(
        "auto", "--map", help="Map of the report: pca, umap, or auto.", metavar="NAME", autocompletion=maps_named
    ),
    color: list[str] | None = typer.Option(
        None, "--color", help="Columns to color the map of the report by (comma-separated).", metavar="NAMES"
    ),
    quiet: bool = _QUIET,
    as_json: bool = _AS_JSON,
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

    Defaults of the settings are those of the preset "default".
    """  # noqa: D301
    _call("fit_command", "fit", locals())


def predict(
    run: Path = typer.Argument(..., help="Folder of a run."),
    features: Path = typer.Argument(..., help="New rows, with the columns of the training file."),
    out: Path = typer.Option(
        ..., "--out", help="File to write: .csv or .parquet with id, cluster, confidence.", metavar="FILE"
    ),
    id_column: str | None = typer.Option(
        None, "--id", help="Column that names the rows.", metavar="COLUMN", show_default="as in the run"
    ),
    columns: list[str] | None = typer.Option(
        None, "--columns", help="Feature columns.", metavar="NAMES", show_default="as in the run"
    ),
    drop: list[str] | None = typer.Option(
        None, "--drop", help="Columns to leave out.", metavar="NAMES", show_default="as in the run"
    ),
    device: str = _DEVICE,
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace the file."),
    as_json: bool = _AS_JSON,
) -> None:
    """Give new rows to the clusters of a run; no graph is needed.

    \b
    Example:
      pamc predict pamc-run-1 new-customers.csv --out clusters.csv
    """  # noqa: D301
    _call("predict_command", "predict", locals())


def report(
    runs: list[Path] = typer.Argument(..., help="Folders of runs: of one the page is written again, several compared."),
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
    rebuild: bool = typer.Option(False, "--rebuild", help="Make it of the run's files, not of the page that is there."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace a file that is there."),
    as_json: bool = _AS_JSON,
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
    features: str = typer.Argument(..., help="Rows: .csv .tsv .parquet; a file, a folder of parts, or a 'pattern*'."),
    edges: str | None = typer.Argument(None, help="Edges: source, target[, weight]; given like the rows."),
    out: Path = _STORE,
    id_column: str | None = _ID,
    columns: list[str] | None = _COLUMNS,
    drop: list[str] | None = _DROP,
    truth: str | None = _TRUTH,
    dtype: str = _STORED_TYPE,
    memory: str = typer.Option("2GB", "--memory", help="Memory to use; the rest goes to the disk.", metavar="SIZE"),
    skip_bad_rows: bool = typer.Option(False, "--skip-bad-rows", help="Leave bad rows out and list them."),
    overwrite: bool = _REPLACE_STORE,
    resume: bool = typer.Option(False, "--resume", help="Go on with an ingest that was stopped."),
    quiet: bool = _QUIET,
    as_json: bool = _AS_JSON,
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
    n_nodes: str = typer.Option(..., "--n-nodes", help="Number of rows, such as 1e6.", metavar="N"),
    n_clusters: str = typer.Option(..., "--n-clusters", "-k", help="Number of planted clusters.", metavar="K"),
    n_features: str = typer.Option("128", "--n-features", help="Number of features.", metavar="N"),
    degree: float = typer.Option(28.0, "--degree", help="Mean number of neighbors of a row.", metavar="X"),
    homophily: float = typer.Option(0.8, "--homophily", help="Share of edges inside clusters.", metavar="X"),
    feature_noise: float = typer.Option(
        0.2, "--feature-noise", help="Spread around centers at distance 1.", metavar="X"
    ),
    power_law: float | None = typer.Option(
        None, "--power-law", help="Exponent of degrees, above 2.", metavar="X", show_default="equal degrees"
    ),
    size_power_law: float | None = typer.Option(
        None, "--size-power-law", help="Exponent of cluster sizes, above 1.", metavar="X", show_default="equal sizes"
    ),
    seed: int = typer.Option(0, "--seed", min=0, help="Source of all randomness.", metavar="N"),
    dtype: str = _STORED_TYPE,
    memory: str = typer.Option(
        "1GB", "--memory", help="Memory for sorting, beside 4 to 8 bytes a row.", metavar="SIZE"
    ),
    overwrite: bool = _REPLACE_STORE,
    quiet: bool = _QUIET,
    as_json: bool = _AS_JSON,
) -> None:
    """Make a store of a random attributed graph with planted clusters, of any size.

    \b
    Example:
      pamc synthesize --n-nodes 1e6 --n-features 512 -k 50 --out million
    """  # noqa: D301
    _call("store_commands", "synthesize", locals())


def evaluate(
    truth: Path = typer.Argument(..., help="True classes: .csv with one label column, or id and label; .npy; .npz"),
    labels: Path = typer.Argument(..., help="Clusters: labels.csv of a run, or a file as above."),
    as_json: bool = _AS_JSON,
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
    seeds: int = typer.Option(3, "--seeds", min=1, help="Number of runs of each method.", metavar="N"),
    epochs: int = typer.Option(200, "--epochs", min=0, help="Training epochs.", metavar="N"),
    quiet: bool = _QUIET,
    as_json: bool = _AS_JSON,
) -> None:
    """Cluster handwritten digits, offline, with K-means on the same pixels beside it.

    \b
    Example:
      pamc demo --seeds 1
    """  # noqa: D301
    _call("demo_command", "demo", locals())


def datasets(as_json: bool = _AS_JSON) -> None:
    """List the known data sets and where each was found.

    \b
    Example:
      PAMC_DATA=my-data pamc datasets
    """  # noqa: D301
    _call("data_commands", "datasets", locals())


def methods(as_json: bool = _AS_JSON) -> None:
    """List the methods of pamc fit: what each looks at, and whether it can label new rows.

    \b
    Example:
      pamc methods
    """  # noqa: D301
    _call("data_commands", "methods", locals())


def doctor(
    distributed: bool = typer.Option(False, "--distributed", help="Look at the processes that torchrun started."),
    device: str = typer.Option("auto", "--device", help="With --distributed: auto, cpu or cuda.", metavar="DEVICE"),
    as_json: bool = _AS_JSON,
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
        None, help="Experiments by name, or all; see --list.", autocompletion=experiments_named
    ),
    out: Path | None = typer.Option(
        None, "--out", help="Folder of rows and artefacts.", metavar="DIR", show_default="pamc-reproduce"
    ),
    seeds: int | None = typer.Option(
        None, "--seeds", min=1, help="Seeds of each method.", metavar="N", show_default="as the experiment says"
    ),
    datasets: list[str] | None = typer.Option(
        None,
        "--datasets",
        help="Only these data sets (comma-separated).",
        metavar="NAMES",
        autocompletion=datasets_named,
    ),
    methods: list[str] | None = typer.Option(
        None, "--methods", help="Only these methods (comma-separated).", metavar="NAMES", autocompletion=methods_named
    ),
    device: str = _DEVICE,
    jobs: int = typer.Option(
        1, "--jobs", min=1, help="Cells that run at the same time, each in a process of its own.", metavar="N"
    ),
    quick: bool = typer.Option(False, "--quick", help="Tiny settings on small data: shows that all of it runs."),
    render_only: bool = typer.Option(False, "--render-only", help="Run nothing: draw from the rows that are there."),
    list_them: bool = typer.Option(False, "--list", help="List the experiments."),
    quiet: bool = _QUIET,
    as_json: bool = _AS_JSON,
) -> None:
    """Run the paper's experiments and write their tables and figures.

    Every finished cell is a row in OUT/rows: the same command goes on where it was stopped, and runs nothing twice.

    \b
    Examples:
      pamc reproduce table2 --methods kmeans,pamcgc --seeds 3
      pamc reproduce all --quick
    """  # noqa: D301
    _call("reproduce_command", "reproduce", locals())


def bench(
    cases: list[str] | None = typer.Argument(
        None, help="Cases by name, or all; see --list.", autocompletion=cases_named
    ),
    out: Path = typer.Option(
        Path("pamc-bench"), "--out", help="Folder to which rows are appended, a file per case.", metavar="DIR"
    ),
    data_sets: list[str] | None = typer.Option(
        None,
        "--data-sets",
        help="Only these data sets (comma-separated).",
        metavar="NAMES",
        autocompletion=datasets_named,
    ),
    device: str = _DEVICE,
    precision: str = typer.Option(
        "auto", "--precision", help="Of all matrix products: float32, tf32, or auto: tf32 on a GPU.", metavar="TYPE"
    ),
    quick: bool = typer.Option(False, "--quick", help="Small sizes: shows that all of it runs, and is no result."),
    list_them: bool = typer.Option(False, "--list", help="List the cases."),
    quiet: bool = _QUIET,
    as_json: bool = _AS_JSON,
) -> None:
    """Measure time and memory on this machine, beside the released program and the N × N loss.

    Every measurement is a row in OUT, with device, versions and commit. A provider whose loss or gradient is not that
    of the float64 reference is not timed. What runs out of memory is a row that says so.

    \b
    Examples:
      pamc bench loss --quick
      pamc bench epoch fit --device cuda --data-sets usps
    """  # noqa: D301
    _call("bench_command", "bench", locals())
