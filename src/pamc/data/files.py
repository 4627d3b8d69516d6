"""Helpers shared by readers and writers: existence, file kind, damage checks and atomic folders.

A folder is written next to its destination and renamed once, so the destination is either complete or absent.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import IO, cast

from pamc.errors import DataError, OutputError, PamcError

_GZIP_BLOCK_BYTES = 1 << 20

# Minimum memory of a fit for each row (its embedding and label) and each column (its weights in the encoder), in bytes.
_LEAST_PER_ROW, _LEAST_PER_COLUMN = 64, 4096


def existing_file(path: str | PathLike[str]) -> Path:
    """Return the path of an existing file; raise DataError if there is none.

    Examples
    --------
    >>> existing_file("no-such-table.csv")
    Traceback (most recent call last):
    pamc.errors.DataError: no-such-table.csv: there is no such file
    """
    file = Path(path)
    try:
        is_folder, is_file = file.is_dir(), file.is_file()
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: cannot be a file ({getattr(error, 'strerror', None) or error})") from error
    if is_folder:
        raise DataError(f"{file}: is a folder; expected a file")
    if not is_file:
        raise DataError(f"{file}: there is no such file")
    return file


def kind_of(path: Path) -> str:
    """Return the suffix that determines the file format, in lower case and ignoring a final ``.gz``.

    Examples
    --------
    >>> kind_of(Path("people.CSV.gz"))
    '.csv'
    """
    return (Path(path.stem) if path.suffix.lower() == ".gz" else path).suffix.lower()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert the exceptions that other libraries raise for a damaged file to one DataError that names the file."""
    try:
        yield
    except PamcError:
        raise
    except Exception as error:
        # A parser may raise anything for a truncated file or one of another format.
        raise DataError(
            f"{path}: cannot be read as {kind_of(path)}; damaged, or not of this kind? ({reason_of(error)})"
        ) from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Prefix the message of a DataError about the content of a file with the name of the file, if it lacks it."""
    try:
        yield
    except DataError as error:
        if str(error).startswith(f"{path}: "):
            raise
        raise DataError(f"{path}: {error}") from error


def reason_of(error: Exception) -> str:
    """Return the first line of an exception's message, or the name of its class if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file as a binary stream, decompressed if its name ends in ``.gz``."""
    return cast(IO[bytes], gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


def check_gzip(path: Path) -> None:
    """Raise DataError if a ``.gz`` file does not match its recorded length and CRC. O(bytes) time.

    duckdb decompresses a file without checking either, so damage would silently change values. A file with another
    suffix is not checked.
    """
    if path.suffix.lower() != ".gz":
        return
    try:
        with open_bytes(path) as stream:
            while stream.read(_GZIP_BLOCK_BYTES):
                pass
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: is damaged, or not compressed by gzip ({error}): restore the file") from error


def check_memory(path: Path, n_rows: int, n_columns: int = 0, *, n_bytes: int = 0) -> None:
    """Raise DataError if rows and columns that a file declares need more memory than is free.

    A small file may declare a matrix of any size, so this is checked before the matrix is allocated.

    Parameters
    ----------
    n_bytes
        Size of the matrix itself.
    """
    needed, free = n_bytes + _LEAST_PER_ROW * n_rows + _LEAST_PER_COLUMN * n_columns, free_memory()
    if needed > free:
        columns = f" and {n_columns:,} columns" if n_columns else ""
        raise DataError(
            f"{path}: {n_rows:,} rows{columns} need at least {size_text(needed)} of memory, and {size_text(free)} is "
            "free: use fewer, or a machine with more memory"
        )


def free_memory() -> int:
    """Return the free memory of the machine in bytes."""
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            available = next(line for line in lines if line.startswith("MemAvailable"))
        return int(available.split()[1]) * 1024
    except (OSError, StopIteration):
        return 8 * 10**9


def size_text(n_bytes: float) -> str:
    """Return a size in human-readable form.

    Examples
    --------
    >>> size_text(1_530_000_000), size_text(680_000_000), size_text(12)
    ('1.5 GB', '680 MB', '12 B')
    """
    for size, unit, digits in ((10**9, "GB", 1), (10**6, "MB", 0), (10**3, "KB", 0)):
        if n_bytes >= size:
            return f"{n_bytes / size:.{digits}f} {unit}"
    return f"{n_bytes:.0f} B"


def sha256_of(path: str | PathLike[str]) -> str:
    """Return the SHA-256 checksum of a file in hexadecimal."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def partial_of(target: Path) -> Path:
    """Return the temporary folder in which the content of `target` is written."""
    return target.with_name(target.name + ".partial")


def check_replaceable(target: Path, *, what: str, holds_one: bool, overwrite: bool) -> None:
    """Raise OutputError if `target` must not be written.

    `holds_one` says that the target is a folder that contains a `what` ("run" or "store"): it is replaced only with
    `overwrite`. A folder that contains anything else is never replaced.
    """
    if target.name in ("", ".."):
        hint = target / f"pamc-{what}"
        raise OutputError(f"{target} cannot be replaced; name a folder inside it, such as {hint}")
    if not target.exists():
        return
    if not target.is_dir():
        raise OutputError(f"{target} is a file; name a folder that does not exist yet")
    if holds_one and not overwrite:
        raise OutputError(f"{target} already holds a {what}; name another folder, or pass --overwrite to replace it")
    if not holds_one and any(target.iterdir()):
        raise OutputError(f"{target} holds files that are not a {what}; name another folder (these are never replaced)")


def missing_folders(path: Path) -> list[Path]:
    """Return the parent folders of a path that do not exist yet, innermost first."""
    return [folder for folder in path.parents if not folder.exists()]


def commit(target: Path, partial: Path) -> None:
    """Rename `partial` to `target`; an existing folder is deleted only after the new one is in place."""
    if not target.exists():
        partial.rename(target)
        return
    replaced = target.with_name(target.name + ".replaced")
    target.rename(replaced)
    partial.rename(target)
    shutil.rmtree(replaced)


def remove_folder(partial: Path, above: list[Path]) -> None:
    """Remove a folder and the parent folders that were created for it, innermost first."""
    shutil.rmtree(partial, ignore_errors=True)
    with suppress(OSError):
        for folder in above:
            folder.rmdir()


def cannot_write(target: Path, error: OSError) -> OutputError:
    """Return the OutputError for a target that cannot be written."""
    if isinstance(error, OutputError):
        return error
    return OutputError(f"cannot write to {target}: {error.strerror or error}")
