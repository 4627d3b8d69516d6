"""Files that hold one matrix, with or without edges and labels beside it: .npy, .npz, .mtx and svmlight."""

from __future__ import annotations

import gzip
import io
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.attributed_graph import AttributedGraph, check_sparse, label_codes
from pamc.data.files import existing_file, kind_of, naming, reading
from pamc.errors import DataError

__all__ = ["MATRIX_KINDS", "NPZ_LAYOUT", "load_arrays", "load_matrix", "read_matrix", "sparse_part"]

_SVMLIGHT = (".svm", ".svmlight", ".libsvm")
MATRIX_KINDS = (".npy", ".npz", ".mtx", *_SVMLIGHT)

NPZ_LAYOUT = (
    "x (N, d), or x_data, x_indices, x_indptr and x_shape of a CSR matrix, for the features; "
    "y (N,) for labels and edges (E, 2) for edges, both optional"
)
_CSR_KEYS = ("x_data", "x_indices", "x_indptr", "x_shape")


def read_matrix(path: str | PathLike[str], *, truth: str | None = None, dtype: str = "float32") -> AttributedGraph:
    """Return the features of a matrix file, with the labels and edges that an .npz or svmlight file has beside them.

    An .npz file holds the arrays of `NPZ_LAYOUT`, or one 2-D array, or what ``scipy.sparse.save_npz`` writes; its y
    rides along as labels, or the array named by ``truth``. Every line of an svmlight file begins with a target that is
    often a filler or a measured value: it becomes labels only with ``truth="label"``.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/two.npz", x=np.eye(2), y=[0, 1], edges=[[0, 1]])
    ...     graph = read_matrix(f"{folder}/two.npz")
    >>> graph.n_features, graph.edges.tolist(), graph.labels.tolist()
    (2, [[0], [1]], [0, 1])
    """
    path = existing_file(path)
    kind = kind_of(path)
    edges: NDArray[Any] | None = None
    labels: NDArray[Any] | None = None
    if kind == ".npz":
        arrays = load_arrays(path)
        features = _features_of(path, arrays)
        edges = _edges_of(path, arrays)
        labels = _labels_of(path, arrays, truth)
    elif kind in _SVMLIGHT:
        features, labels = _load_svmlight(path, truth)
    else:
        if truth is not None:
            raise DataError(f"{path}: a {kind} file holds the features alone, so there is no truth column {truth!r}")
        features = load_matrix(path)
    with naming(path):
        name = path.name.partition(".")[0]
        return AttributedGraph(_cast(features, dtype), edges=edges, labels=labels, name=name)


def load_matrix(path: Path) -> NDArray[Any] | sp.csr_matrix:
    """Return the one array of a .npy file, or the matrix of an .mtx file (CSR where it is stored sparse)."""
    if kind_of(path) == ".npy":
        with reading(path):
            return _load_npy(path)
    with reading(path):
        matrix = _load_mtx(path)
    return sp.csr_matrix(matrix) if sp.issparse(matrix) else np.asarray(matrix)


