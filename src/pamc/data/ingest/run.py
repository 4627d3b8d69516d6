"""The steps of an ingest, which converts tables to a store."""

from __future__ import annotations

import glob
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from pamc.data.columns.encoding import TableEncoding
from pamc.data.columns.raw import MISSING_NUMBERS
from pamc.data.columns.types import Types
from pamc.data.files import existing_file, kind_of
from pamc.data.ingest.members import MemberIngest
from pamc.data.ingest.pairs import PairIngest, edge_parts
from pamc.data.ingest.rows import RowIngest, find_encoding
from pamc.data.ingest.workspace import BAD_ROWS_FILE, BadRows, Parts, Workspace
from pamc.data.readers import endings, is_table, open_table
from pamc.data.readers.columns import feature_columns, warn_about_columns, warn_about_points
from pamc.data.readers.format import wrong_ending
from pamc.data.readers.tables import Table, is_number_text
from pamc.data.relations import same_name
from pamc.data.store import Store, is_store
from pamc.data.store.writer import StoreWriter
from pamc.errors import ConfigError, DataError, OutputError
from pamc.progress import Progress, SilentProgress

LEAST_MEMORY = 256_000_000
_MEMORY_PER_THREAD = 250_000_000
_SETTINGS = "ingest.json"

# Rows that are inspected for columns of mixed types, and the share of cells of a column that may be malformed numbers.
_ROWS_INSPECTED, _MOST_STRAY, _MOST_SKIPPED = 1000, 0.1, 0.5


