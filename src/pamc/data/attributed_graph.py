"""The AttributedGraph container: rows with features, optionally connected by edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.columns.encoding import TableEncoding
from pamc.data.relations import Relations
from pamc.errors import DataError, DataWarning, counted, warn

Features: TypeAlias = "NDArray[np.floating[Any]] | sp.csr_matrix"

_ROWS_PER_BLOCK = 1 << 16

# Sums and products of larger weights overflow float32.
MAX_EDGE_WEIGHT = 1e30

# Spellings of NaN, NaT and infinity, which are not valid class names.
NOT_LABELS = ("nat", *(f"{sign}{word}" for word in ("nan", "inf", "infinity") for sign in ("", "+", "-")))


@dataclass(frozen=True, eq=False)
class AttributedGraph:
    """A data set of N rows with d features, with or without edges between the rows.

    All fields are validated here once; other modules rely on it. Labels are used for the metrics only and never for
    training.

    Parameters
    ----------
    features
        (N, d) floating-point array or scipy CSR matrix. Integers and booleans are converted to float32. NaN in an array
        is a missing cell, which is imputed internally. A graph whose rows have no features has an (N, 0) array.
    edges
        (2, E) integer array of row indices, as listed in the source (one or both directions), or None.
    edge_weight
        (E,) positive weights, or None for all ones.
    ids
        (N,) strings or integers that identify the rows, or None for 0 … N−1.
    labels
        (N,) integer class labels, or None.
    feature_names
        Names of the d features, or None.
    name
        Name of the data set in tables and records.
    edges_are_neighbors
        True if `edges` is a nearest-neighbor graph computed from the features, not an independent graph.
    encoding
        The encoding by which the features were computed from the columns of a table, or None for plain numbers.
    cells
        Cells (N,) of the columns that the encoding does not contain completely, such as texts, None if missing.
    relations
        The relations that the edges belong to, or None if all edges are of one kind.
    described_by_edges
        True if the features were computed from the edges, because the rows have none.

    Examples
    --------
    >>> import numpy as np
    >>> graph = AttributedGraph(np.eye(3), edges=np.array([[0, 1], [1, 2]]))
    >>> graph.n_nodes, graph.n_features, graph.n_edges
    (3, 3, 2)
    """

    features: Features
    edges: NDArray[np.int64] | None = None
    edge_weight: NDArray[np.floating[Any]] | None = None
    ids: NDArray[Any] | None = None
    labels: NDArray[np.int64] | None = None
    feature_names: tuple[str, ...] | None = None
    name: str = "data"
    edges_are_neighbors: bool = field(default=False, kw_only=True)
    encoding: TableEncoding | None = field(default=None, kw_only=True)
    cells: Mapping[str, NDArray[Any]] | None = field(default=None, kw_only=True)
    relations: Relations | None = field(default=None, kw_only=True)
    described_by_edges: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        about: dict[str, Any] = {"names": self.feature_names, "ids": self.ids}
        features = check_features(self.features, **about, may_be_empty=self.edges is not None)
        n_nodes, n_features = features.shape
        object.__setattr__(self, "features", features)
        if self.edges is not None:
            edges, weight = check_edges(self.edges, self.edge_weight, n_nodes=n_nodes)
            object.__setattr__(self, "edges", edges)
            object.__setattr__(self, "edge_weight", weight)
        elif self.edge_weight is not None:
            raise DataError("edge_weight was given without edges")
        if self.relations is not None and len(self.relations.of_edge) != self.n_edges:
            raise DataError(f"relations has {len(self.relations.of_edge)} values for {counted(self.n_edges, 'edge')}")
        if self.labels is not None:
            object.__setattr__(self, "labels", _checked_labels(self.labels, n_nodes))
        if self.ids is not None:
            object.__setattr__(self, "ids", _check_ids(self.ids, n_nodes))
        if self.feature_names is not None:
            names = tuple(str(name) for name in self.feature_names)
            if len(names) != n_features:
                raise DataError(f"feature_names has {len(names)} names for {n_features} feature columns")
            object.__setattr__(self, "feature_names", names)

    @property
    def n_nodes(self) -> int:
        """Number of rows, N."""
        return int(self.features.shape[0])

    @property
    def n_features(self) -> int:
        """Number of feature columns, d."""
        return int(self.features.shape[1])

    @property
    def n_edges(self) -> int:
        """Number of edges, E, as listed in the source."""
        return 0 if self.edges is None else int(self.edges.shape[1])

    @property
    def row_ids(self) -> NDArray[Any]:
        """Row ids of shape (N,), or 0 … N−1 if no ids were given."""
        return np.arange(self.n_nodes) if self.ids is None else self.ids

    def without_labels(self) -> AttributedGraph:
        """Return a copy without labels, which is what training receives."""
        return replace(self, labels=None)

    def only(self, rows: NDArray[np.int64]) -> AttributedGraph:
        """Return the graph of some rows, in ascending order, with the edges between them."""
        place = np.full(self.n_nodes, -1)
        place[rows] = np.arange(len(rows))
        part = replace(
            self.without_edges(),
            features=self.features[rows],
            ids=self.row_ids[rows],
            labels=None if self.labels is None else self.labels[rows],
            cells=None if self.cells is None else {name: cells[rows] for name, cells in self.cells.items()},
        )
        if self.edges is None:
            return part
        is_inside = np.asarray((place[self.edges] >= 0).all(axis=0))
        return replace(
            part,
            edges=place[self.edges[:, is_inside]],
            edge_weight=None if self.edge_weight is None else self.edge_weight[is_inside],
            edges_are_neighbors=self.edges_are_neighbors,
            relations=None if self.relations is None else self.relations.only(is_inside),
        )

    def repeated(self, origin: NDArray[np.int64]) -> AttributedGraph:
        """Return a graph whose row i is a copy of row `origin[i]`; `origin` (M,) is in ascending order.

        An edge between two rows joins all their copies. Copies of the same row are not joined.
        """
        rows = replace(
            self.without_edges(),
            features=self.features[origin],
            ids=None,
            labels=None if self.labels is None else self.labels[origin],
            cells=None if self.cells is None else {name: cells[origin] for name, cells in self.cells.items()},
        )
        if self.edges is None:
            return rows
        counts = np.bincount(origin, minlength=self.n_nodes)
        first = np.cumsum(counts) - counts
        n_copies = counts[self.edges].prod(axis=0) * (self.edges[0] != self.edges[1])
        edge = np.repeat(np.arange(self.n_edges), n_copies)
        number = np.arange(len(edge)) - np.repeat(np.cumsum(n_copies) - n_copies, n_copies)
        source, target = self.edges[:, edge]
        ends = np.stack([first[source] + number // counts[target], first[target] + number % counts[target]])
        return replace(
            rows,
            edges=ends,
            edge_weight=None if self.edge_weight is None else self.edge_weight[edge],
            edges_are_neighbors=self.edges_are_neighbors,
            relations=None if self.relations is None else replace(self.relations, of_edge=self.relations.of_edge[edge]),
        )

    def without_edges(self) -> AttributedGraph:
        """Return a copy without edges."""
        return replace(self, edges=None, edge_weight=None, edges_are_neighbors=False, relations=None)


def check_features(
    features: Any,
    *,
    names: tuple[str, ...] | None = None,
    ids: NDArray[Any] | None = None,
    may_be_empty: bool = False,
) -> Features:
    """Return features as an (N, d) float array or CSR matrix; raise DataError naming the first invalid cell.

    NaN in an array is a missing cell; infinite cells, and NaN in a sparse matrix, are invalid. The array is stored row
    by row, because sums of floats depend on the order in memory. The argument is never modified, and is copied only if
    its dtype or its order must change. `may_be_empty` allows rows without columns, which are described by edges.
    O(N·d) time, O(d) additional memory.
    """
    if sp.issparse(features):
        check_sparse(features, what="features")
        matrix = _as_float(sp.csr_matrix(features))
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        bad = np.flatnonzero(~np.isfinite(matrix.data))
        if len(bad):
            row = int(np.searchsorted(matrix.indptr, bad[0], side="right")) - 1
            raise _not_finite(row, int(matrix.indices[bad[0]]), matrix.data[bad[0]], len(bad), names, ids)
        _check_shape(matrix.shape, may_be_empty=may_be_empty)
        return matrix
    array = np.asarray(features)
    if array.ndim != 2:
        raise DataError(f"features must be a 2-D array (rows × columns), got {array.ndim}-D of shape {array.shape}")
    _check_shape(array.shape, may_be_empty=may_be_empty)
    if array.dtype == object or array.dtype.kind in "USMmV":
        raise DataError(f"features must be numbers, got dtype {array.dtype}")
    array = np.ascontiguousarray(_as_float(array))
    for start in range(0, len(array), _ROWS_PER_BLOCK):
        infinite = np.isinf(array[start : start + _ROWS_PER_BLOCK])
        if infinite.any():
            row, column = (int(i) for i in np.argwhere(infinite)[0])
            row += start
            raise _not_finite(row, column, array[row, column], int(np.isinf(array).sum()), names, ids)
    return array


def check_known(features: Features, names: tuple[str, ...] | None = None) -> None:
    """Raise DataError if a column of the rows to fit has no values; warn about rows without any."""
    if not isinstance(features, np.ndarray) or not np.isnan(features).any():
        return
    known = ~np.isnan(features)
    empty = np.flatnonzero(~known.any(axis=0))
    if len(empty):
        which = f"column {names[empty[0]]!r}" if names is not None and empty[0] < len(names) else f"column {empty[0]}"
        raise DataError(f"{which} has no values: leave it out" + (f" ({len(empty)} such columns)" * (len(empty) > 1)))
    n_unknown = int((~known.any(axis=1)).sum())
    if n_unknown:
        warn(DataWarning(f"{counted(n_unknown, 'row')} without any value cannot be distinguished"), stacklevel=4)


def _as_float(features: Any) -> Any:
    """Return real numbers as float32 or float64 (unchanged if they are either)."""
    if features.dtype.kind == "c":
        raise DataError("features must be real numbers; complex data not supported")
    return features if features.dtype in (np.float32, np.float64) else features.astype(np.float32)


def check_edges(
    edges: Any, edge_weight: Any = None, *, n_nodes: int, ids: NDArray[Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.floating[Any]] | None]:
    """Return (2, E) int64 edges within 0 … N−1 and their positive weights; raise DataError for an invalid edge.

    The error message names an edge with an invalid weight by the `ids` (N,) of its rows, or by row numbers if None.
    """
    array = np.asarray(edges)
    if array.ndim != 2 or array.shape[0] != 2:
        raise DataError(f"edges must have shape (2, E), got {array.shape}")
    is_integral = array.dtype.kind == "f" and bool((np.isfinite(array) & (array == np.floor(array))).all())
    if array.dtype.kind not in "iub" and not is_integral:
        raise DataError(f"edges must be row indices (integers), got dtype {array.dtype}")
    array = array.astype(np.int64, copy=False)
    outside = np.flatnonzero(((array < 0) | (array >= n_nodes)).any(axis=0))
    if len(outside):
        first = ", ".join(f"{a}→{b}" for a, b in array[:, outside[:3]].T)
        raise DataError(
            f"{len(outside)} of {array.shape[1]} edges join rows that do not exist (rows are 0 to {n_nodes - 1}); "
            f"the first: {first}"
        )
    if edge_weight is None:
        return array, None
    weight = np.asarray(edge_weight)
    if weight.shape != (array.shape[1],):
        raise DataError(f"edge_weight must have one value per edge ({array.shape[1]}), got shape {weight.shape}")
    if weight.dtype not in (np.float32, np.float64):
        with np.errstate(over="ignore"):
            weight = weight.astype(np.float32)
    bad = np.flatnonzero(~((weight > 0) & (weight <= MAX_EDGE_WEIGHT)))
    if len(bad):
        a, b = array[:, bad[0]] if ids is None else ids[array[:, bad[0]]]
        raise DataError(
            f"edge weights must be positive and at most {MAX_EDGE_WEIGHT:g}: {len(bad)} of {len(weight)} are not; the "
            f"first is {weight[bad[0]]:g} on edge {a}→{b}. Leave such edges out, or rescale the weights"
        )
    return array, weight


def check_sparse(matrix: Any, *, what: str) -> None:
    """Raise DataError if the index arrays of a scipy sparse matrix are inconsistent with its shape.

    scipy does not check them: an index outside the matrix reads unrelated memory or crashes the process. The matrix is
    not modified. O(nnz) time.
    """
    if matrix.ndim != 2:
        raise DataError(f"{what} must be a 2-D matrix, got a sparse array of shape {matrix.shape}")
    if matrix.format in ("csr", "csc", "bsr"):
        n_major, n_minor = matrix.shape if matrix.format != "csc" else matrix.shape[::-1]
        if matrix.format == "bsr":
            n_major, n_minor = (n // size for n, size in zip(matrix.shape, matrix.blocksize, strict=True))
        _check_compressed(matrix.indptr, matrix.indices, matrix.data, n_major, n_minor, what)
    elif matrix.format == "lil":
        _check_lil(matrix, what)
    elif matrix.format == "coo":
        for axis, (index, size) in enumerate(zip((matrix.row, matrix.col), matrix.shape, strict=True)):
            if len(index) != len(matrix.data):
                raise DataError(f"{what}: {len(index)} indices for {len(matrix.data)} values")
            _check_indices(index, size, f"{what}: {('row', 'column')[axis]} index")


def _check_lil(matrix: Any, what: str) -> None:
    for row, (columns, values) in enumerate(zip(matrix.rows, matrix.data, strict=True)):
        if len(columns) != len(values):
            raise DataError(f"{what}: row {row} has {len(columns)} columns and {len(values)} values; damaged?")
        _check_indices(np.asarray(columns, dtype=None if columns else np.int64), matrix.shape[1], f"{what}: column")


def _check_compressed(indptr: Any, indices: Any, data: Any, n_major: int, n_minor: int, what: str) -> None:
    if indptr.dtype.kind not in "iu" or indptr.shape != (n_major + 1,):
        raise DataError(
            f"{what}: indptr must be {n_major + 1} integers, got {indptr.dtype} of shape {indptr.shape}; damaged?"
        )
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise DataError(f"{what}: indptr must begin with 0 and never decrease; damaged?")
    n_stored = int(indptr[-1])
    if len(indices) != len(data) or len(data) < n_stored:
        raise DataError(
            f"{what}: indptr ends at {n_stored}, but there are {len(indices)} indices and {len(data)} values; damaged?"
        )
    _check_indices(indices[:n_stored], n_minor, f"{what}: index")


def _check_indices(indices: Any, size: int, what: str) -> None:
    if indices.dtype.kind not in "iu":
        raise DataError(f"{what} must be an integer, got dtype {indices.dtype}")
    wrong = np.flatnonzero((indices < 0) | (indices >= size))
    if len(wrong):
        raise DataError(f"{what} {indices[wrong[0]]} lies outside of 0 to {size - 1}; damaged?")


def check_labels(labels: NDArray[Any], *, what: str) -> None:
    """Raise DataError if a label (N,) is missing or not finite; the strings "nan" and "inf" are not valid labels.

    Examples
    --------
    >>> check_labels(np.array([1.0, np.nan]), what="y")
    Traceback (most recent call last):
    pamc.errors.DataError: y: row 1 has the label nan, which is not a class (1 of 2 rows); leave such rows out
    """
    if np.ma.is_masked(labels):
        raise DataError(f"{what}: {int(np.ma.getmaskarray(labels).sum())} labels are missing (masked); leave them out")
    if labels.dtype.kind in "cV":
        got = "complex numbers" if labels.dtype.kind == "c" else f"dtype {labels.dtype}"
        raise DataError(f"{what} must be integers or text, got {got}")
    wrong = np.flatnonzero(_not_labels(labels))
    if len(wrong):
        raise DataError(
            f"{what}: row {wrong[0]} has the label {labels[wrong[0]]}, which is not a class ({len(wrong)} of "
            f"{len(labels)} rows); leave such rows out"
        )


def _not_labels(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the labels that are missing or not finite."""
    kind = labels.dtype.kind
    if kind == "f":
        return np.asarray(~np.isfinite(labels))
    if kind in "mM":
        return np.asarray(np.isnat(labels))
    if kind not in "USO":
        return np.zeros(len(labels), dtype=bool)
    present = ["" if label is None else label for label in labels]
    texts = [label.decode(errors="replace") if isinstance(label, bytes) else str(label) for label in present]
    return np.array([text.strip().lower() in ("", *NOT_LABELS) for text in texts], dtype=bool)


