"""The registry of everything that is looked up by name: methods, data sets, backends, initializers."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from pamc.errors import ConfigError, UnknownNameError

T = TypeVar("T")


class Registry(Generic[T]):
    """A mapping from names to objects, filled by decorators in the modules of one package.

    Parameters
    ----------
    kind
        Kind of the registered objects, for error messages: "method", "data set".
    package
        Package whose modules register themselves when imported. It is imported at the first lookup, so that importing
        pamc stays fast and a new entry is one new file.

    Examples
    --------
    >>> shapes = Registry("shape")
    >>> @shapes.register("square")
    ... def area(a):
    ...     return a * a
    >>> shapes["square"](3)
    9
    >>> shapes["sqare"]
    Traceback (most recent call last):
    pamc.errors.UnknownNameError: unknown shape 'sqare': allowed are square; did you mean 'square'?
    """

    def __init__(self, kind: str, package: str | None = None) -> None:
        self.kind = kind
        self._package = package
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers its object under ``name``."""

        def add(entry: T) -> T:
            if name in self._entries:
                raise ConfigError(f"{self.kind} {name!r} is registered twice")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        self._discover()
        try:
            return self._entries[name]
        except KeyError:
            raise UnknownNameError(self.kind, name, self._entries) from None

    def __contains__(self, name: object) -> bool:
        self._discover()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._discover()
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        self._discover()
        return len(self._entries)

    def _discover(self) -> None:
        if self._package is None:
            return
        package, self._package = importlib.import_module(self._package), None
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)
