"""Write a store: arrays in a temporary folder, then checksums, the manifest and one rename."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pamc.data.columns.encoding import TableEncoding
from pamc.data.files import (
    cannot_write,
    check_replaceable,
    commit,
    missing_folders,
    partial_of,
    remove_folder,
    sha256_of,
)
from pamc.data.store.store import (
    FORMAT,
    MANIFEST,
    VERSION,
    VERSION_OF_RELATIONS,
    Store,
    index_dtype,
    is_store,
    open_store,
)
from pamc.errors import ConfigError, OutputError

_FILES = ("features.npy", "indptr.npy", "indices.npy", "weight.npy", "labels.npy", "ids.npy", "ids.parquet")
# Files of a relation, in a store with several.
_GRAPH = ("indptr", "indices", "weight")
_FILE_OF_RELATION = re.compile(rf"({'|'.join(_GRAPH)})-\d+\.npy")
# Additional files that are kept in a finished store and covered by its checksums.
_REPORTS = ("bad-rows.csv",)
_SCRATCH = "work"
# Header size of a growing array: it fits the shape of any store, and is a multiple of 64 to align the rows.
_HEADER_BYTES = 128


class GrowingArray:
    r"""A .npy file whose number of rows is unknown in advance: blocks are appended, then the header is written.

    If `n_rows` is given, the file must already contain that many rows; they are kept, and the rest is truncated.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with GrowingArray(Path(folder, "x.npy"), "int32") as array:
    ...         array.append(np.arange(3))
    ...         array.append(np.arange(2))
    ...     np.load(Path(folder, "x.npy")).tolist()
    [0, 1, 2, 0, 1]
    """

    def __init__(self, path: Path, dtype: DTypeLike, *, row_shape: tuple[int, ...] = (), n_rows: int = 0) -> None:
        self.dtype = np.dtype(dtype)
        self.n_rows = n_rows
        self._row_shape = row_shape
        self._file = path.open("r+b" if n_rows else "w+b")
        self._file.seek(_HEADER_BYTES + n_rows * self.dtype.itemsize * math.prod(row_shape))
        self._file.truncate()

    def append(self, block: NDArray[Any]) -> None:
        """Append a block of rows."""
        self._file.write(np.ascontiguousarray(block, dtype=self.dtype).data)
        self.n_rows += len(block)

    def close(self) -> None:
        """Write the header with the number of rows, and close the file."""
        shape = (self.n_rows, *self._row_shape)
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        text = repr(header).encode().ljust(_HEADER_BYTES - 11) + b"\n"
        self._file.seek(0)
        self._file.write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class StoreWriter:
    """Writes a store in ``OUT.partial``; `finish` renames it to OUT, which is therefore either complete or absent.

    It is a context manager. An unfinished store is removed on exit, unless `keep_partial` is set: a later writer with
    ``resume`` then continues it. A folder that contains a store is replaced only with ``overwrite``; a folder that
    contains anything else is never replaced.

    Parameters
    ----------
    out
        Folder of the store.
    overwrite
        Whether an existing store there may be replaced.
    resume
        Whether to continue in an existing partial folder; has no effect if there is none.

    Attributes
    ----------
    folder
        The partial folder, in which the arrays are written.
    scratch
        Subfolder for temporary files; removed when the store is finished.
    keep_partial
        Whether an interrupted writer keeps the partial folder.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place, StoreWriter(Path(place, "tiny")) as writer:
    ...     writer.create("features", (2, 3), "float32")[:] = 1
    ...     store = writer.finish(name="tiny")
    ...     store.n_nodes, store.n_features, store.n_stored
    (2, 3, 0)
    """

    def __init__(self, out: str | PathLike[str], *, overwrite: bool = False, resume: bool = False) -> None:
        self.target = Path(out)
        self.folder = partial_of(self.target)
        self.scratch = self.folder / _SCRATCH
        self.keep_partial = False
        self._overwrite, self._resume = overwrite, resume
        self._above: list[Path] = []
        self._finished = False

    def __enter__(self) -> Self:
        try:
            check_replaceable(self.target, what="store", holds_one=is_store(self.target), overwrite=self._overwrite)
            self._above = missing_folders(self.folder)
            self.folder.mkdir(parents=True, exist_ok=self._resume)
            self.scratch.mkdir(exist_ok=True)
        except FileExistsError:
            raise OutputError(
                f"{self.folder} exists: a store is being written there, or the writing process was killed; continue an "
                "ingest with --resume, or remove the folder first"
            ) from None
        except OSError as error:
            raise cannot_write(self.target, error) from None
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not self._finished and not self.keep_partial:
            remove_folder(self.folder, self._above)
        if isinstance(error, OSError) and not isinstance(error, OutputError):
            raise cannot_write(self.target, error) from error

    def create(self, name: str, shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Create an array of the store (features, indptr, indices, weight, labels or ids) as a writable memory map.

        With several relations, their arrays are called ``indptr-0`` and so on.
        """
        file = f"{name}.npy"
        if file not in _FILES and not _FILE_OF_RELATION.fullmatch(file):
            raise ConfigError(f"a store has no array {name!r}; it has {', '.join(_FILES)}")
        shape = (shape,) if isinstance(shape, int) else shape
        return np.lib.format.open_memmap(self.folder / file, mode="w+", dtype=np.dtype(dtype), shape=shape)

    def grow(self, name: str, dtype: DTypeLike, *, row_shape: tuple[int, ...] = (), n_rows: int = 0) -> GrowingArray:
        """Create an array of the store to which blocks are appended; the first ``n_rows`` existing rows are kept."""
        return GrowingArray(self.folder / f"{name}.npy", dtype, row_shape=row_shape, n_rows=n_rows)

    def path(self, file: str) -> Path:
        """Return the path of a file in the partial folder."""
        return self.folder / file

    def finish(
        self,
        *,
        name: str | None = None,
        feature_names: Sequence[str] | None = None,
        encoding: TableEncoding | None = None,
        sources: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        facts: Mapping[str, Any] | None = None,
        relations: Sequence[str] = (),
    ) -> Store:
        """Write checksums and the manifest, rename the folder to its destination, and return the finished store.

        `relations` are the names of the graphs if there are several. Without them, and without ``indptr`` and
        ``indices``, the store has no edges. The manifest contains a `name`, by default that of the folder, the names of
        the d features, the encoding of columns of mixed types, the source files, the options, and `facts` such as
        counts of skipped rows.
        """
        has_edges = bool(relations) or self.path("indptr.npy").exists()
        n_nodes, n_features = np.load(self.path("features.npy"), mmap_mode="r").shape
        if not has_edges:
            self.create("indptr", n_nodes + 1, np.int64)
            self.create("indices", 0, index_dtype(n_nodes))
        of_relations = [f"{part}-{number}.npy" for number in range(len(relations)) for part in _GRAPH]
        files = [file for file in (*_FILES, *of_relations, *_REPORTS) if self.path(file).exists()]
        arrays = {file: np.load(self.path(file), mmap_mode="r") for file in files if file.endswith(".npy")}
        ids = "strings" if "ids.parquet" in files else "integers" if "ids.npy" in files else "rows"
        with ThreadPoolExecutor(max_workers=2) as pool:
            checksums = list(pool.map(sha256_of, [self.path(file) for file in files]))
        n_stored = {file: len(array) for file, array in arrays.items() if file.startswith("indices")}
        manifest = {
            "format": FORMAT,
            "version": VERSION_OF_RELATIONS if relations else VERSION,
            "name": name or self.target.name,
            "n_nodes": n_nodes,
            "n_features": n_features,
            "n_stored": sum(n_stored.values()),
            "has_edges": has_edges,
            **({"relations": _described(relations, n_stored)} if relations else {}),
            "ids": ids,
            "dtypes": {file.removesuffix(".npy"): array.dtype.name for file, array in arrays.items()},
            "feature_names": None if feature_names is None else list(feature_names),
            "columns": None if encoding is None else encoding.to_dict(),
            "sources": list(sources),
            "options": dict(options or {}),
            "facts": dict(facts or {}),
            "files": {
                file: {"bytes": self.path(file).stat().st_size, "sha256": checksum}
                for file, checksum in zip(files, checksums, strict=True)
            },
        }
        self.path(MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return self.commit()

    def commit(self) -> Store:
        """Move a store whose manifest is written to its destination, delete temporary files, and return the store."""
        open_store(self.folder)
        shutil.rmtree(self.scratch, ignore_errors=True)
        commit(self.target, self.folder)
        self._finished = True
        return open_store(self.target)


def _described(names: Sequence[str], n_stored: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the name and the number of stored neighbors of each relation."""
    return [{"name": name, "n_stored": n_stored[f"indices-{number}.npy"]} for number, name in enumerate(names)]
