"""The only training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from pamc.errors import TrainingError
from pamc.losses.pamc import warn_of_empty_clusters
from pamc.models.base import GraphModel, LossTerms, Model
from pamc.models.loader import FeatureLoader
from pamc.ops.cuda_graph import Captured
from pamc.ops.dispatch import with_changes
from pamc.ops.group import count_rows, row_range
from pamc.runtime import seeded
from pamc.training.engine import accumulate_gradient
from pamc.training.optimizer import adam, load_optimizer_state, optimizer_state

__all__ = ["Checkpointer", "EpochRecord", "TrainingState", "train"]


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch showed, before its step.

    Parameters
    ----------
    epoch
        Counted from 1.
    values
        `loss`, every part of it, every monitor, and, where the method assigns in every epoch, `changed`: the share of
        labels that differ from the last epoch's.
    seconds
        Wall-clock time of the epoch; where several are read together, their mean.
    labels
        (N,) assignment of the epoch; None for methods that assign once, at the end, and, where several epochs are read
        together, for all but the last of all.
    """

    epoch: int
    values: dict[str, float]
    seconds: float
    labels: Tensor | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, eq=False)
class TrainingState:
    """Training between two epochs: all that the next ones depend on.

    Parameters
    ----------
    records
        Of the epochs so far, without their labels.
    weights
        Of the model, by name.
    optimizer
        Its moments and steps, by name.
    labels
        (N,) of the last epoch, −1 for a method that assigns at the end.
    """

    records: list[EpochRecord]
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    labels: Tensor

    @property
    def epoch(self) -> int:
        """The number of epochs so far."""
        return len(self.records)


class Checkpointer(Protocol):
    """Whoever keeps the state of training now and then, and may have one to go on from."""

    @property
    def found(self) -> TrainingState | None:
        """What to go on from; None to begin."""

    def most_epochs(self) -> int | None:
        """Return how many epochs may go by unseen; None for any number."""

    def due(self, epoch: int) -> bool:
        """Return whether the state after an epoch is to be kept; every process gets the same answer."""

    def keep(self, state: TrainingState) -> None:
        """Keep a state."""


def train(
    model: Model | GraphModel,
    rows: FeatureLoader,
    *,
    n_epochs: int,
    lr: float,
    tol: float = 0.0,
    chunk_size: int | None = None,
    seed: int = 0,
    read_every: int = 1,
    checkpointer: Checkpointer | None = None,
) -> Iterator[EpochRecord]:
    """Yield a record per epoch while the model learns: one full-batch gradient and one Adam step each.

    Stops after `n_epochs`, or, with `tol` > 0, once the share of labels that changed is at most `tol`, as in DEC
    (Xie et al. 2016). No label of the user's is seen here. A loss that draws random numbers draws them in each epoch
    from a seed of that epoch.

    Nothing in an epoch waits for a value of it: numbers are read once every `read_every` epochs (every epoch, with
    `tol`), while the next ones run: the model is then ahead of the records. On a GPU an epoch of a fixed shape is
    captured and replayed as one graph of kernels.

    With a `keeper` training goes on from the state that it has found, whose records come first, and the state is kept
    whenever that is due: what follows is the same to the bit on a CPU.
    """
    if n_epochs == 0:
        return
    epoch_of = _Epoch(model, rows, lr=lr, chunk_size=chunk_size, seed=seed)
    try:
        done: list[EpochRecord] = []
        if checkpointer is not None and checkpointer.found is not None:
            done += checkpointer.found.records
            epoch_of.restore(checkpointer.found)
            yield from done
        if checkpointer is not None:
            read_every = min(read_every, checkpointer.most_epochs() or read_every)
        read_every = 1 if tol > 0 else read_every
        yield from _records(
            epoch_of, model, done, n_epochs=n_epochs, tol=tol, read_every=read_every, checkpointer=checkpointer
        )
    finally:
        epoch_of.release()


def _records(
    epoch_of: _Epoch,
    model: Model | GraphModel,
    done: list[EpochRecord],
    *,
    n_epochs: int,
    tol: float,
    read_every: int,
    checkpointer: Checkpointer | None,
) -> Iterator[EpochRecord]:
    last_read = time.perf_counter()
    epochs = range(len(done) + 1, n_epochs + 1)
    for together, read, labels, rests in _ran(epoch_of, epochs, read_every=read_every, checkpointer=checkpointer):
        now = time.perf_counter()
        seconds, last_read = (now - last_read) / len(together), now
        for epoch, numbers in zip(together, read, strict=True):
            values = dict(zip(epoch_of.names, numbers, strict=True))
            if "changed" in values:
                # Counted on the device, in numbers that are whole; a share may have to be compared with `tol`.
                values["changed"] /= epoch_of.n_nodes
            _check(epoch, values, model)
            yield EpochRecord(epoch, values, seconds, labels if epoch == together[-1] else None)
            if checkpointer is not None:
                done.append(EpochRecord(epoch, values, seconds))
            if epoch > 1 and tol > 0 and values.get("changed", math.inf) <= tol:
                return
        if checkpointer is not None and rests:
            checkpointer.keep(epoch_of.state(list(done)))


