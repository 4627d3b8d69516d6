"""Ingest memberships: (row, group) pairs, which give a relation between the rows of each group."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.files import naming
from pamc.data.ingest.pairs import MOST_RANGES, SORTING_SHARE, buckets_of, end_sql, rows_sql
from pamc.data.ingest.workspace import BadRows, Parts, Workspace
from pamc.data.memberships import MOST_JOINED, circles, joining_pairs
from pamc.data.store.neighbor_sort import NeighborSorter, bucket_starts
from pamc.data.store.writer import StoreWriter
from pamc.errors import DataError
from pamc.progress import Progress


@dataclass(frozen=True)
class MemberIngest:
    """Reads files of memberships, part by part, and writes weighted edges between rows that share groups.

    The relation is that of :class:`pamc.data.memberships.Memberships`. Unlike edges, which are sorted out of core, all
    matched memberships are held in memory, at about 100 bytes each.
    """

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
    part: str
    suffix: str

    @property
    def _table(self) -> str:
        """Name of the table of the memberships."""
        return "members" + self.suffix.replace("-", "_")

    def read(self) -> None:
        """Read all parts that have not been read yet; an invalid membership has NULL as its row or its group."""
        self.workspace.run(f"CREATE TABLE IF NOT EXISTS {self._table} (a BIGINT, g VARCHAR)")
        for number, path in self.parts:
            with naming(path):
                self.workspace.once(f"{self.part} {number}", partial(self._read_part, number))

    def sort(self) -> dict[str, int]:
        """Sort the neighbors into the arrays of the store, and return the number of lines."""
        n_nodes = self.n_rows - len(self.skipped)
        query = f"SELECT DISTINCT a, g FROM {self._table} WHERE a IS NOT NULL AND g IS NOT NULL"
        found = self.workspace.arrays(f"SELECT a, dense_rank() OVER (ORDER BY g) - 1 AS g FROM ({query})")
        rows, groups = (np.ma.getdata(found[name]).astype(np.int64) for name in "ag")
        with naming(self.parts.first.path):
            if len(rows) == 0:
                raise DataError("has no memberships: leave the file out")
            rows, groups = joining_pairs(rows - np.searchsorted(self.skipped, rows), groups, n_nodes)
        starts = self._bucket_starts(rows, groups, n_nodes)
        sorter = NeighborSorter(buckets_of(self.writer, self.suffix), n_nodes, starts, weighted=True)
        sorter.start()
        for low, high, weight in circles(rows, groups):
            sorter.add(low, high, weight)
        sorter.write(self.writer, progress=self.progress, n_threads=self.n_threads, suffix=self.suffix)
        return {"n_membership_lines": int(self.workspace.value(f"SELECT count(*) FROM {self._table}"))}

    def _bucket_starts(self, rows: NDArray[np.int64], groups: NDArray[np.int64], n_nodes: int) -> NDArray[np.int64]:
        """Return the first rows of buckets of nearly equal size."""
        width = max(1, -(-n_nodes // MOST_RANGES))
        joined = np.minimum(np.bincount(groups)[groups] - 1, MOST_JOINED)
        counts = np.bincount(rows // width, weights=joined, minlength=-(-n_nodes // width)).astype(np.int64)
        memory = int(SORTING_SHARE * self.memory_bytes)
        starts = bucket_starts(n_nodes, counts, memory_bytes=memory, weighted=True)
        return np.unique(np.minimum(starts, n_nodes - 1))

    def _read_part(self, number: int) -> None:
        """Append the memberships of a part to the table, and record those that are invalid."""
        with self.progress.phase("read memberships"):
            table = self.parts.table(number)
            self.bad.forget_lines()
            row, group = table.names
            columns: dict[str, Any] = {"a": end_sql(table, row, self.kind), "g": table.text_sql(group)}
            columns |= {"n": "row_number() OVER () - 1", "t": table.text_sql(row)}
            named = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
            (found,), joins = rows_sql("a", self.kind, self.n_rows, has_skipped=bool(len(self.skipped)))
            self.workspace.ordered(True)
            self.workspace.run(
                f"CREATE OR REPLACE TEMP TABLE read AS SELECT {found} AS a, nullif(g, '') AS g, n, t "
                f"FROM (SELECT {named} FROM {table.tolerant_sql}) AS edges{joins}"
            )
            self.bad.take_lines(self.part, number)
            self.workspace.run(f"INSERT INTO {self._table} SELECT a, g FROM read")
            self.workspace.run(
                f"INSERT INTO bad BY NAME SELECT ? AS part, {number} AS file, n AS place, "
                "CASE WHEN a IS NULL THEN 0 ELSE 1 END AS col, "
                "CASE WHEN g IS NULL OR coalesce(t, '') = '' THEN 'group' ELSE 'unknown' END AS reason "
                "FROM read WHERE a IS NULL OR g IS NULL",
                [self.part],
            )
            self.workspace.run("DROP TABLE read")
            self.bad.forget_lines()
