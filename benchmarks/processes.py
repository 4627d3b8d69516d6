"""Two processes of one thread against one process of two: `python -m benchmarks.processes`.

The same rows, pairs, encoder and steps; runs of both kinds alternate, so that a machine that slows down slows both.
Rows go to results/processes.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.rows import append, stamp
from pamc.config import FitConfig
from pamc.distributed.group import SINGLE_PROCESS, join_group, launched, row_range
from pamc.distributed.step import SharedModel, bytes_per_epoch
from pamc.graph.positives import PairShard, PositivePairs
from pamc.models.layers import MLP
from pamc.models.loader import FeatureLoader, encode_rows
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.runtime import generator
from pamc.training.trainer import train

__all__ = ["main"]

N_CLUSTERS, N_DIMS, HIDDEN = 10, 10, (500, 500, 2000)
CPU = torch.device("cpu")


def problem(n_nodes: int, n_features: int, n_neighbors: int) -> tuple[torch.Tensor, PositivePairs]:
    """Return rows and pairs: what is measured does not depend on what they mean."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(n_nodes, n_features, generator=draw)
    target = torch.randint(n_nodes, (n_nodes * (n_neighbors // 2),), generator=draw)
    source = torch.arange(n_nodes).repeat_interleave(n_neighbors // 2)
    return rows, PositivePairs.from_edges(torch.stack([source, target])[:, source != target], n_nodes=n_nodes)


def worker(options: argparse.Namespace) -> None:
    """Train as one of the processes, and write the seconds of the epochs."""
    group = join_group("cpu") if launched() else SINGLE_PROCESS
    features, pairs = problem(options.n_nodes, options.n_features, options.n_neighbors)
    config = FitConfig(n_clusters=N_CLUSTERS, n_dims=N_DIMS)
    encoder = MLP((options.n_features, *HIDDEN, N_DIMS), generator=generator(0, "weights"))
    first = FeatureLoader(features.numpy()[:N_CLUSTERS], device=CPU, dtype=torch.float32)
    centers = encode_rows(encoder, first)
    own = row_range(options.n_nodes, group.rank, group.size)
    rows = FeatureLoader(features.numpy()[own], device=CPU, dtype=torch.float32)
    model: Any = PamCGCModel(encoder, centers, pairs, config)
    if group.size > 1:
        model = SharedModel(encoder, centers, PairShard.of(pairs, own), config, group=group)
    records = list(
        train(model, rows, n_epochs=options.n_epochs + 1, lr=1e-4, chunk_size=-(-options.chunk_size // group.size))
    )
    if group.rank == 0:
        # The first epoch touches all memory for the first time.
        found = {"seconds": [record.seconds for record in records[1:]], "loss": records[-1].values["loss"]}
        Path(options.result).write_text(json.dumps(found))
    if group is not SINGLE_PROCESS:
        group.leave()
        os._exit(0)


def measured(options: argparse.Namespace, n_processes: int, n_threads: int) -> dict[str, Any]:
    """Return what one run of some processes found."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        sizes = [f"--{name.replace('_', '-')}={getattr(options, name)}" for name in SIZES]
        line = ["-m", "benchmarks.processes", "--worker", f"--result={result}", *sizes]
        if n_processes > 1:
            launcher = ["-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
            line = [*launcher, f"--nproc-per-node={n_processes}", *line]
        environment = {**os.environ, "OMP_NUM_THREADS": str(n_threads)}
        subprocess.run([sys.executable, *line], env=environment, check=True, cwd=Path(__file__).parents[1])
        found: dict[str, Any] = json.loads(result.read_text())
        return found


SIZES = ("n_nodes", "n_features", "n_neighbors", "n_epochs", "chunk_size")


def main() -> None:
    """Measure both kinds in turn, print and append a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n-nodes", type=int, default=60_000)
    parser.add_argument("--n-features", type=int, default=128)
    parser.add_argument("--n-neighbors", type=int, default=28)
    parser.add_argument("--n-epochs", type=int, default=3)
    parser.add_argument("--chunk-size", type=int, default=60_000, help="rows of all processes together")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="mark the row as one for trying out")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options)
        return
    origin = stamp(quick=options.quick, device="cpu")
    # Others at work on the machine slow the threads of one process, which wait for each other, more than two processes.
    load = os.getloadavg()[0]
    seconds: dict[str, list[float]] = {"one": [], "two": []}
    losses = {}
    begun = time.perf_counter()
    for _ in range(options.repeats):
        for name, n_processes, n_threads in (("one", 1, 2), ("two", 2, 1)):
            found = measured(options, n_processes, n_threads)
            seconds[name].append(statistics.median(found["seconds"]))
            losses[name] = found["loss"]
            print(f"{name}: {seconds[name][-1]:.3f} s an epoch, loss {losses[name]:.6f}", flush=True)
    n_weights = sum(
        n_in * n_out + n_out for n_in, n_out in zip((options.n_features, *HIDDEN), (*HIDDEN, N_DIMS), strict=True)
    )
    sent = bytes_per_epoch(options.n_nodes, N_DIMS, N_CLUSTERS, n_weights, n_processes=2)
    one, two = (statistics.median(seconds[name]) for name in ("one", "two"))
    values = {
        "one_process_s": one,
        "two_processes_s": two,
        "throughput": one / two,
        "all_s": seconds,
        "losses": losses,
        "bytes_per_epoch": sent,
        "load_before": load,
        "wall_s": time.perf_counter() - begun,
    }
    parameters = {name: getattr(options, name) for name in SIZES}
    append("processes", [{"provider": "gloo", "parameters": parameters, "values": values}], origin)
    print(
        f"two processes have {one / two:.3f} of the throughput of one; each sends {sent['total'] / 1e6:.1f} MB an epoch"
    )


if __name__ == "__main__":
    main()
