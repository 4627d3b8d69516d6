"""Commands under torchrun: one readable error for all processes, and how a run that was stopped goes on."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist

from pamc.cli.ranks import several
from pamc.cli.show import EXIT_INTERRUPTED
from pamc.distributed.group import ProcessGroupError, TorchProcessGroup, join_group
from pamc.errors import PamcError

__all__ = ["launched_group", "resume_command"]

# What the messages of a transport that lost its other end have in them.
_LOST = ("gloo", "nccl", "connection", "socket", "store", "peer")


@contextmanager
def launched_group(device: str) -> Iterator[TorchProcessGroup | None]:
    """Yield the process group that torchrun started, None without.

    Where one process fails, it leaves word for the others, which end with its exit code and say nothing.
    """
    if not several():
        yield None
        return
    group = join_group(device)
    try:
        yield group
    except KeyboardInterrupt:
        group.fail("interrupted", EXIT_INTERRUPTED)
        raise
    except Exception as error:
        reason = group.lost(error) if _is_loss(error) else error
        if isinstance(reason, ProcessGroupError) and reason.told:
            raise reason from None
        code = reason.exit_code if isinstance(reason, PamcError) else 1
        if group.fail(" ".join(str(reason).split()), code):
            raise reason from (None if reason is not error else error.__cause__)
        raise ProcessGroupError("another process failed first", told=True) from None
    group.leave()


def resume_command(out: Path) -> str:
    """Return the command line that goes on with this run."""
    arguments = sys.argv[1:]
    if "--out" not in arguments and not any(argument.startswith("--out=") for argument in arguments):
        arguments = [*arguments, "--out", str(out)]
    if "--resume" not in arguments:
        arguments = [*arguments, "--resume"]
    if not several():
        return shlex.join(["pamc", *arguments])
    local = os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])
    machines = [] if local == os.environ["WORLD_SIZE"] else ["…"]
    return " ".join(["torchrun", *machines, f"--nproc-per-node={local}", "-m", shlex.join(["pamc", *arguments])])


def _is_loss(error: Exception) -> bool:
    """Return whether an error says that another process cannot be reached."""
    if isinstance(error, PamcError):
        return False
    network = isinstance(error, dist.DistError | ConnectionError)
    return network or (isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _LOST))
