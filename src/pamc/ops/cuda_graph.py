"""Repeated work that a GPU replays as one CUDA graph instead of launching each kernel."""

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

# Number of ordinary calls before a capture: they allocate and compile what must not happen during a capture.
_CALLS_BEFORE_CAPTURE = 1

# Only one thread at a time may capture, or call a function that will be captured: all share one stream.
_LOCK = RLock()


@contextmanager
def capturing(allowed: bool) -> Iterator[None]:
    """Set :data:`ALLOWED` inside the context, and restore it afterwards."""
    global ALLOWED
    before, ALLOWED = ALLOWED, allowed
    try:
        yield
    finally:
        ALLOWED = before


class Captured:
    """A function without arguments that is captured and replayed; it always uses the same tensors and shapes.

    Parameters
    ----------
    function
        Function that returns a small tensor. It must not synchronize with the device or depend on host state.
    device
        Device of the function. On a GPU its calls are captured if :data:`ALLOWED` and if there is enough memory.
    enabled
        Whether to capture; if False, the function is always called directly.
    """

    # Number of graphs that can be replayed: the memory they read must not be released.
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
                    return _on_stream(function)
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

    As torch.cuda.graph does, but without garbage collection and emptying caches first, which take as long as many
    epochs; no garbage may be collected during the capture.
    """
    graph, current, side = torch.cuda.CUDAGraph(), torch.cuda.current_stream(), _stream(torch.cuda.current_device())
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        torch.cuda.synchronize()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                result = function()
            finally:
                graph.capture_end()
        current.wait_stream(side)
    finally:
        if was_collecting:
            gc.enable()
    return graph, result


def _on_stream(function: Callable[[], Tensor]) -> Tensor:
    """Call a function as in a capture, that is, not on the default stream."""
    if Captured._n_graphs == 0:
        _release_workspaces()
    current, side = torch.cuda.current_stream(), _stream(torch.cuda.current_device())
    side.wait_stream(current)
    with torch.cuda.stream(side):
        result = function()
    current.wait_stream(side)
    return result


def _release_workspaces() -> None:
    """Release the cuBLAS workspaces of all streams used so far, because a capture uses another stream."""
    release = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if release is not None:
        release()


@cache
def _stream(device: int) -> torch.cuda.Stream:
    """Return the stream for all captures on a device; cuBLAS keeps a workspace for every stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
