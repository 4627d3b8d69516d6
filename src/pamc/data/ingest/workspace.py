"""The database of an ingest: the data read so far, the finished steps, and the rows that cannot be used."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby, tee
from pathlib import Path
from typing import Any, NamedTuple, Self

from numpy.typing import NDArray

from pamc.data.attributed_graph import MAX_EDGE_WEIGHT
from pamc.data.database import load_duckdb, quoted
from pamc.data.files import reason_of
from pamc.data.readers import open_table
from pamc.data.readers.tables import Cell, Table, not_a_number
from pamc.data.store import row_blocks
from pamc.errors import DataError, OutputError

# duckdb's share of the memory of an ingest. The rest is for numpy's blocks and memory that duckdb does not count.
_DATABASE_SHARE = 0.6


class Workspace:
    """A duckdb database in a folder, with a memory limit, that spills to the same folder.

    A step and the record of its completion are one transaction: if the process is killed, a step has either happened
    or not. duckdb receives a share of `memory_bytes`, the memory of the whole ingest; the attribute `memory_bytes` is
    that share.
    """

    def __init__(self, folder: Path, *, memory_bytes: int, n_threads: int) -> None:
        self._duckdb = duckdb = load_duckdb("ingest works")
        self.folder = folder
        path = folder.absolute()
        self.memory_bytes = int(_DATABASE_SHARE * memory_bytes)
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{self.memory_bytes // 10**6}MB",
            "temp_directory": str(path / "spill"),
            "threads": n_threads,
        }
        with self.explained():
            try:
                self._connection = duckdb.connect(str(path / "rows.duckdb"), config=config)
            except duckdb.IOException as error:
                if "lock" in str(error):
                    raise OutputError(
                        f"{folder.parent}: another ingest is using this folder; wait until it ends"
                    ) from error
                raise
            # duckdb's estimate of a CSV's length would make it hash the edges instead of the ids.
            self._connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
            self._connection.execute("SET enable_progress_bar = false")
            self._connection.execute("CREATE TABLE IF NOT EXISTS steps (name VARCHAR, info VARCHAR)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def run(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a query and return all of its rows, which should be few."""
        with self.explained():
            return list(self._connection.execute(query, list(values)).fetchall())

    def value(self, query: str, values: Sequence[Any] = ()) -> Any:
        """Return the single value of a query."""
        return self.run(query, values)[0][0]

    def arrays(self, query: str) -> dict[str, NDArray[Any]]:
        """Return the columns of a query by name; NULL cells are masked."""
        with self.explained():
            fetched: dict[str, NDArray[Any]] = self._connection.execute(query).fetchnumpy()
            return fetched

    def insert(self, query: str, columns: dict[str, NDArray[Any]]) -> None:
        """Execute a query that reads columns of equal length as the table ``added``."""
        with self.explained():
            self._connection.register("added", columns)
            try:
                self._connection.execute(query)
            finally:
                self._connection.unregister("added")

    def iterate(self, query: str, n_rows: int = 2048) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, fetched `n_rows` at a time."""
        with self.explained():
            cursor = self._connection.cursor()
            cursor.execute(query)
            while rows := cursor.fetchmany(n_rows):
                yield from rows

    def info(self, step: str) -> dict[str, Any] | None:
        """Return the notes of a finished step, or None if the step is not finished."""
        notes = self.run("SELECT info FROM steps WHERE name = ?", [step])
        return json.loads(notes[0][0]) if notes else None

    def once(self, step: str, work: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
        """Return the notes of a step, after calling `work`, which returns them, if the step is not finished.

        The changes that `work` makes to the database are committed together with the notes.
        """
        if (finished := self.info(step)) is not None:
            return finished
        self.run("BEGIN")
        try:
            notes = work() or {}
            self.run("INSERT INTO steps VALUES (?, ?)", [step, json.dumps(notes)])
            self.run("COMMIT")
        except BaseException:
            self._connection.rollback()
            raise
        return notes

    def ordered(self, wanted: bool) -> None:
        """Set whether tables are filled in file order, which takes more memory and time."""
        self.run(f"SET preserve_insertion_order = {'true' if wanted else 'false'}")

    def give_memory(self, share: float) -> None:
        """Limit duckdb to a share of its memory, for steps in which it only returns stored rows."""
        self.run(f"SET memory_limit = '{int(share * self.memory_bytes / 1e6)}MB'")

    def row_blocks(self, table: str, block_size: int) -> list[slice]:
        """Return ranges of row numbers that cover a table, which must not have been created in the current step."""
        return row_blocks(self.value(f"SELECT coalesce(max(rowid) + 1, 0) FROM {table}"), block_size)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Convert duckdb's errors about a full disk, low memory or a damaged file to one-line messages."""
        try:
            yield
        except self._duckdb.OutOfMemoryException as error:
            raise OutputError(
                f"the ingest needs more memory or more disk space at {self.folder.parent} than is available "
                f"({reason_of(error)}): continue with --resume and a larger --memory"
            ) from error
        except self._duckdb.IOException as error:
            raise OutputError(f"{self.folder.parent}: cannot be written or read ({reason_of(error)})") from error
        except self._duckdb.Error as error:
            raise DataError(f"cannot be read; damaged, or mixed line endings? ({reason_of(error)})") from error


BAD_ROWS_FILE = "bad-rows.csv"

_REASONS = {
    "number": "not a finite number",
    "id": "missing id",
    "truth": "missing true class",
    "repeated": "duplicate id",
    "line": "malformed line",
    "end": "an edge needs two ends",
    "group": "a membership needs a row and a group",
    "unknown": "no row has this id",
    "weight": f"a weight must be positive and at most {MAX_EDGE_WEIGHT:g}",
}
# Maximum number of characters of a malformed line that are stored.
_MAX_LINE_CHARS = 1000


