"""Connections to duckdb, in memory, that say nothing and take tables of any width."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from pamc.errors import BackendError

__all__ = ["connected", "literal_path", "load_duckdb", "quoted"]

_GLOB_CHARACTERS = re.compile(r"[*?\[]")


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
    """Return text as a literal of SQL.

    Examples
    --------
    >>> quoted("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def literal_path(path: str | PathLike[str]) -> str:
    """Return the name under which duckdb reads exactly this file.

    duckdb expands ``*``, ``?`` and ``[…]`` anywhere in a name, and ``~`` or a protocol such as ``s3:`` at its start. A
    bracket around one character stands for that character, and an absolute path starts with none of the others.

    Examples
    --------
    >>> literal_path("/data/r[1]*.csv")
    '/data/r[[]1][*].csv'
    """
    return _GLOB_CHARACTERS.sub(r"[\g<0>]", str(Path(path).absolute()))
