"""Checkpoints, from which an interrupted fit resumes; on a CPU the result is bitwise identical.

A checkpoint folder holds the initialization, once it is computed, and the two most recent training states. Each file is
written under a temporary name, flushed to disk and renamed, so an incomplete file never has its final name. If a file
is damaged nevertheless, its checksum reveals it and the previous checkpoint is used. Tensors are stored in safetensors
files and plain values as JSON in their header; nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.store import Store
from pamc.errors import ConfigError, DataError, DataWarning, OutputError, warn
from pamc.graph.adjacency import Adjacency
from pamc.initialize.base import InitResult
from pamc.initialize.calibration import SplitHalfFits
from pamc.models.layers import MLP
from pamc.ops.group import SINGLE_PROCESS, ProcessGroup
from pamc.runtime import generator, on_tensor_cores, resolve_dtype
from pamc.training.constants import fit_constants
from pamc.training.trainer import EpochRecord, TrainingState

# Name prefixes of the files of a store that a fit reads.
_FITTED_FILES = ("features", "indptr", "indices", "weight")

# Name of the checkpoint folder inside an unfinished run folder.
FOLDER = "checkpoints"

# Epochs between two checkpoints when only `--resume` is given.
DEFAULT_EVERY = 10

_VERSION = 1
_START = "start.safetensors"
_N_KEPT = 2
_WRITING = ".writing"

# Arrays up to this size are hashed in full; larger ones in evenly spaced pieces.
_FINGERPRINT_BYTES = 1 << 30
_PIECE_BYTES = 1 << 20

# Integer types of stored labels, narrowest first.
_LABEL_TYPES = (torch.int8, torch.int16, torch.int32)


class Found(NamedTuple):
    """A training state, and the attempt (0, or 1 at the reduced learning rate) that it belongs to."""

    attempt: int
    state: TrainingState


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoint folder of one fit.

    Parameters
    ----------
    folder
        Path of the folder, which is created if it does not exist.
    about
        Values that must match for a fit to resume: method, settings, constants, seed and fingerprint of the data.
    """

    folder: Path
    about: Mapping[str, Any]

    def write_start(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Write the initialization."""
        _write(self.folder / _START, tensors, {"about": dict(self.about), "facts": dict(facts)})

    def read_start(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the tensors and facts of the initialization, or None if the file is missing or damaged.

        Raises
        ------
        ConfigError, DataError
            If the checkpoint was written with other settings, or for other data.
        """
        path = self.folder / _START
        try:
            tensors, description = _read(path)
        except FileNotFoundError:
            return None
        except _DamagedError as error:
            warn(DataWarning(f"{path} is damaged ({error}): the fit begins anew"), stacklevel=2)
            return None
        self._check(path, description["about"])
        facts: dict[str, Any] = description["facts"]
        return tensors, facts

    def write(self, attempt: int, state: TrainingState) -> None:
        """Write a training state, and delete all earlier ones except the most recent."""
        tensors = {
            **{f"model.{name}": tensor for name, tensor in state.weights.items()},
            **{f"optimizer.{name}": tensor for name, tensor in state.optimizer.items()},
            "labels": _narrow(state.labels),
        }
        description = {
            "about": dict(self.about),
            "attempt": attempt,
            "names": list(state.records[-1].values),
            "values": [list(record.values.values()) for record in state.records],
            "seconds": [record.seconds for record in state.records],
        }
        _write(self.folder / f"{attempt}-{state.epoch:07d}.safetensors", tensors, description)
        for old in self._states()[_N_KEPT:]:
            old.unlink()

    def newest(self) -> Found | None:
        """Return the newest readable training state, or None if there is none."""
        for path in self._states():
            try:
                tensors, description = _read(path)
            except (FileNotFoundError, _DamagedError) as error:
                warn(DataWarning(f"{path} is damaged ({error}): the one before is taken"), stacklevel=2)
                continue
            self._check(path, description["about"])
            names = description["names"]
            records = [
                EpochRecord(epoch, dict(zip(names, values, strict=True)), seconds)
                for epoch, (values, seconds) in enumerate(
                    zip(description["values"], description["seconds"], strict=True), start=1
                )
            ]
            weights, optimizer = (_under(prefix, tensors) for prefix in ("model.", "optimizer."))
            state = TrainingState(records, weights, optimizer, tensors["labels"].long())
            return Found(description["attempt"], state)
        return None

    def clear(self) -> None:
        """Delete all training states, because they belong to another initialization."""
        for path in self._states():
            path.unlink()

    def _states(self) -> list[Path]:
        """Return the files of the training states, newest first."""
        return sorted(self.folder.glob("[0-9]-*.safetensors"), reverse=True)

    def _check(self, path: Path, about: Mapping[str, Any]) -> None:
        """Raise an error that names the differences if a checkpoint belongs to another fit."""
        if about["data"] != self.about["data"]:
            raise DataError(
                f"{path} is of other data than those given now: name the same rows and edges, or remove the folder "
                f"{self.folder.parent} to begin anew"
            )
        before, now = (
            {**fit["config"], **fit.get("constants", {}), "seed": fit["seed"], "method": fit["method"]}
            for fit in (about, self.about)
        )
        changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        if changed:
            changes = ", ".join(f"{name} {before.get(name)!r}, now {now.get(name)!r}" for name in changed[:3])
            raise ConfigError(
                f"{path} is of a fit with other settings ({changes}): give the same, or remove the folder "
                f"{self.folder.parent} to begin anew"
            )


class FileCheckpointer:
    """Decides when a training state is due and writes it; in a process group only rank 0 writes.

    Parameters
    ----------
    checkpoints
        The folder to write to; None for a process that does not write.
    every, minutes
        Interval between two checkpoints in epochs and in minutes; with both, whichever ends first counts.
    found
        The training state to resume from, or None.
    group
        The process group that trains together.
    """

    def __init__(
        self,
        checkpoints: Checkpoints | None,
        *,
        every: int | None,
        minutes: float | None,
        found: Found | None = None,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        self._checkpoints, self._every, self._minutes, self._group = checkpoints, every, minutes, group
        self._resumed, self._attempt = found, 0
        self._last_epoch, self._last_time = 0, time.monotonic()
        self.found: TrainingState | None = None

    @property
    def schedule(self) -> tuple[int | None, float | None]:
        """Interval between two checkpoints: epochs, minutes."""
        return self._every, self._minutes

    @property
    def resumed(self) -> Found | None:
        """Training state that the fit resumes from, or None."""
        return self._resumed

    def enter(self, attempt: int) -> bool:
        """Begin a training attempt; return False if the checkpoint shows that it is already over."""
        self._attempt, self._last_epoch, self.found = attempt, 0, None
        if self._resumed is None:
            return True
        if attempt == self._resumed.attempt:
            self.found = self._resumed.state
            self._last_epoch = self.found.epoch
        return attempt >= self._resumed.attempt

    def most_epochs(self) -> int | None:
        """Return the largest number of epochs between two calls of :meth:`due`."""
        return self._every

    def due(self, epoch: int) -> bool:
        """Return whether the state after an epoch is to be written."""
        due = self._every is not None and epoch - self._last_epoch >= self._every
        if not due and self._minutes is not None:
            # Clocks differ, so rank 0 decides for all processes.
            late = time.monotonic() - self._last_time >= 60 * self._minutes
            due = bool(self._group.sum(torch.tensor(float(late and self._group.rank == 0))))
        return due

    def keep(self, state: TrainingState) -> None:
        """Write a training state."""
        if self._checkpoints is not None:
            self._checkpoints.write(self._attempt, state)
        self._last_epoch, self._last_time = state.epoch, time.monotonic()


def has_checkpoints(folder: Path) -> bool:
    """Return whether a fit can resume from a folder."""
    return (folder / _START).is_file()


def check_schedule(every: int | None, minutes: float | None) -> None:
    """Raise a ConfigError if an interval is not a positive number of epochs or minutes."""
    if every is not None and every < 1:
        raise ConfigError(f"--checkpoint-every must be a number of epochs of at least 1, got {every}")
    if minutes is not None and not (0 < minutes < math.inf):
        raise ConfigError(f"--checkpoint-minutes must be a number above 0, got {minutes}")


def fingerprint(graph: AttributedGraph) -> str:
    """Return a hash of the rows, edges and edge weights of a graph; labels do not enter it.

    Arrays above 1 GiB are sampled in evenly spaced pieces. O(bytes) time up to that size.
    """
    features: Any = graph.features
    arrays = [features] if isinstance(features, np.ndarray) else [features.data, features.indices, features.indptr]
    arrays += [array for array in (graph.edges, graph.edge_weight) if array is not None]
    digest = hashlib.sha256(str(features.shape).encode())
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        flat = array.reshape(-1) if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(-1)
        for piece in _spread(flat):
            digest.update(np.ascontiguousarray(piece).data)
    return digest.hexdigest()[:32]


def store_fingerprint(store: Store) -> str:
    """Return the fingerprint of a store: a hash of the checksums of its files, except those of labels and ids."""
    files = store.manifest["files"]
    checksums = [f"{name} {files[name]['sha256']}" for name in sorted(files) if name.startswith(_FITTED_FILES)]
    return hashlib.sha256("\n".join(checksums).encode()).hexdigest()[:32]


def _spread(flat: Any) -> list[Any]:
    """Return a flat array, or evenly spaced pieces of a large one that include both of its ends."""
    if flat.nbytes <= _FINGERPRINT_BYTES:
        return [flat]
    size, n_pieces = _PIECE_BYTES // flat.itemsize, _FINGERPRINT_BYTES // _PIECE_BYTES
    starts = np.linspace(0, len(flat) - size, n_pieces).astype(np.int64)
    return [flat[start : start + size] for start in starts]


class _DamagedError(Exception):
    """A file differs from what was written."""


def _write(path: Path, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
    """Write a file atomically: its final name appears only once the complete file is on disk."""
    stored = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(description, allow_nan=False)
    metadata = {"version": str(_VERSION), "description": text, "sha256": checksum_of(stored, text)}
    partial = path.with_name(path.name + _WRITING)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left_over in path.parent.glob(f"*{_WRITING}"):
            left_over.unlink()
        save_file(stored, partial, metadata=metadata)
        _to_disk(partial)
        partial.replace(path)
        _to_disk(path.parent)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise OutputError(f"cannot write the checkpoint {path}: {error}") from None


def _to_disk(path: Path) -> None:
    """Flush a file or a folder to disk; do nothing on systems that cannot flush folders."""
    try:
        opened = os.open(path, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the description that a file holds, after checking its version and checksum."""
    if not path.is_file():
        raise FileNotFoundError(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise _DamagedError(" ".join(str(error).split())) from None
    if metadata.get("version") != str(_VERSION):
        raise _DamagedError(f"format version {metadata.get('version')}, this pamc reads {_VERSION}")
    text = metadata.get("description", "")
    if checksum_of(tensors, text) != metadata.get("sha256"):
        raise _DamagedError("its checksum does not match")
    description: dict[str, Any] = json.loads(text)
    return tensors, description


def checksum_of(tensors: Mapping[str, Tensor], text: str) -> str:
    """Return the SHA-256 of a text and of named tensors."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()


def _narrow(labels: Tensor) -> Tensor:
    """Return labels in the narrowest integer type that holds them."""
    most = int(labels.max()) if len(labels) else 0
    return labels.to(next(kind for kind in _LABEL_TYPES if most <= torch.iinfo(kind).max))


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


_ADJACENCY = ("indptr", "indices", "data")


@dataclass(frozen=True)
class CheckpointPlan:
    """Where and when a fit writes checkpoints.

    Parameters
    ----------
    folder
        Path of the checkpoint folder.
    every, minutes
        Interval between two checkpoints in epochs and in minutes; with both, whichever ends first counts.
    resume
        Whether to resume from the checkpoints that the folder holds.
    """

    folder: Path
    every: int | None = None
    minutes: float | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        check_schedule(self.every, self.minutes)


def check_checkpointable(method: str, *, plain: bool = True) -> None:
    """Raise a ConfigError for other methods, and for a fit with user-supplied networks or labels (not `plain`)."""
    if method != "pamcgc" or not plain:
        what = f"method {method!r}" if method != "pamcgc" else "encoder, pretrained or known_labels"
        raise ConfigError(
            f"checkpoints are kept of method 'pamcgc' with an encoder and a start of its own, got {what}: leave out "
            "--checkpoint-every, --checkpoint-minutes and --resume"
        )


@dataclass(frozen=True, eq=False)
class CheckpointedInit:
    """An initialization read from a checkpoint: graph, encoder, centers and the initializer's result."""

    adjacency: Adjacency | None
    encoder: MLP
    centers: Tensor
    started: InitResult | None


class FitCheckpoints:
    """The checkpoints of one fit of PamCGC.

    Parameters
    ----------
    plan
        Where and when to write.
    graph, config, method, seed
        Data, settings, method and seed of the fit, which must match for a fit to resume.
    """

    def __init__(
        self, plan: CheckpointPlan, graph: AttributedGraph | Store, config: Any, *, method: str, seed: int
    ) -> None:
        data = store_fingerprint(graph) if isinstance(graph, Store) else fingerprint(graph)
        settings = {"config": config.to_dict(), "constants": fit_constants()}
        about = {"method": method, **settings, "seed": seed, "data": data}
        self._plan, self._config = plan, config
        self._checkpoints = Checkpoints(plan.folder, about)
        self._resumes = False

    def start(self, device: torch.device) -> CheckpointedInit | None:
        """Return the stored initialization, or None if it has to be computed."""
        stored = self._checkpoints.read_start() if self._plan.resume else None
        if stored is None:
            return None
        self._resumes = True
        tensors, facts = stored
        config, n_nodes = self._config, facts["n_nodes"]
        encoder = MLP(
            facts["sizes"],
            generator=generator(0, "weights"),
            dtype=resolve_dtype(config.precision),
            tensor_cores=on_tensor_cores(config.precision),
        )
        prefix = "encoder."
        encoder.load_state_dict({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)})
        encoder = encoder.to(device)
        started = None
        if facts["started"] is not None:
            halves = None
            if "halves.rows" in tensors:
                halves = SplitHalfFits(tensors["halves.rows"].numpy(), tensors["halves.labels"].numpy())
            started = InitResult(encoder, cached=facts["init_kept"], facts=facts["started"], halves=halves)
        adjacency = None
        if facts["graph_kept"]:
            indptr, indices, data = (tensors[f"adjacency.{name}"].numpy() for name in _ADJACENCY)
            adjacency = sp.csr_matrix((data, indices, indptr), shape=(n_nodes, n_nodes))
        return CheckpointedInit(adjacency, encoder, tensors["centers"].to(device), started)

    def keep_start(
        self, encoder: Any, centers: Tensor, adjacency: Adjacency | None, started: InitResult | None, *, n_nodes: int
    ) -> None:
        """Write the initialization, and delete the training states of any other.

        `adjacency` is None for a store, which holds its own graph.
        """
        self._checkpoints.clear()
        tensors = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
        tensors["centers"] = centers.detach()
        if started is not None and started.halves is not None:
            tensors |= {f"halves.{name}": torch.from_numpy(array) for name, array in started.halves._asdict().items()}
        if adjacency is not None:
            tensors |= {f"adjacency.{name}": torch.from_numpy(getattr(adjacency, name)) for name in _ADJACENCY}
        facts = {
            "n_nodes": n_nodes,
            "graph_kept": adjacency is not None,
            "sizes": encoder.sizes,
            "started": None if started is None else dict(started.facts),
            "init_kept": started is not None and started.cached,
        }
        self._checkpoints.write_start(tensors, facts)

    def checkpointer(self, group: ProcessGroup = SINGLE_PROCESS) -> FileCheckpointer:
        """Return the checkpointer of training, which holds the newest state if the fit resumes."""
        found = self._checkpoints.newest() if self._resumes else None
        plan = self._plan
        return FileCheckpointer(self._checkpoints, every=plan.every, minutes=plan.minutes, found=found, group=group)
