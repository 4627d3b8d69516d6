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
from pamc.models.base import GraphModel, LossTerms, Model
from pamc.models.rows import FeatureRows
from pamc.runtime import seeded
from pamc.training.engine import accumulate_gradient

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
        Wall-clock time of the epoch.
    labels
        (N,) assignment of the epoch; None for methods that assign once, at the end.
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
) -> Iterator[EpochRecord]:
    """Yield a record per epoch while the model learns: one full-batch gradient and one Adam step each.

    Stops after `n_epochs`, or, with `tol` > 0, once the share of labels that changed is at most `tol`, as in DEC
    (Xie et al. 2016). No label of the user's is seen here. A loss that draws random numbers draws them in each epoch
    from a seed of that epoch.
    """
    if n_epochs == 0:
        return
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr, fused=True)
    previous: Tensor | None = None
    for epoch in range(1, n_epochs + 1):
        started = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with seeded(seed, f"epoch {epoch}", rows.device) if model.draws else nullcontext():
            terms = accumulate_gradient(model, rows, chunk_size=chunk_size)
        values = _read(terms, previous)
        _check_finite(epoch, values)
        optimizer.step()
        previous = terms.labels
        yield EpochRecord(epoch, values, time.perf_counter() - started, terms.labels)
        if epoch > 1 and tol > 0 and values.get("changed", math.inf) <= tol:
            return


def _read(terms: LossTerms, previous: Tensor | None) -> dict[str, float]:
    """Return all numbers of an epoch, fetched from the device at once."""
    labels = terms.labels
    named = {"loss": terms.total, **terms.parts, **terms.monitors}
    if labels is not None:
        named["changed"] = labels.new_ones(()) if previous is None else (labels != previous).double().mean()
    numbers = torch.stack([value.detach().double() for value in named.values()]).tolist()
    return dict(zip(named, numbers, strict=True))


def _check_finite(epoch: int, values: dict[str, float]) -> None:
    bad = [name for name, value in values.items() if not math.isfinite(value)]
    if bad:
        shown = ", ".join(f"{name} {value:g}" for name, value in values.items())
        raise TrainingError(
            f"epoch {epoch}: {', '.join(bad)} is not finite ({shown}). A smaller lr, or standardized features, may help"
        )
