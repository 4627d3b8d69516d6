"""The columns of a served model, and the conversion of the rows of requests to its inputs."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.columns.raw import number_text

NUMBER, DATE, TEXT = "number", "date", "text"

# Name of the only input of a model for plain numbers.
_PLAIN = "X"

Inputs = dict[str, NDArray[Any]]


class RequestError(Exception):
    """A request is invalid; `status` is the HTTP status of the response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Column:
    """A column of the rows: its name, its type, and the values of a category, None for other types."""

    name: str
    kind: str = NUMBER
    values: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Schema:
    """The columns that a model expects.

    Parameters
    ----------
    columns
        The columns in order.
    is_plain
        Whether the model has one input of plain numbers.
    has_names
        Whether the columns have names, and not only positions.
    dtype
        Data type of plain numbers.
    """

    columns: tuple[Column, ...]
    is_plain: bool
    has_names: bool
    dtype: str = "float32"

    @classmethod
    def of_session(cls, session: Any) -> Schema:
        """Return the schema of an onnxruntime session, from its inputs and the description in its metadata."""
        inputs = {item.name: item for item in session.get_inputs()}
        described = json.loads(session.get_modelmeta().custom_metadata_map.get("columns", "null"))
        if list(inputs) == [_PLAIN] and len(inputs[_PLAIN].shape) == 2 and "string" not in inputs[_PLAIN].type:
            n_features = int(inputs[_PLAIN].shape[1])
            if described is None or n_features != 1 or described[0]["name"] != _PLAIN:
                dtype = "float64" if "double" in inputs[_PLAIN].type else "float32"
                names = [item["name"] for item in described or ()]
                columns = tuple(Column(names[i] if names else str(i)) for i in range(n_features))
                return cls(columns, is_plain=True, has_names=bool(names), dtype=dtype)
        about = {item["name"]: item for item in described or ()}
        columns = tuple(
            Column(
                name,
                about.get(name, {}).get("type") or (TEXT if "string" in item.type else NUMBER),
                tuple(about[name]["values"]) if about.get(name, {}).get("values") else None,
            )
            for name, item in inputs.items()
        )
        return cls(columns, is_plain=False, has_names=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain values."""
        columns = [
            {"name": column.name, "type": column.kind, **({} if column.values is None else {"values": column.values})}
            for column in self.columns
        ]
        return {"columns": columns, "rows_as_lists": self.is_plain or not self.has_names}

    def from_json(self, body: bytes, *, max_rows: int) -> Inputs:
        """Return the inputs for the rows in a JSON body: a list of rows, or an object that contains it as `rows`.

        A row is a list with one value per column, or an object with values by column name. A value of null or a column
        that is left out is a missing cell.
        """
        try:
            content = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RequestError(400, f"the body is not JSON: {str(error)[:200]}") from None
        rows = content.get("rows") if isinstance(content, dict) else content
        if not isinstance(rows, list) or (isinstance(content, dict) and set(content) != {"rows"}):
            raise RequestError(422, 'the body must be a list of rows, or an object {"rows": [...]}')
        _check_count(len(rows), max_rows)
        if self.is_plain and all(type(row) is list for row in rows):
            return self._plain([_numbers_of(number, row, len(self.columns)) for number, row in enumerate(rows)])
        cells = [self._cells_of(number, row) for number, row in enumerate(rows)]
        by_column = list(zip(*cells, strict=True))
        return self._inputs([_column_of(column, by_column[i]) for i, column in enumerate(self.columns)])

    def from_parquet(self, body: bytes, *, max_rows: int) -> Inputs:
        """Return the inputs for the rows of a Parquet file; its columns are matched by name and may be in any order.

        Other columns are ignored. The cells of a missing column count as missing, but not all columns may be missing.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(io.BytesIO(body))
            _check_count(file.metadata.num_rows, max_rows)
            known = set(file.schema_arrow.names)
            names = [column.name for column in self.columns]
            if not self.has_names and not known & set(names):
                if len(file.schema_arrow) != len(names):
                    raise RequestError(422, f"the file has {len(file.schema_arrow)} columns, expected {len(names)}")
                table = file.read(use_threads=False).rename_columns(names)
            elif not known & set(names):
                raise RequestError(422, f"the file has none of the columns {', '.join(names[:5])}")
            else:
                if self.is_plain:
                    self._expect_all(known, "the file")
                table = file.read(columns=[name for name in names if name in known], use_threads=False)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise RequestError(400, f"the body is not a Parquet file: {str(error)[:200]}") from None
        parts = [_arrow_column(column, table) for column in self.columns]
        return self._inputs(parts)

    def _cells_of(self, number: int, row: Any) -> list[Any]:
        """Return the cells of a row in the order of the columns."""
        if isinstance(row, dict):
            if not self.has_names:
                raise RequestError(422, f"row {number}: the columns have no names, so a row is a list of numbers")
            unknown = row.keys() - {column.name for column in self.columns}
            if unknown:
                raise RequestError(422, f"row {number}: unknown column {sorted(unknown)[0]!r:.100} (see /schema)")
            if self.is_plain:
                self._expect_all(row.keys(), f"row {number}")
            return [row.get(column.name) for column in self.columns]
        if not isinstance(row, list) or len(row) != len(self.columns):
            raise RequestError(422, f"row {number} must have {len(self.columns)} values, in the order of /schema")
        return row

    def _expect_all(self, names: Collection[str], where: str) -> None:
        """Raise a RequestError if a column of plain numbers is missing; `predict` does not allow this either."""
        missing = [column.name for column in self.columns if column.name not in names]
        if missing:
            raise RequestError(422, f"{where} has no column {missing[0]!r:.100} ({len(missing)} columns are missing)")

    def _plain(self, rows: Sequence[Sequence[Any]]) -> Inputs:
        return {_PLAIN: _finite(_floats(rows), self.dtype)}

    def _inputs(self, parts: Sequence[NDArray[Any]]) -> Inputs:
        if self.is_plain:
            return {_PLAIN: _finite(np.stack(parts, axis=1), self.dtype)}
        for column, part in zip(self.columns, parts, strict=True):
            if column.kind != TEXT:
                _finite(part[:, None], "float32")
        return {column.name: part[:, None] for column, part in zip(self.columns, parts, strict=True)}


def _check_count(n_rows: int, max_rows: int) -> None:
    if n_rows == 0:
        raise RequestError(422, "there are no rows")
    if n_rows > max_rows:
        raise RequestError(413, f"{n_rows} rows are more than the limit of {max_rows}: send several requests")


def _numbers_of(number: int, row: list[Any], n_columns: int) -> list[Any]:
    """Return a row of numbers with NaN for null; raise a RequestError for anything else."""
    if len(row) != n_columns:
        raise RequestError(422, f"row {number} has {len(row)} values, expected {n_columns}")
    if set(map(type, row)) <= {int, float}:
        return row
    return [_number(f"row {number}, column {place}", value) for place, value in enumerate(row)]


def _number(where: str, value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(422, f"{where} must be a number or null, got {str(value)!r:.60}")
    return value


def _column_of(column: Column, cells: Sequence[Any]) -> NDArray[Any]:
    """Return the cells of a column as numbers, dates in seconds since 1970, or texts."""
    where = f"column {column.name!r}"
    if column.kind == TEXT:
        return np.array([_text(f"row {row}, {where}", cell) for row, cell in enumerate(cells)], dtype=object)
    convert = _number if column.kind == NUMBER else _seconds
    return _floats([convert(f"row {row}, {where}", cell) for row, cell in enumerate(cells)])


def _floats(values: Sequence[Any]) -> NDArray[np.float64]:
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:
        raise RequestError(422, "a number is too large") from None


def _text(where: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str | bool):
        return str(value)
    if isinstance(value, int | float) and math.isfinite(value):
        return number_text(value)
    raise RequestError(422, f"{where} must be a text, a number or null, got {str(value)!r:.60}")


def _seconds(where: str, value: Any) -> float:
    if value is None:
        return math.nan
    try:
        when = value if isinstance(value, date) else datetime.fromisoformat(value)
        if not isinstance(when, datetime):
            when = datetime(when.year, when.month, when.day, tzinfo=UTC)
        return float(math.floor((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()))
    except (TypeError, ValueError, OverflowError):
        raise RequestError(422, f"{where} must be an ISO date such as 2024-05-01, got {str(value)!r:.60}") from None


def _arrow_column(column: Column, table: Any) -> NDArray[Any]:
    """Return a column of an Arrow table as numbers, dates in seconds since 1970, or texts."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if column.name not in table.column_names:
        is_text = column.kind == TEXT
        return np.full(table.num_rows, "" if is_text else np.nan, dtype=object if is_text else np.float64)
    cells = table.column(column.name)
    if column.kind == NUMBER:
        is_number = any(is_kind(cells.type) for is_kind in (kinds.is_integer, kinds.is_floating, kinds.is_decimal))
        if not (is_number or kinds.is_boolean(cells.type) or kinds.is_null(cells.type)):
            raise RequestError(422, f"column {column.name!r} must be numbers, got {cells.type}")
        return np.asarray(cells.cast(pa.float64()).to_numpy(), dtype=np.float64)
    if column.kind == DATE and (kinds.is_date(cells.type) or kinds.is_timestamp(cells.type)):
        stamps = cells.cast(pa.timestamp("s"), safe=False).to_numpy()
        return np.where(np.isnat(stamps), np.nan, stamps.astype("M8[s]").astype(np.int64))
    return _column_of(column, cells.to_pylist())


def _finite(values: NDArray[np.float64], dtype: str) -> NDArray[Any]:
    """Return values in a data type; raise a RequestError if one is infinite or out of its range."""
    with np.errstate(over="ignore"):
        result = values.astype(dtype)
    bad = np.isinf(result)
    if bad.any():
        row = int(np.flatnonzero(bad.any(axis=1))[0])
        raise RequestError(422, f"row {row} has a number that is infinite or too large for {dtype}")
    return result
