"""Every exception and warning of pamc.

Each exception derives from :class:`PamcError` and from the builtin people expect, so that ``except ValueError`` works.
The ``exit_code`` is what the command returns.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ClassVar

__all__ = [
    "BackendError",
    "CollapseWarning",
    "ConfigError",
    "DataError",
    "DataWarning",
    "EmptyClusterWarning",
    "ModelFileError",
    "OutputError",
    "PamcError",
    "PamcWarning",
    "TrainingError",
    "UnknownNameError",
    "choices",
    "collected_warnings",
    "counted",
    "warn",
]


class PamcError(Exception):
    """Base of all errors that pamc raises on purpose."""

    exit_code = 1


class ConfigError(PamcError, ValueError):
    """A parameter or option is wrong."""

    exit_code = 2


class UnknownNameError(PamcError, ValueError):
    """A name is not among the known ones."""

    exit_code = 2

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        super().__init__(f"unknown {kind} {name!r}: {choices(name, known)}")


class DataError(PamcError, ValueError):
    """The data cannot be used as they are."""

    exit_code = 3


class ModelFileError(DataError):
    """A saved model is damaged, was changed, or is of another format."""


class OutputError(PamcError, OSError):
    """Results cannot be written where they were asked for."""

    exit_code = 3


class BackendError(PamcError, RuntimeError):
    """A device, backend or optional package is not there."""

    exit_code = 4


class TrainingError(PamcError, ArithmeticError):
    """Training produced a value that is not finite."""

    exit_code = 1


class PamcWarning(UserWarning):
    """Base of all warnings of pamc; of a class that says `once`, a fit issues the first one only."""

    once: ClassVar[bool] = False


class DataWarning(PamcWarning):
    """The data are usable but may not be what the user meant."""


class EmptyClusterWarning(PamcWarning):
    """A cluster has no member; its meta-node is left out."""

    once = True


class CollapseWarning(PamcWarning):
    """Fewer than two clusters have members: there is nothing to contrast."""

    once = True


# What a fit collects, so that it can be issued once, at its end, and kept in its record. Threads do not share it.
_COLLECTED: ContextVar[list[PamcWarning] | None] = ContextVar("collected", default=None)


def warn(warning: PamcWarning, *, stacklevel: int = 1) -> None:
    """Issue a warning, or keep it where a fit collects its warnings; one that was kept already is left out.

    Parameters
    ----------
    warning
        The warning.
    stacklevel
        Which caller to name: 1 is that of this function.
    """
    collected = _COLLECTED.get()
    if collected is None:
        warnings.warn(warning, stacklevel=stacklevel + 1)
    elif not any(_is_repeated(warning, earlier) for earlier in collected):
        collected.append(warning)


def _is_repeated(warning: PamcWarning, earlier: PamcWarning) -> bool:
    return type(earlier) is type(warning) and (warning.once or str(earlier) == str(warning))


@contextmanager
def collected_warnings() -> Iterator[list[PamcWarning]]:
    """Yield a list that takes the warnings of the block, each once, in the place of issuing them."""
    collected: list[PamcWarning] = []
    token = _COLLECTED.set(collected)
    try:
        yield collected
    finally:
        _COLLECTED.reset(token)


def choices(name: object, known: Iterable[str]) -> str:
    """Return what is allowed and, for a near miss, what was probably meant.

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
    """Return a number of things in words: of one in the singular, with commas between thousands where asked for.

    Examples
    --------
    >>> counted(1, "row"), counted(2, "row"), counted(1200, "row", grouped=True)
    ('1 row', '2 rows', '1,200 rows')
    """
    number = f"{count:,}" if grouped else f"{count}"
    return f"{number} {what}" if count == 1 else f"{number} {what}s"
