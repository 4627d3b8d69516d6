"""The stored rows of measurements, read and appended by :mod:`pamc.bench.rows`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pamc.bench import rows as bench_rows
from pamc.bench.rows import Row, stamp

__all__ = ["RESULTS", "Rows", "append", "latest", "read", "stamp"]

RESULTS = Path(__file__).parent / "results"

Rows = list[Row]


def append(case: str, rows: Rows, origin: dict[str, Any]) -> Path:
    """Append rows to the file of a case, each with its origin."""
    return bench_rows.append(RESULTS, case, rows, origin)


def read(case: str) -> Rows:
    """Return all rows of a case, oldest first; quick rows are for trying out and are left out."""
    return bench_rows.read(RESULTS, case)


def latest(case: str, *, device: str | None = None) -> Rows:
    """Return the newest row of each provider and parameters, of one kind of device or of all."""
    return [row for row in bench_rows.latest(read(case)) if device is None or row.get("device") == device]
