"""The only training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pamc.errors import TrainingError
from pamc.losses.pamc import warn_of_empty_clusters
from pamc.models.base import GraphModel, LossTerms, Model
from pamc.models.rows import FeatureRows
from pamc.ops.changes import with_changes
from pamc.runtime import seeded
from pamc.training.capture import Captured
from pamc.training.engine import accumulate_gradient
from pamc.training.optimizer import adam

__all__ = ["EpochRecord", "train"]


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


def train(
    model: Model | GraphModel,
    rows: FeatureRows,
    *,
    n_epochs: int,
    lr: float,
    tol: float = 0.0,
    chunk_size: int | None = None,
    seed: int = 0,
    read_every: int = 1,
) -> Iterator[EpochRecord]:
    """Yield a record per epoch while the model learns: one full-batch gradient and one Adam step each.

    Stops after `n_epochs`, or, with `tol` > 0, once the share of labels that changed is at most `tol`, as in DEC
    (Xie et al. 2016). No label of the user's is seen here. A loss that draws random numbers draws them in each epoch
    from a seed of that epoch.

    Nothing in an epoch waits for a value of it: numbers are read once every `read_every` epochs (every epoch, with
    `tol`), while the next ones run: the model is then ahead of the records. On a GPU an epoch of a fixed shape is
    captured and replayed as one graph of kernels.
    """
    if n_epochs == 0:
        return
    epoch_of = _Epoch(model, rows, lr=lr, chunk_size=chunk_size, seed=seed)
    try:
        yield from _records(epoch_of, model, n_epochs=n_epochs, tol=tol, read_every=1 if tol > 0 else read_every)
    finally:
        epoch_of.release()


def _records(
    epoch_of: _Epoch, model: Model | GraphModel, *, n_epochs: int, tol: float, read_every: int
) -> Iterator[EpochRecord]:
    last_read = time.perf_counter()
    for together, read, labels in _ran(epoch_of, n_epochs=n_epochs, read_every=read_every):
        now = time.perf_counter()
        seconds, last_read = (now - last_read) / len(together), now
        for epoch, numbers in zip(together, read, strict=True):
            values = dict(zip(epoch_of.names, numbers, strict=True))
            if "changed" in values:
                # Counted on the device, in numbers that are whole; a share may have to be compared with `tol`.
                values["changed"] /= epoch_of.n_nodes
            _check(epoch, values, model)
            yield EpochRecord(epoch, values, seconds, labels if epoch == together[-1] else None)
            if epoch > 1 and tol > 0 and values.get("changed", math.inf) <= tol:
                return


def _ran(
    epoch_of: _Epoch, *, n_epochs: int, read_every: int
) -> Iterator[tuple[range, list[list[float]], Tensor | None]]:
    """Yield the epochs that ran, some at a time, with their numbers and the labels of the last of them.

    Where several are read together, the device has the next ones to do by the time their numbers are read, and labels
    come with the last of all epochs alone.
    """
    before: tuple[range, _OnTheWay] | None = None
    for first in range(1, n_epochs + 1, read_every):
        together = range(first, min(first + read_every, n_epochs + 1))
        # One trip from the device for all of them.
        numbers = _OnTheWay(torch.stack([epoch_of(epoch) for epoch in together]))
        if read_every == 1:
            yield together, numbers.read(), epoch_of.labels
            continue
        if before is not None:
            yield before[0], before[1].read(), None
        before = together, numbers
    if before is not None:
        yield before[0], before[1].read(), epoch_of.labels


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
        self, model: Model | GraphModel, rows: FeatureRows, *, lr: float, chunk_size: int | None, seed: int
    ) -> None:
        self._model, self._rows, self._chunk_size, self._seed = model, rows, chunk_size, seed
        self.n_nodes = len(rows)
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
