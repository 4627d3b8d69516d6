"""Training that can fall back to its initialization, and the current assignments of a model."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamc.errors import CollapseWarning, ConfigError, collected_warnings, warn
from pamc.initialize.base import InitResult, initial_centers
from pamc.losses.clustering import log_soft_assignment
from pamc.models.base import Model
from pamc.models.loader import FeatureLoader, encode_chunk, encode_rows
from pamc.models.method import AnyModel
from pamc.ops.group import count_rows
from pamc.ops.scores import comparable_proxy
from pamc.progress import Progress
from pamc.training.checkpoint import FileCheckpointer
from pamc.training.phases import check_embedding
from pamc.training.trainer import EpochRecord, train


@dataclass(frozen=True)
class Epoch:
    """An epoch, as passed to a callback.

    Parameters
    ----------
    number
        Number of the epoch, starting at 1.
    values
        The loss, its parts and the monitored quantities of the epoch, by name, as in `history_`.
    labels
        Function that returns the labels (N,) of the epoch.
    """

    number: int
    values: Mapping[str, float]
    labels: Callable[[], NDArray[np.int64]]


# Training callback, which is called after each epoch.
OnEpoch: TypeAlias = Callable[[Epoch], None]

# Maximum number of values displayed next to the progress bar.
_N_SHOWN = 5

# Number of epochs whose values are copied from a GPU together.
_READ_EVERY = 20

# Rows assigned at a time: memory stays bounded, and the encoder runs at full speed.
LABELED_AT_A_TIME = 16384

# Name of the paper's initializer.
PAPER_START = "autoencoder"

# Names of the fallbacks without training, used if training nearly emptied a cluster twice or made the clusters worse.
INITIAL_RETURNED = "the initial clusters"
TRAINING_UNDONE = "the initial clusters, which have a better score"

# A cluster is nearly empty if its size falls below this share of its initial size or below this number of rows.
_LEAST_SHARE = 0.2
_LEAST_ROWS = 2

# Training is undone if it lowers the score of the clusters by more than this.
_TOLERANCE = 0.05


def as_callbacks(on_epoch: Any) -> list[OnEpoch]:
    """Return the callbacks of a fit as a list, which is empty for None."""
    callbacks = [] if on_epoch is None else list(on_epoch) if isinstance(on_epoch, list | tuple) else [on_epoch]
    for callback in callbacks:
        if not callable(callback):
            raise ConfigError(f"on_epoch must be a function of an epoch, or a list of functions, got {callback!r}")
    return callbacks


def together(callbacks: list[OnEpoch]) -> OnEpoch | None:
    """Return one callback that calls all callbacks in order; None if there are none."""
    if len(callbacks) < 2:
        return callbacks[0] if callbacks else None

    def on_epoch(epoch: Epoch) -> None:
        for callback in callbacks:
            callback(epoch)

    return on_epoch


class Outcome(NamedTuple):
    """The outcome of training.

    Parameters
    ----------
    history
        The record of each epoch; empty if training was undone.
    fallback
        Name of the fallback that was used; None if there was no need for one.
    facts
        Label-free scores of the clusters before and after training, as plain values; empty without a judge.
    """

    history: list[EpochRecord]
    fallback: str | None
    facts: dict[str, object]


def train_with_fallback(
    model: AnyModel,
    rows: FeatureLoader,
    config: Any,
    init: InitResult | None,
    progress: Progress,
    *,
    seed: int,
    on_epoch: OnEpoch | None,
    checkpointer: FileCheckpointer | None = None,
) -> Outcome:
    """Train the model, unless its initial clusters are better than what training makes of them.

    If training nearly empties a cluster of the initialization, it restarts at a tenth of the learning rate. If that
    nearly empties a cluster too, or if the trained clusters have a lower score than the initial ones, the result is the
    initialization itself, without any epochs. With the paper's initializer there is no fallback, as in the paper.
    `on_epoch` is called for the returned epochs only: as each one ends, or, where training may be undone, after the
    attempt has succeeded.
    """
    n_epochs, lr = getattr(config, "n_epochs", 0), getattr(config, "lr", 0.0)
    can_fall_back = init is not None and getattr(config, "init", PAPER_START) != PAPER_START and n_epochs > 0
    if can_fall_back:
        weights = copy.deepcopy(model.state_dict())
        before = _current_labels(model, rows, config, 0)
    for attempt, (rate, fallback) in enumerate(((lr, None), (lr / 10, "a tenth of the learning rate"))):
        if checkpointer is not None and not checkpointer.enter(attempt):
            continue
        history: list[EpochRecord] = []
        watched: list[NDArray[np.integer[Any]]] = []
        with progress.phase("training", n_epochs) as phase, collected_warnings() as caught:
            for record in train_epochs(
                model,
                rows,
                config,
                n_epochs=n_epochs,
                lr=rate,
                seed=seed,
                watched=on_epoch is not None,
                checkpointer=checkpointer,
            ):
                history.append(record)
                phase.advance(**dict(list(record.values.items())[:_N_SHOWN]))
                if on_epoch is not None:
                    labels = _labels_of(record, model, rows, config, seed)
                    if can_fall_back:
                        watched.append(labels().astype(np.min_scalar_type(config.n_clusters)))
                    else:
                        on_epoch(Epoch(record.epoch, record.values, labels))
        facts: dict[str, object] = {}
        if can_fall_back:
            after = _current_labels(model, rows, config, len(history))
            if _drains(before, after, config.n_clusters, getattr(model, "sample_weight", None)):
                model.load_state_dict(weights)
                continue
            is_worse, facts = _compared(init, before, after, model)
            if is_worse:
                model.load_state_dict(weights)
                return Outcome([], TRAINING_UNDONE, facts)
        for warning in caught:
            warn(warning, stacklevel=3)
        if on_epoch is not None:
            for record, compact in zip(history, watched, strict=False):
                on_epoch(Epoch(record.epoch, record.values, partial(compact.astype, np.int64)))
        return Outcome(history, fallback, facts)
    warn(
        CollapseWarning(
            "training nearly emptied a cluster, even at a tenth of the learning rate: the initial clusters are returned"
        ),
        stacklevel=3,
    )
    return Outcome([], INITIAL_RETURNED, {})


def _drains(before: Tensor, after: Tensor, n_clusters: int, sample_weight: Tensor | None = None) -> bool:
    """Return whether a cluster lost most of its rows, from the labels (N,) before and after training."""
    old, new = (torch.bincount(labels, sample_weight, minlength=n_clusters) for labels in (before, after))
    least = (old * _LEAST_SHARE).ceil().clamp(min=_LEAST_ROWS)
    return bool((new < torch.minimum(old, least)).any())


def _compared(
    init: InitResult | None, before: Tensor, after: Tensor, model: AnyModel
) -> tuple[bool, dict[str, object]]:
    """Return whether the clusters after training have a lower score than those before it, and the scores as facts.

    In a process group, rank 0 has the judge and decides for all processes.
    """
    judge = None if init is None else init.judge
    facts: dict[str, object] = {}
    is_worse = False
    if judge is not None:
        old, new = (judge.score(labels.cpu().numpy()) for labels in (before, after))
        facts = {"score_before": old.value, "score_after": new.value}
        is_worse = new.value < old.value - _TOLERANCE
    decision = torch.tensor([float(is_worse)], device=before.device)
    return bool(model.group.sum(decision)), facts


def _current_labels(model: AnyModel, rows: FeatureLoader, config: Any, n_epochs_run: int) -> Tensor:
    """Return the current clusters (N,) of all rows, those of other processes included."""
    when = f"after epoch {n_epochs_run}"
    if isinstance(model, Model) and model.centers is not None and model.group.size == 1:
        return labeled(model, rows, config, when=when)[1]
    z, q, _ = read_model(model, rows, config, seed=0)
    check_embedding(q, len(z), when, "A smaller lr")
    return q.argmax(dim=1)


@torch.no_grad()
def labeled(model: Model, rows: FeatureLoader, config: Any, *, when: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return z (N, n_dims), labels (N,) and confidence (N,) of a model with centers.

    Soft assignments are in memory for one chunk at a time. `when` is the part of an error message that says at which
    point an embedding was not finite.
    """
    centers: Tensor = model.centers  # type: ignore[assignment]
    chunks: tuple[list[Tensor], ...] = ([], [], [])
    for chunk, block in rows.chunks(getattr(config, "chunk_size", None) or LABELED_AT_A_TIME):
        z = encode_chunk(model.encoder, chunk, block)
        q = log_soft_assignment(z, centers, eta=getattr(config, "eta", 1.0)).exp()
        check_embedding(q, len(z), when, "A smaller lr")
        for values, value in zip(chunks, (z, *q.max(dim=1)[::-1]), strict=True):
            values.append(value)
    z, labels, confidence = (torch.cat(values) for values in chunks)
    return z, labels, confidence


