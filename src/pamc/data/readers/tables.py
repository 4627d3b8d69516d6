"""Tables of named columns, read with duckdb, which report the row, line and column of invalid cells.

duckdb reads each column once and marks invalid cells. If there are any, Python then scans the lines of the file to find
the line number of the cell. Queries refer to columns by position, so names may differ in case only.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import itertools
import re
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pamc.data.columns.raw import RawColumn
from pamc.data.database import connected, literal_path, load_duckdb, quoted
from pamc.data.files import kind_of, open_bytes, reason_of
from pamc.errors import DataError

SPACES = " \t"
INTEGER = re.compile(r"[+-]?[0-9]+(\.0*)?")
# Spellings of a missing value.
MISSING = {"nan", "na", "n/a", "null", "none", "?", "-"}

# Maximum number of columns whose cells are matched with patterns in one query.
_AT_A_TIME = 50
# Maximum number of columns of a table. Queries over more take minutes and gigabytes, however few rows there are.
_MOST_COLUMNS = 100_000
# Maximum number of lines with the wrong number of cells that a message lists.
_MOST_LINES = 5
# Maximum number of characters of an invalid cell in a message.
_MAX_CELL_CHARS = 100
# Numbers in other locales and spreadsheet notations.
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)?,\d+")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}([.,])\d{3}(\1\d{3})*")
_THOUSANDS_COMMA = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_NO_FILL = "Every cell must be a finite number here: drop such rows or columns, or impute the values"


@dataclass(frozen=True)
class Cell:
    """A cell of a file: zero-based row, one-based line (None in Parquet), column, and text (None if empty).

    A long text is truncated.
    """

    row: int
    line: int | None
    column: str
    text: str | None

    @property
    def where(self) -> str:
        """Location of the cell, for messages.

        Examples
        --------
        >>> Cell(row=3, line=5, column="age", text="x").where
        "row 3 (line 5), column 'age'"
        """
        line = "" if self.line is None else f" (line {self.line})"
        return f"row {self.row}{line}, column {self.column!r}"


def shorten(text: str) -> str:
    """Truncate the text of a cell for a message."""
    return text if len(text) <= _MAX_CELL_CHARS else text[:_MAX_CELL_CHARS] + "…"


def is_number_text(text: str) -> bool:
    """Return whether the text is a number (including NaN and infinities)."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_integer_text(text: str) -> bool:
    """Return whether the text is an integer.

    Examples
    --------
    >>> is_integer_text("7"), is_integer_text("7.0"), is_integer_text("7.5")
    (True, True, False)
    """
    return INTEGER.fullmatch(text.strip(SPACES)) is not None


def not_a_number(path: Path, cell: Cell, dtype: str) -> DataError:
    """Return the DataError that explains why a cell is not a valid feature and how to fix it."""
    text, where = cell.text, f"{path}: {cell.where}"
    if text is None or text.lower() in MISSING:
        return DataError(f"{where}: the cell is {'empty' if text is None else repr(text)}. {_NO_FILL}")
    if is_number_text(text) and not np.isfinite(float(text)):
        return DataError(f"{where}: the cell is {text!r}, not finite. {_NO_FILL}")
    if is_number_text(text) and abs(float(text)) > float(np.finfo(dtype).max):
        return DataError(f"{where}: {text} is too large for {dtype}; rescale the column")
    if readings := _readings(text):
        return DataError(f"{where}: {readings}. Write numbers with a decimal point and without thousands separators")
    return DataError(
        f"{where}: {text!r} is not a number. Leave a text column out (--drop {cell.column}), "
        f"use it to name the rows (--id {cell.column}), or encode it as numbers"
    )


