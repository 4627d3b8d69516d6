"""Scatters the rows, the positive pairs and the initialization of a fit from rank 0 to all processes.

If the data fit into the memory of rank 0, it reads them, initializes the model and scatters rows and pairs. If they are
in a store that every process can read, each process builds its :class:`Share` from the store directly. The rest of
training does not depend on where the rows came from.
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
from pamc.data.preprocessing import Preprocessing
from pamc.data.store.store import StoreFeatures
from pamc.distributed.group import TorchProcessGroup
from pamc.errors import ConfigError
from pamc.graph.positives import PairShard
from pamc.models.layers import MLP
from pamc.models.loader import FeatureLoader
from pamc.models.methods.pamcgc import PamCGCModel, watched_rows
from pamc.ops.group import row_range, rows_per_rank
from pamc.runtime import generator, on_tensor_cores, resolve_dtype, resolve_row_dtype
from pamc.training.checkpoint import FileCheckpointer, Found
from pamc.training.trainer import EpochRecord, TrainingState

# Bytes per number of small sums, which are computed in float64 whatever the type of z.
_WIDE_BYTES = 8

_PAIRS = ("indptr", "indices", "log_weight", "log_weight_t", "log_self_weight")


@dataclass(frozen=True, eq=False, kw_only=True)
class ShareInput:
    """An initialized fit on rank 0, ready to be scattered and trained.

    Parameters
    ----------
    model
        The complete model. Its encoder is trained in place; its pairs are None if there is a store.
    config, seed
        Settings and random seed of the fit.
    features, preprocessing, sparse
        (N, d) preprocessed rows, their preprocessing, and whether the encoder receives sparse rows.
    store
        The store from which every process reads its own rows and neighbors; None to scatter rows and pairs.
    can_fall_back
        Whether training may fall back to the initial model.
    calibrates
        Whether the margins of the rows before training are needed to calibrate confidence.
    checkpointer
        Writes training states; None without checkpoints.
    """

    model: PamCGCModel
    config: Any
    seed: int
    features: Any
    preprocessing: Preprocessing
    sparse: bool
    store: Any
    can_fall_back: bool
    calibrates: bool
    checkpointer: FileCheckpointer | None


@dataclass(frozen=True, eq=False)
class Share:
    """The part of a fit that one process trains.

    Parameters
    ----------
    model, rows
        The model with the pairs of this process, and the rows of this process.
    config, seed, can_fall_back, calibrates, checkpointer
        Same as in :class:`ShareInput`.
    """

    model: PamCGCModel
    rows: FeatureLoader
    config: Any
    seed: int
    can_fall_back: bool
    calibrates: bool
    checkpointer: FileCheckpointer | None


def share_out(group: TorchProcessGroup, given: ShareInput) -> Share:
    """Scatter an initialized fit from rank 0, and return the share of rank 0."""
    model, checkpointer = given.model, given.checkpointer
    encoder: Any = model.encoder
    resumed = None if checkpointer is None else checkpointer.resumed
    about = group.broadcast(
        {
            "config": given.config.to_dict(),
            "seed": given.seed,
            "n_nodes": given.features.shape[0],
            "n_features": given.features.shape[1],
            "sizes": list(encoder.sizes) if isinstance(encoder, MLP) else None,
            "sparse": given.sparse,
            "preprocessing": given.preprocessing.kind,
            "can_fall_back": given.can_fall_back,
            "calibrates": given.calibrates,
            "schedule": None if checkpointer is None else checkpointer.schedule,
            "resumed": resumed_facts(resumed),
        }
    )
    common = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    common |= {"centers": model.centers.detach(), **resumed_tensors(resumed)}
    arrays = given.preprocessing.arrays
    common |= {f"preprocessing.{name}": torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    parts = [{**common, **_part(given, rank, group.size)} for rank in range(group.size)]
    return _share(group, about, group.scatter(parts), given.store, encoder=encoder, checkpointer=checkpointer)


def take_share(group: TorchProcessGroup, store: Any = None) -> Share:
    """Wait for rank 0, and return the share that it scatters to this process."""
    about = group.broadcast(None)
    return _share(group, about, group.scatter(None), store)


def _part(given: ShareInput, rank: int, size: int) -> dict[str, Tensor]:
    """Return the rows and pairs of one process; empty if it reads them from a store."""
    if given.store is not None:
        return {}
    rows = row_range(given.features.shape[0], rank, size)
    pairs = PairShard.of(given.model.pairs, rows)
    return {f"pairs.{name}": getattr(pairs, name) for name in _PAIRS} | _as_tensors(given.features[rows])


def _share(
    group: TorchProcessGroup,
    about: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    store: Any,
    *,
    encoder: nn.Module | None = None,
    checkpointer: FileCheckpointer | None = None,
) -> Share:
    config, device = FitConfig.from_dict(about["config"]), group.device
    if encoder is None:
        encoder = _encoder(about, tensors, config).to(device)
    if checkpointer is None and about["schedule"] is not None:
        every, minutes = about["schedule"]
        found = resumed_state(about["resumed"], tensors)
        checkpointer = FileCheckpointer(None, every=every, minutes=minutes, found=found, group=group)
    centers = tensors["centers"].to(device)
    features, pairs = _rows_and_pairs(group, about, tensors, store, dtype=centers.dtype)
    row_dtype = resolve_row_dtype(config.precision, device)
    rows = FeatureLoader(features, device=device, dtype=row_dtype, sparse=about["sparse"])
    model = PamCGCModel(encoder, centers, pairs.to(device=device), config, group=group)
    return Share(model, rows, config, about["seed"], about["can_fall_back"], about["calibrates"], checkpointer)


def _encoder(about: Mapping[str, Any], tensors: Mapping[str, Tensor], config: FitConfig) -> MLP:
    dtype, cores = resolve_dtype(config.precision), on_tensor_cores(config.precision)
    encoder = MLP(about["sizes"], generator=generator(0, "weights"), dtype=dtype, tensor_cores=cores)
    encoder.load_state_dict(under("encoder.", tensors))
    return encoder


def _rows_and_pairs(
    group: TorchProcessGroup, about: Mapping[str, Any], tensors: Mapping[str, Tensor], store: Any, *, dtype: torch.dtype
) -> tuple[Any, PairShard]:
    """Return this process's rows and their positive pairs, from the scattered tensors or from a store."""
    rows = row_range(about["n_nodes"], group.rank, group.size)
    if store is None:
        pairs = PairShard(rows.start, about["n_nodes"], *(tensors[f"pairs.{name}"] for name in _PAIRS))
        return _as_features(tensors, about["n_features"]), pairs
    arrays = {name: tensor.numpy() for name, tensor in under("preprocessing.", tensors).items()}
    preprocessing = Preprocessing(about["preprocessing"], arrays)
    return StoreFeatures(store.features[rows], preprocessing), store_shard(store, rows, dtype)


