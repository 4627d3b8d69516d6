"""A complete fit, from rows to labels: preprocess → find neighbors → initialize → train → assign.

One pipeline serves every method and every container. A source (:mod:`pamc.training.sources`) implements the steps that
depend on where the rows are.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.store import Store
from pamc.data.weights import RowWeights
from pamc.distributed.group import TorchProcessGroup
from pamc.distributed.scatter import check_shareable, share_out, take_share
from pamc.errors import ConfigError
from pamc.initialize.base import InitResult
from pamc.initialize.calibration import BeforeTraining
from pamc.initialize.previous import Previous, regroup
from pamc.initialize.relations import n_combined
from pamc.models.layers import MLP
from pamc.models.method import METHODS
from pamc.models.views import Views
from pamc.ops.group import SINGLE_PROCESS
from pamc.progress import Progress, SilentProgress
from pamc.runtime import free_threads
from pamc.training import sources
from pamc.training.assign import assign, read_trained, uses_given_graph
from pamc.training.checkpoint import CheckpointedInit, CheckpointPlan, FitCheckpoints, check_checkpointable
from pamc.training.fallback import (
    PAPER_START,
    OnEpoch,
    train_with_fallback,
)
from pamc.training.phases import (
    Clock,
    Fit,
    FitContext,
    Initialized,
    Neighbors,
    Prepared,
    Start,
    Trained,
    check_enough_rows,
    check_known_labels,
)
from pamc.training.plan import Plan, memory_of, plan_fit
from pamc.training.sources import MOST_POSITIVES, GraphSource, Source, StoreSource, build_input, check_even, source_of

# Default size of the embedding: dimensions besides one per cluster, the maximum of all, and the paper's value.
_FREE_DIMS, _MOST_DIMS, _PAPER_DIMS = 16, 80, 10

# Default sizes of the hidden layers and number of epochs, and those of the paper.
_HIDDEN, _PAPER_HIDDEN = (256, 256), (500, 500, 2000)
_N_EPOCHS, _PAPER_EPOCHS, _PAPER_PRETRAIN_EPOCHS = 50, 200, 30

# Default number of rows per batch in pre-training, and that of the paper. The number of steps decides how well an
# encoder fits its targets, so small batches are as good as large ones, in less time. With many columns, most of the
# time of a step is spent on updating the weights, whatever the size of the batch.
_BATCH, _WIDE_BATCH, _PAPER_BATCH = 64, 256, 256
_MANY_COLUMNS = 1024

# Default share of labels that may change in ten epochs when training stops; the paper's training never stops early.
_TOL = 1e-3

# Default order of the influence for up to LARGE_ROWS rows.
_HOPS = 2

# Default length of the rows of z. With a given graph the initial assignment is less certain, and training moves rows.
_SCALE_OF_GIVEN_GRAPH, _SCALE_OF_KNN_GRAPH = 2.0, 8.0

# Default weight of the contrast: for a kNN graph, and for a given graph that is fully trusted. It is a multiple of the
# step, because GPU kernels are compiled for each weight.
_ALPHA, _MOST_ALPHA, _ALPHA_STEP = 1.0, 4.0, 0.25


def fit_method(
    name: str,
    data: AttributedGraph | Store,
    config: Any,
    *,
    seed: int,
    device: torch.device,
    encoder: nn.Module | None = None,
    pretrained: str | None = None,
    known_labels: NDArray[np.int64] | None = None,
    views: Any = None,
    sample_weight: Any = None,
    previous: Previous | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
    on_epoch: OnEpoch | None = None,
    checkpoints: CheckpointPlan | None = None,
    group: TorchProcessGroup | None = None,
) -> Fit:
    """Fit a method to rows and return the fit; the labels of the rows are not used.

    Parameters
    ----------
    name
        Name of the method.
    data
        Rows in memory or in a store. Without edges, a kNN graph is built for methods that need one.
    config, seed, device
        Settings of the method, random seed, and device of the fit.
    encoder
        A user-supplied row-wise module that replaces the MLP. It is trained in place from its current weights.
    pretrained
        File of pre-trained weights in SDCN's layout, which replaces pre-training.
    known_labels
        (N,) known clusters of some rows, −1 for the others.
    views
        Copies of the rows that show the same thing: callables, arrays, or a list of them.
    sample_weight
        (N,) weights: a row of weight w counts as w rows. None counts every row once.
    previous
        What the fit takes over from a previous one, whose clusters keep their numbers.
    memory
        Bytes that training on a store may use; by default the free memory of the device.
    progress
        Displays the phases; by default nothing is displayed.
    on_epoch
        Callback after each epoch, which cannot change the fit.
    checkpoints
        Where and when to write checkpoints, and whether to resume from them.
    group
        The process group, of which this process is rank 0; the others call :func:`run_worker`.
    """
    clock = Clock(progress or SilentProgress())
    user: dict[str, Any] = {"encoder": encoder, "pretrained": pretrained, "known_labels": known_labels, "views": views}
    user["sample_weight"] = None if sample_weight is None else RowWeights.of(sample_weight, data.n_nodes)
    user["previous"] = previous
    if previous is not None:
        config = config.with_(**previous.settings())
    has_relations = getattr(data, "relations", None) is not None
    config = settled(config, data.n_nodes, data.n_features, has_relations=has_relations)
    fit = FitContext(method=METHODS[name], config=config, seed=seed, device=device, clock=clock, group=group, **user)
    source = source_of(data, fit)
    _check(fit, source)
    plan = None
    if isinstance(source, StoreSource):
        n_processes = 1 if group is None else group.size
        plan = plan_store(source.store, config, device=device, memory=memory, n_processes=n_processes)
        source.holds_rows = plan.parts["features"] > 0
        fit = replace(fit, config=config.with_(chunk_size=plan.chunk_size))
    saved = None
    if checkpoints is not None:
        check_checkpointable(fit.method.name, plain=all(value is None for value in user.values()))
        saved = FitCheckpoints(checkpoints, data, fit.config, method=fit.method.name, seed=seed)
    with free_threads() if device.type == "cpu" else nullcontext():
        fit, ready = _initialize(fit, source, saved)
        trained = _train(fit, source, ready, on_epoch)
        with clock.phase("labels"):
            return assign(fit, source, ready, trained, plan)


def run_worker(group: TorchProcessGroup, store: Any = None) -> None:
    """Train this process's share of a fit that rank 0 started; only rank 0 gets the result.

    Parameters
    ----------
    group
        The process group.
    store
        The store to fit, from which every process reads its share of the rows; None if rank 0 scatters the rows.
    """
    share = take_share(group, store)
    init = InitResult(cast(MLP, share.model.encoder)) if share.can_fall_back else None
    before = BeforeTraining.of(share.model) if share.calibrates else None
    options: dict[str, Any] = {"seed": share.seed, "on_epoch": None, "checkpointer": share.checkpointer}
    train_with_fallback(share.model, share.rows, share.config, init, SilentProgress(), **options)
    read_trained(share.model, share.rows, share.config, before, seed=share.seed, when="at the end")


def settled(config: Any, n_nodes: int, n_features: int = 0, *, has_relations: bool = False) -> Any:
    """Return the settings with sizes, epochs and hops chosen, from the other settings and the shape, if they are None.

    Without a number of features, batches are those of a table with few columns. Hops along relations are chosen later
    (:func:`linked`).
    """
    is_paper = getattr(config, "init", None) == PAPER_START
    if getattr(config, "hidden", ()) is None:
        config = config.with_(hidden=_PAPER_HIDDEN if is_paper else _HIDDEN)
    if getattr(config, "n_epochs", 0) is None:
        config = config.with_(n_epochs=_PAPER_EPOCHS if is_paper else _N_EPOCHS)
    if is_paper and getattr(config, "pretrain_epochs", 0) is None:
        config = config.with_(pretrain_epochs=_PAPER_PRETRAIN_EPOCHS)
    if getattr(config, "batch_size", 0) is None:
        by_width = _WIDE_BATCH if n_features > _MANY_COLUMNS else _BATCH
        config = config.with_(batch_size=_PAPER_BATCH if is_paper else by_width)
    if getattr(config, "tol", 0.0) is None:
        config = config.with_(tol=0.0 if is_paper else _TOL)
    if "n_dims" in config.names() and config.n_dims is None:
        n_dims = min(config.n_clusters + min(config.n_clusters, _FREE_DIMS), _MOST_DIMS)
        config = config.with_(n_dims=_PAPER_DIMS if is_paper else n_dims)
    return config if has_relations else linked(config, n_nodes)


def linked(config: Any, n_nodes: int, n_relations: int = 1) -> Any:
    """Return the settings with `n_hops` chosen if it is None.

    In large tables, and along several relations, there would be too many positive pairs beyond direct neighbors.
    """
    if "n_hops" not in config.names() or config.n_hops is not None:
        return config
    return config.with_(n_hops=_HOPS if n_nodes <= sources.LARGE_ROWS and n_relations == 1 else 1)


def scaled(config: Any, *, is_given: bool) -> Any:
    """Return the settings with `embedding_scale` chosen if it is None, for a given graph or for a kNN graph."""
    if "embedding_scale" not in config.names() or config.embedding_scale is not None:
        return config
    return config.with_(embedding_scale=_SCALE_OF_GIVEN_GRAPH if is_given else _SCALE_OF_KNN_GRAPH)


def weighted(config: Any, trust: float | None) -> Any:
    """Return the settings with `alpha` chosen if it is None, by how far a given graph is trusted, 0 to 1."""
    if "alpha" not in config.names() or config.alpha is not None:
        return config
    alpha = _ALPHA if trust is None else round(_MOST_ALPHA * trust / _ALPHA_STEP) * _ALPHA_STEP
    return config.with_(alpha=alpha)


def chosen(config: Any, n_nodes: int, n_features: int, facts: Mapping[str, Any]) -> Any:
    """Return the settings with every None replaced by the value that a fit with these facts uses."""
    config = linked(settled(config, n_nodes, n_features, has_relations=True), n_nodes, n_combined(facts))
    config = scaled(config, is_given=uses_given_graph(facts))
    return weighted(config, facts.get("graph_trust"))


def plan_store(
    store: Any, config: Any, *, device: torch.device, memory: int | None = None, n_processes: int = 1
) -> Plan:
    """Return the memory plan of a fit to a store; raise a ConfigError if it does not fit."""
    limit = memory_of(device) if memory is None else memory
    config = settled(config, store.n_nodes, store.n_features)
    n_stored = store.n_stored if store.has_edges else 2 * store.n_nodes * config.n_neighbors
    n_pairs = n_stored if config.n_hops == 1 else store.n_nodes * 2 * (config.max_positives or MOST_POSITIVES)
    even = config.n_hops == 1 and store.relations is None and store.weight is None
    if store.relations is not None:
        # The first process holds the pairs of all processes.
        n_pairs *= n_processes
    sizes = (store.n_nodes, store.n_features, n_pairs)
    plan = plan_fit(*sizes, config, device=device, limit=limit, n_processes=n_processes, even=even)
    # The rows of a table of mixed types, which usually has missing cells, are kept in memory if there is room.
    is_mixed = getattr(store, "encoding", None) is not None and n_processes == 1 and device.type == "cpu"
    return plan.with_features(store.n_nodes * store.n_features * torch.float32.itemsize) if is_mixed else plan


def _check(fit: FitContext, source: Source) -> None:
    """Raise an error, before any computation, if the method or the process group cannot fit this input."""
    method, config, known_labels = fit.method, fit.config, fit.known_labels
    if isinstance(source, GraphSource):
        distinct = method.uses_features or source.graph.edges is None
        check_enough_rows(source.initial_graph.features, config.n_clusters, distinct=distinct)
    elif fit.has_views:
        limit = f"a store of more than {sources.LARGE_ROWS:,} rows"
        raise ConfigError(f"{limit} does not support image_shape: leave it out, or read it into memory")
    elif fit.encoder is not None or fit.pretrained is not None or method.name != "pamcgc":
        raise ConfigError("a store is fitted by PamCGC with its default encoder: leave out encoder and pretrained")
    if known_labels is not None:
        if not method.uses_known_labels:
            users = ", ".join(name for name in METHODS if METHODS[name].uses_known_labels)
            raise ConfigError(f"{method.title} cannot use known_labels; the methods that can are {users}")
        check_known_labels(known_labels, source.n_nodes, config.n_clusters)
    if fit.sample_weight is not None:
        _check_weights(fit, source)
    if fit.previous is not None:
        _check_update(fit, source)
    if fit.has_views and method.name != "pamcgc":
        raise ConfigError(f"{method.title} cannot use views or image_shape; the method that can is pamcgc")
    if fit.group is not None:
        supplied = {"known_labels": known_labels is not None, "user_encoder": fit.encoder is not None}
        check_shareable(config, method=method.name, **supplied)
        if isinstance(source, StoreSource) and source.is_on_disk:
            check_even(source.store, config)


def _check_weights(fit: FitContext, source: Source) -> None:
    """Raise a ConfigError if this fit cannot weight rows."""
    if fit.method.name != "pamcgc":
        unsupported = f"method {fit.method.name}"
    elif not isinstance(source, GraphSource):
        unsupported = f"a store of {source.n_nodes} rows"
    elif fit.has_views:
        unsupported = "views or image_shape"
    elif fit.group is not None:
        unsupported = "several processes"
    else:
        return
    raise ConfigError(f"sample_weight cannot be combined with {unsupported}: leave one of them out")


def _check_update(fit: FitContext, source: Source) -> None:
    """Raise an error if a fit of this kind cannot continue from a previous one."""
    if fit.method.name != "pamcgc":
        raise ConfigError(f"{fit.method.title} does not support previous; only pamcgc does")
    supplied = {
        "encoder": fit.encoder,
        "pretrained": fit.pretrained,
        "known_labels": fit.known_labels,
        "sample_weight": fit.sample_weight,
    }
    named = [name for name, value in supplied.items() if value is not None]
    if named or fit.group is not None:
        raise ConfigError(f"previous cannot be combined with {', '.join(named) or 'several processes'}: leave it out")
    if isinstance(source, StoreSource):
        limit = f"a store of more than {sources.LARGE_ROWS:,} rows"
        raise ConfigError(f"{limit} does not support previous: fit from scratch, or read it into memory")
    if getattr(fit.config, "init", None) != "consensus":
        raise ConfigError(f"previous needs init='consensus', got {fit.config.init!r}: leave out init")


def _initialize(fit: FitContext, source: Source, saved: FitCheckpoints | None) -> tuple[FitContext, Initialized]:
    """Return the fit with all settings chosen, the initialized model and the results of the previous phases.

    The initialization is read from a checkpoint if there is one.
    """
    clock, restored = fit.clock, None if saved is None else saved.read_init(fit.device)
    with clock.phase("preprocessing"):
        prepared = source.prepare(fit)
    with clock.phase("graph"):
        if restored is None or restored.adjacency is None:
            neighbors = source.find_neighbors(fit, prepared)
        else:
            neighbors = Neighbors(restored.adjacency, None, {})
        if fit.previous is not None and neighbors.inputs is not None:
            regrouped = regroup(fit.previous, neighbors.inputs, seed=fit.seed, device=fit.device)
            neighbors = replace(neighbors, regrouped=regrouped)
            fit = replace(fit, config=fit.config.with_(n_clusters=regrouped.n_clusters))
    known = {**neighbors.facts, "inputs": getattr(neighbors.inputs, "kind", None)}
    known = known if restored is None else dict(restored.init.facts)
    config = linked(fit.config, source.n_nodes, n_combined(known))
    fit = replace(fit, config=scaled(config, is_given=uses_given_graph(known)))
    with clock.timed("start"):
        start = _start(fit, source, prepared, neighbors, restored)
    trust: Any = None if start.init is None else start.init.facts.get("graph_trust")
    fit = replace(fit, config=weighted(fit.config, trust))
    with clock.phase("graph"):
        model, kept_influence = _build(fit, source, neighbors, start, prepared.views)
    checkpointer = None
    if saved is not None:
        if restored is None:
            graph = neighbors.graph if isinstance(source, GraphSource) else None
            init: Any = start.init
            saved.write_init(init, model.centers, graph, n_nodes=source.n_nodes)
        checkpointer = saved.checkpointer(fit.group or SINGLE_PROCESS)
    return fit, Initialized(prepared, neighbors, start, model, kept_influence, checkpointer)


def _start(
    fit: FitContext, source: Source, prepared: Prepared, neighbors: Neighbors, restored: CheckpointedInit | None
) -> Start:
    """Return the initial networks and centers.

    The facts about the graph are added to those of the initializer, so that they are part of checkpoints.
    """
    if restored is not None:
        return Start(restored.init, restored.init.encoder, centers=restored.centers)
    start = source.initialize(fit, prepared, neighbors)
    if start.init is None:
        return start
    return replace(start, init=start.init._replace(facts={**neighbors.facts, **start.init.facts}))


def _build(
    fit: FitContext, source: Source, neighbors: Neighbors, start: Start, views: Views | None
) -> tuple[Any, float]:
    """Return the method's model, and the share of the total influence that its positive pairs keep.

    If every process reads its pairs from a store, the model has none.
    """
    pairs, kept_influence = None, 1.0
    if fit.group is None or source.shares_pairs:
        pairs, kept_influence = source.positives(fit, neighbors)
    known, weights = fit.known_labels, fit.sample_weight
    inputs = build_input(
        fit,
        source,
        neighbors,
        pairs=pairs,
        encoder=start.encoder,
        decoder=start.decoder,
        pretrained=start.pretrained,
        centers=start.centers,
        known_labels=None if known is None else torch.from_numpy(known).to(fit.device),
        views=views,
        sample_weight=None if weights is None else torch.from_numpy(weights.values).to(fit.device, fit.dtype),
    )
    return fit.method.build(inputs).to(fit.device), kept_influence


def _train(fit: FitContext, source: Source, ready: Initialized, on_epoch: OnEpoch | None) -> Trained:
    """Train the model; in a process group, scatter it first and return this process's share."""
    init, model, loader = ready.start.init, ready.model, ready.prepared.loader
    before = None if init is None or init.halves is None else BeforeTraining.of(model)
    if fit.group is not None:
        store = source.store if isinstance(source, StoreSource) and source.is_on_disk else None
        share = share_out(fit.group, fit, ready, store=store, calibrates=before is not None)
        model, loader = share.model, share.rows
    with fit.clock.timed("training"):
        options: dict[str, Any] = {"seed": fit.seed, "on_epoch": on_epoch, "checkpointer": ready.checkpointer}
        outcome = train_with_fallback(model, loader, fit.config, init, fit.clock.progress, **options)
    return Trained(model, loader, *outcome, before)
