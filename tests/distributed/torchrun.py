"""Real processes: torchrun on free ports of this machine, one thread each."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def command(*arguments, n_processes, max_restarts=0):
    """Return a torchrun command line; the rendezvous takes a free port."""
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
        f"--nproc-per-node={n_processes}",
        f"--max-restarts={max_restarts}",
        "-m",
        *(str(argument) for argument in arguments),
    ]


def environment(**changes):
    """Return the environment of a child: one thread, this checkout, no torchrun around it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC", "PAMC_"))}
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        kept.pop(name, None)
    return {**kept, "OMP_NUM_THREADS": "1", "COLUMNS": "120", **changes}


def torchrun(*arguments, n_processes, max_restarts=0, timeout=120, **changes):
    """Run processes to their end and return the finished torchrun."""
    return subprocess.run(
        command(*arguments, n_processes=n_processes, max_restarts=max_restarts),
        cwd=ROOT,
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
