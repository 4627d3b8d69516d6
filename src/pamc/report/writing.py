"""Functions that write reports: of a fitted model, of a run folder, of several run folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.adapters import as_graph
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.store import Store
from pamc.errors import DataError, OutputError
from pamc.report.comparison import comparison_data
from pamc.report.content import Extras, page_data
from pamc.report.facts import check_rows_of_fit
from pamc.report.page_file import write_page
from pamc.report.points import is_missing
from pamc.report.runs import REPORT_FILE, run_data
from pamc.results.metrics import evaluate
from pamc.results.record import RunRecord


def write_report(
    model: Any,
    X: Any,
    path: str | PathLike[str],
    *,
    adjacency: Any = None,
    ids: Any = None,
    feature_names: Any = None,
    truth: Any = None,
    columns: Mapping[str, Any] | None = None,
    title: str | None = None,
    map: str = "auto",  # noqa: A002
) -> Path:
    """Write a self-contained HTML report of a fitted model and return its path.

    Parameters
    ----------
    model
        A fitted estimator of any method.
    X
        The rows of the fit, in the same order: an array, a scipy sparse matrix, a pandas DataFrame, a torch tensor, an
        AttributedGraph, a torch_geometric Data, an AnnData, or the store that was fitted from its files. Rows whose
        embedding differs from that of the fit raise an error.
    path
        File to write, or a folder, in which the file is called report.html. An existing file is replaced, and missing
        parent folders are created.
    adjacency
        The graph of the fit, in any form that `fit` accepts. Defaults to the graph of X, or the one that the fit built.
    ids, feature_names
        N row ids and d column names, which override those of X.
    truth
        (N,) true classes, used only for the metrics on the page. Defaults to the labels of an AttributedGraph.
    columns
        Dict of (N,) values that can color the map: numbers as a scale, dates and anything else as classes.
    title
        Title of the page.
    map
        "layout", "pca", "umap" or "auto", which uses a layout for up to 20,000 rows, else PCA.

    Examples
    --------
    >>> import tempfile
    >>> from pamc import PamCGC
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris(as_frame=True).data
    >>> model = PamCGC(3, n_epochs=5, advanced={"hidden": (16,)}, random_state=0, device="cpu").fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(model, X, folder, title="irises", map="pca").name
    'report.html'
    """
    target = Path(path)
    target = target / REPORT_FILE if target.is_dir() else target
    extras = Extras(columns=columns, map_by=map)
    about = {} if title is None else {"name": title}
    options: dict[str, Any] = {"feature_names": feature_names, "encoding": getattr(model, "columns_", None)}
    data = X if isinstance(X, Store) else as_graph(X, adjacency, ids=ids, **options)
    check_rows_of_fit(model, data)
    if truth is None and isinstance(X, AttributedGraph):
        truth = X.labels
    metrics = None
    if truth is not None and isinstance(data, AttributedGraph):
        classes = _classes(truth)
        data = replace(data, labels=classes)
        names = [str(name) for name in np.unique(classes)]
        extras = replace(extras, class_names=None if classes.dtype.kind in "iu" else names)
        metrics = evaluate(classes, model.labels_)
    record = model.record(data={"name": data.name, "n_edges": data.n_edges, **about}, metrics=metrics)
    return _written(target, page_data(model, data, record, extras))


def write_fit_report(
    folder: Path,
    model: Any,
    data: Any,
    record: RunRecord,
    *,
    columns: Mapping[str, Any] | None = None,
    class_names: Sequence[str] | None = None,
    map_by: str = "auto",
    before: Path | None = None,
) -> Path:
    """Write report.html into a run folder; `data` is the fitted graph or store, with its true classes if known.

    `before` is the folder of the run that an update continues.
    """
    page = None if before is None else run_data(before)
    extras = Extras(columns=columns, class_names=class_names, map_by=map_by, before=page)
    return _written(folder / REPORT_FILE, page_data(model, data, record, extras))


def write_run_report(
    folder: Path, *, map_by: str | None = None, rebuild: bool = False, out: Path | None = None
) -> Path:
    """Rewrite the report of a run folder, in place or to `out`, and return its path.

    It is based on the existing page, or on the other files of the run if there is no page or with `rebuild`.
    """
    return _written(out or folder / REPORT_FILE, run_data(folder, map_by=map_by, rebuild=rebuild))


def write_comparison(folders: Sequence[Path], path: Path, *, names: Sequence[str] | None = None) -> Path:
    """Write a page that compares several runs; by default, runs are named by the paths of their folders."""
    names = names or [str(folder) for folder in folders]
    return _written(path, comparison_data([run_data(folder) for folder in folders], names))


def _classes(truth: Any) -> NDArray[Any]:
    """Return true classes as integers or text; raise an error if a row has none."""
    classes = np.asarray(truth)
    if classes.dtype.kind in "iub" or classes.ndim != 1:
        return classes
    values = np.array(truth, dtype=object)
    missing = [row for row, value in enumerate(values.tolist()) if is_missing(value)]
    if missing:
        raise DataError(
            f"truth: row {missing[0]} has no class (of {len(values)} rows, {len(missing)} have none): every row needs "
            "one; name them, such as 'unknown', or leave truth out"
        )
    if all(isinstance(value, Integral) for value in values):
        return values.astype(np.int64)
    return values.astype(str) if classes.dtype == object else classes


def _written(path: Path, data: dict[str, Any]) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_page(path, data)
    except OSError as error:
        raise OutputError(f"cannot write to {path}: {error.strerror or error}") from None
    return path
