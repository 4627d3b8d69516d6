"""Labels of new rows, with noise on request."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamc.config import FitConfig
from pamc.errors import ConfigError
from pamc.initialize.noise import NOISE_KINDS, noise_codes, without_noise


class Assigned(NamedTuple):
    """Clusters (n,) of rows, −1 for noise, their confidence (n,), and their noise codes (n,), None without noise."""

    labels: NDArray[np.int64]
    confidence: NDArray[np.floating]
    noise: NDArray[np.int8] | None


def limit_of(model: Any, min_confidence: float | None) -> float | None:
    """Return the least confidence of a row in a cluster: the given one, else that of the model; None for no limit."""
    if min_confidence is None:
        return getattr(model._fit_result.config, "min_confidence", None)
    return cast(float, FitConfig.settings()["min_confidence"].check("min_confidence", min_confidence))


def assign(model: Any, X: Any, limit: float | None, adjacency: Any = None) -> Assigned:
    """Return the clusters of rows with their confidence and, if there is a limit, noise.

    With edges to fitted rows, the confidence of neighbors in the same cluster is averaged with that by the features,
    and a row without features is never unlike the training rows.
    """
    edges = model._edges(X, adjacency)
    if edges is None:
        labels, confidence, is_unlike = _by_features(model, X)
    else:
        fit = model._fit_result
        labels = model._assign(X, adjacency)[1].argmax(dim=1).cpu().numpy()
        votes, is_unlike = None, np.zeros(len(labels), dtype=bool)
        if X is not None:
            own_labels, own_confidence, is_unlike = _by_features(model, X)
            votes = _votes(own_labels, own_confidence, len(fit.centers))
        votes = edges.mixed(votes, _votes(fit.labels, fit.confidence, len(fit.centers)))
        # The sum of weights exceeds 1 by rounding.
        confidence = votes.numpy()[np.arange(len(labels)), labels].clip(max=1)
    if limit is None:
        return Assigned(labels, confidence, None)
    codes = noise_codes(confidence, is_unlike, min_confidence=limit)
    return Assigned(without_noise(labels, codes), confidence, codes)


def _by_features(model: Any, X: Any) -> tuple[NDArray[np.int64], NDArray[np.floating], NDArray[np.bool_]]:
    """Return the cluster (n,) of each row by its features, its confidence, and whether it is unlike training rows."""
    fit = model._fit_result
    rows = model._rows(X)
    largest, clusters = model._assigned(rows)[1].max(dim=1)
    labels, confidence, distances = clusters.cpu().numpy(), largest.cpu().numpy(), None
    if fit.calibration is not None:
        options = {"eta": fit.config.eta, "chunk_size": fit.config.chunk_size}
        margins = fit.calibration.before.margins(rows, clusters, **options).cpu().numpy()
        confidence, distances = fit.calibration.apply(margins), margins[:, 1]
    is_unlike = np.zeros(len(labels), dtype=bool)
    if fit.noise_rule is not None:
        is_unlike = fit.noise_rule.is_unlike(rows.features, labels)
    elif distances is not None:
        is_unlike = distances > fit.calibration.reach
    return labels, confidence, is_unlike


def _votes(labels: NDArray[np.int64], confidence: NDArray[np.floating], n_clusters: int) -> Tensor:
    """Return (n, C): the confidence of each row in the column of its cluster, 0 elsewhere."""
    votes = torch.zeros(len(labels), n_clusters, dtype=torch.float64)
    votes[np.arange(len(labels)), labels] = torch.from_numpy(np.asarray(confidence, dtype=np.float64))
    return votes


def noise_names(codes: NDArray[np.int8]) -> NDArray[np.str_]:
    """Return the kind of noise (n,) of each code, "" for a row in a cluster."""
    return np.array(NOISE_KINDS)[codes]


def noise_kinds(model: Any, X: Any, min_confidence: float | None) -> NDArray[np.str_]:
    """Return the kind of noise (n,) of each row; raise a ConfigError without a limit."""
    limit = limit_of(model, min_confidence)
    if limit is None:
        raise ConfigError("noise_kinds needs min_confidence: pass it here, or fit PamCGC(min_confidence=0.7)")
    codes = assign(model, X, limit).noise
    return noise_names(cast("NDArray[np.int8]", codes))