@dataclass(frozen=True)
class Parts:
    """A sequence of tables with the same columns.

    `headers` says for each file whether its first line is a header; columns are then matched by position. If None, all
    files have a header if the first does, and columns are matched by name.
    """

    files: Sequence[Path]
    first: Table
    headers: Sequence[bool] | None = None

    def __iter__(self) -> Iterator[tuple[int, Path]]:
        return iter(enumerate(self.files))

    def table(self, number: int) -> Table:
        """Open a part; raise DataError if its columns differ from those of the first."""
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
        """Return the position in a part of the column at position `col` of the first part."""
        return col if self.headers is not None else table.names.index(self.first.names[col])


class _Bad(NamedTuple):
    """A bad row: its location and the reason."""

    file: int
    place: int | None
    line: int | None
    col: int | None
    cell: str | None
    reason: str


class BadRows:
    """The bad rows and edges of an ingest, stored in the table ``bad`` of a workspace.

    `parts` maps "rows", and "edges" or the names of relations, to their files; `ids_are_rows` is True if edges refer
    to row numbers.
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
        """Return the number of bad rows of a part; malformed lines ("line") are not among the rows that were read."""
        query = "SELECT count(*) FROM bad WHERE part = ? AND reason LIKE ?"
        return int(self._workspace.value(query, [part, reason]))

    def forget_lines(self) -> None:
        """Clear duckdb's list of malformed lines before reading a file."""
        self._workspace.run("DROP TABLE IF EXISTS reject_errors")
        self._workspace.run("DROP TABLE IF EXISTS reject_scans")

    def take_lines(self, part: str, file: int) -> None:
        """Record duckdb's list of malformed lines of the file that was just read."""
        if not self._workspace.value("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'reject_errors'"):
            return
        self._workspace.run(
            "INSERT INTO bad BY NAME SELECT ? AS part, ? AS file, line, 'line' AS reason, "
            f"any_value(left(csv_line, {_MAX_LINE_CHARS})) AS cell FROM reject_errors GROUP BY line",
            [part, file],
        )

    def refuse(self, part: str) -> None:
        """Raise the DataError that explains the first bad row of a part, if there is one."""
        n_bad = self.count(part)
        if n_bad == 0:
            return
        first = next(self._located(part, "LIMIT 1"))
        more = f" ({n_bad - 1} more {part} are invalid.)" if n_bad > 1 else ""
        explained = self._explained(part, *first).rstrip(".")
        raise DataError(f"{explained}.{more} Correct the file, or pass --skip-bad-rows to skip and list bad rows")

    def write(self, path: Path) -> None:
        """Write all bad rows to a CSV file with part, file, line, row, column, cell and reason."""
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["part", "file", "line", "row", "column", "cell", "reason"])
            for part, parts in self._parts.items():
                for bad, cell in self._located(part):
                    where = [parts.files[bad.file], cell.line, bad.place, cell.column or None]
                    writer.writerow([part, *where, cell.text, _REASONS[bad.reason]])

    def _located(self, part: str, limit: str = "") -> Iterator[tuple[_Bad, Cell]]:
        """Yield bad rows with the cells that are invalid, in one pass over each file."""
        columns = ", ".join(_Bad._fields)
        query = f"SELECT {columns} FROM bad WHERE part = {quoted(part)} ORDER BY file, place NULLS FIRST, line {limit}"
        rows = (_Bad(*row) for row in self._workspace.iterate(query))
        for file, group in groupby(rows, key=lambda bad: bad.file):
            yield from self._cells(part, file, group)

    def _cells(self, part: str, file: int, group: Iterator[_Bad]) -> Iterator[tuple[_Bad, Cell]]:
        parts = self._parts[part]
        table = parts.table(file)
        group, to_look_up = tee(group)
        records = table.records(bad.place for bad in to_look_up if bad.place is not None)
        for bad in group:
            if bad.place is None:
                yield bad, Cell(-1, bad.line, "", bad.cell)
                continue
            line, text, position = None, bad.cell, parts.position(table, bad.col or 0)
            # A file that cannot be parsed to its end has no records for its last rows.
            with suppress(StopIteration, DataError):
                _, line, cells = next(records)
                text = cells[position]
            yield bad, Cell(bad.place, line, table.names[position], text)

    def _explained(self, part: str, bad: _Bad, cell: Cell) -> str:
        path = self._parts[part].files[bad.file]
        n_cells = len(self._parts[part].first.names)
        if bad.reason == "line":
            return f"{path}, line {bad.line}: malformed: expected {n_cells} cells of UTF-8 text, got {cell.text!r}"
        if bad.reason == "number":
            return str(not_a_number(path, cell, self._dtype))
        problem = "the cell is empty" if cell.text is None else f"{cell.text!r} is not a class"
        problems: dict[str, Any] = {
            "id": "the cell is empty; every row needs an id",
            "truth": f"{problem}; every row needs a true class",
            "repeated": f"the id {cell.text!r} is also that of an earlier row; ids must be unique",
            "end": "the cell is empty; every edge needs two ends",
            "group": "the cell is empty; every membership needs a row and a group",
            "unknown": f"no row has the id {cell.text!r}",
            "weight": f"the weight is {cell.text!r}; weights must be positive and at most {MAX_EDGE_WEIGHT:g}",
        }
        if bad.reason == "unknown" and self._ids_are_rows:
            problems["unknown"] = (
                f"{cell.text!r} is not a row number; if edges refer to ids, name the id column with --id"
            )
        return f"{path}: {cell.where}: {problems[bad.reason]}"
