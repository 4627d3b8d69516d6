"""Declaration of commands, options shared by several commands, and parsers of their values.

This module imports neither torch nor numpy, so that help, completion and usage errors are fast.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import typer

from pamc.cli.completion import datasets_named, devices_named
from pamc.errors import ConfigError
from pamc.registry import Registry

# Panels of the help, in display order.
CLUSTER, LOOK_UP, LABORATORY = "Cluster your data", "Look up", "Laboratory"

Options = TypeVar("Options")
Body = TypeVar("Body", bound=Callable[..., None])


class Command(NamedTuple):
    """A command, the help panel that lists it, and its position there."""

    run: Callable[..., None]
    panel: str
    place: int


COMMANDS: Registry[Command] = Registry("command", "pamc.cli.commands")


def command(panel: str, place: int) -> Callable[[Body], Body]:
    """Return a decorator that registers a function as the command of the same name; its parameters are the options."""

    def add(run: Body) -> Body:
        COMMANDS.register(run.__name__)(Command(run, panel, place))
        return run

    return add


def taking(options: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Return a decorator for a command that takes its options as one instance of a dataclass."""

    def wrap(body: Callable[[Options], None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            body(options(**values))

        run.__name__, run.__doc__ = body.__name__, body.__doc__
        run.__signature__ = inspect.signature(options, eval_str=True)  # type: ignore[attr-defined]
        return run

    return wrap


def option(
    usage: str, about: str, default: Any = None, *, panel: str | None = None, complete: Any = None, **more: Any
) -> Any:
    """Return the declaration of a command-line option.

    Parameters
    ----------
    usage
        Names of the option and metavar of its value, such as ``--n-clusters -k K``.
    about, panel
        Help text, and the panel that shows it.
    complete
        Function that maps an incomplete value to its completions.
    more
        Further arguments of `typer.Option`.
    """
    names = [word for word in usage.split() if word.startswith("-")]
    metavar = usage.split()[-1] if len(names) < len(usage.split()) else None
    display: dict[str, Any] = {"help": about, "metavar": metavar, "rich_help_panel": panel}
    return typer.Option(default, *names, autocompletion=complete, **display, **more)


# Options shared by several commands.
_SHARED: dict[str, Callable[..., Any]] = {
    "--json": partial(option, "--json", "Print only one JSON object to standard output.", False),
    "--quiet": partial(option, "--quiet", "Hide progress.", False),
    "--device": partial(
        option,
        "--device DEVICE",
        "Compute on this device: auto (a GPU if available), cpu, cuda, cuda:1 …",
        "auto",
        complete=devices_named,
    ),
    "--id": partial(option, "--id COLUMN", "Use this column as row ids."),
    "--truth": partial(option, "--truth COLUMN", "Read the true classes from this column; only metrics use them."),
    "--columns": partial(option, "--columns NAMES", "Use only these feature columns (comma-separated)."),
    "--drop": partial(option, "--drop NAMES", "Ignore these columns (comma-separated)."),
    "--types": partial(
        option,
        "--types NAME=TYPE",
        "Set types of columns (comma-separated; docs/columns.md): zip=category,size=S<M<L.",
    ),
    "--seed": partial(option, "--seed N", "Random seed.", 0, min=0),
    "--dataset": partial(
        option, "--dataset NAMES", "Run only these data sets (comma-separated).", complete=datasets_named
    ),
}


def shared(name: str, panel: str | None = None) -> Any:
    """Return the declaration of a shared option."""
    return _SHARED[name](panel=panel)


def import_own_method(method: str) -> None:
    """Import a method with a name such as package.module:Name, also from the current folder."""
    if ":" in method:
        from pamc.models.method import import_method

        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        import_method(method)


_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"([0-9]*\.?[0-9]+)\s*([kmgt]?i?)b?", re.IGNORECASE)


def parse_bytes(text: str, option: str) -> int:
    """Parse a size and return it in bytes; units are powers of 1000, or of 1024 with an i.

    Examples
    --------
    >>> parse_bytes("2GB", "--memory"), parse_bytes("1.5 GiB", "--memory")
    (2000000000, 1610612736)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2].lower() not in _UNITS:
        raise ConfigError(f"{option} must be a size such as 2GB, 500MB or 1.5GiB, got {text!r}")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def parse_count(text: str, option: str) -> int:
    """Parse a positive integer, which may have an exponent.

    Examples
    --------
    >>> parse_count("1e6", "--n-nodes"), parse_count("2_000", "--n-nodes")
    (1000000, 2000)
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value.is_integer() or value < 1:
        raise ConfigError(f"{option} must be an integer of at least 1, such as 1000 or 1e6, got {text!r}")
    return int(value)


def parse_types(values: list[str] | None) -> dict[str, str] | None:
    """Return the types in repeated, comma-separated options NAME=TYPE, or None if the option was not given.

    Examples
    --------
    >>> parse_types(["zip=category, size=S<M<L", "price=decimal comma"])
    {'zip': 'category', 'size': 'S<M<L', 'price': 'decimal comma'}
    """
    pairs = split_names(values, "--types")
    if pairs is None:
        return None
    types = {}
    for pair in pairs:
        name, equals, kind = (part.strip() for part in pair.rpartition("="))
        if not equals or not name or not kind:
            raise ConfigError(f"--types takes NAME=TYPE, such as zip=category, got {pair!r}")
        if name in types:
            raise ConfigError(f"--types names the column {name!r} twice")
        types[name] = kind
    return types


def parse_relations(values: list[str] | None, option: str) -> dict[str, str]:
    """Return the files in repeated options NAME=FILE, by name.

    Examples
    --------
    >>> parse_relations(["venue=papers/venues.csv", "author=authors.csv"], "--edges")
    {'venue': 'papers/venues.csv', 'author': 'authors.csv'}
    """
    files: dict[str, str] = {}
    for value in values or []:
        name, equals, path = (part.strip() for part in value.partition("="))
        if not equals or not name or not path:
            raise ConfigError(f"{option} takes NAME=FILE for each of several relations, got {value!r}")
        if name in files:
            raise ConfigError(f"{option} names the relation {name!r} twice")
        files[name] = path
    return files


def parse_weights(values: list[str] | None) -> dict[str, float] | None:
    """Return the weights in repeated, comma-separated options NAME=X, or None if the option was not given.

    Examples
    --------
    >>> parse_weights(["venue=2, author=0.5"])
    {'venue': 2.0, 'author': 0.5}
    """
    pairs = split_names(values, "--relation-weights")
    if pairs is None:
        return None
    weights = {}
    for pair in pairs:
        name, _, number = (part.strip() for part in pair.rpartition("="))
        try:
            weights[name] = float(number)
        except ValueError:
            name = ""
        if not name:
            raise ConfigError(f"--relation-weights takes NAME=NUMBER, such as venue=2,author=0.5, got {pair!r}")
    return weights


def split_names(values: list[str] | None, option: str) -> list[str] | None:
    """Return the names in repeated, comma-separated options, or None if the option was not given.

    Examples
    --------
    >>> split_names(["age, income", "city"], "--columns"), split_names(None, "--columns")
    (['age', 'income', 'city'], None)
    """
    if not values:
        return None
    names = [name.strip() for value in values for name in value.split(",")]
    if not any(names):
        raise ConfigError(f"{option} lists no names: give names, or leave it out")
    return [name for name in names if name]
