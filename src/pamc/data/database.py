"""In-memory duckdb connections, without a progress bar and configured for wide tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from pamc.errors import BackendError

# Characters that duckdb does not interpret literally in a path.
_SPECIAL = frozenset("*?[\\")


def load_duckdb(purpose: str) -> ModuleType:
    """Return the module duckdb; raise BackendError, which starts with `purpose`, if it is not installed."""
    try:
        import duckdb
    except ImportError as error:
        raise BackendError(f"{purpose} with the package duckdb, which is not installed: pip install duckdb") from error
    return duckdb


@contextmanager
def connected() -> Iterator[Any]:
    """Yield a connection and close it at the end; raise ImportError if duckdb is not installed."""
    import duckdb

    with duckdb.connect() as connection:
        # duckdb would draw its progress bar on standard output, where other programs read JSON.
        connection.execute("SET enable_progress_bar = false")
        # duckdb would compare all pairs of expressions, which takes minutes for a table with thousands of columns.
        connection.execute("SET disabled_optimizers = 'common_subexpressions'")
        yield connection


def quoted(text: str) -> str:
    """Return text as a SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def literal_path(path: str | PathLike[str]) -> str:
    """Return a path string that duckdb resolves to exactly this file.

    duckdb expands ``*``, ``?`` and ``[…]`` anywhere in a path, treats a backslash as a slash, and expands ``~`` or a
    protocol such as ``s3:`` at its start. An absolute path starts with none of these; a file whose path contains one of
    the other characters is read through a symbolic link with a plain name, which exists until the process ends.
    """
    absolute = str(Path(path).absolute())
    return absolute if _SPECIAL.isdisjoint(absolute) else _plain_link(absolute)


@cache
def _plain_link(path: str) -> str:
    """Return a symbolic link with a plain name and the file's last two suffixes, which determine its format."""
    folder = Path(_links().name)
    endings = [ending for ending in Path(path).suffixes[-2:] if ending[1:].isalnum()]
    link = folder / f"{len(list(folder.iterdir()))}{''.join(endings)}"
    link.symlink_to(path)
    return str(link)


@cache
def _links() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="pamc-")
