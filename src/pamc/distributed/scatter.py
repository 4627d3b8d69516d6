"""Scatters the rows, the positive pairs and the initialization of a fit from rank 0 to all processes.

If the data fit into the memory of rank 0, it reads them, initializes the model and scatters rows and pairs. If they are
in a store that every process can read, each process reads its rows from the store, and its pairs too, unless the
store has several relations, which rank 0 combines. The rest of training does not depend on where the rows came from.
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
from pamc.data.preprocessing import Preprocessing
from pamc.data.store.store import StoreFeatures
from pamc.distributed.group import TorchProcessGroup
from pamc.errors import ConfigError
from pamc.graph.positives import PairShard
from pamc.models.loader import FeatureLoader
from pamc.models.methods.pamcgc import PamCGCModel, watched_rows
from pamc.models.views import Views
from pamc.ops.group import row_range, rows_per_rank
from pamc.runtime import resolve_row_dtype
from pamc.training.checkpoint import Checkpoint, FileCheckpointer, encoder_from, tensors_under
from pamc.training.phases import FitContext, Initialized

# Bytes per number of small sums, which are computed in float64 whatever the type of z.
_WIDE_BYTES = 8

_PAIRS = ("indptr", "indices", "log_weight", "log_weight_t", "log_self_weight")


@dataclass(frozen=True, eq=False)
class Share:
    """The part of a fit that one process trains.

    Parameters
    ----------
    model, rows
        The model with the pairs of this process, and the rows of this process.
    config, seed
        Settings and random seed of the fit.
    can_fall_back
        Whether training may fall back to the initial model.
    calibrates
        Whether the margins of the rows before training are needed to calibrate confidence.
    checkpointer
        Decides when checkpoints are due; None without checkpoints.
    """

    model: PamCGCModel
    rows: FeatureLoader
    config: Any
    seed: int
    can_fall_back: bool
    calibrates: bool
    checkpointer: FileCheckpointer | None


def share_out(group: TorchProcessGroup, fit: FitContext, ready: Initialized, *, store: Any, calibrates: bool) -> Share:
    """Scatter an initialized fit from rank 0, and return the share of rank 0, whose encoder is trained in place.

    Parameters
    ----------
    fit, ready
        The fit, and its model before the first epoch. If the model has no positive pairs, each process reads its own.
    store
        The store from which every process reads its rows; None to scatter the rows.
    calibrates
        Whether the margins of the rows before training are needed to calibrate confidence.
    """
    model, prepared, checkpointer = ready.model, ready.prepared, ready.checkpointer
    n_nodes, n_features = prepared.features.shape
    tensors: dict[str, Tensor] = {}
    resumed = None
    if checkpointer is not None and checkpointer.resumed is not None:
        tensors, resumed = checkpointer.resumed.pack()
    about = group.broadcast(
        {
            "config": fit.config.to_dict(),
            "seed": fit.seed,
            "n_nodes": n_nodes,
            "n_features": n_features,
            "sizes": list(model.encoder.sizes),
            "sparse": prepared.loader.sparse,
            "preprocessing": prepared.preprocessing.kind,
            "can_fall_back": ready.start.init is not None,
            "calibrates": calibrates,
            "views": None if prepared.views is None else {"seed": prepared.views.seed, "shape": prepared.views.shape},
            "schedule": None if checkpointer is None else (checkpointer.every, checkpointer.minutes),
            "resumed": resumed,
        }
    )
    tensors |= {f"encoder.{name}": tensor for name, tensor in model.encoder.state_dict().items()}
    tensors["centers"] = model.centers.detach()
    for name, array in prepared.preprocessing.arrays.items():
        tensors[f"preprocessing.{name}"] = torch.from_numpy(np.array(array))
    parts = []
    for rank in range(group.size):
        rows = row_range(n_nodes, rank, group.size)
        of_rows = {} if store is not None else _rows_of(ready, rows)
        copies = None if prepared.views is None else prepared.views.copies_of_rows(rows)
        of_rows |= {} if copies is None else {"views.copies": copies}
        parts.append({**tensors, **_pairs_of(ready, rows), **of_rows})
    return _share(group, about, group.scatter(parts), store, encoder=model.encoder, checkpointer=checkpointer)


def take_share(group: TorchProcessGroup, store: Any = None) -> Share:
    """Wait for rank 0, and return the share that it scatters to this process."""
    about = group.broadcast(None)
    return _share(group, about, group.scatter(None), store)


def _share(
    group: TorchProcessGroup,
    about: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    store: Any,
    *,
    encoder: nn.Module | None = None,
    checkpointer: FileCheckpointer | None = None,
) -> Share:
    """Return the share of this process from the scattered values and tensors, and from the store if there is one."""
    config, device = FitConfig.from_dict(about["config"]), group.device
    if encoder is None:
        encoder = encoder_from(tensors, about["sizes"], config).to(device)
    if checkpointer is None and about["schedule"] is not None:
        every, minutes = about["schedule"]
        resumed = None if about["resumed"] is None else Checkpoint.unpack(tensors, about["resumed"])
        checkpointer = FileCheckpointer(None, every=every, minutes=minutes, resumed=resumed, group=group)
    centers = tensors["centers"].to(device)
    features, pairs = _rows_and_pairs(group, about, tensors, store, dtype=centers.dtype)
    row_dtype = resolve_row_dtype(config.precision, device)
    rows = FeatureLoader(features, device=device, dtype=row_dtype, sparse=about["sparse"])
    views = None
    if about["views"] is not None:
        copies = tensors.get("views.copies")
        shape = None if about["views"]["shape"] is None else tuple(about["views"]["shape"])
        copies = None if copies is None else copies.to(device)
        views = Views(copies, shape, seed=about["views"]["seed"], first_row=pairs.first_row)
    model = PamCGCModel(encoder, centers, pairs.to(device=device), config, group=group, views=views)
    return Share(model, rows, config, about["seed"], about["can_fall_back"], about["calibrates"], checkpointer)


def _pairs_of(ready: Initialized, rows: slice) -> dict[str, Tensor]:
    """Return the positive pairs of a range of rows as tensors; none if every process reads them from a store."""
    if ready.model.pairs is None:
        return {}
    pairs = PairShard.of(ready.model.pairs, rows)
    return {f"pairs.{name}": getattr(pairs, name) for name in _PAIRS}


def _rows_of(ready: Initialized, rows: slice) -> dict[str, Tensor]:
    """Return a range of rows as tensors, from which :func:`_rows_and_pairs` restores them."""
    features: Any = ready.prepared.features
    block = features[rows]
    if isinstance(block, np.ndarray):
        return {"rows.dense": torch.from_numpy(np.ascontiguousarray(block))}
    return {f"rows.{name}": torch.from_numpy(getattr(block, name)) for name in ("data", "indices", "indptr")}


def _rows_and_pairs(
    group: TorchProcessGroup, about: Mapping[str, Any], tensors: Mapping[str, Tensor], store: Any, *, dtype: torch.dtype
) -> tuple[Any, PairShard]:
    """Return this process's rows and their positive pairs, from the scattered tensors or from a store."""
    rows = row_range(about["n_nodes"], group.rank, group.size)
    if "pairs.indptr" in tensors:
        pairs = PairShard(rows.start, about["n_nodes"], *(tensors[f"pairs.{name}"] for name in _PAIRS))
    else:
        pairs = _store_shard(store, rows, dtype)
    if store is not None:
        arrays = {name: tensor.numpy() for name, tensor in tensors_under("preprocessing.", tensors).items()}
        return StoreFeatures(store.features[rows], Preprocessing(about["preprocessing"], arrays)), pairs
    block = {name: tensor.numpy() for name, tensor in tensors_under("rows.", tensors).items()}
    if "dense" in block:
        return block["dense"], pairs
    shape = (len(block["indptr"]) - 1, about["n_features"])
    return sp.csr_matrix((block["data"], block["indices"], block["indptr"]), shape=shape), pairs


