"""What every reader needs of a file: that it is there, what kind it is, and a plain word when it is damaged."""

from __future__ import annotations

import gzip
import hashlib
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, cast

from pamc.errors import DataError, PamcError

__all__ = ["check_gzip", "existing_file", "kind_of", "naming", "open_bytes", "reading", "reason_of", "sha256_of"]

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
