"""Report data of a run folder: read from its page, or rebuilt from its other files."""

from __future__ import annotations

import dataclasses
import os
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.catalog import CATALOG, available, load_dataset
from pamc.data.columns.encoding import TableEncoding
from pamc.data.readers import is_table, open_table, read_graph, read_labels
from pamc.data.readers.columns import find_rows, integers_if_all
from pamc.data.readers.later_rows import FittedColumns, with_later_rows
from pamc.data.store import Store, has_manifest, open_store
from pamc.errors import ConfigError, DataError, ModelFileError, PamcError
from pamc.estimator import estimator_class
from pamc.initialize.noise import without_noise
from pamc.report.content import FORMAT, TRUE_CLASS, Extras, assembled, page_data
from pamc.report.facts import are_rows_of_fit
from pamc.report.narrative import narrative, python_lines
from pamc.report.noise import with_noise_group
from pamc.report.page_file import plain, read_page, unpack
from pamc.report.points import class_names, color_column, listed_rows, map_data
from pamc.results.record import RunRecord
from pamc.results.run_folder import LABEL_FORMATS, MODEL_FILE, RECORD_FILE
from pamc.results.saved_fit import read_model
from pamc.training.sources import LARGE_ROWS

REPORT_FILE = "report.html"


def run_data(folder: Path, *, map_by: str | None = None, rebuild: bool = False) -> dict[str, Any]:
    """Return the report data of a run.

    They are read from the page, with texts updated to this version. Without a page, or with `rebuild`, they are built
    from run.json, the labels and the model. If the input data that run.json names still exist, they are read again and
    put in the order of the labels. If they are missing, or their ids or values have changed, a note lists what is left
    out. `map_by` redraws the map.
    """
    if not (folder / RECORD_FILE).is_file():
        raise DataError(f"{folder}: is not a run: it has no {RECORD_FILE}; name a folder that `pamc fit` or save wrote")
    page = folder / REPORT_FILE
    if rebuild or not page.is_file():
        return _from_files(folder, map_by or "auto")
    data = read_page(page, formats=(FORMAT,))
    data["story"], data["python"] = narrative(data["record"]), python_lines(data["record"])
    if map_by is not None:
        packed = data["points"]["rows"]
        rows = None if packed is None else unpack(packed).astype(np.int64)
        mapped = plain(map_data(_model_of(folder), rows, map_by=map_by, seed=int(data["record"]["seed"])))
        data["points"]["xy"] = mapped.pop("xy")
        data.update(mapped)
    return data


def _from_files(folder: Path, map_by: str) -> dict[str, Any]:
    began = time.perf_counter()
    record, model, ids = record_of(folder), _model_of(folder), _ids_of(folder)
    n_nodes = len(model.labels_)
    try:
        source, extras = _read_again(record, folder, ids, n_nodes)
    except (PamcError, _ChangedError) as error:
        source, extras = None, Extras(notes=(_UNREADABLE.format(error),))
    extras = dataclasses.replace(extras, map_by=map_by)
    if source is not None:
        data = page_data(model, source, record, extras)
    else:
        rows = listed_rows(n_nodes, None)
        names = np.arange(n_nodes) if ids is None or len(ids) != n_nodes else ids
        data = assembled(
            model, record, extras, None, ids=names if rows is None else names[rows], rows=rows, began=began
        )
    restored = {column["name"] for column in data["columns"]}
    lost = [name for name in _columns_before(record, folder) if name not in restored]
    if lost:
        data["notes"].append(f"Columns that could color the map and could not be restored: {', '.join(lost)}.")
    return data


def rows_of_run(folder: Path) -> AttributedGraph:
    """Read the rows of a run again, in the order of its labels; raise a DataError if they are gone or have changed."""
    record, model, ids = record_of(folder), _model_of(folder), _ids_of(folder)
    try:
        rows, _ = _read_again(record, folder, ids, len(model.labels_))
    except _ChangedError as error:
        raise DataError(f"{folder}: the rows of the run cannot be read again: {error}") from None
    if isinstance(rows, Store):
        raise DataError(f"{folder}: was fitted to a store of more than {LARGE_ROWS:,} rows, which cannot be divided")
    return rows.without_labels()


class _ChangedError(Exception):
    """The rows of a run no longer exist or have changed."""


# The note on a page without the rows of the fit.
_UNREADABLE = (
    "The rows of the fit could not be read again ({}): differences between clusters, typical, border and unusual rows, "
    "and edges are left out."
)


