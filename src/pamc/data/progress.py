"""Progress of long work: phases that advance. Who works is handed something that shows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

__all__ = ["Phase", "Progress", "SilentPhase", "SilentProgress"]


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
