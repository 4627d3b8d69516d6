"""Runs that are killed again and again and go on: `python -m benchmarks.crashes`, from the root of the checkout.

Processes are killed by SIGKILL at random moments after the start is kept, in the middle of writing a checkpoint, one of
two under torchrun, or all at once. Whenever a run comes to its end, its labels are compared with those of one that was
left alone, and the next run begins. A row goes to results/crashes.jsonl.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

from benchmarks.rows import append, stamp
from tests.distributed.killing import begin, fit_arguments, kill_all, kill_moment, worker, write_data

__all__ = ["crash", "main"]

EPOCHS = 120

# (processes, the rank that is killed or None for all, while a checkpoint is being written)
KINDS = {
    "alone": (1, None, False),
    "alone, while writing": (1, None, True),
    "both of two": (2, None, False),
    "both of two, while writing": (2, None, True),
    "the first of two": (2, 0, False),
    "the second of two": (2, 1, False),
}


def crash(folder: Path, *, n_kills: int, seed: int) -> dict[str, Any]:
    """Return what became of runs that were killed `n_kills` times: how many came to their end, and to which labels."""
    rng = random.Random(seed)
    write_data(folder)
    _finish(begin(_arguments(folder, "whole")))
    expected = _labels(folder / "whole")
    killed: Counter[str] = Counter()
    outcome = {"resumes_failed": 0, "runs_finished": 0, "runs_with_other_labels": 0}
    kinds: list[str] = []
    begun = time.perf_counter()
    while killed.total() < n_kills:
        if not kinds:
            kinds = rng.sample(list(KINDS), len(KINDS))
        kind = kinds.pop()
        n_processes, rank, while_writing = KINDS[kind]
        arguments = [*_arguments(folder, "killed"), "--resume"]
        process = begin(arguments, n_processes=n_processes, max_restarts=1, slow_writer=True)
        if not kill_moment(folder / "killed.partial", process, rng, while_writing=while_writing):
            _finish(process, outcome)
            _compare(folder, expected, outcome)
            kinds.append(kind)
            continue
        killed[kind] += 1
        if rank is None:
            kill_all(process)
            continue
        # Torchrun starts both again, and they go on by themselves.
        if (victim := worker(process.pid, rank)) is not None:
            os.kill(victim, signal.SIGKILL)
        _finish(process, outcome)
        _compare(folder, expected, outcome)
    _finish(begin([*_arguments(folder, "killed"), "--resume"]), outcome)
    _compare(folder, expected, outcome)
    return {"n_kills": killed.total(), "by_kind": dict(killed), **outcome, "seconds": time.perf_counter() - begun}


def _arguments(folder: Path, name: str) -> list[Any]:
    # In float64 the labels of one process and of two are the same beyond doubt.
    return [*fit_arguments(folder, epochs=EPOCHS, name=name), "--set", "precision=float64"]


def _finish(process: Popen[str], outcome: dict[str, int] | None = None) -> None:
    try:
        _, err = process.communicate(timeout=180)
    except TimeoutExpired:
        kill_all(process)
        err = "it did not end"
    if process.returncode == 0:
        return
    if outcome is None:
        raise RuntimeError(err)
    outcome["resumes_failed"] += 1
    print(err)


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


def main() -> None:
    """Kill, print and append a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="mark the row as one for trying out")
    options = parser.parse_args()
    origin = stamp(quick=options.quick, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        values = crash(Path(folder), n_kills=options.kills, seed=options.seed)
    print(values)
    parameters = {"n_kills": options.kills, "n_epochs": EPOCHS, "seed": options.seed}
    append("crashes", [{"provider": "SIGKILL", "parameters": parameters, "values": values}], origin)


if __name__ == "__main__":
    main()
