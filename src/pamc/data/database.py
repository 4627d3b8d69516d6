"""Connections to duckdb, in memory, that say nothing and take tables of any width."""

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

__all__ = ["connected", "literal_path", "load_duckdb", "quoted"]

# Characters that duckdb does not take for themselves.
_SPECIAL = frozenset("*?[\\")


def load_duckdb(purpose: str) -> ModuleType:
    """Return the module duckdb, or say what cannot be done without it, such as "tables are read"."""
    try:
        import duckdb
    except ImportError as error:
        raise BackendError(f"{purpose} with the package duckdb, which is not installed: pip install duckdb") from error
    return duckdb


@contextmanager
def connected() -> Iterator[Any]:
    """Yield a connection, closed at the end; ImportError where there is no duckdb."""
    import duckdb

    with duckdb.connect() as connection:
        # It would draw a bar of its own on standard output, where others read JSON.
        connection.execute("SET enable_progress_bar = false")
        # It would compare every expression with every other: minutes, where a table has thousands of columns.
        connection.execute("SET disabled_optimizers = 'common_subexpressions'")
        yield connection


def quoted(text: str) -> str:
    """Return text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def literal_path(path: str | PathLike[str]) -> str:
    """Return the name under which duckdb reads exactly this file.

    duckdb expands ``*``, ``?`` and ``[…]`` anywhere in a name, takes a backslash for a slash, and expands ``~`` or a
    protocol such as ``s3:`` at its start. An absolute path starts with none of these; a file whose path has one of the
    other characters is read through a link with a plain name, which lasts as long as the process.
    """
    absolute = str(Path(path).absolute())
    return absolute if _SPECIAL.isdisjoint(absolute) else _plain_link(absolute)


@cache
def _plain_link(path: str) -> str:
    """Return a link with a plain name and the last two endings, by which duckdb and pamc tell the kind of a file."""
    folder = Path(_links().name)
    endings = [ending for ending in Path(path).suffixes[-2:] if ending[1:].isalnum()]
    link = folder / f"{len(list(folder.iterdir()))}{''.join(endings)}"
    link.symlink_to(path)
    return str(link)


@cache
def _links() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="pamc-")