def store_shard(store: Any, rows: slice, dtype: torch.dtype) -> PairShard:
    """Return the positive pairs of a range of a store's rows, read from its files.

    All neighbors have equal weights, so the weights of a pair follow from the degrees: all of `indptr` is read, but
    nothing else of the other rows.
    """
    begin, end = int(store.indptr[rows.start]), int(store.indptr[rows.stop])
    row = -torch.from_numpy(np.diff(store.indptr) + 1).to(dtype).log()
    indptr = torch.from_numpy(np.array(store.indptr[rows.start : rows.stop + 1])) - begin
    indices = torch.from_numpy(np.array(store.indices[begin:end], dtype=np.int64))
    outgoing = torch.repeat_interleave(row[rows], indptr.diff())
    return PairShard(rows.start, store.n_nodes, indptr, indices, outgoing, row[indices], row[rows])


def resumed_facts(resumed: Found | None) -> dict[str, Any] | None:
    """Return the plain values of the state that training resumes from, or None."""
    if resumed is None:
        return None
    records = resumed.state.records
    return {
        "attempt": resumed.attempt,
        "values": [record.values for record in records],
        "seconds": [record.seconds for record in records],
    }


def resumed_tensors(resumed: Found | None) -> dict[str, Tensor]:
    """Return the tensors of the state that training resumes from, by name; empty if there is none."""
    if resumed is None:
        return {}
    tensors = {f"model.{name}": tensor for name, tensor in resumed.state.weights.items()}
    tensors |= {f"optimizer.{name}": tensor for name, tensor in resumed.state.optimizer.items()}
    return {**tensors, "labels": resumed.state.labels}


