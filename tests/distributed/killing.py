"""Runs of the command that are killed at random moments and go on, for tests and measurements."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.distributed.torchrun import ROOT, command, environment

# Enough epochs that a run lasts for some seconds, and a model so small that they are quick.
SETTINGS = [
    "--set", "hidden=[32]", "--set", "pretrain_epochs=3", "--set", "n_init=2", "--device", "cpu", "--quiet", "--json",
]  # fmt: skip


def fit_arguments(folder, *, epochs, name, every=5):
    rows, edges = Path(folder) / "rows.npy", Path(folder) / "edges.csv"
    out = Path(folder) / name
    where = [rows, "--edges", edges, "--out", out]
    return ["fit", *where, "-k", 4, "--epochs", epochs, "--checkpoint-every", every, *SETTINGS]


def write_data(folder, *, n_nodes=600):
    import numpy as np

    from pamc.data.synthetic import block_model

    graph = block_model(n_nodes, 4, n_features=10, feature_noise=0.6, random_state=1)
    np.save(Path(folder) / "rows.npy", graph.features)
    np.savetxt(Path(folder) / "edges.csv", graph.edges.T, fmt="%d", delimiter=",", header="source,target", comments="")


def begin(arguments, *, n_processes=1, max_restarts=0, slow_writer=False):
    """Start a run in a process group of its own; a slow writer takes its time over every checkpoint."""
    module = "tests.distributed.slow_writer" if slow_writer else "pamc"
    if n_processes == 1:
        line = [sys.executable, "-m", module, *map(str, arguments)]
    else:
        line = command(module, *arguments, n_processes=n_processes, max_restarts=max_restarts)
    return subprocess.Popen(
        line,
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def children(pid):
    """Return the processes that a process has started, and those that these have."""
    own = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return own + [grandchild for child in own for grandchild in children(child)]


def worker(pid, rank):
    """Return the process of a rank under a torchrun, None where it is not there."""
    for child in children(pid):
        try:
            named = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"RANK={rank}".encode() in named:
            return child
    return None


def wait_for(condition, process, seconds=60.0):
    """Wait until something holds; return whether it did before the process ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        if process.poll() is not None:
            return condition()
        time.sleep(0.005)
    raise TimeoutError(f"nothing happened for {seconds} s")


def kill_all(process):
    """End a run of ours and all its processes, at once."""
    for pid in [*children(process.pid), process.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.communicate()


def kill_moment(partial, process, rng: random.Random, *, while_writing):
    """Wait for a moment to kill at: while a checkpoint is being written, or a random time after the start is kept."""
    kept = Path(partial) / "checkpoints"
    if while_writing:
        return wait_for(lambda: any(kept.glob("*.writing")), process)
    alive = wait_for(lambda: (kept / "start.safetensors").is_file(), process)
    time.sleep(rng.uniform(0.0, 1.0))
    return alive and process.poll() is None
