"""The first half of an ingest: features, ids and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import NOT_LABELS
from pamc.data.database import quoted
from pamc.data.files import naming
from pamc.data.ingest.workspace import BadRows, Parts, Workspace
from pamc.data.readers.columns import check_has_rows
from pamc.data.readers.tables import Table
from pamc.data.store import row_blocks
from pamc.data.store.writer import GrowingArray, StoreWriter
from pamc.progress import Progress

_KEYS_PER_BLOCK = 1 << 19
_IDS_PER_GROUP = 1 << 16
_IS_INTEGER = "coalesce(CAST(TRY_CAST({0} AS BIGINT) AS VARCHAR) = {0}, false)"


@dataclass(frozen=True)
class RowIngest:
    """Reads the files of rows, part by part, and writes features.npy, the ids and labels.npy.

    Rows are numbered from 0 across all parts in reading order. Bad rows are written too and removed afterwards, because
    repeated ids are known only after all parts were read.
    """

    workspace: Workspace
    writer: StoreWriter
    parts: Parts
    feature_names: Sequence[str]
    id_column: str | None
    truth_column: str | None
    dtype: str
    memory_bytes: int
    bad: BadRows
    progress: Progress

    def read(self) -> int:
        """Read and check all parts that were not read before, and return the number of rows."""
        self.workspace.run("CREATE TABLE IF NOT EXISTS names (row BIGINT, id VARCHAR, truth VARCHAR)")
        n_rows = 0
        for number, path in self.parts:
            with naming(path):
                if self.workspace.info(f"rows {number}") is None:
                    self._stage(self.parts.table(number))
                notes = self.workspace.once(f"rows {number}", partial(self._take, number, n_rows))
            self.workspace.run("DROP TABLE IF EXISTS stage")
            n_rows += notes["n_rows"]
        self.workspace.once("row checks", lambda: self._check(n_rows))
        return n_rows

    def skipped(self) -> NDArray[np.int64]:
        """Return the row numbers of the bad rows in ascending order."""
        rows = self.workspace.arrays("SELECT DISTINCT row FROM bad WHERE row IS NOT NULL ORDER BY row")["row"]
        return np.ma.getdata(rows).astype(np.int64)

    def write(self, skipped: NDArray[np.int64]) -> str:
        """Write the arrays of all good rows, and return what edges refer to: "rows", "integers" or "strings"."""
        self.workspace.once("features", lambda: self._write_features(skipped))
        kind = str(self.workspace.once("good rows", self._delete_bad_names)["kind"])
        self.workspace.once("ids", lambda: self._write_ids(kind, skipped))
        if self.truth_column is not None:
            self.workspace.once("labels", lambda: self._write_labels(skipped))
        return kind

    def _check(self, n_rows: int) -> None:
        """Record rows without id or truth, and rows with a repeated id."""
        with self.progress.phase("check ids"):
            for column, name in (("id", self.id_column), ("truth", self.truth_column)):
                if name is not None:
                    words = ("", *NOT_LABELS) if column == "truth" else ("",)
                    listed = ", ".join(map(quoted, words))
                    self._note(name, column, f"SELECT row FROM names WHERE coalesce(lower({column}), '') IN ({listed})")
            if self.id_column is not None:
                good = "SELECT row, id FROM names WHERE row NOT IN (SELECT row FROM bad WHERE row IS NOT NULL)"
                repeated = f"SELECT id, min(row) AS first FROM ({good}) GROUP BY id HAVING count(*) > 1"
                rows = f"SELECT n.row FROM names n JOIN ({repeated}) r ON n.id = r.id WHERE n.row > r.first"
                self._note(self.id_column, "repeated", rows)
            check_has_rows(self.parts.first, n_rows + self.bad.count("rows"))

    def _write_features(self, skipped: NDArray[np.int64]) -> None:
        """Write the features of all good rows to the store."""
        raw, target = self.writer.scratch / "features.npy", self.writer.path("features.npy")
        if len(skipped) == 0:
            if raw.exists():
                raw.replace(target)
            return
        # The raw file is kept until the ingest is finished, so that this step can be repeated.
        with self.writer.grow("features", self.dtype, row_shape=(len(self.feature_names),)) as good:
            rows = np.lib.format.open_memmap(raw, mode="r")
            for block in row_blocks(len(rows), self._rows_per_block):
                first, last = np.searchsorted(skipped, [block.start, block.stop])
                good.append(np.delete(np.array(rows[block]), skipped[first:last] - block.start, axis=0))

    def _delete_bad_names(self) -> dict[str, str]:
        """Delete bad rows from the table of names, and return the `kind` of ids that edges refer to."""
        self.workspace.run("DELETE FROM names WHERE row IN (SELECT row FROM bad WHERE row IS NOT NULL)")
        if self.id_column is None:
            return {"kind": "rows"}
        all_integers, in_order = self.workspace.run(
            f"SELECT bool_and({_IS_INTEGER.format('id')}), bool_and(id = CAST(row AS VARCHAR)) FROM names"
        )[0]
        kind = "rows" if in_order else "integers" if all_integers else "strings"
        if kind == "integers":
            self.workspace.run("CREATE TABLE keys AS SELECT row, CAST(id AS BIGINT) AS id FROM names")
        return {"kind": kind}

    def _write_ids(self, kind: str, skipped: NDArray[np.int64]) -> None:
        """Write the ids; row numbers need no file unless rows were removed."""
        self.workspace.ordered(True)
        with self.progress.phase("ids"):
            if kind == "strings":
                # Insertion order is row order.
                self.workspace.run(
                    f"COPY (SELECT id FROM names) TO {quoted(str(self.writer.path('ids.parquet').absolute()))} "
                    f"(FORMAT parquet, ROW_GROUP_SIZE {_IDS_PER_GROUP})"
                )
            elif kind == "integers":
                self._scatter("ids", "SELECT row, id AS value FROM keys", "keys", skipped)
            elif len(skipped):
                with self.writer.grow("ids", np.int64) as ids:
                    for block in row_blocks(self._starts()[-1], _KEYS_PER_BLOCK):
                        ids.append(np.setdiff1d(np.arange(block.start, block.stop), skipped))

    def _write_labels(self, skipped: NDArray[np.int64]) -> None:
        """Write the true classes, encoded as integers 0, 1, … in sorted order."""
        with self.progress.phase("labels"):
            integers = self.workspace.value(f"SELECT bool_and({_IS_INTEGER.format('truth')}) FROM names")
            key = "CAST(truth AS BIGINT)" if integers else "truth"
            self.workspace.run(
                f"CREATE OR REPLACE TABLE classes AS SELECT truth, row_number() OVER (ORDER BY {key}) - 1 AS code "
                "FROM (SELECT DISTINCT truth FROM names)"
            )
            query = "SELECT names.row AS row, code AS value FROM names JOIN classes ON names.truth = classes.truth"
            self._scatter("labels", query, "names", skipped)

    def _scatter(self, name: str, query: str, table: str, skipped: NDArray[np.int64]) -> None:
        """Write an array of the store from a query of (row, value), in blocks of the given table."""
        n_nodes = self._starts()[-1] - len(skipped)
        array = self.writer.create(name, n_nodes, np.int64)
        for block in self.workspace.row_blocks(table, _KEYS_PER_BLOCK):
            in_block = f"{table}.rowid >= {block.start} AND {table}.rowid < {block.stop}"
            fetched = self.workspace.arrays(f"{query} WHERE {in_block}")
            rows = np.ma.getdata(fetched["row"])
            array[rows - np.searchsorted(skipped, rows)] = np.ma.getdata(fetched["value"])

    def _stage(self, table: Table) -> None:
        """Read one part into the table ``stage``, in the order of the file."""
        # One list per row instead of one column per feature: duckdb keeps a block of each column in memory.
        columns = [f"[{', '.join(table.number_sql(name) for name in self.feature_names)}] AS features"]
        for role, name in (("id", self.id_column), ("truth", self.truth_column)):
            columns.append(f"{'NULL::VARCHAR' if name is None else table.text_sql(name)} AS {role}")
        self.bad.forget_lines()
        self.workspace.ordered(True)
        with self.progress.phase("read rows"):
            self.workspace.run(
                f"CREATE OR REPLACE TABLE stage AS SELECT {', '.join(columns)} FROM {table.tolerant_sql}"
            )

    def _take(self, number: int, n_before: int) -> dict[str, int]:
        """Move the staged part to the features file and the table of names, and return its `n_rows`."""
        n_features = len(self.feature_names)
        blocks = self.workspace.row_blocks("stage", self._rows_per_block)
        raw = GrowingArray(self.writer.scratch / "features.npy", self.dtype, row_shape=(n_features,), n_rows=n_before)
        with raw, self.progress.phase("features", len(blocks)) as phase:
            for block in blocks:
                in_block = f"rowid >= {block.start} AND rowid < {block.stop}"
                query = f"SELECT unnest(features) AS value FROM stage WHERE {in_block}"
                values = self.workspace.arrays(query)["value"].reshape(-1, n_features)
                with np.errstate(over="ignore", invalid="ignore"):
                    features = np.ma.getdata(values).astype(self.dtype, copy=False)
                raw.append(features)
                wrong = np.ma.getmaskarray(values) | ~np.isfinite(features)
                self._note_numbers(wrong, number, block.start, n_before + block.start)
                phase.advance()
        if self.id_column is not None or self.truth_column is not None:
            self.workspace.run(f"INSERT INTO names SELECT rowid + {n_before}, id, truth FROM stage")
        self.bad.take_lines("rows", number)
        return {"n_rows": raw.n_rows - n_before}

    def _note_numbers(self, wrong: NDArray[np.bool_], number: int, place: int, row: int) -> None:
        places = np.flatnonzero(wrong.any(axis=1))
        if len(places) == 0:
            return
        positions = np.array([self.parts.first.names.index(name) for name in self.feature_names])
        self.workspace.insert(
            f"INSERT INTO bad BY NAME SELECT 'rows' AS part, {number} AS file, 'number' AS reason, * FROM added",
            {"place": places + place, "row": places + row, "col": positions[wrong[places].argmax(axis=1)]},
        )

    def _note(self, column: str, reason: str, rows: str) -> None:
        """Record the rows of a query as bad, except those that are recorded already."""
        starts = self._starts()
        ranges = ", ".join(f"({i}, {low}, {high})" for i, (low, high) in enumerate(pairwise(starts)))
        self.workspace.run(
            "INSERT INTO bad BY NAME SELECT 'rows' AS part, file, row - low AS place, row, "
            f"{self.parts.first.names.index(column)} AS col, '{reason}' AS reason "
            f"FROM ({rows}) JOIN (VALUES {ranges}) AS ranges(file, low, high) ON row >= low AND row < high "
            "WHERE row NOT IN (SELECT row FROM bad WHERE row IS NOT NULL)"
        )

    def _starts(self) -> list[int]:
        """Return the first row of each part, followed by the number of rows."""
        infos = [self.workspace.info(f"rows {number}") or {"n_rows": 0} for number, _ in self.parts]
        return [0, *accumulate(int(info["n_rows"]) for info in infos)]

    @property
    def _rows_per_block(self) -> int:
        # Memory per value: the fetched value, its copy in the block, and its mask.
        return max(256, self.memory_bytes // 16 // (12 * len(self.feature_names)))
