"""Diagnosis of a process group: its processes, the correctness of its collectives, latency and bandwidth."""

from __future__ import annotations

import json
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pamc.errors import BackendError
from pamc.ops.group import ProcessGroup

# Size of the message in which a process describes itself, and number of sums whose median time is taken.
_MESSAGE_BYTES = 512

_N_SMALL = 50
_N_LARGE = 5


def probe_group(group: ProcessGroup, device: torch.device, *, n_bytes: int = 1 << 24) -> dict[str, Any]:
    """Check the collectives of a process group, and return its processes, latency and bandwidth.

    All processes must call it. They get the same result, except for the measured times.

    Parameters
    ----------
    device
        Device of this process.
    n_bytes
        Size of the tensor that is summed to measure the bandwidth.

    Returns
    -------
    dict
        `processes`: rank, host, device and backend of each process. `latency_s`: median time to sum one number.
        `bandwidth_bytes_per_s`: bytes that each process sends per second while summing large tensors; None for one
        process.
    """
    backend = "none" if group.size == 1 else ("nccl" if device.type == "cuda" else "gloo")
    process = {"rank": group.rank, "host": socket.gethostname(), "device": str(device), "backend": backend}
    processes = [json.loads(text) for text in _gathered_texts(group, json.dumps(process), device)]
    _check_collectives(group, device)
    small = torch.ones(1, device=device)
    large = torch.ones(n_bytes // 4, device=device)
    latency = _median_seconds(lambda: group.sum(small), device, _N_SMALL)
    seconds = _median_seconds(lambda: group.sum(large), device, _N_LARGE)
    sent = 2 * (group.size - 1) * n_bytes / group.size
    return {
        "n_processes": group.size,
        "processes": processes,
        "sums": "right",
        "latency_s": latency,
        "bandwidth_bytes_per_s": sent / seconds if group.size > 1 else None,
    }


def _gathered_texts(group: ProcessGroup, text: str, device: torch.device) -> list[str]:
    """Return the texts of all processes, each cut to the size of a message."""
    message = text.encode()[:_MESSAGE_BYTES].ljust(_MESSAGE_BYTES)
    row = torch.tensor(list(message), dtype=torch.uint8, device=device)[None]
    return [bytes(text.tolist()).decode().strip() for text in group.gather_rows(row, group.size).cpu()]


def _check_collectives(group: ProcessGroup, device: torch.device) -> None:
    """Raise a BackendError if a sum or a gather of known numbers gives a wrong result."""
    numbers = torch.arange(1001, dtype=torch.float64, device=device)
    summed = group.sum(numbers * (group.rank + 1))
    gathered = group.gather_rows(numbers[None] + group.rank, group.size)
    ranks = torch.arange(group.size, dtype=torch.float64, device=device)
    right = torch.equal(summed, numbers * (ranks + 1).sum()) and torch.equal(gathered, numbers + ranks[:, None])
    if not right:
        raise BackendError(
            f"process {group.rank} of {group.size} got a wrong sum from the others: the network or the communication "
            "library is faulty; try another backend (--device cpu), or fewer machines"
        )


def _median_seconds(call: Callable[[], Tensor], device: torch.device, n_calls: int) -> float:
    def timed() -> float:
        started = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    timed()
    return statistics.median(timed() for _ in range(n_calls))
