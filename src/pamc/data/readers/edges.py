"""Read edge lists and adjacency matrices from files and match them to the rows."""

from __future__ import annotations

import warnings
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.adapters import as_edges, graph_alone, is_adjacency, orient_edge_list
from pamc.data.attributed_graph import AttributedGraph, check_edges
from pamc.data.files import existing_file, naming
from pamc.data.memberships import Memberships
from pamc.data.readers.columns import find_rows, integers_if_all
from pamc.data.readers.format import EdgeList, format_of, open_table, wrong_ending
from pamc.data.readers.tables import Cell, Table, first_record, is_integer_text
from pamc.data.relations import Edges
from pamc.errors import DataError, DataWarning

_END_NAMES = {"source", "target", "src", "dst", "from", "to", "u", "v", "i", "j", "head", "tail", "start", "end", "id"}


def read_edges(path: str | PathLike[str], ids: NDArray[Any] | None, n_nodes: int) -> Edges:
    r"""Read (2, E) row indices and (E,) weights, or None, in the order of the file.

    Parameters
    ----------
    path
        A file with two or three columns (source, target, weight) in .csv, .tsv, .parquet or, separated by whitespace,
        .txt, .edges and .edgelist, with or without a header; an (E, 2) or (2, E) array in .npy; an .npz with `edges`
        (E, 2), `edge_index` (2, E), one array, or a matrix of ``scipy.sparse.save_npz``; an adjacency matrix in .mtx.
    ids
        (N,) ids of the rows, which the edges refer to. If None, edges refer to row numbers from 0. Rows and columns of
        an adjacency matrix are always in the order of the rows.
    n_nodes
        Number of nodes, N.

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
    file_format = format_of(path)
    if file_format is None or not file_format.gives("edges"):
        raise wrong_ending(path, "edges")
    stored = _from_table(path, ids) if file_format.read_edges is None else file_format.read_edges(path)
    with naming(path):
        if not isinstance(stored, EdgeList):
            if sp.issparse(stored) or is_adjacency(stored, n_nodes):
                return as_edges(stored, n_nodes)
            stored = EdgeList(orient_edge_list(stored, n_nodes))
        rows = stored.ends if ids is None else _join(stored.ends, ids)
        return check_edges(rows, stored.weight, n_nodes=n_nodes, ids=ids)


def read_memberships(path: str | PathLike[str], ids: NDArray[Any] | None, n_nodes: int) -> Edges:
    r"""Read a table of rows and their groups, and return edges (2, E) between rows that share groups, and weights (E,).

    Parameters
    ----------
    path
        A table with two columns (row, group), with or without a header; one line per membership.
    ids, n_nodes
        As in :func:`read_edges`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "baskets.csv")
    ...     _ = path.write_text("item,basket\nmilk,1\nbread,1\nmilk,2\n")
    ...     edges, weight = read_memberships(path, np.array(["milk", "bread", "soap"]), 3)
    >>> edges.tolist(), weight.tolist()
    ([[0], [1]], [1.0])
    """
    path = existing_file(path)
    first, by_number = first_ends(path), ids is None or ids.dtype.kind in "iu"
    is_row = first is not None and (is_integer_text(first[0]) if by_number else bool(np.any(ids == first[0])))
    table = open_membership_table(path, header=not is_row)
    (rows, wrong), (groups, no_group) = (table.texts(name) for name in table.names)
    if (cell := wrong or no_group) is not None:
        raise DataError(f"{path}: {cell.where}: the cell is empty; every membership needs a row and a group")
    names = np.arange(n_nodes).astype(str) if ids is None else ids.astype(str)
    with naming(path):
        return Memberships(np.asarray(rows, dtype=object), np.asarray(groups)).edges(n_nodes, row_names=names)


def read_edge_graph(path: str | PathLike[str]) -> AttributedGraph:
    r"""Read a file of edges as a graph without features, whose rows are the ends of the edges.

    The rows are in ascending order of their names. Those of an adjacency matrix keep its order, and have no names.

    Parameters
    ----------
    path
        A file as in :func:`read_edges`. The first line is a header if it contains usual column names, or if it alone
        is not made of integers.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "friends.txt")
    ...     _ = path.write_text("eve bob\nbob ann\n")
    ...     graph = read_edge_graph(path)
    >>> graph.ids.tolist(), graph.edges.tolist(), graph.n_features
    (['ann', 'bob', 'eve'], [[2, 1], [1, 0]], 0)
    """
    path = existing_file(path)
    file_format = format_of(path)
    if file_format is None or not file_format.gives("edges"):
        raise wrong_ending(path, "edges")
    stored = read_named_edges(path) if file_format.read_edges is None else file_format.read_edges(path)
    name = path.name.partition(".")[0]
    with naming(path):
        if not isinstance(stored, EdgeList):
            graph = graph_alone(stored)
            return replace(graph, name=name)
        ids, ends = np.unique(stored.ends, return_inverse=True)
        features = np.empty((len(ids), 0), dtype=np.float32)
        return AttributedGraph(features, ends.reshape(2, -1), stored.weight, ids=ids, name=name)


class NewRowEdges(NamedTuple):
    """The (n, N) weights of the edges between new rows and the rows of a fit, and the (n,) ids of the new rows."""

    weight: Any
    ids: NDArray[Any]


def read_new_row_edges(
    path: str | PathLike[str], fitted_ids: NDArray[Any], ids: NDArray[Any] | None = None
) -> NewRowEdges:
    r"""Read the edges between new rows and the rows of a fit, in either direction; other edges are left out.

    Parameters
    ----------
    path
        A table with two or three columns: source, target, weight.
    fitted_ids
        (N,) ids of the rows of the fit.
    ids
        (n,) ids of the new rows; by default all ends of edges that are not rows of the fit, in ascending order.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "new.txt")
    ...     _ = path.write_text("dan ann\nbob dan\n")
    ...     edges = read_new_row_edges(path, np.array(["ann", "bob"]))
    >>> edges.weight.toarray().tolist(), edges.ids.tolist()
    ([[1.0, 1.0]], ['dan'])
    """
    path = existing_file(path)
    file_format = format_of(path)
    if file_format is None or file_format.read_edges is not None:
        raise wrong_ending(path, "edges")
    stored = read_named_edges(path)
    ends = stored.ends
    fitted, is_not_fitted = find_rows(ends, fitted_ids)
    ids = np.unique(ends[is_not_fitted]) if ids is None else ids
    if len(ids) == 0:
        raise DataError(f"{path}: every end of an edge is a row of the fit: there are no new rows")
    new, is_not_new = find_rows(ends, ids)
    joins = ~is_not_new & ~is_not_fitted[::-1]
    n_left_out = int((~joins.any(axis=0)).sum())
    if not joins.any():
        raise DataError(
            f"{path}: no edge joins a new row with a row of the fit; ids of the fit look like {str(fitted_ids[0])!r}, "
            f"ids of new rows like {str(ids[0])!r}"
        )
    if n_left_out:
        message = f"{path}: {n_left_out} of {ends.shape[1]} edges join no new row with a fitted row: they are ignored"
        warnings.warn(message, DataWarning, stacklevel=2)
    weight = np.ones(ends.shape[1]) if stored.weight is None else stored.weight.astype(np.float64)
    entries = (np.broadcast_to(weight, ends.shape)[joins], (new[joins], fitted[::-1][joins]))
    return NewRowEdges(sp.csr_matrix(entries, shape=(len(ids), len(fitted_ids))), ids)


def read_named_edges(path: Path) -> EdgeList:
    """Read the edges of a table without known rows; names are integers if all of them are."""
    first = first_ends(path)
    table = open_edge_table(path, header=True)
    names = table.names[:2]
    if first is not None and not _END_NAMES.issuperset(end.lower() for end in first):
        # Without usual column names, only a line of text above integers is a header.
        is_header = not any(map(is_integer_text, first)) and table.numbers(names, dtype="int64")[1] is None
        table = open_edge_table(path, header=is_header)
        names = table.names[:2]
    (sources, wrong), (targets, no_target) = (table.texts(name) for name in names)
    wrong = wrong or no_target
    if wrong is not None:
        raise DataError(f"{path}: {wrong.where}: {_not_an_end(wrong, None)}")
    if len(sources) == 0:
        raise DataError(f"{path}: has no edges: there is nothing to cluster")
    return EdgeList(integers_if_all(np.stack([sources, targets])), _weights(path, table))


def first_ends(path: Path) -> list[str] | None:
    """Return the first two cells of an edge table, or None if its format stores the column names."""
    file_format = format_of(path)
    if file_format is None or file_format.read_records is None:
        return None
    return [cell.strip() for cell in first_record(path, file_format.read_records(path))[1][:2]]


def open_edge_table(path: Path, *, header: bool) -> Table:
    """Open a table of edges; raise DataError unless it has 2 or 3 columns."""
    table = open_table(path, header=header)
    if len(table.names) not in (2, 3):
        raise DataError(f"{path}: edges need 2 or 3 columns (source, target, weight), found {len(table.names)}")
    return table


def open_membership_table(path: Path, *, header: bool) -> Table:
    """Open a table of rows and their groups; raise DataError unless it has 2 columns."""
    table = open_table(path, header=header)
    if len(table.names) != 2:
        raise DataError(f"{path}: memberships need 2 columns (row, group), found {len(table.names)}")
    return table


def warn_about_header(path: Path, ends: list[str], *, stacklevel: int) -> None:
    """Warn that a first line that matches no row is read as a header, unless it contains usual column names."""
    if not _END_NAMES.issuperset(end.lower() for end in ends):
        message = f"{path}: the first line ({', '.join(ends)}) matches no row and is read as a header"
        warnings.warn(message, DataWarning, stacklevel=stacklevel + 1)


def no_edges(path: Path) -> DataError:
    """Return the DataError for an edge file without edges."""
    return DataError(f"{path}: has no edges; leave the file out to use neighbors computed from the features")


def _from_table(path: Path, ids: NDArray[Any] | None) -> EdgeList:
    by_number = ids is None or ids.dtype.kind in "iu"
    table = open_edge_table(path, header=_has_header(path, ids, by_number=by_number))
    if by_number:
        numbers, wrong = table.numbers(table.names[:2], dtype="int64")
        ends: NDArray[Any] = numbers.T
    else:
        (sources, wrong), (targets, no_target) = (table.texts(name) for name in table.names[:2])
        ends, wrong = np.stack([sources, targets]), wrong or no_target
    if wrong is not None:
        raise DataError(f"{path}: {wrong.where}: {_not_an_end(wrong, ids)}")
    if ends.shape[1] == 0:
        raise no_edges(path)
    return EdgeList(ends, _weights(path, table))


def _weights(path: Path, table: Table) -> NDArray[Any] | None:
    """Return the weights (E,) in the third column, or None if there are two columns."""
    if len(table.names) == 2:
        return None
    weight, wrong = table.numbers(table.names[2:])
    if wrong is not None:
        problem = "the cell is empty" if wrong.text is None else f"{wrong.text!r} is not a finite number"
        raise DataError(f"{path}: {wrong.where}: {problem}; the third column is the weight of the edge")
    return weight[:, 0]


def _has_header(path: Path, ids: NDArray[Any] | None, *, by_number: bool) -> bool:
    """Return whether the first line is a header, that is, neither of its first two cells can be a row."""
    ends = first_ends(path)
    if ends is None:
        return True
    if any(is_integer_text(end) if by_number else bool(np.any(ids == end)) for end in ends):
        return False
    if not by_number:
        warn_about_header(path, ends, stacklevel=4)
    return True


def _not_an_end(cell: Cell, ids: NDArray[Any] | None) -> str:
    if cell.text is None:
        return "the cell is empty; every edge needs two ends"
    if ids is None:
        return f"{cell.text!r} is not a row number; if edges refer to ids, name the id column with --id"
    return f"{cell.text!r} is not an integer, but all ids are integers"


def _join(ends: NDArray[Any], ids: NDArray[Any]) -> NDArray[np.int64]:
    """Return the row numbers of (2, E) ids; raise DataError for ids that match no row."""
    rows, is_unknown = find_rows(ends, ids)
    if is_unknown.any():
        first = list(dict.fromkeys(str(end) for end in ends.T[is_unknown.T][:100]))[:3]
        raise DataError(
            f"{int(is_unknown.any(axis=0).sum())} of {ends.shape[1]} edges refer to ids that no row has; "
            f"the first: {', '.join(map(repr, first))}. Ids of rows look like {str(ids[0])!r}: add the missing rows, "
            "leave those edges out, or select another id column with --id"
        )
    return rows
