"""How the rows, the pairs and the start of a fit get from the first process to all others.

This is the way for data that fit into the memory of the first process: it reads them, finds the start and deals out
what each one owns. Where rows and pairs lie on disks that every process reads for itself, that process makes its
:class:`Share` from them directly; nothing else in training asks where they came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from pamc.config import FitConfig
from pamc.data.attributed_graph import Features
from pamc.distributed.group import TorchProcessGroup, row_range
from pamc.distributed.step import SharedModel
from pamc.graph.positives import PairShard
from pamc.models.layers import MLP
from pamc.models.loader import FeatureLoader
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.runtime import generator, on_tensor_cores, resolve_dtype, resolve_row_dtype
from pamc.training.checkpoint import FileCheckpointer, Found
from pamc.training.trainer import EpochRecord, TrainingState

__all__ = ["Share", "found_in", "share_out", "take_share", "tensors_of", "told", "under"]

_PAIRS = ("indptr", "indices", "log_weight", "log_weight_t", "log_self_weight")


@dataclass(frozen=True, eq=False)
class Share:
    """What one process trains with.

    Parameters
    ----------
    model, rows
        Its share of the model, and its own rows.
    config, seed
        Of the fit.
    guarded
        Whether the start can be gone back to.
    keeper
        Keeps the state of training; None where nobody asked for it.
    """

    model: SharedModel
    rows: FeatureLoader
    config: Any
    seed: int
    can_fall_back: bool
    checkpointer: FileCheckpointer | None


def share_out(
    group: TorchProcessGroup,
    model: PamCGCModel,
    features: Features,
    *,
    sparse: bool,
    seed: int,
    can_fall_back: bool,
    checkpointer: FileCheckpointer | None,
) -> Share:
    """Deal out a fit that is ready to be trained, and return the first process's own share.

    Parameters
    ----------
    model
        The whole model. Its encoder is the one that is trained.
    features
        (N, d) prepared rows; `sparse` says whether the encoder takes them sparse.
    """
    n_nodes, encoder = model.pairs.n_nodes, model.encoder
    ranges = [row_range(n_nodes, rank, group.size) for rank in range(group.size)]
    resumed = None if checkpointer is None else checkpointer.resumed
    about = group.broadcast(
        {
            "config": model.config.to_dict(),
            "seed": seed,
            "n_nodes": n_nodes,
            "n_features": features.shape[1],
            "sizes": list(encoder.sizes) if isinstance(encoder, MLP) else None,
            "sparse": sparse,
            "can_fall_back": can_fall_back,
            "schedule": None if checkpointer is None else checkpointer.schedule,
            "resumed": told(resumed),
        }
    )
    common = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    common["centers"] = model.centers.detach()
    common |= tensors_of(resumed)
    parts = []
    for own in ranges:
        pairs = PairShard.of(model.pairs, own)
        parts.append(
            {**common, **{f"pairs.{name}": getattr(pairs, name) for name in _PAIRS}, **_as_tensors(features[own])}
        )
    return _share(group, about, group.scatter(parts), encoder=encoder, checkpointer=checkpointer)


def take_share(group: TorchProcessGroup) -> Share:
    """Return what the first process has dealt to this one; waits until it is ready to."""
    about = group.broadcast(None)
    return _share(group, about, group.scatter(None))


def _share(
    group: TorchProcessGroup,
    about: Mapping[str, Any],
    dealt: Mapping[str, Tensor],
    *,
    encoder: nn.Module | None = None,
    checkpointer: FileCheckpointer | None = None,
) -> Share:
    config = FitConfig.from_dict(about["config"])
    dtype, device = resolve_dtype(config.precision), group.device
    if encoder is None:
        cores = on_tensor_cores(config.precision)
        encoder = MLP(about["sizes"], generator=generator(0, "weights"), dtype=dtype, tensor_cores=cores).to(device)
        encoder.load_state_dict(under("encoder.", dealt))
    if checkpointer is None and about["schedule"] is not None:
        every, minutes = about["schedule"]
        found = found_in(about["resumed"], dealt)
        checkpointer = FileCheckpointer(None, every=every, minutes=minutes, found=found, group=group)
    own = row_range(about["n_nodes"], group.rank, group.size)
    pairs = PairShard(own.start, about["n_nodes"], *(dealt[f"pairs.{name}"] for name in _PAIRS)).to(device=device)
    features = _as_features(dealt, about["n_features"])
    row_dtype = resolve_row_dtype(config.precision, device)
    rows = FeatureLoader(features, device=device, dtype=row_dtype, sparse=about["sparse"])
    centers = dealt["centers"].to(device)
    model = SharedModel(encoder, centers, pairs, config, group=group)
    return Share(model, rows, config, about["seed"], about["can_fall_back"], checkpointer)


def told(resumed: Found | None) -> dict[str, Any] | None:
    """Return, in plain values, what processes have to be told of a state that training goes on from."""
    if resumed is None:
        return None
    records = resumed.state.records
    return {
        "attempt": resumed.attempt,
        "values": [record.values for record in records],
        "seconds": [record.seconds for record in records],
    }


def tensors_of(resumed: Found | None) -> dict[str, Tensor]:
    """Return the tensors of a state that training goes on from, by name; none without one."""
    if resumed is None:
        return {}
    tensors = {f"model.{name}": tensor for name, tensor in resumed.state.weights.items()}
    tensors |= {f"optimizer.{name}": tensor for name, tensor in resumed.state.optimizer.items()}
    return {**tensors, "labels": resumed.state.labels}


def found_in(about: Mapping[str, Any] | None, dealt: Mapping[str, Tensor]) -> Found | None:
    """Return the state that :func:`told` and :func:`tensors_of` were made of."""
    if about is None:
        return None
    both = zip(about["values"], about["seconds"], strict=True)
    records = [EpochRecord(epoch, values, seconds) for epoch, (values, seconds) in enumerate(both, start=1)]
    weights, optimizer = under("model.", dealt), under("optimizer.", dealt)
    return Found(about["attempt"], TrainingState(records, weights, optimizer, dealt["labels"]))


def _as_tensors(rows: Features) -> dict[str, Tensor]:
    """Return some rows of features as tensors that can travel."""
    if isinstance(rows, np.ndarray):
        return {"rows.dense": torch.from_numpy(np.ascontiguousarray(rows))}
    return {f"rows.{name}": torch.from_numpy(getattr(rows, name)) for name in ("data", "indices", "indptr")}


def _as_features(dealt: Mapping[str, Tensor], n_features: int) -> Features:
    rows = {name: tensor.numpy() for name, tensor in under("rows.", dealt).items()}
    if "dense" in rows:
        return rows["dense"]
    shape = (len(rows["indptr"]) - 1, n_features)
    return sp.csr_matrix((rows["data"], rows["indices"], rows["indptr"]), shape=shape)


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
