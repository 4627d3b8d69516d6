"""The type of each column of a table, inferred from its cells or set by the user."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pamc.data.columns.parsing import (
    COMMA,
    POINT,
    YES_WORDS,
    Numbers,
    are_dates,
    date_formats,
    have_units,
    read_dates,
    read_numbers,
    time_formats,
    usual_date_format,
    yes_no_pair,
)
from pamc.data.columns.raw import MISSING_NUMBERS, RawColumn, RawTable, number_text
from pamc.errors import ConfigError, DataError, UnknownNameError, choices

# The types that a user may set.
NUMBER, BOOLEAN, CATEGORY, ORDERED, TEXT = "number", "yes/no", "category", "ordered", "text"
DATE, TIME = "date", "time"
# The indicator of the filled cells of a column; and two types that are not features.
GIVEN, ID, IGNORE = "given", "id", "ignore"
KINDS = (NUMBER, POINT, COMMA, BOOLEAN, CATEGORY, ORDERED, DATE, TIME, TEXT, GIVEN, ID, IGNORE)

# A function that embeds n texts as n vectors.
Embed: TypeAlias = "Callable[[list[str]], Any]"
# A type by name; the values of an ordered category, lowest first; or a function that embeds the texts of a column.
Types: TypeAlias = "Mapping[str, str | Sequence[str] | Embed]"

# If at most this share of the cells are not numbers, the column is numeric and these cells are errors.
_MOST_STRAY = 0.1
# A column with such cells is numeric only if it has at least this many different numbers.
_FEWEST_NUMBERS = 10

# Cells with at least this many words on average, most of which differ, are free text and not categories.
_WORDS_OF_TEXT = 4.0
_DISTINCT_TEXT = 0.5

# A category in which most rows have different values does not describe groups of rows.
_MOST_DISTINCT = 0.5

# A column with a single value is a feature if at least this share of its cells are filled, and as many are empty.
_LEAST_GIVEN = 0.01

_ID_NAME = re.compile(r"(.*[\W_])?(id|uuid|guid|key|index|nr|no)|.*[a-z]I[dD]|unnamed: ?\d+", re.ASCII)
_CODE_NAME = re.compile(r"(.*[\W_])?(zip|zipcode|postcode|plz|postal|postal_code|code)([\W_].*)?", re.ASCII)
# Integers of equal width with leading zeros are codes, such as postal codes.
_PADDED = re.compile(r"\d{4,}")
# So are long integers, which floating-point numbers cannot represent exactly.
_LONG = re.compile(r"\d{16,}")

# Two columns of numbers are copies of each other if they agree to this many digits after removing their units.
_DIGITS_COMPARED = 5

_MAX_CHARS = 40


@dataclass(frozen=True, eq=False)
class ColumnType:
    """The type of one column.

    Parameters
    ----------
    name, kind
        Name of the column, and one of `KINDS`.
    note
        Note for the user about how the type was chosen, or None.
    is_given
        Whether the user set the type.
    values
        (N,) numbers, datetime64[s], or codes of `levels`, −1 for missing cells; None for a column that is left out.
    levels
        Values of a category, indexed by code and sorted for an ordered category; or the words for no and yes.
    reading, unit, date_format
        How texts are read as numbers or as dates, and the unit of the numbers, "" for none.
    """

    name: str
    kind: str
    note: str | None = None
    is_given: bool = False
    values: NDArray[Any] | None = field(default=None, repr=False)
    levels: tuple[str, ...] = ()
    reading: str = POINT
    unit: str = ""
    date_format: str | None = None

    @property
    def is_feature(self) -> bool:
        """Whether the column is a feature."""
        return self.kind not in (ID, IGNORE)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """(N,) mask of the cells without a value."""
        values: Any = self.values
        if values.dtype.kind == "M":
            return np.asarray(np.isnat(values))
        return np.asarray(np.isnan(values) if values.dtype.kind == "f" else values < 0)


class ColumnError(Exception):
    """Raised if the cells of a column do not match its type; `text` is the first such cell, None if there is none."""

    def __init__(self, message: str, *, text: str | None = None) -> None:
        super().__init__(message)
        self.text = text


def find_types(table: RawTable, types: Types | None = None) -> list[ColumnType]:
    """Return the type of every column; raise one DataError that lists the problems of all columns.

    Parameters
    ----------
    table
        The raw columns.
    types
        Types that the user sets, by column name.

    Examples
    --------
    >>> city = RawColumn("city", texts=np.array(["Köln", "Bonn", "Köln", "Bonn"], dtype=object))
    >>> price = RawColumn("price", texts=np.array(["1,50", "2", "3,25", None], dtype=object))
    >>> [(column.name, column.kind) for column in find_types(RawTable([city, price], 4))]
    [('city', 'category'), ('price', 'number')]
    """
    chosen = _checked_types(table, types or {})
    numbers = {column.name: read_numbers(column.distinct.texts) for column in table.columns if column.texts is not None}
    usual = _usual_reading(numbers.values())
    columns, problems = [], []
    for column in table.columns:
        try:
            columns.append(_Finder(table, column, numbers.get(column.name), usual).find(chosen.get(column.name)))
        except ColumnError as problem:
            problems.append(f"column {column.name!r}: {problem}")
    if problems:
        raise DataError(f"{table.source}: {listed_problems(problems)}")
    return _without_copies(_with_one_id(columns))


def listed_problems(problems: list[str]) -> str:
    """Return all problems in one message."""
    if len(problems) == 1:
        return problems[0]
    return f"{len(problems)} problems: " + "; ".join(f"({i}) {text}" for i, text in enumerate(problems, start=1))


def _checked_types(table: RawTable, types: Types) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the kind that the user sets for each column, and the order of its values."""
    chosen: dict[str, tuple[str, tuple[str, ...]]] = {}
    if not isinstance(types, Mapping):
        raise ConfigError(f"types must be a dict of types by column name, got {type(types).__name__}")
    for name, kind in types.items():
        if name not in table:
            known = choices(name, table.names).replace("allowed are", "the columns are")
            raise DataError(f"{table.source}: types names a column {name!r} that does not exist; {known}")
        if callable(kind):
            chosen[name] = (TEXT, ())
        elif isinstance(kind, str) and "<" not in kind:
            if kind not in KINDS:
                raise UnknownNameError("column type", kind, KINDS)
            chosen[name] = (kind, ())
        else:
            chosen[name] = (ORDERED, _order(name, kind))
    return chosen


