"""Work that is the same every time, replayed by a GPU as one graph of kernels instead of launched kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["ALLOWED", "Captured", "capturing"]

# Off until captured training has been measured on a GPU: every call is then a call of the function.
ALLOWED = False

# Calls that run as they are before one is captured: they allocate and compile what capturing may not.
_CALLS_BEFORE_CAPTURE = 2


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
    enabled
        Whether to capture, where :data:`ALLOWED`; without, each call is a call of the function.
    """

    def __init__(self, function: Callable[[], Tensor], *, enabled: bool) -> None:
        self._function = function
        self._enabled = enabled and ALLOWED
        self._n_calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Tensor | None = None

    def __call__(self) -> Tensor:
        """Return what the function returns, in memory that later calls leave alone."""
        self._n_calls += 1
        if not self._enabled:
            return self._function()
        if self._n_calls <= _CALLS_BEFORE_CAPTURE:
            return self._on_a_stream_of_its_own()
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._result = self._function()
        self._graph.replay()
        result: Tensor = self._result.clone()  # type: ignore[union-attr]
        return result

    def _on_a_stream_of_its_own(self) -> Tensor:
        """Call the function as capturing will call it: not on the stream that everything else waits for."""
        current, own = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        own.wait_stream(current)
        with torch.cuda.stream(own):
            result = self._function()
        current.wait_stream(own)
        return result
