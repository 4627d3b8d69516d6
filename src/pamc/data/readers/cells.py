"""Cells of tables: where they stand, which of them are numbers, and what to say of one that is not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pamc.errors import DataError

__all__ = [
    "INTEGER",
    "MISSING",
    "SPACES",
    "Cell",
    "is_integer_text",
    "is_number_text",
    "not_a_number",
    "shorten",
]

SPACES = " \t"
INTEGER = re.compile(r"[+-]?[0-9]+(\.0*)?")
# Words for a cell without a value.
MISSING = {"nan", "na", "n/a", "null", "none", "?", "-"}

# Characters of a wrong cell that a message shows.
_LONGEST_SHOWN = 100
# Numbers as other countries and spreadsheets write them.
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)?,\d+")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}([.,])\d{3}(\1\d{3})*")
_THOUSANDS_COMMA = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_NO_FILL = (
    "pamc does not fill in values (there is no --impute): drop those rows or columns, or fill them as you see fit"
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


def shorten(text: str) -> str:
    """Return as much of a cell's text as a message shows."""
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


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
    return INTEGER.fullmatch(text.strip(SPACES)) is not None


def not_a_number(path: Path, cell: Cell, dtype: str) -> DataError:
    """Return the error that says what is wrong with a cell that should be a feature, and what to do about it."""
    return DataError(_number_problem(path, cell, dtype))


def _number_problem(path: Path, cell: Cell, dtype: str) -> str:
    text, where = cell.text, f"{path}: {cell.where}"
    if text is None or text.lower() in MISSING:
        what = "is empty" if text is None else f"is {text!r}"
        return f"{where}: the cell {what}. {_NO_FILL}"
    if is_number_text(text) and not np.isfinite(float(text)):
        return f"{where}: the cell is {text!r}, not finite. {_NO_FILL}"
    if is_number_text(text) and abs(float(text)) > float(np.finfo(dtype).max):
        return f"{where}: {text} is too large for {dtype}; rescale the column"
    if readings := _readings(text):
        return f"{where}: {readings}. Write numbers with a decimal point and nothing between the thousands"
    return (
        f"{where}: {text!r} is not a number. Leave a text column out (--drop {cell.column}), "
        f"use it to name the rows (--id {cell.column}), or encode it as numbers"
    )


def _readings(text: str) -> str | None:
    """Return how a number with separators can be read, None where it is not such a number.

    Examples
    --------
    >>> _readings("70,600")
    "'70,600' is 70600 if the comma separates thousands, 70.6 if it is a decimal comma"
    >>> _readings("3,5")
    "'3,5' has a decimal comma: 3.5"
    """
    grouped = text.replace(",", "")
    decimal = text.replace(".", "").replace(",", ".")
    is_grouped, is_decimal = _THOUSANDS_COMMA.fullmatch(text) is not None, _DECIMAL_COMMA.fullmatch(text) is not None
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
