"""The processes that torchrun started, as a :class:`~pamc.ops.group.ProcessGroup`.

Training needs two collectives only. Rows are gathered in row order. For a sum, each rank adds its slice of the result
in rank order, and the slices are then gathered: the result is bitwise identical on every rank and in every run,
whatever the algorithm or timing of the transport, and the traffic, twice the bytes of the summands, is minimal.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous
from torch.nn.functional import pad

from pamc.errors import BackendError, ConfigError
from pamc.ops.group import rows_per_rank
from pamc.runtime import resolve_device

# Timeout of a collective, after which another process is considered lost. No collective waits for the initialization,
# which may take longer.
_TIMEOUT_VARIABLE, _TIMEOUT_MINUTES = "PAMC_TIMEOUT_MINUTES", 10.0

# Interval at which a process that waits for rank 0 checks for failures, and time to wait for the reason of a failure.
_LOOK_EVERY = timedelta(seconds=5)
_REASON_WITHIN_S = 3.0

# Tensors are sent in pieces of this size.
_PIECE_BYTES = 1 << 28

_MOST_MINUTES = 7 * 24 * 60.0

_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class ProcessGroupError(BackendError):
    """Another process failed; `reported` is True if that process already displayed the reason."""

    def __init__(self, message: str, *, reported: bool, code: int = BackendError.exit_code) -> None:
        super().__init__(message)
        self.reported, self.exit_code = reported, code


def launched() -> bool:
    """Return whether torchrun, or a launcher that sets the same environment variables, started this process."""
    return all(os.environ.get(name) for name in _ENVIRONMENT)


class TorchProcessGroup:
    """The processes that torchrun started, connected by NCCL between GPUs and by gloo between CPUs.

    Parameters
    ----------
    device
        Device of this process.
    store
        Key-value store that the processes share for small messages.
    """

    def __init__(self, device: torch.device, store: Any) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.device = device
        self._store, self._n_broadcasts = store, 0

    def gather_rows(self, rows: Tensor, n_rows: int) -> Tensor:
        """Return (n_rows, …): the rows of all processes in order, where `rows` are those of this process."""
        per_rank = rows_per_rank(n_rows, self.size)
        missing = per_rank - len(rows)
        block = torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])]) if missing else rows.contiguous()
        gathered = rows.new_empty(self.size * per_rank, *rows.shape[1:])
        _gather(gathered, block)
        return gathered[:n_rows]

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum of the tensors of all processes, added in the order of the ranks."""
        n_values = values.numel()
        per_rank = -(-n_values // self.size)
        flat = pad(values.reshape(-1), (0, self.size * per_rank - n_values))
        slices = torch.empty_like(flat)
        dist.all_to_all_single(slices, flat)
        total, *others = slices.view(self.size, per_rank).unbind()
        for other in others:
            total = total + other
        _gather(flat, total.contiguous())
        return flat[:n_values].view(values.shape)

    def broadcast(self, value: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the plain values that rank 0 passes; other ranks pass None.

        There is no timeout: a waiting process checks periodically whether another one has failed, and if so raises an
        error.
        """
        self._n_broadcasts += 1
        key = f"broadcast/{self._n_broadcasts}"
        if value is not None:
            self._store.set(key, json.dumps(value))
            return dict(value)
        while True:
            try:
                self._store.wait([key], _LOOK_EVERY)
                break
            except (RuntimeError, dist.DistError) as error:
                self._raise_if_lost(error)
        received: dict[str, Any] = json.loads(self._store.get(key))
        return received

    def scatter(self, parts: Sequence[Mapping[str, Tensor]] | None) -> dict[str, Tensor]:
        """Return this process's part of the tensors that rank 0 passes, on the CPU; other ranks pass None."""
        shapes = None
        if parts is not None:
            shapes = {
                "parts": [{name: (str(t.dtype)[6:], list(t.shape)) for name, t in part.items()} for part in parts]
            }
        expected = self.broadcast(shapes)["parts"][self.rank]
        if parts is None:
            received = {}
            for name, (dtype, shape) in expected.items():
                received[name] = torch.empty(shape, dtype=getattr(torch, dtype))
                for piece in _pieces(received[name]):
                    dist.recv(piece, 0)
            return received
        for rank, part in enumerate(parts):
            for tensor in part.values() if rank else ():
                for piece in _pieces(tensor.cpu().contiguous()):
                    dist.send(piece, rank)
        return dict(parts[0])

    def fail(self, message: str, code: int) -> bool:
        """Report to the other processes that this one fails, and return whether it is the first to do so."""
        report = json.dumps({"rank": self.rank, "message": message, "code": code})
        with suppress(RuntimeError, dist.DistError):
            first = self._store.compare_set("failure", "", report)
            return bool(first.decode() == report)
        return True

    def failure(self) -> dict[str, Any] | None:
        """Return the first reported failure, or None if there is none."""
        with suppress(RuntimeError, dist.DistError):
            if self._store.check(["failure"]):
                failure: dict[str, Any] = json.loads(self._store.get("failure"))
                return failure
        return None

    def lost(self, error: BaseException) -> ProcessGroupError:
        """Return an error that replaces one raised by a collective, with the reason if another process reported it."""
        until = time.monotonic() + _REASON_WITHIN_S
        while (failure := self.failure()) is None and time.monotonic() < until:
            time.sleep(0.05)
        if failure is not None:
            message = f"process {failure['rank']} of {self.size} failed: {failure['message']}"
            return ProcessGroupError(message, reported=True, code=failure["code"])
        reason = " ".join(str(error).split())[:200]
        return ProcessGroupError(
            f"process {self.rank} of {self.size} lost another one, which was killed or cannot be reached ({reason})",
            reported=False,
        )

    def _raise_if_lost(self, error: BaseException) -> None:
        """Raise an error if another process failed, or if the key-value store cannot be read any more."""
        try:
            failed = self._store.check(["failure"])
        except (RuntimeError, dist.DistError):
            raise self.lost(error) from None
        if failed:
            raise self.lost(error) from None

    def leave(self) -> None:
        """Leave the process group; the other processes may already be gone."""
        with suppress(RuntimeError, dist.DistError):
            dist.destroy_process_group()


def join_group(device: str) -> TorchProcessGroup:
    """Join the process group that torchrun started, and return it.

    Parameters
    ----------
    device
        Device of this process; "auto" and "cuda" choose the GPU with this process's local rank.
    """
    resolved, timeout = _local_device(device), _timeout()
    if on_gpu := resolved.type == "cuda":
        torch.cuda.set_device(resolved)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    try:
        store, _, _ = next(rendezvous("env://", rank, size, timeout=timeout))
        # The agent's store outlives restarted processes: the prefix hides messages from before the restart.
        store = PrefixStore(f"pamc/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        options: dict[str, Any] = {"device_id": resolved} if on_gpu else {}
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            store=PrefixStore("group", store),
            rank=rank,
            world_size=size,
            timeout=timeout,
            **options,
        )
    except (RuntimeError, ValueError, OSError) as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        reason = " ".join(str(error).split())[:200]
        raise BackendError(
            f"process {rank} of {size} cannot join the others at {where} ({reason}): start all processes with "
            "torchrun, and check that the machines can reach each other"
        ) from None
    return TorchProcessGroup(resolved, PrefixStore("notes", store))


def _timeout() -> timedelta:
    """Return the timeout of the collectives."""
    text = os.environ.get(_TIMEOUT_VARIABLE, str(_TIMEOUT_MINUTES))
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes <= _MOST_MINUTES:
        raise ConfigError(f"{_TIMEOUT_VARIABLE} must be a number of minutes above 0 and at most a week, got {text!r}")
    return timedelta(minutes=minutes)


def _local_device(device: str) -> torch.device:
    """Return the device of this process; every process on a machine needs a different GPU."""
    resolved = resolve_device(device)
    if resolved.type != "cuda":
        return resolved
    local, n_local = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    n_gpus = torch.cuda.device_count()
    if n_local > n_gpus or (n_local > 1 and resolved.index is not None):
        raise ConfigError(
            f"{n_local} processes on a machine with {n_gpus} GPU, --device {device}: every process needs a separate "
            f"GPU. Use --nproc-per-node {n_gpus} with --device auto, or --device cpu"
        )
    return resolved if resolved.index is not None else torch.device("cuda", local)


def _gather(out: Tensor, block: Tensor) -> None:
    """Concatenate the blocks of all processes, which have equal sizes, into `out`."""
    # Newer versions of torch have renamed this function.
    gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(out, block)


def _pieces(tensor: Tensor) -> Sequence[Tensor]:
    """Split a contiguous tensor into views of bounded size."""
    flat = tensor.view(-1)
    return torch.split(flat, max(1, _PIECE_BYTES // tensor.element_size())) if len(flat) else ()
