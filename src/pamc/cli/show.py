"""Output of the commands: tables and JSON on standard output, notes on standard error."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pamc.errors import OutputError
from pamc.progress import terminal

EXIT_INTERRUPTED = 130

# Whether to raise errors that are otherwise only noted; set for each command line by --debug or PAMC_DEBUG.
debugging = False


class Interrupted(Exception):  # noqa: N818
    """The user stopped a resumable command; the message says what was saved and how to resume."""


def near(path: Path) -> Path:
    """Return a path relative to the current folder if it lies inside it, else unchanged."""
    current = Path.cwd()
    return path.relative_to(current) if path.is_relative_to(current) and path != current else path


def typed(path: Path) -> str:
    """Return a path quoted for the shell and safe from being parsed as an option."""
    return shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))


def link_to(path: Path) -> str:
    """Return the file URI of a page, which terminals show as a link."""
    return path.resolve().as_uri()


def check_output_file(path: Path, *, overwrite: bool) -> None:
    """Raise OutputError if a path is a folder, or an existing file that must not be replaced."""
    if path.is_dir():
        raise OutputError(f"{path} is a folder; name a file")
    if path.exists() and not overwrite:
        raise OutputError(f"{path} exists; name another file, or pass --overwrite to replace it")


def noise_text(facts: Mapping[str, Any]) -> str:
    """Return the number of noise rows of each kind for display, "" if noise was not requested.

    Examples
    --------
    >>> noise_text({"n_between_clusters": 3, "n_unlike_training": 12})
    ', 15 in no cluster (3 between clusters, 12 unlike the training rows)'
    """
    if "n_unlike_training" not in facts:
        return ""
    between, unlike = facts["n_between_clusters"], facts["n_unlike_training"]
    return f", {between + unlike} in no cluster ({between} between clusters, {unlike} unlike the training rows)"


def shown_bytes(n_bytes: int) -> str:
    """Format a number of bytes for display.

    Examples
    --------
    >>> shown_bytes(2_345_000_000)
    '2.35 GB'
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes} bytes"


def note(text: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"pamc: {text}\n")


def print_text(text: str) -> None:
    """Write text to standard output unchanged."""
    sys.stdout.write(text + "\n")


def print_json(value: dict[str, Any] | list[Any]) -> None:
    """Write one JSON value to standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, texts: Sequence[str] = ()
) -> None:
    """Write a table to standard output; all columns but the first and the named `texts` are right-aligned."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position == 0 or column in texts else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    terminal().print(table)
