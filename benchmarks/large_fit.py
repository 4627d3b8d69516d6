"""A fit of a store that is never in memory: `python -m benchmarks.large_fit [--nodes 1e6] [--features 512] [--quick]`.

A block model is streamed into a store, and `pamc fit` trains on it for a few epochs in a process of its own, whose
anonymous memory is watched: pages of the store's files are the system's to give back.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.ingest import watched
from benchmarks.rows import append, stamp
from pamc.bench.rows import Row

__all__ = ["main", "measure"]


def main() -> None:
    """Measure, print and append the row."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--nodes", type=float, default=1e6)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--memory", default="1.5GB")
    parser.add_argument("--folder", type=Path, help="where the store goes; the system's temporary folder without")
    parser.add_argument("--quick", action="store_true", help="the row is marked and never shown in tables")
    arguments = parser.parse_args()
    origin = stamp(quick=arguments.quick, device="cpu")
    sizes = {"n_nodes": int(arguments.nodes), "n_features": arguments.features, "n_clusters": arguments.clusters}
    row = measure(sizes, n_epochs=arguments.epochs, memory=arguments.memory, folder=arguments.folder)
    append("large-fit", [row], origin)
    print(json.dumps(row["parameters"]), json.dumps(row["values"]))


def measure(sizes: dict[str, int], *, n_epochs: int, memory: str, folder: Path | None = None) -> Row:
    """Return the row of one fit."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        store, run = Path(place, "store"), Path(place, "run")
        named = [part for name, size in sizes.items() for part in (f"--{name.replace('_', '-')}", str(size))]
        subprocess.run([sys.executable, "-m", "pamc", "synthesize", *named, "--out", str(store), "--quiet"], check=True)
        command = [sys.executable, "-m", "pamc", "fit", str(store), "--n-clusters", str(sizes["n_clusters"])]
        command += ["--epochs", str(n_epochs), "--memory", memory, "--device", "cpu", "--out", str(run)]
        values, said = watched([*command, "--quiet", "--json"], Path(place, "said"))
        found, record = json.loads(said), json.loads((run / "run.json").read_text(encoding="utf-8"))
        phases: dict[str, Any] = found["seconds"]
        values |= {
            "phases": phases,
            "epoch_s": phases["training"] / n_epochs,
            "whole_fit_s": values["seconds"] + (200 - n_epochs) * phases["training"] / n_epochs,
            "planned_bytes": record["facts"]["planned_bytes"],
            "nmi": found["metrics"]["nmi"],
            "acc": found["metrics"]["acc"],
        }
    return {"provider": "pamc fit", "parameters": {**sizes, "n_epochs": n_epochs, "memory": memory}, "values": values}


if __name__ == "__main__":
    main()
