"""Ingest of edges between string ids, beside sort: `python -m benchmarks.ingest [--edges 5e7] [--nodes 2e6] [--quick]`.

Two files are made in a temporary folder: rows with two features, and edges whose ends are names of 13 letters. They are
ingested by the command, in a process of its own whose anonymous memory is watched, and the file of edges is sorted by
`LC_ALL=C sort --parallel=2 | uniq`, which finds repeated lines and nothing more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.rows import append, stamp
from pamc.bench.rows import Row

__all__ = ["main", "measure"]

MEMORY = "2GB"
SORT_MEMORY = "1G"
WATCH_EVERY_S = 0.02


def main() -> None:
    """Measure, print and append the rows."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--nodes", type=float, default=2e6)
    parser.add_argument("--edges", type=float, default=5e7)
    parser.add_argument("--memory", default=MEMORY)
    parser.add_argument("--folder", type=Path, help="where the files go; the system's temporary folder without")
    parser.add_argument("--quick", action="store_true", help="rows are marked and never shown in tables")
    arguments = parser.parse_args()
    origin = stamp(quick=arguments.quick, device="cpu")
    rows = measure(int(arguments.nodes), int(arguments.edges), memory=arguments.memory, folder=arguments.folder)
    append("ingest", rows, origin)
    for row in rows:
        print(row["provider"], json.dumps(row["parameters"]), json.dumps(row["values"]))


def measure(n_nodes: int, n_edges: int, *, memory: str = MEMORY, folder: Path | None = None) -> list[Row]:
    """Return a row of the ingest and one of the sort."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        rows, edges = make_files(Path(place), n_nodes, n_edges)
        parameters = {"n_nodes": n_nodes, "n_edges": n_edges, "ids": "strings", "edge_file_bytes": edges.stat().st_size}
        store = Path(place, "store")
        command = [sys.executable, "-m", "pamc", "ingest", rows, edges, "--id", "id", "--out", store]
        command += ["--memory", memory, "--quiet", "--json"]
        values, said = watched([str(part) for part in command], Path(place, "said"))
        found = json.loads(said)
        values |= {
            "n_stored": found["n_stored"],
            "store_bytes": found["bytes"],
            "edges_per_s": n_edges / values["seconds"],
        }
        shutil.rmtree(store)
        listed = [{"provider": "pamc ingest", "parameters": {**parameters, "memory": memory}, "values": values}]
        sort = f"sort -S {SORT_MEMORY} --parallel=2 -T {place} {edges} | uniq | wc -l"
        values, said = watched(["sh", "-c", sort], Path(place, "said"), {"LC_ALL": "C"})
        values |= {"n_lines": int(said), "edges_per_s": n_edges / values["seconds"]}
        listed.append(
            {"provider": "sort | uniq", "parameters": {**parameters, "memory": SORT_MEMORY}, "values": values}
        )
    return listed


def make_files(folder: Path, n_nodes: int, n_edges: int) -> tuple[Path, Path]:
    """Write rows.csv and edges.csv with random edges, and return their paths."""
    rows, edges = folder / "rows.csv", folder / "edges.csv"
    name = "'user-' || lpad(({})::VARCHAR, 8, '0')"
    # A prime that divides no round number of nodes: names are in another order than in the alphabet.
    shuffled = name.format(f"i * 7919 % {n_nodes}")
    end = name.format(f"floor(random() * {n_nodes})::BIGINT")
    with duckdb.connect(config={"threads": 2, "memory_limit": "1GB", "temp_directory": str(folder)}) as connection:
        connection.execute("SET preserve_insertion_order = false")
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            f"COPY (SELECT {shuffled} AS id, random()::FLOAT AS f0, random()::FLOAT AS f1 FROM range({n_nodes}) t(i)) "
            f"TO '{rows}' (HEADER)"
        )
        connection.execute(
            f"COPY (SELECT {end} AS source, {end} AS target FROM range({n_edges}) t(i)) TO '{edges}' (HEADER)"
        )
    return rows, edges


def watched(command: list[str], output: Path, environment: dict[str, str] | None = None) -> tuple[dict[str, Any], str]:
    """Run a command and return its time and the most anonymous memory of all its processes, and what it printed."""
    started, peak = time.perf_counter(), 0
    with output.open("w") as file:
        process = subprocess.Popen(command, stdout=file, env={**os.environ, **(environment or {})})
        while process.poll() is None:
            peak = max(peak, anonymous_bytes(process.pid))
            time.sleep(WATCH_EVERY_S)
    seconds = time.perf_counter() - started
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} ended with code {process.returncode}")
    return {"seconds": seconds, "peak_anonymous_bytes": peak}, output.read_text()


def anonymous_bytes(pid: int) -> int:
    """Return the anonymous memory of a process and its children, 0 for one that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    own = next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon")), 0)
    return own + sum(anonymous_bytes(int(child)) for child in children)


if __name__ == "__main__":
    main()
