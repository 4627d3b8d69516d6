"""Encode typed columns as numbers in their original units: one column per number, and one per value of a category.

The encoding is fitted once and stored with the model, so that new rows are encoded from the same raw columns. Missing
cells, values that do not occur in the training data, and missing columns become NaN.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.columns.parsing import read_dates, read_numbers, without_unit
from pamc.data.columns.raw import MISSING_NUMBERS, RawColumn, RawTable
from pamc.data.columns.types import (
    BOOLEAN,
    CATEGORY,
    DATE,
    GIVEN,
    NUMBER,
    ORDERED,
    TEXT,
    YES_NO,
    ColumnError,
    ColumnType,
    Types,
    listed_problems,
)
from pamc.errors import DataError, DataWarning, warn

Wide = NDArray[np.float32]

# Values of a category that occur in fewer rows are pooled, and so are the rarest values beyond a maximum number.
_LEAST_ROWS, _LEAST_SHARE, _MOST_VALUES = 2, 0.005, 100
OTHER = "(other)"

# Maximum number of words of a text column, the most frequent ones, and the fewest rows that a word must occur in.
_MOST_WORDS, _LEAST_ROWS_OF_WORD = 300, 3

# The season is encoded only if the dates span at least this many years.
_LEAST_YEARS = 2.0
_SECONDS_PER_DAY, _DAYS_PER_YEAR = 86400, 365.2425

# A column of new rows raises an error if a larger share of its values does not occur in the training data.
_MOST_UNREADABLE = 0.5
_FEWEST_COMPARED = 2


@dataclass(frozen=True)
class Variable:
    """One encoded column of a table.

    Parameters
    ----------
    name, kind
        Name and type of the raw column.
    columns
        Names of its encoded columns.
    levels
        Values of a category, one per encoded column, the last of which may be "(other)"; the values of an ordered
        category; the words of a text; or the words for no and yes.
    weights
        Inverse document frequency of each word.
    reading, unit, date_format
        How texts are read as numbers or dates, and the unit of the numbers, "" for none.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    levels: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    reading: str = ""
    unit: str = ""
    date_format: str | None = None

    @property
    def encoded_as(self) -> str:
        """Description of the encoding, as shown to the user."""
        n = len(self.columns)
        if self.kind == CATEGORY:
            pooled = ", rare values pooled" if self.levels[-1] == OTHER else ""
            return f"{n} columns, one per value{pooled}"
        if self.kind == TEXT:
            return f"tf-idf of {n} words"
        if self.kind == DATE:
            return ", ".join(column.removeprefix(f"{self.name}: ") for column in self.columns)
        if self.kind == ORDERED:
            return f"rank 0 to {len(self.levels) - 1}"
        return {NUMBER: "robustly scaled", BOOLEAN: "0 or 1", GIVEN: "1 if the cell is filled, else 0"}[self.kind]

    def values(self, column: RawColumn) -> Wide:
        """Return the encoded columns (N, n) of a raw column; raise ColumnError if its cells do not match the type."""
        encoded = _ENCODERS[self.kind](self, column)
        return np.asarray(encoded, dtype=np.float32).reshape(len(column), len(self.columns))

    def dates(self, column: RawColumn) -> NDArray[np.datetime64]:
        """Return the cells (N,) of a raw column of dates, NaT if missing; raise ColumnError if they are no dates."""
        if column.dates is not None:
            return column.dates
        if column.texts is None:
            raise ColumnError("contains numbers; in the training data it contains dates")
        texts, codes = column.distinct
        read = read_dates(texts, self.date_format or "%Y-%m-%d")
        is_wrong = np.isnat(read) & [text.lower() not in MISSING_NUMBERS for text in texts]
        if is_wrong.any():
            wrong = texts[int(np.flatnonzero(is_wrong)[0])]
            raise ColumnError(f"{wrong!r} is not a date like those in the training data", text=wrong)
        return np.asarray(np.append(read, np.datetime64("NaT"))[codes])


