"""Callbacks for `fit(X, on_epoch=…)` that log fits to MLflow and TensorBoard.

A callback is called with an :class:`~pamc.training.fallback.Epoch` for each epoch. If it has a method `on_end`, that
method is called once, with the fitted model.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from pamc.errors import BackendError
from pamc.training.fallback import Epoch


class MLflowLogger:
    """Log a fit to MLflow: the values of each epoch and, at the end, settings, scores, sizes and the run folder.

    The fit is logged to the active run of MLflow or, if there is none, to a new one, which ends with the fit.

    Parameters
    ----------
    every
        Log only epochs whose number is a multiple of this; `history_` in the run folder contains the others too.
    artifacts
        Whether to store the run folder as the artifact "pamc", which :meth:`pamc.PamCGC.load` reads.

    Examples
    --------
    >>> from pamc import PamCGC
    >>> PamCGC(3).fit(X, on_epoch=MLflowLogger())  # doctest: +SKIP
    """

    def __init__(self, *, every: int = 1, artifacts: bool = True) -> None:
        self.every = every
        self.artifacts = artifacts
        self._mlflow = _imported("mlflow", "mlflow")
        self._owns_run = False

    def __call__(self, epoch: Epoch) -> None:
        """Log the values of an epoch."""
        if epoch.number % self.every == 0:
            self._begin()
            self._mlflow.log_metrics(dict(epoch.values), step=epoch.number)

    def on_end(self, model: Any) -> None:
        """Log settings, scores and the run folder of a fitted model."""
        self._begin()
        record = model.record()
        self._mlflow.log_params({"method": record.method, "seed": record.seed, **_settings(record.config)})
        self._mlflow.set_tag("pamc.stopped", record.stopped)
        self._mlflow.log_metrics({**record.scores, "mean_confidence": float(model.confidence_.mean())})
        for cluster, size in enumerate(record.cluster_sizes):
            self._mlflow.log_metric("cluster_size", size, step=cluster)
        if self.artifacts:
            with tempfile.TemporaryDirectory() as folder:
                model.save(Path(folder) / "pamc", record=record)
                self._mlflow.log_artifacts(str(Path(folder) / "pamc"), artifact_path="pamc")
        if self._owns_run:
            self._mlflow.end_run()
            self._owns_run = False

    def _begin(self) -> None:
        if self._mlflow.active_run() is None:
            self._mlflow.start_run(run_name="pamc")
            self._owns_run = True


class TensorBoardLogger:
    """Log a fit to TensorBoard: the values of each epoch and, at the end, settings, scores and the embedding.

    Parameters
    ----------
    folder
        Folder to write the log to; `tensorboard --logdir` reads it.
    every
        Log only epochs whose number is a multiple of this.
    embedding
        Whether to write the embedding and the labels for TensorBoard's projector.

    Examples
    --------
    >>> from pamc import PamCGC
    >>> PamCGC(3).fit(X, on_epoch=TensorBoardLogger("runs/first"))  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path, *, every: int = 1, embedding: bool = True) -> None:
        self.folder = Path(folder)
        self.every = every
        self.embedding = embedding
        self._package = _imported("torch.utils.tensorboard", "tensorboard")
        self._open: Any = None

    def __call__(self, epoch: Epoch) -> None:
        """Log the values of an epoch."""
        if epoch.number % self.every == 0:
            for name, value in epoch.values.items():
                self._writer.add_scalar(f"pamc/{name}", value, epoch.number)

    def on_end(self, model: Any) -> None:
        """Log settings, scores and the embedding of a fitted model, and close the log."""
        record, writer = model.record(), self._writer
        writer.add_text("pamc/settings", "\n".join(f"    {name}: {value}" for name, value in record.config.items()))
        for name, value in record.scores.items():
            writer.add_scalar(f"pamc/{name}", value, record.n_epochs_run)
        writer.add_histogram("pamc/confidence", model.confidence_, record.n_epochs_run)
        if self.embedding:
            writer.add_embedding(model.embedding_, metadata=model.labels_.tolist(), tag="pamc")
        writer.close()
        self._open = None

    @property
    def _writer(self) -> Any:
        if self._open is None:
            self._open = self._package.SummaryWriter(str(self.folder))
        return self._open


def _settings(config: dict[str, Any]) -> dict[str, str]:
    """Return the settings as MLflow's parameters."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in config.items()}


def _imported(module: str, extra: str) -> Any:
    """Import a module of an optional package; raise BackendError that names the extra if it is missing."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise BackendError(f'logging needs the package {extra}: pip install "pamc[{extra}]" ({error})') from error
