"""Data that are never in memory as a whole: ingest of edges beside sort, and a fit of a store.

Both run the command in a process of its own, whose anonymous memory is watched: pages of files are the system's to give
back.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb

from pamc.lab.cell import Cell, Scope, register_case

__all__ = ["anonymous_bytes", "ingest", "large_fit", "make_files", "watched"]

_PAMC = (sys.executable, "-m", "pamc")

_MEMORY = {"pamc ingest": "2GB", "sort | uniq": "1G"}
_EDGES = {"n_nodes": 2_000_000, "n_edges": 50_000_000, "ids": "strings"}
_QUICK_EDGES = {"n_nodes": 200, "n_edges": 1_000, "ids": "strings"}
_WATCH_EVERY_S = 0.02

_BLOCKS = {"n_nodes": 1_000_000, "n_features": 512, "n_clusters": 10, "n_epochs": 5, "memory": "1.5GB"}
_QUICK_BLOCKS = {**_BLOCKS, "n_nodes": 60_000, "n_features": 8, "n_clusters": 3, "n_epochs": 2}
_N_EPOCHS = 200


def ingest_cells(scope: Scope) -> list[Cell]:
    """Return a cell of the ingest and one of the sort."""
    sizes = _QUICK_EDGES if scope.quick else _EDGES
    return [
        Cell("ingest", "ingest", provider, parameters={**sizes, "memory": memory}, quick=scope.quick)
        for provider, memory in _MEMORY.items()
    ]


@register_case("ingest", "ingest of edges between string ids, beside sort", cells=ingest_cells, in_all=False)
def ingest(cell: Cell, device: str) -> dict[str, Any]:
    """Return time and memory of `pamc ingest`, or of sort and uniq, which find repeated lines and nothing more."""
    n_edges, memory = cell.parameters["n_edges"], cell.parameters["memory"]
    place = _files(cell.parameters["n_nodes"], n_edges)
    rows, edges, store, printed = (Path(place.name, name) for name in ("rows.csv", "edges.csv", "store", "printed"))
    if cell.provider == "pamc ingest":
        command = [*_PAMC, "ingest", str(rows), str(edges), "--id", "id", "--out", str(store)]
        values, text = watched([*command, "--memory", memory, "--quiet", "--json"], printed)
        found = json.loads(text)
        values |= {"n_stored": found["n_stored"], "store_bytes": found["bytes"]}
        shutil.rmtree(store)
    else:
        sort = f"sort -S {memory} --parallel=2 -T {place.name} {edges} | uniq | wc -l"
        values, text = watched(["sh", "-c", sort], printed, {"LC_ALL": "C"})
        values |= {"n_lines": int(text)}
    rate = n_edges / values["seconds"]
    return {**values, "edges_per_s": rate, "edge_file_bytes": edges.stat().st_size}


@lru_cache(maxsize=1)
def _files(n_nodes: int, n_edges: int) -> tempfile.TemporaryDirectory[str]:
    """Return a folder with the files that both providers read; it is removed when the process ends."""
    place = tempfile.TemporaryDirectory()
    make_files(Path(place.name), n_nodes, n_edges)
    return place


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
            time.sleep(_WATCH_EVERY_S)
    seconds = time.perf_counter() - started
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
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


def large_fit_cells(scope: Scope) -> list[Cell]:
    """Return the one cell."""
    parameters = _QUICK_BLOCKS if scope.quick else _BLOCKS
    return [Cell("large-fit", "large-fit", "pamc fit", parameters=parameters, quick=scope.quick)]


@register_case("large-fit", "a fit of a store that is never in memory", cells=large_fit_cells, in_all=False)
def large_fit(cell: Cell, device: str) -> dict[str, Any]:
    """Stream a block model into a store, and return time and memory of a few epochs of `pamc fit` on it."""
    sizes, n_epochs = cell.parameters, cell.parameters["n_epochs"]
    with tempfile.TemporaryDirectory() as place:
        store, run = Path(place, "store"), Path(place, "run")
        shape = [f"--{name.replace('_', '-')}={sizes[name]}" for name in ("n_nodes", "n_features", "n_clusters")]
        subprocess.run([*_PAMC, "synthesize", *shape, "--out", str(store)], check=True, capture_output=True)
        command = [*_PAMC, "fit", str(store), "--n-clusters", str(sizes["n_clusters"]), "--epochs", str(n_epochs)]
        command += ["--memory", sizes["memory"], "--device", "cpu", "--out", str(run), "--quiet", "--json"]
        values, text = watched(command, Path(place, "printed"))
        found, record = json.loads(text), json.loads((run / "run.json").read_text(encoding="utf-8"))
    phases: dict[str, Any] = found["seconds"]
    epoch_s = phases["training"] / n_epochs
    return {
        **values,
        "phases": phases,
        "epoch_s": epoch_s,
        "whole_fit_s": values["seconds"] + (_N_EPOCHS - n_epochs) * epoch_s,
        "planned_bytes": record["facts"]["planned_bytes"],
        "nmi": found["metrics"]["nmi"],
        "acc": found["metrics"]["acc"],
    }
