"""The training loop."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pamc.errors import TrainingError
from pamc.losses.pamc import warn_of_empty_clusters
from pamc.models.base import GraphModel, LossTerms, Model
from pamc.models.loader import FeatureLoader
from pamc.ops.cuda_graph import Captured
from pamc.ops.dispatch import with_changes
from pamc.ops.group import count_rows, row_range
from pamc.runtime import seeded, threads_for
from pamc.training.engine import accumulate_gradient
from pamc.training.optimizer import adam, load_optimizer_state

if TYPE_CHECKING:
    from pamc.training.checkpoint import FileCheckpointer


# Number of epochs whose changes of labels are compared with the tolerance.
_STEADY_EPOCHS = 10


@dataclass(frozen=True)
class EpochRecord:
    """The values of one epoch, before its optimizer step.

    Parameters
    ----------
    epoch
        Number of the epoch, starting at 1.
    values
        `loss`, its parts, the monitors, and, for methods that assign in every epoch, `changed`: the share of labels
        that differ from the previous epoch.
    seconds
        Wall-clock time of the epoch, or the mean over epochs that are read together.
    labels
        (N,) assignment of the epoch. None for methods that assign only at the end, and, if several epochs are read
        together, for all but the final epoch.
    """

    epoch: int
    values: dict[str, float]
    seconds: float
    labels: Tensor | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, eq=False)
class TrainingState:
    """The complete state of training between two epochs.

    Parameters
    ----------
    records
        Records of the epochs so far, without labels.
    weights
        State dict of the model.
    optimizer
        Moments and steps of the optimizer, by name.
    labels
        (N,) labels of the last epoch, −1 for a method that assigns only at the end.
    """

    records: list[EpochRecord]
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    labels: Tensor

    @property
    def epoch(self) -> int:
        """Number of epochs so far."""
        return len(self.records)


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
    checkpointer: FileCheckpointer | None = None,
) -> Iterator[EpochRecord]:
    """Train the model and yield a record per epoch, which is one full-batch gradient and one Adam step.

    Training stops after `n_epochs`, or, with `tol` > 0, once the shares of labels that changed in the last ten epochs
    sum to at most `tol`, which is checked every ten epochs. DEC (Xie et al. 2016) checks every epoch by itself. True
    labels are never used. A loss that draws random numbers has a separate seed per epoch.

    No epoch synchronizes with the device: values are read once every `read_every` epochs while the next epochs run, so
    the model is ahead of the records, except with `tol`. On a GPU, an epoch of fixed shape is captured and replayed as
    a CUDA graph.

    With a `checkpointer`, training resumes from its `state`, whose records are yielded first, and the state is written
    whenever it is due. On a CPU the result is bitwise identical to that of an uninterrupted run.
    """
    if n_epochs == 0:
        return
    run_epoch = _Epoch(model, rows, lr=lr, chunk_size=chunk_size, seed=seed)
    records: list[EpochRecord] = []
    try:
        if checkpointer is not None:
            read_every = min(read_every, checkpointer.every or read_every)
            if checkpointer.state is not None:
                run_epoch.restore(checkpointer.state)
                records += checkpointer.state.records
                yield from records
        changed = deque([_changed(record) for record in records], maxlen=_STEADY_EPOCHS)
        if tol > 0:
            # The epoch after which training stops must be the last one of its batch.
            read_every = math.gcd(read_every, _STEADY_EPOCHS)
        last_read = time.perf_counter()
        epochs_left = range(len(records) + 1, n_epochs + 1)
        batches = _run_epochs(run_epoch, epochs_left, read_every, checkpointer, ahead=tol == 0)
        for epochs, numbers, labels, is_due in batches:
            now = time.perf_counter()
            seconds, last_read = (now - last_read) / len(epochs), now
            for epoch, row in zip(epochs, numbers, strict=True):
                values = dict(zip(run_epoch.names, row, strict=True))
                if "changed" in values:
                    # The device counts changed labels in integers; `tol` is compared with their share.
                    values["changed"] /= run_epoch.n_nodes
                _check(epoch, values, model)
                record = EpochRecord(epoch, values, seconds, labels if epoch == epochs[-1] else None)
                yield record
                if checkpointer is not None:
                    records.append(EpochRecord(epoch, values, seconds))
                changed.append(_changed(record))
                if tol > 0 and epoch % _STEADY_EPOCHS == 0 and sum(changed) <= tol:
                    return
            if checkpointer is not None and is_due:
                checkpointer.write(run_epoch.state(list(records)))
    finally:
        run_epoch.release()


def _changed(record: EpochRecord) -> float:
    """Return the share of labels that changed in an epoch; in the first one, there are no earlier labels."""
    return 0.0 if record.epoch == 1 else record.values.get("changed", math.inf)


def _run_epochs(
    run_epoch: _Epoch, epochs: range, read_every: int, checkpointer: FileCheckpointer | None, *, ahead: bool
) -> Iterator[tuple[range, list[list[float]], Tensor | None, bool]]:
    """Run the epochs and yield, for one or several at a time: epochs, values, labels, and whether a checkpoint is due.

    If several epochs are read together and may run `ahead`, the device already runs the next ones while their values
    are read, unless a checkpoint is due; labels then come with the final epoch only.
    """
    previous: tuple[range, _AsyncNumbers] | None = None
    # Batches end at multiples of `read_every`, also if training resumes between them.
    first = epochs.start
    for last in (epoch for epoch in epochs if epoch % read_every == 0 or epoch == epochs[-1]):
        batch, first = range(first, last + 1), last + 1
        # One transfer from the device for all of these epochs.
        numbers = _AsyncNumbers(torch.stack([run_epoch(epoch) for epoch in batch]))
        is_due = checkpointer is not None and checkpointer.due(batch[-1])
        if read_every == 1 or not ahead:
            yield batch, numbers.read(), run_epoch.labels, is_due
            continue
        if previous is not None:
            yield previous[0], previous[1].read(), None, False
        previous = batch, numbers
        if is_due and batch[-1] != epochs[-1]:
            yield batch, numbers.read(), None, True
            previous = None
    if previous is not None:
        yield previous[0], previous[1].read(), run_epoch.labels, is_due


class _AsyncNumbers:
    """Numbers that are copied from a device to the host asynchronously."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers.to("cpu", non_blocking=True)
        self._copied = None
        if numbers.device.type == "cuda":
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record(torch.cuda.current_stream(numbers.device))

    def read(self) -> list[list[float]]:
        """Wait for the copy and return the numbers."""
        if self._copied is not None:
            self._copied.synchronize()
        numbers: list[list[float]] = self._numbers.tolist()
        return numbers


