"""The record of a run: the method, the data, the selection of the result, and its scores."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.initialize.noise import without_noise
from pamc.runtime import environment
from pamc.training.constants import fit_constants
from pamc.training.fallback import INITIAL_RETURNED, TRAINING_UNDONE
from pamc.training.phases import Fit

# Attributes that are copied from the fit.
_COPIED = ("method", "seed", "device", "seconds", "facts", "history", "scores")


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The record of one run, as stored in `run.json`.

    Parameters
    ----------
    method, data, seed, config
        Name of the method, facts about the data, random seed, and all settings.
    constants
        Constants that affect a fit but are not settings, by module and name.
    selection
        Rule by which the reported epoch was selected. "last" needs no labels; the "oracle" rules need them and exist
        only for comparison with published results.
    device
        Device of the run.
    n_epochs_run, stopped
        Number of epochs trained, and why training stopped.
    seconds
        Wall-clock time by phase.
    facts
        Facts and decisions recorded during the run.
    history
        Values of every epoch, by name.
    cluster_sizes
        Number of rows per cluster, without noise.
    scores
        Label-free scores of the result.
    metrics
        Label metrics if true labels were given; else None.
    warnings
        Warnings issued during the run.
    environment
        Versions, machine and commit.
    command
        Command or call that repeats the run, if known.
    """

    method: str
    data: dict[str, Any]
    seed: int
    config: dict[str, Any]
    device: str
    n_epochs_run: int
    stopped: str
    seconds: dict[str, float]
    facts: dict[str, Any]
    history: dict[str, list[float]]
    cluster_sizes: list[int]
    scores: dict[str, float]
    environment: dict[str, Any]
    selection: str = "last"
    metrics: dict[str, float] | None = None
    warnings: list[str] = field(default_factory=list)
    command: str | None = None
    constants: dict[str, Any] = field(default_factory=dict)
    format_version: int = 1

    def to_json(self) -> str:
        """Return the record as a JSON object, with keys in the order of their definition."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False, allow_nan=False)

    @classmethod
    def of(
        cls, fit: Fit, *, data: dict[str, Any], metrics: dict[str, float] | None = None, command: str | None = None
    ) -> RunRecord:
        """Return the record of a fit at its last epoch."""
        n_epochs_run = len(fit.history.get("loss", []))
        copies: Any = {name: getattr(fit, name) for name in _COPIED}
        return cls(
            **copies,
            data=data,
            config=fit.config.to_dict(),
            n_epochs_run=n_epochs_run,
            stopped=_why_stopped(fit, n_epochs_run),
            cluster_sizes=np.bincount(_in_clusters(fit), minlength=fit.config.n_clusters).tolist(),
            environment=environment(),
            metrics=metrics,
            warnings=list(fit.warnings),
            command=command,
            constants=fit_constants(),
        )

    @classmethod
    def from_json(cls, text: str) -> RunRecord:
        """Return the record that :meth:`to_json` wrote."""
        return cls(**json.loads(text))


def _in_clusters(fit: Fit) -> NDArray[np.int64]:
    """Return the clusters of the rows that are not noise."""
    labels = without_noise(fit.labels, fit.noise)
    return labels[labels >= 0]


def _why_stopped(fit: Fit, n_epochs_run: int) -> str:
    if fit.facts.get("fallback") == INITIAL_RETURNED:
        return "training nearly emptied a cluster and was undone"
    if fit.facts.get("fallback") == TRAINING_UNDONE:
        return "training lowered the score of the clusters and was undone"
    return "all epochs run" if n_epochs_run == getattr(fit.config, "n_epochs", 0) else "labels stopped changing"
