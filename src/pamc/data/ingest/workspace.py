"""The database of an ingest: what was read so far, which steps are finished, and which rows cannot be used."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import MAX_EDGE_WEIGHT
from pamc.data.database import load_duckdb
from pamc.data.files import reason_of
from pamc.data.readers import open_table
from pamc.data.readers.tables import Cell, Table, not_a_number
from pamc.data.store import row_blocks
from pamc.errors import DataError, OutputError

__all__ = ["BAD_ROWS_FILE", "BadRows", "Parts", "Workspace", "unmasked"]

# Of the memory of an ingest: duckdb's share. The rest is for numpy's blocks and what duckdb does not count.
_DATABASE_SHARE = 0.6


class Workspace:
    """A duckdb database in a folder, with bounded memory, that spills into the same folder.

    A step and the record that it is finished are one transaction: whenever the process is killed, a step has happened
    or it has not. duckdb is given a share of the memory of the whole ingest, `memory_bytes` of the constructor; what it
    may use is the attribute of that name.
    """

    def __init__(self, folder: Path, *, memory_bytes: int, n_threads: int) -> None:
        self._duckdb = duckdb = load_duckdb("ingest works")
        self.folder = folder
        place = folder.absolute()
        self.memory_bytes = int(_DATABASE_SHARE * memory_bytes)
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{self.memory_bytes // 10**6}MB",
            "temp_directory": str(place / "spill"),
            "threads": n_threads,
        }
        with self.explained():
            try:
                self._connection = duckdb.connect(str(place / "rows.duckdb"), config=config)
            except duckdb.IOException as error:
                if "lock" in str(error):
                    raise OutputError(f"{folder.parent}: another ingest is writing there; wait for it") from error
                raise
            # Its guess of a CSV's length would make it hash the edges instead of the ids.
            self._connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
            self._connection.execute("SET enable_progress_bar = false")
            self._connection.execute("CREATE TABLE IF NOT EXISTS steps (name VARCHAR, info VARCHAR)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._connection.close()

    def run(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a query and return its rows, which must be few."""
        with self.explained():
            return list(self._connection.execute(query, list(values)).fetchall())

    def value(self, query: str, values: Sequence[Any] = ()) -> Any:
        """Return the one value of a query."""
        return self.run(query, values)[0][0]

    def arrays(self, query: str) -> dict[str, NDArray[Any]]:
        """Return the columns of a query by name; cells without value are masked."""
        with self.explained():
            fetched: dict[str, NDArray[Any]] = self._connection.execute(query).fetchnumpy()
            return fetched

    def insert(self, table: str, columns: dict[str, NDArray[Any]]) -> None:
        """Append columns of equal length to a table, by name."""
        with self.explained():
            self._connection.register("added", columns)
            try:
                self._connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM added")
            finally:
                self._connection.unregister("added")

    def iterate(self, query: str, n_rows: int = 2048) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, a few at a time in memory."""
        with self.explained():
            cursor = self._connection.cursor()
            cursor.execute(query)
            while rows := cursor.fetchmany(n_rows):
                yield from rows

    def info(self, step: str) -> dict[str, Any] | None:
        """Return what a finished step has noted, or None for a step that is not finished."""
        found = self.run("SELECT info FROM steps WHERE name = ?", [step])
        return json.loads(found[0][0]) if found else None

    @contextmanager
    def step(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield a place for notes; what is done inside counts together with the record of it, or not at all."""
        notes: dict[str, Any] = {}
        self.run("BEGIN")
        try:
            yield notes
            self.run("INSERT INTO steps VALUES (?, ?)", [name, json.dumps(notes)])
            self.run("COMMIT")
        except BaseException:
            self._connection.rollback()
            raise

    def ordered(self, wanted: bool) -> None:
        """Choose whether tables are filled in the order of the file, which takes more memory and time."""
        self.run(f"SET preserve_insertion_order = {'true' if wanted else 'false'}")

    def give_memory(self, share: float) -> None:
        """Give duckdb another share of its memory, for steps in which it only hands out what it has stored."""
        self.run(f"SET memory_limit = '{int(share * self.memory_bytes / 1e6)}MB'")

    def row_blocks(self, table: str, block_size: int) -> list[slice]:
        """Return ranges of duckdb's row numbers that cover a table, which was not made in the step under way."""
        return row_blocks(self.value(f"SELECT coalesce(max(rowid) + 1, 0) FROM {table}"), block_size)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn what duckdb raises on a full disk, too little memory or a damaged file into one line."""
        try:
            yield
        except self._duckdb.OutOfMemoryException as error:
            raise OutputError(
                f"the ingest needs more memory or more room on the disk of {self.folder.parent} than it was given "
                f"({reason_of(error)}): go on with --resume and a larger --memory"
            ) from error
        except self._duckdb.IOException as error:
            raise OutputError(f"{self.folder.parent}: cannot be written or read ({reason_of(error)})") from error
        except self._duckdb.Error as error:
            raise DataError(f"cannot be read; damaged, or line ends of two kinds? ({reason_of(error)})") from error


def unmasked(column: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the values of a fetched column, and where there are none."""
    return np.ma.getdata(column), np.ma.getmaskarray(column)


