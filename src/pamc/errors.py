"""All exceptions and warnings of pamc.

Each exception derives from :class:`PamcError` and from the matching built-in, so that ``except ValueError`` works. The
command exits with ``exit_code``.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ClassVar


class PamcError(Exception):
    """Base class of all errors that pamc raises."""

    exit_code = 1


class ConfigError(PamcError, ValueError):
    """A parameter or option is invalid."""

    exit_code = 2


class UnknownNameError(PamcError, ValueError):
    """A name is not one of the known names."""

    exit_code = 2

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        super().__init__(f"unknown {kind} {name!r}: {choices(name, known)}")


class DataError(PamcError, ValueError):
    """The data are invalid."""

    exit_code = 3


class ModelFileError(DataError):
    """A saved model is damaged, was modified, or has another format."""


class OutputError(PamcError, OSError):
    """Results cannot be written to the requested path."""

    exit_code = 3


class BackendError(PamcError, RuntimeError):
    """A device, backend or optional package is not available."""

    exit_code = 4


class TrainingError(PamcError, ArithmeticError):
    """Training produced a value that is not finite."""


class PamcWarning(UserWarning):
    """Base class of all warnings of pamc; a fit issues only the first warning of a class with `once`."""

    once: ClassVar[bool] = False


class DataWarning(PamcWarning):
    """The data are valid but may not be what the user intended."""


class EmptyClusterWarning(PamcWarning):
    """A cluster is empty; its meta-node is left out."""

    once = True


class CollapseWarning(PamcWarning):
    """Fewer than two clusters are nonempty, so there is nothing to contrast."""

    once = True


# The warnings that a fit collects, issues once at its end, and stores in its record. Threads do not share them.
_COLLECTED: ContextVar[list[PamcWarning] | None] = ContextVar("collected", default=None)


def warn(warning: PamcWarning, *, stacklevel: int = 1) -> None:
    """Issue a warning, or collect it inside :func:`collected_warnings`, where repeated warnings are dropped.

    `stacklevel` selects the caller that the warning names; 1 is the caller of this function.
    """
    collected = _COLLECTED.get()
    if collected is None:
        warnings.warn(warning, stacklevel=stacklevel + 1)
        return
    same_class = [str(earlier) for earlier in collected if type(earlier) is type(warning)]
    if str(warning) not in same_class and not (warning.once and same_class):
        collected.append(warning)


@contextmanager
def collected_warnings() -> Iterator[list[PamcWarning]]:
    """Yield a list that collects the warnings of the `with` block, each once, instead of issuing them."""
    collected: list[PamcWarning] = []
    token = _COLLECTED.set(collected)
    try:
        yield collected
    finally:
        _COLLECTED.reset(token)


def choices(name: object, known: Iterable[str]) -> str:
    """Return a text that lists the allowed names and, for a near miss, suggests one.

    Examples
    --------
    >>> choices("usp", ["acm", "usps"])
    "allowed are acm, usps; did you mean 'usps'?"
    """
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"allowed are {', '.join(names)}{hint}"


def counted(count: int, what: str, *, grouped: bool = False) -> str:
    """Return a count with its noun, in the singular for 1, and with thousands separators if `grouped`.

    Examples
    --------
    >>> counted(1, "row"), counted(2, "row"), counted(1200, "row", grouped=True)
    ('1 row', '2 rows', '1,200 rows')
    """
    number = f"{count:,}" if grouped else f"{count}"
    return f"{number} {what}" if count == 1 else f"{number} {what}s"
