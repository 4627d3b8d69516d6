"""How a command is declared, the options that several commands share, and how their values are read.

Nothing here imports torch or numpy, so that help, completion and mistyped options answer at once.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import typer

from pamc.cli.completion import datasets_named, devices_named
from pamc.errors import ConfigError
from pamc.registry import Registry

__all__ = [
    "CLUSTER",
    "COMMANDS",
    "LABORATORY",
    "LOOK_UP",
    "command",
    "option",
    "parse_bytes",
    "parse_count",
    "shared",
    "shown_bytes",
    "split_names",
    "taking",
]

# The panels of commands, in the order in which they are shown.
CLUSTER, LOOK_UP, LABORATORY = "Cluster your data", "Look up", "Laboratory"

Options = TypeVar("Options")
Body = TypeVar("Body", bound=Callable[..., None])


class Command(NamedTuple):
    """A command, the panel of the help that shows it, and its place there."""

    run: Callable[..., None]
    panel: str
    place: int


COMMANDS: Registry[Command] = Registry("command", "pamc.cli.commands")


def command(panel: str, place: int) -> Callable[[Body], Body]:
    """Return a decorator that makes a function the command of its name; its parameters are the options."""

    def add(run: Body) -> Body:
        COMMANDS.register(run.__name__)(Command(run, panel, place))
        return run

    return add


def taking(options: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Return a decorator for a command whose options are the fields of a dataclass, which it is given as one value."""

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
    """Return the declaration of an option.

    Parameters
    ----------
    usage
        How it is written, such as ``--n-clusters -k K``: its names, and a word for its value.
    about, panel
        What the help says of it, and the panel in which it does.
    complete
        Function from what was typed of a value to what the shell offers.
    more
        Further arguments of `typer.Option`.
    """
    names = [word for word in usage.split() if word.startswith("-")]
    metavar = usage.split()[-1] if len(names) < len(usage.split()) else None
    shown: dict[str, Any] = {"help": about, "metavar": metavar, "rich_help_panel": panel}
    return typer.Option(default, *names, autocompletion=complete, **shown, **more)


# Options that several commands have.
_SHARED: dict[str, Callable[..., Any]] = {
    "--json": partial(option, "--json", "Print one JSON object on standard output, and nothing else.", False),
    "--quiet": partial(option, "--quiet", "Show no progress.", False),
    "--device": partial(
        option,
        "--device DEVICE",
        "Where to compute: auto takes a GPU where there is one; cpu, cuda, cuda:1 …",
        "auto",
        complete=devices_named,
    ),
    "--id": partial(option, "--id COLUMN", "Column that names the rows."),
    "--truth": partial(option, "--truth COLUMN", "Column of true classes: it serves the metrics, never training."),
    "--columns": partial(option, "--columns NAMES", "Feature columns to use (comma-separated)."),
    "--drop": partial(option, "--drop NAMES", "Columns to leave out (comma-separated)."),
    "--seed": partial(option, "--seed N", "Random seed to use.", 0, min=0),
    "--dataset": partial(
        option, "--dataset NAMES", "Run these data sets only (comma-separated).", complete=datasets_named
    ),
}


def shared(name: str, panel: str | None = None) -> Any:
    """Return the declaration of an option that several commands have."""
    return _SHARED[name](panel=panel)


_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"([0-9]*\.?[0-9]+)\s*([kmgt]?i?)b?", re.IGNORECASE)


def parse_bytes(text: str, option: str) -> int:
    """Return a size in bytes; units are powers of 1000, or of 1024 with an i.

    Examples
    --------
    >>> parse_bytes("2GB", "--memory"), parse_bytes("1.5 GiB", "--memory")
    (2000000000, 1610612736)
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[2].lower() not in _UNITS:
        raise ConfigError(f"{option} must be a size such as 2GB, 500MB or 1.5GiB, got {text!r}")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def parse_count(text: str, option: str) -> int:
    """Return a whole number, which may be written with an exponent.

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
        raise ConfigError(f"{option} must be a whole number of at least 1, such as 1000 or 1e6, got {text!r}")
    return int(value)


def shown_bytes(n_bytes: int) -> str:
    """Return a size in words.

    Examples
    --------
    >>> shown_bytes(2_345_000_000)
    '2.35 GB'
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes} bytes"


def split_names(values: list[str] | None, option: str) -> list[str] | None:
    """Return the names in repeated, comma-separated options; None where the option was not given.

    Examples
    --------
    >>> split_names(["age, income", "city"], "--columns"), split_names(None, "--columns")
    (['age', 'income', 'city'], None)
    """
    if not values:
        return None
    names = [name.strip() for value in values for name in value.split(",")]
    if not any(names):
        raise ConfigError(f"{option} names nothing: give names, or leave it out")
    return [name for name in names if name]
