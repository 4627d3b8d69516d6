"""The Store class, and preprocessed rows of a store that are read from its files on demand."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.columns.encoding import TableEncoding
from pamc.data.database import connected, literal_path, load_duckdb
from pamc.data.files import reason_of, sha256_of
from pamc.data.preprocessing import Preprocessing
from pamc.data.relations import Edges, checked_weights, joined, needs_relations
from pamc.errors import DataError

FORMAT = "pamc-store"
# Stores with several relations have the second version, so that earlier versions of pamc do not ignore their edges.
VERSION, VERSION_OF_RELATIONS = 1, 2
MANIFEST = "manifest.json"
_VERIFIED = "verified.json"

# Files of the ids, by the kind of ids.
_ID_FILES: dict[str, tuple[str, ...]] = {"rows": (), "integers": ("ids.npy",), "strings": ("ids.parquet",)}
_AGAIN = "create the store again with `pamc ingest … --overwrite`"


@dataclass(frozen=True, eq=False)
class Store:
    """An open store. Arrays are memory-mapped read-only on first access, so opening costs no memory.

    Parameters
    ----------
    folder
        Path of the store.
    n_nodes, n_features, n_stored
        Number of nodes, N, of features, d, and of stored neighbors, which is twice the number of pairs of all
        relations.
    id_kind
        Kind of row ids: "rows" (named 0 … N−1), "integers" or "strings".
    has_edges
        Whether the data has a graph; without one, no row has neighbors.
    feature_names
        Names of the d features, or None.
    manifest
        Content of manifest.json.
    relation_weights
        Weights of the relations chosen by the user (:meth:`with_relation_weights`), or None to find them from the data.
    """

    folder: Path
    n_nodes: int
    n_features: int
    n_stored: int
    id_kind: str
    has_edges: bool
    feature_names: tuple[str, ...] | None
    manifest: Mapping[str, Any]
    relation_weights: tuple[float, ...] | None = None

    @cached_property
    def features(self) -> NDArray[Any]:
        """Features of shape (N, d), float32 or float16; NaN for missing cells."""
        return self.mapped("features.npy")

    @cached_property
    def indptr(self) -> NDArray[np.int64]:
        """Offsets of shape (N + 1,) at which the neighbors of each row begin."""
        return self.mapped("indptr.npy")

    @cached_property
    def indices(self) -> NDArray[Any]:
        """Neighbors of shape (n_stored,), ascending within a row."""
        return self.mapped("indices.npy")

    @cached_property
    def weight(self) -> NDArray[np.float32] | None:
        """Weights of shape (n_stored,), or None if all are 1."""
        return self.mapped("weight.npy") if "weight.npy" in self.manifest["files"] else None

    @cached_property
    def labels(self) -> NDArray[np.int64] | None:
        """True classes of shape (N,) for the metrics, or None."""
        return self.mapped("labels.npy") if "labels.npy" in self.manifest["files"] else None

    @cached_property
    def encoding(self) -> TableEncoding | None:
        """The encoding by which the features were computed from columns of mixed types; None for plain numbers."""
        columns = self.manifest.get("columns")
        return None if columns is None else TableEncoding.from_dict(columns)

    @property
    def relations(self) -> tuple[str, ...] | None:
        """Names of the relations; None if the store has a single graph or none."""
        return tuple(str(relation["name"]) for relation in self.manifest.get("relations", ())) or None

    def with_relation_weights(self, weights: Mapping[str, float]) -> Store:
        """Return the store with weights of its relations that are chosen by the user; the weights are validated."""
        if self.relations is None:
            raise needs_relations()
        return replace(self, relation_weights=checked_weights(weights, self.relations))

    def relation_matrices(self) -> dict[str, sp.csr_matrix]:
        """Return the adjacency matrix (N, N) of each relation, by name, in memory."""
        matrices = {}
        for number, relation in enumerate(self.manifest.get("relations", ())):
            indptr, indices = (np.array(self.mapped(f"{part}-{number}.npy")) for part in ("indptr", "indices"))
            is_weighted = f"weight-{number}.npy" in self.manifest["files"]
            weight = np.array(self.mapped(f"weight-{number}.npy")) if is_weighted else np.ones(len(indices))
            parts = (weight.astype(np.float64, copy=False), indices, indptr)
            matrices[str(relation["name"])] = sp.csr_matrix(parts, shape=(self.n_nodes, self.n_nodes))
        return matrices

    @property
    def name(self) -> str:
        """Name of the data set in tables and records."""
        return str(self.manifest.get("name") or self.folder.name)

    @property
    def n_edges(self) -> int:
        """Number of pairs."""
        return self.n_stored // 2

    @property
    def n_bytes(self) -> int:
        """Total size of all files except the manifest."""
        return sum(int(file["bytes"]) for file in self.manifest["files"].values())

    def ids(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Return the ids of rows start … stop−1 as integers or strings. O(stop − start) memory."""
        stop = self.n_nodes if stop is None else min(stop, self.n_nodes)
        if self.id_kind == "rows":
            return np.arange(start, stop)
        if self.id_kind == "integers":
            return np.array(self.mapped("ids.npy")[start:stop])
        return _parquet_ids(self.folder / "ids.parquet", start, stop)

    def verify(self) -> None:
        """Check the size and checksum of every file; raise DataError naming the files that changed. Reads all bytes."""
        files = self.manifest["files"]
        with ThreadPoolExecutor(max_workers=2) as pool:
            checksums = dict(zip(files, pool.map(lambda name: sha256_of(self.folder / name), files), strict=True))
        wrong = [name for name, file in files.items() if checksums[name] != file.get("sha256")]
        if wrong:
            raise DataError(
                f"{self.folder}: {', '.join(wrong)} changed since the store was written (another sha256 than in "
                f"{MANIFEST}): restore the folder, or {_AGAIN}"
            )

    def verify_once(self) -> bool:
        """Call :meth:`verify` unless these files have passed it before; return whether it was called.

        The size, times and inode of every verified file are written to ``verified.json`` in the store. A read-only
        folder is verified every time.
        """
        state = {name: _state_of(self.folder / name) for name in (MANIFEST, *self.manifest["files"])}
        path = self.folder / _VERIFIED
        try:
            if json.loads(path.read_text(encoding="utf-8")) == state:
                return False
        except (OSError, ValueError):
            pass
        self.verify()
        with contextlib.suppress(OSError):
            partial = path.with_name(f"{_VERIFIED}.{os.getpid()}")
            partial.write_text(json.dumps(state), encoding="utf-8")
            partial.replace(path)
        return True

    def to_graph(self, *, verify: bool = True) -> AttributedGraph:
        """Load the store into memory as one validated graph; each pair is listed once, from its lower row.

        The checksums are first verified once (see :meth:`verify_once`) unless `verify` is False. O(N·d + n_stored)
        memory.
        """
        if verify:
            self.verify_once()
        edges, weight, relations = None, None, None
        if self.relations is not None:
            parts = {name: _listed_once(matrix) for name, matrix in self.relation_matrices().items()}
            edges, weight, relations = joined(parts)
            relations = replace(relations, weights=self.relation_weights)
        elif self.has_edges:
            source = np.repeat(np.arange(self.n_nodes), np.diff(self.indptr))
            target = np.asarray(self.indices)
            upper = source < target
            edges = np.stack([source[upper], target[upper].astype(np.int64)])
            weight = None if self.weight is None else np.asarray(self.weight)[upper]
        return AttributedGraph(
            np.array(self.features, dtype=np.float32),
            edges=edges,
            edge_weight=weight,
            ids=None if self.id_kind == "rows" else self.ids(),
            labels=None if self.labels is None else np.array(self.labels),
            feature_names=self.feature_names,
            encoding=self.encoding,
            name=self.name,
            relations=relations,
        )

    def mapped(self, name: str) -> NDArray[Any]:
        """Return an array of the store as a read-only memory map."""
        path = self.folder / name
        try:
            array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
        except (OSError, ValueError, SyntaxError, TypeError, EOFError) as error:
            raise DataError(
                f"{path}: cannot be mapped as an array; damaged? ({error}): restore it, or {_AGAIN}"
            ) from error
        return array


