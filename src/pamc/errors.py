"""Every exception and warning of pamc.

Each exception derives from :class:`PamcError` and from the builtin people expect, so that ``except ValueError`` works.
The ``exit_code`` is what the command returns.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "BackendError",
    "BoundWarning",
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
    "counted",
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
    """Base of all warnings of pamc."""


class DataWarning(PamcWarning):
    """The data are usable but may not be what the user meant."""


class BoundWarning(PamcWarning):
    """N is too small for C and tau: Eq 7 does not certify the proxy."""


class EmptyClusterWarning(PamcWarning):
    """A cluster has no member; its meta-node is left out."""


class CollapseWarning(PamcWarning):
    """Fewer than two clusters have members: there is nothing to contrast."""


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