def _read_again(
    record: RunRecord, folder: Path, ids: NDArray[Any] | None, n_nodes: int
) -> tuple[AttributedGraph | Store, Extras]:
    """Return the rows of a run in the order of its labels, and the extras of its page.

    Raises _ChangedError if the rows are not those of the fit. `ids` (N,) are the row ids of the run, or None if no
    file has them.
    """
    source, extras = _data_of(record, folder), Extras()
    if source.n_nodes != n_nodes:
        raise _ChangedError("the number of rows has changed")
    if isinstance(source, AttributedGraph):
        extras = _extras_of(record, folder, source)
        if source.ids is not None and ids is not None:
            order, is_unknown = find_rows(ids, source.ids)
            if is_unknown.any():
                raise _ChangedError("the ids have changed")
            columns = {name: values[order] for name, values in (extras.columns or {}).items()}
            source, extras = _in_order(source, order), dataclasses.replace(extras, columns=columns)
        elif ids is not None and len(ids) == n_nodes:
            source = dataclasses.replace(source, ids=integers_if_all(ids))
    if not are_rows_of_fit(_encoder_of(folder), source.features):
        raise _ChangedError("the values or the order of the rows have changed")
    return source, extras


def _in_order(graph: AttributedGraph, order: NDArray[np.int64]) -> AttributedGraph:
    """Return a graph whose row i is row order[i] of the given one."""
    position = np.argsort(order)
    return dataclasses.replace(
        graph,
        features=graph.features[order],
        edges=None if graph.edges is None else position[graph.edges],
        ids=None if graph.ids is None else graph.ids[order],
        labels=None if graph.labels is None else graph.labels[order],
        cells=None if graph.cells is None else {name: cells[order] for name, cells in graph.cells.items()},
    )


def _extras_of(record: RunRecord, folder: Path, graph: AttributedGraph) -> Extras:
    """Return the names of the true classes and the color columns from the table of a run."""
    path = _located(record.data.get("features"), record, folder)
    if path is None or path.is_dir() or not is_table(path):
        return Extras()
    table, truth = open_table(path), (record.data.get("read") or {}).get("truth_column")
    return Extras(
        columns={name: color_column(table, name) for name in record.data.get("color") or () if name in table},
        class_names=None if truth is None or graph.labels is None else class_names(table, truth, graph.labels),
    )


def _columns_before(record: RunRecord, folder: Path) -> list[str]:
    """Return the non-feature color columns of a run, from its record and its page."""
    truth = (record.data.get("read") or {}).get("truth_column")
    names = [*([] if truth is None else [TRUE_CLASS]), *(record.data.get("color") or ())]
    try:
        page = read_page(folder / REPORT_FILE, formats=(FORMAT,))
    except DataError:
        return names
    features = set((page["features"] or {}).get("name", ()))
    others = (column["name"] for column in page["columns"] if column["name"] not in features)
    return list(dict.fromkeys([*names, *others]))


def record_of(folder: Path) -> RunRecord:
    """Return the record of a run; raise ModelFileError if it is missing or damaged."""
    path = folder / RECORD_FILE
    try:
        return RunRecord.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError) as error:
        raise ModelFileError(f"{path} is damaged ({error}): restore it, or fit again") from None


def _model_of(folder: Path) -> Any:
    """Return the stored results of a fit, which do not need a user's encoder."""
    tensors, about = read_model(folder / MODEL_FILE)
    if "labels" not in tensors:
        raise DataError(f"{folder}: was saved without training rows (slim), so it has no report")
    arrays = {f"{name}_": tensors[name].numpy() for name in ("confidence", "meta_nodes")}
    codes = tensors.get("noise.codes")
    arrays["labels_"] = without_noise(tensors["labels"].numpy(), None if codes is None else codes.numpy())
    linkage = tensors["linkage"].numpy() if "linkage" in tensors else None
    embedding = {"embedding_": tensors["z"].numpy(), "cluster_centers_": tensors["centers"].numpy()}
    columns = None if about.get("columns") is None else TableEncoding.from_dict(about["columns"])
    return with_noise_group(
        SimpleNamespace(**arrays, **embedding, linkage_=linkage, n_features_in_=about["n_features"], columns_=columns)
    )


def _encoder_of(folder: Path) -> Any:
    """Return the estimator of a run, or None if it needs a user's encoder, which is unavailable."""
    _, about = read_model(folder / MODEL_FILE)
    try:
        return estimator_class(about["method"]).load(folder, device="cpu")
    except ConfigError:
        return None


