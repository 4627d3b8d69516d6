"""Connections to duckdb, in memory, that say nothing and take tables of any width."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

__all__ = ["connected", "literal_path"]

_GLOB_CHARACTERS = re.compile(r"[*?\[]")


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
