"""Work cut into blocks: ranges of rows, and results in the order of what they were made from."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_order", "row_blocks"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def row_blocks(n_rows: int, block_size: int) -> list[slice]:
    """Return slices of at most `block_size` rows that cover all rows in their order.

    Examples
    --------
    >>> row_blocks(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + block_size, n_rows)) for start in range(0, n_rows, block_size)]


def in_order(
    pool: ThreadPoolExecutor, function: Callable[[Item], Result], items: Iterable[Item], *, ahead: int
) -> Iterator[Result]:
    """Yield the results of a function in the order of its items, with so many calls under way and no more.

    Examples
    --------
    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(in_order(pool, abs, [-3, 2, -1], ahead=2))
    [3, 2, 1]
    """
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
            waiting.append(pool.submit(function, item))
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
