"""A whole fit of any method: features and edges in, a trained model out."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pamc.config import MethodConfig
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.preprocessing import Preprocessing, fit_preprocessing
from pamc.distributed.group import SINGLE_PROCESS, TorchProcessGroup
from pamc.distributed.scatter import share_out, take_share
from pamc.distributed.step import check_shareable
from pamc.errors import ConfigError
from pamc.graph.adjacency import Adjacency
from pamc.initialize.base import (
    InitContext,
    InitResult,
    align_clusters,
    initial_centers,
    load_sdcn_weights,
    mean_centers,
)
from pamc.initialize.calibration import BeforeTraining, Calibration, calibrated, confidence_facts, fit_split_halves
from pamc.initialize.initializers import INITIALIZERS
from pamc.initialize.inputs import graph_and_inputs, kind_of_graph, positives
from pamc.losses.bound import warn_unless_bound_holds
from pamc.losses.clustering import log_soft_assignment
from pamc.losses.pamc import meta_nodes
from pamc.models.base import Model
from pamc.models.layers import MLP
from pamc.models.loader import FeatureLoader, encode_rows
from pamc.models.method import METHODS, AnyModel, BuildInput, Method
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.ops.scores import modularity, silhouette
from pamc.progress import Progress, SilentProgress
from pamc.runtime import resolve_dtype, resolve_row_dtype
from pamc.training.checks import check_embedding, check_enough_rows, check_known_labels
from pamc.training.fallback import (
    LABELED_AT_A_TIME,
    PAPER_START,
    OnEpoch,
    by_name,
    objective_score,
    read_model,
    train_epochs,
    train_with_fallback,
)
from pamc.training.fit_checkpoints import CheckpointPlan, FitCheckpoints, check_checkpointable

__all__ = ["Clock", "Fit", "OnEpoch", "assign_rows", "fit_method", "run_worker", "with_dims"]

# The size of the embedding where none is asked for.
_DIMS_PER_CLUSTER, _MOST_DIMS, _PAPER_DIMS = 2, 32, 10

# The silhouette compares all pairs of rows: it is taken over a sample of this many.
_SILHOUETTE_ROWS = 2000


@dataclass(frozen=True, eq=False, kw_only=True)
class Fit:
    """What training leaves behind.

    Parameters
    ----------
    method, config, seed, device
        How it was fitted.
    encoder
        Row-wise network that embeds new rows; None for methods that need the graph.
    network
        The whole trained model; None for a fit that was loaded.
    centers, meta_nodes, preprocessing, sparse_input
        What new rows need beside it.
    z, labels, confidence
        (N, n_dims), (N,), (N,): the rows it was fitted on.
    calibration
        How confidence follows from margins before training; None where it is the largest q.
    history
        Every value of every epoch, by name.
    seconds
        Wall-clock time by phase.
    scores
        Label-free scores: `modularity` of the labels on the graph, where there is one, `silhouette` of the embedding,
        `objective`: the loss of the last epoch, comparable between fits that lost different numbers of clusters.
    facts
        What was found or decided on the way, in plain values.
    warnings
        What the user was warned of.
    adjacency
        The graph that was used, given or made; None for a fit from files and for one that was loaded.
    """

    method: str
    config: MethodConfig
    seed: int
    device: str
    encoder: nn.Module | None
    network: nn.Module | None
    centers: Tensor
    meta_nodes: Tensor
    preprocessing: Preprocessing
    sparse_input: bool
    z: Tensor
    labels: NDArray[np.int64]
    confidence: NDArray[np.floating]
    history: dict[str, list[float]]
    seconds: dict[str, float]
    scores: dict[str, float]
    facts: dict[str, object]
    warnings: tuple[str, ...] = ()
    calibration: Calibration | None = None
    adjacency: Adjacency | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Fit:
        """Return an independent copy.

        Shared are what nothing ever changes: the graph, and a network that is not run again, as it has no encoder of
        single rows (its sparse tensors cannot be copied by torch).
        """
        memo[id(self.adjacency)] = self.adjacency
        if self.encoder is None:
            memo[id(self.network)] = self.network
        return replace(self, **{name: copy.deepcopy(value, memo) for name, value in vars(self).items()})


class Clock:
    """Shows and times the phases of a fit."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Time what is inside under a name."""
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time it, and show it."""
        with self.timed(name), self.progress.phase(name):
            yield


def fit_method(
    name: str,
    graph: AttributedGraph,
    config: Any,
    *,
    seed: int,
    device: torch.device,
    encoder: nn.Module | None = None,
    pretrained: str | None = None,
    known_labels: NDArray[np.int64] | None = None,
    progress: Progress | None = None,
    on_epoch: OnEpoch | None = None,
    checkpoints: CheckpointPlan | None = None,
    group: TorchProcessGroup | None = None,
) -> Fit:
    """Return a method fitted to the rows: prepare, build the graph, start, place centers, train, label.

    Parameters
    ----------
    name
        Of the method.
    graph
        Rows, and edges or none: without edges a kNN graph of the prepared rows is built for methods that need one. Its
        labels are not read.
    config, seed, device
        Settings of the method; all randomness comes from `seed`.
    encoder
        A row-wise module of the user's in place of the MLP. It is trained in place from the weights it has.
    pretrained
        File of pre-trained weights in SDCN's layout, in place of pre-training.
    known_labels
        (N,) known cluster of some rows, −1 for the others.
    on_epoch
        Watches training; nothing it does reaches the fit.
    checkpoints
        Where to keep, and maybe to find, what a fit that was stopped goes on from.
    team
        The processes that train together, of which this is the first; the others call :func:`run_worker`.
    """
    method = METHODS[name]
    config = with_dims(config)
    clock = Clock(progress or SilentProgress())
    dtype = resolve_dtype(config.precision)
    check_enough_rows(graph.features, config.n_clusters, distinct=method.uses_features or graph.edges is None)
    if known_labels is not None:
        if not method.uses_known_labels:
            users = ", ".join(each for each in METHODS if METHODS[each].uses_known_labels)
            raise ConfigError(f"{method.title} has no use for known_labels; the methods that do are {users}")
        check_known_labels(known_labels, graph.n_nodes, config.n_clusters)
    if group is not None:
        check_shareable(config, method=name, known_labels=known_labels is not None, own_encoder=encoder is not None)
    kept, kept_start = None, None
    if checkpoints is not None:
        check_checkpointable(name, plain=encoder is None and pretrained is None and known_labels is None)
        kept = FitCheckpoints(checkpoints, graph, config, method=name, seed=seed)
        kept_start = kept.start(device)
    if config.n_clusters > 1 and "proxy" in config.names():
        warn_unless_bound_holds(graph.n_nodes, config.n_clusters, config.tau, proxy=config.proxy)

    with clock.phase("preprocessing"):
        preprocessing = fit_preprocessing(graph.features, config.preprocessing)
        features = preprocessing.apply(graph.features)
    with clock.phase("graph"):
        adjacency, inputs, found = (
            graph_and_inputs(
                method, graph, features, config, seed=seed, preprocessing=preprocessing.kind, device=device
            )
            if kept_start is None
            else (kept_start.adjacency, None, {})
        )
        pairs, kept_influence = positives(adjacency, config, device, dtype)

    row_dtype = resolve_row_dtype(config.precision, device)
    rows = FeatureLoader(features, device=device, dtype=row_dtype, sparse=False if encoder is not None else None)
    given = BuildInput(
        n_nodes=graph.n_nodes,
        n_features=graph.n_features,
        config=config,
        seed=seed,
        device=device,
        dtype=dtype,
        adjacency=adjacency,
        pairs=pairs,
        known_labels=None if known_labels is None else torch.from_numpy(known_labels).to(device),
    )
    with clock.timed("start"):
        if kept_start is None:
            start = InitContext(rows, features, adjacency, inputs, config, seed, clock.progress)
            given, started = _started(method, given, start, own=encoder, pretrained=pretrained)
            # Kept with the start, so that a resumed fit knows them too.
            if started is not None:
                started = started._replace(facts={**found, **started.facts})
        else:
            given, started = replace(given, encoder=kept_start.encoder), kept_start.started
    if started is not None and kept_start is None:
        with clock.phase("confidence"):
            started = started._replace(halves=fit_split_halves(inputs, config, seed=seed, device=device))
    with clock.phase("centers"):
        if kept_start is None:
            given = _with_centers(given, rows, known_labels, started)
        else:
            given = replace(given, centers=kept_start.centers)
        model = method.build(given)
    checkpointer = None
    if kept is not None:
        if kept_start is None:
            fitted = cast(PamCGCModel, model)
            kept.keep_start(fitted.encoder, fitted.centers, adjacency, started, n_nodes=graph.n_nodes)
        checkpointer = kept.checkpointer(group or SINGLE_PROCESS)

    halves = None if started is None else started.halves
    before = None if halves is None else BeforeTraining.of(model)
    trained: AnyModel = model
    all_rows = rows
    if group is not None:
        shared = share_out(
            group,
            cast(PamCGCModel, model),
            features,
            sparse=rows.sparse,
            seed=seed,
            can_fall_back=started is not None,
            checkpointer=checkpointer,
        )
        trained, rows = shared.model, shared.rows
    with clock.timed("training"):
        history, fallback = train_with_fallback(
            trained, rows, config, started, clock.progress, seed=seed, on_epoch=on_epoch, checkpointer=checkpointer
        )

    with clock.phase("labels"):
        z, q, centers = read_model(trained, rows, config, seed=seed)
        if group is not None:
            model.load_state_dict(trained.state_dict())
        check_embedding(q, graph.n_nodes, f"after epoch {len(history)}", "A smaller lr")
        largest, final = q.max(dim=1)
        labels = final.cpu().numpy()
        confidence, calibration = largest.cpu().numpy(), None
        if halves is not None and before is not None:
            places = before.places(all_rows, final, eta=config.eta, chunk_size=config.chunk_size).cpu().numpy()
            calibration = calibrated(places, labels, halves, before)
            confidence = calibration.apply(places)
        scores = {} if adjacency is None else {"modularity": modularity(adjacency, labels)}
        scores["silhouette"] = silhouette(z.cpu().numpy(), labels, sample_size=_SILHOUETTE_ROWS, random_state=seed)
        scores |= objective_score(history, config)
    return Fit(
        method=name,
        config=config,
        seed=seed,
        device=str(device),
        encoder=model.encoder.eval() if isinstance(model, Model) else None,
        network=model.eval(),
        centers=centers.detach(),
        meta_nodes=meta_nodes(z, final, n_clusters=config.n_clusters),
        preprocessing=preprocessing,
        sparse_input=rows.sparse,
        z=z,
        labels=labels,
        confidence=confidence,
        calibration=calibration,
        history=by_name(history),
        seconds=clock.seconds,
        scores=scores,
        facts={
            "preprocessing": preprocessing.kind,
            "graph": kind_of_graph(method, graph),
            "n_edges": 0 if adjacency is None else int(adjacency.nnz // 2),
            "n_positive_pairs": 0 if (used := getattr(model, "pairs", None)) is None else used.n_pairs,
            "kept_influence": kept_influence,
            **found,
            "init_kept": started is not None and started.kept,
            **({} if started is None else started.facts),
            "fallback": fallback,
            **confidence_facts(calibration),
        },
        adjacency=adjacency,
    )


def run_worker(group: TorchProcessGroup) -> None:
    """Train this process's share of a fit that the first process leads; it alone has the result."""
    share = take_share(group)
    started = InitResult(cast(MLP, share.model.encoder)) if share.can_fall_back else None
    options: dict[str, Any] = {"seed": share.seed, "on_epoch": None, "checkpointer": share.checkpointer}
    train_with_fallback(share.model, share.rows, share.config, started, SilentProgress(), **options)
    read_model(share.model, share.rows, share.config, seed=share.seed)


