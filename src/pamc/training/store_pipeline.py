"""A whole fit of a store: features stay in their files, and what is held grows with N·n_dims and the neighbors alone.

The start is that of a sample (:mod:`pamc.initialize.sample`); training is the exact full-batch step of
:mod:`pamc.training.engine`, whose rows are read chunk by chunk while the chunk before is worked on. Under torchrun each
process reads its own rows and neighbors from the files, and none of another's.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamc.config import FitConfig
from pamc.data.preprocessing import Preprocessing, fit_preprocessing
from pamc.data.store import Store
from pamc.data.store_features import StoreFeatures, neighborhood_means
from pamc.distributed.group import SINGLE_PROCESS, TorchProcessGroup, row_range
from pamc.distributed.scatter import found_in, tensors_of, told, under
from pamc.distributed.step import SharedModel, check_shareable
from pamc.errors import ConfigError, DataError
from pamc.graph.influence import positive_pairs
from pamc.graph.positives import PairShard, PositivePairs
from pamc.initialize.base import InitResult
from pamc.initialize.calibration import BeforeTraining, calibrated, confidence_facts
from pamc.initialize.sample import Sample, initialize_from_sample, sampled_rows
from pamc.initialize.store_neighbors import with_neighbors
from pamc.losses.bound import warn_unless_bound_holds
from pamc.losses.pamc import meta_nodes
from pamc.models.layers import MLP
from pamc.models.loader import FeatureLoader
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.ops.scores import silhouette, stored_modularity
from pamc.progress import Progress, SilentProgress
from pamc.runtime import generator, keep_heap_small, on_tensor_cores, resolve_dtype, resolve_row_dtype, return_memory
from pamc.training.checkpoint import FileCheckpointer
from pamc.training.fallback import by_name, labeled, objective_score, train_with_fallback
from pamc.training.fit_checkpoints import CheckpointPlan, FitCheckpoints
from pamc.training.pipeline import Clock, Fit, with_dims
from pamc.training.plan import Plan, memory_of, plan_fit

__all__ = ["LARGE_ROWS", "fit_store", "plan_store", "run_store_worker"]

# Stores of more rows are fitted from their files, from the start of a sample.
LARGE_ROWS = 50_000

# Positives kept of each row where γ reaches beyond the neighbors, unless the settings name another number.
_MOST_POSITIVES = 32

_SILHOUETTE_ROWS = 2000


def fit_store(
    store: Store,
    config: FitConfig,
    *,
    seed: int,
    device: torch.device,
    memory: int | None = None,
    progress: Progress | None = None,
    checkpoints: CheckpointPlan | None = None,
    group: TorchProcessGroup | None = None,
) -> Fit:
    """Return PamCGC fitted to a store, whose labels are not read.

    Parameters
    ----------
    config, seed, device
        Settings; all randomness comes from `seed`.
    memory
        Bytes that training may use; what the device has left without. What cannot fit is refused before it begins.
    checkpoints
        Where to keep, and maybe to find, what a fit that was stopped goes on from.
    team
        The processes that train together, of which this is the first; the others call :func:`run_store_worker`.
    """
    config = with_dims(config)
    if group is not None:
        check_shareable(config)
        if not store.has_edges:
            raise DataError(
                f"{store.name} has no edges, and several processes do not look for neighbors: fit it on one, or name "
                "edges when it is made (pamc ingest FEATURES EDGES)"
            )
    warn_unless_bound_holds(store.n_nodes, config.n_clusters, config.tau, proxy=config.proxy)
    plan = plan_store(store, config, device=device, memory=memory, n_processes=1 if group is None else group.size)
    config = config.with_(chunk_size=plan.chunk_size)
    clock = Clock(progress or SilentProgress())
    keep_heap_small()
    dtype, row_dtype = resolve_dtype(config.precision), resolve_row_dtype(config.precision, device)
    kept = None if checkpoints is None else FitCheckpoints(checkpoints, store, config, method="pamcgc", seed=seed)
    kept_start = None if kept is None else kept.start(device)

    numbers = sampled_rows(store.n_nodes, store.n_features, seed=seed)
    with clock.phase("preprocessing"):
        preprocessing = fit_preprocessing(np.array(store.features[numbers], dtype=np.float32), config.preprocessing)
        rows = StoreFeatures(store.features, preprocessing)
    recall = {}
    if not store.has_edges:
        with clock.phase("neighbors"):
            n_neighbors = min(config.n_neighbors, store.n_nodes - 1)
            found: Any = with_neighbors(store, rows, numbers, n_neighbors, seed=seed, device=device)
            store, recall = found, {"neighbors_recall": found.recall}
    with clock.timed("start"):
        if kept_start is None:
            sample = Sample(rows[numbers], partial(neighborhood_means, store, rows, numbers), preprocessing.kind)
            options: dict[str, Any] = {"seed": seed, "device": device, "dtype": row_dtype, "progress": clock.progress}
            started, centers = initialize_from_sample(sample, config, numbers=numbers, **options)
            del sample
            encoder = started.encoder
            # The start needs much for a moment; training needs its own.
            return_memory()
        else:
            encoder, centers = kept_start.encoder, kept_start.centers
            started = kept_start.started or InitResult(encoder)
    if kept is not None and kept_start is None:
        kept.keep_start(encoder, centers, None, started, n_nodes=store.n_nodes)
    checkpointer = None if kept is None else kept.checkpointer(group or SINGLE_PROCESS)

    with clock.phase("graph"):
        if group is None:
            pairs, kept_influence = _pairs(store, config, device, dtype)
            model: Any = PamCGCModel(encoder, centers, pairs, config)
            own: Any = rows
        else:
            _check_even(store, config)
            _broadcast(
                group,
                config,
                seed,
                encoder,
                centers,
                preprocessing,
                checkpointer,
                calibrates=started.halves is not None,
            )
            model, kept_influence = _shared(store, config, encoder, centers, group), 1.0
            own = _own_rows(store, preprocessing, group)
    feature_rows = FeatureLoader(own, device=device, dtype=row_dtype)
    before = None if started.halves is None else BeforeTraining.of(model)
    with clock.timed("training"):
        shown: dict[str, Any] = {"seed": seed, "on_epoch": None, "checkpointer": checkpointer}
        history, fallback = train_with_fallback(model, feature_rows, config, started, clock.progress, **shown)

    with clock.phase("labels"):
        z, labels, score = _gathered(model, feature_rows, config, before, f"after epoch {len(history)}")
        final, confidence, calibration = labels.cpu().numpy(), score.cpu().numpy(), None
        if started.halves is not None and before is not None:
            calibration = calibrated(confidence, final, started.halves, before)
            confidence = calibration.apply(confidence)
        scores = {"modularity": stored_modularity(store.indptr, store.indices, store.weight, final)}
        scores["silhouette"] = silhouette(z.cpu().numpy(), final, sample_size=_SILHOUETTE_ROWS, random_state=seed)
        scores |= objective_score(history, config)
    return Fit(
        method="pamcgc",
        config=config,
        seed=seed,
        device=str(device),
        encoder=model.encoder.eval(),
        network=model.eval(),
        centers=model.centers.detach(),
        meta_nodes=meta_nodes(z, labels, n_clusters=config.n_clusters),
        preprocessing=preprocessing,
        sparse_input=False,
        z=z,
        labels=final,
        confidence=confidence,
        calibration=calibration,
        history=by_name(history),
        seconds=clock.seconds,
        scores=scores,
        facts={
            "preprocessing": preprocessing.kind,
            "graph": "knn" if recall else "given",
            **recall,
            "n_edges": store.n_stored // 2,
            "n_positive_pairs": store.n_stored if group is not None else model.pairs.n_pairs,
            "kept_influence": kept_influence,
            "init_kept": kept_start is not None,
            **started.facts,
            "fallback": fallback,
            "planned_bytes": plan.total,
            "chunk_size": plan.chunk_size,
            "n_processes": 1 if group is None else group.size,
            **confidence_facts(calibration),
        },
    )


def run_store_worker(group: TorchProcessGroup, store: Store) -> None:
    """Train this process's share of a fit of the same store that the first process leads."""
    keep_heap_small()
    about, dealt = group.broadcast(None), group.scatter(None)
    config = FitConfig.from_dict(about["config"])
    dtype, cores = resolve_dtype(config.precision), on_tensor_cores(config.precision)
    encoder = MLP(about["sizes"], generator=generator(0, "weights"), dtype=dtype, tensor_cores=cores).to(group.device)
    encoder.load_state_dict(under("encoder.", dealt))
    arrays = {name: tensor.numpy() for name, tensor in under("preprocessing.", dealt).items()}
    preprocessing = Preprocessing(about["preprocessing"], arrays)
    model = _shared(store, config, encoder, dealt["centers"].to(group.device), group)
    checkpointer = None
    if about["schedule"] is not None:
        every, minutes = about["schedule"]
        found = found_in(about["resumed"], dealt)
        checkpointer = FileCheckpointer(None, every=every, minutes=minutes, found=found, group=group)
    own = _own_rows(store, preprocessing, group)
    rows = FeatureLoader(own, device=group.device, dtype=resolve_row_dtype(config.precision, group.device))
    shown: dict[str, Any] = {"seed": about["seed"], "on_epoch": None, "checkpointer": checkpointer}
    before = BeforeTraining.of(model) if about["calibrates"] else None
    train_with_fallback(model, rows, config, InitResult(encoder), SilentProgress(), **shown)
    _gathered(model, rows, config, before, "at the end")


