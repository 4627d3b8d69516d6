"""A served model: an onnxruntime session, the columns of the model and its version."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.errors import BackendError, ModelFileError
from pamc.serving.schema import Inputs, RequestError, Schema

# Name of the model file in a run folder, and of the ONNX file, which is preferred if it is not older.
_MODEL, _EXPORTED = "model.safetensors", "model.onnx"

# Number of rows processed at a time, whose values fit into the cache of a processor.
_ROWS_AT_A_TIME = 1024


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model that assigns rows.

    Parameters
    ----------
    session
        An onnxruntime session.
    schema
        The columns that it expects.
    version
        First digits of the SHA-256 checksum of its ONNX file.
    n_clusters
        Number of clusters.
    """

    session: Any
    schema: Schema
    version: str
    n_clusters: int

    def assign(self, inputs: Inputs, *, probabilities: bool = False) -> dict[str, NDArray[Any]]:
        """Return `label` (n,) and `confidence` (n,), `noise` if the model has it, and `probabilities` on request."""
        present = {output.name for output in self.session.get_outputs()}
        names = [name for name in ("label", "confidence", "noise") if name in present]
        names += ["probabilities"] if probabilities else []
        n_rows = len(next(iter(inputs.values())))
        blocks = [slice(start, start + _ROWS_AT_A_TIME) for start in range(0, n_rows, _ROWS_AT_A_TIME)]
        parts = [self.session.run(names, {name: cells[block] for name, cells in inputs.items()}) for block in blocks]
        found = {name: np.concatenate([part[place] for part in parts]) for place, name in enumerate(names)}
        bad = ~np.isfinite(found["confidence"])
        if bad.any():
            raise RequestError(422, f"row {int(np.flatnonzero(bad)[0])} is too far from the training rows")
        return found


def read_model(path: Path, *, threads: int) -> ServedModel:
    """Return the model of an ONNX file or a run folder; the model of a run folder is exported in memory.

    If a run folder contains an ONNX file that is not older than its model, that file is read, and torch is not needed.
    """
    content = _content(path)
    try:
        import onnxruntime
    except ImportError:
        raise missing_package() from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Spinning threads would take processor time from the server.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelFileError(f"{path} is not an ONNX file that onnxruntime can read: {str(error)[:200]}") from None
    outputs = {output.name: output for output in session.get_outputs()}
    if not {"label", "confidence", "probabilities"} <= outputs.keys():
        raise ModelFileError(f"{path} was not written by pamc export: it has no label, confidence and probabilities")
    n_clusters = int(outputs["probabilities"].shape[1])
    return ServedModel(session, Schema.of_session(session), hashlib.sha256(content).hexdigest()[:12], n_clusters)


def missing_package() -> BackendError:
    """Return the BackendError with the command that installs the packages of the server."""
    return BackendError('serving needs fastapi, uvicorn, prometheus-client and onnxruntime: pip install "pamc[serve]"')


def stamp_of(path: Path) -> tuple[Any, ...] | None:
    """Return a stamp that changes if the model at a path is replaced; None if there is no model."""
    try:
        file = path if path.suffix == ".onnx" else path / _MODEL
        status = file.stat()
    except OSError:
        return None
    return os.path.realpath(path), status.st_ino, status.st_mtime_ns, status.st_size


def _content(path: Path) -> bytes:
    if path.suffix == ".onnx":
        if not path.is_file():
            raise ModelFileError(f"{path}: no such file; pass a run folder, or a file that `pamc export` wrote")
        return path.read_bytes()
    exported, model = path / _EXPORTED, path / _MODEL
    if exported.is_file() and (not model.is_file() or exported.stat().st_mtime_ns >= model.stat().st_mtime_ns):
        return exported.read_bytes()
    from pamc.estimator.export import exported_bytes
    from pamc.estimator.methods import load_model

    return exported_bytes(load_model(path, device="cpu")[0])