def ingest(
    features: str | PathLike[str],
    edges: str | PathLike[str] | Mapping[str, str | PathLike[str]] | None = None,
    *,
    out: str | PathLike[str],
    members: Mapping[str, str | PathLike[str]] | None = None,
    id_column: str | None = None,
    truth_column: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    types: Types | None = None,
    dtype: str = "float32",
    memory_bytes: int = 2_000_000_000,
    n_threads: int | None = None,
    skip_bad_rows: bool = False,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
) -> Store:
    r"""Convert tables that need not fit in memory to a new store, and return the store.

    The graph equals that of :func:`pamc.data.readers.read_graph` and :func:`pamc.graph.adjacency.build_adjacency` on
    the same files: self-loops are removed, repeated lines count once or with the sum of their weights, and the two
    directions of a pair are merged by the larger weight. Rows keep their order.

    The features of a table of plain numbers are stored unchanged, with NaN for missing cells. If the first rows contain
    other types, the types of all columns are inferred from a sample of rows from all parts, and every row is encoded.

    Parameters
    ----------
    features, edges
        A table of rows (.csv, .tsv, .txt, .parquet; text also with .gz), a folder of such parts, or a glob pattern; and
        likewise tables of source, target and optionally weight, or None for no edges. Edges refer to ids if the rows
        have ids, else to row numbers from 0 across all parts. Several relations are a dict of such tables by name.
    out, overwrite
        Folder of the store, and whether an existing store there may be replaced.
    members
        Dict from the names of relations to tables of (row, group) pairs; rows that share a group are joined.
    id_column, truth_column, columns, drop, types
        As for :func:`pamc.data.readers.read_features`.
    dtype
        Data type of the stored features, "float32" or "float16".
    memory_bytes, n_threads
        Approximate memory limit of the process, beyond which data is spilled to disk next to the store; and number of
        threads, by default the number of cores, or fewer if memory is low.
    skip_bad_rows
        If True, skip invalid rows and edges and list them in bad-rows.csv in the store; a row with a cell that is
        neither a plain number nor missing is invalid. If False, the first invalid row raises an error.
    resume
        Whether to continue an interrupted or killed ingest of the same files and options.
    progress
        Reporter of the steps; None reports nothing.

    O((N·d + E) log E) time, O(memory_bytes) memory plus about 100 bytes per membership.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     people, friends = Path(folder, "people.csv"), Path(folder, "friends.csv")
    ...     _ = people.write_text("name,age\nann,31\nbob,25\ncyd,40\n")
    ...     _ = friends.write_text("source,target\nbob,ann\nann,bob\ncyd,bob\n")
    ...     store = ingest(people, friends, out=Path(folder, "store"), id_column="name")
    ...     store.ids().tolist(), store.indptr.tolist(), store.indices.tolist()
    (['ann', 'bob', 'cyd'], [0, 1, 3, 4], [1, 0, 2, 1])
    """
    _check_limits(out, dtype, memory_bytes, types)
    row_files, graphs = source_files(features), _graphs(edges, members or {})
    first = open_table(row_files[0])
    names = feature_columns(first, id_column, truth_column, columns, drop)
    # If bad rows are to be skipped, a column of numbers may have many other cells.
    is_mixed = bool(types) or _has_other_types(first, names, _MOST_SKIPPED if skip_bad_rows else _MOST_STRAY)
    _check(first, names, dtype, is_mixed=is_mixed, skip_bad_rows=skip_bad_rows, explicit=columns is not None)
    related = [graph.part for graph in graphs if graph.name is not None]
    options = _Options(id_column, truth_column, names, dtype, skip_bad_rows, is_mixed, dict(types or {}), related)
    return _Ingest(
        sources=[str(features), *(graph.source for graph in graphs)],
        rows=Parts(row_files, first),
        graphs=graphs,
        options=options,
        memory_bytes=memory_bytes,
        n_threads=max(1, min(n_threads or os.cpu_count() or 1, memory_bytes // _MEMORY_PER_THREAD)),
        progress=SilentProgress() if progress is None else progress,
    ).run(StoreWriter(out, overwrite=overwrite, resume=resume))


def _graphs(
    edges: str | PathLike[str] | Mapping[str, str | PathLike[str]] | None, members: Mapping[str, str | PathLike[str]]
) -> list[_Graph]:
    """Return the files of the only graph, or of each relation."""
    if edges is None and not members:
        return []
    if not isinstance(edges, Mapping) and edges is not None and not members:
        return [_Graph(None, str(edges), source_files(edges))]
    of_name = {} if edges is None else edges if isinstance(edges, Mapping) else {"edges": edges}
    if repeated := [name for name in members if name in of_name]:
        raise same_name(repeated[0])
    return [
        _Graph(str(name), str(path), source_files(path), are_members=tables is members)
        for tables in (of_name, members)
        for name, path in tables.items()
    ]


def source_files(source: str | PathLike[str]) -> list[Path]:
    """Return the tables that a path refers to, sorted by name.

    Parameters
    ----------
    source
        A file; a folder, from which all tables at any depth are taken, except files and folders whose name starts with
        a dot or an underscore; or a glob pattern such as ``parts/*.csv``.

    Examples
    --------
    >>> source_files("no-such-*.csv")
    Traceback (most recent call last):
    pamc.errors.DataError: no-such-*.csv: no file has such a name
    """
    path = Path(source)
    if is_store(path):
        raise DataError(f"{path}: is a store already; `pamc fit {path}` clusters it")
    if path.is_dir():
        candidates = [file for file in sorted(path.rglob("*")) if file.is_file() and not _is_hidden(file, path)]
        files = [file for file in candidates if is_table(file) and file.stat().st_size > 0]
        if not files:
            raise DataError(f"{path}: the folder holds no table; known endings are {', '.join(endings('table'))}")
    elif not path.exists() and glob.has_magic(str(source)):
        # Unlike Path.glob, glob.glob accepts absolute patterns.
        candidates = [Path(name) for name in sorted(glob.glob(str(source), recursive=True))]  # noqa: PTH207
        files = [file for file in candidates if file.is_file()]
        if not files:
            raise DataError(f"{source}: no file has such a name")
    else:
        files = [existing_file(path)]
    unsupported = [file for file in files if not is_table(file)]
    if unsupported:
        raise wrong_ending(unsupported[0], "table")
    kinds = sorted({kind_of(file) for file in files})
    if len(kinds) > 1:
        raise DataError(
            f"{source}: holds files of several formats ({', '.join(kinds)}), which may be copies of each other; select "
            f"one format with a pattern, such as '{Path(source) / ('*' + kinds[0])}'"
        )
    return files


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)


def _check_limits(out: str | PathLike[str], dtype: str, memory_bytes: int, types: Types | None) -> None:
    if any(callable(kind) for kind in (types or {}).values()):
        raise ConfigError("the types of a store cannot be functions: add the embeddings as columns to the files")
    if memory_bytes < LEAST_MEMORY:
        raise ConfigError(f"memory must be at least {LEAST_MEMORY / 1e6:.0f} MB, got {memory_bytes / 1e6:.0f} MB")
    if dtype not in ("float32", "float16"):
        raise ConfigError(f"dtype must be 'float32' or 'float16', got {dtype!r}")
    if not set("?\\").isdisjoint(str(Path(out).absolute())):
        # duckdb interprets the first as the end of a file name, the second as a slash.
        raise OutputError(f"{out}: an ingest cannot write to a path with '?' or a backslash; choose another folder")


def _has_other_types(table: Table, names: Sequence[str], most: float) -> bool:
    """Return whether a column has a larger share of cells, in the first rows, that are neither numbers nor missing."""
    cells = table.first_rows(_ROWS_INSPECTED)
    for name in names:
        present = [cell for cell in cells[name] if cell.lower() not in MISSING_NUMBERS]
        n_others = sum(not is_number_text(cell) for cell in present)
        if n_others > most * len(present):
            return True
    return False


def _check(
    first: Table, names: Sequence[str], dtype: str, *, is_mixed: bool, skip_bad_rows: bool, explicit: bool
) -> None:
    """Raise ConfigError for options that mixed types do not support; warn about suspicious columns of plain numbers."""
    if not is_mixed:
        warn_about_columns(first, names, explicit=explicit)
        warn_about_points(first, names)
    elif dtype != "float32":
        raise ConfigError(f"columns of mixed types are stored as float32, not as {dtype}")
    elif skip_bad_rows:
        raise ConfigError(
            "bad rows can be skipped only in a table of plain numbers: leave out columns of other types (--drop), or "
            "ingest without skipping rows"
        )


class _Options(NamedTuple):
    """Options for reading the files, which must be equal when an ingest is resumed."""

    id_column: str | None
    truth_column: str | None
    features: list[str]
    dtype: str
    skip_bad_rows: bool
    is_mixed: bool
    types: dict[str, Any]
    relations: list[str]


@dataclass(frozen=True)
class _Graph:
    """The files of one graph, and the name of its relation; None if it is the only graph."""

    name: str | None
    source: str
    files: list[Path]
    are_members: bool = False

    @property
    def part(self) -> str:
        """Name of its lines in messages."""
        kind = "memberships" if self.are_members else "edges"
        return kind if self.name is None else f"{kind} of {self.name}"


@dataclass(frozen=True)
class _Ingest:
    """The inputs, options and resources of an ingest."""

    sources: list[str]
    rows: Parts
    graphs: list[_Graph]
    options: _Options
    memory_bytes: int
    n_threads: int
    progress: Progress

    def run(self, writer: StoreWriter) -> Store:
        """Run the ingest and return the store; an interrupted ingest keeps its finished steps."""
        with writer:
            writer.keep_partial = True
            try:
                return self._write(writer)
            except (DataError, ConfigError):
                # Resuming cannot succeed: the content of the files stays invalid.
                writer.keep_partial = False
                raise

    def _write(self, writer: StoreWriter) -> Store:
        """Run all steps that are not finished."""
        edge_files = [file for graph in self.graphs for file in graph.files]
        _check_same(writer, [*self.rows.files, *edge_files], self.options._asdict())
        if is_store(writer.folder):
            return writer.commit()
        with Workspace(writer.scratch, memory_bytes=self.memory_bytes, n_threads=self.n_threads) as workspace:
            encoding = self._find_encoding(workspace)
            facts = self._write_arrays(writer, workspace, encoding)
        files = self.rows.files
        with self.progress.phase("checksums"):
            return writer.finish(
                name=files[0].name.partition(".")[0] if len(files) == 1 else Path(self.sources[0]).name,
                feature_names=self.options.features if encoding is None else encoding.feature_names,
                encoding=encoding,
                sources=self.sources,
                options=self.options._asdict(),
                facts=facts,
                relations=[graph.name for graph in self.graphs if graph.name is not None],
            )

    def _find_encoding(self, workspace: Workspace) -> TableEncoding | None:
        """Return the encoding of a table of mixed types; None for one of plain numbers."""
        names, types, id_column = self.options.features, self.options.types, self.options.id_column
        if not self.options.is_mixed:
            return None
        with self.progress.phase("find types"):
            find = partial(find_encoding, workspace, self.rows, names, types, finds_id=id_column is None)
            return TableEncoding.from_dict(workspace.once("types", lambda: find().to_dict()))

    def _write_arrays(
        self, writer: StoreWriter, workspace: Workspace, encoding: TableEncoding | None
    ) -> dict[str, Any]:
        """Write the arrays of the store, and return the counts for the manifest."""
        id_column, truth_column, names, dtype, skip = self.options[:5]
        if encoding is not None and id_column is None:
            id_column = encoding.id_column
        parts = {"rows": self.rows}
        bad = BadRows(workspace, parts, dtype=dtype, ids_are_rows=id_column is None)
        rows = RowIngest(
            workspace, writer, self.rows, names, id_column, truth_column, dtype, self.memory_bytes, bad, self.progress,
            encoding,
        )  # fmt: skip
        n_rows = rows.read()
        if not skip:
            bad.refuse("rows")
        if id_column is None and self.graphs and bad.count("rows", "line"):
            raise DataError(
                f"{self.rows.first.path}: malformed lines cannot be skipped if edges refer to row numbers, because "
                "the numbers of later rows would change: correct the file, or identify rows by a column with --id"
            )
        skipped = rows.skipped()
        if len(skipped) == n_rows:
            raise DataError(f"{self.rows.first.path}: no valid row is left of {n_rows}")
        kind = rows.write(skipped)
        facts: dict[str, Any] = {"n_bad_rows": bad.count("rows")}
        if self.graphs:
            shared = (n_rows, skipped, self.memory_bytes, self.n_threads, bad, self.progress)
            facts |= self._write_graphs(writer, workspace, parts, kind, shared)
        if any(bad.count(part) for part in parts):
            bad.write(writer.path(BAD_ROWS_FILE))
        return facts

    def _write_graphs(
        self, writer: StoreWriter, workspace: Workspace, parts: dict[str, Parts], kind: str, shared: tuple[Any, ...]
    ) -> dict[str, int]:
        """Write the neighbors of every graph, add its files to the parts, and return the counts for the manifest."""
        *_, bad, _ = shared
        ingests: list[PairIngest | MemberIngest] = []
        for number, graph in enumerate(self.graphs):
            parts[graph.part] = edge_parts(graph.files, workspace, kind, are_members=graph.are_members)
            names = (graph.part, "" if graph.name is None else f"-{number}")
            one_ingest: Any = MemberIngest if graph.are_members else PairIngest
            ingests.append(one_ingest(workspace, writer, parts[graph.part], kind, *shared, *names))
            ingests[-1].read()
            if not self.options.skip_bad_rows:
                bad.refuse(graph.part)
        facts = Counter(n_bad_edges=sum(bad.count(graph.part) for graph in self.graphs))
        for one in ingests:
            facts.update(one.sort())
        return dict(facts)


def _check_same(writer: StoreWriter, files: list[Path], options: dict[str, Any]) -> None:
    """Save the files and options of an ingest, or compare them with those saved by an earlier attempt."""
    stats = [(str(path), path.stat()) for path in files]
    current = {"files": [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats], "options": options}
    path = writer.scratch / _SETTINGS
    if not path.exists():
        if not is_store(writer.folder):
            path.write_text(json.dumps(current), encoding="utf-8")
        return
    if json.loads(path.read_text(encoding="utf-8")) != json.loads(json.dumps(current)):
        raise OutputError(
            f"{writer.folder}: contains an ingest of other files or options, or the files have changed; remove it to "
            "start over"
        )
