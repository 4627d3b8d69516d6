"""Tables of text: their lines and cells, gone through by Python where duckdb cannot name the line that is wrong."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeAlias

from pamc.data.files import open_bytes
from pamc.data.readers.cells import SPACES, Cell, is_number_text, shorten
from pamc.data.readers.tables import Table, column_names
from pamc.errors import DataError

__all__ = ["Header", "Records", "TextTable", "first_record", "header_of", "text_lines"]

# Bytes that are not UTF-8, as Python keeps them in text.
_FOREIGN = re.compile("[\udc80-\udcff]")

# Line number and cells of records; a blank line, or a comment, has no cells.
Records: TypeAlias = Iterator[tuple[int, list[str]]]


@dataclass(frozen=True)
class TextTable(Table):
    """A table in a text file.

    Parameters
    ----------
    n_skipped
        Records before the first row of data.
    """

    _damage: ClassVar[str] = "damaged, or line ends of two kinds?"
    # Whether `tolerant_sql` leaves out a line with a wrong number of cells; else all of its cells are NULL.
    _drops_ragged_lines: ClassVar[bool]

    n_skipped: int

    @abstractmethod
    def all_records(self) -> Records:
        """Yield line number and cells of every record of the file."""

    def records(self, rows: Iterable[int]) -> Iterator[tuple[int, int | None, list[str | None]]]:
        """Yield row, line and cells of some rows, given in ascending order; the file is gone through once."""
        n_cells = len(self.names)
        numbered = enumerate(
            record for record in self._rows() if not self._drops_ragged_lines or len(record[1]) == n_cells
        )
        for row in rows:
            record = next((record for i, record in numbered if i == row), None)
            if record is not None:
                line, cells = record
                texts = [_text_of(cell) for cell in cells]
                yield row, line, [*texts, *[None] * n_cells][:n_cells]

    def cell(self, row: int, name: str) -> Cell:
        """Return one cell as the file has it, with its line."""
        line, cells = next(record for i, record in enumerate(self._rows()) if i == row)
        return Cell(row, line, name, _text_of(cells[self._positions[name]]))

    def first_rows(self, n_rows: int) -> dict[str, list[str]]:
        """Return the first cells of every column, up to the first line that cannot be read."""
        rows: list[list[str]] = []
        with contextlib.suppress(DataError):
            rows.extend(cells for _, cells in itertools.islice(self._rows(), n_rows))
        return {name: [row[i].strip(SPACES) for row in rows if i < len(row)] for i, name in enumerate(self.names)}

    def _malformed(self) -> DataError | None:
        """Return the error that names the first line with a wrong number of cells, or None."""
        for line, cells in self._rows():
            if len(cells) != len(self.names):
                return DataError(
                    f"{self.path}, line {line}: expected {len(self.names)} cells, found {len(cells)}. "
                    "Every line must have as many cells as the first"
                )
        return None

    def _rows(self) -> Records:
        """Yield the records that duckdb takes for rows of data."""
        for i, (line, cells) in enumerate(self.all_records()):
            if i >= self.n_skipped and (cells or self._has_blank_rows):
                yield line, cells or [""]

    @property
    def _has_blank_rows(self) -> bool:
        """Whether a blank line is a row."""
        return False


class Header(NamedTuple):
    """What the first record of a text file says; `n_skipped` records come before the first row of data."""

    names: tuple[str, ...]
    unnamed: frozenset[int]
    has_header: bool
    n_skipped: int


def header_of(path: Path, records: Records, header: bool | None) -> Header:
    """Return the columns of a text file; where ``header`` is None, a first line of numbers only is data."""
    n_before, first = first_record(path, records)
    has_header = header if header is not None else not all(is_number_text(cell) for cell in first)
    names, unnamed = column_names(path, first if has_header else [""] * len(first))
    return Header(names, unnamed, has_header, n_before + has_header)


def first_record(path: Path, records: Records) -> tuple[int, list[str]]:
    """Return how many records come before the first that is not blank, and the cells of that one."""
    for i, (_, cells) in enumerate(records):
        if "".join(cells).strip():
            return i, cells
    raise DataError(f"{path}: is empty; a table has a line of column names and then a line per row")


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file of UTF-8 text, which may be compressed."""
    try:
        # A foreign byte is found when its line is reached, not when it is read ahead.
        stream = io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", errors="surrogateescape", newline="")
        with stream:
            for number, text in enumerate(stream, start=1):
                if not text.isascii() and _FOREIGN.search(text):
                    raise DataError(f"{path}, line {number}: not UTF-8 text; save the file as UTF-8")
                yield text
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read; damaged? ({error})") from error


def _text_of(cell: str) -> str | None:
    return shorten(cell.strip(SPACES)) or None
