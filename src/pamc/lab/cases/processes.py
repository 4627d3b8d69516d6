"""Several processes: two processes of one thread compared with one of two threads, and runs that resume after kills.

SIGKILL hits at random moments after the initialization is saved or in the middle of writing a checkpoint, one of two
processes under torchrun or all of them. When a run finishes, its labels are compared with those of an undisturbed run,
and the next run begins.
"""

from __future__ import annotations

import json
import os
import random
import runpy
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from pamc.config import FitConfig
from pamc.data.synthetic import block_model
from pamc.distributed.group import join_group, launched
from pamc.distributed.scatter import bytes_per_epoch
from pamc.graph.positives import PairShard
from pamc.lab.cell import Cell, register_case
from pamc.lab.providers import normal, random_pairs
from pamc.lab.settings import bench_cells
from pamc.models.layers import MLP
from pamc.models.loader import FeatureLoader, encode_rows
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.ops.group import SINGLE_PROCESS, SingleProcess, row_range
from pamc.runtime import generator
from pamc.training import checkpoint
from pamc.training.trainer import train

_MODULE = "pamc.lab.cases.processes"
_TORCHRUN = ("-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")

N_CLUSTERS, N_DIMS, HIDDEN = 10, 10, (500, 500, 2000)
CPU = torch.device("cpu")

# Sizes of the training problem; the chunk size is the sum over all processes.
_SIZES = {"n_nodes": 60_000, "n_features": 128, "n_neighbors": 28, "n_epochs": 3, "chunk_size": 60_000}
_QUICK_SIZES = {"n_nodes": 200, "n_features": 8, "n_neighbors": 4, "n_epochs": 2, "chunk_size": 100}
_N_REPEATS = 3

# A model so small that a run of many epochs, all of which are run, takes a few seconds.
SETTINGS = (
    "--set", "hidden=[32]", "--set", "pretrain_epochs=3", "--set", "n_init=2", "--set", "tol=0", "--device", "cpu",
    "--quiet", "--json",
)  # fmt: skip
_KILLS = {"n_kills": 20, "n_epochs": 120}

# Pause of a slow writer in the middle of a checkpoint, in seconds.
_PAUSE_S = 0.15

# Number of processes, killed rank (None for all), and whether the kill hits while a checkpoint is written.
KINDS = {
    "alone": (1, None, False),
    "alone, while writing": (1, None, True),
    "both of two": (2, None, False),
    "both of two, while writing": (2, None, True),
    "the first of two": (2, 0, False),
    "the second of two": (2, 1, False),
}


