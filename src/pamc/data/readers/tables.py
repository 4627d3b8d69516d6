"""Tables of named columns, read through duckdb, with every wrong cell found by row, line and column.

duckdb reads each column once and marks the cells that are not what was asked for. Only when something is wrong is the
cell looked up in the file, to name its line. Columns go by position inside the queries, so names may differ in case
alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pamc.data.database import connected, literal_path, load_duckdb, quoted
from pamc.data.files import kind_of, reason_of
from pamc.data.readers.cells import INTEGER, SPACES, Cell
from pamc.errors import DataError

__all__ = ["Table", "column_names", "unreadable"]


@dataclass(frozen=True)
class Table(ABC):
    """The columns of one file, read when asked for.

    Parameters
    ----------
    path
        The file.
    names
        Column names; an empty name in the file, or a file without header, gives ``c0``, ``c1``, ….
    unnamed
        Positions of the columns that had no name.
    has_header
        Whether the first line names the columns.
    relation
        SQL that yields the columns in order; its one parameter is the path.
    """

    # What a file that duckdb cannot read may suffer from.
    _damage: ClassVar[str] = "damaged?"

    path: Path
    names: tuple[str, ...]
    unnamed: frozenset[int]
    has_header: bool
    relation: str

    def numbers(self, names: Sequence[str], *, dtype: str = "float32") -> tuple[NDArray[Any], Cell | None]:
        """Return columns as (N, len(names)) numbers, and the first cell that is not a finite number, if any.

        Text is parsed in double precision and rounded once. ``dtype`` is float32, float64 or int64; a cell that the
        type cannot hold counts as wrong. O(N·d) time and memory.
        """
        columns = self._fetch([self.number_sql(name, dtype=dtype) for name in names])
        out = np.empty((len(columns[0]), len(names)), dtype=dtype)
        first: tuple[int, int] | None = None
        for position, column in enumerate(columns):
            out[:, position] = np.ma.getdata(column)
            wrong = np.flatnonzero(np.ma.getmaskarray(column) | ~np.isfinite(out[:, position]))
            if len(wrong):
                first = min(first or (int(wrong[0]), position), (int(wrong[0]), position))
        return out, None if first is None else self.cell(first[0], names[first[1]])

    def texts(self, name: str) -> tuple[NDArray[np.str_], Cell | None]:
        """Return one column as (N,) strings without blanks around them, and the first empty cell, if any."""
        (column,) = self._fetch([self.text_sql(name)])
        empty = np.flatnonzero(_is_empty(column))
        texts = np.ma.getdata(column).astype(np.str_)
        return texts, self.cell(int(empty[0]), name) if len(empty) else None

    def cells(self, name: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Return one column as (N,) strings, None where a cell is empty, and as (N,) numbers, NaN where it is none."""
        column, numbers = self._fetch([self.text_sql(name), self.number_sql(name, dtype="float64")])
        texts = np.ma.getdata(column).astype(np.str_).astype(object)
        texts[_is_empty(column)] = None
        return texts, np.where(np.ma.getmaskarray(numbers), np.nan, np.ma.getdata(numbers)).astype(np.float64)

    def cell_if_all(self, name: str, pattern: str, *, example: str) -> str | None:
        """Return the first cell of a column that matches `example`, if every cell of the column matches `pattern`."""
        text = self.text_sql(name)
        agree, first = self._fetch(
            [
                f"bool_and(regexp_full_match({text}, {quoted(pattern)}))",
                f"first({text}) FILTER (WHERE regexp_full_match({text}, {quoted(example)}))",
            ]
        )
        return str(first[0]) if bool(np.ma.getdata(agree)[0]) and not np.ma.getmaskarray(first)[0] else None

    def number_sql(self, name: str, *, dtype: str = "float32") -> str:
        """Return SQL that is the number in a column, or NULL where there is none; dtype as for `numbers`."""
        position = self._positions[name]
        is_numeric = self._stores_numbers(position)
        if dtype == "int64" and is_numeric:
            # Not through text, as below, where a large whole number of a float column has a power of ten.
            double = f"CAST(c{position} AS DOUBLE)"
            return f"CASE WHEN {double} = floor({double}) THEN TRY_CAST(c{position} AS BIGINT) END"
        if dtype == "int64":
            text = self.text_sql(name)
            return f"CASE WHEN regexp_full_match({text}, '{INTEGER.pattern}') THEN TRY_CAST({text} AS BIGINT) END"
        # A cast passes over blanks. The function keeps duckdb from pushing it into its CSV reader, where it raises.
        number = f"c{position}" if is_numeric else f"nullif(CAST(c{position} AS VARCHAR), '')"
        double = f"TRY_CAST({number} AS DOUBLE)"
        return double if dtype == "float64" else f"TRY_CAST({double} AS FLOAT)"

    def text_sql(self, name: str) -> str:
        """Return SQL that is the text in a column without blanks around it, NULL or '' where there is none."""
        # Few cells have blanks, and to look for one costs a fraction of cutting it off.
        text = f"CAST(c{self._positions[name]} AS VARCHAR)"
        has_blanks = f"contains({text}, ' ') OR contains({text}, '\t')"
        return f"CASE WHEN {has_blanks} THEN trim({text}, '{SPACES}') ELSE {text} END"

    @property
    def tolerant_sql(self) -> str:
        """SQL of the whole table as ``file(c0, c1, …)``, without lines that have a wrong number of cells."""
        return self._from(self._relation_of_path)

    @abstractmethod
    def records(self, rows: Iterable[int]) -> Iterator[tuple[int, int | None, list[str | None]]]:
        """Yield row, line (None where there are none) and cells of rows of :attr:`tolerant_sql`, in ascending order."""

    @abstractmethod
    def cell(self, row: int, name: str) -> Cell:
        """Return one cell as the file has it, with its line."""

    @abstractmethod
    def first_rows(self, n_rows: int) -> dict[str, list[str]]:
        """Return the first cells of every column as they are written; none where numbers are not stored as text."""

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    def _stores_numbers(self, position: int) -> bool:
        """Return whether the file itself has numbers in a column, not their text."""
        return False

    def _malformed(self) -> DataError | None:
        """Return the error that says where a file is malformed, or None where that cannot be told."""
        return None

    @property
    def _relation_of_path(self) -> str:
        """The relation with the path in it."""
        return self.relation.replace("?", quoted(literal_path(self.path)), 1)

    def _from(self, relation: str) -> str:
        columns = ", ".join(f"c{i}" for i in range(len(self.names)))
        return f"{relation} AS file({columns})"

    def _fetch(self, expressions: Sequence[str], *, tail: str = "") -> list[NDArray[Any]]:
        """Return the values of SQL expressions over the rows of the file."""
        duckdb = load_duckdb("tables are read")
        values = ", ".join(f"{expression} AS v{i}" for i, expression in enumerate(expressions))
        query = f"SELECT {values} FROM {self._from(self.relation)} {tail}"
        try:
            with connected() as connection:
                fetched = connection.execute(query, [literal_path(self.path)]).fetchnumpy()
        except duckdb.Error as error:
            raise self._malformed() or unreadable(self.path, self._damage, error) from error
        return [fetched[f"v{i}"] for i in range(len(expressions))]


def column_names(path: Path, cells: Sequence[str]) -> tuple[tuple[str, ...], frozenset[int]]:
    """Return the names of columns, which must differ, and the positions of those that the file does not name."""
    stripped = [cell.strip() for cell in cells]
    names = tuple(name or f"c{i}" for i, name in enumerate(stripped))
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if repeated:
        raise DataError(
            f"{path}: column name {repeated[0]!r} occurs {names.count(repeated[0])} times; names must differ"
        )
    return names, frozenset(i for i, name in enumerate(stripped) if not name)


def unreadable(path: Path, damage: str, error: Exception) -> DataError:
    """Return the error about a file that duckdb cannot read."""
    return DataError(f"{path}: cannot be read as {kind_of(path)}; {damage} ({reason_of(error)})")


def _is_empty(column: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray(np.ma.getmaskarray(column) | (np.ma.getdata(column) == ""), dtype=bool)
