"""Export a fitted model to one ONNX file, and check it against `predict`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.columns.encoding import TableEncoding
from pamc.data.columns.frames import raw_table
from pamc.data.columns.raw import RawColumn, RawTable
from pamc.data.columns.types import BOOLEAN, CATEGORY, DATE, GIVEN, NUMBER, ORDERED, TIME
from pamc.data.columns.variable import Variable
from pamc.data.files import cannot_write
from pamc.data.preprocessing import Preprocessing
from pamc.errors import BackendError, ConfigError, OutputError
from pamc.results.onnx.builder import import_onnx
from pamc.results.onnx.columns import NUMERIC
from pamc.results.onnx.graph import INPUT, fit_graph

# Rows of the check, share of their cells that are missing, and the allowed difference of probabilities.
_N_CHECKED, _SHARE_MISSING, _TOLERANCE = 256, 0.02, 1e-5


def export_model(model: Any, path: Path, *, overwrite: bool = False) -> Path:
    """Write a fitted model to an ONNX file and return its path; nothing is written if the check fails."""
    if path.suffix != ".onnx":
        raise ConfigError(f"the file to export to must end in .onnx, got {path}")
    if model.n_features_in_ == 0:
        raise ConfigError(
            "the model was fitted to a graph without features, but an exported file assigns rows by their features: "
            "fit with features, or load the run with pamc"
        )
    if path.exists() and not overwrite:
        raise OutputError(f"{path} exists; name another file, or pass overwrite=True to replace it")
    content = exported_bytes(model)
    # The file is renamed when it is complete, so that a server never reads an incomplete one.
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise cannot_write(path, error) from None
    return path


def exported_bytes(model: Any) -> bytes:
    """Return the ONNX file of a fitted model, after comparing its results with `predict` on random rows."""
    fit = model._fit_result
    import_onnx()
    runtime = import_runtime()
    names = getattr(model, "feature_names_in_", None)
    exported = fit_graph(fit, n_features=model.n_features_in_, encoding=model.columns_, feature_names=names)
    content: bytes = exported.SerializeToString()
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    check_session(model, session, _random_rows(fit.preprocessing, model.n_features_in_, model.columns_))
    return content


def import_runtime() -> Any:
    """Return the package onnxruntime; raise a BackendError with the command that installs it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise BackendError('export needs onnx and onnxruntime: pip install "pamc[export]"') from error
    return onnxruntime


def onnx_inputs(model: Any, X: Any) -> dict[str, NDArray[Any]]:
    """Return the inputs of the exported graph for rows: one array `X`, or one array (n, 1) per column of a table."""
    encoding = model.columns_
    if encoding is None:
        dense = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        return {INPUT: dense.astype(model.cluster_centers_.dtype)}
    table = X if isinstance(X, RawTable) else raw_table(X, names=encoding.raw_names)
    return {variable.name: _cells(variable, table) for variable in encoding.variables}


def check_session(model: Any, session: Any, X: Any) -> None:
    """Raise a BackendError if a session gives other clusters or probabilities than `predict` for some rows.

    Where two clusters are equally probable up to rounding, either is right.
    """
    results = dict(zip([output.name for output in session.get_outputs()], _run(model, session, X), strict=True))
    expected = model.predict_proba(X)
    difference = float(np.abs(results["probabilities"] - expected).max())
    ordered = np.sort(expected, axis=1)
    is_tied = ordered[:, -1] - ordered[:, -2:].min(axis=1) <= 2 * _TOLERANCE if expected.shape[1] > 1 else False
    n_other = int((~is_tied & (results["probabilities"].argmax(axis=1) != expected.argmax(axis=1))).sum())
    if difference > _TOLERANCE or n_other:
        raise BackendError(
            f"the exported graph differs from predict by {difference:.2g} in probability ({n_other} other clusters in "
            f"{len(expected)} rows), so it was not written: the values of X are too large for its precision; "
            'fit with advanced={"precision": "float64"}'
        )


def _run(model: Any, session: Any, X: Any) -> list[NDArray[Any]]:
    outputs: list[NDArray[Any]] = session.run(None, onnx_inputs(model, X))
    return outputs


def _cells(variable: Variable, table: RawTable) -> NDArray[Any]:
    """Return the cells (n, 1) of a column as the graph takes them."""
    if variable.name not in table:
        missing: Any = np.nan if variable.kind in NUMERIC else ""
        return np.full((table.n_rows, 1), missing, dtype=np.float64 if variable.kind in NUMERIC else object)
    column = table[variable.name]
    if variable.kind == NUMBER:
        numbers = variable.values(column) if column.numbers is None else column.numbers[:, None]
        return np.asarray(numbers, dtype=np.float64)
    if variable.kind in (DATE, TIME):
        return _seconds(variable, column)[:, None]
    return np.array([text or "" for text in column.as_texts().tolist()], dtype=object)[:, None]


def _seconds(variable: Variable, column: RawColumn) -> NDArray[np.float64]:
    """Return dates as seconds since 1970, NaN if missing."""
    dates = variable.dates(column)
    return np.where(np.isnat(dates), np.nan, dates.astype("M8[s]").astype(np.int64))


def _random_rows(preprocessing: Preprocessing, n_features: int, encoding: TableEncoding | None) -> Any:
    """Return random rows of the kind that a model was fitted to, with missing cells."""
    rng = np.random.default_rng(0)
    if encoding is not None:
        places = {variable.name: encoding.variable_of == i for i, variable in enumerate(encoding.variables)}
        arrays = preprocessing.arrays
        columns = [_random_column(v, places[v.name], arrays, rng) for v in encoding.variables]
        return RawTable(columns, _N_CHECKED)
    rows = np.abs(rng.normal(size=(_N_CHECKED, n_features)))
    arrays = preprocessing.arrays
    if preprocessing.kind in ("scale", "standardize"):
        signed = rows * rng.choice([-1, 1], rows.shape) if preprocessing.kind == "standardize" else rows
        rows = signed * arrays["scale"] + arrays.get("mean", 0)
    rows[rng.random(rows.shape) < _SHARE_MISSING] = np.nan
    return rows.astype(np.float32)


def _random_column(
    variable: Variable, places: NDArray[np.bool_], arrays: Mapping[str, Any], rng: np.random.Generator
) -> RawColumn:
    is_missing = rng.random(_N_CHECKED) < _SHARE_MISSING
    if variable.kind == NUMBER:
        center = arrays["center"][places] if "center" in arrays else arrays.get("mean", np.zeros(len(places)))[places]
        width = arrays["spread"][places] if "spread" in arrays else arrays.get("scale", np.ones(len(places)))[places]
        numbers = (center + width * rng.normal(size=_N_CHECKED)).astype(np.float32).astype(np.float64)
        return RawColumn(variable.name, numbers=np.where(is_missing, np.nan, numbers))
    if variable.kind in (DATE, TIME):
        year = arrays["center"][places][0] if variable.kind == DATE and "center" in arrays else 2000.0
        seconds = (year - 1970 + rng.normal(size=_N_CHECKED)) * 86400 * 365.2425
        dates = seconds.astype(np.int64).astype("M8[s]")
        return RawColumn(variable.name, dates=np.where(is_missing, np.datetime64("NaT"), dates))
    levels = {BOOLEAN: variable.levels, CATEGORY: variable.levels, ORDERED: variable.levels, GIVEN: ("x",)}
    texts = rng.choice(np.array(levels[variable.kind], dtype=object), _N_CHECKED)
    texts[is_missing] = None
    return RawColumn(variable.name, texts=texts)