def _order(name: str, values: Any) -> tuple[str, ...]:
    """Return the values of an ordered category, lowest first, as the texts of its cells."""
    if isinstance(values, str):
        values = [value.strip() for value in values.split("<")]
    elif not isinstance(values, Sequence | np.ndarray):
        raise ConfigError(
            f"the type of column {name!r} must be a name, a list of ordered values or a function, got "
            f"{type(values).__name__}"
        )
    is_number = (int, float, np.integer, np.floating)
    texts = tuple(number_text(float(v)) if isinstance(v, is_number) else str(v).strip() for v in values)
    if len(set(texts)) < max(2, len(texts)) or "" in texts:
        got = "<".join(texts)
        raise ConfigError(f"the order of column {name!r} must list at least two different values, got {got!r}")
    return texts


def _usual_reading(columns: Any) -> str | None:
    """Return the decimal separator that all unambiguous columns of a table share, or None."""
    readings = {numbers.fits[0] for numbers in columns if len(numbers.fits) == 1 and numbers.is_number.all()}
    return readings.pop() if len(readings) == 1 else None


@dataclass(frozen=True)
class _Finder:
    """Infers the type of one column; `usual` is the decimal separator that the other columns of the table share."""

    table: RawTable
    column: RawColumn
    numbers: Numbers | None
    usual: str | None

    def find(self, chosen: tuple[str, tuple[str, ...]] | None) -> ColumnType:
        """Return the type that the user sets, that the source declares, or that is inferred from the cells."""
        if chosen is not None:
            return replace(self._as(*chosen), is_given=True)
        if not self._has_values():
            return self._left_out("has no values")
        if self.column.declared is not None:
            return self._checked(self._as(self.column.declared, self.column.order or ()))
        if self.column.dates is not None:
            return self._checked(self._as_date())
        return self._checked(self._of_numbers() if self.column.numbers is not None else self._of_texts())

    def _has_values(self) -> bool:
        if self.column.texts is None:
            return True if self.column.dates is None else not bool(np.isnat(self.column.dates).all())
        return any(text.lower() not in MISSING_NUMBERS for text in self.column.distinct.texts)

    def _as(self, kind: str, order: tuple[str, ...]) -> ColumnType:
        name = self.column.name
        if kind in (ID, IGNORE):
            return ColumnType(name, kind)
        if kind in (NUMBER, POINT, COMMA):
            return self._as_number(None if kind == NUMBER else kind)
        if kind == BOOLEAN:
            return self._as_boolean()
        if kind in (DATE, TIME):
            return self._as_date(kind)
        if kind == ORDERED:
            return self._as_ordered(order)
        if kind == GIVEN:
            return ColumnType(name, kind, values=(self.column.distinct.codes >= 0).astype(np.float64))
        return ColumnType(name, kind, values=self.column.distinct.codes, levels=tuple(self.column.distinct.texts))

    def _left_out(self, why: str) -> ColumnType:
        return ColumnType(self.column.name, IGNORE, f"left out: {why}")

    def _checked(self, column: ColumnType) -> ColumnType:
        """Return the type; a column with a single value becomes "given" or is left out."""
        if not column.is_feature or column.values is None:
            return column
        present = column.values[~column.missing]
        if len(present) == 0:
            return self._left_out("has no values")
        if (present == present[0]).all():
            example = _short(self._cell(int(np.flatnonzero(~column.missing)[0])))
            if _LEAST_GIVEN <= len(present) / len(column.values) <= 1 - _LEAST_GIVEN:
                note = f"every value is {example!r}, so only whether a cell is filled is used"
                return replace(self._as(GIVEN, ()), note=note)
            return self._left_out(f"every value is {example!r}")
        return column

    def _cell(self, row: int) -> str:
        texts, codes = self.column.distinct
        return texts[codes[row]] if codes[row] >= 0 else ""

    def _where(self, text: str) -> str:
        """Return a cell and its location, for messages."""
        texts, codes = self.column.distinct
        row = int(np.flatnonzero(codes == texts.index(text))[0])
        return f"{_short(text)!r} ({self.table.where(row)})"

    # Columns that are stored as numbers.

    def _of_numbers(self) -> ColumnType:
        numbers: Any = self.column.numbers
        present = numbers[~np.isnan(numbers)]
        if _is_identifier(self.column.name, present, len(numbers)):
            return ColumnType(self.column.name, ID, "identifies the rows")
        if _CODE_NAME.fullmatch(self.column.name.lower()) and _are_codes(present):
            note = f"read as codes because of the name of the column; if these are numbers, give it the type {NUMBER}"
            return replace(self._as(CATEGORY, ()), note=note)
        if np.isin(present, (0.0, 1.0)).all() and len(np.unique(present)) == 2:
            return self._as_boolean()
        return self._as_number(None)

    # Columns that are stored as texts.

    def _of_texts(self) -> ColumnType:
        texts, numbers = self.column.distinct.texts, self._numbers
        present = [text for text in texts if text.lower() not in MISSING_NUMBERS]
        if yes_no_pair(present) is not None:
            return self._as_boolean()
        if all(map(_LONG.fullmatch, present)):
            words, why = self._of_words(), "read as codes because all cells have 16 or more digits"
            return replace(words, note=words.note or f"{why}; if these are numbers, give it the type {NUMBER}")
        if numbers.is_number.all() or self._has_strays():
            if _are_padded(present) and self._is_unique():
                return ColumnType(self.column.name, ID, "identifies the rows")
            if _are_padded(present):
                note = f"read as codes because of leading zeros; if these are numbers, give it the type {NUMBER}"
                return replace(self._as(CATEGORY, ()), note=note)
            as_number = self._as_number(None)
            values: Any = as_number.values
            plain = RawColumn(self.column.name, numbers=values)
            other = replace(self, column=plain)._of_numbers()
            return as_number if other.kind in (NUMBER, BOOLEAN) else replace(self._as(other.kind, ()), note=other.note)
        if date_formats(present) or usual_date_format(present) is not None or are_dates(present):
            return self._as_date()
        return self._as_date(TIME) if time_formats(present) else self._of_words()

    def _is_unique(self) -> bool:
        """Return whether every row has a value of its own."""
        texts, codes = self.column.distinct
        return len(texts) == len(codes) > 2

    @property
    def _numbers(self) -> Numbers:
        return self.numbers or read_numbers(self.column.distinct.texts)

    def _has_strays(self) -> bool:
        """Return whether nearly all cells are numbers, so that the other cells are errors."""
        codes = self.column.distinct.codes
        is_number = self._numbers.is_number
        n_strays = int((~is_number[codes[codes >= 0]]).sum())
        n_numbers = int(is_number.sum())
        if n_strays <= _MOST_STRAY * len(codes) and n_numbers >= max(_FEWEST_NUMBERS, 2 * (~is_number).sum()):
            return True
        return have_units(self.column.distinct.texts, _MOST_STRAY)

    def _of_words(self) -> ColumnType:
        texts, codes = self.column.distinct
        n_present = int((codes >= 0).sum())
        n_words = float(np.mean([len(text.split()) for text in texts]))
        share = len(texts) / n_present
        if n_words >= _WORDS_OF_TEXT and share > _DISTINCT_TEXT:
            return self._as(TEXT, ())
        if self._is_unique():
            return ColumnType(self.column.name, ID, "identifies the rows")
        if share > _MOST_DISTINCT and len(texts) > 2:
            return self._left_out(f"{len(texts)} different values in {n_present} rows are too many for a category")
        return self._as(CATEGORY, ())

    # Conversion of the cells to each type.

    def _as_number(self, reading: str | None) -> ColumnType:
        name = self.column.name
        if self.column.numbers is not None:
            return ColumnType(name, NUMBER, values=self.column.numbers)
        if self.column.dates is not None:
            raise ColumnError("dates cannot be read as numbers; give it the type date")
        texts, codes = self.column.distinct
        numbers = self._numbers
        strays = [text for text, is_number in zip(texts, numbers.is_number, strict=True) if not is_number]
        if strays:
            raise ColumnError(
                f"{self._where(strays[0])} is not a number"
                + (f", nor are {len(strays) - 1} other values" if len(strays) > 1 else "")
                + "; correct or empty such cells, or give the column another type, such as category"
            )
        if len(numbers.units) > 1:
            raise ColumnError(f"mixes units: {', '.join(unit or 'none' for unit in sorted(numbers.units))}")
        reading, note = self._reading(numbers, reading)
        values = np.append(numbers.values[reading], np.nan)[codes]
        return ColumnType(name, NUMBER, note, values=values, reading=reading, unit="".join(numbers.units))

    def _reading(self, numbers: Numbers, wanted: str | None) -> tuple[str, str | None]:
        """Return the decimal separator of a column, and a note if it is ambiguous."""
        texts = self.column.distinct.texts
        if wanted is not None and wanted not in numbers.fits:
            wrong = next(text for text, value in zip(texts, numbers.values[wanted], strict=True) if np.isnan(value))
            raise ColumnError(f"{self._where(wrong)} has no {wanted}")
        if not numbers.fits:
            by_point, by_comma = (_only_in(numbers, texts, reading) for reading in (POINT, COMMA))
            raise ColumnError(
                f"{self._where(by_point)} has a decimal point, but {self._where(by_comma)} has a decimal comma; "
                "use the same decimal separator in all cells"
            )
        if wanted is not None or len(numbers.fits) == 1:
            return wanted or numbers.fits[0], None
        if numbers.differs is None:
            return POINT, None
        reading, text = self.usual or POINT, texts[numbers.differs]
        other = COMMA if reading == POINT else POINT
        values = {name: numbers.values[name][numbers.differs] for name in (POINT, COMMA)}
        why = "as in other columns" if self.usual else "every cell allows both readings"
        return reading, (
            f"{text} is read as {values[reading]:.15g} ({why}); if it is {values[other]:.15g}, give it the type {other}"
        )

    def _as_boolean(self) -> ColumnType:
        texts, codes = self.column.distinct
        pair = yes_no_pair(texts)
        if pair is None:
            listed = ", ".join(map(_short, texts[:4]))
            raise ColumnError(f"is not a yes/no column; its values are {listed}")
        value = np.array([float(text.lower() in YES_WORDS) for text in texts] + [np.nan])
        return ColumnType(self.column.name, BOOLEAN, values=value[codes], levels=pair)

    def _as_date(self, kind: str = DATE) -> ColumnType:
        """Return a column of dates, or of times of day with or without a date."""
        name, dates = self.column.name, self.column.dates
        if dates is not None:
            return ColumnType(name, kind, values=dates)
        if self.column.texts is None:
            example = "2024-01-31" if kind == DATE else "14:15"
            raise ColumnError(f"numbers cannot be read as {kind}s; write them like {example}")
        texts, codes = self.column.distinct
        formats = (time_formats(texts) if kind == TIME else []) or date_formats(texts)
        if not formats:
            find_odd = _first_odd_time if kind == TIME else _first_odd_date
            raise ColumnError(f"{self._where(find_odd(texts))} is not a {kind} like the others")
        note, values = None, read_dates(texts, formats[0])
        others = [read_dates(texts, date_format) for date_format in formats[1:]]
        differing = [(values != other) & ~np.isnat(values) for other in others]
        if any(differs.any() for differs in differing):
            other, differs = next(pair for pair in zip(others, differing, strict=True) if pair[1].any())
            number = int(np.flatnonzero(differs)[0])
            readings = " or ".join(str(dates[number])[:10] for dates in (values, other))
            note = f"{texts[number]} is read with the day first, but every cell is ambiguous ({readings})"
        values = np.append(values, np.datetime64("NaT"))[codes]
        return ColumnType(name, kind, note, values=values, date_format=formats[0])

    def _as_ordered(self, order: tuple[str, ...]) -> ColumnType:
        texts, codes = self.column.distinct
        if not order:
            numbers = read_numbers(texts)
            if not numbers.is_number.all():
                raise ColumnError(
                    f"an ordered category of words needs its order: give it the type {'<'.join(texts[:3])}"
                )
            reading = self._reading(numbers, None)[0]
            order = tuple(np.array(texts)[np.argsort(numbers.values[reading], kind="stable")].tolist())
        unknown = [text for text in texts if text not in order]
        if unknown:
            raise ColumnError(f"{self._where(unknown[0])} is not in the given order {'<'.join(order)}")
        places = np.array([order.index(text) for text in texts] + [-1], dtype=np.int64)
        return ColumnType(self.column.name, ORDERED, values=places[codes], levels=order)


