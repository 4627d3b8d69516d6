"""A fit that keeps checkpoints: its start on disk and back, so that nothing expensive is done twice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.store import Store
from pamc.errors import ConfigError
from pamc.graph.adjacency import Adjacency
from pamc.initialize.base import InitResult
from pamc.initialize.calibration import SplitHalfFits
from pamc.models.layers import MLP
from pamc.ops.group import SINGLE_PROCESS, ProcessGroup
from pamc.runtime import generator, on_tensor_cores, resolve_dtype
from pamc.training.checkpoint import Checkpoints, FileCheckpointer, check_schedule, fingerprint, store_fingerprint
from pamc.training.constants import fit_constants

__all__ = ["CheckpointPlan", "CheckpointedInit", "FitCheckpoints", "check_checkpointable"]

_ADJACENCY = ("indptr", "indices", "data")


@dataclass(frozen=True)
class CheckpointPlan:
    """Where a fit keeps checkpoints, and when.

    Parameters
    ----------
    folder
        Of the checkpoints.
    every, minutes
        Keep after so many epochs, after so many minutes, or whichever comes first.
    resume
        Go on from what the folder holds.
    """

    folder: Path
    every: int | None = None
    minutes: float | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        check_schedule(self.every, self.minutes)


def check_checkpointable(method: str, *, plain: bool = True) -> None:
    """Refuse checkpoints of what they do not hold: other methods, and what a caller of Python brings along."""
    if method != "pamcgc" or not plain:
        what = f"method {method!r}" if method != "pamcgc" else "encoder, pretrained or known_labels"
        raise ConfigError(
            f"checkpoints are kept of method 'pamcgc' with an encoder and a start of its own, got {what}: leave out "
            "--checkpoint-every, --checkpoint-minutes and --resume"
        )


@dataclass(frozen=True, eq=False)
class CheckpointedInit:
    """What was found before training: the graph, the encoder and the centers."""

    adjacency: Adjacency | None
    encoder: MLP
    centers: Tensor
    started: InitResult | None


class FitCheckpoints:
    """The checkpoints of one fit of PamCGC.

    Parameters
    ----------
    plan
        Where and when.
    graph, config, seed
        What is fitted, and how: a fit goes on from checkpoints of the same alone.
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
        """Return the start that was kept, None to find it."""
        kept = self._checkpoints.read_start() if self._plan.resume else None
        if kept is None:
            return None
        self._resumes = True
        tensors, facts = kept
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
            started = InitResult(encoder, kept=facts["init_kept"], facts=facts["started"], halves=halves)
        adjacency = None
        if facts["graph_kept"]:
            indptr, indices, data = (tensors[f"adjacency.{name}"].numpy() for name in _ADJACENCY)
            adjacency = sp.csr_matrix((data, indices, indptr), shape=(n_nodes, n_nodes))
        return CheckpointedInit(adjacency, encoder, tensors["centers"].to(device), started)

    def keep_start(
        self, encoder: Any, centers: Tensor, adjacency: Adjacency | None, started: InitResult | None, *, n_nodes: int
    ) -> None:
        """Keep the start of a fit that has one of its own; states of another start go.

        The graph is kept where it was made for the fit; a store has its own.
        """
        self._checkpoints.clear()
        tensors = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
        tensors["centers"] = centers.detach()
        if started is not None and started.halves is not None:
            tensors |= {f"halves.{name}": torch.from_numpy(each) for name, each in started.halves._asdict().items()}
        if adjacency is not None:
            tensors |= {f"adjacency.{name}": torch.from_numpy(getattr(adjacency, name)) for name in _ADJACENCY}
        facts = {
            "n_nodes": n_nodes,
            "graph_kept": adjacency is not None,
            "sizes": encoder.sizes,
            "started": None if started is None else dict(started.facts),
            "init_kept": started is not None and started.kept,
        }
        self._checkpoints.write_start(tensors, facts)

    def checkpointer(self, group: ProcessGroup = SINGLE_PROCESS) -> FileCheckpointer:
        """Return who keeps the state of training, with the newest one that was kept."""
        found = self._checkpoints.newest() if self._resumes else None
        plan = self._plan
        return FileCheckpointer(self._checkpoints, every=plan.every, minutes=plan.minutes, found=found, group=group)