def _store_shard(store: Any, rows: slice, dtype: torch.dtype) -> PairShard:
    """Return the positive pairs of a range of a store's rows, read from its files.

    All neighbors have equal weights, so the weights of a pair follow from the degrees. Of the other rows, only `indptr`
    is read.
    """
    first, last = int(store.indptr[rows.start]), int(store.indptr[rows.stop])
    log_weight = -torch.from_numpy(np.diff(store.indptr) + 1).to(dtype).log()
    indptr = torch.from_numpy(np.array(store.indptr[rows.start : rows.stop + 1])) - first
    indices = torch.from_numpy(np.array(store.indices[first:last], dtype=np.int64))
    outgoing = torch.repeat_interleave(log_weight[rows], indptr.diff())
    return PairShard(rows.start, store.n_nodes, indptr, indices, outgoing, log_weight[indices], log_weight[rows])


def check_shareable(
    config: Any,
    *,
    method: str = "pamcgc",
    known_labels: bool = False,
    user_encoder: bool = False,
) -> None:
    """Raise a ConfigError if several processes cannot train this fit together."""
    if method != "pamcgc":
        unsupported = f"--method {method}"
    elif known_labels:
        unsupported = "known_labels"
    elif user_encoder:
        unsupported = "a user-supplied encoder"
    elif config.meta_assignment != "hard":
        unsupported = f"meta_assignment={config.meta_assignment!r}"
    else:
        return
    raise ConfigError(
        "several processes can train method pamcgc only, with its default encoder, meta_assignment='hard' and no known "
        f"labels; got {unsupported}: leave it out, or use one process"
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
