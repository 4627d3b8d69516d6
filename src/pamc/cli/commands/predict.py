"""`pamc predict`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from pamc.cli.options import CLUSTER, command, import_own_method, option, shared, split_names
from pamc.cli.show import check_output_file, note, print_json, print_text
from pamc.errors import ConfigError, DataError, counted


@command(CLUSTER, 2)
def predict(
    run: Path = typer.Argument(..., help="Run folder with the model."),
    features: Path | None = typer.Argument(
        None, help="Rows to assign, with the columns of the training file; none for a graph without features."
    ),
    out: Path = option("--out FILE", "Write id, cluster and confidence to this .csv or .parquet file.", ...),
    edges: Path | None = option("--edges FILE", "Read the edges between new rows and rows of the run from this file."),
    id_column: str | None = option("--id COLUMN", "Identify rows by this column.", show_default="as in the run"),
    columns: list[str] | None = option("--columns NAMES", "Use these feature columns.", show_default="as in the run"),
    drop: list[str] | None = option("--drop NAMES", "Ignore these columns.", show_default="as in the run"),
    min_confidence: float | None = option(
        "--min-confidence X",
        "Label rows −1 (noise) if their confidence is lower or if they are unlike the training rows.",
        show_default="as in the run",
    ),
    method: str = option(
        "--method NAME", "Import your own method, package.module:Name, with which the run was fitted.", ""
    ),
    device: str = shared("--device"),
    overwrite: bool = option("--overwrite", "Replace an existing file.", False),
    as_json: bool = shared("--json"),
) -> None:
    """Assign new rows to the clusters of a saved run, by their features, or by their edges to rows of the run.

    \b
    Examples:
      pamc predict pamc-run-1 new-customers.csv --out clusters.csv
      pamc predict pamc-run-2 --edges new-friends.csv --out clusters.csv
      pamc predict pamc-run-1 new-customers.csv --out clusters.csv --min-confidence 0.7
    """  # noqa: D301
    import numpy as np

    from pamc.cli.show import noise_text
    from pamc.data.files import partial_of
    from pamc.estimator.methods import load_model
    from pamc.estimator.noise import assign, limit_of, noise_names
    from pamc.initialize.noise import noise_facts
    from pamc.results.run_folder import new_run_folder, write_labels

    import_own_method(method)
    model, recorded_id = load_model(run, device=device)
    if out.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"--out must end in .csv or .parquet, got {out}")
    check_output_file(out, overwrite=overwrite)
    if features is None:
        rows, ids = None, np.empty(0)
        if edges is None:
            raise ConfigError("there is nothing to assign: give a file of rows, --edges FILE, or both")
    elif model.columns_ is not None:
        rows, ids = _table_rows(features, model, id_column or recorded_id)
    else:
        rows, ids = _plain_rows(features, model, id_column, recorded_id, columns, drop)
    weight = None
    if edges is not None:
        weight, ids = _edges_of(run, edges, None if features is None else ids)
    labels, confidence, codes = assign(model, rows, limit_of(model, min_confidence), weight)
    noise = None if codes is None else noise_names(codes)
    # Write to a temporary folder and rename the file, so that it is never incomplete.
    folder = partial_of(out)
    with new_run_folder(folder) as partial:
        write_labels(partial, ids, labels, confidence, noise=noise, file_format=out.suffix[1:]).replace(out)
    folder.rmdir()
    sizes = np.bincount(labels[labels >= 0], minlength=model.n_clusters).tolist()
    facts = noise_facts(codes)
    if as_json:
        print_json({"out": str(out), "n_nodes": len(labels), "cluster_sizes": sizes, **facts})
    else:
        print_text(f"{counted(len(labels), 'row')} → {out}{noise_text(facts)}")


def _edges_of(run: Path, edges: Path, ids: Any) -> tuple[Any, Any]:
    """Return the weights (n, N) of the edges between new rows and the rows of a run, and the ids of the new rows."""
    from pamc.data.readers import open_table
    from pamc.data.readers.edges import read_new_row_edges
    from pamc.results.run_folder import LABEL_FORMATS

    files = [run / f"labels.{file_format}" for file_format in LABEL_FORMATS]
    labels = next((path for path in files if path.is_file()), None)
    if labels is None:
        raise DataError(f"{run} has no labels.csv, which holds the ids that edges refer to")
    fitted_ids, _ = open_table(labels).texts("id")
    return read_new_row_edges(edges, fitted_ids, ids)


def _plain_rows(
    features: Path,
    model: Any,
    id_column: str | None,
    recorded_id: str | None,
    columns: list[str] | None,
    drop: list[str] | None,
) -> tuple[Any, Any]:
    """Return the rows of a file of numbers, and their ids."""
    from pamc.data.readers import read_features

    names = {"columns": split_names(columns, "--columns"), "drop": split_names(drop, "--drop")}
    changed = {name: value for name, value in {"id_column": id_column, **names}.items() if value is not None}
    fitted = getattr(model, "feature_names_in_", None)
    options = _options_of(features, fitted, id_column or recorded_id) | changed
    graph = read_features(features, **options, numbers_only=True)
    found = graph.feature_names
    if fitted is not None and found is not None and found != tuple(fitted) and set(fitted) <= set(found):
        place = {name: column for column, name in enumerate(found)}
        return graph.features[:, [place[name] for name in fitted]], graph.row_ids
    model.check_feature_names(found)
    return graph.features, graph.row_ids


def _table_rows(features: Path, model: Any, id_column: str | None) -> tuple[Any, Any]:
    """Return the raw columns of a table of mixed types, and the ids of its rows; other columns are not read."""
    import numpy as np

    from pamc.data.readers import open_table, raw_columns
    from pamc.data.readers.columns import id_texts, integers_if_all

    table = open_table(features)
    names = [name for name in model.columns_.raw_names if name in table]
    rows = raw_columns(table, names or table.names[:1])
    if id_column is None or id_column not in table:
        if id_column is not None:
            note(f"note: {features} has no column {id_column!r}, the id column of the run: rows are numbered from 0")
        return rows, np.arange(rows.n_rows)
    return rows, integers_if_all(id_texts(table, id_column))


def _options_of(features: Path, fitted: Sequence[str] | None, id_column: str | None) -> dict[str, Any]:
    """Return the options that read new rows in the same way as the training rows.

    Columns are matched by name, in any order and among any other columns. If one is missing, all columns are read, and
    the model reports which one.
    """
    from pamc.data.files import existing_file
    from pamc.data.readers import is_table, open_table

    if not is_table(existing_file(features)):
        return {}
    table = open_table(features)
    if id_column is not None and id_column not in table:
        note(f"note: {features} has no column {id_column!r}, the id column of the run: rows are numbered from 0")
        id_column = None
    by_name = None if fitted is None or any(name not in table for name in fitted) else list(fitted)
    return {"id_column": id_column, "columns": by_name}
