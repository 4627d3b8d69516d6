"""Whitespace-separated text, as is common for edge lists; lines that start with # or % are comments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pamc.data.files import check_gzip
from pamc.data.readers.format import FORMATS, Format
from pamc.data.readers.tables import SPACES, Records, TextTable, header_of, text_lines

# SQL that raises an error for a line with the wrong number of cells.
_REFUSED = " ELSE error('cells')"
# Read one line per row: the delimiter, a unit separator, does not occur in text files.
_LINES = (
    r"read_csv(?, auto_detect=false, header=false, delim='\x1f', quote='', escape='', strict_mode=false,"
    " columns={'line': 'VARCHAR'}, hive_partitioning=false)"
)


@dataclass(frozen=True)
class WhitespaceTable(TextTable):
    """A table whose cells are separated by spaces and tabs."""

    _drops_ragged_lines: ClassVar[bool] = False

    @property
    def tolerant_sql(self) -> str:
        """SQL of the whole table; all cells of a line with the wrong number of cells are NULL."""
        return self._from(self._relation_of_path.replace(_REFUSED, ""))

    def all_records(self) -> Records:
        """Yield (line number, cells) of every line of the file."""
        return _records(self.path)


def open_whitespace(path: Path, header: bool | None) -> WhitespaceTable:
    """Open the table in a whitespace-separated text file."""
    check_gzip(path)
    names, unnamed, has_header, n_skipped = header_of(path, _records(path), header)
    trimmed = f"(SELECT trim(line, '{SPACES}\r') AS line FROM {_LINES})"
    lines = f"(SELECT line FROM {trimmed} WHERE NOT regexp_matches(line, '^([#%]|$)') OFFSET {int(has_header)})"
    cells = f"(SELECT string_split_regex(line, '[{SPACES}]+') AS cells FROM {lines})"
    checked = f"(SELECT CASE WHEN len(cells) = {len(names)} THEN cells{_REFUSED} END AS cells FROM {cells})"
    relation = f"(SELECT {', '.join(f'cells[{i + 1}]' for i in range(len(names)))} FROM {checked})"
    return WhitespaceTable(path, names, unnamed, has_header, relation, n_skipped)


def _records(path: Path) -> Records:
    for line, text in enumerate(text_lines(path), start=1):
        bare = text.strip(SPACES + "\r\n")
        yield line, [] if not bare or bare[0] in "#%" else re.split(f"[{SPACES}]+", bare)


FORMATS.register("whitespace")(
    Format(endings=(".txt", ".edges", ".edgelist"), open_table=open_whitespace, read_records=_records)
)