def resumed_state(about: Mapping[str, Any] | None, tensors: Mapping[str, Tensor]) -> Found | None:
    """Return the state from the results of :func:`resumed_facts` and :func:`resumed_tensors`."""
    if about is None:
        return None
    both = zip(about["values"], about["seconds"], strict=True)
    records = [EpochRecord(epoch, values, seconds) for epoch, (values, seconds) in enumerate(both, start=1)]
    weights, optimizer = under("model.", tensors), under("optimizer.", tensors)
    return Found(about["attempt"], TrainingState(records, weights, optimizer, tensors["labels"]))


def _as_tensors(rows: Features) -> dict[str, Tensor]:
    """Return rows of features as tensors that can be sent."""
    if isinstance(rows, np.ndarray):
        return {"rows.dense": torch.from_numpy(np.ascontiguousarray(rows))}
    return {f"rows.{name}": torch.from_numpy(getattr(rows, name)) for name in ("data", "indices", "indptr")}


def _as_features(tensors: Mapping[str, Tensor], n_features: int) -> Features:
    rows = {name: tensor.numpy() for name, tensor in under("rows.", tensors).items()}
    if "dense" in rows:
        return rows["dense"]
    shape = (len(rows["indptr"]) - 1, n_features)
    return sp.csr_matrix((rows["data"], rows["indices"], rows["indptr"]), shape=shape)


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with a prefix, with the prefix removed."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def check_shareable(
    config: Any, *, method: str = "pamcgc", known_labels: bool = False, own_encoder: bool = False
) -> None:
    """Raise a ConfigError if several processes cannot train this fit together."""
    what = None
    if method != "pamcgc":
        what = f"--method {method}"
    elif known_labels:
        what = "known_labels"
    elif own_encoder:
        what = "an encoder of your own"
    elif config.meta_assignment != "hard":
        what = f"meta_assignment={config.meta_assignment!r}"
    if what is not None:
        raise ConfigError(
            "several processes train method pamcgc, its own encoder, meta_assignment='hard' and no known labels; got "
            f"{what}: leave it out, or use one process"
        )


def bytes_per_epoch(
    n_nodes: int, n_dims: int, n_clusters: int, n_weights: int, *, n_processes: int, itemsize: int = 4
) -> dict[str, int]:
    """Return the bytes that each process sends per epoch, by content, and their `total`.

    O(N·n_dims + N + C·n_dims + weights) for any number of processes and edges.

    Parameters
    ----------
    n_weights
        Number of weights of the encoder.
    itemsize
        Bytes per number of z and of the weights.

    Examples
    --------
    >>> bytes_per_epoch(100_000_000, 10, 10, 1_330_000, n_processes=8)["total"]
    3859348696
    """
    others = n_processes - 1

    def gathered(n_rows: int, row_bytes: int) -> int:
        return others * rows_per_rank(n_rows, n_processes) * row_bytes

    def summed(n_values: int, value_bytes: int) -> int:
        return 2 * others * -(-n_values // n_processes) * value_bytes

    few = (n_clusters * (n_dims + 1), n_clusters, 2, 1, 1)
    parts = {
        "z": gathered(n_nodes, n_dims * itemsize),
        "mass": gathered(n_nodes, itemsize),
        "sums": sum(summed(n_values, _WIDE_BYTES) for n_values in few),
        "watched": summed(watched_rows(n_nodes)[1] * n_dims, itemsize),
        "weights": summed(n_weights + n_clusters * n_dims, itemsize),
    }
    return {**parts, "total": sum(parts.values())}
