"""Delimited text: comma-, semicolon- or tab-separated values."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import ClassVar

from pamc.data.files import check_gzip, kind_of
from pamc.data.readers.conversion import converted, values_of
from pamc.data.readers.format import FORMATS, Format
from pamc.data.readers.tables import Records, TextTable, encoding_of, header_of, text_lines
from pamc.errors import DataError, DataWarning, warn

# Number of bytes that are read at a time when memory is limited; a line may have up to a quarter of them.
_BUFFER_BYTES = 1 << 23


@dataclass(frozen=True)
class DelimitedTable(TextTable):
    """A table whose cells are separated by the delimiter."""

    _drops_ragged_lines: ClassVar[bool] = True

    delimiter: str
    encoding: str = "utf-8"
    converted: Path | None = None

    @property
    def stored(self) -> Path:
        """The file itself, or its conversion to UTF-8, which has the same lines."""
        return self.path if self.converted is None else self.converted

    @property
    def tolerant_sql(self) -> str:
        """SQL of the whole table; duckdb lists the rejected lines in its table ``reject_errors``."""
        options = f"store_rejects=true, buffer_size={_BUFFER_BYTES}"
        return self._from(f"{self._relation_of_path.removesuffix(')')}, {options})")

    def all_records(self) -> Records:
        """Yield (line number, cells) of every record of the file."""
        return _records(self.stored, self.delimiter, self.encoding)

    @property
    def _has_blank_rows(self) -> bool:
        # duckdb reads a blank line as an empty cell if there is one column, and skips it otherwise.
        return len(self.names) == 1


def open_delimited(path: Path, header: bool | None) -> DelimitedTable:
    """Open the table in a delimited text file."""
    check_gzip(path)
    encoding = encoding_of(path)
    if encoding != "utf-8":
        warn(DataWarning(f"{path}: is not UTF-8 text and is read as {_NAMES[encoding]}"), stacklevel=3)
    if encoding not in _ENCODINGS:
        target = converted(path, kind_of(path), partial(_write_utf8, encoding=encoding))
        return DelimitedTable(**{**values_of(open_delimited(target, header)), "path": path, "converted": target})
    delimiter = _delimiter_of(path, encoding)
    names, unnamed, has_header, n_skipped = header_of(path, _records(path, delimiter, encoding), header)
    columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(names)))
    relation = (
        f"read_csv(?, auto_detect=false, header=false, skip={n_skipped}, delim='{delimiter}', quote='\"', escape='\"', "
        f"columns={{{columns}}}, hive_partitioning=false{_line_end(path, delimiter, encoding)}{_ENCODINGS[encoding]})"
    )
    return DelimitedTable(path, names, unnamed, has_header, relation, n_skipped, delimiter, encoding)


def _write_utf8(path: Path, target: Path, encoding: str) -> None:
    with target.open("w", encoding="utf-8", newline="") as stream:
        stream.writelines(text_lines(path, encoding))


_NAMES = {"latin-1": "Latin-1", "cp1252": "Windows-1252", "utf-16": "UTF-16"}
# duckdb's option for each encoding that it reads.
_ENCODINGS = {"utf-8": "", "latin-1": ", encoding='latin-1'"}


def _line_end(path: Path, delimiter: str, encoding: str) -> str:
    """Return duckdb's option for line endings if the first record contains a line break, which would mislead duckdb."""
    line, _ = next(_records(path, delimiter, encoding), (1, []))
    if line == 1:
        return ""
    text = next(islice(text_lines(path, encoding), line - 1, None))
    end = r"\r\n" if text.endswith("\r\n") else r"\n"
    return f", new_line='{end}'"


def _delimiter_of(path: Path, encoding: str) -> str:
    if kind_of(path) != ".csv":
        return "\t"
    first = next((text for text in text_lines(path, encoding) if text.strip()), "")
    return next((mark for mark in ",;\t" if mark in first), ",")


def _records(path: Path, delimiter: str | None = None, encoding: str | None = None) -> Records:
    encoding = encoding or encoding_of(path)
    delimiter = delimiter or _delimiter_of(path, encoding)
    reader = csv.reader(text_lines(path, encoding), delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: a cell is badly quoted ({error})") from error


FORMATS.register("delimited")(
    Format(endings=(".csv", ".tsv", ".tab"), open_table=open_delimited, read_records=_records)
)
