"""Time and memory of a function on CPU and GPU, measured in the same way for all implementations."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from pamc.ops.cuda_graph import Captured, capturing

# Size from which freed blocks return to the system: during CPU measurements, and by default in a process that has
# freed large blocks before (glibc).
_MEASURED_TRIM_BYTES, _USUAL_TRIM_BYTES = 1 << 16, 1 << 25
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

# Minimum and maximum number of timed calls; a call that takes longer than the time budget is timed once.
_MIN_CALLS, _MAX_CALLS = 3, 30

_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


@dataclass
class Peak:
    """Peak memory of a block beyond the memory in use before it; None if unknown."""

    n_bytes: int | None = None


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """Measure the peak memory of a block: torch allocations on a GPU, resident memory on a CPU (Linux only)."""
    peak = Peak()
    if device.type == "cuda":
        wait(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        yield peak
        wait(device)
        peak.n_bytes = int(torch.cuda.max_memory_allocated(device) - before)
        return
    with _returning_memory():
        gc.collect()
        resident = None
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            resident = _status("VmRSS")
        yield peak
        peak.n_bytes = None if resident is None else max(0, _status("VmHWM") - resident)


def call_values(
    step: Callable[[], object], device: torch.device, *, budget_s: float = 1.0, captured: bool = False
) -> dict[str, Any]:
    """Return median and fastest time of a call and its peak memory, after one warm-up call.

    On a GPU, CUDA events time the call. With `captured`, it is captured and replayed as a CUDA graph if possible, which
    excludes the time to launch kernels one by one, as in training; the values record whether it was captured. On a CPU,
    all large blocks are freshly allocated, so that results do not depend on earlier calls.
    """
    started = time.perf_counter()
    step()
    wait(device)
    min_calls = 1 if time.perf_counter() - started > budget_s > 0 else _MIN_CALLS
    with peak_memory(device) as peak:
        step()
    replay = _replayed(step, device) if captured and device.type == "cuda" else None
    seconds: list[float] = []
    with _returning_memory() if device.type == "cpu" else nullcontext():
        ends_at = time.perf_counter() + budget_s
        while len(seconds) < min_calls or (len(seconds) < _MAX_CALLS and time.perf_counter() < ends_at):
            seconds.append(_seconds_of(replay or step, device))
    if replay is not None:
        replay.release()
    values = {"seconds": median(seconds), "fastest_s": min(seconds), "n_calls": len(seconds)}
    return {**values, "captured": replay is not None, "peak_bytes": peak.n_bytes}


def _replayed(step: Callable[[], object], device: torch.device) -> Captured | None:
    """Return the captured call, or None if it cannot be captured."""
    output = torch.zeros(1, device=device)

    def call() -> Tensor:
        step()
        return output

    with capturing(True):
        replay = Captured(call, device=device)
    try:
        for _ in range(2):
            replay()
        wait(device)
    except RuntimeError:
        replay.release()
        return None
    return replay


def interleaved_seconds(functions: dict[str, Callable[[], object]], *, repeats: int) -> dict[str, list[float]]:
    """Return the times of each function, called in alternation, so that other load affects all of them equally."""
    for function in functions.values():
        function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            seconds[name].append(timed_s(function, torch.device("cpu")))
    return seconds


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means out of memory, on any device."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error).lower() for text in _NO_MEMORY)
    )


def wait(device: torch.device) -> None:
    """Synchronize the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release(device: torch.device) -> None:
    """Free unused memory, including the cuBLAS workspaces on a GPU."""
    gc.collect()
    if device.type == "cuda":
        wait(device)
        with suppress(AttributeError):
            torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


def reset_peak(device: torch.device) -> None:
    """Reset the peak memory statistics of a GPU; no-op on the CPU."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int | None:
    """Return the peak memory since :func:`reset_peak`, or None on the CPU."""
    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else None


def timed_s(function: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of one call, including all work on the device."""
    wait(device)
    started = time.perf_counter()
    function()
    wait(device)
    return time.perf_counter() - started


def _seconds_of(step: Callable[[], object], device: torch.device) -> float:
    if device.type != "cuda":
        return timed_s(step, device)
    events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
    events[0].record()
    step()
    events[1].record()
    wait(device)
    return float(events[0].elapsed_time(events[1])) / 1000


@contextmanager
def _returning_memory() -> Iterator[None]:
    """Make glibc return freed blocks at once, so that the resident memory equals the memory in use."""
    _trim_from(_MEASURED_TRIM_BYTES)
    try:
        yield
    finally:
        _trim_from(_USUAL_TRIM_BYTES)


def _trim_from(n_bytes: int) -> None:
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, n_bytes)
        library.mallopt(_M_TRIM_THRESHOLD, 2 * n_bytes)
        library.malloc_trim(0)


def _status(field: str) -> int:
    """Return a size in bytes from the status of this process (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))