def train_epochs(
    model: AnyModel,
    rows: FeatureLoader,
    config: Any,
    *,
    n_epochs: int,
    lr: float,
    seed: int,
    watched: bool = True,
    checkpointer: FileCheckpointer | None = None,
) -> Iterator[EpochRecord]:
    """Yield the records of training; on a GPU, epochs that no callback watches are read several at a time."""
    return train(
        model,
        rows,
        n_epochs=n_epochs,
        lr=lr,
        tol=getattr(config, "tol", 0.0),
        chunk_size=getattr(config, "chunk_size", None),
        seed=seed,
        read_every=1 if watched or rows.device.type == "cpu" else _READ_EVERY,
        checkpointer=checkpointer,
    )


@torch.no_grad()
def read_model(model: AnyModel, rows: FeatureLoader, config: Any, *, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the current z (N, n_dims), q (N, C) and centers (C, n_dims) of a model; missing centers are K-means'."""
    chunk_size = getattr(config, "chunk_size", None)
    if isinstance(model, Model):
        z, q = encode_rows(model.encoder, rows, chunk_size=chunk_size or LABELED_AT_A_TIME), None
        z = model.group.gather_rows(z, count_rows(len(z), model.group))
    else:
        reading = model.read(rows.whole())
        z, q = reading.z, reading.q
    centers = model.centers
    if centers is None:
        centers, _ = initial_centers(z, config, seed=seed)
    if q is None:
        q = log_soft_assignment(z, centers, eta=getattr(config, "eta", 1.0)).exp()
    return z, q, centers


def _labels_of(
    record: EpochRecord, model: AnyModel, rows: FeatureLoader, config: Any, seed: int
) -> Callable[[], NDArray[np.int64]]:
    """Return a function that computes the labels of an epoch: its assignment, or K-means on the embedding after it."""

    def labels() -> NDArray[np.int64]:
        of_epoch = record.labels
        if of_epoch is None:
            of_epoch = read_model(model, rows, config, seed=seed)[1].argmax(dim=1)
        result: NDArray[np.int64] = of_epoch.cpu().numpy()
        return result

    return labels


def objective_score(history: list[EpochRecord], config: Any) -> dict[str, float]:
    """Return Eq 12 of the last epoch in a form that is comparable across fits: a lost cluster does not lower it."""
    values = history[-1].values if history else {}
    if not values.keys() >= {"positive", "proxy", "kl", "n_nonempty"}:
        return {}
    proxy = comparable_proxy(values["proxy"], int(values["n_nonempty"]))
    value = config.alpha * (values["positive"] + proxy) + config.beta * values["kl"]
    return {"objective": value} if math.isfinite(value) else {}


def by_name(history: list[EpochRecord]) -> dict[str, list[float]]:
    """Return every value of every epoch, by name."""
    names = history[0].values if history else {}
    return {name: [record.values[name] for record in history] for name in names}
