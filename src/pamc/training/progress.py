"""Progress of a fit: phases that advance, shown or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pamc.data.progress import Phase, Progress, SilentPhase, SilentProgress

__all__ = ["Phase", "Progress", "RichProgress", "SilentProgress"]


class _RichPhase:
    def __init__(self, bar: Any, task: Any) -> None:
        self._bar = bar
        self._task = task

    def advance(self, **values: float) -> None:
        """Move the bar."""
        shown = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        self._bar.update(self._task, advance=1, values=shown)


class RichProgress:
    """Bars on standard error, with the time left and the values of the loss as far as the terminal is wide.

    A phase of unknown length leaves no line behind. Where the terminal cannot redraw, a phase is one line at its end.
    """

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)

    @contextmanager
    def phase(self, name: str, total: int | None = None) -> Iterator[Phase]:
        """Yield a phase with a bar of its own."""
        if total is None and not self._console.is_terminal:
            yield SilentPhase()
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Remaining
        from rich.table import Column

        columns: list[Any] = [TextColumn(f"{name:<12}", table_column=Column(no_wrap=True, min_width=12))]
        if total is None:
            columns += [SpinnerColumn(), TimeElapsedColumn()]
        else:
            rest = Column(no_wrap=True, overflow="ellipsis", ratio=1)
            columns += [BarColumn(bar_width=16), MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=7))]
            columns += [TimeElapsedColumn(), TextColumn("left"), Remaining(compact=True)]
            columns += [TextColumn("{task.fields[values]}", style="dim", table_column=rest)]
        with Progress(*columns, console=self._console, transient=total is None, expand=total is not None) as bar:
            yield _RichPhase(bar, bar.add_task(name, total=total, values=""))
