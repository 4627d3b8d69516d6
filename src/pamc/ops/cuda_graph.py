"""CUDA graphs of repeated work: a GPU replays one graph instead of launching each kernel."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock

import torch
from torch import Tensor

# Switch for tests and measurements: if False, the function is always called directly.
ALLOWED = True

# Number of ordinary calls before a capture, for the allocations and compilations that are not allowed during one.
_CALLS_BEFORE_CAPTURE = 1

# Only one thread at a time may capture, or call a function before its capture, because all use the same stream.
_LOCK = RLock()


@contextmanager
def capturing(allowed: bool) -> Iterator[None]:
    """Set :data:`ALLOWED` inside the context, and restore its value at the end."""
    global ALLOWED
    before, ALLOWED = ALLOWED, allowed
    try:
        yield
    finally:
        ALLOWED = before


class Captured:
    """A function without arguments, called once and then captured and replayed, always with the same tensors.

    Parameters
    ----------
    function
        Function that returns a small tensor. It must not synchronize with the device or depend on values on the host.
    device
        Device of the function. On a GPU its calls are captured if :data:`ALLOWED` and if there is enough memory.
    enabled
        Whether to capture; if False, the function is always called directly.
    """

    # Number of graphs that can be replayed; while there are any, the memory that they use must not be released.
    _n_graphs = 0

    def __init__(self, function: Callable[[], Tensor], *, device: torch.device, enabled: bool = True) -> None:
        self._function: Callable[[], Tensor] | None = function
        self._device = device
        self._enabled = enabled and ALLOWED and device.type == "cuda"
        self._n_calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Tensor | None = None

    def __call__(self) -> Tensor:
        """Return the result of the function, in memory that later calls do not overwrite."""
        function: Callable[[], Tensor] = self._function  # type: ignore[assignment]
        self._n_calls += 1
        if not self._enabled:
            return function()
        with torch.cuda.device(self._device):
            if self._n_calls <= _CALLS_BEFORE_CAPTURE:
                with _LOCK:
                    if Captured._n_graphs == 0:
                        # Release the cuBLAS workspaces of all streams used so far; a capture uses another stream.
                        getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()
                    with _side_stream():
                        return function()
            if self._graph is None:
                with _LOCK:
                    self._capture(function)
            if self._graph is None:
                self._enabled = False
                return function()
            self._graph.replay()
            result: Tensor = self._result.clone()  # type: ignore[union-attr]
            return result

    def release(self) -> None:
        """Release the memory of the graph and of everything the function holds; it must not be called afterwards."""
        if self._graph is not None:
            Captured._n_graphs -= 1
        self._function, self._graph, self._result = None, None, None

    def _capture(self, function: Callable[[], Tensor]) -> None:
        """Capture a call; if memory runs out, retry once with an empty cache, then give up."""
        for _ in range(2):
            try:
                self._graph, self._result = _captured(function)
            except torch.cuda.OutOfMemoryError:
                torch.cuda.empty_cache()
            else:
                Captured._n_graphs += 1
                return


def _captured(function: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """Return the CUDA graph of a call of the function, and its result.

    Unlike torch.cuda.graph, it does not first collect garbage and empty caches, which takes as long as many epochs. No
    garbage may be collected during the capture.
    """
    graph = torch.cuda.CUDAGraph()
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        torch.cuda.synchronize()
        with _side_stream():
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                result = function()
            finally:
                graph.capture_end()
    finally:
        if was_collecting:
            gc.enable()
    return graph, result


@contextmanager
def _side_stream() -> Iterator[None]:
    """Run the context on the stream of the captures, after all earlier and before all later work of the current one."""
    current, side = torch.cuda.current_stream(), _stream(torch.cuda.current_device())
    side.wait_stream(current)
    with torch.cuda.stream(side):
        yield
    current.wait_stream(side)


@cache
def _stream(device: int) -> torch.cuda.Stream:
    """Return the stream of all captures on a device; there is only one, because each has a cuBLAS workspace."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
