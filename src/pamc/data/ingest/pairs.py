"""The second half of an ingest: edges, matched to row numbers by duckdb and sorted bucket by bucket."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import MAX_EDGE_WEIGHT
from pamc.data.files import naming
from pamc.data.ingest.workspace import BadRows, Parts, Workspace
from pamc.data.readers.edges import first_ends, no_edges, open_edge_table, open_membership_table, warn_about_header
from pamc.data.readers.tables import Table, is_integer_text
from pamc.data.store.neighbor_sort import NeighborSorter, bucket_starts, in_order
from pamc.data.store.writer import StoreWriter
from pamc.errors import DataError
from pamc.progress import Progress

MOST_RANGES = 1 << 16
# Memory per pair while it is fetched and sorted, with a weight.
_BYTES_PER_PAIR = 160
# Share of duckdb's memory for hash tables of the row ids at both ends; and bytes per hashed id in addition to its text.
_NAMES_SHARE = 0.7
_BYTES_PER_NAME = 40
# Share of the memory for sorting, while duckdb only returns stored rows.
SORTING_SHARE = 0.3


def edge_parts(files: Sequence[Path], workspace: Workspace, kind: str, *, are_members: bool = False) -> Parts:
    """Return the files of edges or memberships, after detecting which of them start with a header.

    The first line of a file is data if one of its ends can be a row: an integer if row ids are integers, else a known
    id. In a line of memberships, only the first cell is a row.
    """
    n_ends = 1 if are_members else 2
    first_lines = [None if (line := first_ends(path)) is None else line[:n_ends] for path in files]
    ends = {end for line in first_lines if line is not None for end in line}
    rows = {end for end in ends if is_integer_text(end)} if kind != "strings" else _known(workspace, ends)
    headers = [line is None or not rows.intersection(line) for line in first_lines]
    for path, line, is_header in zip(files, first_lines, headers, strict=True):
        if kind == "strings" and line is not None and is_header and not are_members:
            warn_about_header(path, line, stacklevel=3)
    open_first = open_membership_table if are_members else open_edge_table
    return Parts(files, open_first(files[0], header=headers[0]), headers)


def buckets_of(writer: StoreWriter, suffix: str) -> Path:
    """Return the folder for the buckets of a graph, so that a resumed ingest does not use those of another."""
    folder = writer.scratch / f"buckets{suffix}"
    folder.mkdir(exist_ok=True)
    return folder


def end_sql(table: Table, name: str, kind: str) -> str:
    """Return the SQL of a column that refers to rows by ids of a kind: "rows", "integers" or "strings"."""
    return table.text_sql(name) if kind == "strings" else table.number_sql(name, dtype="int64")


def rows_sql(columns: Sequence[str], kind: str, n_rows: int, *, has_skipped: bool) -> tuple[list[str], str]:
    """Return the SQL of the rows that columns of the table ``edges`` refer to, NULL if unknown, and of its joins."""
    if kind != "rows":
        ids = "names" if kind == "strings" else "keys"
        joins = (f" LEFT JOIN {ids} AS {x}_ids ON {x}_ids.id = edges.{x}" for x in columns)
        return [f"{x}_ids.row" for x in columns], "".join(joins)
    rows = [f"CASE WHEN {x} >= 0 AND {x} < {n_rows} THEN {x} END" for x in columns]
    if not has_skipped:
        return rows, ""
    bad = "(SELECT DISTINCT row FROM bad WHERE part = 'rows' AND row IS NOT NULL)"
    rows = [f"CASE WHEN {x}_gone.row IS NULL THEN {row} END" for x, row in zip(columns, rows, strict=True)]
    return rows, "".join(f" LEFT JOIN {bad} AS {x}_gone ON {x}_gone.row = edges.{x}" for x in columns)


@dataclass(frozen=True)
class PairIngest:
    """Reads the edge files, part by part, and writes indptr.npy, indices.npy and weight.npy."""

    workspace: Workspace
    writer: StoreWriter
    parts: Parts
    kind: str
    n_rows: int
    skipped: NDArray[np.int64]
    memory_bytes: int
    n_threads: int
    bad: BadRows
    progress: Progress
    part: str = "edges"
    suffix: str = ""

    def read(self) -> None:
        """Read all parts that were not read before; an invalid edge has NULL as the row of one end."""
        self.workspace.run(f"CREATE TABLE IF NOT EXISTS {self._table} (a BIGINT, b BIGINT, w FLOAT)")
        for number, path in self.parts:
            with naming(path):
                self.workspace.once(f"{self.part} {number}", partial(self._read_part, number))
        if self.workspace.value(f"SELECT count(*) FROM {self._table}") == 0 and self.bad.count(self.part) == 0:
            raise no_edges(self.parts.first.path)

    def sort(self) -> dict[str, int]:
        """Sort the pairs into the arrays of the store, and return the counts of lines, self-loops and duplicates."""
        n_nodes = self.n_rows - len(self.skipped)
        starts = np.array(
            self.workspace.once(f"buckets of {self.part}", lambda: self._bucket_starts(n_nodes))["starts"]
        )
        sorter = NeighborSorter(buckets_of(self.writer, self.suffix), n_nodes, starts, weighted=self._weighted)
        self.workspace.give_memory(1 - 2 * SORTING_SHARE)
        counts = self.workspace.once(f"pairs of {self.part}", lambda: self._distribute(sorter))
        n_stored = sorter.write(self.writer, progress=self.progress, n_threads=self.n_threads, suffix=self.suffix)
        if n_stored == 0 and self.suffix:
            raise DataError(f"{self.parts.first.path}: has no edges between different rows: leave it out")
        n_lines, n_loops = counts["n_lines"], counts["n_loops"]
        return {"n_edge_lines": n_lines, "n_self_loops": n_loops, "n_repeated": n_lines - n_loops - n_stored // 2}

    def _read_part(self, number: int) -> None:
        """Append the edges of a part to the table of pairs, and record those that are invalid."""
        with self.progress.phase("read edges"):
            table = self.parts.table(number)
            self.bad.forget_lines()
            self.workspace.ordered(False)
            n_before = self.workspace.value(f"SELECT count(*) FROM {self._table}")
            self._join(table)
            self.bad.take_lines(self.part, number)
            wrong = f"SELECT 1 FROM {self._table} WHERE rowid >= {n_before} AND (a IS NULL OR b IS NULL) LIMIT 1"
            if self.workspace.run(wrong):
                self._find_bad(table, number)

    @property
    def _table(self) -> str:
        """Name of the table of the pairs."""
        return "pairs" + self.suffix.replace("-", "_")

    @property
    def _weighted(self) -> bool:
        return len(self.parts.first.names) == 3

    def _join(self, table: Table) -> None:
        """Append the edges of a part to the table of pairs."""
        if self.kind != "strings" or not self._ids_are_large():
            self.workspace.run(f"INSERT INTO {self._table} SELECT a_row, b_row, w FROM {self._joined(table)}")
            return
        # Join one end at a time: hash tables of all ids for both ends would not fit in memory.
        a, b = (table.text_sql(name) for name in table.names[:2])
        self.workspace.run(
            "CREATE OR REPLACE TABLE halves AS SELECT ids.row AS a, b, w "
            f"FROM (SELECT {a} AS a, {b} AS b, {self._weight_sql(table)} AS w FROM {table.tolerant_sql}) AS edges "
            "LEFT JOIN names AS ids ON ids.id = edges.a"
        )
        self.workspace.run(
            f"INSERT INTO {self._table} SELECT CASE WHEN {self._good_weight} THEN a END, ids.row, w "
            "FROM halves LEFT JOIN names AS ids ON ids.id = halves.b"
        )
        self.workspace.run("DROP TABLE halves")

    def _ids_are_large(self) -> bool:
        n_bytes = self.workspace.value(f"SELECT sum(strlen(id) + {_BYTES_PER_NAME}) FROM names")
        return bool(2 * n_bytes > _NAMES_SHARE * self.workspace.memory_bytes)

    def _weight_sql(self, table: Table) -> str:
        return table.number_sql(table.names[2]) if self._weighted else "1::FLOAT"

    @property
    def _good_weight(self) -> str:
        return f"w > 0 AND w <= {MAX_EDGE_WEIGHT}" if self._weighted else "true"

    def _joined(self, table: Table, *, numbered: bool = False) -> str:
        """Return SQL of all edges of a part: ends a, b as written in the file, their rows, and a weight.

        The row of a is also NULL if the weight is invalid. With ``numbered``, column n is the position in the file.
        """
        ends = [end_sql(table, name, self.kind) for name in table.names[:2]]
        columns = f"{ends[0]} AS a, {ends[1]} AS b, {self._weight_sql(table)} AS w"
        if numbered:
            texts = ", ".join(f"{table.text_sql(name)} AS t{i}" for i, name in enumerate(table.names))
            columns += f", row_number() OVER () - 1 AS n, {texts}"
        edges = f"(SELECT {columns} FROM {table.tolerant_sql}) AS edges"
        rows, joins = rows_sql("ab", self.kind, self.n_rows, has_skipped=bool(len(self.skipped)))
        return (
            f"(SELECT edges.*, CASE WHEN {self._good_weight} THEN {rows[0]} END AS a_row, {rows[1]} AS b_row, "
            f"{rows[0]} AS a_known FROM {edges}{joins})"
        )

    def _find_bad(self, table: Table, number: int) -> None:
        """Record the invalid edges of a part with their positions in the file."""
        empty = [f"coalesce(t{i}, '') = ''" for i in range(2)]
        invalid = f"(SELECT * FROM {self._joined(table, numbered=True)} WHERE a_row IS NULL OR b_row IS NULL)"
        reason = f"CASE WHEN {empty[0]} OR {empty[1]} THEN 'end' WHEN a_known IS NULL OR b_row IS NULL THEN 'unknown' "
        col = (
            f"CASE WHEN {empty[0]} THEN 0 WHEN {empty[1]} THEN 1 WHEN a_known IS NULL THEN 0 WHEN b_row IS NULL THEN 1 "
        )
        self.bad.forget_lines()
        self.workspace.run(
            f"INSERT INTO bad BY NAME SELECT ? AS part, {number} AS file, n AS place, {col} ELSE 2 END AS col, "
            f"{reason} ELSE 'weight' END AS reason FROM {invalid}",
            [self.part],
        )

    def _bucket_starts(self, n_nodes: int) -> dict[str, list[int]]:
        """Return the `starts` of buckets of nearly equal size, from degrees counted in ranges of rows."""
        width = max(1, -(-self.n_rows // MOST_RANGES))
        counts = np.zeros(-(-self.n_rows // width), dtype=np.int64)
        for end in ("a", "b"):
            degrees = self.workspace.arrays(
                f"SELECT {end} // {width} AS place, count(*) AS n FROM {self._table} "
                "WHERE a IS NOT NULL AND b IS NOT NULL GROUP BY place"
            )
            counts[np.ma.getdata(degrees["place"])] += np.ma.getdata(degrees["n"])
        memory = int(SORTING_SHARE * self.memory_bytes)
        starts = bucket_starts(self.n_rows, counts, memory_bytes=memory, weighted=self._weighted)
        starts = np.minimum(starts - np.searchsorted(self.skipped, starts), n_nodes - 1)
        return {"starts": np.unique(starts).tolist()}

    def _distribute(self, sorter: NeighborSorter) -> dict[str, Any]:
        """Pass all pairs to the sorter, and return the counts of lines and self-loops."""
        n_pairs = max(1 << 12, int(SORTING_SHARE * self.memory_bytes) // (_BYTES_PER_PAIR * (self.n_threads + 1)))
        blocks = self.workspace.row_blocks(self._table, n_pairs)
        counts = {"n_lines": 0, "n_loops": 0}
        sorter.start()

        def fetched() -> Any:
            for block in blocks:
                pairs = self.workspace.arrays(
                    f"SELECT a, b, w FROM {self._table} WHERE rowid >= {block.start} AND rowid < {block.stop} "
                    "AND a IS NOT NULL AND b IS NOT NULL"
                )
                yield tuple(np.ma.getdata(pairs[name]) for name in "abw")

        def add(block: tuple[NDArray[Any], NDArray[Any], NDArray[Any]]) -> tuple[int, int]:
            source, target = (rows - np.searchsorted(self.skipped, rows) for rows in block[:2])
            sorter.add(source, target, block[2] if self._weighted else None)
            return len(source), int((source == target).sum())

        with ThreadPoolExecutor(self.n_threads) as pool, self.progress.phase("pairs", len(blocks)) as phase:
            for n_lines, n_loops in in_order(pool, add, fetched(), ahead=self.n_threads):
                counts["n_lines"] += n_lines
                counts["n_loops"] += n_loops
                phase.advance()
        return counts


def _known(workspace: Workspace, cells: set[str]) -> set[str]:
    """Return the cells that are ids of rows."""
    if not cells:
        return set()
    marks = ", ".join("?" * len(cells))
    return {row[0] for row in workspace.run(f"SELECT id FROM names WHERE id IN ({marks})", sorted(cells))}