BAD_ROWS_FILE = "bad-rows.csv"

_REASONS = {
    "number": "not a finite number",
    "id": "no id",
    "truth": "no truth",
    "repeated": "the id of an earlier row",
    "line": "malformed line",
    "end": "an edge needs two ends",
    "unknown": "no row has this id",
    "weight": f"a weight must be positive and at most {MAX_EDGE_WEIGHT:g}",
}
_COLUMNS = "file, place, line, col, cell, reason"
# Of one listed line of a file.
_LONGEST = 1000


@dataclass(frozen=True)
class Parts:
    """Tables of the same columns, one after the other.

    `headers` says per file whether its first line names the columns: then columns go by position. It is None where all
    files are as the first and columns go by name.
    """

    files: Sequence[Path]
    first: Table
    headers: Sequence[bool] | None = None

    def __iter__(self) -> Iterator[tuple[int, Path]]:
        return iter(enumerate(self.files))

    def table(self, number: int) -> Table:
        """Return a part, or say in which column it differs from the first."""
        if number == 0:
            return self.first
        header = self.first.has_header if self.headers is None else self.headers[number]
        table = open_table(self.files[number], header=header)
        if self.headers is not None:
            if len(table.names) != len(self.first.names):
                raise DataError(
                    f"has {len(table.names)} columns and {self.first.path} has {len(self.first.names)}; all parts must "
                    "have the same columns"
                )
            return table
        missing = [name for name in self.first.names if name not in table]
        added = [name for name in table.names if name not in self.first]
        if missing or added:
            what = f"no column {missing[0]!r}" if missing else f"a column {added[0]!r}"
            raise DataError(f"has {what}, unlike {self.first.path}; all parts must have the same columns")
        return table

    def position(self, table: Table, col: int) -> int:
        """Return where in a part the column stands that the first part has at a position."""
        return col if self.headers is not None else table.names.index(self.first.names[col])


@dataclass(frozen=True)
class _Bad:
    """One bad row: where it is, and why it is bad."""

    file: int
    place: int | None
    line: int | None
    col: int | None
    cell: str | None
    reason: str


