"""Convert rows of earlier schemas to the current one: `python -m pamc.lab.migrate [FOLDER …]`.

There were two earlier schemas. Rows of experiments had `key`, `experiment`, `method` and `options`. Rows of `pamc
bench` had the data set and the seed among their parameters, and no `error` unless one occurred. Both used other names
for some settings. Migration keeps every row, its position and its values.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pamc.lab.cell import Row
from pamc.lab.rows import FIELDS, RESULTS

# Renamed settings, phases and facts, by the field of a row in which they are keys.
_SETTINGS = {"preparation": "preprocessing", "start": "init"}
_PHASES = {"preparation": "preprocessing"}
_FACTS = {"preparation": "preprocessing", "evidence": "inputs", "remedy": "fallback", "start_kept": "init_kept"}
_RENAMED = {"settings": _SETTINGS, "config": _SETTINGS, "seconds": _PHASES, "phases": _PHASES, "facts": _FACTS}

# Measured values that some cases stored as parameters; now equal cells have equal parameters.
_MEASURED = {"choose_k": ("n_nodes", "n_candidates"), "confidence": ("n_nodes",), "ingest": ("edge_file_bytes",)}


def migrated(old: Row) -> Row:
    """Convert a row of any earlier schema to the current one; a current row is returned unchanged."""
    if old.keys() >= set(FIELDS):
        return old
    row = _of_experiment(old) if "experiment" in old else _of_bench(old)
    row["settings"] = _renamed("settings", row["settings"])
    row["values"] = {name: _renamed(name, value) for name, value in row["values"].items()}
    if row["case"] == "choose_k":
        row["values"] = {"inputs" if name == "evidence" else name: value for name, value in row["values"].items()}
    return {name: row[name] for name in FIELDS}


def _of_experiment(old: Row) -> Row:
    return {**old, "case": old["experiment"], "provider": old["method"], "parameters": old["options"]}


def _of_bench(old: Row) -> Row:
    parameters = dict(old["parameters"])
    data_set, seed = parameters.pop("data_set", parameters.pop("data", "")), parameters.pop("seed", 0)
    # Cases without a device ran on the CPU, or had the device among their parameters.
    device = parameters.pop("device", "cpu")
    moved = {name: parameters.pop(name) for name in _MEASURED.get(old["case"], ()) if name in parameters}
    more = {"data_set": data_set, "seed": seed, "settings": {}, "parameters": parameters, "error": old.get("error")}
    task = "whole-fit" if old["case"] == "fit" else old["case"]
    return {"task": task, **old, **more, "device": old.get("device") or device, "values": {**old["values"], **moved}}


def _renamed(field: str, value: Any) -> Any:
    if field not in _RENAMED or not isinstance(value, dict):
        return value
    return {_RENAMED[field].get(name, name): inner for name, inner in value.items()}


def migrate_file(path: Path) -> tuple[int, int]:
    """Rewrite a file of rows in place; return the number of rows and the number of converted rows."""
    old = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    new = [migrated(row) for row in old]
    n_changed = sum(a is not b for a, b in zip(old, new, strict=True))
    if n_changed:
        text = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in new)
        path.write_text(text, encoding="utf-8")
    return len(new), n_changed


if __name__ == "__main__":
    for folder in [Path(name) for name in sys.argv[1:]] or [RESULTS]:
        for path in sorted(folder.rglob("*.jsonl")):
            sys.stdout.write("{}: {} rows, {} of an earlier schema\n".format(path, *migrate_file(path)))