def _listed_once(matrix: sp.csr_matrix) -> Edges:
    """Return the edges (2, E) of a symmetric matrix, each from its lower row, and their weights (None if all are 1)."""
    once: Any = sp.triu(matrix, k=1, format="coo")
    return np.stack([once.row, once.col]).astype(np.int64), None if (once.data == 1).all() else once.data


def row_blocks(n_rows: int, block_size: int) -> list[slice]:
    """Return consecutive slices of at most `block_size` rows that cover all rows."""
    return [slice(start, min(start + block_size, n_rows)) for start in range(0, n_rows, block_size)]


def index_dtype(n_nodes: int) -> np.dtype[Any]:
    """Return the dtype of stored neighbors: int32 if every row number fits, else int64."""
    return np.dtype(np.int32 if n_nodes <= np.iinfo(np.int32).max else np.int64)


def has_manifest(path: str | PathLike[str]) -> bool:
    """Return whether a folder contains a manifest, valid or not."""
    try:
        return (Path(path) / MANIFEST).is_file()
    except (OSError, ValueError):
        return False


def is_store(path: str | PathLike[str]) -> bool:
    """Return whether a folder contains the manifest of a store, of any version."""
    try:
        manifest = json.loads((Path(path) / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def open_store(path: str | PathLike[str]) -> Store:
    """Open the store in a folder; raise DataError if it is invalid.

    The manifest, the size of every file, and the shape and dtype of every array are checked; the content is checked by
    :meth:`Store.verify`. O(1) time and memory.

    Examples
    --------
    >>> open_store("no-such-folder")
    Traceback (most recent call last):
    pamc.errors.DataError: no-such-folder: there is no such folder; `pamc ingest` creates a store
    """
    folder = Path(path)
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "there is no such folder"
        raise DataError(f"{folder}: {what}; `pamc ingest` creates a store")
    manifest = _read_manifest(folder)
    try:
        store = Store(
            folder=folder,
            n_nodes=int(manifest["n_nodes"]),
            n_features=int(manifest["n_features"]),
            n_stored=int(manifest["n_stored"]),
            id_kind=str(manifest["ids"]),
            has_edges=bool(manifest["has_edges"]),
            feature_names=None if manifest["feature_names"] is None else tuple(map(str, manifest["feature_names"])),
            manifest=manifest,
        )
        _check_files(store)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{folder / MANIFEST} is damaged ({error!r}): restore it, or {_AGAIN}") from error
    return store


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(f"{folder}: is not a store: it has no {MANIFEST}; `pamc ingest` creates a store")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is damaged ({error}): restore it, or {_AGAIN}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"{folder}: is not a store: its {MANIFEST} does not say that its format is {FORMAT!r}")
    if manifest.get("version") not in (VERSION, VERSION_OF_RELATIONS):
        raise DataError(
            f"{folder}: is a store of version {manifest.get('version')}; this pamc reads versions {VERSION} and "
            f"{VERSION_OF_RELATIONS}: {_AGAIN}"
        )
    return manifest


def _check_files(store: Store) -> None:
    files = store.manifest["files"]
    for name, file in files.items():
        path = store.folder / name
        if not path.is_file():
            raise DataError(f"{store.folder}: {name} is missing: restore it, or {_AGAIN}")
        if path.stat().st_size != int(file["bytes"]):
            raise DataError(
                f"{path}: has {path.stat().st_size} bytes, the manifest says {file['bytes']}: restore it, or {_AGAIN}"
            )
    for name in ("features.npy", *_ID_FILES[store.id_kind]):
        if name not in files:
            raise DataError(f"{store.folder / MANIFEST} lists no {name}, which this store needs: {_AGAIN}")
    n = store.n_nodes
    expected: dict[str, tuple[tuple[int, ...], Sequence[str]]] = {
        "features.npy": ((n, store.n_features), ("float32", "float16")),
        "labels.npy": ((n,), ["int64"]),
        "ids.npy": ((n,), ["int64"]),
    }
    graphs = _graphs_of(store)
    for suffix, n_stored in graphs.items():
        for part in ("indptr", "indices"):
            if f"{part}{suffix}.npy" not in files:
                raise DataError(
                    f"{store.folder / MANIFEST} lists no {part}{suffix}.npy, which this store needs: {_AGAIN}"
                )
        expected |= {
            f"indptr{suffix}.npy": ((n + 1,), ["int64"]),
            f"indices{suffix}.npy": ((n_stored,), [index_dtype(n).name]),
            f"weight{suffix}.npy": ((n_stored,), ["float32"]),
        }
    for name, (shape, dtypes) in expected.items():
        if name not in files:
            continue
        array = store.mapped(name)
        if array.shape != shape or array.dtype.name not in dtypes:
            raise DataError(
                f"{store.folder / name}: holds {array.dtype.name} of shape {array.shape}, expected "
                f"{' or '.join(dtypes)} of shape {shape}: restore it, or {_AGAIN}"
            )
    for suffix, n_stored in graphs.items():
        indptr = store.mapped(f"indptr{suffix}.npy")
        if indptr[0] != 0 or indptr[-1] != n_stored:
            raise DataError(f"{store.folder / f'indptr{suffix}.npy'}: does not run from 0 to {n_stored}: {_AGAIN}")
    if store.encoding is not None and store.encoding.feature_names != store.feature_names:
        raise ValueError("the columns are not those of the features")
    if store.feature_names is not None and len(store.feature_names) != store.n_features:
        raise ValueError(f"{len(store.feature_names)} feature names for {store.n_features} features")


def _graphs_of(store: Store) -> dict[str, int]:
    """Return the number of stored neighbors of each relation, or of the only graph, by the suffix of its files."""
    if store.relations is None:
        return {"": store.n_stored}
    return {f"-{number}": int(each["n_stored"]) for number, each in enumerate(store.manifest["relations"])}


def _state_of(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _parquet_ids(path: Path, start: int, stop: int) -> NDArray[Any]:
    duckdb = load_duckdb("ids of a store are read")
    query = (
        "SELECT id FROM read_parquet(?, file_row_number=true, hive_partitioning=false) "
        "WHERE file_row_number >= ? AND file_row_number < ? ORDER BY file_row_number"
    )
    try:
        with connected() as connection:
            column = connection.execute(query, [literal_path(path), start, stop]).fetchnumpy()["id"]
    except duckdb.Error as error:
        raise DataError(f"{path}: cannot be read; damaged? ({reason_of(error)}): restore it, or {_AGAIN}") from error
    return np.ma.getdata(column).astype(np.str_)


# Maximum number of neighbors that are averaged per row, and number of rows that are averaged at a time.
_MOST_NEIGHBORS = 16
_ROWS_PER_BLOCK = 2048


@dataclass(frozen=True, eq=False)
class StoreFeatures:
    """(N, d) rows of an array `raw`, on disk or in memory, that are preprocessed when read.

    If `held_at_a_time` is given, preprocessed blocks of this many rows are kept in memory, because imputing missing
    cells in every epoch would take as long as training.
    """

    raw: NDArray[Any]
    preprocessing: Preprocessing
    held_at_a_time: int | None = None
    _held: dict[int, NDArray[np.floating[Any]]] = field(default_factory=dict, init=False, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """N and d."""
        n_rows, n_features = self.raw.shape
        return n_rows, n_features

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, rows: Any) -> NDArray[np.floating[Any]]:
        if not self._is_held(rows):
            return self._preprocessed(rows)
        if rows.start not in self._held:
            self._held[rows.start] = self._preprocessed(rows)
        return self._held[rows.start]

    def _is_held(self, rows: Any) -> bool:
        """Return whether rows are one of the blocks that are kept."""
        size = self.held_at_a_time
        if size is None or not isinstance(rows, slice):
            return False
        return bool(rows.start % size == 0 and rows.stop == min(rows.start + size, len(self)))

    def _preprocessed(self, rows: Any) -> NDArray[np.floating[Any]]:
        return np.asarray(self.preprocessing.apply(np.array(self.raw[rows], dtype=np.float32)))


def neighborhood_means(
    store: Store, rows: StoreFeatures, numbers: NDArray[np.int64], *, weight: NDArray[Any] | None = None
) -> NDArray[np.floating[Any]]:
    """Return (n, d) means of the rows at `numbers` and their neighbors, at most 16 per row, evenly spaced in its list.

    With weights (n_stored,) of the neighbors, the row itself has weight 1. O(n·d) time, O(d) additional memory.
    """
    means = np.empty((len(numbers), store.n_features), dtype=np.float32)
    for block in row_blocks(len(numbers), _ROWS_PER_BLOCK):
        requested = numbers[block]
        begin, n_all = store.indptr[requested], store.indptr[requested + 1] - store.indptr[requested]
        n_read = np.minimum(n_all, _MOST_NEIGHBORS)
        owner = np.repeat(np.arange(len(requested)), n_read)
        position = np.arange(len(owner)) - np.repeat(np.cumsum(n_read) - n_read, n_read)
        entry = begin[owner] + position * n_all[owner] // np.maximum(n_read[owner], 1)
        total = rows[requested]
        # Rows of a file are read in file order.
        neighbors, order = np.unique(np.asarray(store.indices[entry]), return_inverse=True)
        values, mass = rows[neighbors][order], n_read
        if weight is not None:
            # The neighbors that are read represent all neighbors of a row.
            shares = weight[entry] * (n_all / np.maximum(n_read, 1))[owner]
            values, mass = values * shares[:, None], np.bincount(owner, shares, minlength=len(requested))
        np.add.at(total, owner, values)
        means[block] = total / (mass + 1)[:, None]
    return means