def _readings(text: str) -> str | None:
    """Return the ways to interpret a number with separators, or None if the text is not such a number.

    Examples
    --------
    >>> _readings("70,600")
    "'70,600' is 70600 if the comma separates thousands, 70.6 if it is a decimal comma"
    >>> _readings("3,5")
    "'3,5' has a decimal comma: 3.5"
    """
    grouped = text.replace(",", "")
    decimal = text.replace(".", "").replace(",", ".")
    is_grouped, is_decimal = _THOUSANDS_COMMA.fullmatch(text), _DECIMAL_COMMA.fullmatch(text)
    if is_grouped and is_decimal:
        return (
            f"{text!r} is {float(grouped):.15g} if the comma separates thousands, {float(decimal):.15g} if it is a "
            "decimal comma"
        )
    if is_decimal:
        return f"{text!r} has a decimal comma: {float(decimal):.15g}"
    if is_grouped:
        return f"{text!r} has commas between its thousands: {float(grouped):.15g}"
    if _THOUSANDS.fullmatch(text):
        return f"{text!r} has points between its thousands: {float(decimal):.15g}"
    return None


@dataclass(frozen=True)
class Table(ABC):
    """The columns of one file, read on demand.

    Parameters
    ----------
    path
        Path of the file.
    names
        Column names; columns without a name, and all columns of a file without header, are named ``c0``, ``c1``, ….
    unnamed
        Positions of the columns without a name.
    has_header
        Whether the first line contains the column names.
    relation
        SQL expression that yields the columns in order; its only parameter is the path.
    """

    # Probable cause, for the error message about a file that duckdb cannot read.
    _damage: ClassVar[str] = "damaged?"

    path: Path
    names: tuple[str, ...]
    unnamed: frozenset[int]
    has_header: bool
    relation: str

    def numbers(self, names: Sequence[str], *, dtype: str = "float32") -> tuple[NDArray[Any], Cell | None]:
        """Return columns as (N, len(names)) numbers, and the first cell that is not a finite number, if any.

        In floating-point columns, cells that are not numbers are NaN. Text is parsed in double precision and rounded
        once. ``dtype`` is float32, float64 or int64; a cell out of range of that type is invalid. O(N·d) time and
        memory.
        """
        columns = self._fetch([self.number_sql(name, dtype=dtype) for name in names])
        out = np.empty((len(columns[0]), len(names)), dtype=dtype)
        first: tuple[int, int] | None = None
        for position, column in enumerate(columns):
            out[:, position] = np.ma.getdata(column)
            if dtype != "int64":
                out[np.ma.getmaskarray(column), position] = np.nan
            wrong = np.flatnonzero(np.ma.getmaskarray(column) | ~np.isfinite(out[:, position]))
            if len(wrong):
                first = min(first or (int(wrong[0]), position), (int(wrong[0]), position))
        return out, None if first is None else self.cell(first[0], names[first[1]])

    def texts(self, name: str) -> tuple[NDArray[np.str_], Cell | None]:
        """Return one column as (N,) stripped strings, and the first empty cell, if any."""
        (column,) = self._fetch([self.text_sql(name)])
        empty = np.flatnonzero(_is_empty(column))
        texts = np.ma.getdata(column).astype(np.str_)
        return texts, self.cell(int(empty[0]), name) if len(empty) else None

    def cells(self, name: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Return one column as (N,) strings, None for empty cells, and as (N,) numbers, NaN for non-numeric cells."""
        column, numbers = self._fetch([self.text_sql(name), self.number_sql(name, dtype="float64")])
        values = np.where(np.ma.getmaskarray(numbers), np.nan, np.ma.getdata(numbers)).astype(np.float64)
        return _with_none(column), values

    def raw_column(self, name: str, connection: Any = None) -> RawColumn:
        """Return one column as numbers if the file stores numbers, else as texts."""
        if not self.stores_numbers(name):
            return RawColumn.of_texts(name, _with_none(self._fetch([self.text_sql(name)], connection)[0]).tolist())
        (column,) = self._fetch([self.number_sql(name, dtype="float64")], connection)
        numbers = np.where(np.ma.getmaskarray(column), np.nan, np.ma.getdata(column)).astype(np.float64)
        return RawColumn(name, numbers=numbers)

    def examples_if_all(self, names: Sequence[str], pattern: str, *, example: str) -> dict[str, str]:
        """Return, for each column whose cells all match `pattern`, the first cell that matches `example`."""
        expressions = []
        for text in map(self.text_sql, names):
            every = f"bool_and(regexp_full_match({text}, {quoted(pattern)}))"
            first = f"first({text}) FILTER (WHERE regexp_full_match({text}, {quoted(example)}))"
            expressions.append(f"CASE WHEN {every} THEN {first} END")
        # The time of a query grows with the square of the number of such expressions.
        batches = [expressions[start : start + _AT_A_TIME] for start in range(0, len(expressions), _AT_A_TIME)]
        found = [first for batch in batches for first in self._fetch(batch)]
        return {
            name: str(first[0])
            for name, first in zip(names, found, strict=True)
            if first[0] is not None and not np.ma.getmaskarray(first)[0]
        }

    def number_sql(self, name: str, *, dtype: str = "float32") -> str:
        """Return a SQL expression for the number in a column, NULL if there is none; dtype as for `numbers`."""
        position = self._positions[name]
        is_numeric = self._stores_numbers(position)
        if dtype == "int64" and is_numeric:
            # Not cast via text, as below: large integers of a float column would be written with an exponent.
            double = f"CAST(c{position} AS DOUBLE)"
            return f"CASE WHEN {double} = floor({double}) THEN TRY_CAST(c{position} AS BIGINT) END"
        if dtype == "int64":
            text = self.text_sql(name)
            return f"CASE WHEN regexp_full_match({text}, '{INTEGER.pattern}') THEN TRY_CAST({text} AS BIGINT) END"
        # The cast ignores spaces; nullif keeps duckdb from pushing it into its CSV reader, where it would raise.
        number = f"c{position}" if is_numeric else f"nullif(CAST(c{position} AS VARCHAR), '')"
        double = f"TRY_CAST({number} AS DOUBLE)"
        return double if dtype == "float64" else f"TRY_CAST({double} AS FLOAT)"

    def text_sql(self, name: str) -> str:
        """Return a SQL expression for the stripped text in a column, NULL or '' if the cell is empty."""
        # Few cells contain spaces, and searching for one is much cheaper than trimming.
        text = f"CAST(c{self._positions[name]} AS VARCHAR)"
        has_blanks = f"contains({text}, ' ') OR contains({text}, '\t')"
        return f"CASE WHEN {has_blanks} THEN trim({text}, '{SPACES}') ELSE {text} END"

    @property
    def tolerant_sql(self) -> str:
        """SQL of the whole table as ``file(c0, c1, …)``, without lines that have the wrong number of cells."""
        return self._from(self._relation_of_path)

    @abstractmethod
    def records(self, rows: Iterable[int]) -> Iterator[tuple[int, int | None, list[str | None]]]:
        """Yield (row, line or None, cells) for the given ascending rows of :attr:`tolerant_sql`."""

    @abstractmethod
    def cell(self, row: int, name: str) -> Cell:
        """Return one cell as written in the file, with its line number."""

    @abstractmethod
    def first_rows(self, n_rows: int) -> dict[str, list[str]]:
        """Return the first cells of every column as text; empty for columns that store numbers in binary form."""

    @property
    def stored(self) -> Path:
        """The file that is read: the file itself, or a temporary conversion of it."""
        return self.path

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    def stores_numbers(self, name: str) -> bool:
        """Return whether the file stores a column as numbers rather than text."""
        return self._stores_numbers(self._positions[name])

    def _stores_numbers(self, position: int) -> bool:
        return False

    def _malformed(self) -> DataError | None:
        """Return the error that locates a malformed line, or None if it cannot be located."""
        return None

    @property
    def _relation_of_path(self) -> str:
        """The SQL relation with the path substituted."""
        return self.relation.replace("?", quoted(literal_path(self.stored)), 1)

    def _from(self, relation: str) -> str:
        columns = ", ".join(f"c{i}" for i in range(len(self.names)))
        return f"{relation} AS file({columns})"

    def _fetch(self, expressions: Sequence[str], connection: Any = None, *, tail: str = "") -> list[NDArray[Any]]:
        """Evaluate SQL expressions over the rows of the file, on a connection of their own if none is given."""
        duckdb = load_duckdb("tables are read")
        values = ", ".join(f"{expression} AS v{i}" for i, expression in enumerate(expressions))
        query = f"SELECT {values} FROM {self._from(self.relation)} {tail}"
        try:
            with connected() if connection is None else contextlib.nullcontext(connection) as database:
                fetched = database.execute(query, [literal_path(self.stored)]).fetchnumpy()
        except duckdb.Error as error:
            raise self._malformed() or unreadable(self.path, self._damage, error) from error
        return list(fetched.values())


def column_names(path: Path, cells: Sequence[str]) -> tuple[tuple[str, ...], frozenset[int]]:
    """Return the column names, which must be unique, and the positions of the columns without a name."""
    if len(cells) > _MOST_COLUMNS:
        raise DataError(
            f"{path}: has {len(cells):,} columns, and a table can have up to {_MOST_COLUMNS:,}: save the rows as .npy, "
            "or sparse rows as .npz or .mtx"
        )
    stripped = [cell.strip() for cell in cells]
    names = tuple(name or f"c{i}" for i, name in enumerate(stripped))
    if len(set(names)) < len(names):
        repeated, count = Counter(sorted(names)).most_common(1)[0]
        raise DataError(f"{path}: column name {repeated!r} occurs {count} times; names must differ")
    return names, frozenset(i for i, name in enumerate(stripped) if not name)


def unreadable(path: Path, damage: str, error: Exception) -> DataError:
    """Return the DataError for a file that duckdb cannot read."""
    return DataError(f"{path}: cannot be read as {kind_of(path)}; {damage} ({reason_of(error)})")


def _with_none(column: NDArray[Any]) -> NDArray[Any]:
    texts = np.array(np.ma.getdata(column), dtype=object)
    texts[_is_empty(column)] = None
    return texts


def _is_empty(column: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray(np.ma.getmaskarray(column) | (np.ma.getdata(column) == ""), dtype=bool)


# Bytes that are not valid UTF-8, as decoded with surrogateescape.
_NOT_UTF8 = re.compile("[\udc80-\udcff]")

# Line number and cells of each record; a blank line or a comment has no cells.
Records: TypeAlias = Iterator[tuple[int, list[str]]]


@dataclass(frozen=True)
class TextTable(Table):
    """A table in a text file, with `n_skipped` records before the first data row."""

    _damage: ClassVar[str] = "damaged, or mixed line endings?"
    # Whether `tolerant_sql` drops a line with the wrong number of cells; otherwise all of its cells are NULL.
    _drops_ragged_lines: ClassVar[bool]

    n_skipped: int

    @abstractmethod
    def all_records(self) -> Records:
        """Yield (line number, cells) of every record of the file."""

    def records(self, rows: Iterable[int]) -> Iterator[tuple[int, int | None, list[str | None]]]:
        """Yield (row, line, cells) of the given ascending rows in one pass over the file."""
        n_cells = len(self.names)
        records = (record for record in self._rows() if not self._drops_ragged_lines or len(record[1]) == n_cells)
        numbered = enumerate(records)
        for row in rows:
            for line, cells in (record for i, record in numbered if i == row):
                yield row, line, [*map(_text_of, cells), *[None] * n_cells][:n_cells]
                break

    def cell(self, row: int, name: str) -> Cell:
        """Return one cell as written in the file, with its line number."""
        line, cells = next(record for i, record in enumerate(self._rows()) if i == row)
        return Cell(row, line, name, _text_of(cells[self._positions[name]]))

    def first_rows(self, n_rows: int) -> dict[str, list[str]]:
        """Return the first cells of every column, up to the first unreadable line."""
        rows: list[list[str]] = []
        with contextlib.suppress(DataError):
            rows.extend(cells for _, cells in itertools.islice(self._rows(), n_rows))
        return {name: [row[i].strip(SPACES) for row in rows if i < len(row)] for i, name in enumerate(self.names)}

    def _malformed(self) -> DataError | None:
        """Return the error that names the first lines with a wrong number of cells; None if there are none."""
        wrong = ((line, len(cells)) for line, cells in self._rows() if len(cells) != len(self.names))
        listed = list(itertools.islice(wrong, _MOST_LINES + 1))
        if not listed:
            return None
        (line, n_cells), *others = listed
        more = ", ".join(f"line {other}: {found}" for other, found in others[: _MOST_LINES - 1])
        more = f" ({more}{', …' if len(listed) > _MOST_LINES else ''})" if more else ""
        return DataError(
            f"{self.path}, line {line}: expected {len(self.names)} cells, found {n_cells}{more}. "
            "Every line must have as many cells as the first"
        )

    def _rows(self) -> Records:
        """Yield the records that duckdb treats as data rows."""
        for i, (line, cells) in enumerate(self.all_records()):
            if i >= self.n_skipped and (cells or self._has_blank_rows):
                yield line, cells or [""]

    @property
    def _has_blank_rows(self) -> bool:
        """Whether a blank line is a row."""
        return False


def header_of(path: Path, records: Records, header: bool | None) -> tuple[tuple[str, ...], frozenset[int], bool, int]:
    """Return `names`, `unnamed`, `has_header` and `n_skipped` of the table in a text file.

    If ``header`` is None, a first line that contains only numbers is data.
    """
    n_before, first = first_record(path, records)
    has_header = header if header is not None else not all(is_number_text(cell) for cell in first)
    names, unnamed = column_names(path, first if has_header else [""] * len(first))
    return names, unnamed, has_header, n_before + has_header


def first_record(path: Path, records: Records) -> tuple[int, list[str]]:
    """Return the number of records before the first one that is not blank, and the cells of that record."""
    for i, (_, cells) in enumerate(records):
        if "".join(cells).strip():
            return i, cells
    raise DataError(f"{path}: is empty; a table needs a line of column names, followed by one line per row")


# A non-ASCII letter of Latin-1 next to an ASCII letter, or the euro sign of Windows-1252 beside a number; characters
# that only Windows-1252 has; bytes that do not occur in text files; and the marks at the start of UTF-16.
_LATIN_LETTER = re.compile(rb"[A-Za-z][\xa0-\xff]|[\xa0-\xff][A-Za-z]|\d ?\x80|\x80 ?\d")
_OF_WINDOWS = re.compile(rb"[\x80\x82-\x8c\x8e\x91-\x9c\x9e\x9f]")
_NOT_TEXT = re.compile(rb"[\x00\x81\x8d\x8f\x90\x9d]")
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Number of bytes that are inspected to determine the encoding of a file, and that are read at a time.
_BYTES_INSPECTED, _BYTES_AT_A_TIME = 1 << 26, 1 << 20


def encoding_of(path: Path) -> str:
    """Return "latin-1" or "cp1252" for Western European text, "utf-16" if the file says so, and "utf-8" for others."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    has_letters, is_utf8, is_windows = False, True, False
    with contextlib.suppress(OSError, EOFError, zlib.error), open_bytes(path) as stream:
        for _ in range(_BYTES_INSPECTED // _BYTES_AT_A_TIME):
            block = stream.read(_BYTES_AT_A_TIME)
            if not block:
                break
            if block.startswith(_UTF16_MARKS):
                return "utf-16"
            is_windows = is_windows or _OF_WINDOWS.search(block) is not None
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                is_utf8 = False
            if not is_utf8 and _NOT_TEXT.search(block):
                return "utf-8"
            has_letters = has_letters or (not is_utf8 and _LATIN_LETTER.search(block) is not None)
    return "utf-8" if is_utf8 or not has_letters else "cp1252" if is_windows else "latin-1"


def text_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """Yield the lines of a text file, which may be compressed; `encoding` is that of :func:`encoding_of`."""
    decoding: dict[str, Any] = {"encoding": encoding, "errors": "replace"}
    if encoding == "utf-8":
        decoding = {"encoding": "utf-8-sig", "errors": "surrogateescape"}
    try:
        # An invalid byte is reported when its line is reached, not when the buffer is filled.
        stream = io.TextIOWrapper(open_bytes(path), newline="", **decoding)
        with stream:
            for number, text in enumerate(stream, start=1):
                if encoding == "utf-8" and not text.isascii() and _NOT_UTF8.search(text):
                    raise DataError(f"{path}, line {number}: not UTF-8 text; save the file as UTF-8")
                yield text
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read; damaged? ({error})") from error


def _text_of(cell: str) -> str | None:
    return shorten(cell.strip(SPACES)) or None
