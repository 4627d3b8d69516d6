"""A run folder, written next to its destination and renamed once, so that it is either complete or absent."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.database import connected, quoted
from pamc.data.files import cannot_write, check_replaceable, commit, missing_folders, partial_of, remove_folder
from pamc.errors import OutputError, UnknownNameError

MODEL_FILE = "model.safetensors"
RECORD_FILE = "run.json"
LABEL_FORMATS = ("csv", "parquet")

# Number of label rows written at a time.
_ROWS_PER_BLOCK = 1 << 16

# Name of the file in a checkpoint folder that the process writing there locks.
_LOCK = "lock"


def next_free_folder(parent: Path, stem: str = "pamc-run") -> Path:
    """Return `parent/stem-N` with the smallest unused N from 1."""
    folders = (parent / f"{stem}-{number}" for number in count(1))
    return next(folder for folder in folders if not (folder.exists() or partial_of(folder).exists()))


@contextmanager
def new_run_folder(
    target: Path, *, overwrite: bool = False, checkpoints: str | None = None, resume: bool = False
) -> Iterator[Path]:
    """Yield `target.partial` to write into; rename it to `target` at the end, or remove it after an error.

    A folder that contains a run is replaced only with `overwrite`; a folder that contains anything else is never
    replaced. If `checkpoints` names a subfolder, an error keeps `target.partial` if the subfolder has files, and
    success removes the subfolder; `resume` continues in an existing `target.partial` unless another process writes
    into it. Raises OutputError if the folder exists, or cannot be created or written.
    """
    try:
        is_run = (target / RECORD_FILE).is_file() and (target / MODEL_FILE).is_file()
        check_replaceable(target, what="run", holds_one=is_run, overwrite=overwrite)
        partial = partial_of(target)
        above = missing_folders(partial)
        partial.mkdir(parents=True, exist_ok=resume)
    except FileExistsError:
        raise OutputError(
            f"{partial} exists: another run is writing there, or was killed; remove it first or, if that run wrote "
            "checkpoints, pass --resume to continue from them"
        ) from None
    except OSError as error:
        raise cannot_write(target, error) from None
    checkpoint_folder = None if checkpoints is None else partial / checkpoints
    try:
        with nullcontext() if checkpoint_folder is None else _locked(checkpoint_folder):
            yield partial
        if checkpoint_folder is not None:
            shutil.rmtree(checkpoint_folder, ignore_errors=True)
        commit(target, partial)
    except BlockingIOError:
        raise OutputError(f"{partial} is in use: another run is writing there; wait for it, or end it") from None
    except BaseException as error:
        # Keep checkpoints from which the run can be resumed.
        if checkpoint_folder is None or all(path.name == _LOCK for path in checkpoint_folder.glob("*")):
            remove_folder(partial, above)
        if isinstance(error, OSError):
            raise cannot_write(target, error) from None
        raise


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder until the process ends in any way; raise BlockingIOError if another process holds the lock.

    On systems without such locks, nothing is locked.
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
        except OSError as error:
            # Some network file systems do not support locks.
            if isinstance(error, BlockingIOError):
                raise
        yield


def write_labels(
    folder: Path,
    ids: NDArray[Any] | Callable[[int, int], NDArray[Any]],
    labels: NDArray[np.int64],
    confidence: NDArray[Any],
    *,
    noise: NDArray[np.str_] | None = None,
    file_format: str = "csv",
) -> Path:
    """Write `labels.csv` or `labels.parquet` (columns id, cluster, confidence) and return its path.

    `noise` (N,), if given, is one more column: why a row is in no cluster, "" if it is in one.

    `ids` may be a function that returns the ids of the rows from `start` to `stop`; a CSV file is then written in
    blocks.
    """
    if file_format not in LABEL_FORMATS:
        raise UnknownNameError("labels format", file_format, LABEL_FORMATS)
    path = folder / f"labels.{file_format}"
    read = ids if callable(ids) else lambda start, stop: ids[start:stop]
    if file_format == "csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "cluster", "confidence", *([] if noise is None else ["noise"])])
            for start in range(0, len(labels), _ROWS_PER_BLOCK):
                block = slice(start, min(start + _ROWS_PER_BLOCK, len(labels)))
                others = () if noise is None else (noise[block],)
                columns = (read(block.start, block.stop), labels[block], confidence[block], *others)
                rows = zip(*(column.tolist() for column in columns), strict=True)
                writer.writerows((name, cluster, f"{value:.6f}", *rest) for name, cluster, value, *rest in rows)
        return path
    import duckdb

    names = read(0, len(labels))
    names = names if names.dtype.kind in "iu" else names.astype(str)
    table = {"id": names, "cluster": labels, "confidence": confidence.astype(np.float32)}
    table |= {} if noise is None else {"noise": noise}
    with connected() as connection:
        connection.register("result", table)
        try:
            connection.execute(f"COPY (SELECT * FROM result) TO {quoted(str(path.absolute()))} (FORMAT parquet)")
        except duckdb.IOException as error:
            raise OutputError(f"cannot write to {path}: {error}") from error
    return path
