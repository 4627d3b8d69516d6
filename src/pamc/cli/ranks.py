"""Which of the processes that torchrun started this one is, known without importing torch."""

from __future__ import annotations

import os

__all__ = ["own_rank"]

_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def own_rank() -> int:
    """Return the number of this process under torchrun, 0 without."""
    return int(os.environ["RANK"]) if all(os.environ.get(name) for name in _ENVIRONMENT) else 0
