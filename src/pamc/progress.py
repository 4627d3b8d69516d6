"""Progress display of long computations, in phases."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console

# Seconds between two lines of progress in a log file.
_LINE_EVERY_S = 30.0

# Below this width, only the name, the count and the remaining time are displayed.
_NARROW = 60


class Phase(Protocol):
    """One phase of a computation while it runs."""

    def advance(self, **values: float) -> None:
        """Advance by one step, and display some values."""


class Progress(Protocol):
    """A display of phases."""

    def phase(self, name: str, total: int | None = None) -> Any:
        """Return a context manager that yields a :class:`Phase`."""


class SilentPhase:
    """A phase that displays nothing."""

    def advance(self, **values: float) -> None:
        """Display nothing."""


class SilentProgress:
    """A progress display that displays nothing."""

    @contextmanager
    def phase(self, name: str, total: int | None = None) -> Iterator[Phase]:
        """Yield a phase that displays nothing."""
        yield SilentPhase()


def terminal(*, stderr: bool = False) -> Console:
    """Return a rich console for standard output or standard error, without colors if NO_COLOR is set."""
    from rich.console import Console

    return Console(
        stderr=stderr, color_system=None if os.environ.get("NO_COLOR") else "auto", highlight=False, markup=False
    )


def redraws(console: Console) -> bool:
    """Return whether a console can redraw lines: a terminal that is not dumb, or a notebook."""
    return console.is_jupyter or (console.is_terminal and not console.is_dumb_terminal)


class _RichPhase:
    def __init__(self, bar: Any, task: Any) -> None:
        self._bar = bar
        self._task = task

    def advance(self, **values: float) -> None:
        """Advance the bar."""
        self._bar.update(self._task, advance=1, values=_formatted(values))


class _LinePhase:
    """Writes a plain line periodically, and one at the end."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._done = name, total, 0
        self._begun = self._written = time.monotonic()
        self._values = ""

    def advance(self, **values: float) -> None:
        """Count one step."""
        self._done += 1
        self._values = _formatted(values)
        if time.monotonic() - self._written >= _LINE_EVERY_S:
            self.write()

    def write(self) -> None:
        """Write the line."""
        self._written = time.monotonic()
        parts = [f"pamc: {self._name} {self._done}/{self._total}", f"{self._written - self._begun:.0f} s", self._values]
        sys.stderr.write("  ".join(part for part in parts if part) + "\n")


class RichProgress:
    """Progress bars on standard error, with the remaining time and as many loss values as fit the terminal.

    A phase of unknown length disappears when it ends. If the terminal cannot redraw, a phase writes a plain line every
    half minute and one at its end.
    """

    def __init__(self) -> None:
        self._console = terminal(stderr=True)

    @contextmanager
    def phase(self, name: str, total: int | None = None) -> Iterator[Phase]:
        """Yield a phase with its own bar."""
        if not redraws(self._console):
            if total is None:
                yield SilentPhase()
                return
            line_phase = _LinePhase(name, total)
            yield line_phase
            line_phase.write()
            return
        from rich.progress import Progress as Bar

        with Bar(
            *self._columns(name, total), console=self._console, transient=total is None, expand=total is not None
        ) as bar:
            yield _RichPhase(bar, bar.add_task(name, total=total, values=""))

    def _columns(self, name: str, total: int | None) -> list[Any]:
        """Return the bar and the columns beside it that fit the terminal."""
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Remaining
        from rich.table import Column

        named = TextColumn(f"{name:<12}", table_column=Column(no_wrap=True, min_width=12))
        if total is None:
            return [named, SpinnerColumn(), TimeElapsedColumn()]
        count = MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=7))
        if self._console.width < _NARROW:
            return [named, count, Remaining(compact=True, elapsed_when_finished=True)]
        rest = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        values = TextColumn("{task.fields[values]}", style="dim", table_column=rest)
        return [
            named,
            BarColumn(bar_width=16),
            count,
            TimeElapsedColumn(),
            TextColumn("left"),
            Remaining(compact=True),
            values,
        ]


def _formatted(values: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in values.items())
