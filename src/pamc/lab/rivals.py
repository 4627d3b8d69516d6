"""Other clustering methods for tables, each with one setting: scikit-learn's, UMAP before two of them, and Genie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.attributed_graph import Features
from pamc.errors import BackendError

Labels: TypeAlias = "NDArray[np.integer[Any]]"
Points: TypeAlias = "NDArray[np.floating[Any]]"

# Sparse features are reduced to this many leading directions, and for mixtures and UMAP dense ones to `_FEW`.
N_TEXT_DIRECTIONS, _FEW = 100, 50

_N_INIT = 20
_N_NEIGHBORS, _UMAP_NEIGHBORS, _UMAP_DIMS = 10, 15, 10


@dataclass(frozen=True)
class Rival:
    """A clustering method.

    Parameters
    ----------
    title
        Name in tables.
    cluster
        Function that maps points (N, d), the number of clusters and a seed to labels (N,); −1 marks noise.
    is_random
        Whether the result depends on the seed.
    """

    title: str
    cluster: Callable[[Points, int, int], Labels]
    is_random: bool = True


def points_of(features: Features, *, seed: int) -> Points:
    """Return standardized columns; of sparse features, the leading directions of rows of length 1."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.preprocessing import StandardScaler, normalize

    if isinstance(features, np.ndarray):
        return np.asarray(StandardScaler().fit_transform(features.astype(np.float64)))
    n_directions = min(N_TEXT_DIRECTIONS, min(features.shape) - 1)
    return np.asarray(normalize(TruncatedSVD(n_directions, random_state=seed).fit_transform(normalize(features))))


def _kmeans(points: Points, n_clusters: int, seed: int) -> Labels:
    from sklearn.cluster import KMeans

    return np.asarray(KMeans(n_clusters, n_init=_N_INIT, random_state=seed).fit_predict(points))


def _mixture(points: Points, n_clusters: int, seed: int) -> Labels:
    from sklearn.decomposition import PCA
    from sklearn.mixture import GaussianMixture

    if points.shape[1] > _FEW:
        points = PCA(_FEW, random_state=seed).fit_transform(points)
    mixture = GaussianMixture(n_clusters, n_init=3, reg_covar=1e-3, random_state=seed)
    return np.asarray(mixture.fit_predict(points))


def _ward(points: Points, n_clusters: int, seed: int) -> Labels:
    from sklearn.cluster import AgglomerativeClustering

    return np.asarray(AgglomerativeClustering(n_clusters).fit_predict(points))


def _spectral(points: Points, n_clusters: int, seed: int) -> Labels:
    from sklearn.cluster import SpectralClustering

    options: dict[str, Any] = {"affinity": "nearest_neighbors", "n_neighbors": _N_NEIGHBORS, "random_state": seed}
    return np.asarray(SpectralClustering(n_clusters, **options).fit_predict(points))


def _hdbscan(points: Points, n_clusters: int, seed: int) -> Labels:
    from sklearn.cluster import HDBSCAN

    return np.asarray(HDBSCAN(copy=True).fit_predict(points))


def _umap(points: Points, seed: int) -> Points:
    try:
        from umap import UMAP
    except ImportError:
        raise BackendError("UMAP is not installed: pip install 'pamc[rivals]'") from None

    n_dims = min(_UMAP_DIMS, max(2, points.shape[1]))
    layout = UMAP(n_neighbors=_UMAP_NEIGHBORS, n_components=n_dims, min_dist=0.0, random_state=seed, n_jobs=1)
    return np.asarray(layout.fit_transform(points))


def _umap_kmeans(points: Points, n_clusters: int, seed: int) -> Labels:
    return _kmeans(_umap(points, seed), n_clusters, seed)


def _umap_mixture(points: Points, n_clusters: int, seed: int) -> Labels:
    return _mixture(_umap(points, seed), n_clusters, seed)


def _genie(points: Points, n_clusters: int, seed: int) -> Labels:
    try:
        from genieclust import Genie
    except ImportError:
        raise BackendError("Genie is not installed: pip install 'pamc[rivals]'") from None

    return np.asarray(Genie(n_clusters).fit_predict(points))


def leiden_communities(adjacency: Any, seed: int) -> NDArray[np.int64]:
    """Return the communities (N,) of a symmetric sparse matrix by the Leiden method, which maximizes the modularity."""
    try:
        import igraph
        import leidenalg
    except ImportError:
        raise BackendError("leidenalg is not installed: pip install 'pamc[rivals]'") from None

    once = sp.triu(adjacency, format="coo")
    graph = igraph.Graph(n=adjacency.shape[0], edges=np.stack([once.row, once.col], axis=1).tolist())
    options: dict[str, Any] = {"weights": once.data.tolist(), "n_iterations": -1, "seed": seed}
    found = leidenalg.find_partition(graph, leidenalg.ModularityVertexPartition, **options)
    return np.asarray(found.membership, dtype=np.int64)


# By the names that stored rows refer to.
RIVALS = {
    "k-means": Rival("K-means", _kmeans),
    "mixture": Rival("Gaussian mixture", _mixture),
    "ward": Rival("Ward", _ward, is_random=False),
    "spectral": Rival("spectral", _spectral),
    "hdbscan": Rival("HDBSCAN", _hdbscan, is_random=False),
    "umap+k-means": Rival("UMAP + K-means", _umap_kmeans),
    "umap+mixture": Rival("UMAP + mixture", _umap_mixture),
    "genie": Rival("Genie", _genie, is_random=False),
}
