"""What the environment says of the processes that torchrun started, known without importing torch."""

from __future__ import annotations

import os

__all__ = ["launched", "own_rank", "restarted", "several", "will_restart"]

_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def launched() -> bool:
    """Return whether torchrun, or whoever sets its environment, started this process."""
    return all(os.environ.get(name) for name in _ENVIRONMENT)


def own_rank() -> int:
    """Return the number of this process under torchrun, 0 without."""
    return int(os.environ["RANK"]) if launched() else 0


def several() -> bool:
    """Return whether torchrun started more than one process."""
    return launched() and int(os.environ["WORLD_SIZE"]) > 1


def restarted() -> bool:
    """Return whether torchrun started the processes again after one of them had failed."""
    return launched() and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def will_restart() -> bool:
    """Return whether torchrun starts the processes again should one of them fail now."""
    n_restarts, most = (os.environ.get(f"TORCHELASTIC_{name}", "0") for name in ("RESTART_COUNT", "MAX_RESTARTS"))
    return launched() and int(n_restarts) < int(most)
