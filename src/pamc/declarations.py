"""Declarations of settings: each setting is declared once, with its default, its allowed values and its description.

This module does not import torch, so that help and completion load quickly.
"""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from pamc.errors import ConfigError, UnknownNameError

_DOCSTRING_WIDTH = 108


class Kind(Protocol):
    """The allowed values of a setting."""

    def check(self, name: str, value: Any) -> Any:
        """Return the value to store, or raise an error with the name of the setting and the allowed values."""

    def __str__(self) -> str:
        """Return the allowed values for documentation: `int of at least 1`, `{"a", "b"}`."""


@dataclass(frozen=True)
class Count:
    """An integer of at least `minimum`."""

    minimum: int = 1

    def check(self, name: str, value: Any) -> Any:
        """Return the value; see :class:`Kind`."""
        if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < self.minimum:
            raise ConfigError(f"{name} must be an integer of at least {self.minimum}, got {value!r}")
        return value

    def __str__(self) -> str:
        return f"int of at least {self.minimum}"


@dataclass(frozen=True)
class Number:
    """A finite number of at least 0, or above 0 if `positive`; optionally with an upper bound."""

    positive: bool = False
    below: float = math.inf
    at_most: float = math.inf

    def check(self, name: str, value: Any) -> Any:
        """Return the value; see :class:`Kind`."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        lowest_fails = number <= 0 if self.positive else number < 0
        if not math.isfinite(number) or lowest_fails or number >= self.below or number > self.at_most:
            raise ConfigError(f"{name} must be a finite number {self._bounds()}, got {value!r}")
        return value

    def __str__(self) -> str:
        return f"float {self._bounds()}"

    def _bounds(self) -> str:
        above = "above 0" if self.positive else "of at least 0"
        if math.isfinite(self.below):
            return f"{above} and below {self.below:g}"
        return f"{above} and at most {self.at_most:g}" if math.isfinite(self.at_most) else above


@dataclass(frozen=True)
class Sizes:
    """A list of positive integers: the sizes of layers."""

    def check(self, name: str, value: Any) -> Any:
        """Return the sizes as a tuple; see :class:`Kind`."""
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise ConfigError(f"{name} must list the sizes of the layers, such as [500, 500, 2000], got {value!r}")
        return tuple(Count().check(name, size) for size in value)

    def __str__(self) -> str:
        return "tuple of int"


@dataclass(frozen=True)
class ImageShape:
    """The height, width and, optionally, number of channels of an image."""

    def check(self, name: str, value: Any) -> Any:
        """Return the shape as a tuple; see :class:`Kind`."""
        if isinstance(value, str) or not isinstance(value, Iterable) or len(shape := tuple(value)) not in (2, 3):
            raise ConfigError(f"{name} must be (height, width) or (height, width, channels), got {value!r}")
        return tuple(Count(2 if axis < 2 else 1).check(name, size) for axis, size in enumerate(shape))

    def __str__(self) -> str:
        return "(height, width) or (height, width, channels)"


@dataclass(frozen=True)
class Choice:
    """One of several strings."""

    names: tuple[str, ...]

    def check(self, name: str, value: Any) -> Any:
        """Return the value; see :class:`Kind`."""
        if value not in self.names:
            raise UnknownNameError(name, value, self.names)
        return value

    def __str__(self) -> str:
        return "{" + ", ".join(f'"{name}"' for name in self.names) + "}"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The declaration of one setting.

    Parameters
    ----------
    default
        Default value.
    kind
        Allowed values.
    about
        Description for documentation and help.
    optional
        Whether None is allowed in addition to what `kind` allows.
    expert
        Whether only `PamCGC(advanced=…)` and `--set` set it, rather than a parameter and an option of its own.
    """

    default: Any
    kind: Kind
    about: str
    optional: bool = False
    expert: bool = True

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed strings; empty for numbers."""
        return self.kind.names if isinstance(self.kind, Choice) else ()

    def describe(self) -> str:
        """Return the allowed values for documentation."""
        return f"{self.kind} or None" if self.optional else str(self.kind)

    def check(self, name: str, value: Any) -> Any:
        """Return the value to store, or raise an error if it is not allowed."""
        return None if self.optional and value is None else self.kind.check(name, value)

    def documented(self, name: str) -> str:
        """Return the entry of the setting in a NumPy docstring.

        Examples
        --------
        >>> print(Setting(default=1.0, kind=Number(), about="Weigh the term.").documented("alpha"))
        alpha : float of at least 0, default=1.0
            Weigh the term.
        """
        default = f'"{self.default}"' if isinstance(self.default, str) else self.default
        about = textwrap.fill(self.about, _DOCSTRING_WIDTH, initial_indent="    ", subsequent_indent="    ")
        return f"{name} : {self.describe()}, default={default}\n{about}"


_DECLARATION = "declaration"


def setting(default: Any, kind: Kind, about: str, *, optional: bool = False, expert: bool = True) -> Any:
    """Return a dataclass field that declares a setting; the parameters are those of :class:`Setting`."""
    return _field(Setting(default=default, kind=kind, about=about, optional=optional, expert=expert))


def _field(declared: Setting) -> Any:
    return dataclasses.field(default=declared.default, metadata={_DECLARATION: declared})


@dataclass(frozen=True, kw_only=True)
class DeclaredSettings:
    """Base class of dataclasses whose fields are settings.

    A field is declared by :func:`setting`. In a subclass, a plain value changes the default of an inherited setting.
    """

    _settings: ClassVar[Mapping[str, Setting]] = MappingProxyType({})

    def __init_subclass__(cls) -> None:
        merged: dict[str, Setting] = {}
        for base in reversed(cls.__mro__[1:]):
            merged.update(vars(base).get("_settings", {}))
        for name in vars(cls).get("__annotations__", {}):
            value = vars(cls)[name]
            if isinstance(value, dataclasses.Field):
                merged[name] = value.metadata[_DECLARATION]
            else:
                merged[name] = dataclasses.replace(merged[name], default=value)
                setattr(cls, name, _field(merged[name]))
        cls._settings = MappingProxyType(merged)
        entries = "\n".join(declared.documented(name) for name, declared in merged.items())
        parameters = textwrap.indent(f"Parameters\n----------\n{entries}\n", "    ")
        cls.__doc__ = f"{(cls.__doc__ or '').rstrip()}\n\n{parameters}"

    @classmethod
    def settings(cls) -> Mapping[str, Setting]:
        """Return the declarations of all settings by name."""
        return cls._settings
