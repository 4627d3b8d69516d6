"""What the command asks of the C library's allocator; a library call leaves it alone."""

from __future__ import annotations

import ctypes
from contextlib import suppress

__all__ = ["keep_heap_small"]

# Parameters of glibc's mallopt: the size from which a block is the system's own, free bytes at the end of the heap that
# are kept, and the number of heaps.
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _ARENA_MAX = -3, -1, -8
_LARGE_BLOCK, _N_ARENAS = 1 << 20, 2


def keep_heap_small() -> None:
    """Let the C library take large blocks from the system and give them back when they are freed, where it can.

    It would otherwise learn to keep blocks of up to 32 MB, for each thread its own: what a chunk or the initialization
    needed would stay. This changes the whole process, so the command alone calls it.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BLOCK)
        library.mallopt(_TRIM_THRESHOLD, _LARGE_BLOCK)
        library.mallopt(_ARENA_MAX, _N_ARENAS)
