"""A run folder: written beside its place and renamed once, so it is whole or absent."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.database import connected, quoted
from pamc.data.files import cannot_write, check_replaceable, commit, missing_folders, partial_of, remove_folder
from pamc.errors import OutputError, UnknownNameError

__all__ = ["LABEL_FORMATS", "MODEL_FILE", "RECORD_FILE", "new_run_folder", "next_free_folder", "write_labels"]

MODEL_FILE = "model.safetensors"
RECORD_FILE = "run.json"
LABEL_FORMATS = ("csv", "parquet")

# Lines of labels that are made at a time.
_ROWS_PER_BLOCK = 1 << 16

# In a folder of checkpoints: held by whoever writes there.
_LOCK = "lock"


def next_free_folder(parent: Path, stem: str = "pamc-run") -> Path:
    """Return `parent/stem-N` with the smallest N from 1 that is not taken."""
    number = 1
    while (parent / f"{stem}-{number}").exists() or (parent / f"{stem}-{number}.partial").exists():
        number += 1
    return parent / f"{stem}-{number}"


@contextmanager
def new_run_folder(
    target: Path, *, overwrite: bool = False, checkpoints: str | None = None, resume: bool = False
) -> Iterator[Path]:
    """Yield `target.partial` to write into; rename it to `target` at the end, or remove it if anything goes wrong.

    A folder that holds a run is replaced only with `overwrite`; a folder that holds anything else never is. With the
    name of a folder of `checkpoints`, what goes wrong leaves `target.partial` where that folder has files, and the end
    removes it; `resume` takes a `target.partial` that stands there, unless another process is writing into it. Raises
    OutputError where the folder exists, cannot be made, or cannot be written.
    """
    try:
        check_replaceable(target, what="run", holds_one=_holds_run(target), overwrite=overwrite)
        partial = partial_of(target)
        above = missing_folders(partial)
        partial.mkdir(parents=True, exist_ok=resume)
    except FileExistsError:
        raise OutputError(
            f"{partial} exists: another run is writing there, or was killed; remove it first, or, where that run kept "
            "checkpoints, pass --resume to go on from them"
        ) from None
    except OSError as error:
        raise cannot_write(target, error) from None
    kept = None if checkpoints is None else partial / checkpoints
    try:
        with nullcontext() if kept is None else _locked(kept):
            yield partial
        if kept is not None:
            shutil.rmtree(kept, ignore_errors=True)
        commit(target, partial)
    except BlockingIOError:
        raise OutputError(f"{partial} is in use: another run is writing there; wait for it, or end it") from None
    except BaseException as error:
        # What there is to go on from stays.
        if kept is None or all(path.name == _LOCK for path in kept.glob("*")):
            remove_folder(partial, above)
        if isinstance(error, OSError):
            raise cannot_write(target, error) from None
        raise


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, which ends with the process however that ends; BlockingIOError where another holds it.

    Where the system has no such locks, nothing is held.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            # Some network file systems have no locks.
            pass
        yield


def write_labels(
    folder: Path,
    ids: NDArray[Any] | Callable[[int, int], NDArray[Any]],
    labels: NDArray[np.int64],
    confidence: NDArray[Any],
    *,
    file_format: str = "csv",
) -> Path:
    """Write `labels.csv` or `labels.parquet` (columns id, cluster, confidence) and return its path.

    `ids` may be a function that returns those of some rows, which are then read and written block by block.
    """
    if file_format not in LABEL_FORMATS:
        raise UnknownNameError("labels format", file_format, LABEL_FORMATS)
    path = folder / f"labels.{file_format}"
    read = ids if callable(ids) else lambda start, stop: ids[start:stop]
    if file_format == "csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "cluster", "confidence"])
            for start in range(0, len(labels), _ROWS_PER_BLOCK):
                block = slice(start, min(start + _ROWS_PER_BLOCK, len(labels)))
                own = (read(block.start, block.stop), labels[block], confidence[block])
                rows = zip(*(column.tolist() for column in own), strict=True)
                writer.writerows((name, cluster, f"{value:.6f}") for name, cluster, value in rows)
        return path
    import duckdb

    names = read(0, len(labels))
    names = names if names.dtype.kind in "iu" else names.astype(str)
    table = {"id": names, "cluster": labels, "confidence": confidence.astype(np.float32)}
    with connected() as connection:
        connection.register("result", table)
        try:
            connection.execute(f"COPY (SELECT * FROM result) TO {quoted(str(path.absolute()))} (FORMAT parquet)")
        except duckdb.IOException as error:
            raise OutputError(f"cannot write to {path}: {error}") from error
    return path


def _holds_run(folder: Path) -> bool:
    return (folder / RECORD_FILE).is_file() and (folder / MODEL_FILE).is_file()
