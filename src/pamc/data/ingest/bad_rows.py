"""Rows and edges that cannot be used: counted, the first one explained, all of them listed on request."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from pamc.data.attributed_graph import MAX_EDGE_WEIGHT
from pamc.data.ingest.sources import Parts
from pamc.data.ingest.workspace import Workspace
from pamc.data.readers.cells import Cell, not_a_number
from pamc.data.readers.tables import Table
from pamc.errors import DataError

__all__ = ["BAD_ROWS_FILE", "BadRows"]

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

    Parameters
    ----------
    workspace
        The database.
    parts
        The files by what they hold: "rows", and "edges" where there are any.
    dtype
        Number type of the features.
    ids_are_rows
        Whether edges name row numbers.
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

    def count(self, part: str) -> int:
        """Return the number of bad rows of a part."""
        return int(self._workspace.value("SELECT count(*) FROM bad WHERE part = ?", [part]))

    def count_lines(self, part: str) -> int:
        """Return the number of malformed lines of a part, which are not among the rows that were read."""
        query = "SELECT count(*) FROM bad WHERE part = ? AND reason = 'line'"
        return int(self._workspace.value(query, [part]))

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
