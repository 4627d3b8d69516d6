"""Measurements as text: times, sizes, rates, and the tables that a case's rows make."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pamc.bench.rows import Row
from pamc.experiments.figures import by

__all__ = ["MISSING", "ShownTable", "bytes_text", "ratio_to_pamc", "tables", "time_text"]

MISSING = "–"

_MIB = 1 << 20
_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))

# Of pamc's own providers, the one that others are compared with is the first that was measured.
_PAMC = ("triton", "torch")


class ShownTable(NamedTuple):
    """A table of texts."""

    title: str
    columns: list[str]
    rows: list[list[str]]


def time_text(seconds: float | None) -> str:
    """Return a time in the unit that suits it.

    Examples
    --------
    >>> time_text(1.5), time_text(0.00213), time_text(3.4e-05), time_text(None)
    ('1.50 s', '2.13 ms', '34.0 µs', '–')
    """
    if seconds is None:
        return MISSING
    scale, unit = next((pair for pair in _TIME_UNITS if seconds >= pair[0]), _TIME_UNITS[-1])
    return f"{_three(seconds / scale)} {unit}"


def bytes_text(n_bytes: float | None) -> str:
    """Return a size in mebibytes.

    Examples
    --------
    >>> bytes_text(3 << 20), bytes_text(1000), bytes_text(None)
    ('3.00 MiB', '0.001 MiB', '–')
    """
    if n_bytes is None:
        return MISSING
    return f"{_three(n_bytes / _MIB)} MiB" if n_bytes >= _MIB / 100 else f"{n_bytes / _MIB:.3f} MiB"


def ratio_to_pamc(rows: Sequence[Row], row: Row, name: str) -> float | None:
    """Return how many times a row's value is that of pamc at the same parameters; None where one is missing."""
    same = {
        other["provider"]: other["values"].get(name)
        for other in rows
        if other["parameters"] == row["parameters"] and other.get("device") == row.get("device")
    }
    base, own = next((same[each] for each in _PAMC if same.get(each)), None), row["values"].get(name)
    return None if base is None or own is None else float(own / base)


def tables(case: str, rows: Sequence[Row]) -> list[ShownTable]:
    """Return the tables of a case: what was measured, each sweep in a table of its own, and the exponents fitted."""
    points = [row for row in rows if "time_exponent" not in row["values"]]
    fitted = [row for row in rows if "time_exponent" in row["values"]]
    found = [_measured(case, group) for group in by(points, lambda row: str(row["parameters"].get("sweep"))).values()]
    return [*found, _exponents(case, fitted)] if fitted else found


def _measured(case: str, rows: Sequence[Row]) -> ShownTable:
    names = list(dict.fromkeys(name for row in rows for name in row["parameters"]))
    texts = {name: [json.dumps(row["parameters"].get(name)) for row in rows] for name in names}
    varying = [name for name in names if len(set(texts[name])) > 1]
    compared = any(row["provider"] in _PAMC for row in rows) and len({row["provider"] for row in rows}) > 1
    extra = [name for name in _FURTHER if any(name in row["values"] for row in rows)]
    remembered = any(row["values"].get("peak_bytes") is not None for row in rows)
    columns = ["provider", *varying, "time", *(["memory"] if remembered else [])]
    compared_by = ["seconds", "peak_bytes"] if remembered else ["seconds"]
    columns += ["× time", "× memory"][: len(compared_by)] if compared else []
    columns += [_FURTHER[name][0] for name in extra]
    body = []
    for row in rows:
        values = row["values"]
        line = [row["provider"], *(_text(row["parameters"].get(name)) for name in varying)]
        line.append(row.get("error") or time_text(values.get("seconds")))
        line += [bytes_text(values.get("peak_bytes"))] if remembered else []
        if compared:
            line += [_times(ratio_to_pamc(rows, row, name)) for name in compared_by]
        line += [_FURTHER[name][1](values[name]) if name in values else MISSING for name in extra]
        body.append(line)
    fixed = ", ".join(f"{name} {_text(rows[0]['parameters'][name])}" for name in names if name not in varying)
    return ShownTable(f"{case}: {fixed}" if fixed else case, columns, body)


def _exponents(case: str, rows: Sequence[Row]) -> ShownTable:
    body = []
    for row in rows:
        sweep, values = row["parameters"]["sweep"], row["values"]
        low, high = row["parameters"][sweep]
        memory = values.get("memory_exponent")
        texts = [f"{values['time_exponent']:.2f}", MISSING if memory is None else f"{memory:.2f}"]
        body.append([row["provider"], sweep, f"{low} to {high}", *texts])
    return ShownTable(
        f"{case}: fitted exponents", ["provider", "over", "sizes", "time exponent", "memory exponent"], body
    )


def _three(value: float) -> str:
    """Return a number of at least about 0.01 with three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _times(ratio: float | None) -> str:
    return MISSING if ratio is None else f"{_three(ratio)}"


def _text(value: Any) -> str:
    return MISSING if value is None else "-".join(map(str, value)) if isinstance(value, list) else str(value)


def _tera(value: float) -> str:
    return f"{_three(value / 1e12)}" if value >= 1e10 else f"{value / 1e12:.4f}"


# Values that a table shows where there are some, their heading and how they are written.
_FURTHER: dict[str, tuple[str, Callable[[Any], str]]] = {
    "times_encoder": ("× encoder", _three),
    "times_faster": ("× sparse", _three),
    "first_layer_times_faster": ("in layer 1", _three),
    "bytes_per_s": ("TB/s", _tera),
    "share_of_copy": ("of a copy", lambda share: f"{100 * share:.0f} %"),
    "flop_per_s": ("TFLOP/s", _tera),
    "rows_per_s": ("rows/s", lambda rate: f"{rate:,.0f}"),
    "gradient_error": ("gradient error", lambda error: f"{error:.1e}"),
    "max_degree": ("largest degree", str),
}
