"""Checkpoints, from which an interrupted fit resumes; on a CPU the result is bitwise identical.

A checkpoint folder contains the initialization, once it is computed, and the two most recent training states. Each file
is written under a temporary name, flushed to disk and renamed, so an incomplete file never has its final name. If a
file is damaged nevertheless, its checksum reveals it and the previous checkpoint is used. Tensors are stored in
safetensors files and plain values as JSON in their header; nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
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
from pamc.initialize.family import Judge
from pamc.models.layers import MLP
from pamc.ops.group import SINGLE_PROCESS, ProcessGroup
from pamc.runtime import generator, on_tensor_cores, resolve_dtype
from pamc.training.constants import fit_constants
from pamc.training.trainer import EpochRecord, TrainingState

# Name prefixes of the files of a store that a fit reads.
_FITTED_FILES = ("features", "indptr", "indices", "weight")

# Name of the checkpoint folder inside an unfinished run folder.
FOLDER = "checkpoints"

# Epochs between two checkpoints if `--resume` is used without an interval.
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


class Checkpoint(NamedTuple):
    """A training state, and the attempt (0, or 1 at the reduced learning rate) that it belongs to."""

    attempt: int
    state: TrainingState

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors and the plain values from which :meth:`unpack` restores this checkpoint."""
        state = self.state
        tensors = {
            **{f"model.{name}": tensor for name, tensor in state.weights.items()},
            **{f"optimizer.{name}": tensor for name, tensor in state.optimizer.items()},
            "labels": _narrow(state.labels),
        }
        values = {
            "attempt": self.attempt,
            "names": list(state.records[-1].values),
            "values": [list(record.values.values()) for record in state.records],
            "seconds": [record.seconds for record in state.records],
        }
        return tensors, values

    @classmethod
    def unpack(cls, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> Checkpoint:
        """Return the checkpoint from the results of :meth:`pack`."""
        epochs = zip(values["values"], values["seconds"], strict=True)
        records = [
            EpochRecord(epoch, dict(zip(values["names"], numbers, strict=True)), seconds)
            for epoch, (numbers, seconds) in enumerate(epochs, start=1)
        ]
        weights, optimizer = (tensors_under(prefix, tensors) for prefix in ("model.", "optimizer."))
        return cls(values["attempt"], TrainingState(records, weights, optimizer, tensors["labels"].long()))


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
        """Delete all training states, because they belong to another initialization, and write this one."""
        for path in self._states():
            path.unlink()
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
            warn(DataWarning(f"{path} is damaged ({error}): the fit starts over"), stacklevel=2)
            return None
        self._check(path, description["about"])
        facts: dict[str, Any] = description["facts"]
        return tensors, facts

    def write(self, attempt: int, state: TrainingState) -> None:
        """Write a training state, and delete all earlier ones except the most recent."""
        tensors, values = Checkpoint(attempt, state).pack()
        path = self.folder / f"{attempt}-{state.epoch:07d}.safetensors"
        _write(path, tensors, {"about": dict(self.about), **values})
        for old in self._states()[_N_KEPT:]:
            old.unlink()

    def newest(self) -> Checkpoint | None:
        """Return the newest readable checkpoint, or None if there is none."""
        for path in self._states():
            try:
                tensors, description = _read(path)
            except (FileNotFoundError, _DamagedError) as error:
                warn(DataWarning(f"{path} is damaged ({error}): the previous checkpoint is used"), stacklevel=2)
                continue
            self._check(path, description["about"])
            return Checkpoint.unpack(tensors, description)
        return None

    def _states(self) -> list[Path]:
        """Return the files of the training states, newest first."""
        return sorted(self.folder.glob("[0-9]-*.safetensors"), reverse=True)

    def _check(self, path: Path, about: Mapping[str, Any]) -> None:
        """Raise an error that names the differences if a checkpoint belongs to another fit."""
        if about["data"] != self.about["data"]:
            raise DataError(
                f"{path} belongs to a fit of other data: use the same rows and edges, or remove the folder "
                f"{self.folder.parent} to start over"
            )
        before, now = (
            {**fit["config"], **fit.get("constants", {}), "seed": fit["seed"], "method": fit["method"]}
            for fit in (about, self.about)
        )
        changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        if changed:
            changes = ", ".join(f"{name} {before.get(name)!r}, now {now.get(name)!r}" for name in changed[:3])
            raise ConfigError(
                f"{path} belongs to a fit with other settings ({changes}): use the same settings, or remove the folder "
                f"{self.folder.parent} to start over"
            )


class FileCheckpointer:
    """Decides when a checkpoint is due and writes it; in a process group only rank 0 writes.

    Parameters
    ----------
    checkpoints
        The folder to write to; None for a process that does not write.
    every, minutes
        Interval between two checkpoints in epochs and in minutes; with both, a checkpoint is due when either ends.
    resumed
        The checkpoint to resume from, or None.
    group
        The process group that trains together.

    Attributes
    ----------
    state
        Training state that the current attempt resumes from; None to begin with the first epoch.
    """

    def __init__(
        self,
        checkpoints: Checkpoints | None,
        *,
        every: int | None,
        minutes: float | None,
        resumed: Checkpoint | None = None,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        self.every, self.minutes, self.resumed = every, minutes, resumed
        self.state: TrainingState | None = None
        self._checkpoints, self._group, self._attempt = checkpoints, group, 0
        self._last_epoch, self._last_time = 0, time.monotonic()

    def enter(self, attempt: int) -> bool:
        """Begin a training attempt; return False if the checkpoint is from a later attempt."""
        self._attempt, self._last_epoch, self.state = attempt, 0, None
        if self.resumed is None:
            return True
        if attempt == self.resumed.attempt:
            self.state = self.resumed.state
            self._last_epoch = self.state.epoch
        return attempt >= self.resumed.attempt

    def due(self, epoch: int) -> bool:
        """Return whether the state after an epoch is to be written; the answer is the same on all ranks."""
        due = self.every is not None and epoch - self._last_epoch >= self.every
        if not due and self.minutes is not None:
            # Clocks differ, so rank 0 decides for all processes.
            late = time.monotonic() - self._last_time >= 60 * self.minutes
            due = bool(self._group.sum(torch.tensor(float(late and self._group.rank == 0))))
        return due

    def write(self, state: TrainingState) -> None:
        """Write a training state."""
        if self._checkpoints is not None:
            self._checkpoints.write(self._attempt, state)
        self._last_epoch, self._last_time = state.epoch, time.monotonic()


def has_checkpoints(folder: Path) -> bool:
    """Return whether a fit can resume from a folder."""
    return (folder / _START).is_file()


def fingerprint(graph: AttributedGraph | Store) -> str:
    """Return a hash of the rows, edges and edge weights of a graph; labels and ids are not included.

    Arrays above 1 GiB are sampled in evenly spaced pieces. O(bytes) time up to that size. The fingerprint of a store is
    a hash of the checksums of its files.
    """
    if isinstance(graph, Store):
        files = graph.manifest["files"]
        checksums = [f"{name} {files[name]['sha256']}" for name in sorted(files) if name.startswith(_FITTED_FILES)]
        chosen = [] if graph.relation_weights is None else [str(graph.relation_weights)]
        return hashlib.sha256("\n".join([*checksums, *chosen]).encode()).hexdigest()[:32]
    features: Any = graph.features
    arrays = [features] if isinstance(features, np.ndarray) else [features.data, features.indices, features.indptr]
    arrays += [array for array in (graph.edges, graph.edge_weight) if array is not None]
    digest = hashlib.sha256(str(features.shape).encode())
    if graph.relations is not None and len(graph.relations.names) > 1:
        arrays.append(graph.relations.of_edge)
        digest.update(str((graph.relations.names, graph.relations.weights)).encode())
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        flat = array.reshape(-1) if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(-1)
        for piece in _spread(flat):
            digest.update(np.ascontiguousarray(piece).data)
    return digest.hexdigest()[:32]


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
        for leftover in path.parent.glob(f"*{_WRITING}"):
            leftover.unlink()
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
    """Return the tensors and the description in a file, after checking its version and checksum."""
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
    """Return labels in the narrowest integer type that can represent them."""
    largest = int(labels.max()) if len(labels) else 0
    return labels.to(next(dtype for dtype in _LABEL_TYPES if largest <= torch.iinfo(dtype).max))


def encoder_from(tensors: Mapping[str, Tensor], sizes: Sequence[int], config: Any) -> MLP:
    """Return an encoder with these layer sizes and the weights that `tensors` contains under "encoder."."""
    encoder = MLP(
        sizes,
        generator=generator(0, "weights"),
        dtype=resolve_dtype(config.precision),
        tensor_cores=on_tensor_cores(config.precision),
    )
    encoder.load_state_dict(tensors_under("encoder.", tensors))
    return encoder


def tensors_under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with a prefix, with the prefix removed."""
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
        Interval between two checkpoints in epochs and in minutes; with both, a checkpoint is due when either ends.
    resume
        Whether to resume from the checkpoints in the folder.
    """

    folder: Path
    every: int | None = None
    minutes: float | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise ConfigError(f"--checkpoint-every must be a number of epochs of at least 1, got {self.every}")
        if self.minutes is not None and not (0 < self.minutes < math.inf):
            raise ConfigError(f"--checkpoint-minutes must be a number above 0, got {self.minutes}")


def check_checkpointable(method: str, *, plain: bool = True) -> None:
    """Raise a ConfigError for other methods, and for a fit with user-supplied networks or labels (not `plain`)."""
    if method != "pamcgc" or not plain:
        what = f"method {method!r}" if method != "pamcgc" else "encoder, pretrained or known_labels"
        raise ConfigError(
            f"only method 'pamcgc' with its default encoder and initialization writes checkpoints, got {what}: leave "
            "out --checkpoint-every, --checkpoint-minutes and --resume"
        )


class CheckpointedInit(NamedTuple):
    """An initialization read from a checkpoint: the initializer's result, centers, and the graph, None for a store."""

    init: InitResult
    centers: Tensor
    adjacency: Adjacency | None


def _judge_tensors(judge: Judge) -> dict[str, Tensor]:
    """Return the tensors from which :func:`_judge_from` restores a judge."""
    tensors = {name: torch.from_numpy(getattr(judge.graph, name)) for name in _ADJACENCY}
    tensors["partitions"] = _narrow(torch.from_numpy(judge.partitions))
    if judge.rows is not None:
        tensors["rows"] = torch.from_numpy(judge.rows)
    return tensors


def _judge_from(tensors: Mapping[str, Tensor]) -> Judge:
    partitions = tensors["partitions"].long().numpy()
    indptr, indices, data = (tensors[name].numpy() for name in _ADJACENCY)
    graph = sp.csr_matrix((data, indices, indptr), shape=(partitions.shape[1],) * 2)
    return Judge(partitions, graph, tensors["rows"].numpy() if "rows" in tensors else None)


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
        about = {
            "method": method,
            "config": config.to_dict(),
            "constants": fit_constants(),
            "seed": seed,
            "data": fingerprint(graph),
        }
        self._plan, self._config = plan, config
        self._checkpoints = Checkpoints(plan.folder, about)
        self._resumes = False

    def read_init(self, device: torch.device) -> CheckpointedInit | None:
        """Return the stored initialization, or None if it has to be computed."""
        stored = self._checkpoints.read_start() if self._plan.resume else None
        if stored is None:
            return None
        self._resumes = True
        tensors, facts = stored
        n_nodes = facts["n_nodes"]
        encoder = encoder_from(tensors, facts["sizes"], self._config).to(device)
        halves, adjacency, judge = None, None, None
        if "judge.partitions" in tensors:
            judge = _judge_from(tensors_under("judge.", tensors))
        if "halves.rows" in tensors:
            halves = SplitHalfFits(tensors["halves.rows"].numpy(), tensors["halves.labels"].numpy())
        if facts["graph_kept"]:
            indptr, indices, data = (tensors[f"adjacency.{name}"].numpy() for name in _ADJACENCY)
            adjacency = sp.csr_matrix((data, indices, indptr), shape=(n_nodes, n_nodes))
        init = InitResult(encoder, cached=facts["init_kept"], facts=facts["started"], halves=halves, judge=judge)
        return CheckpointedInit(init, tensors["centers"].to(device), adjacency)

    def write_init(self, init: InitResult, centers: Tensor, adjacency: Adjacency | None, *, n_nodes: int) -> None:
        """Write the initialization; `adjacency` is None for a store, which contains the graph."""
        tensors = {f"encoder.{name}": tensor for name, tensor in init.encoder.state_dict().items()}
        tensors["centers"] = centers.detach()
        if init.halves is not None:
            tensors |= {f"halves.{name}": torch.from_numpy(array) for name, array in init.halves._asdict().items()}
        if init.judge is not None:
            tensors |= {f"judge.{name}": tensor for name, tensor in _judge_tensors(init.judge).items()}
        if adjacency is not None:
            tensors |= {f"adjacency.{name}": torch.from_numpy(getattr(adjacency, name)) for name in _ADJACENCY}
        facts = {
            "n_nodes": n_nodes,
            "graph_kept": adjacency is not None,
            "sizes": init.encoder.sizes,
            "started": dict(init.facts),
            "init_kept": init.cached,
        }
        self._checkpoints.write_start(tensors, facts)

    def checkpointer(self, group: ProcessGroup = SINGLE_PROCESS) -> FileCheckpointer:
        """Return the checkpointer of training, which resumes from the newest checkpoint if the fit resumes."""
        resumed = self._checkpoints.newest() if self._resumes else None
        plan = self._plan
        return FileCheckpointer(self._checkpoints, every=plan.every, minutes=plan.minutes, resumed=resumed, group=group)
