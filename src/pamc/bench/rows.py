"""Rows of measurements: one JSON object per line, one file per case, appended and never edited."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from pamc.runtime import environment

__all__ = ["Row", "append", "latest", "read", "stamp"]

Row: TypeAlias = dict[str, Any]


def stamp(*, quick: bool, device: str | None = None) -> dict[str, Any]:
    """Return what a row says of its origin: date, device, machine, versions, commit. Take it before measuring."""
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    return {"date": date, "device": device, "quick": quick, "environment": environment()}


def append(folder: Path, case: str, rows: Sequence[Row], origin: dict[str, Any]) -> Path:
    """Append rows to the file of a case in a folder, each with its origin."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{case}.jsonl"
    with path.open("a", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps({"case": case, **row, **origin}, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def read(folder: Path, case: str, *, quick: bool = False) -> list[Row]:
    """Return the rows of a case, oldest first: either those of quick runs, which are for trying out, or the others."""
    path = folder / f"{case}.jsonl"
    if not path.is_file():
        return []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if bool(row["quick"]) is quick]


def latest(rows: Sequence[Row]) -> list[Row]:
    """Return the newest row of each provider, parameters and kind of device, in the order they were first measured.

    Examples
    --------
    >>> old = {"provider": "torch", "parameters": {}, "device": "cpu", "values": {"seconds": 2.0}}
    >>> latest([old, {**old, "values": {"seconds": 1.0}}])[0]["values"]
    {'seconds': 1.0}
    """
    newest = {(row["provider"], json.dumps(row["parameters"], sort_keys=True), row.get("device")): row for row in rows}
    return list(newest.values())