@dataclass(frozen=True)
class TableEncoding:
    """The encoding of a table.

    Parameters
    ----------
    variables
        The encoded variables. Unless all are numbers, they are sorted by a hash of their values, so that the order of
        the columns in the table does not matter.
    id_column
        Column of the row ids, or None.
    table
        One row per column of the training table, in its order, with the keys `name`, `type`, `encoding`, `missing`,
        `example` and `note`.
    types
        Types set by the user, by column name.
    """

    variables: tuple[Variable, ...]
    id_column: str | None
    table: tuple[dict[str, Any], ...]
    types: dict[str, str | list[str]] = field(default_factory=dict)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return tuple(name for variable in self.variables for name in variable.columns)

    @cached_property
    def raw_names(self) -> tuple[str, ...]:
        """Names of the raw columns that are features, in the order of the training table."""
        encoded = {variable.name for variable in self.variables}
        return tuple(row["name"] for row in self.table if row["name"] in encoded)

    @cached_property
    def variable_of(self) -> NDArray[np.int64]:
        """(d,) index of the variable that each encoded column belongs to."""
        return np.repeat(np.arange(len(self.variables)), [len(variable.columns) for variable in self.variables])

    @cached_property
    def is_number(self) -> NDArray[np.bool_]:
        """(d,) whether each encoded column is a number, which may have outliers."""
        return np.array([self.variables[i].kind == NUMBER for i in self.variable_of], dtype=bool)

    def encode(self, table: RawTable) -> Wide:
        """Return the encoded columns (N, d) of new rows, NaN for missing cells.

        Columns are matched by name and may be in any order. A missing column is encoded as NaN, with a warning;
        additional columns are ignored.
        """
        missing = [name for name in self.raw_names if name not in table]
        if len(missing) == len(self.variables):
            raise DataError(
                f"{table.source}: has none of the columns the model was fitted on: {', '.join(self.raw_names[:5])}"
            )
        if missing:
            listed = ", ".join(map(repr, missing[:5]))
            which = f"column {listed}: its" if len(missing) == 1 else f"columns {listed}: their"
            warn(DataWarning(f"{table.source}: has no {which} cells count as missing"), stacklevel=2)
        parts, problems = [], []
        for variable in self.variables:
            try:
                unknown = np.full((table.n_rows, len(variable.columns)), np.nan, dtype=np.float32)
                parts.append(variable.values(table[variable.name]) if variable.name in table else unknown)
            except ColumnError as problem:
                problems.append(f"column {variable.name!r}: {problem}{_located(problem, table, variable.name)}")
        if problems:
            raise DataError(f"{table.source}: {listed_problems(problems)}")
        return np.concatenate(parts, axis=1)

    def cells_of(self, table: RawTable) -> dict[str, NDArray[Any]]:
        """Return the cells (N,) of the features as the table has them: texts (None if missing), numbers or dates."""
        return {name: _cells(table[name]) for name in self.raw_names if name in table}

    def to_dict(self) -> dict[str, Any]:
        """Return the encoding as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TableEncoding:
        """Return the encoding from the values that :meth:`to_dict` returns."""
        described: list[dict[str, Any]] = values["variables"]
        variables = []
        for variable in described:
            fields: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in variable.items()}
            variables.append(Variable(**fields))
        return cls(tuple(variables), values["id_column"], tuple(values["table"]), values.get("types", {}))


def fit_encoding(
    table: RawTable, columns: Sequence[ColumnType], types: Types | None = None
) -> tuple[TableEncoding, Wide]:
    """Return the encoding of a table with the given column types, and its encoded rows (N, d).

    `types` are the types set by the user, which are recorded in the encoding.
    """
    encoded: list[tuple[Variable, Wide]] = []
    replaced: dict[str, str] = {}
    for column in columns:
        if column.is_feature:
            variable = _variable(column)
            if variable is None:
                replaced[column.name] = "left out: no value occurs in two rows or more"
            else:
                encoded.append((variable, variable.values(table[column.name])))
    if not encoded:
        raise DataError(f"{table.source}: no feature column is left; {_why_left_out(columns, replaced)}")
    if any(variable.kind != NUMBER for variable, _ in encoded):
        encoded.sort(key=lambda pair: hashlib.sha256(pair[1].tobytes()).digest())
    by_name = {variable.name: variable for variable, _ in encoded}
    ids = [column.name for column in columns if column.kind == "id"]
    rows = tuple(_described(table[c.name], c, by_name.get(c.name), replaced.get(c.name, c.note)) for c in columns)
    given = {name: kind if isinstance(kind, str) else list(kind) for name, kind in (types or {}).items()}
    encoding = TableEncoding(tuple(variable for variable, _ in encoded), ids[0] if ids else None, rows, given)
    return encoding, np.concatenate([wide for _, wide in encoded], axis=1)


def _located(problem: ColumnError, table: RawTable, name: str) -> str:
    """Return the location of the cell that a problem is about, for its message."""
    if problem.text is None:
        return ""
    texts, codes = table[name].distinct
    return f" ({table.where(int(np.flatnonzero(codes == texts.index(problem.text))[0]))})"


def _cells(column: RawColumn) -> NDArray[Any]:
    if column.texts is None:
        cells: Any = column.dates if column.numbers is None else column.numbers
        return np.asarray(cells)
    texts, codes = column.distinct
    return np.array([*texts, None], dtype=object)[codes]


def _why_left_out(columns: Sequence[ColumnType], replaced: dict[str, str]) -> str:
    notes = [f"{column.name!r} {replaced.get(column.name, column.note) or 'is not a feature'}" for column in columns]
    return "; ".join(notes[:5])


def _described(
    column: RawColumn, column_type: ColumnType, variable: Variable | None, note: str | None
) -> dict[str, Any]:
    """Return one row of the table that `pamc describe` prints."""
    texts, codes = column.distinct
    is_left_out = variable is None and column_type.kind != "id"
    has_codes = column_type.values is None or is_left_out or column_type.kind == GIVEN
    missing = (codes < 0) if has_codes else column_type.missing
    is_numeric = column_type.kind in (NUMBER, DATE)
    examples = (text for text in texts if not (is_numeric and text.lower() in MISSING_NUMBERS))
    return {
        "name": column_type.name,
        "type": "left out" if is_left_out else column_type.kind,
        "encoding": "row names" if column_type.kind == "id" else "–" if variable is None else variable.encoded_as,
        "missing": float(missing.mean()) if len(missing) else 0.0,
        "example": next(examples, ""),
        "note": note,
    }


# Functions that fit a variable to a typed column.


def _variable(column: ColumnType) -> Variable | None:
    if column.kind in (CATEGORY, TEXT):
        return _fit_category(column) if column.kind == CATEGORY else _fit_words(column)
    if column.kind == DATE:
        return _fit_date(column)
    name = f"{column.name} is given" if column.kind == GIVEN else column.name
    return Variable(column.name, column.kind, (name,), column.levels, reading=column.reading, unit=column.unit)


def _fit_category(column: ColumnType) -> Variable | None:
    """Return a category with one column per common value, the most common first, then by first appearance."""
    codes: Any = column.values
    counts = np.bincount(codes[codes >= 0], minlength=len(column.levels))
    least = max(_LEAST_ROWS, int(np.ceil(_LEAST_SHARE * counts.sum())))
    order = np.argsort(-counts, kind="stable")[:_MOST_VALUES]
    common = [int(code) for code in order if counts[code] >= least]
    if not common:
        return None
    levels = [column.levels[code] for code in common]
    if counts.sum() - counts[common].sum() >= least:
        levels.append(OTHER)
    if len(levels) < 2:
        return None
    return Variable(column.name, CATEGORY, tuple(f"{column.name} = {level}" for level in levels), tuple(levels))


def _fit_words(column: ColumnType) -> Variable | None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    codes: Any = column.values
    texts = [column.levels[code] for code in codes if code >= 0]
    options: dict[str, Any] = {"min_df": _LEAST_ROWS_OF_WORD, "max_df": 0.5, "max_features": _MOST_WORDS}
    try:
        vectorizer = TfidfVectorizer(**options).fit(texts)
    except ValueError:
        # No word is left.
        return None
    words = vectorizer.get_feature_names_out().tolist()
    names = tuple(f"{column.name}: {word}" for word in words)
    return Variable(column.name, TEXT, names, tuple(words), tuple(vectorizer.idf_.tolist()))


def _fit_date(column: ColumnType) -> Variable:
    dates: Any = column.values[~column.missing] if column.values is not None else None
    parts = ["year"]
    if (dates.max() - dates.min()).astype(np.int64) >= _LEAST_YEARS * _DAYS_PER_YEAR * _SECONDS_PER_DAY:
        parts += ["season (cosine)", "season (sine)"]
    if len(np.unique(dates.astype(np.int64) % _SECONDS_PER_DAY)) > 1:
        parts += ["time of day (cosine)", "time of day (sine)"]
    names = tuple(f"{column.name}: {part}" for part in parts)
    return Variable(column.name, DATE, names, tuple(parts), date_format=column.date_format)


# Functions that encode raw cells.


def _encode_number(variable: Variable, column: RawColumn) -> NDArray[Any]:
    if column.numbers is not None:
        return column.numbers
    if column.dates is not None:
        raise ColumnError("contains dates; in the training data it contains numbers")
    texts, codes = column.distinct
    numbers = read_numbers(texts)
    values = np.append(numbers.values[variable.reading], np.nan)
    wrong = [
        text for text, value, ok in zip(texts, values[:-1], numbers.is_number, strict=True) if _is_bad(value, ok, text)
    ]
    if wrong:
        raise ColumnError(
            f"{wrong[0]!r} is not a number with a {variable.reading}, as in the training data", text=wrong[0]
        )
    if not numbers.units <= {variable.unit}:
        other = next(text for text in texts if without_unit(text).unit != variable.unit)
        raise ColumnError(f"{other!r} does not have {_unit(variable.unit)}, as in the training data", text=other)
    return np.asarray(values[codes])


def _unit(unit: str) -> str:
    return f"the unit {unit}" if unit else "a number without a unit"


def _is_bad(value: float, is_number: bool, text: str) -> bool:
    return bool(np.isnan(value)) and (not is_number or any(mark.isdigit() for mark in text))


def _encode_boolean(variable: Variable, column: RawColumn) -> NDArray[Any]:
    texts, codes = column.distinct
    no, yes = variable.levels
    wrong = [text for text in texts if text.lower() not in (*YES_NO, *YES_NO.values())]
    if wrong:
        raise ColumnError(f"{wrong[0]!r} is neither {yes} nor {no}", text=wrong[0])
    return np.array([float(text.lower() in YES_NO) for text in texts] + [np.nan])[codes]


def _encode_given(variable: Variable, column: RawColumn) -> NDArray[Any]:
    return (column.distinct.codes >= 0).astype(np.float64)


def _encode_category(variable: Variable, column: RawColumn) -> NDArray[Any]:
    """Return indicators of the values; an unseen value counts as "(other)", or as missing if there is no such value."""
    texts, codes = column.distinct
    place = {level: i for i, level in enumerate(variable.levels)}
    other = place.get(OTHER, -1)
    places = np.array([place.get(text, other) for text in texts] + [-1], dtype=np.int64)
    rows = np.vstack([np.eye(len(place), dtype=np.float32), np.full(len(place), np.nan, dtype=np.float32)])
    _check_known(texts, places[:-1] >= 0 if other < 0 else np.array([text in place for text in texts]), other >= 0)
    return np.asarray(rows[places[codes]])


def _check_known(texts: list[str], is_known: NDArray[np.bool_], has_other: bool = False) -> None:
    """Raise ColumnError if so many values do not occur in the training data that they must be those of another column.

    A single new value raises no error, because it may be rare.
    """
    if len(texts) < _FEWEST_COMPARED or (has_other and is_known.any()):
        return
    if not is_known.any() or (len(texts) > _FEWEST_COMPARED and is_known.mean() < 1 - _MOST_UNREADABLE):
        new = texts[int(np.flatnonzero(~is_known)[0])]
        others = "all other values do" if not is_known.any() else "most other values do"
        raise ColumnError(f"{new!r} and {others} not occur in the training data", text=new)


def _encode_ordered(variable: Variable, column: RawColumn) -> NDArray[Any]:
    texts, codes = column.distinct
    place = {level: float(i) for i, level in enumerate(variable.levels)}
    _check_known(texts, np.array([text in place for text in texts], dtype=bool))
    return np.array([place.get(text, np.nan) for text in texts] + [np.nan])[codes]


def _encode_words(variable: Variable, column: RawColumn) -> NDArray[Any]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts, codes = column.distinct
    vectorizer = TfidfVectorizer(vocabulary=list(variable.levels))
    vectorizer.idf_ = np.array(variable.weights)
    words = vectorizer.transform(texts).toarray() if texts else np.zeros((0, len(variable.levels)))
    return np.asarray(np.vstack([words, np.full(words.shape[1], np.nan)])[codes])


def _encode_date(variable: Variable, column: RawColumn) -> NDArray[Any]:
    dates = variable.dates(column)
    missing = np.isnat(dates)
    seconds = np.where(missing, 0, dates.astype("M8[s]").astype(np.int64))
    years = 1970 + seconds / (_SECONDS_PER_DAY * _DAYS_PER_YEAR)
    day = 2 * np.pi * (seconds % _SECONDS_PER_DAY) / _SECONDS_PER_DAY
    season = 2 * np.pi * (years % 1)
    known = {"year": years, "season (cosine)": np.cos(season), "season (sine)": np.sin(season)}
    known |= {"time of day (cosine)": np.cos(day), "time of day (sine)": np.sin(day)}
    parts = np.stack([known[part] for part in variable.levels], axis=1)
    return np.where(missing[:, None], np.nan, parts)


_ENCODERS = {
    NUMBER: _encode_number,
    BOOLEAN: _encode_boolean,
    GIVEN: _encode_given,
    CATEGORY: _encode_category,
    ORDERED: _encode_ordered,
    DATE: _encode_date,
    TEXT: _encode_words,
}