class BadRows:
    """The table ``bad`` of a workspace.

    `parts` are the files by what they hold, "rows" and perhaps "edges"; `ids_are_rows` where edges name row numbers.
    """

    def __init__(self, workspace: Workspace, parts: dict[str, Parts], *, dtype: str, ids_are_rows: bool) -> None:
        self._workspace = workspace
        self._parts = parts
        self._dtype = dtype
        self._ids_are_rows = ids_are_rows
        workspace.run(
            "CREATE TABLE IF NOT EXISTS bad (part VARCHAR, file INTEGER, place BIGINT, line BIGINT, row BIGINT, "
            "col INTEGER, cell VARCHAR, reason VARCHAR)"
        )

    def count(self, part: str, reason: str = "%") -> int:
        """Return the number of bad rows of a part; malformed lines, "line", are not among the rows that were read."""
        query = "SELECT count(*) FROM bad WHERE part = ? AND reason LIKE ?"
        return int(self._workspace.value(query, [part, reason]))

    def forget_lines(self) -> None:
        """Empty duckdb's list of malformed lines, before a file is read."""
        self._workspace.run("DROP TABLE IF EXISTS reject_errors")
        self._workspace.run("DROP TABLE IF EXISTS reject_scans")

    def take_lines(self, part: str, file: int) -> None:
        """Take duckdb's list of malformed lines of the file that was just read."""
        if not self._workspace.value("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'reject_errors'"):
            return
        self._workspace.run(
            "INSERT INTO bad BY NAME SELECT ? AS part, ? AS file, line, 'line' AS reason, "
            f"any_value(left(csv_line, {_LONGEST})) AS cell FROM reject_errors GROUP BY line",
            [part, file],
        )

    def refuse(self, part: str) -> None:
        """Raise the DataError that explains the first bad row of a part, if there is one."""
        n_bad = self.count(part)
        if n_bad == 0:
            return
        first = next(self._located(part, limit=1))
        more = f" ({n_bad - 1} more {part} are bad.)" if n_bad > 1 else ""
        explained = self._explained(part, *first).rstrip(".")
        raise DataError(
            f"{explained}.{more} Mend the file, or leave bad rows out with --skip-bad-rows, which lists them"
        )

    def write(self, path: Path) -> None:
        """Write all bad rows to a CSV: part, file, line, row, column, cell and reason."""
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["part", "file", "line", "row", "column", "cell", "reason"])
            for part, parts in self._parts.items():
                for bad, cell in self._located(part):
                    where = [parts.files[bad.file], cell.line, bad.place, cell.column or None]
                    writer.writerow([part, *where, cell.text, _REASONS[bad.reason]])

    def _located(self, part: str, *, limit: int | None = None) -> Iterator[tuple[_Bad, Cell]]:
        """Yield bad rows with the cells they are about; each file is gone through once."""
        query = f"SELECT {_COLUMNS} FROM bad WHERE part = '{part}' ORDER BY file, place NULLS FIRST, line"
        rows = self._workspace.iterate(query + ("" if limit is None else f" LIMIT {limit}"))
        for file, group in groupby((_Bad(*row) for row in rows), key=lambda bad: bad.file):
            yield from self._cells(part, file, group)

    def _cells(self, part: str, file: int, group: Iterator[_Bad]) -> Iterator[tuple[_Bad, Cell]]:
        parts = self._parts[part]
        table = parts.table(file)
        records = _Records(table)
        for bad in group:
            if bad.place is None:
                yield bad, Cell(-1, bad.line, "", bad.cell)
                continue
            line, cells = records.at(bad.place)
            position = parts.position(table, bad.col or 0)
            yield bad, Cell(bad.place, line, table.names[position], bad.cell if cells is None else cells[position])

    def _explained(self, part: str, bad: _Bad, cell: Cell) -> str:
        path = self._parts[part].files[bad.file]
        n_cells = len(self._parts[part].first.names)
        if bad.reason == "line":
            return f"{path}, line {bad.line}: malformed: expected {n_cells} cells of UTF-8 text, got {cell.text!r}"
        if bad.reason == "number":
            return str(not_a_number(path, cell, self._dtype))
        shown = "the cell is empty" if cell.text is None else f"{cell.text!r} is not a class"
        about: dict[str, Any] = {
            "id": "the cell is empty; every row needs an id",
            "truth": f"{shown}; every row needs a truth",
            "repeated": f"the id {cell.text!r} names an earlier row too; ids must name one row each",
            "end": "the cell is empty; every edge needs two ends",
            "unknown": f"no row has the id {cell.text!r}",
            "weight": f"the weight is {cell.text!r}; weights must be positive and at most {MAX_EDGE_WEIGHT:g}",
        }
        if bad.reason == "unknown" and self._ids_are_rows:
            about["unknown"] = f"{cell.text!r} is not a row number; where edges name rows, --id says in which column"
        return f"{path}: {cell.where}: {about[bad.reason]}"


class _Records:
    """Records of a table at ascending places, until the file can no longer be followed."""

    def __init__(self, table: Table) -> None:
        self._wanted: list[int] = []
        self._found = table.records(iter(self._wanted.pop, None))

    def at(self, place: int) -> tuple[int | None, list[str | None] | None]:
        """Return line and cells of a row; None for what cannot be told."""
        self._wanted.append(place)
        try:
            _, line, cells = next(self._found)
        except (StopIteration, IndexError, DataError):
            self._found = iter(())
            return None, None
        return line, cells
