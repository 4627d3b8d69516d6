"""What every reader and writer needs of a file or folder: that it is there, what kind it is, and that it is whole.

A folder is written beside its place and renamed once, so it is whole or absent.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import IO, cast

from pamc.errors import DataError, OutputError, PamcError

__all__ = [
    "cannot_write",
    "check_gzip",
    "check_replaceable",
    "commit",
    "existing_file",
    "kind_of",
    "missing_folders",
    "naming",
    "open_bytes",
    "partial_of",
    "reading",
    "reason_of",
    "remove_folder",
    "sha256_of",
]

_GZIP_BLOCK_BYTES = 1 << 20

# What numpy, scipy, scikit-learn, zipfile and gzip raise on a file that is cut short or is something else.
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
)


def existing_file(path: str | PathLike[str]) -> Path:
    """Return the path of a file that exists, or say that it does not.

    Examples
    --------
    >>> existing_file("no-such-table.csv")
    Traceback (most recent call last):
    pamc.errors.DataError: no-such-table.csv: there is no such file
    """
    found = Path(path)
    try:
        is_folder, is_file = found.is_dir(), found.is_file()
    except (OSError, ValueError) as error:
        raise DataError(f"{found}: cannot be a file ({getattr(error, 'strerror', None) or error})") from error
    if is_folder:
        raise DataError(f"{found}: is a folder, a file is needed")
    if not is_file:
        raise DataError(f"{found}: there is no such file")
    return found


def kind_of(path: Path) -> str:
    """Return the suffix that says what the file holds, in lower case, with a final ``.gz`` looked through.

    Examples
    --------
    >>> kind_of(Path("people.CSV.gz"))
    '.csv'
    """
    return (Path(path.stem) if path.suffix.lower() == ".gz" else path).suffix.lower()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what other libraries raise on a damaged file into one DataError that names the file."""
    try:
        yield
    except PamcError:
        raise
    except _DAMAGE as error:
        raise DataError(
            f"{path}: cannot be read as {kind_of(path)}; damaged, or not of this kind? ({reason_of(error)})"
        ) from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the file's name before the message of a DataError about what the file holds."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def reason_of(error: Exception) -> str:
    """Return the first line of what an exception says, or the name of its class where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def open_bytes(path: Path) -> IO[bytes]:
    """Return the content of a file as a stream of bytes, decompressed where its name ends in ``.gz``."""
    return cast(IO[bytes], gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


def check_gzip(path: Path) -> None:
    """Raise DataError where a ``.gz`` file does not have the length and the CRC that it records; O(bytes) time.

    duckdb decompresses a file without comparing either, so damage would give other numbers in silence. A file with
    another ending passes.
    """
    if path.suffix.lower() != ".gz":
        return
    try:
        with open_bytes(path) as stream:
            while stream.read(_GZIP_BLOCK_BYTES):
                pass
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: is damaged, or not compressed by gzip ({error}): restore the file") from error


def sha256_of(path: str | PathLike[str]) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def partial_of(target: Path) -> Path:
    """Return the folder in which the content of `target` is made."""
    return target.with_name(target.name + ".partial")


def check_replaceable(target: Path, *, what: str, holds_one: bool, overwrite: bool) -> None:
    """Refuse a target that may not be written.

    A folder that holds a `what` ("run", "store") already, `holds_one`, is replaced with `overwrite` alone, and a folder
    that holds anything else never.
    """
    if target.name in ("", ".."):
        hint = target / f"pamc-{what}"
        raise OutputError(f"{target} cannot be replaced as a whole; name a folder in it, such as {hint}")
    if not target.exists():
        return
    if not target.is_dir():
        raise OutputError(f"{target} is a file; name a folder that does not exist yet")
    if holds_one and not overwrite:
        raise OutputError(f"{target} already holds a {what}; name another folder, or pass --overwrite to replace it")
    if not holds_one and any(target.iterdir()):
        raise OutputError(f"{target} holds files that are not a {what}; name another folder (these are never replaced)")


def missing_folders(path: Path) -> list[Path]:
    """Return the folders above a path that do not exist yet, the innermost first."""
    return [folder for folder in path.parents if not folder.exists()]


def commit(target: Path, partial: Path) -> None:
    """Put `partial` in the place of `target`; the old folder goes only when the new one stands."""
    if not target.exists():
        partial.rename(target)
        return
    replaced = target.with_name(target.name + ".replaced")
    target.rename(replaced)
    partial.rename(target)
    shutil.rmtree(replaced)


def remove_folder(partial: Path, above: list[Path]) -> None:
    """Remove a folder and those above it that were made for it, the innermost first."""
    shutil.rmtree(partial, ignore_errors=True)
    with suppress(OSError):
        for folder in above:
            folder.rmdir()


def cannot_write(target: Path, error: OSError) -> OutputError:
    """Return the error that says a place cannot be written."""
    if isinstance(error, OutputError):
        return error
    return OutputError(f"cannot write to {target}: {error.strerror or error}")