def _train(options: dict[str, Any]) -> None:
    """Train in one of the processes and write the times of the epochs."""
    group = join_group("cpu") if launched() else SINGLE_PROCESS
    n_nodes = options["n_nodes"]
    features, pairs = normal(n_nodes, options["n_features"]), random_pairs(n_nodes, n_nodes * options["n_neighbors"])
    config = FitConfig(n_clusters=N_CLUSTERS, n_dims=N_DIMS, alpha=1.0)
    encoder = MLP((options["n_features"], *HIDDEN, N_DIMS), generator=generator(0, "weights"))
    centers = encode_rows(encoder, FeatureLoader(features.numpy()[:N_CLUSTERS], device=CPU, dtype=torch.float32))
    shard = row_range(n_nodes, group.rank, group.size)
    rows = FeatureLoader(features.numpy()[shard], device=CPU, dtype=torch.float32)
    local_pairs = pairs if group.size == 1 else PairShard.of(pairs, shard)
    model = PamCGCModel(encoder, centers, local_pairs, config, group=group)
    chunk_size = -(-options["chunk_size"] // group.size)
    records = list(train(model, rows, n_epochs=options["n_epochs"] + 1, lr=1e-4, chunk_size=chunk_size))
    if group.rank == 0:
        # The first epoch includes the first access to all memory.
        result = {"seconds": [record.seconds for record in records[1:]], "loss": records[-1].values["loss"]}
        Path(options["result"]).write_text(json.dumps(result))
    if not isinstance(group, SingleProcess):
        group.leave()
        os._exit(0)


def _trained(sizes: dict[str, Any], n_processes: int, n_threads: int) -> dict[str, Any]:
    """Return the epoch times and the loss of one training run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "result.json")
        line = [_MODULE, "train", json.dumps({**sizes, "result": str(path)})]
        environment = {**os.environ, "OMP_NUM_THREADS": str(n_threads)}
        subprocess.run(_command(line, n_processes=n_processes), env=environment, check=True)
        result: dict[str, Any] = json.loads(path.read_text())
        return result


def _command(line: Sequence[object], *, n_processes: int, max_restarts: int = 0) -> list[str]:
    """Return the command line of a module with its arguments, under torchrun if there are several processes."""
    launcher = [*_TORCHRUN, f"--nproc-per-node={n_processes}", f"--max-restarts={max_restarts}"]
    return [sys.executable, *(launcher if n_processes > 1 else []), "-m", *map(str, line)]


@register_case(
    "processes",
    "two processes of one thread compared with one process of two threads",
    cells=lambda scope: bench_cells(scope, "processes", [("gloo", _QUICK_SIZES if scope.quick else _SIZES)]),
    in_all=False,
)
def processes(cell: Cell, device: str) -> dict[str, Any]:
    """Return the epoch times of one process and of two, measured in alternation, and the traffic between them.

    Both use the same rows, pairs, encoder and steps.
    """
    sizes = dict(cell.parameters)
    # Other load slows down the threads of one process, which wait for each other, more than two processes.
    load = os.getloadavg()[0]
    seconds: dict[str, list[float]] = {"one": [], "two": []}
    losses = {}
    started = time.perf_counter()
    for _ in range(1 if cell.quick else _N_REPEATS):
        for name, n_processes, n_threads in (("one", 1, 2), ("two", 2, 1)):
            result = _trained(sizes, n_processes, n_threads)
            seconds[name].append(statistics.median(result["seconds"]))
            losses[name] = result["loss"]
    n_weights = sum(n_in * n_out + n_out for n_in, n_out in pairwise((sizes["n_features"], *HIDDEN, N_DIMS)))
    one, two = (statistics.median(values) for values in seconds.values())
    return {
        "one_process_s": one,
        "two_processes_s": two,
        "throughput": one / two,
        "all_s": seconds,
        "losses": losses,
        "bytes_per_epoch": bytes_per_epoch(sizes["n_nodes"], N_DIMS, N_CLUSTERS, n_weights, n_processes=2),
        "load_before": load,
        "wall_s": time.perf_counter() - started,
    }


@register_case(
    "crashes",
    "runs that are killed and resumed: failures and changed labels",
    cells=lambda scope: bench_cells(
        scope, "crashes", [("SIGKILL", {**_KILLS, "n_kills": 1} if scope.quick else _KILLS)]
    ),
    in_all=False,
)
def crashes(cell: Cell, device: str) -> dict[str, Any]:
    """Return the outcome of runs that were killed."""
    with tempfile.TemporaryDirectory() as folder:
        return crash(Path(folder), n_kills=cell.parameters["n_kills"], seed=cell.seed)


def crash(folder: Path, *, n_kills: int, seed: int) -> dict[str, Any]:
    """Return how many runs finished, failed to resume or found other labels, over `n_kills` kills."""
    rng = random.Random(seed)
    write_data(folder)
    # In float64, one process and two find the same labels.
    whole, resumed = (
        [*fit_arguments(folder, epochs=_KILLS["n_epochs"], name=name), "--set", "precision=float64"]
        for name in ("whole", "killed")
    )
    _finish(begin(whole))
    expected = _labels(folder / "whole")
    killed: Counter[str] = Counter()
    outcome = {"resumes_failed": 0, "runs_finished": 0, "runs_with_other_labels": 0}
    arguments, kinds = [*resumed, "--resume"], rng.sample(list(KINDS), len(KINDS))
    started = time.perf_counter()
    while killed.total() < n_kills:
        kind = kinds[killed.total() % len(kinds)]
        n_processes, rank, while_writing = KINDS[kind]
        process = begin(arguments, n_processes=n_processes, max_restarts=1, slow_writer=True)
        if kill_moment(folder / "killed.partial", process, rng, while_writing=while_writing):
            killed[kind] += 1
            if rank is None:
                kill_all(process)
                continue
            # Torchrun restarts both processes, which resume by themselves.
            if (victim := worker_of(process.pid, rank)) is not None:
                os.kill(victim, signal.SIGKILL)
        _finish(process, outcome)
        _compare(folder, expected, outcome)
    _finish(begin(arguments), outcome)
    _compare(folder, expected, outcome)
    return {"n_kills": killed.total(), "by_kind": dict(killed), **outcome, "seconds": time.perf_counter() - started}


def _finish(process: Popen[str], outcome: dict[str, int] | None = None) -> None:
    try:
        _, err = process.communicate(timeout=180)
    except TimeoutExpired:
        kill_all(process)
        err = "the run did not end"
    if process.returncode == 0:
        return
    if outcome is None:
        raise RuntimeError(err)
    outcome["resumes_failed"] += 1
    warnings.warn(err, RuntimeWarning, stacklevel=2)


def _compare(folder: Path, expected: list[str], outcome: dict[str, int]) -> None:
    run = folder / "killed"
    if not run.is_dir():
        return
    outcome["runs_finished"] += 1
    outcome["runs_with_other_labels"] += _labels(run) != expected
    shutil.rmtree(run)


def _labels(run: Path) -> list[str]:
    lines = (run / "labels.csv").read_text(encoding="utf-8").splitlines()
    return [",".join(line.split(",")[:2]) for line in lines]


def fit_arguments(folder: Path, *, epochs: int, name: str, every: int = 5) -> list[Any]:
    """Return the arguments of a fit to the data of :func:`write_data` with checkpoints."""
    where = [folder / "rows.npy", "--edges", folder / "edges.csv", "--out", folder / name]
    return ["fit", *where, "-k", 4, "--epochs", epochs, "--checkpoint-every", every, *SETTINGS]


def write_data(folder: Path, *, n_nodes: int = 600) -> None:
    """Write the rows and edges of a small block model."""
    graph = block_model(n_nodes, 4, n_features=10, feature_noise=0.6, random_state=1)
    np.save(folder / "rows.npy", graph.features)
    edges: Any = graph.edges
    np.savetxt(folder / "edges.csv", edges.T, fmt="%d", delimiter=",", header="source,target", comments="")


def begin(
    arguments: Sequence[object], *, n_processes: int = 1, max_restarts: int = 0, slow_writer: bool = False
) -> Popen[str]:
    """Start a run in its own process group; a slow writer pauses in the middle of every checkpoint."""
    module = [_MODULE, "slow-writer"] if slow_writer else ["pamc"]
    return Popen(
        _command([*module, *arguments], n_processes=n_processes, max_restarts=max_restarts),
        env={**_outside_torchrun(), "OMP_NUM_THREADS": "1", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _outside_torchrun() -> dict[str, str]:
    """Return the environment without the variables of torchrun and of pamc."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    prefixes = ("TORCHELASTIC", "PAMC_", *names)
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


def _children(pid: int) -> list[int]:
    """Return all descendants of a process."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [grandchild for child in children for grandchild in _children(child)]


def worker_of(pid: int, rank: int) -> int | None:
    """Return the process of a rank under torchrun, or None."""
    for child in _children(pid):
        with suppress(OSError):
            if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                return child
    return None


def wait_for(condition: Callable[[], bool], process: Popen[str], seconds: float = 60.0) -> bool:
    """Wait for a condition, and return whether it was met before the process ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        if process.poll() is not None:
            return condition()
        time.sleep(0.005)
    raise TimeoutError(f"nothing happened for {seconds} s")


def kill_all(process: Popen[str]) -> None:
    """Kill a run and all its processes."""
    for pid in [*_children(process.pid), process.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def kill_moment(partial: Path, process: Popen[str], rng: random.Random, *, while_writing: bool) -> bool:
    """Wait for the moment of a kill: while a checkpoint is written, or a random time after the initialization."""
    checkpoints = partial / "checkpoints"
    if while_writing:
        return wait_for(lambda: any(checkpoints.glob("*.writing")), process)
    alive = wait_for(lambda: (checkpoints / "start.safetensors").is_file(), process)
    time.sleep(rng.uniform(0.0, 1.0))
    return alive and process.poll() is None


def _save_slowly(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write half of a checkpoint, pause, and write the other half."""
    content = save(tensors, metadata=metadata)
    half = len(content) // 2
    with Path(path).open("wb") as file:
        file.write(content[:half])
        file.flush()
        time.sleep(_PAUSE_S)
        file.write(content[half:])


if __name__ == "__main__":
    _, what, *_rest = sys.argv
    if what == "train":
        _train(json.loads(_rest[0]))
    else:
        setattr(checkpoint, "save_file", _save_slowly)  # noqa: B010
        sys.argv = ["pamc", *_rest]
        runpy.run_module("pamc", run_name="__main__")
