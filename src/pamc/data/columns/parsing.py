"""Parse numbers, dates, times and yes/no values in the notations and languages of several countries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pamc.data.columns.raw import MISSING_NUMBERS

# The two ways to read the separators of a number. A number with thousands separators does not start with 0, so 0.110
# is a decimal fraction.
POINT, COMMA = "decimal point", "decimal comma"
_PATTERNS = {
    POINT: re.compile(r"[+-]?(?=[.\d])([1-9]\d{0,2}(,\d{3})+|\d*)(\.\d*)?([eE][+-]?\d+)?"),
    COMMA: re.compile(r"[+-]?(?=[,\d])([1-9]\d{0,2}(\.\d{3})+|\d*)(,\d*)?([eE][+-]?\d+)?"),
}
# Most numbers: without separators of thousands, a unit or an exponent.
_PLAIN = re.compile(r"[+-]?\d{1,15}(\.\d{1,15})?")
_CURRENCIES = r"[$€£¥₹₽]|EUR|USD|GBP|CHF|JPY"
_UNIT = re.compile(rf"(?P<before>{_CURRENCIES})?\s*(?P<number>[+-]?[\d.,].*?)\s*(?P<after>%|{_CURRENCIES})?")
_SIGNED_UNIT = re.compile(rf"(?P<sign>[+-])\s*(?P<rest>({_CURRENCIES}).*)")
# A blank or an apostrophe between thousands.
_BLANK = re.compile(r"(?<=\d)[ \u00a0\u2009\u202f'’](?=\d{3}(\D|$))")


# Many such numbers, one per line: most columns contain no others, and one match is faster than many.
_MANY = {
    POINT: re.compile(r"(?:[+-]?(?:[1-9]\d{0,2}(?:,\d{3})+|\d{1,15})(?:\.\d{1,15})?\n)*+"),
    COMMA: re.compile(r"(?:[+-]?(?:[1-9]\d{0,2}(?:\.\d{3})+|\d{1,15})(?:,\d{1,15})?\n)*+"),
}


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


def plain_numbers(texts: Sequence[str], reading: str) -> NDArray[np.float64] | None:
    """Return texts as numbers (n,) in one reading; None unless each is a number without a unit, blank or exponent.

    Examples
    --------
    >>> plain_numbers(["1,234.5", "-7"], POINT), plain_numbers(["12 %"], POINT)
    (array([1234.5,   -7. ]), None)
    """
    joined = "\n".join(texts) + "\n"
    # A text with a line break would be read as two numbers.
    if _MANY[reading].fullmatch(joined) is None or joined.count("\n") != len(texts):
        return None
    joined = joined.replace(",", "") if reading == POINT else joined.replace(".", "").replace(",", ".")
    return np.array(list(map(float, joined.split())), dtype=np.float64)


def have_units(texts: Sequence[str], most_stray: float) -> bool:
    """Return whether nearly all texts have a currency or percent sign, that is, are intended to be numbers.

    Examples
    --------
    >>> have_units(["1.000 €", "1000.50.2 €"], 0.1), have_units(["12", "12 A"], 0.1)
    (True, False)
    """
    return sum(without_unit(text).unit != "" for text in texts) >= (1 - most_stray) * max(len(texts), 1)


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
# Times of day without a date. Minutes have two digits, so that ratios such as 4:3 are not times.
_TIMES_ALONE = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
_LIKE_TIME = re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d{1,6})?)?( [AaPp][Mm])?")
# The formats that numpy can also read, much faster.
_ISO = {
    "%Y-%m-%d": re.compile(r"(?!0000)\d{4}-\d\d-\d\d", re.ASCII),
    "%Y-%m-%d %H:%M:%S": re.compile(r"(?!0000)\d{4}-\d\d-\d\d \d\d:\d\d:[0-5]\d", re.ASCII),
}
# An offset from UTC in hours alone, which Python does not read.
_HOURS_FROM_UTC = re.compile(r"(:\d\d(\.\d+)?[+-]\d\d)$")

# If at least this share of so many texts have one date format, the others are errors.
_LEAST_DATES, _DATES_INSPECTED, _FEWEST_DATES = 0.9, 1000, 10
# Number of texts that are tried in all formats.
_FORMATS_INSPECTED = 30


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


def time_formats(texts: Sequence[str]) -> list[str]:
    """Return the formats of times of day that match all non-missing texts.

    Examples
    --------
    >>> time_formats(["9:05", "14:15"]), time_formats(["2:15 PM"]), time_formats(["4:3"])
    (['%H:%M'], ['%I:%M %p'], [])
    """
    present = [text for text in texts if text.lower() not in MISSING_NUMBERS]
    if not present or not all(_LIKE_TIME.fullmatch(text) for text in present):
        return []
    return [form for form in _TIMES_ALONE if all(_date(text, form) is not None for text in present)]


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


def are_dates(texts: Sequence[str]) -> bool:
    """Return whether all non-missing texts seem to be dates, perhaps in different formats.

    Examples
    --------
    >>> are_dates(["2024-01-31", "31/01/2024"]), are_dates(["2024-01-31", "room 12"])
    (True, False)
    """
    present = [text for text in texts if text.lower() not in MISSING_NUMBERS]
    if not present or not all(map(_LIKE_DATE.fullmatch, present)):
        return False
    return all(_formats_of(text) for text in present[:: -(-len(present) // _FORMATS_INSPECTED)])


def _formats_of(text: str) -> list[str]:
    return [date + time for date in _DATES for time in _TIMES if _date(text, date + time) is not None]


def read_dates(texts: Sequence[str], date_format: str) -> NDArray[np.datetime64]:
    """Return texts as dates (n,), NaT for those that do not have the format."""
    if (days := _iso_dates(texts, date_format)) is not None:
        return days
    dates = [_date(text, date_format) for text in texts]
    return np.array([np.datetime64("NaT") if date is None else np.datetime64(date, "s") for date in dates], "M8[s]")


def _iso_dates(texts: Sequence[str], date_format: str) -> NDArray[np.datetime64] | None:
    """Return texts as dates (n,) if all are dates in one of the most frequent formats, else None."""
    pattern = _ISO.get(date_format)
    if pattern is None or not texts or not all(map(pattern.fullmatch, texts)):
        return None
    try:
        return np.array(texts, dtype="M8[s]")
    except ValueError:
        return None


def _date(text: str, date_format: str) -> datetime | None:
    """Return the date, in UTC if the text has an offset; None if it does not have the format."""
    if date_format.endswith("%z"):
        text = _HOURS_FROM_UTC.sub(r"\1:00", text)
    try:
        date = datetime.strptime(text, date_format)
        return date if date.tzinfo is None else date.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


# The words for yes and no in several languages. Initials are listed only if they rarely mean anything else: "s" and
# "n" may mean south and north.
_PAIRS = (
    "yes no, y n, true false, t f, on off, 1 0, ja nein, j n, wahr falsch, an aus, oui non, vrai faux, sí no, si no, "
    "verdadero falso, sì no, vero falso, sim não, sim nao, verdadeiro falso, ja nee, waar onwaar, ja nej, ja nei, "
    "sand falsk, sant falskt, sant usant, kyllä ei, tak nie, prawda fałsz, ano ne, áno nie, da ne, da nu, igen nem, "
    "evet hayır, да нет, так ні, ναι όχι, はい いいえ, 是 否, 예 아니요"
)
_YES_NO = tuple((pair.split()[0], pair.split()[1]) for pair in _PAIRS.split(", "))
YES_WORDS, NO_WORDS = (frozenset(words) for words in zip(*_YES_NO, strict=True))


def yes_no_pair(texts: Sequence[str]) -> tuple[str, str] | None:
    """Return the words for no and yes if the values form a known pair, else None.

    Examples
    --------
    >>> yes_no_pair(["Ja", "nein"]), yes_no_pair(["ja", "non"])
    (('nein', 'ja'), None)
    """
    present = {text.lower() for text in texts}
    pairs = [(no, yes) for yes, no in _YES_NO if present <= {yes, no}]
    return pairs[0] if pairs else None
