"""Time and peak memory of a function, measured fairly on a shared machine."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["fitted_exponent", "in_subprocess", "interleaved_seconds", "peak_bytes"]


def interleaved_seconds(functions: dict[str, Callable[[], object]], *, repeats: int) -> dict[str, list[float]]:
    """Return the times of each function, called in turn, so that what slows the machine slows all of them."""
    for function in functions.values():
        function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            started = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def peak_bytes(function: Callable[[], object]) -> int:
    """Return the most resident memory that a call adds to the process.

    Right only in a process started by :func:`in_subprocess`, where freed blocks go back to the system at once; Linux.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    function()
    return max(0, _status("VmHWM") - before)


def in_subprocess(module: str, **arguments: Any) -> dict[str, Any]:
    """Return what `python -m module ARGUMENTS-AS-JSON` prints as JSON, run in a fresh process."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, "-m", module, json.dumps(arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{module} {arguments}: {done.stderr.strip()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def fitted_exponent(sizes: list[float], values: list[float]) -> float:
    """Return b of the least-squares fit values = a · sizes^b."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def median(values: list[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")
