"""The last step of a fit: labels, confidence and scores of all rows, with what is recorded about the fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pamc.graph.smoothing import smoothed
from pamc.initialize.calibration import BeforeTraining, Calibration, calibrated, confidence_facts
from pamc.initialize.drift import Reference, fit_reference
from pamc.initialize.levels import cluster_linkage
from pamc.initialize.noise import NoiseRule, fit_noise_rule, noise_codes, noise_facts
from pamc.initialize.previous import regrouped_facts
from pamc.initialize.relations import edges_by_relation, n_combined
from pamc.losses.clustering import log_soft_assignment
from pamc.losses.pamc import bound_holds, meta_nodes
from pamc.models.base import Model
from pamc.models.loader import FeatureLoader, encode_rows
from pamc.ops.group import count_rows
from pamc.ops.scores import silhouette
from pamc.training.fallback import LABELED_AT_A_TIME, by_name, labeled, objective_score, read_model
from pamc.training.phases import Fit, FitContext, Initialized, Prepared, Trained, check_embedding
from pamc.training.plan import Plan
from pamc.training.sources import Source

# Probability that the walk which smooths the assignment along several relations continues.
_REACH_OF_LABELS = 0.8

# The silhouette, which compares all pairs of rows, is computed on a sample of this size.
_SILHOUETTE_ROWS = 2000


@torch.no_grad()
def assign_rows(
    encoder: nn.Module, centers: Tensor, rows: FeatureLoader, *, eta: float, chunk_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return z (n, n_dims) and q (n, C) of rows, without a graph; O(chunk) memory besides the result."""
    z = encode_rows(encoder, rows, chunk_size=chunk_size or LABELED_AT_A_TIME)
    return z, log_soft_assignment(z, centers.detach(), eta=eta).exp()


def assign(fit: FitContext, source: Source, ready: Initialized, trained: Trained, plan: Plan | None) -> Fit:
    """Return the fit: labels, confidence and scores of all rows, with history and facts."""
    model, init, history, before = ready.model, ready.start.init, trained.history, trained.before
    # A fitted model keeps no copies of the rows.
    model.views = None
    options: dict[str, Any] = {"seed": fit.seed, "when": f"after epoch {len(history)}"}
    z, labels, largest, margins, centers = read_trained(trained.model, trained.loader, fit.config, before, **options)
    if trained.model is not model:
        model.load_state_dict(trained.model.state_dict())
    refined: dict[str, object] = {}
    chunks: dict[str, Any] = {"eta": fit.config.eta, "chunk_size": fit.config.chunk_size} if init else {}
    if init is not None and n_combined(init.facts) > 1 and uses_given_graph(init.facts):
        labels, largest, refined = _along_relations(fit, source, ready, z, centers)
        if before is not None and init.halves is not None:
            margins = before.margins(ready.prepared.loader, labels, **chunks)
    clusters = labels.cpu().numpy()
    confidence, calibration = _confidence(fit, ready, before, margins, labels, largest, chunks)
    adjacency = source.adjacency(ready.neighbors)
    rule, noise = _noise(fit, ready.prepared, clusters, confidence)
    weights = None if fit.sample_weight is None else fit.sample_weight.values
    counted: Any = slice(None) if fit.sample_weight is None else fit.sample_weight.origin
    modularity = source.modularity(ready.neighbors, clusters)
    sample: dict[str, Any] = {"sample_size": _SILHOUETTE_ROWS, "random_state": fit.seed}
    scores = {} if modularity is None else {"modularity": modularity}
    scores["silhouette"] = silhouette(z.cpu().numpy()[counted], clusters[counted], **sample)
    return Fit(
        method=fit.method.name,
        config=fit.config,
        seed=fit.seed,
        device=str(fit.device),
        encoder=model.encoder.eval() if isinstance(model, Model) else None,
        network=model.eval(),
        centers=centers.detach(),
        meta_nodes=_meta_nodes(z, labels, fit.config.n_clusters, ready.model),
        preprocessing=ready.prepared.preprocessing,
        sparse_input=trained.loader.sparse,
        z=z,
        labels=clusters,
        confidence=confidence,
        calibration=calibration,
        noise_rule=rule,
        noise=noise,
        reference=_reference(fit, ready.prepared, clusters),
        linkage=cluster_linkage(
            ready.prepared.features, adjacency, clusters, fit.config.n_clusters, sample_weight=weights
        ),
        history=by_name(history),
        seconds=fit.clock.seconds,
        scores={**scores, **objective_score(history, fit.config)},
        facts={
            **_facts(fit, source, ready, plan),
            "fallback": trained.fallback,
            **trained.facts,
            **refined,
            **_relations_kept(fit, source, clusters),
            **confidence_facts(calibration),
            **noise_facts(noise),
        },
        adjacency=adjacency,
        sample_weight=weights,
    )


