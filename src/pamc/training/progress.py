"""Progress of a fit: phases that advance, shown or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

__all__ = ["Phase", "Progress", "RichProgress", "SilentProgress"]


class Phase(Protocol):
    """One part of a fit while it runs."""

    def advance(self, **values: float) -> None:
        """Take one step, and show some values beside it."""


class Progress(Protocol):
    """Something that shows phases."""

    def phase(self, name: str, total: int | None = None) -> Any:
        """Return a context manager that yields a :class:`Phase`."""


class _SilentPhase:
    def advance(self, **values: float) -> None:
        """Show nothing."""


class SilentProgress:
    """Shows nothing."""

    @contextmanager
    def phase(self, name: str, total: int | None = None) -> Iterator[Phase]:
        """Yield a phase that shows nothing."""
        yield _SilentPhase()


class _RichPhase:
    def __init__(self, bar: Any, task: Any) -> None:
        self._bar = bar
        self._task = task

    def advance(self, **values: float) -> None:
        """Move the bar."""
        shown = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        self._bar.update(self._task, advance=1, values=shown)


class RichProgress:
    """Bars on standard error, with the remaining time and the values of the loss."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)

    @contextmanager
    def phase(self, name: str, total: int | None = None) -> Iterator[Phase]:
        """Yield a phase with a bar of its own; on a terminal that cannot redraw, one line at its end."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Remaining

        columns: list[Any] = [TextColumn("{task.description:<22}"), BarColumn(bar_width=24)]
        columns += [MofNCompleteColumn(), TimeElapsedColumn(), Remaining()] if total else [TimeElapsedColumn()]
        columns += [TextColumn("{task.fields[values]}", style="dim")]
        with Progress(*columns, console=self._console) as bar:
            task = bar.add_task(name, total=total, values="")
            yield _RichPhase(bar, task)
            if total is None:
                bar.update(task, total=1, completed=1)
