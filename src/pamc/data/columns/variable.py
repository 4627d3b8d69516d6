"""Encode a typed column as numbers in its original units: one column per number, and one per value of a category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.columns.parsing import (
    NO_WORDS,
    YES_WORDS,
    plain_numbers,
    read_dates,
    read_numbers,
    time_formats,
    without_unit,
)
from pamc.data.columns.raw import MISSING_NUMBERS, RawColumn
from pamc.data.columns.types import (
    BOOLEAN,
    CATEGORY,
    DATE,
    GIVEN,
    NUMBER,
    ORDERED,
    TEXT,
    TIME,
    ColumnError,
    ColumnType,
    Embed,
)
from pamc.errors import DataError

Wide = NDArray[np.float32]

# Values of a category that occur in fewer rows are pooled, and so are the rarest values beyond a maximum number.
_LEAST_ROWS, _LEAST_SHARE, _MOST_VALUES = 2, 0.005, 100
OTHER = "(other)"
# The level of empty cells, if these are a value of their own.
MISSING = "(missing)"

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
        Values of a category, one per encoded column, the last of which may be "(other)", "(missing)" or both; the
        values of an ordered category; the words of a text; or the words for no and yes.
    weights
        Inverse document frequency of each word.
    reading, unit, date_format
        How texts are read as numbers or dates, and the unit of the numbers, "" for none.
    embed
        Function of the user that embeds texts; it is not saved with the model. A text that was embedded has no levels.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    levels: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    reading: str = ""
    unit: str = ""
    date_format: str | None = None
    embed: Embed | None = field(default=None, compare=False, repr=False)

    @property
    def is_embedded(self) -> bool:
        """Whether the columns are those of an embedding of texts."""
        return self.kind == TEXT and not self.levels

    @property
    def encoded_as(self) -> str:
        """Description of the encoding, as shown to the user."""
        n = len(self.columns)
        if self.kind == CATEGORY:
            pooled = ", rare values pooled" if OTHER in self.levels[-2:] else ""
            empty = ", one for empty cells" if self.levels[-1] == MISSING else ""
            return f"{n} columns, one per value{pooled}{empty}"
        if self.is_embedded:
            return f"embedding with {n} dimensions"
        if self.kind == TEXT:
            return f"tf-idf of {n} words"
        if self.kind in (DATE, TIME):
            return ", ".join(column.removeprefix(f"{self.name}: ") for column in self.columns)
        if self.kind == ORDERED:
            return f"rank 0 to {len(self.levels) - 1}"
        return {NUMBER: "robustly scaled", BOOLEAN: "0 or 1", GIVEN: "1 if the cell is filled, else 0"}[self.kind]

    def values(self, column: RawColumn) -> Wide:
        """Return the encoded columns (N, n) of a raw column; raise ColumnError if its cells do not match the type."""
        encoded = _ENCODERS[self.kind](self, column)
        return np.asarray(encoded, dtype=np.float32).reshape(len(column), len(self.columns))

    def dates(self, column: RawColumn) -> NDArray[np.datetime64]:
        """Return the cells (N,) of a raw column of dates or times, NaT if missing; raise ColumnError otherwise."""
        if column.dates is not None:
            return column.dates
        if column.texts is None:
            raise ColumnError(f"contains numbers; in the training data it contains {self.kind}s")
        texts, codes = column.distinct
        form = self.date_format or ("%H:%M:%S" if self.kind == TIME else "%Y-%m-%d")
        if self.kind == TIME:
            form = next(iter(time_formats(texts)), form)
        read = read_dates(texts, form)
        is_wrong = np.isnat(read) & np.array([text.lower() not in MISSING_NUMBERS for text in texts], dtype=bool)
        if is_wrong.any():
            wrong = texts[int(np.flatnonzero(is_wrong)[0])]
            raise ColumnError(f"{wrong!r} is not a {self.kind} like those in the training data", text=wrong)
        return np.asarray(np.append(read, np.datetime64("NaT"))[codes])


# Functions that fit a variable to a typed column.


def fit_variable(column: ColumnType) -> Variable | None:
    """Return the encoding of a typed column, or None if no value or word is frequent enough."""
    if column.kind in (CATEGORY, TEXT):
        return _fit_category(column) if column.kind == CATEGORY else _fit_words(column)
    if column.kind in (DATE, TIME):
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


def with_missing(category: Variable) -> Variable:
    """Return a category in which empty cells are a value of their own."""
    columns = (*category.columns, f"{category.name} is missing")
    return replace(category, columns=columns, levels=(*category.levels, MISSING))


def fit_embedding(column: ColumnType, embed: Embed) -> Variable | None:
    """Return the encoding of a column of texts by a function of the user, or None if the column is empty."""
    if not column.levels:
        return None
    n_dims = _embedded(embed, column.name, column.levels[:1]).shape[1]
    return Variable(column.name, TEXT, tuple(f"{column.name}: {i}" for i in range(1, n_dims + 1)), embed=embed)


def _embedded(embed: Embed, name: str, texts: Sequence[str]) -> NDArray[Any]:
    """Return the vectors (n, d) of texts; raise DataError if the function returns anything else."""
    vectors = np.asarray(embed(list(texts)))
    is_numeric = vectors.dtype.kind in "fiu" and vectors.ndim == 2 and vectors.shape[1] > 0
    if not is_numeric or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise DataError(
            f"the function that embeds column {name!r} must return an array of finite numbers of shape "
            f"({len(texts)}, d) for {len(texts)} texts, got {vectors.dtype} of shape {vectors.shape}"
        )
    return vectors


def words_of(texts: Sequence[str]) -> Any:
    """Return a fitted TfidfVectorizer of the words of texts, or None if no word is frequent enough."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    options: dict[str, Any] = {"min_df": _LEAST_ROWS_OF_WORD, "max_df": 0.5, "max_features": _MOST_WORDS}
    try:
        return TfidfVectorizer(**options).fit(texts)
    except ValueError:
        return None