def _confidence(
    fit: FitContext,
    ready: Initialized,
    before: BeforeTraining | None,
    margins: Tensor,
    labels: Tensor,
    largest: Tensor,
    chunks: Mapping[str, Any],
) -> tuple[NDArray[Any], Calibration | None]:
    """Return the confidence (N,), and its calibration: that of this fit, or a previous one that is still valid."""
    init = ready.start.init
    if init is not None and init.halves is not None and before is not None:
        margins_and_distances = margins.cpu().numpy()
        calibration = calibrated(margins_and_distances, labels.cpu().numpy(), init.halves, before)
        return calibration.apply(margins_and_distances), calibration
    previous = None if fit.previous is None else fit.previous.valid_calibration(fit.config.n_clusters)
    if previous is None:
        return largest.cpu().numpy(), None
    margins = previous.before.margins(ready.prepared.loader, labels, **chunks)
    return previous.apply(margins.cpu().numpy()), previous


def read_trained(
    model: Any, rows: FeatureLoader, config: Any, before: BeforeTraining | None, *, seed: int, when: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return z (N, n_dims), labels (N,), the largest q (N,), margins (N, 2) and centers of a trained model.

    In a process group, the rows of all processes are gathered. Margins are empty without `before`.
    """
    if isinstance(model, Model) and model.centers is not None:
        z, labels, largest = labeled(model, rows, config, when=when)
        centers: Tensor = model.centers
    else:
        z, q, centers = read_model(model, rows, config, seed=seed)
        check_embedding(q, len(z), when, "A smaller lr")
        largest, labels = q.max(dim=1)
    margins = z.new_empty(len(z), 0)
    if before is not None:
        margins = before.margins(rows, labels, eta=config.eta, chunk_size=config.chunk_size)
    n_nodes = count_rows(len(z), model.group)
    z, labels, largest, margins = (model.group.gather_rows(part, n_nodes) for part in (z, labels, largest, margins))
    return z, labels, largest, margins, centers


def uses_given_graph(facts: Mapping[str, object]) -> bool:
    """Return whether a fit with these facts about its graph and inputs uses the given graph."""
    return facts.get("graph") == "given" and facts.get("inputs") != "features"


def _meta_nodes(z: Tensor, labels: Tensor, n_clusters: int, model: Any) -> Tensor:
    """Return the meta-nodes (C, n_dims) of the labels (N,), Eq 8, with weighted rows."""
    weight: Tensor | None = getattr(model, "sample_weight", None)
    if weight is None:
        return meta_nodes(z, labels, n_clusters=n_clusters)
    return meta_nodes(z * weight[:, None], labels, n_clusters=n_clusters) * (len(z) / weight.sum())


def _noise(
    fit: FitContext, prepared: Prepared, labels: NDArray[np.int64], confidence: NDArray[Any]
) -> tuple[NoiseRule | None, NDArray[np.int8] | None]:
    """Return the rule that tells noise from clusters, and the codes (N,) of the rows; None without `min_confidence`."""
    limit = getattr(fit.config, "min_confidence", None)
    if limit is None:
        return None, None
    counted: Any = slice(None) if fit.sample_weight is None else fit.sample_weight.origin
    rule = fit_noise_rule(prepared.features[counted], labels[counted], fit.config.n_clusters)
    return rule, noise_codes(confidence, rule.is_unlike(prepared.features, labels), min_confidence=limit)


def _update_facts(fit: FitContext, ready: Initialized) -> dict[str, object]:
    """Return the changes of the clusters, and the number of rows used to calibrate the confidence."""
    if fit.previous is None or ready.neighbors.regrouped is None:
        return {}
    is_kept = fit.previous.valid_calibration(fit.config.n_clusters) is not None
    n_calibrated = fit.previous.calibrated_rows if is_kept else len(fit.previous.old)
    return {**regrouped_facts(ready.neighbors.regrouped), "calibrated_rows": n_calibrated}


def _reference(fit: FitContext, prepared: Prepared, labels: NDArray[np.int64]) -> Reference:
    """Return the moments of the clusters, with which later rows are compared."""
    if prepared.sample is None:
        return fit_reference(prepared.features, labels, fit.config.n_clusters)
    return fit_reference(prepared.features[prepared.sample], labels[prepared.sample], fit.config.n_clusters)


def _along_relations(
    fit: FitContext, source: Source, ready: Initialized, z: Tensor, centers: Tensor
) -> tuple[Tensor, Tensor, dict[str, object]]:
    """Return labels (N,) and the largest q (N,) after smoothing q along the relations, and facts.

    The features of a row predict clusters of several relations less well than its edges do, and rows with the same
    features may have different edges. If smoothing empties a cluster, the labels are those of q itself.
    """
    q = log_soft_assignment(z, centers.detach(), eta=fit.config.eta).exp().cpu()
    adjacency: Any = source.adjacency(ready.neighbors)
    smooth = torch.from_numpy(smoothed(q.double().numpy(), adjacency, [_REACH_OF_LABELS])[0]).to(q)
    alone, (largest, labels) = q.argmax(dim=1), smooth.max(dim=1)
    if torch.bincount(labels).count_nonzero() < torch.bincount(alone).count_nonzero():
        largest, labels = q.max(dim=1)
    share = float((labels != alone).double().mean())
    return labels.to(z.device), largest.to(z.device), {"share_assigned_by_edges": share}


def _relations_kept(fit: FitContext, source: Source, labels: NDArray[np.int64]) -> dict[str, object]:
    """Return the share of each relation's edges inside clusters as a fact, if there are relations."""
    matrices = source.relation_matrices() if fit.method.uses_graph else {}
    return {"relation_edges": edges_by_relation(matrices, labels, fit.config.n_clusters)} if matrices else {}


def _facts(fit: FitContext, source: Source, ready: Initialized, plan: Plan | None) -> dict[str, object]:
    """Return the findings and decisions before training, as plain values."""
    init, pairs = ready.start.init, getattr(ready.model, "pairs", None)
    n_pairs = pairs.n_pairs if pairs is not None else ready.neighbors.graph.n_stored if source.is_large else 0
    config = fit.config
    conditional: dict[str, object] = {}
    if config.n_clusters > 1 and "proxy" in config.names():
        conditional["bound_holds"] = bound_holds(source.n_nodes, config.n_clusters, config.tau, proxy=config.proxy)
    if plan is not None:
        conditional |= {"planned_bytes": plan.total, "chunk_size": plan.chunk_size}
    if fit.sample_weight is not None:
        conditional |= {"total_weight": float(fit.sample_weight.values.sum())}
    return {
        "preprocessing": ready.prepared.preprocessing.kind,
        **ready.neighbors.facts,
        "n_edges": source.n_edges(ready.neighbors),
        "n_positive_pairs": n_pairs,
        "kept_influence": ready.kept_influence,
        "init_kept": init is not None and init.cached,
        **({} if init is None else init.facts),
        **_update_facts(fit, ready),
        **conditional,
        "n_processes": 1 if fit.group is None else fit.group.size,
    }