def _ran(
    epoch_of: _Epoch, epochs: range, *, read_every: int, checkpointer: Checkpointer | None
) -> Iterator[tuple[range, list[list[float]], Tensor | None, bool]]:
    """Yield the epochs that ran, some at a time, with their numbers and the labels of the last of them.

    And whether the model is to be kept as they left it. Where several are read together, the device has the next ones
    to do by the time their numbers are read, unless it is to be kept, and labels come with the last of all epochs
    alone.
    """
    before: tuple[range, _OnTheWay] | None = None
    for first in range(0, len(epochs), read_every):
        together = epochs[first : first + read_every]
        # One trip from the device for all of them.
        numbers = _OnTheWay(torch.stack([epoch_of(epoch) for epoch in together]))
        rests = checkpointer is not None and checkpointer.due(together[-1])
        if read_every == 1:
            yield together, numbers.read(), epoch_of.labels, rests
            continue
        if before is not None:
            yield before[0], before[1].read(), None, False
        before = together, numbers
        if rests and together[-1] != epochs[-1]:
            yield before[0], before[1].read(), None, True
            before = None
    if before is not None:
        yield before[0], before[1].read(), epoch_of.labels, rests


class _OnTheWay:
    """Numbers that a device sends to the host while it goes on."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers.to("cpu", non_blocking=True)
        self._sent = None
        if numbers.device.type == "cuda":
            self._sent = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._sent.record(torch.cuda.current_stream(numbers.device))

    def read(self) -> list[list[float]]:
        """Return the numbers, once they are here."""
        if self._sent is not None:
            self._sent.synchronize()
        read: list[list[float]] = self._numbers.tolist()
        return read


class _Epoch:
    """One epoch after another, on the device alone.

    Calling it runs the next epoch and returns its numbers, a float64 tensor that `names` names; of labels that changed
    it has the number.
    """

    def __init__(
        self, model: Model | GraphModel, rows: FeatureLoader, *, lr: float, chunk_size: int | None, seed: int
    ) -> None:
        self._model, self._rows, self._chunk_size, self._seed = model, rows, chunk_size, seed
        self._group = model.group
        self.n_nodes = count_rows(len(rows), self._group)
        on_gpu = rows.device.type == "cuda"
        one_chunk = chunk_size is None or chunk_size >= len(rows)
        self._captures = on_gpu and one_chunk and isinstance(model, Model) and model.capturable
        learnt = [p for p in model.parameters() if p.requires_grad]
        self._optimizer = adam(learnt, lr=lr)
        self._previous = torch.full((len(rows),), -1, dtype=torch.int64, device=rows.device)
        self._again = Captured(lambda: self._run(0), device=rows.device, enabled=self._captures)
        self.names: tuple[str, ...] = ()
        self._labels: Tensor | None = None

    def __call__(self, epoch: int) -> Tensor:
        # Only a loss that draws asks for the number of the epoch, and no such loss can be captured.
        return self._again() if self._captures else self._run(epoch)

    @property
    def labels(self) -> Tensor | None:
        """(N,) the labels of the epoch that ran last, in memory of their own."""
        return None if self._labels is None else self._labels.clone()

    def state(self, records: list[EpochRecord]) -> TrainingState:
        """Return the state after the epoch that ran last."""
        labels = self._group.gather_rows(self._previous, self.n_nodes)
        return TrainingState(records, self._model.state_dict(), optimizer_state(self._optimizer), labels)

    def restore(self, state: TrainingState) -> None:
        """Go back to a state, before any epoch has run."""
        self._model.load_state_dict(state.weights)
        load_optimizer_state(self._optimizer, state.optimizer)
        self._previous.copy_(state.labels[row_range(self.n_nodes, self._group.rank, self._group.size)])

    def release(self) -> None:
        """Give back what a captured epoch holds."""
        self._again.release()

    def _run(self, epoch: int) -> Tensor:
        model = self._model
        self._optimizer.zero_grad(set_to_none=True)
        with seeded(self._seed, f"epoch {epoch}", self._rows.device) if model.draws else nullcontext():
            terms = accumulate_gradient(model, self._rows, chunk_size=self._chunk_size)
        self._optimizer.step()
        return self._numbers_of(terms)

    def _numbers_of(self, terms: LossTerms) -> Tensor:
        named = {"loss": terms.total, **terms.parts, **terms.monitors}
        kind = terms.total.dtype
        numbers = terms.numbers
        if numbers is None:
            numbers = torch.stack([value.detach().to(kind) for value in named.values()])
        self.names = tuple(named)
        if terms.labels is None:
            return numbers.double()
        self.names += ("changed",)
        numbers = with_changes(numbers, terms.labels, self._previous)
        if self._group.size > 1:
            numbers = torch.cat([numbers[:-1], self._group.sum(numbers[-1:])])
        # A replayed epoch writes into the memory of the last one.
        self._labels = self._previous if self._captures else terms.labels
        return numbers


def _check(epoch: int, values: dict[str, float], model: Model | GraphModel) -> None:
    """Raise where a number is not finite, and warn of clusters that were empty."""
    bad = [name for name, value in values.items() if not math.isfinite(value)]
    if bad:
        shown = ", ".join(f"{name} {value:g}" for name, value in values.items())
        raise TrainingError(
            f"epoch {epoch}: {', '.join(bad)} is not finite ({shown}). A smaller lr, or standardized features, may help"
        )
    if "n_nonempty" in values and model.centers is not None:
        warn_of_empty_clusters(int(values["n_nonempty"]), len(model.centers))
