"""Blocks that are made ready while the one before is worked on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor

__all__ = ["made_ahead", "sent_to"]

Key = TypeVar("Key")
Block = TypeVar("Block")


def made_ahead(keys: Iterable[Key], make: Callable[[Key], Block]) -> Iterator[tuple[Key, Block]]:
    """Yield each key with what is made of it, in order; a thread makes the next one meanwhile.

    Two blocks are held at a time. What goes wrong in the thread is raised here.

    Examples
    --------
    >>> list(made_ahead([1, 2, 3], lambda key: key * key))
    [(1, 1), (2, 4), (3, 9)]
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="pamc-ahead") as pool:
        waiting: tuple[Key, Any] | None = None
        for key in keys:
            following = (key, pool.submit(make, key))
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = following
        if waiting is not None:
            yield waiting[0], waiting[1].result()


def sent_to(block: Tensor, device: torch.device) -> Tensor:
    """Return a block of host memory on a device.

    A GPU's copy goes from page-locked memory and on a stream of its own, beside the work on others; it has arrived when
    this returns, so that whoever is given the block need not know.
    """
    if device.type != "cuda":
        return block.to(device)
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        there = block.pin_memory().to(device, non_blocking=True)
    stream.synchronize()
    return there