def plan_store(
    store: Store, config: Any, *, device: torch.device, memory: int | None = None, n_processes: int = 1
) -> Plan:
    """Return what a fit of a store will need, or refuse it with the numbers."""
    limit = memory_of(device) if memory is None else memory
    n_stored = store.n_stored if store.has_edges else 2 * store.n_nodes * config.n_neighbors
    n_pairs = n_stored if config.n_hops == 1 else store.n_nodes * 2 * (config.max_positives or _MOST_POSITIVES)
    even = config.n_hops == 1 and store.weight is None
    sizes = (store.n_nodes, store.n_features, n_pairs)
    return plan_fit(*sizes, with_dims(config), device=device, limit=limit, n_processes=n_processes, even=even)


def _pairs(store: Store, config: FitConfig, device: torch.device, dtype: torch.dtype) -> tuple[PositivePairs, float]:
    """Return the positive pairs of a store, and the share of the influence they hold."""
    if config.n_hops == 1 and store.weight is None:
        indptr = torch.from_numpy(np.array(store.indptr)).to(device)
        indices = _mapped(store.indices).to(device)
        return PositivePairs.even(indptr, indices, dtype=dtype), 1.0
    weight = np.ones(store.n_stored, dtype=np.float32) if store.weight is None else np.array(store.weight)
    adjacency = sp.csr_matrix(
        (weight, np.array(store.indices), np.array(store.indptr)), shape=(store.n_nodes, store.n_nodes)
    )
    most = config.max_positives or (_MOST_POSITIVES if config.n_hops > 1 else None)
    pairs, report = positive_pairs(adjacency, n_hops=config.n_hops, max_positives=most, dtype=dtype)
    return pairs.to(device=device), report.kept_mass


