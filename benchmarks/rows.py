"""Result rows: one JSON object per line, one file per case, appended and never edited."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pamc.runtime import environment

__all__ = ["RESULTS", "Rows", "append", "latest", "read", "stamp"]

RESULTS = Path(__file__).parent / "results"

Rows = list[dict[str, Any]]


def stamp(*, quick: bool) -> dict[str, Any]:
    """Return what a row says of its origin: date, machine, versions, commit. Take it before measuring."""
    return {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "quick": quick, "environment": environment()}


def append(case: str, rows: list[dict[str, Any]], origin: dict[str, Any]) -> Path:
    """Append rows to the file of a case, each with its origin."""
    path = RESULTS / f"{case}.jsonl"
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps({"case": case, **row, **origin}, allow_nan=False) + "\n")
    return path


def read(case: str) -> list[dict[str, Any]]:
    """Return all rows of a case, oldest first; quick rows are for trying out and are left out."""
    path = RESULTS / f"{case}.jsonl"
    if not path.is_file():
        return []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if not row["quick"]]


def latest(case: str) -> list[dict[str, Any]]:
    """Return the newest row of each provider and parameters, in the order they were first measured."""
    newest = {(row["provider"], json.dumps(row["parameters"], sort_keys=True)): row for row in read(case)}
    return list(newest.values())
