"""The database of an ingest: what was read so far, and which steps are finished."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pamc.data.blocks import row_blocks
from pamc.data.database import load_duckdb
from pamc.data.files import reason_of
from pamc.errors import DataError, OutputError

__all__ = ["Workspace", "unmasked"]

# Of the memory of an ingest: duckdb's share. The rest is for numpy's blocks and what duckdb does not count.
_DATABASE_SHARE = 0.6


class Workspace:
    """A duckdb database in a folder, with bounded memory, that spills into the same folder.

    A step and the record that it is finished are one transaction: whenever the process is killed, a step has happened
    or it has not.

    Parameters
    ----------
    folder
        Where the database and its spilled blocks lie.
    memory_bytes
        Memory of the whole ingest; duckdb is given a share of it.
    n_threads
        Threads of duckdb.

    Attributes
    ----------
    memory_bytes
        What duckdb may use.
    """

    def __init__(self, folder: Path, *, memory_bytes: int, n_threads: int) -> None:
        duckdb = load_duckdb("ingest works")
        self._duckdb = duckdb
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
