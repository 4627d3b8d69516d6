"""Parquet tables, with named and typed columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pamc.data.columns.raw import LONG_INTEGER
from pamc.data.database import connected, literal_path, load_duckdb
from pamc.data.readers.format import FORMATS, Format
from pamc.data.readers.tables import Cell, Table, column_names, shorten, unreadable

_NUMERIC_TYPES = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|BOOLEAN|DECIMAL\(.*)$")
# Types of integers that may have more digits than floating-point numbers hold.
_LONG_TYPES = re.compile(r"U?(BIG|HUGE)INT$")


@dataclass(frozen=True)
class ParquetTable(Table):
    """A table in a Parquet file; `numeric` and `integer` say for each column whether it stores numbers or integers."""

    numeric: tuple[bool, ...]
    integer: tuple[bool, ...]

    def records(self, rows: Iterable[int]) -> Iterator[tuple[int, int | None, list[str | None]]]:
        """Yield (row, None, cells) of the given rows, with one query per row."""
        for row in rows:
            yield row, None, self._cells(row, range(len(self.names)))

    def cell(self, row: int, name: str) -> Cell:
        """Return one cell as text."""
        return Cell(row, None, name, self._cells(row, [self._positions[name]])[0])

    def first_rows(self, n_rows: int) -> dict[str, list[str]]:
        """Return the first cells of the text columns."""
        texts = [name for name, numeric in zip(self.names, self.numeric, strict=True) if not numeric]
        columns = self._fetch([self.text_sql(name) for name in texts], tail=f"LIMIT {n_rows}") if texts else []
        cells = {name: np.ma.compressed(column).tolist() for name, column in zip(texts, columns, strict=True)}
        return {name: cells.get(name, []) for name in self.names}

    def _cells(self, row: int, positions: Iterable[int]) -> list[str | None]:
        columns = self._fetch([f"CAST(c{i} AS VARCHAR)" for i in positions], tail=f"LIMIT 1 OFFSET {row}")
        return [None if np.ma.getmaskarray(column)[0] else shorten(str(column[0])) for column in columns]

    def _stores_numbers(self, position: int) -> bool:
        return self.numeric[position] and position not in self._identifiers

    @cached_property
    def _identifiers(self) -> frozenset[int]:
        """Positions of columns with integers of so many digits that they are identifiers, which are read as text."""
        found = []
        for position, integer in enumerate(self.integer):
            if integer:
                largest, _ = self._fetch([f"max(abs(c{position}::HUGEINT))::DOUBLE", "1"])
                found += [position] if np.ma.filled(largest, 0)[0] >= LONG_INTEGER else []
        return frozenset(found)


def open_parquet(path: Path, header: bool | None) -> ParquetTable:
    """Open the table in a Parquet file, which always has column names."""
    duckdb = load_duckdb("tables are read")
    relation = "read_parquet(?, hive_partitioning=false)"
    try:
        with connected() as connection:
            name = literal_path(path)
            described = connection.execute(f"DESCRIBE SELECT * FROM {relation}", [name]).fetchall()
            schema = connection.execute("SELECT name, num_children FROM parquet_schema(?)", [name]).fetchall()
    except duckdb.Error as error:
        raise unreadable(path, ParquetTable._damage, error) from error
    names, unnamed = column_names(path, _top_names(schema))
    numeric = tuple(bool(_NUMERIC_TYPES.match(row[1])) for row in described)
    integer = tuple(bool(_LONG_TYPES.match(row[1])) for row in described)
    return ParquetTable(path, names, unnamed, True, relation, numeric, integer)


def _top_names(schema: list[tuple[str, int | None]]) -> list[str]:
    """Return the names of the top-level columns of a Parquet schema, which is listed depth first under one root."""
    names: list[str] = []
    n_nested = 0
    for name, n_children in schema[1:]:
        if n_nested:
            n_nested -= 1
        else:
            names.append(name)
        n_nested += n_children or 0
    return names


FORMATS.register("parquet")(Format(endings=(".parquet", ".pq"), open_table=open_parquet))
