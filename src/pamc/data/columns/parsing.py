"""Parse numbers and dates in the notations of several countries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pamc.data.columns.raw import MISSING_NUMBERS

# The two ways to read the separators of a number.
POINT, COMMA = "decimal point", "decimal comma"
_PATTERNS = {
    POINT: re.compile(r"[+-]?(?=[.\d])(\d{1,3}(,\d{3})+|\d*)(\.\d*)?([eE][+-]?\d+)?"),
    COMMA: re.compile(r"[+-]?(?=[,\d])(\d{1,3}(\.\d{3})+|\d*)(,\d*)?([eE][+-]?\d+)?"),
}
# Most numbers: without separators of thousands, a unit or an exponent.
_PLAIN = re.compile(r"[+-]?\d{1,15}(\.\d{1,15})?")
_CURRENCIES = r"[$€£¥₹₽]|EUR|USD|GBP|CHF|JPY"
_UNIT = re.compile(rf"(?P<before>{_CURRENCIES})?\s*(?P<number>[+-]?[\d.,].*?)\s*(?P<after>%|{_CURRENCIES})?")
_SIGNED_UNIT = re.compile(rf"(?P<sign>[+-])\s*(?P<rest>({_CURRENCIES}).*)")
# A blank or an apostrophe between thousands.
_BLANK = re.compile(r"(?<=\d)[ \u00a0\u2009\u202f'’](?=\d{3}(\D|$))")


class NumberText(NamedTuple):
    """A number without its unit: the remaining text, and the unit, "" for none."""

    text: str
    unit: str


class Numbers(NamedTuple):
    """Distinct texts as numbers.

    Parameters
    ----------
    values
        For each reading, the (n,) numbers, NaN for missing cells and for texts that are not numbers.
    is_number
        (n,) whether the text is a number in either reading or a missing cell.
    fits
        The readings in which every number of the column can be read.
    differs
        Index of a text whose value depends on the reading, or None.
    units
        The units that occur, "" for none.
    """

    values: dict[str, NDArray[np.float64]]
    is_number: NDArray[np.bool_]
    fits: tuple[str, ...]
    differs: int | None
    units: frozenset[str]


def read_numbers(texts: Sequence[str]) -> Numbers:
    """Parse distinct texts as numbers, with a decimal point and with a decimal comma.

    Examples
    --------
    >>> numbers = read_numbers(["1.234,50 €", "7,25 €"])
    >>> numbers.fits, numbers.values[COMMA].tolist()
    (('decimal comma',), [1234.5, 7.25])
    """
    missing = np.array([text.lower() in MISSING_NUMBERS for text in texts], dtype=bool)
    parts = [NumberText(text, "") if _PLAIN.fullmatch(text) else without_unit(text) for text in texts]
    values = {reading: np.array([_value(part.text, reading) for part in parts]) for reading in _PATTERNS}
    valid = {reading: np.isfinite(numbers) for reading, numbers in values.items()}
    is_number = valid[POINT] | valid[COMMA]
    differing = np.flatnonzero(valid[POINT] & valid[COMMA] & (values[POINT] != values[COMMA]))
    return Numbers(
        values,
        is_number | missing,
        tuple(reading for reading in _PATTERNS if valid[reading][is_number].all()),
        int(differing[0]) if len(differing) else None,
        frozenset(part.unit for part, number in zip(parts, is_number, strict=True) if number),
    )


def without_unit(text: str) -> NumberText:
    """Return a text without currency, percent sign and blanks between thousands.

    Examples
    --------
    >>> without_unit("$ 1,200"), without_unit("-£3.50"), without_unit("12 %")
    (NumberText(text='1,200', unit='$'), NumberText(text='-3.50', unit='£'), NumberText(text='12', unit='%'))
    """
    if signed := _SIGNED_UNIT.fullmatch(text):
        bare = without_unit(signed["rest"])
        return NumberText(signed["sign"] + bare.text, bare.unit)
    match = _UNIT.fullmatch(text)
    if match is None:
        return NumberText(text, "")
    return NumberText(_BLANK.sub("", match["number"]), match["before"] or match["after"] or "")


def _value(text: str, reading: str) -> float:
    if reading == POINT and _PLAIN.fullmatch(text):
        return float(text)
    if _PATTERNS[reading].fullmatch(text) is None:
        return np.nan
    plain = text.replace(",", "") if reading == POINT else text.replace(".", "").replace(",", ".")
    try:
        return float(plain)
    except ValueError:
        return np.nan


# Date formats. Those with numeric day and month come in pairs: most columns have a cell that rules one of them out.
_DATES = (
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%Y-%m",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%d.%m.%y",
    "%d/%m/%y",
    "%m/%d/%y",
    "%d %b %Y",
    "%d %B %Y",
    "%b %d, %Y",
    "%B %d, %Y",
    "%d-%b-%Y",
    "%d-%b-%y",
)
_CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%H:%M:%S%z", "%H:%M:%S.%f%z")
_TIMES = ("", *(mark + clock for mark in " T" for clock in _CLOCKS), " %I:%M %p", " %I:%M:%S %p")
_LIKE_DATE = re.compile(r"(?=.*\d)[\w:./, +-]{6,35}")
# An offset from UTC in hours alone, which Python does not read.
_HOURS_FROM_UTC = re.compile(r"(:\d\d(\.\d+)?[+-]\d\d)$")

# If at least this share of so many texts have one date format, the others are errors.
_LEAST_DATES, _DATES_INSPECTED, _FEWEST_DATES = 0.9, 1000, 10


def date_formats(texts: Sequence[str]) -> list[str]:
    """Return the date formats that all non-missing texts have, the preferred one first.

    Examples
    --------
    >>> date_formats(["31/01/2024", "2/2/2024"]), date_formats(["1/2/2024"])
    (['%d/%m/%Y'], ['%d/%m/%Y', '%m/%d/%Y'])
    """
    present = [text for text in texts if text.lower() not in MISSING_NUMBERS]
    if not present or not all(_LIKE_DATE.fullmatch(text) for text in present):
        return []
    return [form for form in _formats_of(present[0]) if all(_date(text, form) is not None for text in present)]


def usual_date_format(texts: Sequence[str]) -> str | None:
    """Return the date format that nearly all non-missing texts have, so that the others are errors; None without one.

    Examples
    --------
    >>> usual_date_format([*(f"2024-01-{day:02d}" for day in range(1, 30)), "not yet"])
    '%Y-%m-%d'
    """
    present = [text for text in texts if text.lower() not in MISSING_NUMBERS]
    present = present[:: -(-len(present) // _DATES_INSPECTED)] if present else []
    if len(present) < _FEWEST_DATES:
        return None
    for form in dict.fromkeys(form for text in present[:3] for form in _formats_of(text)):
        if sum(_date(text, form) is not None for text in present) >= _LEAST_DATES * len(present):
            return form
    return None


def _formats_of(text: str) -> list[str]:
    return [date + time for date in _DATES for time in _TIMES if _date(text, date + time) is not None]


def read_dates(texts: Sequence[str], date_format: str) -> NDArray[np.datetime64]:
    """Return texts as dates (n,), NaT for those that do not have the format."""
    dates = [_date(text, date_format) for text in texts]
    return np.array([np.datetime64("NaT") if date is None else np.datetime64(date, "s") for date in dates], "M8[s]")


def _date(text: str, date_format: str) -> datetime | None:
    """Return the date, in UTC if the text has an offset; None if it does not have the format."""
    if date_format.endswith("%z"):
        text = _HOURS_FROM_UTC.sub(r"\1:00", text)
    try:
        date = datetime.strptime(text, date_format)
        return date if date.tzinfo is None else date.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
