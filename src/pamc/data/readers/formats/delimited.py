"""Delimited text: comma-, semicolon- or tab-separated values."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pamc.data.files import check_gzip, kind_of
from pamc.data.readers.format import FORMATS, Format
from pamc.data.readers.tables import Records, TextTable, header_of, text_lines
from pamc.errors import DataError

# Bytes of text read at a time when memory is limited; a line may have up to a quarter of them.
_BUFFER_BYTES = 1 << 23


@dataclass(frozen=True)
class DelimitedTable(TextTable):
    """A table whose cells are separated by `delimiter`."""

    _drops_ragged_lines: ClassVar[bool] = True

    delimiter: str

    @property
    def tolerant_sql(self) -> str:
        """SQL of the whole table; duckdb lists the rejected lines in its table ``reject_errors``."""
        options = f"store_rejects=true, buffer_size={_BUFFER_BYTES}"
        return self._from(f"{self._relation_of_path.removesuffix(')')}, {options})")

    def all_records(self) -> Records:
        """Yield (line number, cells) of every record of the file."""
        return _records(self.path, self.delimiter)

    @property
    def _has_blank_rows(self) -> bool:
        # duckdb reads a blank line as an empty cell if there is one column, and skips it otherwise.
        return len(self.names) == 1


def open_delimited(path: Path, header: bool | None) -> DelimitedTable:
    """Open the table in a delimited text file."""
    check_gzip(path)
    delimiter = _delimiter_of(path)
    names, unnamed, has_header, n_skipped = header_of(path, _records(path, delimiter), header)
    columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(names)))
    relation = (
        f"read_csv(?, auto_detect=false, header=false, skip={n_skipped}, delim='{delimiter}', quote='\"', escape='\"', "
        f"columns={{{columns}}}, hive_partitioning=false)"
    )
    return DelimitedTable(path, names, unnamed, has_header, relation, n_skipped, delimiter)


def _delimiter_of(path: Path) -> str:
    if kind_of(path) != ".csv":
        return "\t"
    first = next((text for text in text_lines(path) if text.strip()), "")
    return next((mark for mark in ",;\t" if mark in first), ",")


def _records(path: Path, delimiter: str | None = None) -> Records:
    reader = csv.reader(text_lines(path), delimiter=delimiter or _delimiter_of(path), strict=True)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: a cell is badly quoted ({error})") from error


FORMATS.register("delimited")(
    Format(endings=(".csv", ".tsv", ".tab"), open_table=open_delimited, read_records=_records)
)