def _mapped(array: NDArray[Any]) -> Tensor:
    """Return a read-only array as a tensor of the same memory, which nobody may write to: here, pages of a file."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)


def _check_even(store: Store, config: FitConfig) -> None:
    if config.n_hops != 1 or store.weight is not None:
        raise ConfigError(
            "on several processes a store is fitted with n_hops=1 and unweighted edges: every process reads the "
            "neighbors of its own rows and no others"
        )


def _shared(store: Store, config: FitConfig, encoder: Any, centers: Tensor, group: TorchProcessGroup) -> SharedModel:
    """Return this process's share of the model: the neighbors of its own rows, read from the files."""
    own = row_range(store.n_nodes, group.rank, group.size)
    begin, end = int(store.indptr[own.start]), int(store.indptr[own.stop])
    # One number a row, and it has to be known of the neighbors too: all of indptr is read, and nothing else of others.
    row = -torch.from_numpy(np.diff(store.indptr) + 1).to(centers.dtype).log()
    indptr = torch.from_numpy(np.array(store.indptr[own.start : own.stop + 1])) - begin
    indices = torch.from_numpy(np.array(store.indices[begin:end], dtype=np.int64))
    there = torch.repeat_interleave(row[own], indptr.diff())
    pairs = PairShard(own.start, store.n_nodes, indptr, indices, there, row[indices], row[own])
    return SharedModel(encoder, centers, pairs.to(device=group.device), config, group=group)


def _own_rows(store: Store, preprocessing: Preprocessing, group: TorchProcessGroup) -> StoreFeatures:
    own = row_range(store.n_nodes, group.rank, group.size)
    return StoreFeatures(store.features[own], preprocessing)


def _broadcast(
    group: TorchProcessGroup,
    config: FitConfig,
    seed: int,
    encoder: Any,
    centers: Tensor,
    preprocessing: Preprocessing,
    checkpointer: FileCheckpointer | None,
    *,
    calibrates: bool,
) -> None:
    """Tell the other processes the start, and whether their rows' margins will be asked for."""
    resumed = None if checkpointer is None else checkpointer.resumed
    group.broadcast(
        {
            "config": config.to_dict(),
            "seed": seed,
            "sizes": list(encoder.sizes),
            "preprocessing": preprocessing.kind,
            "calibrates": calibrates,
            "schedule": None if checkpointer is None else checkpointer.schedule,
            "resumed": told(resumed),
        }
    )
    tensors = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    tensors |= {"centers": centers.detach(), **tensors_of(resumed)}
    tensors |= {f"preprocessing.{name}": torch.from_numpy(np.array(a)) for name, a in preprocessing.arrays.items()}
    group.scatter([tensors] * group.size)


def _gathered(
    model: Any, rows: FeatureLoader, config: Any, before: BeforeTraining | None, when: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return z, labels and score of all rows; of several processes each brings its own.

    The score is what confidence follows from: margin and distance before training, without these the largest q.
    """
    z, labels, score = labeled(model, rows, config, when=when)
    if before is not None:
        score = before.places(rows, labels, eta=config.eta, chunk_size=config.chunk_size)
    if not isinstance(model, SharedModel):
        return z, labels, score
    n_nodes = model.pairs.n_nodes
    whole = (model.group.gather_rows(each, n_nodes) for each in (z, labels, score))
    return next(whole), next(whole), next(whole)