@torch.no_grad()
def assign_rows(
    encoder: nn.Module, centers: Tensor, rows: FeatureLoader, *, eta: float, chunk_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return z (n, n_dims) and q (n, C) of rows, without a graph; O(chunk) memory beside the result."""
    z = encode_rows(encoder, rows, chunk_size=chunk_size or LABELED_AT_A_TIME)
    return z, log_soft_assignment(z, centers.detach(), eta=eta).exp()


def with_dims(config: Any) -> Any:
    """Return the settings with a size of the embedding: where none is asked for, it follows from start and clusters."""
    if "n_dims" not in config.names() or config.n_dims is not None:
        return config
    follows = min(_DIMS_PER_CLUSTER * config.n_clusters, _MOST_DIMS)
    return config.with_(n_dims=_PAPER_DIMS if config.init == PAPER_START else follows)


def _started(
    method: Method, given: BuildInput, start_input: InitContext, *, own: nn.Module | None, pretrained: str | None
) -> tuple[BuildInput, InitResult | None]:
    """Return the input with the encoder of the start, or with the model of the method's own pre-training.

    And what the start left, where there was one.
    """
    config, start = given.config, method.init_of(given.config)
    if own is not None:
        return replace(given, encoder=own.to(device=given.device, dtype=given.dtype)), None
    if start is not None or pretrained is not None:
        if start is None:
            raise ConfigError(f"{method.title} has no autoencoder: pretrained must be None")
        if pretrained is not None:
            started = load_sdcn_weights(pretrained, start_input.rows, config)
        else:
            started = INITIALIZERS[start](start_input)
        return replace(given, encoder=started.encoder, decoder=started.decoder), started
    if method.pretrain is not None:
        model = method.pretrain(given)
        with start_input.progress.phase("pre-training", config.pretrain_epochs) as phase:
            for record in train_epochs(
                model,
                start_input.rows,
                config,
                n_epochs=config.pretrain_epochs,
                lr=config.pretrain_lr,
                seed=given.seed,
            ):
                phase.advance(loss=record.values["loss"])
        return replace(given, pretrained=model), None
    return given, None


def _with_centers(
    given: BuildInput, rows: FeatureLoader, known_labels: NDArray[np.int64] | None, started: InitResult | None
) -> BuildInput:
    """Return the input with centers in the embedding so far, where there is one and training starts from it.

    They are the means of the clusters that the start found, or of K-means.
    """
    config = given.config
    if "n_epochs" not in config.names():
        return given
    if given.encoder is not None:
        z = encode_rows(given.encoder, rows, chunk_size=config.chunk_size)
    elif isinstance(given.pretrained, Model):
        z = encode_rows(given.pretrained.encoder, rows, chunk_size=config.chunk_size)
    elif given.pretrained is not None:
        with torch.no_grad():
            z = given.pretrained.read(rows.whole()).z
    else:
        return given
    check_embedding(z, given.n_nodes, "before the first epoch", "A smaller pretrain_lr, or preprocessing='auto',")
    if started is not None and started.labels is not None:
        labels = started.labels
        centers = mean_centers(z, labels, config.n_clusters)
    if started is None or started.labels is None or _leaves_empty(z, centers):
        centers, labels = initial_centers(z, config, seed=given.seed)
    if known_labels is not None:
        centers = align_clusters(centers, labels, known_labels)
    return replace(given, centers=centers)


def _leaves_empty(z: Tensor, centers: Tensor) -> bool:
    """Return whether some center is the nearest of no row: the encoder could not learn where the start put it."""
    return bool(torch.unique(torch.cdist(z, centers).argmin(dim=1)).numel() < len(centers))