def _only_in(numbers: Numbers, texts: list[str], reading: str) -> str:
    other = COMMA if reading == POINT else POINT
    fits = ~np.isnan(numbers.values[reading]) & np.isnan(numbers.values[other])
    return texts[int(np.flatnonzero(fits)[0])]


def _first_odd_date(texts: list[str]) -> str:
    """Return the first text that lacks the usual date format, or that shares no format with the texts before it."""
    if (usual := usual_date_format(texts)) is not None:
        is_odd = np.isnat(read_dates(texts, usual))
        return next(
            text for text, odd in zip(texts, is_odd, strict=True) if odd and text.lower() not in MISSING_NUMBERS
        )
    for number in range(1, len(texts)):
        if not date_formats(texts[: number + 1]):
            return texts[number]
    return texts[0]


def _first_odd_time(texts: list[str]) -> str:
    """Return the first text that is not a time of day, or the first whose format differs from the preceding ones."""
    is_time = [bool(time_formats([text])) or text.lower() in MISSING_NUMBERS for text in texts]
    if any(is_time) and not all(is_time):
        return texts[is_time.index(False)]
    return next((text for number, text in enumerate(texts) if not time_formats(texts[: number + 1])), texts[0])


def _is_identifier(name: str, present: NDArray[np.float64], n_rows: int) -> bool:
    """Return whether a column of numbers identifies rows: different integers, named like an id or without gaps."""
    if len(present) != n_rows or n_rows < 3 or not _are_codes(present) or len(np.unique(present)) < n_rows:
        return False
    return bool(_ID_NAME.fullmatch(name.strip()) or _ID_NAME.fullmatch(name.strip().lower())) or (
        present.max() - present.min() == n_rows - 1 and present.min() in (0, 1)
    )