def _fit_words(column: ColumnType) -> Variable | None:
    codes: Any = column.values
    vectorizer = words_of([column.levels[code] for code in codes if code >= 0])
    if vectorizer is None:
        return None
    words = vectorizer.get_feature_names_out().tolist()
    names = tuple(f"{column.name}: {word}" for word in words)
    return Variable(column.name, TEXT, names, tuple(words), tuple(vectorizer.idf_.tolist()))


def _fit_date(column: ColumnType) -> Variable:
    dates: Any = column.values[~column.missing] if column.values is not None else None
    seconds = dates.astype("M8[s]").astype(np.int64)
    parts = [] if column.kind == TIME else ["year"]
    if column.kind == DATE and np.ptp(seconds) >= _LEAST_YEARS * _DAYS_PER_YEAR * _SECONDS_PER_DAY:
        parts += ["season (cosine)", "season (sine)"]
    if column.kind == TIME or len(np.unique(seconds % _SECONDS_PER_DAY)) > 1:
        parts += ["time of day (cosine)", "time of day (sine)"]
    names = tuple(f"{column.name}: {part}" for part in parts)
    return Variable(column.name, column.kind, names, tuple(parts), date_format=column.date_format)


# Functions that encode raw cells.


def _encode_number(variable: Variable, column: RawColumn) -> NDArray[Any]:
    if column.numbers is not None:
        return column.numbers
    if column.dates is not None:
        raise ColumnError("contains dates; in the training data it contains numbers")
    texts, codes = column.distinct
    plain = None if variable.unit else plain_numbers(texts, variable.reading)
    if plain is not None:
        return np.asarray(np.append(plain, np.nan)[codes])
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
    if column.numbers is not None and (np.isnan(column.numbers) | np.isin(column.numbers, (0, 1))).all():
        return column.numbers
    texts, codes = column.distinct
    no, yes = variable.levels
    wrong = [text for text in texts if text.lower() not in YES_WORDS | NO_WORDS]
    if wrong:
        raise ColumnError(f"{wrong[0]!r} is neither {yes} nor {no}", text=wrong[0])
    return np.array([float(text.lower() in YES_WORDS) for text in texts] + [np.nan])[codes]


def _encode_given(variable: Variable, column: RawColumn) -> NDArray[Any]:
    return (column.distinct.codes >= 0).astype(np.float64)


def _encode_category(variable: Variable, column: RawColumn) -> NDArray[Any]:
    """Return indicators of the values; an unseen value counts as "(other)", or as missing if there is no such value."""
    texts, codes = column.distinct
    place = {level: i for i, level in enumerate(variable.levels)}
    other = place.get(OTHER, -1)
    empty = len(place) - 1 if variable.levels[-1] == MISSING else -1
    places = np.array([place.get(text, other) for text in texts] + [empty], dtype=np.int64)
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
    if variable.is_embedded:
        return _encode_embedded(variable, texts, codes)
    vectorizer = TfidfVectorizer(vocabulary=list(variable.levels))
    vectorizer.idf_ = np.array(variable.weights)
    words = vectorizer.transform(texts).toarray() if texts else np.zeros((0, len(variable.levels)))
    return np.asarray(np.vstack([words, np.full(words.shape[1], np.nan)])[codes])


def _encode_embedded(variable: Variable, texts: list[str], codes: NDArray[np.int64]) -> NDArray[Any]:
    if variable.embed is None:
        raise ColumnError(
            "was embedded by a function, which is not saved with the model; in Python, pass it again: "
            f"PamCGC.load(folder, types={{{variable.name!r}: function}})"
        )
    n_dims = len(variable.columns)
    vectors = _embedded(variable.embed, variable.name, texts) if texts else np.empty((0, n_dims))
    if vectors.shape[1] != n_dims:
        raise ColumnError(f"has embeddings with {vectors.shape[1]} dimensions; in the training data they have {n_dims}")
    return np.asarray(np.vstack([vectors, np.full(n_dims, np.nan)])[codes])


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
    TIME: _encode_date,
    TEXT: _encode_words,
}
