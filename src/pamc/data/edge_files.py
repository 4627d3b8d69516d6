"""Edge lists and adjacency matrices from files, joined to the rows they name."""

from __future__ import annotations

import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.adapters import as_edges, is_adjacency, orient_edge_list
from pamc.data.attributed_graph import check_edges
from pamc.data.files import existing_file, kind_of, naming
from pamc.data.matrices import load_arrays, load_matrix, sparse_part
from pamc.data.tables import PARQUET_KINDS, TABLE_KINDS, Cell, Table, first_cells, is_integer_text, open_table
from pamc.errors import DataError, DataWarning

__all__ = ["EDGE_KINDS", "END_NAMES", "read_edges"]

EDGE_KINDS = (*TABLE_KINDS, ".npy", ".npz", ".mtx")

END_NAMES = {"source", "target", "src", "dst", "from", "to", "u", "v", "i", "j", "head", "tail", "start", "end", "id"}

Edges = tuple[NDArray[np.int64], NDArray[np.floating[Any]] | None]


def read_edges(path: str | PathLike[str], ids: NDArray[Any] | None, n_nodes: int) -> Edges:
    r"""Return (2, E) row indices and (E,) weights or None, as the file lists them.

    Parameters
    ----------
    path
        Two or three columns (source, target, weight) in .csv, .tsv, .parquet or, with blanks between, .txt, .edges and
        .edgelist, with or without a header; an (E, 2) or (2, E) array in .npy; an .npz with `edges` (E, 2),
        `edge_index` (2, E), one array, or a matrix of ``scipy.sparse.save_npz``; an adjacency matrix in .mtx.
    ids
        (N,) ids of the rows: then the ends of edges are ids. None: they are row numbers from 0. Rows and columns of an
        adjacency matrix are always in the order of the rows.
    n_nodes
        N.

    O(E log N) time.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "cites.txt")
    ...     _ = path.write_text("b a 0.5\na c 2\n")
    ...     edges, weight = read_edges(path, np.array(["a", "b", "c"]), 3)
    >>> edges.tolist(), weight.tolist()
    ([[1, 0], [0, 2]], [0.5, 2.0])
    """
    path = existing_file(path)
    kind = kind_of(path)
    if kind not in EDGE_KINDS:
        raise DataError(f"{path}: cannot be read as edges; known endings are {', '.join(EDGE_KINDS)}")
    if kind in TABLE_KINDS:
        ends, weight = _from_table(path, ids)
    elif kind == ".npz" and (listed := _from_named_arrays(path)) is not None:
        ends, weight = listed
    else:
        stored = _only_array(path)
        with naming(path):
            if sp.issparse(stored) or is_adjacency(stored, n_nodes):
                return as_edges(stored, n_nodes)
            ends, weight = orient_edge_list(stored, n_nodes), None
    with naming(path):
        return check_edges(ends if ids is None else _join(ends, ids), weight, n_nodes=n_nodes, ids=ids)


def _from_table(path: Path, ids: NDArray[Any] | None) -> tuple[NDArray[Any], NDArray[Any] | None]:
    by_number = ids is None or ids.dtype.kind in "iu"
    table = open_table(path, header=_has_header(path, ids, by_number=by_number))
    if len(table.names) not in (2, 3):
        raise DataError(f"{path}: edges need 2 or 3 columns (source, target, weight), found {len(table.names)}")
    ends, wrong = _numbered_ends(table) if by_number else _named_ends(table)
    if wrong is not None:
        raise DataError(f"{path}: {wrong.where}: {_not_an_end(wrong, ids)}")
    if ends.shape[1] == 0:
        raise DataError(f"{path}: has no edges; leave it out to have neighbors found from the features")
    if len(table.names) == 2:
        return ends, None
    weight, wrong = table.numbers(table.names[2:])
    if wrong is not None:
        shown = "the cell is empty" if wrong.text is None else f"{wrong.text!r} is not a finite number"
        raise DataError(f"{path}: {wrong.where}: {shown}; the third column is the weight of the edge")
    return ends, weight[:, 0]


def _numbered_ends(table: Table) -> tuple[NDArray[Any], Cell | None]:
    numbers, wrong = table.numbers(table.names[:2], dtype="int64")
    return numbers.T, wrong


def _named_ends(table: Table) -> tuple[NDArray[Any], Cell | None]:
    (sources, no_source), (targets, no_target) = (table.texts(name) for name in table.names[:2])
    return np.stack([sources, targets]), no_source or no_target


def _has_header(path: Path, ids: NDArray[Any] | None, *, by_number: bool) -> bool:
    """Return whether the first line names columns: neither of its ends could be a row."""
    if kind_of(path) in PARQUET_KINDS:
        return True
    first = [cell.strip() for cell in first_cells(path)[:2]]
    if any(is_integer_text(cell) if by_number else bool(np.any(ids == cell)) for cell in first):
        return False
    if not by_number and not END_NAMES.issuperset(cell.lower() for cell in first):
        message = f"{path}: the first line ({', '.join(first)}) names no row and is read as a header"
        warnings.warn(message, DataWarning, stacklevel=4)
    return True


def _not_an_end(cell: Cell, ids: NDArray[Any] | None) -> str:
    if cell.text is None:
        return "the cell is empty; every edge needs two ends"
    if ids is None:
        return f"{cell.text!r} is not a row number; where edges name rows, --id says which column has the names"
    return f"{cell.text!r} is not among the ids, which are whole numbers"


def _from_named_arrays(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None] | None:
    arrays = load_arrays(path, "edges", "edge_index", "edge_weight")
    for name, axis, shape in (("edges", 1, "(E, 2)"), ("edge_index", 0, "(2, E)")):
        pairs = arrays.get(name)
        if pairs is None:
            continue
        if pairs.ndim != 2 or pairs.shape[axis] != 2:
            raise DataError(f"{path}: array {name!r} must have shape {shape}, got {pairs.shape}")
        return np.moveaxis(pairs, axis, 0), arrays.get("edge_weight")
    return None


def _only_array(path: Path) -> Any:
    if kind_of(path) != ".npz":
        return load_matrix(path)
    arrays = load_arrays(path)
    matrix = sparse_part(path, arrays)
    if matrix is None and len(arrays) != 1:
        raise DataError(
            f"{path}: found the arrays {', '.join(arrays) or 'none'}, expected edges (E, 2), edge_index (2, E) "
            "or one array"
        )
    return next(iter(arrays.values())) if matrix is None else matrix


def _join(ends: NDArray[Any], ids: NDArray[Any]) -> NDArray[np.int64]:
    """Return the rows that (2, E) ids stand for. O((N + E) log N)."""
    if ends.dtype.kind not in "iu" or ids.dtype.kind not in "iu":
        ends, ids = ends.astype(str), ids.astype(str)
    order = np.argsort(ids)
    rows = order[np.minimum(np.searchsorted(ids, ends, sorter=order), len(ids) - 1)]
    unknown = ids[rows] != ends
    if unknown.any():
        first = list(dict.fromkeys(str(end) for end in ends.T[unknown.T][:100]))[:3]
        raise DataError(
            f"{int(unknown.any(axis=0).sum())} of {ends.shape[1]} edges name ids that no row has; "
            f"the first: {', '.join(map(repr, first))}. Rows are named like {str(ids[0])!r}: add the missing rows, "
            "leave those edges out, or name another column with --id"
        )
    return rows.astype(np.int64)
