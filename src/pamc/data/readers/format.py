"""The definition of a file format (its suffixes, contents and reading functions) and the registry of all formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from pamc.data.files import existing_file, kind_of
from pamc.data.readers.tables import Records, Table
from pamc.errors import DataError
from pamc.registry import Registry


class Matrix(NamedTuple):
    """Unvalidated features of a file, with the edges, labels and names that are stored in the same file.

    Edges are (2, E) and their weights (E,), labels and ids are (N,), and there is one name for each feature.
    """

    features: Any
    edges: NDArray[Any] | None = None
    labels: NDArray[Any] | None = None
    edge_weight: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    feature_names: tuple[str, ...] | None = None


class EdgeList(NamedTuple):
    """(2, E) endpoints of edges, as written in the file, and (E,) weights or None."""

    ends: NDArray[Any]
    weight: NDArray[Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Format:
    """A file format.

    A format with named columns defines `open_table`, and features, edges and labels are read from the table. Any other
    format defines the functions for the contents it supports.

    Parameters
    ----------
    endings
        File name suffixes, in lower case and with the dot. Each suffix belongs to one format only.
    open_table
        Function that opens the table in a file. The second argument says whether the first line is a header; if None,
        the format decides.
    read_records
        Function that yields the `Records` of a text file; None if the format stores the column names.
    read_features
        Function that reads the matrix in a file. The second argument is the name of its true labels, or None.
    read_edges
        Function that reads an `EdgeList`, or an array or scipy sparse matrix that is an edge list or an adjacency.
    read_labels
        Function that reads the labels in a file. The second argument is their name, or None.
    """

    endings: tuple[str, ...]
    open_table: Callable[[Path, bool | None], Table] | None = None
    read_records: Callable[[Path], Records] | None = None
    read_features: Callable[[Path, str | None], Matrix] | None = None
    read_edges: Callable[[Path], Any] | None = None
    read_labels: Callable[[Path, str | None], NDArray[Any]] | None = None

    def gives(self, what: str) -> bool:
        """Return whether a file can be read as "table", "features", "edges" or "labels"."""
        if self.open_table is not None:
            return True
        return what != "table" and getattr(self, f"read_{what}") is not None


FORMATS: Registry[Format] = Registry("format", package="pamc.data.readers.formats")


def format_of(path: Path) -> Format | None:
    """Return the format with the suffix of a path, or None if the suffix is unknown."""
    kind = kind_of(path)
    return next((FORMATS[name] for name in FORMATS if kind in FORMATS[name].endings), None)


def endings(what: str) -> tuple[str, ...]:
    """Return the suffixes of the formats that contain a "table", "features", "edges" or "labels", tables first.

    Examples
    --------
    >>> endings("table")
    ('.csv', '.tsv', '.tab', '.xlsx', '.feather', '.arrow', '.parquet', '.pq', '.txt', '.edges', '.edgelist')
    """
    formats = [FORMATS[name] for name in FORMATS if FORMATS[name].gives(what)]
    formats.sort(key=lambda file_format: file_format.open_table is None)
    return tuple(ending for file_format in formats for ending in file_format.endings)


def wrong_ending(path: Path, what: str) -> DataError:
    """Return the DataError for a file whose format does not contain `what`, as for `endings`."""
    known = ", ".join(endings(what))
    return DataError(f"{path}: a file with the ending {kind_of(path)!r} holds no {what}; known endings are {known}")


def is_table(path: Path) -> bool:
    """Return whether a path has the suffix of a table, compressed or not."""
    return kind_of(path) in endings("table")


def open_table(path: str | PathLike[str], *, header: bool | None = None) -> Table:
    r"""Open the table in a .csv, .tsv, .txt (spaces), .parquet, .xlsx or .feather file; text files may end in .gz.

    A .csv is comma-separated or, if its first line has no comma, separated by semicolons or tabs. If ``header`` is
    None, a first line that contains only numbers is data.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "x.csv")
    ...     _ = path.write_text("a;b\n1;2\n3;oops\n")
    ...     table = open_table(path)
    ...     _, wrong = table.numbers(table.names)
    >>> table.names, wrong
    (('a', 'b'), Cell(row=1, line=3, column='b', text='oops'))
    """
    path = existing_file(path)
    file_format = format_of(path)
    if file_format is None or file_format.open_table is None:
        raise wrong_ending(path, "table")
    return file_format.open_table(path, header)


def features_alone(load: Callable[[Path], Any]) -> Callable[[Path, str | None], Matrix]:
    """Return the `read_features` function of a format whose files contain only the features that `load` returns."""

    def read(path: Path, truth: str | None) -> Matrix:
        if truth is not None:
            raise DataError(f"{path}: a {kind_of(path)} file holds features only, so it has no truth column {truth!r}")
        return Matrix(load(path))

    return read
