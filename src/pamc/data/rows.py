"""Convert rows, such as arrays, matrices, tensors and data frames, to features.

A type is recognized by the package that defines it, so no optional package is imported for the check.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.attributed_graph import AttributedGraph, check_sparse
from pamc.data.columns.encoding import TableEncoding, fit_encoding
from pamc.data.columns.frames import as_frame, is_mixed, raw_table
from pamc.data.columns.raw import RawTable
from pamc.data.columns.types import IGNORE, Types, find_types
from pamc.errors import DataError, DataWarning, warn

# Number of notes about columns that a warning lists.
MOST_NOTES = 8


def as_features(X: Any) -> tuple[Any, tuple[str, ...] | None, NDArray[Any] | None]:
    """Return (features, feature names or None, ids or None) of an array, matrix, data frame, tensor or nested list.

    Features are returned as a numpy array or a scipy CSR matrix; `AttributedGraph` validates them. A data frame yields
    its column names if all are strings, and its index as ids if it is unique and not the default 0 … N−1.

    Examples
    --------
    >>> as_features([[1.0, 2.0], [3.0, 4.0]])[0].shape
    (2, 2)
    """
    if comes_from(X, "pandas"):
        return _frame_features(X)
    if comes_from(X, "torch"):
        return tensor_matrix(X), None, None
    if sp.issparse(X):
        check_sparse(X, what="features")
        return sp.csr_matrix(X), None, None
    return as_array(X, "features"), None, None


def table_graph(table: RawTable, types: Types | None = None, **others: Any) -> AttributedGraph:
    """Return a table of mixed types as a graph without edges, and warn about the columns that may need attention.

    Parameters
    ----------
    table
        The raw columns.
    types
        Types set by the user, by column name.
    others
        Further arguments of the graph. By default, its ids are those of the column that identifies the rows, if any.
    """
    encoding, features = fit_encoding(table, find_types(table, types), types)
    warn_about_types(encoding, table.source, stacklevel=4)
    if encoding.id_column is not None and others.get("ids") is None:
        others["ids"] = ids_of(table, encoding.id_column)
    others |= {"feature_names": encoding.feature_names, "encoding": encoding, "cells": encoding.cells_of(table)}
    return AttributedGraph(features, **others)


def ids_of(table: RawTable, column: str) -> NDArray[np.str_]:
    """Return the ids (N,) in a column; raise DataError for a row without one."""
    texts, codes = table[column].distinct
    if (codes < 0).any():
        where = table.where(int(np.flatnonzero(codes < 0)[0]))
        raise DataError(f"{table.source}: column {column!r} has no id in {where}; every row needs an id")
    return np.array(texts)[codes]


def warn_about_types(encoding: TableEncoding, source: str, *, stacklevel: int) -> None:
    """Warn about the columns whose inferred types have notes, if any."""
    notes = [f"{row['name']!r}: {row['note']}" for row in encoding.table if row["note"]]
    if notes:
        more = f"; and {len(notes) - MOST_NOTES} more (see pamc describe)" if len(notes) > MOST_NOTES else ""
        warn(DataWarning(f"{source}: {'; '.join(notes[:MOST_NOTES])}{more}"), stacklevel=stacklevel)


def frame_graph(X: Any, types: Types | None = None) -> AttributedGraph | None:
    """Return the rows of a data frame with columns of mixed types; None for anything else, such as plain numbers."""
    if not is_mixed(X, types):
        if types and as_frame(X) is None:
            raise DataError("types refers to columns by name: pass X as a data frame with named columns")
        return None
    ignored = {name for name, kind in (types or {}).items() if kind == IGNORE} if isinstance(types, Mapping) else set()
    graph = table_graph(raw_table(X, names=None if not ignored else set(X.columns) - ignored), types)
    return graph if graph.ids is not None or not comes_from(X, "pandas") else replace(graph, ids=index_ids(X))


def as_table(X: Any) -> Any:
    """Return X in a form that scikit-learn validates: tensors as arrays or CSR matrices, masked cells as NaN.

    File names, and objects that hold more than rows, raise a DataError that explains how to use them.

    Examples
    --------
    >>> as_table(np.ma.masked_equal([[1, 2], [3, -1]], -1))
    array([[ 1.,  2.],
           [ 3., nan]])
    """
    check_has_rows(X, recipient=" to fit_graph")
    if isinstance(X, AttributedGraph) or (comes_from(X, "torch_geometric", "anndata") and not comes_from(X, "torch")):
        raise DataError(f"X is a {type(X).__name__}, which may contain edges: pass it to fit_graph")
    if comes_from(X, "torch"):
        return tensor_matrix(X)
    if sp.issparse(X):
        check_sparse(X, what="X")
    if not hasattr(X, "__array__") and (frame := as_frame(X)) is not None:
        # scikit-learn does not read every kind of data frame.
        return frame.to_numpy()
    return as_array(X, "features") if np.ma.is_masked(X) else X


def check_has_rows(X: Any, recipient: str = "") -> None:
    """Raise DataError for a file name or a networkx graph, which have no features."""
    if isinstance(X, str | os.PathLike):
        raise DataError(
            f"X is the text {os.fspath(X)!r}, not rows: read a file with pamc.data.readers.read_graph and pass the "
            f"graph{recipient}"
        )
    is_records = isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], dict)
    is_dict = isinstance(X, dict) and not sp.issparse(X)
    if is_dict or is_records or getattr(getattr(X, "dtype", None), "names", None):
        raise DataError(f"X is a {type(X).__name__} of named values: convert it to a data frame, pandas.DataFrame(X)")
    if comes_from(X, "polars") and as_frame(X) is None:
        raise DataError(f"X must be a table of rows and columns, got a polars {type(X).__name__}")
    if comes_from(X, "networkx"):
        raise DataError("X is a networkx graph: pass it as adjacency, alone or with features as X")


def why_not_a_table(X: Any, error: Exception) -> DataError:
    """Return the DataError that explains why X is not a numeric table, given the error that scikit-learn raised."""
    problem = _text_cell(X) or _ragged_row(X)
    # Drop the printed array from scikit-learn's message.
    lines = [line for line in str(error).splitlines() if line and not line.startswith(("array=", "[", " "))]
    return DataError(problem or " ".join(lines))


def _text_cell(X: Any) -> str | None:
    """Return a message about the first cell that is not a number, or None."""
    names = None
    if comes_from(X, "pandas") and hasattr(X, "columns"):
        X = X.select_dtypes(exclude=["number", "bool"])
        names = X.columns
        if X.shape[1] and not all(isinstance(name, str) for name in names):
            return "columns of mixed types need strings as names: X.columns = X.columns.astype(str)"
    elif getattr(X, "dtype", np.dtype(object)).kind not in "OUS":
        return None
    try:
        cells = np.array(X, dtype=object)
    except ValueError:
        return None
    for row, column in np.ndindex(cells.shape) if cells.ndim == 2 else ():
        if not _is_number(cells[row, column]):
            return (
                f"features must be numbers: row {row}, column {column if names is None else names[column]!r} is "
                f"{cells[row, column]!r}; leave that column out, or encode it as numbers"
            )
    return None


def _ragged_row(X: Any) -> str | None:
    """Return a message about the first row whose length differs from that of row 0, or None."""
    if isinstance(X, list | tuple) and all(hasattr(row, "__len__") for row in X):
        for number, row in enumerate(X):
            if len(row) != len(X[0]):
                return f"rows differ in length: row {number} has {len(row)} cells, row 0 has {len(X[0])}"
    return None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _frame_features(frame: Any) -> tuple[NDArray[Any], tuple[str, ...] | None, NDArray[Any] | None]:
    from pandas import DataFrame
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if not isinstance(frame, DataFrame):
        raise DataError(f"features must be a table of rows and columns, got a pandas {type(frame).__name__}")
    for position, (name, dtype) in enumerate(frame.dtypes.items()):
        if not (is_numeric_dtype(dtype) or is_bool_dtype(dtype)):
            value = frame.iloc[0, position] if len(frame) else ""
            raise DataError(
                f"features must be numbers: column {name!r} has dtype {dtype} (first value {value!r}); "
                "drop it or encode it"
            )
    single = all(dtype == np.float32 for dtype in frame.dtypes)
    features = frame.to_numpy(dtype=np.float32 if single else np.float64, na_value=np.nan)
    names = tuple(frame.columns) if all(isinstance(name, str) for name in frame.columns) else None
    return features, names, index_ids(frame)


def index_ids(frame: Any) -> NDArray[Any] | None:
    """Return the index of a pandas data frame as ids of its rows, None if it is the default or not unique."""
    from pandas import RangeIndex

    index = frame.index
    is_default = isinstance(index, RangeIndex) and index.start == 0 and index.step == 1
    return None if is_default or not index.is_unique else np.asarray(index)


def tensor_matrix(tensor: Any) -> Any:
    """Return a torch tensor as a numpy array, or as a CSR matrix if it is sparse."""
    import torch

    tensor = tensor.detach().cpu()
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    if tensor.layout == torch.strided:
        return tensor.numpy()
    entries = tensor.to_sparse_coo().coalesce()
    return sp.csr_matrix((entries.values().numpy(), entries.indices().numpy()), shape=tuple(tensor.shape))


def as_array(values: Any, what: str) -> NDArray[Any]:
    """Return values as an array, with NaN for masked cells; `what` names them in the error for ragged rows."""
    try:
        return values.astype(np.float64).filled(np.nan) if np.ma.is_masked(values) else np.asarray(values)
    except ValueError as error:
        raise DataError(f"{what} must be a matrix, a data frame, a tensor or rows of equal length ({error})") from error


def comes_from(obj: Any, *packages: str) -> bool:
    """Return whether the type of an object, or one of its bases, is defined by one of the packages."""
    return any(base.__module__.partition(".")[0] in packages for base in type(obj).__mro__)