def _ids_of(folder: Path) -> NDArray[Any] | None:
    """Return the row ids in labels.csv or labels.parquet, or None if neither can be read."""
    for kind in LABEL_FORMATS:
        path = folder / f"labels.{kind}"
        if path.is_file():
            with suppress(DataError):
                return read_labels(path).ids
    return None


def _data_of(record: RunRecord, folder: Path) -> AttributedGraph | Store:
    """Read the data of a run again in the same way; raise _ChangedError if they no longer exist."""
    if record.data.get("new_rows"):
        return _updated_data_of(record, folder)
    return _first_data_of(record, folder)


def _updated_data_of(record: RunRecord, folder: Path) -> AttributedGraph:
    """Read the rows of an update: the rows of the first fit, unless they are left out, and those of later files."""
    paths = [_located(name, record, folder) for name in record.data["new_rows"]]
    edges = [_located(name, record, folder) for name in record.data.get("new_edges") or ()]
    if None in (*paths, *edges):
        raise _ChangedError("run.json names files of new rows that no longer exist")
    first = None if record.data.get("only_new") else _first_data_of(record, folder)
    if isinstance(first, Store):
        raise _ChangedError("the store of the first fit is too large to be updated")
    columns = fitted_columns(folder)
    if first is not None and columns.encoding is not None:
        first = dataclasses.replace(first, encoding=columns.encoding)
    graph = with_later_rows(first, [path for path in paths if path], columns, [path for path in edges if path])
    return dataclasses.replace(graph, name=str(record.data.get("name") or graph.name))


def fitted_columns(folder: Path) -> FittedColumns:
    """Return the columns that the model of a run was fitted to."""
    _, about = read_model(folder / MODEL_FILE)
    names, columns = about["feature_names"], about.get("columns")
    encoding = None if columns is None else TableEncoding.from_dict(columns)
    return FittedColumns(None if names is None else tuple(names), about["id_column"], encoding)


def relocated(record: RunRecord, folder: Path, *, start: Path) -> dict[str, Any]:
    """Return the facts about the data of a run, with the paths of its files relative to another folder."""

    def moved(name: str) -> str:
        path = _located(name, record, folder)
        return name if path is None else os.path.relpath(path, start)

    data = dict(record.data)
    for key in ("features", "edges", "members", "new_rows", "new_edges"):
        value = data.get(key)
        if isinstance(value, str):
            data[key] = moved(value)
        elif isinstance(value, dict):
            data[key] = {name: moved(path) for name, path in value.items()}
        elif isinstance(value, list):
            data[key] = [moved(path) for path in value]
    return data


def _first_data_of(record: RunRecord, folder: Path) -> AttributedGraph | Store:
    features, edges, read = record.data.get("features"), record.data.get("edges"), record.data.get("read")
    name = record.data.get("name")
    if features is None and read is not None and name in CATALOG and available(name) is not None:
        graph = load_dataset(name)
        return graph.without_edges() if record.facts.get("graph") == "knn" else graph
    more: dict[str, Any] = {name: record.data.get(name) or {} for name in ("members", "directed")}
    of_edges = edges.values() if isinstance(edges, dict) else [] if edges is None else [edges]
    files = [*of_edges, *more["members"].values(), *more["directed"].values()]
    path = _located(features, record, folder)
    if path is None or any(_located(file, record, folder) is None for file in files):
        raise _ChangedError("run.json names no file of them, or it no longer exists")
    if has_manifest(path):
        store = open_store(path)
        return store if store.n_nodes > LARGE_ROWS else store.to_graph()
    return read_graph(
        path,
        edges=_all_located(edges, record, folder),
        **{name: _all_located(of_name, record, folder) for name, of_name in more.items()},
        relation_weights=record.data.get("relation_weights"),
        **(read or {}),
    )


def _all_located(files: Any, record: RunRecord, folder: Path) -> Any:
    """Return the path of a file, or the paths of several by name."""
    if isinstance(files, dict):
        return {name: _located(file, record, folder) for name, file in files.items()}
    return _located(files, record, folder)


def _located(name: str | None, record: RunRecord, folder: Path) -> Path | None:
    """Return the path of a run's file: relative to its original folder, the run, or the current folder."""
    if name is None:
        return None
    folders = [folder.resolve().parent, Path()]
    if record.data.get("folder") is not None:
        folders.insert(0, folder.resolve() / record.data["folder"])
    return next((path for path in (parent / name for parent in folders) if path.exists()), None)