def _are_codes(present: NDArray[np.float64]) -> bool:
    return bool((present == np.floor(present)).all() and (present >= 0).all())


def _are_padded(texts: Sequence[str]) -> bool:
    widths = {len(text) for text in texts}
    return len(widths) == 1 and any(text[0] == "0" for text in texts) and all(map(_PADDED.fullmatch, texts))


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…"


def _with_one_id(columns: list[ColumnType]) -> list[ColumnType]:
    """Return the types with at most one id: one set by the user, else one named like an id, else the first."""
    ids = [column for column in columns if column.kind == ID]
    if not ids:
        return columns
    ids.sort(key=lambda column: (not column.is_given, _ID_NAME.fullmatch(column.name.lower()) is None))
    return [
        replace(column, kind=IGNORE, note=f"left out: {ids[0].name!r} identifies the rows already")
        if column.kind == ID and column is not ids[0]
        else column
        for column in columns
    ]


def _comparable(column: ColumnType) -> NDArray[Any]:
    """Return the values of a column for comparison; numbers are scaled so that linear functions of each other agree."""
    values: Any = column.values
    present = values[~column.missing]
    if column.kind != NUMBER or len(present) < _FEWEST_NUMBERS or present[0] == present.mean():
        return np.asarray(values)
    scaled = (values - present.mean()) / (present[0] - present.mean())
    return np.asarray(np.round(scaled / np.abs(scaled[~column.missing]).max(), _DIGITS_COMPARED)) + 0.0


def _without_copies(columns: list[ColumnType]) -> list[ColumnType]:
    """Return the types without columns that have the same values as an earlier one, perhaps in another unit."""
    first: dict[tuple[str, bytes], str] = {}
    result = []
    for column in columns:
        if not column.is_feature or column.values is None:
            result.append(column)
            continue
        key = (column.kind, _comparable(column).tobytes())
        earlier = first.setdefault(key, column.name)
        is_copy = earlier != column.name and not column.is_given
        result.append(
            ColumnType(column.name, IGNORE, f"left out: the same as column {earlier!r}") if is_copy else column
        )
    return result
