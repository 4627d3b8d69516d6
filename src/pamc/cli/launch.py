"""Support for torchrun: the rank of this process, one error message for all processes, and the resume command.

Torch is imported only if torchrun started several processes.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pamc.cli.show import EXIT_INTERRUPTED
from pamc.errors import PamcError

if TYPE_CHECKING:
    from pamc.distributed.group import TorchProcessGroup

_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

# Words in the errors of a transport that lost its connection.
_LOST = ("gloo", "nccl", "connection", "socket", "store", "peer")


def launched() -> bool:
    """Return whether torchrun, or a launcher that sets its environment, started this process."""
    return all(os.environ.get(name) for name in _ENVIRONMENT)


def own_rank() -> int:
    """Return the rank of this process under torchrun, else 0."""
    return int(os.environ["RANK"]) if launched() else 0


def restarted() -> bool:
    """Return whether torchrun restarted the processes after a failure."""
    return launched() and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def will_restart() -> bool:
    """Return whether torchrun would restart the processes after a failure."""
    n_restarts, most = (os.environ.get(f"TORCHELASTIC_{name}", "0") for name in ("RESTART_COUNT", "MAX_RESTARTS"))
    return launched() and int(n_restarts) < int(most)


@contextmanager
def launched_group(device: str) -> Iterator[TorchProcessGroup | None]:
    """Yield the process group that torchrun started, or None without torchrun.

    If one process fails, it notifies the others, which exit silently with the same code.
    """
    if not _several():
        yield None
        return
    from pamc.distributed.group import ProcessGroupError, join_group

    group = join_group(device)
    try:
        yield group
    except KeyboardInterrupt:
        group.fail("interrupted", EXIT_INTERRUPTED)
        raise
    except Exception as error:
        reason = group.lost(error) if _is_loss(error) else error
        if isinstance(reason, ProcessGroupError) and reason.reported:
            raise reason from None
        code = reason.exit_code if isinstance(reason, PamcError) else 1
        if group.fail(" ".join(str(reason).split()), code):
            raise reason from (None if reason is not error else error.__cause__)
        raise ProcessGroupError("another process failed first", reported=True) from None
    group.leave()


def resume_command(out: Path) -> str:
    """Return the command line that resumes this run."""
    arguments = sys.argv[1:]
    if "--out" not in arguments and not any(argument.startswith("--out=") for argument in arguments):
        arguments = [*arguments, "--out", str(out)]
    if "--resume" not in arguments:
        arguments = [*arguments, "--resume"]
    if not _several():
        return shlex.join(["pamc", *arguments])
    local = os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])
    machines = [] if local == os.environ["WORLD_SIZE"] else ["…"]
    return " ".join(["torchrun", *machines, f"--nproc-per-node={local}", "-m", shlex.join(["pamc", *arguments])])


def _several() -> bool:
    return launched() and int(os.environ["WORLD_SIZE"]) > 1


def _is_loss(error: Exception) -> bool:
    """Return whether an error means that another process is unreachable."""
    import torch.distributed as dist

    if isinstance(error, PamcError):
        return False
    network = isinstance(error, dist.DistError | ConnectionError)
    return network or (isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _LOST))
