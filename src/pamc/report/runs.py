"""What a run folder says: the object inside its page, or, where there is none, one made of its other files."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.catalog import CATALOG, available, load_dataset
from pamc.data.readers import read_graph, read_labels
from pamc.data.store import Store, has_manifest, open_store
from pamc.errors import DataError, ModelFileError, PamcError
from pamc.report.content import FORMAT, Extras, page_data, projected, put_together
from pamc.report.packing import plain, unpack
from pamc.report.page_file import read_page
from pamc.report.points import Frame, density_data, map_data, place_of, shown_rows
from pamc.report.stores import store_page_data
from pamc.report.words import python_lines, story
from pamc.results.model_file import read_model
from pamc.results.record import RunRecord
from pamc.results.run_folder import LABEL_FORMATS, MODEL_FILE, RECORD_FILE
from pamc.training.large import LARGE_ROWS

__all__ = ["REPORT_FILE", "run_data"]

REPORT_FILE = "report.html"


def run_data(folder: Path, *, map_by: str | None = None, rebuild: bool = False) -> dict[str, Any]:
    """Return the object of a run's page.

    It is read from the page, and told anew what this version words otherwise. Without a page, or with `rebuild`, it is
    made of run.json, the labels and the model; where the data that run.json names still lie where they were, they are
    read again, else a note says what is left out.

    Parameters
    ----------
    folder
        Of the run.
    map_by
        Another map: "pca", "umap" or "auto".
    """
    if not (folder / RECORD_FILE).is_file():
        raise DataError(f"{folder}: is not a run: it has no {RECORD_FILE}; name a folder that `pamc fit` or save wrote")
    page = folder / REPORT_FILE
    if rebuild or not page.is_file():
        return _from_files(folder, map_by or "auto")
    data = read_page(page, formats=(FORMAT,))
    data["story"], data["python"] = story(data["record"]), python_lines(data["record"])
    return data if map_by is None else _with_map(data, _model_of(folder), map_by)


def _with_map(data: dict[str, Any], model: Any, map_by: str) -> dict[str, Any]:
    """Return the object with another map."""
    projection = projected(model, map_by, int(data["record"]["seed"]))
    frame = Frame(projection)
    rows = data["points"]["rows"]
    chosen: Any = slice(None) if rows is None else unpack(rows).astype(np.int64)
    points = {**data["points"], "xy": place_of(frame, projection.rows[chosen])}
    density = data["density"]
    if density is not None:
        confidence = np.asarray(model.confidence_, dtype=np.float64)
        density = density_data(frame, projection, np.asarray(model.labels_), confidence, data["n_clusters"])
    found: dict[str, Any] = plain({**data, "points": points, "density": density, "map": map_data(projection, frame)})
    return found


def _from_files(folder: Path, map_by: str) -> dict[str, Any]:
    began = time.perf_counter()
    record, model = _record_of(folder), _model_of(folder)
    extras = Extras(map_by=map_by)
    try:
        found = _data_of(record, folder)
        if isinstance(found, Store):
            return store_page_data(model, found, record, extras)
        if found is not None and found.n_nodes == len(model.labels_):
            return page_data(model, found, record, _noting(extras, record, found))
        why = "they are no longer where they were" if found is None else "they have another number of rows now"
    except PamcError as error:
        why = str(error)
    note = (
        f"The rows of the fit could not be read again ({why}): what makes clusters different, central, border and odd "
        "rows, and edges are left out."
    )
    rows = shown_rows(len(model.labels_), np.empty(0, dtype=np.int64))
    ids = _ids_of(folder, len(model.labels_))
    return put_together(
        model,
        record,
        None,
        projected(model, map_by, record.seed),
        ids=ids if rows is None else ids[rows],
        rows=rows,
        columns=[],
        truth=None,
        has_edges=False,
        notes=[note],
        began=began,
    )


def _noting(extras: Extras, record: RunRecord, graph: AttributedGraph) -> Extras:
    if graph.edges is not None or record.facts.get("graph") != "knn":
        return extras
    note = "The graph of nearest neighbors that the fit made is not kept: edges are left out."
    return dataclasses.replace(extras, notes=(*extras.notes, note))


def _record_of(folder: Path) -> RunRecord:
    path = folder / RECORD_FILE
    try:
        return RunRecord.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError) as error:
        raise ModelFileError(f"{path} is damaged ({error}): restore it, or fit again") from None


def _model_of(folder: Path) -> SimpleNamespace:
    """Return what is known of the rows of a fit; an encoder of the user's is not needed for it."""
    tensors, about = read_model(folder / MODEL_FILE)
    arrays = {name: tensors[name].numpy() for name in ("labels", "confidence", "z", "centers", "meta_nodes")}
    return SimpleNamespace(
        labels_=arrays["labels"],
        confidence_=arrays["confidence"],
        embedding_=arrays["z"],
        cluster_centers_=arrays["centers"],
        meta_nodes_=arrays["meta_nodes"],
        n_features_in_=about["n_features"],
    )


def _ids_of(folder: Path, n_nodes: int) -> NDArray[Any]:
    """Return the names of the rows as labels.csv or labels.parquet has them."""
    for kind in LABEL_FORMATS:
        path = folder / f"labels.{kind}"
        if path.is_file():
            ids = read_labels(path).ids
            if ids is not None and len(ids) == n_nodes:
                return ids
    return np.arange(n_nodes)


def _data_of(record: RunRecord, folder: Path) -> AttributedGraph | Store | None:
    """Return the data of a run, read again as the run read them; None where they are no longer to be found."""
    features, edges, read = record.data.get("features"), record.data.get("edges"), record.data.get("read")
    name = record.data.get("name")
    if features is None:
        # A known data set; none is downloaded for it.
        if read is None or name not in CATALOG or str(available(name) or "http").startswith("http"):
            return None
        graph = load_dataset(name)
        return graph.without_edges() if record.facts.get("graph") == "knn" else graph
    path = _found(features, folder)
    if path is None or (edges is not None and _found(edges, folder) is None):
        return None
    if has_manifest(path):
        store = open_store(path)
        return store if store.n_nodes > LARGE_ROWS else store.to_graph()
    return read_graph(path, edges=None if edges is None else _found(edges, folder), **(read or {}))


def _found(name: str, folder: Path) -> Path | None:
    """Return where a file is: as it was named, or beside the run."""
    return next((path for path in (Path(name), folder.parent / name) if path.exists()), None)
