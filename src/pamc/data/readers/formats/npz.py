"""Named numpy arrays in an .npz file: features, features with edges and labels, or a scipy.sparse matrix."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.attributed_graph import check_sparse
from pamc.data.files import check_memory, naming, reading
from pamc.data.readers.format import FORMATS, EdgeList, Format, Matrix
from pamc.data.readers.formats.npy import begins_with, without_objects
from pamc.errors import DataError

NPZ_LAYOUT = (
    "x (N, d), or x_data, x_indices, x_indptr and x_shape of a CSR matrix, for the features; "
    "y (N,) for labels and edges (E, 2) for edges, both optional"
)
_CSR_KEYS = ("x_data", "x_indices", "x_indptr", "x_shape")

Arrays: TypeAlias = dict[str, NDArray[Any]]


def load_arrays(path: Path, *names: str) -> Arrays:
    """Load the arrays of an .npz file, or those of the given names that exist. Pickled data is never loaded."""
    # Given a path, numpy would leave a damaged file open.
    with reading(path), path.open("rb") as stream:
        if not begins_with(path, b"PK"):
            raise DataError(f"{path}: is not an .npz file")
        with zipfile.ZipFile(stream) as members:
            # Compressed zeros take a thousandth of their size.
            check_memory(path, 0, n_bytes=sum(member.file_size for member in members.infolist()))
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as archive:
            arrays = {}
            for name in names or archive.files:
                if name in archive.files:
                    with without_objects(path, f"array {name!r}"):
                        arrays[name] = np.asarray(archive[name])
            return arrays


def _read_features(path: Path, truth: str | None) -> Matrix:
    """Read the arrays of `NPZ_LAYOUT`, a single 2-D array, or a matrix written by ``scipy.sparse.save_npz``."""
    arrays = load_arrays(path)
    features = _features_of(path, arrays)
    if truth is not None and truth not in arrays:
        raise DataError(f"{path}: has no array {truth!r} for the truth; found {', '.join(arrays)}")
    if len(arrays) == 1:
        return Matrix(features, labels=None if truth is None else arrays[truth])
    edges = _pairs(path, arrays, "edges", axis=1) if "edges" in arrays else None
    return Matrix(features, edges, arrays.get(truth or "y"))


def _features_of(path: Path, arrays: Arrays) -> NDArray[Any] | sp.csr_matrix:
    if all(key in arrays for key in _CSR_KEYS):
        with reading(path), naming(path):
            return _csr_of(arrays)
    if "x" in arrays:
        return arrays["x"]
    if (matrix := _saved_sparse(path, arrays)) is not None:
        return matrix
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise DataError(f"{path}: has no features; found the arrays {', '.join(arrays) or 'none'}, expected {NPZ_LAYOUT}")


def _csr_of(arrays: Arrays) -> sp.csr_matrix:
    """Return the CSR matrix of four arrays; raise DataError if one of them is damaged."""
    data, indices, indptr, shape = (arrays[key] for key in _CSR_KEYS)
    _check_integers("x_shape", shape, 2)
    _check_integers("x_indptr", indptr, int(shape[0]) + 1)
    _check_integers("x_indices", indices, len(data))
    if indptr[-1] != len(data):
        raise DataError(f"x_indptr ends at {indptr[-1]}, but x_data has shape {data.shape}; damaged?")
    matrix = sp.csr_matrix((data, indices, indptr), shape=tuple(shape.tolist()))
    check_sparse(matrix, what="x")
    return matrix


def _check_integers(name: str, values: NDArray[Any], length: int) -> None:
    if values.dtype.kind not in "iu":
        raise DataError(f"{name} must be integers, got dtype {values.dtype}")
    if values.shape != (length,):
        raise DataError(f"{name} must have {length} values, got shape {values.shape}; damaged?")


def _saved_sparse(path: Path, arrays: Arrays) -> sp.csr_matrix | None:
    """Return the matrix of an .npz file written by ``scipy.sparse.save_npz``, or None if it holds something else."""
    if not {"format", "shape", "data"} <= arrays.keys():
        return None
    with reading(path), path.open("rb") as stream:
        matrix = sp.load_npz(stream)
        with naming(path):
            check_sparse(matrix, what="the sparse matrix")
        return sp.csr_matrix(matrix)


def _read_edges(path: Path) -> Any:
    """Read `edges` or `edge_index`, or the only array or sparse matrix of the file."""
    named = load_arrays(path, "edges", "edge_index", "edge_weight")
    for name, axis in (("edges", 1), ("edge_index", 0)):
        if name in named:
            return EdgeList(_pairs(path, named, name, axis=axis), named.get("edge_weight"))
    arrays = load_arrays(path)
    matrix = _saved_sparse(path, arrays)
    if matrix is None and len(arrays) != 1:
        raise DataError(
            f"{path}: found the arrays {', '.join(arrays) or 'none'}, expected edges (E, 2), edge_index (2, E) "
            "or one array"
        )
    return next(iter(arrays.values())) if matrix is None else matrix


def _pairs(path: Path, arrays: Arrays, name: str, *, axis: int) -> NDArray[Any]:
    """Return an edge list as (2, E); ``axis`` is its axis of length 2."""
    pairs = arrays[name]
    if pairs.ndim != 2 or pairs.shape[axis] != 2:
        shape = ("(2, E)", "(E, 2)")[axis]
        raise DataError(f"{path}: array {name!r} must have shape {shape}, got {pairs.shape}")
    return np.moveaxis(pairs, axis, 0)


def _read_labels(path: Path, name: str | None) -> NDArray[Any]:
    arrays = load_arrays(path)
    name = name or ("y" if len(arrays) != 1 else next(iter(arrays)))
    if name not in arrays:
        raise DataError(f"{path}: has no array {name!r} of labels; found {', '.join(arrays) or 'none'}")
    return arrays[name]


FORMATS.register("npz")(
    Format(endings=(".npz",), read_features=_read_features, read_edges=_read_edges, read_labels=_read_labels)
)
