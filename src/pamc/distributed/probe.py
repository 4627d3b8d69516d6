"""What the processes of a team are, and what passes between them: right sums, time, bytes."""

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

__all__ = ["probe_group"]

# Room for what a process says of itself.
_CARD_BYTES = 512

_N_SMALL = 50
_N_LARGE = 5


def probe_group(group: ProcessGroup, device: torch.device, *, n_bytes: int = 1 << 24) -> dict[str, Any]:
    """Return who the processes are, whether what they add up and gather is right, and how fast it is.

    Every process has to call it, and gets the same answer, apart from its own clock.

    Parameters
    ----------
    device
        Of this process.
    n_bytes
        What is sent to measure the bandwidth.

    Returns
    -------
    dict
        `processes`: rank, host, device and backend of each. `latency_s`: of the sum of one number, the median.
        `bandwidth_bytes_per_s`: what each process sends in a second while large tensors are added up; None for one
        process.
    """
    backend = "none" if group.size == 1 else ("nccl" if device.type == "cuda" else "gloo")
    own = {"rank": group.rank, "host": socket.gethostname(), "device": str(device), "backend": backend}
    processes = [json.loads(text) for text in _gathered_texts(group, json.dumps(own), device)]
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
    card = text.encode()[:_CARD_BYTES].ljust(_CARD_BYTES)
    row = torch.tensor(list(card), dtype=torch.uint8, device=device)[None]
    return [bytes(each.tolist()).decode().strip() for each in group.gather_rows(row, group.size).cpu()]


def _check_collectives(group: ProcessGroup, device: torch.device) -> None:
    """Raise where a sum or a gathering of known numbers comes out wrong."""
    numbers = torch.arange(1001, dtype=torch.float64, device=device)
    summed = group.sum(numbers * (group.rank + 1))
    gathered = group.gather_rows(numbers[None] + group.rank, group.size)
    ranks = torch.arange(group.size, dtype=torch.float64, device=device)
    right = torch.equal(summed, numbers * (ranks + 1).sum()) and torch.equal(gathered, numbers + ranks[:, None])
    if not right:
        raise BackendError(
            f"process {group.rank} of {group.size} got a wrong sum from the others: the network, or the library that "
            "carries the numbers, is at fault; try another backend (--device cpu), or fewer machines"
        )


def _median_seconds(call: Callable[[], Tensor], device: torch.device, n_calls: int) -> float:
    def timed() -> float:
        begun = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begun

    timed()
    return statistics.median(timed() for _ in range(n_calls))
