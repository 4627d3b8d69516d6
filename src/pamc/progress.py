"""Progress of long work: phases that advance, shown or not."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Phase", "Progress", "RichProgress", "SilentPhase", "SilentProgress", "redraws", "terminal"]

# How often a log that nobody watches gets a line.
_LINE_EVERY_S = 30.0

# Below this width a bar has its name, its count and the time left, and nothing else.
_NARROW = 60


class Phase(Protocol):
    """One part of some work while it runs."""

    def advance(self, **values: float) -> None:
        """Take one step, and show some values beside it."""


class Progress(Protocol):
    """Something that shows phases."""

    def phase(self, name: str, total: int | None = None) -> Any:
        """Return a context manager that yields a :class:`Phase`."""


class SilentPhase:
    """Shows nothing."""

    def advance(self, **values: float) -> None:
        """Show nothing."""


class SilentProgress:
    """Shows nothing."""

    @contextmanager
    def phase(self, name: str, total: int | None = None) -> Iterator[Phase]:
        """Yield a phase that shows nothing."""
        yield SilentPhase()


def terminal(*, stderr: bool = False) -> Console:
    """Return a console of rich for one of the standard streams, without styles where NO_COLOR is set."""
    from rich.console import Console

    return Console(
        stderr=stderr, color_system=None if os.environ.get("NO_COLOR") else "auto", highlight=False, markup=False
    )


def redraws(console: Console) -> bool:
    """Return whether a console can move its cursor: a terminal that is not dumb, or a notebook."""
    return console.is_jupyter or (console.is_terminal and not console.is_dumb_terminal)


class _RichPhase:
    def __init__(self, bar: Any, task: Any) -> None:
        self._bar = bar
        self._task = task

    def advance(self, **values: float) -> None:
        """Move the bar."""
        self._bar.update(self._task, advance=1, values=_shown(values))


class _LinePhase:
    """Writes a plain line now and then, and one at the end."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._done = name, total, 0
        self._begun = self._told = time.monotonic()
        self._values = ""

    def advance(self, **values: float) -> None:
        """Count one step."""
        self._done += 1
        self._values = _shown(values)
        if time.monotonic() - self._told >= _LINE_EVERY_S:
            self.tell()

    def tell(self) -> None:
        """Write the line."""
        self._told = time.monotonic()
        words = [f"pamc: {self._name} {self._done}/{self._total}", f"{self._told - self._begun:.0f} s", self._values]
        sys.stderr.write("  ".join(word for word in words if word) + "\n")
        sys.stderr.flush()


class RichProgress:
    """Bars on standard error, with the time left and the values of the loss as far as the terminal is wide.

    A phase of unknown length leaves no line behind. Where the terminal cannot redraw, a phase is a plain line every
    half a minute and one at its end.
    """

    def __init__(self) -> None:
        self._console = terminal(stderr=True)

    @contextmanager
    def phase(self, name: str, total: int | None = None) -> Iterator[Phase]:
        """Yield a phase with a bar of its own."""
        if not redraws(self._console):
            if total is None:
                yield SilentPhase()
                return
            lines = _LinePhase(name, total)
            yield lines
            lines.tell()
            return
        from rich.progress import Progress as Bar

        with Bar(
            *self._columns(name, total), console=self._console, transient=total is None, expand=total is not None
        ) as bar:
            yield _RichPhase(bar, bar.add_task(name, total=total, values=""))

    def _columns(self, name: str, total: int | None) -> list[Any]:
        """Return what stands beside the bar, as much as the terminal has room for."""
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


def _shown(values: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in values.items())
