"""The first sheet of an Excel file."""

from __future__ import annotations

import csv
import datetime
from pathlib import Path
from typing import Any

from pamc.data.readers.conversion import converted, load_package, values_of
from pamc.data.readers.format import FORMATS, Format
from pamc.data.readers.formats.delimited import DelimitedTable, open_delimited
from pamc.errors import DataError, DataWarning, warn


def open_excel(path: Path, header: bool | None) -> DelimitedTable:
    """Open the first sheet of an Excel file, converted to .csv, so that line numbers are rows of the sheet."""
    target = converted(path, ".csv", _write_csv)
    return DelimitedTable(**{**values_of(open_delimited(target, header)), "path": path, "converted": target})


def _write_csv(path: Path, target: Path) -> None:
    book = load_package("openpyxl", "excel", "Excel").load_workbook(path, read_only=True, data_only=True)
    try:
        if len(book.worksheets) > 1:
            warn(DataWarning(f"{path}: has {len(book.worksheets)} sheets; the first one is read"), stacklevel=6)
        rows = list(book.worksheets[0].iter_rows(values_only=True))
    finally:
        book.close()
    if not any(cell is not None for row in rows for cell in row):
        raise DataError(f"{path}: the first sheet is empty")
    has_times = [any(_has_time(cell) for cell in column) for column in zip(*rows, strict=True)]
    with target.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        for row in rows:
            # A blank row is written as a blank line, which is skipped.
            is_blank = all(cell is None for cell in row)
            texts = [_text_of(cell, has_time) for cell, has_time in zip(row, has_times, strict=True)]
            writer.writerow([] if is_blank else texts)


def _has_time(cell: Any) -> bool:
    return isinstance(cell, datetime.datetime) and cell.time() != datetime.time()


def _text_of(cell: Any, has_time: bool) -> str:
    """Return a cell as text; a date has its time of day if any other date in the column has one."""
    if cell is None:
        return ""
    if isinstance(cell, datetime.datetime):
        return str(cell.replace(microsecond=0) if has_time else cell.date())
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


FORMATS.register("excel")(Format(endings=(".xlsx",), open_table=open_excel))
