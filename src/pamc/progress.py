"""Progress display of long computations, in phases."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console

# Seconds between two lines of progress in a log file.
_LINE_EVERY_S = 30.0

# Below this width, only the name, the count and the remaining time are displayed.
_NARROW = 60

# Phases of a fit in order, with their typical shares of its time. The time left is estimated from the finished phases
# and, within a phase of known length, from the speed of this phase.
FIT_PHASES: Mapping[str, float] = MappingProxyType(
    {
        "preprocessing": 0.01,
        "graph": 0.04,
        "consensus": 0.40,
        "pre-training": 0.25,
        "confidence": 0.10,
        "training": 0.19,
        "labels": 0.01,
    }
)


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


class TimeLeft:
    """Estimates how much of a computation is done, and how long the rest takes.

    Parameters
    ----------
    shares
        Names of the phases in order, with their typical shares of the time. Any other phase has a share of 0.
    now
        Returns the current time in seconds.

    Examples
    --------
    >>> seconds = iter([0.0, 6.0, 8.0])
    >>> left = TimeLeft({"read": 0.5, "fit": 0.5}, now=lambda: next(seconds))
    >>> left.begin("fit", 4)
    >>> left.step()
    >>> left.done, left.seconds()
    (0.625, 6.0)
    """

    def __init__(self, shares: Mapping[str, float], *, now: Callable[[], float] = time.monotonic) -> None:
        self._shares, self._now, self._began = dict(shares), now, now()
        self._before = self._share = self._phase_began = 0.0
        self._n_steps = 0
        self._total: int | None = None

    def begin(self, name: str, total: int | None) -> None:
        """Begin a phase of `total` steps. Earlier phases that were skipped count as done."""
        names = list(self._shares)
        position = names.index(name) if name in self._shares else 0
        before = sum(self._shares[earlier] for earlier in names[:position])
        # A phase may run twice, for example if training is repeated.
        self._share = self._shares.get(name, 0.0) if before >= self._before - 1e-9 else 0.0
        self._before = max(self._before, before)
        self._n_steps, self._total, self._phase_began = 0, total, self._now()

    def step(self) -> None:
        """Count one step of the phase."""
        self._n_steps += 1

    def end(self) -> None:
        """End the phase."""
        self._before, self._share, self._total = self._before + self._share, 0.0, None

    @property
    def done(self) -> float:
        """Share of the work that is done, 0 to 1."""
        part = min(1.0, self._n_steps / self._total) if self._total else 0.0
        return min(1.0, self._before + self._share * part)

    def seconds(self) -> float | None:
        """Return the estimated time left; None before anything is done."""
        now, done = self._now(), self.done
        if done <= 0:
            return None
        in_phase, per_share = now - self._phase_began, (now - self._began) / done
        if self._total and self._n_steps:
            phase_left = in_phase / self._n_steps * (self._total - self._n_steps)
        else:
            phase_left = max(0.0, self._share * per_share - in_phase)
        return max(0.0, phase_left + (1.0 - self._before - self._share) * per_share)


class FitProgress:
    """One line on standard error for all phases of a fit, with the time left from the first finished phase on.

    If the terminal cannot redraw, phases are written as by :class:`RichProgress`.
    """

    def __init__(self) -> None:
        self._console = terminal(stderr=True)
        self._left = TimeLeft(FIT_PHASES)
        self._bar: Any = None

    @contextmanager
    def phase(self, name: str, total: int | None = None) -> Iterator[Phase]:
        """Yield a phase, which is shown on the line of the fit."""
        if not redraws(self._console):
            with RichProgress().phase(name, total) as phase:
                yield phase
            return
        if self._bar is None:
            self._start()
        self._left.begin(name, total)
        self._show(name, values="")
        try:
            yield _PartOfFit(self)
        except BaseException:
            self._stop()
            raise
        self._left.end()
        self._show(name)
        if name == list(FIT_PHASES)[-1]:
            self._stop()

    def advance(self, values: Mapping[str, float]) -> None:
        """Count one step of the current phase."""
        self._left.step()
        self._show(values=_formatted(dict(values)))

    def _show(self, name: str | None = None, **changes: Any) -> None:
        """Update the line; a new name of the phase is drawn at once."""
        if name is not None:
            changes |= {"description": f"{name:<13}", "refresh": True}
        self._bar.update(self._task, completed=self._left.done, **changes)

    def _start(self) -> None:
        self._left = TimeLeft(FIT_PHASES)
        self._bar = self._new_bar()
        self._bar.start()
        self._task = self._bar.add_task("", total=1.0, values="")

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _new_bar(self) -> Any:
        """Return the line: phase, bar, percentage, time so far, time left, and values that fit the terminal."""
        from rich.progress import BarColumn, ProgressColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar
        from rich.table import Column
        from rich.text import Text

        left = self._left

        class Left(ProgressColumn):
            def render(self, task: Any) -> Text:
                return Text("" if task.finished else _left_text(left.seconds()))

        named = TextColumn("{task.description}", table_column=Column(no_wrap=True, min_width=13))
        columns: list[Any] = [named, TaskProgressColumn(), Left()]
        if self._console.width >= _NARROW:
            rest = Column(no_wrap=True, overflow="ellipsis", ratio=1)
            values = TextColumn("{task.fields[values]}", style="dim", table_column=rest)
            columns = [named, BarColumn(bar_width=16), TaskProgressColumn(), TimeElapsedColumn(), Left(), values]
        return Bar(*columns, console=self._console, expand=True)


class _PartOfFit:
    def __init__(self, fit: FitProgress) -> None:
        self._fit = fit

    def advance(self, **values: float) -> None:
        """Count one step."""
        self._fit.advance(values)


def _left_text(seconds: float | None) -> str:
    """Return the time left in words.

    Examples
    --------
    >>> _left_text(3.2), _left_text(95.0), _left_text(7300.0), _left_text(None)
    ('about 4 s left', 'about 2 min left', 'about 2.0 h left', '')
    """
    if seconds is None:
        return ""
    if seconds < 60:
        return f"about {math.ceil(seconds)} s left"
    if seconds < 3600:
        return f"about {math.ceil(seconds / 60)} min left"
    return f"about {seconds / 3600:.1f} h left"


def _formatted(values: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in values.items())
