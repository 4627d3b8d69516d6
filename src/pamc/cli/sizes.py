"""Sizes, counts and lists of names as people write them: 2GB, 1e6, age,income."""

from __future__ import annotations

import math
import re

from pamc.errors import ConfigError

__all__ = ["parse_bytes", "parse_count", "shown_bytes", "split_names"]

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
        raise ConfigError(f"{option} names no column: write {option} followed by column names, or leave it out")
    return [name for name in names if name]