def label_codes(labels: NDArray[Any], *, what: str) -> NDArray[np.int64]:
    """Return labels (N,) encoded as 0, 1, … in sorted order, after validating them with :func:`check_labels`.

    Examples
    --------
    >>> label_codes(np.array(["dog", "cat", "dog"]), what="y").tolist()
    [1, 0, 1]
    """
    check_labels(labels, what=what)
    try:
        return np.unique(labels, return_inverse=True)[1].astype(np.int64)
    except TypeError:
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise DataError(f"{what} must hold integers or strings, not a mixture; got {kinds}") from None


def _check_shape(shape: tuple[int, ...], *, may_be_empty: bool) -> None:
    n_nodes, n_features = shape
    if n_nodes == 0:
        raise DataError(f"Found array with 0 sample(s) (shape={shape}): there are no rows to cluster")
    if n_features == 0 and not may_be_empty:
        raise DataError(f"Found array with 0 feature(s) (shape={shape}) while a minimum of 1 is required.")


def _not_finite(
    row: int, column: int, value: Any, count: int, names: tuple[str, ...] | None, ids: NDArray[Any] | None
) -> DataError:
    what, advice = "inf", "Replace it with a number, or with NaN if the value is missing"
    if np.isnan(value):
        what, advice = "NaN", "A sparse matrix cannot have missing cells: drop such rows or columns, or pass an array"
    where = f"row {row}" + (f" (id {ids[row]})" if ids is not None and row < len(ids) else "")
    which = f"column {names[column]!r}" if names is not None and column < len(names) else f"column {column}"
    return DataError(
        f"Input X contains {what}: {where}, {which}"
        + (f", and {count - 1} more cells that are not finite" if count > 1 else "")
        + f". {advice}"
    )


def _checked_labels(labels: Any, n_nodes: int) -> NDArray[np.int64]:
    array = labels if isinstance(labels, np.ma.MaskedArray) else np.asarray(labels)
    if array.shape != (n_nodes,):
        raise DataError(f"labels must have one value per row ({n_nodes}), got shape {array.shape}")
    check_labels(array, what="labels")
    return array.astype(np.int64, copy=False) if array.dtype.kind in "iub" else label_codes(array, what="labels")


def _check_ids(ids: Any, n_nodes: int) -> NDArray[Any]:
    array = np.asarray(ids)
    if array.shape != (n_nodes,):
        raise DataError(f"ids must have one value per row ({n_nodes}), got shape {array.shape}")
    values, counts = np.unique(array.astype(str), return_counts=True)
    repeated = values[counts > 1]
    if len(repeated):
        first = ", ".join(repr(str(value)) for value in repeated[:3])
        ids_occur = "1 id occurs" if len(repeated) == 1 else f"{len(repeated)} ids occur"
        raise DataError(f"{ids_occur} more than once; the first: {first}. Ids must be unique")
    return array
