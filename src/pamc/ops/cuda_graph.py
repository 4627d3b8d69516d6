"""Work that is the same every time, replayed by a GPU as one graph of kernels instead of launched kernel by kernel."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock

import torch
from torch import Tensor

__all__ = ["ALLOWED", "Captured", "capturing"]

# For tests and measurements: without it every call is a call of the function.
ALLOWED = True

# Calls that run as they are before one is captured: they allocate and compile what capturing may not.
_CALLS_BEFORE_CAPTURE = 1

# One thread at a time captures, or calls what will be captured: all share one stream.
_LOCK = RLock()


@contextmanager
def capturing(allowed: bool) -> Iterator[None]:
    """Set :data:`ALLOWED` for what is made inside, and put it back."""
    global ALLOWED
    before, ALLOWED = ALLOWED, allowed
    try:
        yield
    finally:
        ALLOWED = before


class Captured:
    """A function without arguments that works on tensors of its own, in the same shapes each time.

    Parameters
    ----------
    function
        Returns a small tensor. It must not wait for the device, nor depend on anything on the host that changes.
    device
        Where it works. On a GPU its calls are captured, where that is :data:`ALLOWED` and there is memory for it.
    enabled
        Whether to capture; without, each call is a call of the function.
    """

    # Graphs that can be replayed: what they read may not be given back.
    _n_graphs = 0

    def __init__(self, function: Callable[[], Tensor], *, device: torch.device, enabled: bool = True) -> None:
        self._function: Callable[[], Tensor] | None = function
        self._device = device
        self._enabled = enabled and ALLOWED and device.type == "cuda"
        self._n_calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Tensor | None = None

    def __call__(self) -> Tensor:
        """Return what the function returns, in memory that later calls leave alone."""
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
        """Give back the memory of the graph and of all that the function holds; no call may follow."""
        if self._graph is not None:
            Captured._n_graphs -= 1
        self._function, self._graph, self._result = None, None, None

    def _capture(self, function: Callable[[], Tensor]) -> None:
        """Capture a call; where memory runs out, once more without what is cached, and then not at all."""
        for _ in range(2):
            try:
                self._graph, self._result = _captured(function)
            except torch.cuda.OutOfMemoryError:
                torch.cuda.empty_cache()
            else:
                Captured._n_graphs += 1
                return


def _captured(function: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """Return the graph of a call of the function, and what it returns.

    As torch.cuda.graph does, but without collecting garbage and emptying caches first, which takes as long as many
    epochs; garbage must not be collected in between.
    """
    graph, current, own = torch.cuda.CUDAGraph(), torch.cuda.current_stream(), _stream(torch.cuda.current_device())
    collects = gc.isenabled()
    gc.disable()
    try:
        torch.cuda.synchronize()
        own.wait_stream(current)
        with torch.cuda.stream(own):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                result = function()
            finally:
                graph.capture_end()
        current.wait_stream(own)
    finally:
        if collects:
            gc.enable()
    return graph, result


def _on_stream(function: Callable[[], Tensor]) -> Tensor:
    """Call a function as capturing will call it: not on the stream that everything else waits for."""
    if Captured._n_graphs == 0:
        _release_workspaces()
    current, own = torch.cuda.current_stream(), _stream(torch.cuda.current_device())
    own.wait_stream(current)
    with torch.cuda.stream(own):
        result = function()
    current.wait_stream(own)
    return result


def _release_workspaces() -> None:
    """Give back the memory that matrix products keep for the streams they have seen: capturing takes another one."""
    release = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if release is not None:
        release()


@cache
def _stream(device: int) -> torch.cuda.Stream:
    """Return the stream of all capturing on a device: matrix products hold a workspace for every stream they see."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