class _Epoch:
    """Runs one epoch after another without synchronizing with the device.

    Calling it runs the next epoch and returns its values as a float64 tensor, in the order of `names`; `changed` is the
    number of labels that changed.
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
        self._optimizer = adam([p for p in model.parameters() if p.requires_grad], lr=lr)
        self._previous = torch.full((len(rows),), -1, dtype=torch.int64, device=rows.device)
        self._replay = Captured(lambda: self._run(0), device=rows.device, enabled=self._captures)
        self.names: tuple[str, ...] = ()
        self._labels: Tensor | None = None

    def __call__(self, epoch: int) -> Tensor:
        # Only a loss that draws random numbers needs the epoch number, and such a loss is never captured.
        if self._captures:
            return self._replay()
        with threads_for(self._model, len(self._rows), self._rows.device):
            return self._run(epoch)

    @property
    def labels(self) -> Tensor | None:
        """(N,) copy of the labels of the last epoch."""
        return None if self._labels is None else self._labels.clone()

    def state(self, records: list[EpochRecord]) -> TrainingState:
        """Return the state after the last epoch."""
        labels = self._group.gather_rows(self._previous, self.n_nodes)
        return TrainingState(records, self._model.state_dict(), self._optimizer.state_tensors(), labels)

    def restore(self, state: TrainingState) -> None:
        """Load a state, before any epoch has run."""
        self._model.load_state_dict(state.weights)
        load_optimizer_state(self._optimizer, state.optimizer)
        self._previous.copy_(state.labels[row_range(self.n_nodes, self._group.rank, self._group.size)])

    def release(self) -> None:
        """Free the memory of a captured epoch."""
        self._replay.release()

    def _run(self, epoch: int) -> Tensor:
        model = self._model
        self._optimizer.zero_grad(set_to_none=True)
        with seeded(self._seed, f"epoch {epoch}", self._rows.device) if model.draws else nullcontext():
            terms = accumulate_gradient(model, self._rows, chunk_size=self._chunk_size)
        self._optimizer.step()
        return self._numbers_of(terms)

    def _numbers_of(self, terms: LossTerms) -> Tensor:
        named = {"loss": terms.total, **terms.parts, **terms.monitors}
        numbers = terms.numbers
        if numbers is None:
            numbers = torch.stack([value.detach().to(terms.total.dtype) for value in named.values()])
        self.names = tuple(named)
        if terms.labels is None:
            return numbers.double()
        self.names += ("changed",)
        numbers = with_changes(numbers, terms.labels, self._previous)
        if self._group.size > 1:
            numbers = torch.cat([numbers[:-1], self._group.sum(numbers[-1:])])
        # A replayed epoch overwrites the memory of the previous one.
        self._labels = self._previous if self._captures else terms.labels
        return numbers


def _check(epoch: int, values: dict[str, float], model: Model | GraphModel) -> None:
    """Raise a TrainingError if a value is not finite, and warn of empty clusters."""
    not_finite = [name for name, value in values.items() if not math.isfinite(value)]
    if not_finite:
        text = ", ".join(f"{name} {value:g}" for name, value in values.items())
        raise TrainingError(
            f"epoch {epoch}: {', '.join(not_finite)} is not finite ({text}). A smaller lr, or standardized features, "
            "may help"
        )
    if "n_nonempty" in values and model.centers is not None:
        warn_of_empty_clusters(int(values["n_nonempty"]), len(model.centers))
