"""The first half of an ingest: features, ids and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import NOT_LABELS
from pamc.data.columns.encoding import TableEncoding, fit_encoding
from pamc.data.columns.raw import MISSING_NUMBERS, RawColumn, RawTable
from pamc.data.columns.types import ID, IGNORE, Types, find_types
from pamc.data.database import quoted
from pamc.data.files import naming
from pamc.data.ingest.workspace import BadRows, Parts, Workspace
from pamc.data.readers.columns import check_has_rows
from pamc.data.readers.tables import Table
from pamc.data.rows import warn_about_types
from pamc.data.store import row_blocks
from pamc.data.store.writer import GrowingArray, StoreWriter
from pamc.errors import DataError
from pamc.progress import Progress

_KEYS_PER_BLOCK = 1 << 19
_IDS_PER_GROUP = 1 << 16

# Minimum and maximum number of rows from which the types of columns are inferred, and maximum number of their cells.
_LEAST_SAMPLED, _MOST_SAMPLED, _SAMPLED_CELLS = 1000, 50_000, 2_000_000

# A hash of the row number: its product with a large prime, without the last bits. Rows are sampled by this hash, so
# that patterns in their order do not matter.
_MIXED_NUMBER = "((n * 2654435761) % 4294967296 // 4096)"

# Memory of a cell that is fetched as a Python object.
_BYTES_PER_CELL = 200

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
    encoding: TableEncoding | None = None

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
        with self.writer.grow("features", self.dtype, row_shape=(self._n_features,)) as good:
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
        if self.encoding is None:
            # One list per row instead of one column per feature: duckdb keeps a block of each column in memory.
            columns = [f"[{', '.join(_number_sql(table, name) for name in self.feature_names)}] AS features"]
        else:
            columns = [_cells_sql(table, self.feature_names)]
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
        blocks = self.workspace.row_blocks("stage", self._rows_per_block)
        shape = (self._n_features,)
        raw = GrowingArray(self.writer.scratch / "features.npy", self.dtype, row_shape=shape, n_rows=n_before)
        with raw, self.progress.phase("features", len(blocks)) as phase:
            for block in blocks:
                in_block = f"rowid >= {block.start} AND rowid < {block.stop}"
                if self.encoding is None:
                    features, wrong = self._numbers(in_block)
                    self._note_numbers(wrong, number, block.start, n_before + block.start)
                else:
                    features = self._encoded(self.encoding, in_block, self.parts.table(number), block.start)
                raw.append(features)
                phase.advance()
        if self.id_column is not None or self.truth_column is not None:
            self.workspace.run(f"INSERT INTO names SELECT rowid + {n_before}, id, truth FROM stage")
        self.bad.take_lines("rows", number)
        return {"n_rows": raw.n_rows - n_before}

    def _numbers(self, in_block: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the features of staged rows, NaN for missing cells, and a mask of the cells that are not numbers."""
        query = f"SELECT unnest(features) AS value FROM stage WHERE {in_block}"
        values = self.workspace.arrays(query)["value"].reshape(-1, self._n_features)
        with np.errstate(over="ignore", invalid="ignore"):
            features = np.ma.getdata(values).astype(self.dtype, copy=False)
        return features, np.ma.getmaskarray(values) | np.isinf(features)

    def _encoded(self, encoding: TableEncoding, in_block: str, table: Table, first: int) -> NDArray[Any]:
        """Return the features of staged rows of a table of mixed types; the first of them has this row number."""
        names = [name for name in self.feature_names if name in encoding.raw_names]
        selected = ", ".join(f"f{self.feature_names.index(name)}" for name in names)
        fetched = self.workspace.arrays(f"SELECT {selected} FROM stage WHERE {in_block}")
        columns = [_raw_column(name, cells) for name, cells in zip(names, fetched.values(), strict=True)]
        return encoding.encode(
            RawTable(columns, len(columns[0]), str(table.path), lambda row: _location(table, first + row))
        )

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
        if self.encoding is None:
            return max(256, self.memory_bytes // 16 // (12 * self._n_features))
        # Cells of mixed types are fetched as Python objects, and encoded in float64.
        return max(256, self.memory_bytes // 16 // (_BYTES_PER_CELL * len(self.feature_names) + 24 * self._n_features))

    @property
    def _n_features(self) -> int:
        return len(self.feature_names if self.encoding is None else self.encoding.feature_names)


def find_encoding(
    workspace: Workspace, parts: Parts, names: Sequence[str], types: Types | None, *, finds_id: bool
) -> TableEncoding:
    """Return the encoding of columns of mixed types, fitted to rows that are evenly spaced over all parts.

    Parameters
    ----------
    names
        Columns whose types are inferred.
    types
        Types set by the user, by column name.
    finds_id
        Whether a column may be chosen as the ids of the rows.
    """
    tables = []
    for number, path in parts:
        with naming(path):
            tables.append(parts.table(number))
    _check_alike(tables, names)
    n_rows = sum(workspace.value(f"SELECT count(*) FROM {table.tolerant_sql}") for table in tables)
    check_has_rows(parts.first, n_rows)
    one_in = -(-n_rows // max(_LEAST_SAMPLED, min(_MOST_SAMPLED, _SAMPLED_CELLS // len(names))))
    sampled, places = [], []
    for table in tables:
        numbered = f"(SELECT *, row_number() OVER () - 1 AS n FROM {table.tolerant_sql})"
        chosen = f"{_MIXED_NUMBER} % {one_in} = 0"
        fetched = workspace.arrays(f"SELECT n, {_cells_sql(table, names)} FROM {numbered} WHERE {chosen} ORDER BY n")
        places += [(table, int(row)) for row in fetched.pop("n")]
        sampled.append([_raw_column(name, cells) for name, cells in zip(names, fetched.values(), strict=True)])
    columns = [_joined(same_column) for same_column in zip(*sampled, strict=True)]

    def where(number: int) -> str:
        table, row = places[number]
        location = _location(table, row)
        return location if len(tables) == 1 else f"{table.path.name}, {location}"

    source = parts.first.path if len(tables) == 1 else parts.first.path.parent
    raw, types = RawTable(columns, len(columns[0]), str(source), where), dict(types or {})
    given = dict(types)
    found = find_types(raw, types)
    for column in found:
        if column.kind == ID and not column.is_given and not (finds_id and _is_unique(workspace, tables, column.name)):
            types[column.name] = IGNORE
    encoding, _ = fit_encoding(raw, find_types(raw, types), given)
    warn_about_types(encoding, raw.source, stacklevel=5)
    return encoding


def _check_alike(tables: Sequence[Table], names: Sequence[str]) -> None:
    """Raise DataError if one part stores numbers and another part text in the same column."""
    for name in names:
        stored = [table.stores_numbers(name) for table in tables]
        if any(stored) and not all(stored):
            numeric, other = tables[stored.index(True)], tables[stored.index(False)]
            raise DataError(
                f"column {name!r} contains numbers in {numeric.path} and text or dates in {other.path}: convert it to "
                "the same type in all files"
            )


def _location(table: Table, row: int) -> str:
    line = table.cell(row, table.names[0]).line
    return f"row {row}" if line is None else f"line {line}"


def _is_unique(workspace: Workspace, tables: Sequence[Table], name: str) -> bool:
    """Return whether all cells of a column differ and none is empty."""
    cells = " UNION ALL ".join(f"SELECT {table.text_sql(name)} AS cell FROM {table.tolerant_sql}" for table in tables)
    return bool(workspace.value(f"SELECT count(*) = count(DISTINCT nullif(cell, '')) FROM ({cells})"))


def _number_sql(table: Table, name: str) -> str:
    """Return a SQL expression for the number in a column: NaN if the cell is missing, NULL if it is something else."""
    missing = ", ".join(map(quoted, sorted(MISSING_NUMBERS)))
    is_missing = f"coalesce(lower({table.text_sql(name)}), '') IN ({missing})"
    return f"coalesce({table.number_sql(name)}, CASE WHEN {is_missing} THEN 'nan'::FLOAT END)"


def _cells_sql(table: Table, names: Sequence[str]) -> str:
    """Return SQL expressions for the cells of columns, named f0, f1, …: numbers if the file stores them, else texts."""
    cells = [
        table.number_sql(name, dtype="float64") if table.stores_numbers(name) else table.text_sql(name)
        for name in names
    ]
    return ", ".join(f"{cell} AS f{number}" for number, cell in enumerate(cells))


def _raw_column(name: str, cells: NDArray[Any]) -> RawColumn:
    """Return a column that duckdb fetched; NULL cells and empty texts are missing."""
    data, is_null = np.ma.getdata(cells), np.ma.getmaskarray(cells)
    if data.dtype.kind == "f":
        return RawColumn(name, numbers=np.where(is_null, np.nan, data))
    texts = data.astype(object)
    texts[is_null | (texts == "")] = None
    return RawColumn.of_texts(name, texts.tolist())


def _joined(parts: Sequence[RawColumn]) -> RawColumn:
    """Return one column of several parts, as numbers only if all parts store numbers."""
    if all(part.numbers is not None for part in parts):
        return RawColumn(parts[0].name, numbers=np.concatenate([part.numbers for part in parts]))
    return RawColumn(parts[0].name, texts=np.concatenate([part.as_texts() for part in parts]))
