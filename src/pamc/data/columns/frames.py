"""Convert pandas, polars and Arrow data frames to raw columns."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.columns.raw import LONG_INTEGER, RawColumn, RawTable
from pamc.data.columns.types import BOOLEAN, CATEGORY, ORDERED, Types
from pamc.errors import DataError


def as_frame(X: Any) -> Any:
    """Return X as a narwhals data frame, or None if it is not a data frame with named columns."""
    import narwhals as nw

    if isinstance(X, np.ndarray | list | tuple):
        return None
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        names = list(X.columns if hasattr(X, "columns") else X.column_names)
        repeated = next(name for name in names if names.count(name) > 1)
        raise DataError(f"column name {repeated!r} occurs {names.count(repeated)} times; names must differ") from None
    return frame if isinstance(frame, nw.DataFrame) else None


def is_mixed(X: Any, types: Types | None = None) -> bool:
    """Return whether X is a data frame with a column that is not numeric, or with types that the user sets.

    A data frame that contains only numbers and booleans is a plain table of numbers.
    """
    frame = as_frame(X)
    if frame is None:
        return False
    if not all(isinstance(name, str) for name in frame.columns):
        if types:
            raise DataError("types refers to columns by name, but column names are not strings; rename the columns")
        return False
    return bool(types) or not all(dtype.is_numeric() or _is_boolean(dtype) for dtype in frame.schema.values())


def raw_table(X: Any, source: str = "X", *, names: Collection[str] | None = None) -> RawTable:
    """Return a data frame as raw columns.

    Parameters
    ----------
    names
        Columns to read; None reads all. The cells of other columns are left empty.

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
    empty = np.full(len(frame), None, dtype=object)
    columns = [
        _raw_column(str(name), frame[name]) if names is None or name in names else RawColumn(str(name), texts=empty)
        for name in frame.columns
    ]
    return RawTable(columns, len(frame), source)


def _is_boolean(dtype: Any) -> bool:
    import narwhals as nw

    return bool(dtype == nw.Boolean)


def _raw_column(name: str, series: Any) -> RawColumn:
    import narwhals as nw

    dtype = series.dtype
    if dtype.is_integer() and _has_long_integers(series):
        return RawColumn(name, texts=_texts(series))
    if dtype.is_numeric():
        return RawColumn(name, numbers=_numbers(series))
    if dtype == nw.Duration:
        days = [None if _is_missing(value) else value / timedelta(days=1) for value in series.to_list()]
        return RawColumn(name, numbers=np.array(days, dtype=np.float64))
    if _is_boolean(dtype):
        return RawColumn(name, texts=_texts(series), declared=BOOLEAN)
    if dtype in (nw.Date, nw.Datetime):
        return RawColumn(name, dates=_dates(series))
    if dtype in (nw.Categorical, nw.Enum):
        ordered = _order_of(series)
        return RawColumn(name, texts=_texts(series), declared=ORDERED if ordered else CATEGORY, order=ordered)
    return _object_column(name, series)


def _has_long_integers(series: Any) -> bool:
    """Return whether a column has integers with more digits than floating-point numbers hold."""
    largest = max((abs(value) for value in (series.min(), series.max()) if not _is_missing(value)), default=0)
    return bool(largest >= LONG_INTEGER)


def _is_missing(value: Any) -> bool:
    """Return whether a cell is None, NaN, NaT, or pandas' NA, for which a comparison with itself raises TypeError."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:
        return True
    except ValueError:
        # An array: not a single value.
        return False


def _numbers(series: Any) -> NDArray[np.float64]:
    numbers = series.to_numpy()
    if numbers.dtype.kind not in "fiu":
        values = [np.nan if _is_missing(value) else float(value) for value in series.to_list()]
        numbers = np.array(values, dtype=np.float64)
    numbers = numbers.astype(np.float64)
    if np.isinf(numbers).any():
        row = int(np.flatnonzero(np.isinf(numbers))[0])
        raise DataError(f"Input X contains inf: row {row}, column {series.name!r}. Replace it with a number or NaN")
    return np.asarray(numbers)


def _dates(series: Any) -> NDArray[np.datetime64]:
    try:
        dates = ["NaT" if _is_missing(value) else _in_utc(value) for value in series.to_list()]
        return np.array([np.datetime64(date, "s") for date in dates], dtype="M8[s]")
    except (OverflowError, ValueError) as error:
        raise DataError(f"column {series.name!r} has a date that cannot be read: {error}") from None


def _in_utc(value: Any) -> Any:
    """Return a date and time without its time zone; if it has one, in UTC."""
    return value if getattr(value, "tzinfo", None) is None else value.astimezone(UTC).replace(tzinfo=None)


def _texts(series: Any) -> NDArray[Any]:
    values = [None if _is_missing(value) else str(value).strip() or None for value in series.to_list()]
    return np.array(values, dtype=object)


def _order_of(series: Any) -> tuple[str, ...] | None:
    """Return the values of an ordered pandas or Arrow category, or of a polars enumeration; None without an order."""
    import narwhals as nw

    if series.dtype == nw.Enum:
        return tuple(str(category) for category in series.dtype.categories)
    native = series.to_native()
    if getattr(getattr(native, "type", None), "ordered", False):
        return tuple(str(category) for category in native.unify_dictionaries().chunk(0).dictionary.to_pylist())
    accessor = getattr(native, "cat", None)
    is_ordered = bool(getattr(accessor, "ordered", False))
    return tuple(str(category) for category in accessor.categories) if is_ordered and accessor is not None else None


def _object_column(name: str, series: Any) -> RawColumn:
    """Return a column of strings or of mixed objects; numbers and booleans among strings become strings."""
    values = series.to_list()
    present = [value for value in values if not _is_missing(value)]
    if present and all(isinstance(value, date | np.datetime64) for value in present):
        return RawColumn(name, dates=_dates(series))
    if present and all(isinstance(value, bool | np.bool_) for value in present):
        return RawColumn(name, texts=_texts(series), declared=BOOLEAN)
    if present and all(isinstance(value, int | float | np.number | Decimal) for value in present):
        if all(isinstance(value, int | np.integer) for value in present) and max(map(abs, present)) >= LONG_INTEGER:
            return RawColumn(name, texts=_texts(series))
        return RawColumn(name, numbers=_numbers(series))
    nested = next((value for value in present if isinstance(value, list | dict | set | tuple | np.ndarray)), None)
    if nested is not None:
        raise DataError(
            f"column {name!r} contains {type(nested).__name__} objects, which are not supported: give it the type "
            "'ignore'"
        )
    return RawColumn(name, texts=_texts(series))
