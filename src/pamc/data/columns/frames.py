"""Convert pandas, polars and Arrow data frames to raw columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.columns.raw import RawColumn, RawTable
from pamc.data.columns.types import BOOLEAN, CATEGORY, ORDERED, Types
from pamc.errors import DataError


def as_frame(X: Any) -> Any:
    """Return X as a narwhals data frame, or None if it is not a data frame with named columns."""
    import narwhals as nw

    if isinstance(X, np.ndarray | list | tuple):
        return None
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return None
    return frame


def is_mixed(X: Any, types: Types | None = None) -> bool:
    """Return whether X is a data frame with a column that is not numeric, or with types that the user sets.

    A data frame that contains only numbers and booleans is a plain table of numbers.
    """
    frame = as_frame(X)
    if frame is None:
        return False
    if not all(isinstance(name, str) for name in frame.columns):
        return False
    return bool(types) or not all(dtype.is_numeric() or _is_boolean(dtype) for dtype in frame.schema.values())


def raw_table(X: Any, source: str = "X") -> RawTable:
    """Return a data frame as raw columns.

    Examples
    --------
    >>> import pandas as pd
    >>> table = raw_table(pd.DataFrame({"city": ["Köln", None], "age": [31, 42]}))
    >>> table["city"].texts.tolist(), table["age"].numbers.tolist()
    (['Köln', None], [31.0, 42.0])
    """
    frame = as_frame(X)
    if frame is None:
        raise DataError(f"{source} must be a data frame with the columns of the training data, got {type(X).__name__}")
    return RawTable([_raw_column(str(name), frame[name]) for name in frame.columns], len(frame), source)


def _is_boolean(dtype: Any) -> bool:
    import narwhals as nw

    return bool(dtype == nw.Boolean)


def _raw_column(name: str, series: Any) -> RawColumn:
    import narwhals as nw

    dtype = series.dtype
    if dtype.is_numeric():
        return RawColumn(name, numbers=_numbers(series))
    if _is_boolean(dtype):
        return RawColumn(name, texts=_texts(series), declared=BOOLEAN)
    if dtype in (nw.Date, nw.Datetime):
        return RawColumn(name, dates=_dates(series))
    if dtype in (nw.Categorical, nw.Enum):
        ordered = _order_of(series)
        return RawColumn(name, texts=_texts(series), declared=ORDERED if ordered else CATEGORY, order=ordered)
    return _object_column(name, series)


def _numbers(series: Any) -> NDArray[np.float64]:
    values = series.to_list()
    numbers = np.array([np.nan if value is None else value for value in values], dtype=object)
    try:
        numbers = np.array([float(number) if number == number else np.nan for number in numbers], dtype=np.float64)
    except TypeError:
        # Comparing pandas' missing value with itself returns neither True nor False.
        numbers = np.array([_number(value) for value in values], dtype=np.float64)
    if np.isinf(numbers).any():
        row = int(np.flatnonzero(np.isinf(numbers))[0])
        raise DataError(f"Input X contains inf: row {row}, column {series.name!r}. Replace it by a number, or by NaN")
    return numbers


def _number(value: Any) -> float:
    try:
        return float(value)
    except TypeError:
        return np.nan


def _dates(series: Any) -> NDArray[np.datetime64]:
    dates = [None if value is None else np.datetime64(_without_zone(value), "s") for value in series.to_list()]
    return np.array([np.datetime64("NaT") if date is None else date for date in dates], dtype="M8[s]")


def _without_zone(value: Any) -> Any:
    if value != value:
        return "NaT"
    return value.replace(tzinfo=None) if getattr(value, "tzinfo", None) is not None else value


def _texts(series: Any) -> NDArray[Any]:
    values = [None if value is None or value != value else str(value).strip() or None for value in series.to_list()]
    return np.array(values, dtype=object)


def _order_of(series: Any) -> tuple[str, ...] | None:
    """Return the categories of an ordered pandas category or of a polars enumeration; None if they have no order."""
    import narwhals as nw

    if series.dtype == nw.Enum:
        return tuple(str(category) for category in series.dtype.categories)
    accessor = getattr(series.to_native(), "cat", None)
    is_ordered = bool(getattr(accessor, "ordered", False))
    return tuple(str(category) for category in accessor.categories) if is_ordered and accessor is not None else None


def _object_column(name: str, series: Any) -> RawColumn:
    """Return a column of strings or of mixed objects; numbers and booleans among strings become strings."""
    import datetime

    values = series.to_list()
    present = [value for value in values if value is not None and value == value]
    if present and all(isinstance(value, datetime.date | np.datetime64) for value in present):
        return RawColumn(name, dates=_dates(series))
    if present and all(isinstance(value, bool | np.bool_) for value in present):
        return RawColumn(name, texts=_texts(series), declared=BOOLEAN)
    if present and all(isinstance(value, int | float | np.number) for value in present):
        return RawColumn(name, numbers=_numbers(series))
    nested = next((value for value in present if isinstance(value, list | dict | set | tuple | np.ndarray)), None)
    if nested is not None:
        raise DataError(f"column {name!r} contains {type(nested).__name__} objects, which have no type: leave it out")
    return RawColumn(name, texts=_texts(series))
