"""Projection of the embedding to two dimensions: a layout of its kNN graph if the rows are few enough, else PCA."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.errors import BackendError, UnknownNameError

MAPS = ("auto", "layout", "pca", "umap")

# Numbers of rows for which "auto" uses a layout.
_LEAST_LAYOUT_ROWS, _MOST_LAYOUT_ROWS = 17, 20_000

# Number of neighbors in the graph of a layout, and its extent at the beginning.
_N_NEIGHBORS, _EXTENT = 15, 10.0

# Less than half of UMAP's default for few rows; the maps look similar.
_UMAP_EPOCHS = 200

_ROWS_PER_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class Projection:
    """A map of an embedding by `method`: (N, 2) positions of the rows, and a note for the reader."""

    method: str
    rows: NDArray[np.float64]
    note: str


def project(embedding: NDArray[Any], *, how: str = "auto", seed: int = 0) -> Projection:
    """Return the map of an embedding, reproducible for a given seed.

    `how` is "layout", which places neighbors close to each other, "pca", "umap", or "auto": a layout of 17 to 20,000
    rows, else PCA.

    Examples
    --------
    >>> flat = project(np.eye(3), how="pca")
    >>> flat.method, flat.rows.shape
    ('PCA', (3, 2))
    """
    if how not in MAPS:
        raise UnknownNameError("map", how, MAPS)
    if how == "umap":
        return _umap(embedding, seed)
    if how == "layout" or (how == "auto" and _LEAST_LAYOUT_ROWS <= len(embedding) <= _MOST_LAYOUT_ROWS):
        return _layout(embedding, seed)
    return _pca(embedding)


def _layout(embedding: NDArray[Any], seed: int) -> Projection:
    """Return a layout of the kNN graph of the embedding, which starts from its PCA. O(N²·d) time for the neighbors."""
    import torch

    from pamc.graph.adjacency import build_adjacency
    from pamc.graph.neighbors import nearest
    from pamc.initialize.families.layout import fuzzy_graph, layout
    from pamc.runtime import one_thread

    points, start = embedding.astype(np.float64), _pca(embedding).rows
    edges = nearest(points, min(_N_NEIGHBORS, len(points) - 1)).edges
    with one_thread():
        graph = fuzzy_graph(points, build_adjacency(edges, None, n_nodes=len(points), expect_directed=True))
        start *= _EXTENT / (np.abs(start).max() or 1.0)
        rows = layout(graph, start, seed=seed, device=torch.device("cpu"))
    note = (
        "The map places rows that are similar in the embedding close to each other. Distances between groups that are "
    )
    return Projection("layout", rows, note + "far apart mean little.")


def _pca(embedding: NDArray[Any]) -> Projection:
    """Project to the two principal components. O(N·d²) time, O(d²) memory in addition to the map."""
    mean = embedding.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((embedding.shape[1],) * 2)
    for block in _centered_blocks(embedding, mean):
        covariance += block.T @ block
    variance, directions = np.linalg.eigh(covariance)
    axes = np.zeros((embedding.shape[1], 2))
    n_axes = min(2, embedding.shape[1])
    axes[:, :n_axes] = directions[:, ::-1][:, :n_axes]
    # The sign is arbitrary; make the largest coordinate positive on every machine.
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(2)] + 1e-300)
    rows = np.concatenate([block @ axes for block in _centered_blocks(embedding, mean)])
    share = variance[::-1][:2].sum() / variance.sum() if variance.sum() > 0 else 1.0
    note = f"The map is a PCA of the embedding and shows {100 * share:.0f} % of its variance. Clusters that overlap "
    return Projection("PCA", rows, note + "here may be apart in the other dimensions.")


def _umap(embedding: NDArray[Any], seed: int) -> Projection:
    if importlib.util.find_spec("umap") is None:
        raise BackendError('a map by UMAP needs the package umap-learn: pip install "pamc[umap]", or use --map layout')
    with warnings.catch_warnings():
        # Warnings about optional packages, single-threading due to the seed, and disconnected components.
        warnings.simplefilter("ignore")
        from umap import UMAP

        model = UMAP(n_neighbors=min(15, len(embedding) - 1), n_epochs=_UMAP_EPOCHS, random_state=seed)
        rows = np.asarray(model.fit_transform(embedding), dtype=np.float64)
    note = "The map was made by UMAP from the embedding: neighbors stay neighbors, but distances between groups that "
    return Projection("UMAP", rows, note + "are far apart mean little.")


def _centered_blocks(embedding: NDArray[Any], mean: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(embedding), _ROWS_PER_BLOCK):
        yield embedding[start : start + _ROWS_PER_BLOCK].astype(np.float64) - mean
