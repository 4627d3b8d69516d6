"""Connections to duckdb, in memory, that say nothing and take tables of any width."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["connected"]


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
