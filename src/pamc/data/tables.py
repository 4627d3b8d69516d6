"""Text and Parquet tables, read through duckdb, with every wrong cell found by row, line and column.

duckdb reads each column once and marks the cells that are not what was asked for. Only when something is wrong is a
text file gone through again with Python's csv module, to name the line. Columns go by position inside the queries, so
names may differ in case alone.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.database import connected, literal_path
from pamc.data.files import check_gzip, existing_file, kind_of
from pamc.data.text_records import SPACED_KINDS, SPACES, delimiter_of, first_record, records_of
from pamc.errors import BackendError, DataError

__all__ = [
    "PARQUET_KINDS",
    "TABLE_KINDS",
    "Cell",
    "Table",
    "first_cells",
    "is_integer_text",
    "is_number_text",
    "open_table",
    "quoted",
]

PARQUET_KINDS = (".parquet", ".pq")
_DELIMITED = (".csv", ".tsv", ".tab")
TABLE_KINDS = _DELIMITED + SPACED_KINDS + PARQUET_KINDS

# Characters of a wrong cell that a message shows.
_LONGEST_SHOWN = 100
_NUMERIC_TYPES = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|BOOLEAN|DECIMAL\(.*)$")
_INTEGER = re.compile(r"[+-]?[0-9]+(\.0*)?")
# Of text that is read at a time where memory is short; a line may have a quarter of it.
_BUFFER_BYTES = 1 << 23
# What a line with a wrong number of cells, divided by blanks, leads to.
_REFUSED = " ELSE error('cells')"
# One physical line per row: a unit separator never occurs in a text file.
_LINES = (
    r"read_csv(?, auto_detect=false, header=false, delim='\x1f', quote='', escape='', strict_mode=false,"
    " columns={'line': 'VARCHAR'}, hive_partitioning=false)"
)


@dataclass(frozen=True)
class Cell:
    """A cell of a file: row from 0, line from 1 (None in Parquet), column, text (None when empty, cut when long)."""

    row: int
    line: int | None
    column: str
    text: str | None

    @property
    def where(self) -> str:
        """The place in words.

        Examples
        --------
        >>> Cell(row=3, line=5, column="age", text="x").where
        "row 3 (line 5), column 'age'"
        """
        line = "" if self.line is None else f" (line {self.line})"
        return f"row {self.row}{line}, column {self.column!r}"


@dataclass(frozen=True)
class Table:
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
    numeric
        Per column, whether the file itself stores numbers (Parquet).
    delimiter
        Character between cells, "" for runs of blanks, None where the file is not text.
    n_skipped
        Text records before the first row of data.
    """

    path: Path
    names: tuple[str, ...]
    unnamed: frozenset[int]
    has_header: bool
    relation: str
    numeric: tuple[bool, ...]
    delimiter: str | None = None
    n_skipped: int = 0

    def numbers(self, names: Sequence[str], *, dtype: str = "float32") -> tuple[NDArray[Any], Cell | None]:
        """Return columns as (N, len(names)) numbers, and the first cell that is not a finite number, if any.

        Text is parsed in double precision and rounded once. ``dtype`` is float32, float64 or int64; a cell that the
        type cannot hold counts as wrong. O(N·d) time and memory.
        """
        columns = self._fetch([self._number(self._positions[name], dtype) for name in names])
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
        (column,) = self._fetch([_trimmed(self._positions[name])])
        empty = np.flatnonzero(np.ma.getmaskarray(column) | (np.ma.getdata(column) == ""))
        texts = np.ma.getdata(column).astype(np.str_)
        return texts, self.cell(int(empty[0]), name) if len(empty) else None

    def cells(self, name: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Return one column as (N,) strings, None where a cell is empty, and as (N,) numbers, NaN where it is none."""
        position = self._positions[name]
        texts, numbers = self._fetch([_trimmed(position), self._number(position, "float64")])
        empty = np.ma.getmaskarray(texts) | (np.ma.getdata(texts) == "")
        found = np.ma.getdata(texts).astype(np.str_).astype(object)
        found[empty] = None
        return found, np.where(np.ma.getmaskarray(numbers), np.nan, np.ma.getdata(numbers)).astype(np.float64)

    def first_rows(self, n_rows: int) -> dict[str, list[str]]:
        """Return the first cells of every column of a text file, up to the first line that cannot be read."""
        rows: list[list[str]] = []
        with contextlib.suppress(DataError):
            rows.extend(cells for _, cells in itertools.islice(self._rows(), n_rows))
        return {name: [row[i].strip(SPACES) for row in rows if i < len(row)] for i, name in enumerate(self.names)}

    def cell_if_all(self, name: str, pattern: str, *, example: str) -> str | None:
        """Return the first cell of a column that matches `example`, if every cell of the column matches `pattern`."""
        text = _trimmed(self._positions[name])
        agree, first = self._fetch(
            [
                f"bool_and(regexp_full_match({text}, {quoted(pattern)}))",
                f"first({text}) FILTER (WHERE regexp_full_match({text}, {quoted(example)}))",
            ]
        )
        return str(first[0]) if bool(np.ma.getdata(agree)[0]) and not np.ma.getmaskarray(first)[0] else None

    def number_sql(self, name: str, *, dtype: str = "float32") -> str:
        """Return SQL that is the number in a column, or NULL where there is none; dtype as for `numbers`."""
        return self._number(self._positions[name], dtype)

    def text_sql(self, name: str) -> str:
        """Return SQL that is the text in a column without blanks around it, NULL or '' where there is none."""
        return _trimmed(self._positions[name])

    @property
    def tolerant_sql(self) -> str:
        """SQL of the whole table as ``file(c0, c1, …)``, without lines that have a wrong number of cells.

        duckdb lists the lines it leaves out in its table ``reject_errors``. Where blanks divide the cells it lists
        nothing, and all cells of such a line are NULL instead.
        """
        columns = ", ".join(f"c{i}" for i in range(len(self.names)))
        relation = self.relation.replace("?", quoted(literal_path(self.path)), 1)
        if self.delimiter:
            relation = relation.removesuffix(")") + f", store_rejects=true, buffer_size={_BUFFER_BYTES})"
        return f"{relation.replace(_REFUSED, '')} AS file({columns})"

    def records(self, rows: Iterable[int]) -> Iterator[tuple[int, int | None, list[str | None]]]:
        """Yield row, line (None in Parquet) and cells of some rows of :attr:`tolerant_sql`, given in ascending order.

        A text file is gone through once; of a Parquet file each row is looked up.
        """
        if self.delimiter is None:
            for row in rows:
                yield row, None, self._parquet_row(row)
            return
        n_cells = len(self.names)
        whole = (record for record in self._rows() if not self.delimiter or len(record[1]) == n_cells)
        numbered = enumerate(whole)
        for row in rows:
            found = next(((line, cells) for i, (line, cells) in numbered if i == row), None)
            if found is not None:
                cells = [_cut(cell.strip(SPACES)) or None for cell in found[1]]
                yield row, found[0], [*cells, *[None] * n_cells][:n_cells]

    def _parquet_row(self, row: int) -> list[str | None]:
        texts = ", ".join(f"CAST(c{i} AS VARCHAR)" for i in range(len(self.names)))
        with connected() as connection:
            columns = ", ".join(f"c{i}" for i in range(len(self.names)))
            query = f"SELECT {texts} FROM {self.relation} AS file({columns}) LIMIT 1 OFFSET {row}"
            found = connection.execute(query, [literal_path(self.path)]).fetchone()
        return [None if text is None else _cut(text) for text in found or ()]

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    def _number(self, position: int, dtype: str) -> str:
        text = _trimmed(position)
        if dtype == "int64" and self.numeric[position]:
            # Not through text, as below, where a large whole number of a float column has a power of ten.
            double = f"CAST(c{position} AS DOUBLE)"
            return f"CASE WHEN {double} = floor({double}) THEN TRY_CAST(c{position} AS BIGINT) END"
        if dtype == "int64":
            return f"CASE WHEN regexp_full_match({text}, '{_INTEGER.pattern}') THEN TRY_CAST({text} AS BIGINT) END"
        # A cast passes over blanks. The function keeps duckdb from pushing it into its CSV reader, where it raises.
        number = f"c{position}" if self.numeric[position] else f"nullif(CAST(c{position} AS VARCHAR), '')"
        double = f"TRY_CAST({number} AS DOUBLE)"
        return double if dtype == "float64" else f"TRY_CAST({double} AS FLOAT)"

    def _fetch(self, expressions: Sequence[str]) -> list[NDArray[Any]]:
        duckdb = _duckdb()
        columns = ", ".join(f"c{i}" for i in range(len(self.names)))
        values = ", ".join(f"{expression} AS v{i}" for i, expression in enumerate(expressions))
        try:
            with connected() as connection:
                query = f"SELECT {values} FROM {self.relation} AS file({columns})"
                fetched = connection.execute(query, [literal_path(self.path)]).fetchnumpy()
        except duckdb.Error as error:
            self._explain()
            raise _unreadable(self.path, error) from error
        return [fetched[f"v{i}"] for i in range(len(expressions))]

    def cell(self, row: int, name: str) -> Cell:
        """Return one cell as the file has it, with its line."""
        position = self._positions[name]
        if self.delimiter is None:
            (column,) = self._fetch([f"CAST(c{position} AS VARCHAR)"])
            return Cell(row, None, name, None if np.ma.getmaskarray(column)[row] else _cut(str(column[row])))
        line, cells = next(record for i, record in enumerate(self._rows()) if i == row)
        return Cell(row, line, name, _cut(cells[position].strip(SPACES)) or None)

    def _explain(self) -> None:
        """Raise the DataError that names the first line of a text file with a wrong number of cells."""
        for line, cells in self._rows() if self.delimiter is not None else ():
            if len(cells) != len(self.names):
                raise DataError(
                    f"{self.path}, line {line}: expected {len(self.names)} cells, found {len(cells)}. "
                    "Every line must have as many cells as the first"
                )

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        # A blank line is an empty cell in a .csv of one column and nothing anywhere else, as duckdb has it.
        blank_counts = bool(self.delimiter) and len(self.names) == 1
        for i, (line, cells) in enumerate(records_of(self.path, self.delimiter or "")):
            if i >= self.n_skipped and (cells or blank_counts):
                yield line, cells or [""]


def open_table(path: str | PathLike[str], *, header: bool | None = None) -> Table:
    r"""Return the table in a .csv, .tsv, .txt (blanks between cells) or .parquet file; the text ones may end in .gz.

    Cells of a .csv are divided by commas or, when the first line has none, by semicolons or tabs. Without ``header``, a
    first line of numbers only is data.

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
    if kind_of(path) in PARQUET_KINDS:
        return _open_parquet(path)
    if kind_of(path) not in TABLE_KINDS:
        raise DataError(f"{path}: not a table; tables end in {', '.join(TABLE_KINDS)}")
    check_gzip(path)
    delimiter = delimiter_of(path)
    n_before, first = first_record(path, delimiter)
    has_header = header if header is not None else not all(is_number_text(cell) for cell in first)
    names, unnamed = _column_names(path, first if has_header else [""] * len(first))
    n_skipped = n_before + has_header
    if delimiter:
        relation = _delimited(len(names), delimiter, n_skipped=n_skipped)
    else:
        relation = _spaced(len(names), has_header=has_header)
    return Table(path, names, unnamed, has_header, relation, (False,) * len(names), delimiter, n_skipped)


def first_cells(path: Path) -> list[str]:
    """Return the cells of the first line of a text table that is not blank."""
    return first_record(path, delimiter_of(path))[1]


def quoted(text: str) -> str:
    """Return text as a literal of SQL.

    Examples
    --------
    >>> quoted("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def is_number_text(text: str) -> bool:
    """Return whether a cell reads as a number (NaN and infinities included).

    Examples
    --------
    >>> is_number_text(" 1e-3 "), is_number_text("age")
    (True, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_integer_text(text: str) -> bool:
    """Return whether a cell reads as a whole number.

    Examples
    --------
    >>> is_integer_text("7"), is_integer_text("7.0"), is_integer_text("7.5")
    (True, True, False)
    """
    return _INTEGER.fullmatch(text.strip(SPACES)) is not None


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def _trimmed(position: int) -> str:
    # Few cells have blanks, and to look for one costs a fraction of cutting it off.
    text = f"CAST(c{position} AS VARCHAR)"
    return f"CASE WHEN contains({text}, ' ') OR contains({text}, '\t') THEN trim({text}, '{SPACES}') ELSE {text} END"


def _delimited(n_columns: int, delimiter: str, *, n_skipped: int) -> str:
    columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(n_columns))
    return (
        f"read_csv(?, auto_detect=false, header=false, skip={n_skipped}, delim='{delimiter}', quote='\"', escape='\"', "
        f"columns={{{columns}}}, hive_partitioning=false)"
    )


def _spaced(n_columns: int, *, has_header: bool) -> str:
    bare = f"(SELECT trim(line, '{SPACES}\r') AS line FROM {_LINES})"
    lines = f"(SELECT line FROM {bare} WHERE NOT regexp_matches(line, '^([#%]|$)') OFFSET {int(has_header)})"
    cells = f"(SELECT string_split_regex(line, '[{SPACES}]+') AS cells FROM {lines})"
    whole = f"(SELECT CASE WHEN len(cells) = {n_columns} THEN cells{_REFUSED} END AS cells FROM {cells})"
    return f"(SELECT {', '.join(f'cells[{i + 1}]' for i in range(n_columns))} FROM {whole})"


def _open_parquet(path: Path) -> Table:
    duckdb = _duckdb()
    relation = "read_parquet(?, hive_partitioning=false)"
    try:
        with connected() as connection:
            name = literal_path(path)
            described = connection.execute(f"DESCRIBE SELECT * FROM {relation}", [name]).fetchall()
            schema = connection.execute("SELECT name, num_children FROM parquet_schema(?)", [name]).fetchall()
    except duckdb.Error as error:
        raise _unreadable(path, error) from error
    names, unnamed = _column_names(path, _top_names(schema))
    return Table(path, names, unnamed, True, relation, tuple(bool(_NUMERIC_TYPES.match(row[1])) for row in described))


def _top_names(schema: list[tuple[str, int | None]]) -> list[str]:
    """Return the names of the outermost columns of a Parquet schema, which is listed depth first under one root."""
    names: list[str] = []
    inside = 0
    for name, n_children in schema[1:]:
        if inside:
            inside -= 1
        else:
            names.append(name)
        inside += n_children or 0
    return names


def _column_names(path: Path, cells: Sequence[str]) -> tuple[tuple[str, ...], frozenset[int]]:
    stripped = [cell.strip() for cell in cells]
    names = tuple(name or f"c{i}" for i, name in enumerate(stripped))
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if repeated:
        raise DataError(
            f"{path}: column name {repeated[0]!r} occurs {names.count(repeated[0])} times; names must differ"
        )
    return names, frozenset(i for i, name in enumerate(stripped) if not name)


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    cause = "damaged?" if kind_of(path) in PARQUET_KINDS else "damaged, or line ends of two kinds?"
    return DataError(f"{path}: cannot be read as {kind_of(path)}; {cause} ({reason})")


def _duckdb() -> ModuleType:
    try:
        import duckdb
    except ImportError as error:
        raise BackendError(
            "tables are read with the package duckdb, which is not installed: pip install duckdb"
        ) from error
    return duckdb