def load_arrays(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file by name, or those asked for that are there. Nothing is ever unpickled."""
    # numpy leaves a damaged file open when it is given a path.
    with reading(path), path.open("rb") as stream:
        if not _begins_with(path, b"PK"):
            raise DataError(f"{path}: is not an .npz file")
        with np.load(stream, allow_pickle=False) as archive:
            return {name: _load_member(path, archive, name) for name in names or archive.files if name in archive.files}


def sparse_part(path: Path, arrays: dict[str, NDArray[Any]]) -> sp.csr_matrix | None:
    """Return the matrix of an .npz file that ``scipy.sparse.save_npz`` wrote, or None when it holds something else."""
    if not {"format", "shape", "data"} <= arrays.keys():
        return None
    with reading(path), path.open("rb") as stream:
        matrix = sp.load_npz(stream)
        with naming(path):
            check_sparse(matrix, what="the sparse matrix")
        return sp.csr_matrix(matrix)


def _features_of(path: Path, arrays: dict[str, NDArray[Any]]) -> NDArray[Any] | sp.csr_matrix:
    if all(key in arrays for key in _CSR_KEYS):
        data, indices, indptr, shape = (arrays[key] for key in _CSR_KEYS)
        with naming(path):
            n_rows, n_columns = (int(n) for n in _integers("x_shape", shape, 2))
            index = np.int32 if max(len(data), n_rows, n_columns) < 2**31 else np.int64
            indptr, indices = _integers("x_indptr", indptr, n_rows + 1), _integers("x_indices", indices, len(data))
            if len(indices) and not 0 <= indices.min() <= indices.max() < n_columns:
                raise DataError(f"x_indices must lie between 0 and {n_columns - 1}; damaged?")
            if not 0 <= indptr.min() <= indptr.max() <= len(data):
                raise DataError(f"x_indptr must lie between 0 and {len(data)}, the length of x_data; damaged?")
            parts = (data, indices.astype(index), indptr.astype(index))
            return _checked_csr(parts, (n_rows, n_columns))
    if "x" in arrays:
        return arrays["x"]
    if (matrix := sparse_part(path, arrays)) is not None:
        return matrix
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise DataError(f"{path}: has no features; found the arrays {', '.join(arrays) or 'none'}, expected {NPZ_LAYOUT}")


def _edges_of(path: Path, arrays: dict[str, NDArray[Any]]) -> NDArray[Any] | None:
    edges = arrays.get("edges")
    if edges is None or len(arrays) == 1:
        return None
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise DataError(f"{path}: array 'edges' must have shape (E, 2), got {edges.shape}")
    return edges.T


def _labels_of(path: Path, arrays: dict[str, NDArray[Any]], truth: str | None) -> NDArray[Any] | None:
    if truth is not None and truth not in arrays:
        raise DataError(f"{path}: has no array {truth!r} for the truth; found {', '.join(arrays)}")
    return arrays[truth] if truth is not None else None if len(arrays) == 1 else arrays.get("y")


def _load_svmlight(path: Path, truth: str | None) -> tuple[sp.csr_matrix, NDArray[Any] | None]:
    from sklearn.datasets import load_svmlight_file

    if truth not in (None, "label"):
        raise DataError(f"{path}: the only truth column of an svmlight file is its first, 'label'; got {truth!r}")
    with reading(path):
        features, target = load_svmlight_file(str(path))
    return features, None if truth is None else label_codes(target, what=f"{path}: labels")


def _load_npy(path: Path) -> NDArray[Any]:
    if not _begins_with(path, b"\x93NUMPY"):
        raise DataError(f"{path}: is not an .npy file")
    with path.open("rb") as stream:
        try:
            return np.lib.format.read_array(stream, allow_pickle=False)
        except ValueError as error:
            _refuse_objects(path, "the array", error)
            raise


def _load_mtx(path: Path) -> Any:
    import scipy.io

    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as stream:
        text = stream.read()
    # At a NUL, or when no line end closes the file, scipy's parser reads past its buffer and the process dies.
    if b"\0" in text:
        raise DataError(f"{path}: has NUL bytes, so it is not text in the Matrix Market format; damaged?")
    return scipy.io.mmread(io.BytesIO(text if text.endswith(b"\n") else text + b"\n"))


def _load_member(path: Path, archive: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(archive[name])
    except ValueError as error:
        _refuse_objects(path, f"array {name!r}", error)
        raise


def _refuse_objects(path: Path, what: str, error: ValueError) -> None:
    if "Object arrays" in str(error):
        raise DataError(
            f"{path}: {what} holds Python objects, which only unsafe pickle could read; save it as numbers or text"
        ) from error


def _begins_with(path: Path, magic: bytes) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(magic)) == magic


def _integers(name: str, values: NDArray[Any], length: int) -> NDArray[Any]:
    """Return an array of the CSR parts as it is, or say why it cannot hold indices."""
    if values.dtype.kind not in "iu":
        raise DataError(f"{name} must be integers, got dtype {values.dtype}")
    if values.shape != (length,):
        raise DataError(f"{name} must have {length} values, got shape {values.shape}; damaged?")
    return values


def _checked_csr(parts: tuple[NDArray[Any], NDArray[Any], NDArray[Any]], shape: tuple[int, int]) -> sp.csr_matrix:
    data, _, indptr = parts
    if data.ndim != 1 or indptr[-1] != len(data):
        raise DataError(f"x_indptr ends at {indptr[-1]}, but x_data has shape {data.shape}; damaged?")
    matrix = sp.csr_matrix(parts, shape=shape)
    check_sparse(matrix, what="x")
    return matrix


def _cast(features: Any, dtype: str) -> Any:
    if features.dtype.kind not in "fiub" or features.dtype == dtype:
        return features
    # What float32 cannot hold becomes inf, which the container then refuses by row and column.
    with np.errstate(over="ignore"):
        return features.astype(dtype)
