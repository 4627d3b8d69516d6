"""Commands under torchrun: one readable error for all processes, and how a run that was stopped goes on."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist

from pamc.cli.ranks import own_rank
from pamc.cli.show import EXIT_INTERRUPTED
from pamc.errors import PamcError
from pamc.training.team import Ranks, TeamError, join_team, launched

__all__ = ["own_rank", "restarted", "resume_command", "several", "teamwork", "will_restart"]

# What the messages of a transport that lost its other end have in them.
_LOST = ("gloo", "nccl", "connection", "socket", "store", "peer")


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


@contextmanager
def teamwork(device: str) -> Iterator[Ranks | None]:
    """Yield the team that torchrun started, None without.

    Where one process fails, it leaves word for the others, which end with its exit code and say nothing.
    """
    if not several():
        yield None
        return
    team = join_team(device)
    try:
        yield team
    except KeyboardInterrupt:
        team.fail("interrupted", EXIT_INTERRUPTED)
        raise
    except Exception as error:
        reason = team.lost(error) if _is_loss(error) else error
        if isinstance(reason, TeamError) and reason.told:
            raise reason from None
        code = reason.exit_code if isinstance(reason, PamcError) else 1
        if team.fail(" ".join(str(reason).split()), code):
            raise reason from (None if reason is not error else error.__cause__)
        raise TeamError("another process failed first", told=True) from None
    team.leave()


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
