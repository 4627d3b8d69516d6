"""The processes that torchrun started, as a :class:`~pamc.ops.group.ProcessGroup`.

Two collectives are all that training asks for. Rows are gathered in the order of their numbers. Sums are taken in the
order of the ranks by whoever owns a slice of the result, and then handed round: the same bits on every rank and in
every run, whatever algorithm or timing the transport has, for twice the bytes of the summands, as few as can be.
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

__all__ = [
    "ProcessGroupError",
    "TorchProcessGroup",
    "join_group",
    "launched",
]

# A collective that takes longer has lost somebody. What takes longer on purpose, the start, is not waited for in one.
_TIMEOUT_VARIABLE, _TIMEOUT_MINUTES = "PAMC_TIMEOUT_MINUTES", 10.0

# How often somebody who waits for the first process looks up, and for how long the reason of a failure is waited for.
_LOOK_EVERY = timedelta(seconds=5)
_REASON_WITHIN_S = 3.0

# Tensors are dealt in pieces of this size.
_PIECE_BYTES = 1 << 28

_MOST_MINUTES = 7 * 24 * 60.0

_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class ProcessGroupError(BackendError):
    """Another process failed; `told` says that its reason has been written already."""

    def __init__(self, message: str, *, told: bool, code: int = BackendError.exit_code) -> None:
        super().__init__(message)
        self.told, self.exit_code = told, code


def launched() -> bool:
    """Return whether torchrun, or whoever sets its environment, started this process."""
    return all(os.environ.get(name) for name in _ENVIRONMENT)


class TorchProcessGroup:
    """The processes that torchrun started, NCCL between GPUs and gloo between CPUs.

    Parameters
    ----------
    device
        Where this process trains.
    store
        What the processes leave notes for each other in.
    """

    def __init__(self, device: torch.device, store: Any) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.device = device
        self._store, self._n_told = store, 0

    def gather_rows(self, own: Tensor, n_rows: int) -> Tensor:
        """Return (n_rows, …): the rows of all processes in order, of which `own` are this one's."""
        each = rows_per_rank(n_rows, self.size)
        missing = each - len(own)
        block = torch.cat([own, own.new_zeros(missing, *own.shape[1:])]) if missing else own.contiguous()
        everyone = own.new_empty(self.size * each, *own.shape[1:])
        _gather(everyone, block)
        return everyone[:n_rows]

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum of the tensors of all processes, added in the order of the ranks."""
        n_values = values.numel()
        each = -(-n_values // self.size)
        flat = pad(values.reshape(-1), (0, self.size * each - n_values))
        slices = torch.empty_like(flat)
        dist.all_to_all_single(slices, flat)
        total, *others = slices.view(self.size, each).unbind()
        for other in others:
            total = total + other
        _gather(flat, total.contiguous())
        return flat[:n_values].view(values.shape)

    def broadcast(self, value: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return what the first process has to say, plain values; others pass None.

        It may take its time: who waits looks up now and then, and ends where another process has failed.
        """
        self._n_told += 1
        key = f"told/{self._n_told}"
        if value is not None:
            self._store.set(key, json.dumps(value))
            return dict(value)
        while True:
            try:
                self._store.wait([key], _LOOK_EVERY)
                break
            except (RuntimeError, dist.DistError) as error:
                self._end_if_lost(error)
        told: dict[str, Any] = json.loads(self._store.get(key))
        return told

    def scatter(self, parts: Sequence[Mapping[str, Tensor]] | None) -> dict[str, Tensor]:
        """Return this process's part of what the first one deals out, on the CPU; others pass None."""
        shapes = None
        if parts is not None:
            shapes = {
                "parts": [{name: (str(t.dtype)[6:], list(t.shape)) for name, t in part.items()} for part in parts]
            }
        own = self.broadcast(shapes)["parts"][self.rank]
        if parts is None:
            return {name: self._receive(getattr(torch, kind), shape) for name, (kind, shape) in own.items()}
        for rank, part in enumerate(parts):
            for tensor in part.values() if rank else ():
                for piece in _pieces(tensor.cpu().contiguous()):
                    dist.send(piece, rank)
        return dict(parts[0])

    def _receive(self, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
        tensor = torch.empty(tuple(shape), dtype=dtype)
        for piece in _pieces(tensor):
            dist.recv(piece, 0)
        return tensor

    def fail(self, message: str, code: int) -> bool:
        """Leave word that this process fails, and return whether it is the first to do so."""
        own = json.dumps({"rank": self.rank, "message": message, "code": code})
        with suppress(RuntimeError, dist.DistError):
            first = self._store.compare_set("failure", "", own)
            return bool(first.decode() == own)
        return True

    def failure(self) -> dict[str, Any] | None:
        """Return the first failure that was left word of, None where there is none."""
        with suppress(RuntimeError, dist.DistError):
            if self._store.check(["failure"]):
                failure: dict[str, Any] = json.loads(self._store.get("failure"))
                return failure
        return None

    def lost(self, error: BaseException) -> ProcessGroupError:
        """Return an error in the place of one that a collective raised: what went wrong elsewhere, where known."""
        until = time.monotonic() + _REASON_WITHIN_S
        while (failure := self.failure()) is None and time.monotonic() < until:
            time.sleep(0.05)
        if failure is not None:
            said = f"process {failure['rank']} of {self.size} failed: {failure['message']}"
            return ProcessGroupError(said, told=True, code=failure["code"])
        reason = " ".join(str(error).split())[:200]
        return ProcessGroupError(
            f"process {self.rank} of {self.size} lost another one, which was killed or cannot be reached ({reason})",
            told=False,
        )

    def _end_if_lost(self, error: BaseException) -> None:
        """Raise where another process failed, or where the notes cannot be read any more."""
        try:
            failed = self._store.check(["failure"])
        except (RuntimeError, dist.DistError):
            raise self.lost(error) from None
        if failed:
            raise self.lost(error) from None

    def leave(self) -> None:
        """Say goodbye; the others need not be there any more."""
        with suppress(RuntimeError, dist.DistError):
            dist.destroy_process_group()


def join_group(device: str) -> TorchProcessGroup:
    """Return the team of the processes that torchrun started, with this one's device.

    Parameters
    ----------
    device
        "auto" and "cuda" are the GPU of this process's number on its machine.
    """
    own, timeout = _own_device(device), _timeout()
    if own.type == "cuda":
        torch.cuda.set_device(own)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    try:
        store, _, _ = next(rendezvous("env://", rank, size, timeout=timeout))
        # The agent's store outlives processes that are started again: what the last ones left is not for these.
        store = PrefixStore(f"pamc/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        options: dict[str, Any] = {"device_id": own} if own.type == "cuda" else {}
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if own.type == "cuda" else "gloo",
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
            f"process {rank} of {size} cannot join the others at {where} ({reason}): start all of them with torchrun, "
            "and see that the machines reach each other"
        ) from None
    return TorchProcessGroup(own, PrefixStore("notes", store))


def _timeout() -> timedelta:
    """Return how long a process waits for the others."""
    text = os.environ.get(_TIMEOUT_VARIABLE, str(_TIMEOUT_MINUTES))
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes <= _MOST_MINUTES:
        raise ConfigError(f"{_TIMEOUT_VARIABLE} must be a number of minutes above 0 and at most a week, got {text!r}")
    return timedelta(minutes=minutes)


def _own_device(device: str) -> torch.device:
    resolved = resolve_device(device)
    if resolved.type != "cuda":
        return resolved
    local, n_local = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    n_gpus = torch.cuda.device_count()
    if n_local > n_gpus or (n_local > 1 and resolved.index is not None):
        raise ConfigError(
            f"{n_local} processes on a machine with {n_gpus} GPU, --device {device}: every process needs a GPU of its "
            f"own. Use --nproc-per-node {n_gpus} with --device auto, or --device cpu"
        )
    return resolved if resolved.index is not None else torch.device("cuda", local)


def _gather(out: Tensor, block: Tensor) -> None:
    """Put the blocks of all processes, of equal size, side by side."""
    # The name that newer versions of torch have for it, and that of older ones.
    gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(out, block)


def _pieces(tensor: Tensor) -> Sequence[Tensor]:
    """Return a contiguous tensor as views of bounded size."""
    flat = tensor.view(-1)
    return torch.split(flat, max(1, _PIECE_BYTES // tensor.element_size())) if len(flat) else ()
