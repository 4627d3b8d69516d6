"""What a person sees: tables on standard output, notes on standard error, JSON for machines."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pamc.progress import terminal

__all__ = [
    "EXIT_INTERRUPTED",
    "Interrupted",
    "link_to",
    "near",
    "note",
    "print_json",
    "print_table",
    "print_text",
    "typed",
]


EXIT_INTERRUPTED = 130


class Interrupted(Exception):  # noqa: N818
    """The user stopped a command that keeps what it has done; the message says what there is and how to go on."""


def near(path: Path) -> Path:
    """Return a path as one would type it here: relative to the current folder where it lies below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) and path != here else path


def typed(path: Path) -> str:
    """Return a path as a shell takes it, and a command that reads options."""
    return shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))


def link_to(path: Path) -> str:
    """Return where a page is, as terminals make a link of it."""
    return path.resolve().as_uri()


def note(text: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"pamc: {text}\n")


def print_text(text: str) -> None:
    """Write text to standard output as it is."""
    sys.stdout.write(text + "\n")


def print_json(value: dict[str, Any] | list[Any]) -> None:
    """Write one JSON value to standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table to standard output; all columns but the first are right-aligned."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    terminal().print(table)
