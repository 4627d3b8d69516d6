"""Projection of the embedding to two dimensions: UMAP if installed and the rows are few enough, else PCA."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.errors import BackendError, UnknownNameError

MAPS = ("auto", "pca", "umap")

# Maximum number of rows for which "auto" uses UMAP, which takes some seconds per thousand rows.
_MOST_UMAP_ROWS = 20_000

# Less than half of UMAP's default for few rows; the maps look similar.
_UMAP_EPOCHS = 200

_ROWS_PER_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class Projection:
    """A map of an embedding by `method`, "PCA" or "UMAP", with a `note` for the reader.

    Positions of rows (N, 2), and of centers and meta-nodes (C, 2), the latter at the scale of the rows; NaN for none.
    """

    method: str
    rows: NDArray[np.float64]
    centers: NDArray[np.float64]
    meta_nodes: NDArray[np.float64]
    note: str


def project(
    embedding: NDArray[Any],
    centers: NDArray[Any],
    labels: NDArray[np.int64],
    *,
    how: str = "auto",
    seed: int = 0,
) -> Projection:
    """Return the map of an embedding, reproducible for a given seed.

    Meta-nodes (Eq 8) are cluster sums divided by N; they are drawn at the mean of their cluster, which has the same
    direction. `how` is "pca", "umap" or "auto", which uses UMAP if it is installed and there are at most 20,000 rows.

    Examples
    --------
    >>> flat = project(np.eye(3), np.eye(3), np.arange(3), how="pca")
    >>> flat.method, flat.rows.shape
    ('PCA', (3, 2))
    """
    if how not in MAPS:
        raise UnknownNameError("map", how, MAPS)
    installed = importlib.util.find_spec("umap") is not None
    if how == "umap" and not installed:
        raise BackendError('a map by UMAP needs the package umap-learn: pip install "pamc[umap]", or take --map pca')
    n_clusters = len(centers)
    # Methods without centers in the embedding (K-means on the features) have centers of another dimension.
    joined = centers if centers.shape[1:] == embedding.shape[1:] else np.full((n_clusters, embedding.shape[1]), np.nan)
    if how == "umap" or (how == "auto" and installed and 16 < len(embedding) <= _MOST_UMAP_ROWS):
        return _umap(embedding, joined, labels, seed)
    return _pca(embedding, joined, labels)


def _pca(embedding: NDArray[Any], centers: NDArray[Any], labels: NDArray[np.int64]) -> Projection:
    """Project to the two principal components. O(N·d²) time, O(d²) memory in addition to the map."""
    mean = embedding.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((embedding.shape[1],) * 2)
    for block in _blocks(embedding, mean):
        covariance += block.T @ block
    variance, directions = np.linalg.eigh(covariance)
    axes = np.zeros((embedding.shape[1], 2))
    n_axes = min(2, embedding.shape[1])
    axes[:, :n_axes] = directions[:, ::-1][:, :n_axes]
    # The sign is arbitrary; make the largest coordinate positive on every machine.
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(2)] + 1e-300)
    rows = np.concatenate([block @ axes for block in _blocks(embedding, mean)])
    share = variance[::-1][:2].sum() / variance.sum() if variance.sum() > 0 else 1.0
    note = f"PCA: the two directions of most variance, {100 * share:.0f} % of all of it. Clusters may overlap here "
    note += "that are apart in the embedding."
    placed = (centers.astype(np.float64) - mean) @ axes
    return Projection("PCA", rows, placed, _means(rows, labels, len(centers)), note)


def _umap(embedding: NDArray[Any], centers: NDArray[Any], labels: NDArray[np.int64], seed: int) -> Projection:
    with warnings.catch_warnings():
        # Warnings about optional packages, single-threading due to the seed, and disconnected components.
        warnings.simplefilter("ignore")
        from umap import UMAP

        model = UMAP(n_neighbors=min(15, len(embedding) - 1), n_epochs=_UMAP_EPOCHS, random_state=seed)
        rows = np.asarray(model.fit_transform(embedding), dtype=np.float64)
    means = _means(rows, labels, len(centers))
    note = "UMAP: neighbors stay neighbors; distances between far groups mean little. Centers and meta-nodes are shown "
    note += "at the middle of their cluster's rows."
    return Projection("UMAP", rows, means, means, note)


def _means(rows: NDArray[np.float64], labels: NDArray[np.int64], n_clusters: int) -> NDArray[np.float64]:
    """Return the (C, 2) mean position of each cluster's rows, NaN for an empty cluster."""
    count = np.bincount(labels, minlength=n_clusters)[:, None]
    sums = np.stack([np.bincount(labels, rows[:, axis], minlength=n_clusters) for axis in range(2)], axis=1)
    means: NDArray[np.float64] = np.divide(sums, count, out=np.full((n_clusters, 2), np.nan), where=count > 0)
    return means


def _blocks(embedding: NDArray[Any], mean: NDArray[np.float64]) -> Any:
    for start in range(0, len(embedding), _ROWS_PER_BLOCK):
        yield embedding[start : start + _ROWS_PER_BLOCK].astype(np.float64) - mean
