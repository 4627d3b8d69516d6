"""Lines and cells of text tables, gone through by Python: the first of a file, and those of which duckdb complains."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from pamc.data.files import kind_of
from pamc.errors import DataError

__all__ = ["SPACED_KINDS", "SPACES", "delimiter_of", "first_record", "records_of"]

SPACED_KINDS = (".txt", ".edges", ".edgelist")
SPACES = " \t"
# Bytes that are not UTF-8, as Python keeps them in text.
_FOREIGN = re.compile("[\udc80-\udcff]")


def delimiter_of(path: Path) -> str:
    """Return the character between the cells of a text file, "" for runs of blanks."""
    kind = kind_of(path)
    if kind in SPACED_KINDS:
        return ""
    if kind != ".csv":
        return "\t"
    first = next((text for text in _lines(path) if text.strip()), "")
    return next((mark for mark in ",;\t" if mark in first), ",")


def first_record(path: Path, delimiter: str) -> tuple[int, list[str]]:
    """Return the cells of the first record that is not blank, and how many records come before it."""
    for i, (_, cells) in enumerate(records_of(path, delimiter)):
        if "".join(cells).strip():
            return i, cells
    raise DataError(f"{path}: is empty; a table has a line of column names and then a line per row")


def records_of(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and cells of every record; a blank line, or a comment between blanks, has no cells."""
    if not delimiter:
        for line, text in enumerate(_lines(path), start=1):
            bare = text.strip(SPACES + "\r\n")
            yield line, [] if not bare or bare[0] in "#%" else re.split(f"[{SPACES}]+", bare)
        return
    reader = csv.reader(_lines(path), delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: a cell is badly quoted ({error})") from error


def _lines(path: Path) -> Iterator[str]:
    try:
        # A foreign byte is found when its line is reached, not when it is read ahead.
        stream = io.TextIOWrapper(_open_bytes(path), encoding="utf-8-sig", errors="surrogateescape", newline="")
        with stream:
            for number, text in enumerate(stream, start=1):
                if not text.isascii() and _FOREIGN.search(text):
                    raise DataError(f"{path}, line {number}: not UTF-8 text; save the file as UTF-8")
                yield text
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read; damaged? ({error})") from error


def _open_bytes(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")
