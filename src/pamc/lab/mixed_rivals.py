"""Other clustering methods for tables of mixed types, each with one setting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.columns.types import CATEGORY, DATE, ID, IGNORE, TEXT, TIME, ColumnType
from pamc.errors import BackendError
from pamc.lab.rivals import Labels, Points, Rival

_N_INIT, _N_INIT_PROTOTYPES = 20, 3
_N_FACTORS = 5
_UMAP_NEIGHBORS, _UMAP_DIMS = 15, 10


@dataclass(frozen=True)
class MixedTable:
    """The numbers (N, a) of a table, NaN if missing, and the codes (N, b) of its categories, −1 if missing."""

    numbers: NDArray[np.float64]
    codes: NDArray[np.int64]

    @classmethod
    def of(cls, columns: Sequence[ColumnType]) -> MixedTable:
        """Return the numbers and categories of typed columns; a date counts as a number, and free text is left out."""
        numbers, codes = [], []
        for column in columns:
            if column.kind in (ID, IGNORE, TEXT) or column.values is None:
                continue
            if column.kind in (CATEGORY, "yes/no", "given", "ordered"):
                codes.append(np.where(column.missing, -1, np.nan_to_num(column.values)).astype(np.int64))
            elif column.kind in (DATE, TIME):
                numbers.append(np.where(column.missing, np.nan, column.values.astype(np.int64)))
            else:
                numbers.append(column.values)
        n_rows = len(next(iter([*numbers, *codes])))
        return cls(
            np.stack(numbers, axis=1) if numbers else np.empty((n_rows, 0)),
            np.stack(codes, axis=1) if codes else np.empty((n_rows, 0), dtype=np.int64),
        )

    def filled(self) -> Points:
        """Return the standardized numbers, with missing cells replaced by the median."""
        from sklearn.preprocessing import StandardScaler

        if self.numbers.shape[1] == 0:
            return self.numbers
        filled = np.where(np.isnan(self.numbers), np.nanmedian(self.numbers, axis=0), self.numbers)
        return np.asarray(StandardScaler().fit_transform(filled))

    def indicators(self) -> list[Points]:
        """Return the indicators (N, m) of the values of each category; those of a missing cell are 0."""
        return [(column[:, None] == np.unique(column[column >= 0])).astype(np.float64) for column in self.codes.T]

    def gower(self) -> Points:
        """Return Gower's distances (N, N): the mean over the variables that are known in both rows."""
        n_rows = len(self.numbers)
        total, known = (np.zeros((n_rows, n_rows), dtype=np.float32) for _ in range(2))
        for values in self.numbers.T:
            both = np.logical_and.outer(~np.isnan(values), ~np.isnan(values))
            scaled = np.nan_to_num(values / (np.nanmax(values) - np.nanmin(values) or 1.0)).astype(np.float32)
            total += both * np.abs(np.subtract.outer(scaled, scaled))
            known += both
        for codes in self.codes.T:
            both = np.logical_and.outer(codes >= 0, codes >= 0)
            total += both * np.not_equal.outer(codes, codes)
            known += both
        return np.asarray(total / np.maximum(known, 1))


def _kmeans(points: Points, n_clusters: int, seed: int) -> Labels:
    from sklearn.cluster import KMeans

    return np.asarray(KMeans(n_clusters, n_init=_N_INIT, random_state=seed).fit_predict(points))


def _one_hot(table: MixedTable, n_clusters: int, seed: int) -> Labels:
    from sklearn.preprocessing import StandardScaler

    points = np.concatenate([table.filled(), *table.indicators()], axis=1)
    return _kmeans(StandardScaler().fit_transform(points), n_clusters, seed)


def _prototypes(table: MixedTable, n_clusters: int, seed: int) -> Labels:
    try:
        from kmodes.kmodes import KModes
        from kmodes.kprototypes import KPrototypes
    except ImportError:
        raise BackendError("k-prototypes is not installed: pip install 'pamc[rivals]'") from None
    options: dict[str, Any] = {"n_init": _N_INIT_PROTOTYPES, "random_state": seed}
    numbers = table.filled()
    if numbers.shape[1] == 0:
        return np.asarray(KModes(n_clusters, **options).fit_predict(table.codes))
    if table.codes.shape[1] == 0:
        return _kmeans(numbers, n_clusters, seed)
    cells = np.concatenate([numbers.astype(object), table.codes.astype(str).astype(object)], axis=1)
    categories = list(range(numbers.shape[1], cells.shape[1]))
    return np.asarray(KPrototypes(n_clusters, **options).fit_predict(cells, categorical=categories))


def _average_linkage(table: MixedTable, n_clusters: int, seed: int) -> Labels:
    from sklearn.cluster import AgglomerativeClustering

    return np.asarray(
        AgglomerativeClustering(n_clusters, metric="precomputed", linkage="average").fit_predict(table.gower())
    )


def _factors(table: MixedTable, n_clusters: int, seed: int) -> Labels:
    """Return the clusters of K-means on the leading factors of a factor analysis of mixed data (Pagès 2004)."""
    parts = [table.filled()]
    for indicators in table.indicators():
        scaled = indicators / np.sqrt(indicators.mean(axis=0))
        parts.append(scaled - scaled.mean(axis=0))
    left, spread, _ = np.linalg.svd(np.concatenate(parts, axis=1), full_matrices=False)
    return _kmeans((left * spread)[:, :_N_FACTORS], n_clusters, seed)


def _umap(table: MixedTable, n_clusters: int, seed: int) -> Labels:
    try:
        from umap import UMAP
    except ImportError:
        raise BackendError("UMAP is not installed: pip install 'pamc[rivals]'") from None
    options: dict[str, Any] = {"n_neighbors": _UMAP_NEIGHBORS, "n_components": _UMAP_DIMS, "min_dist": 0.0}
    layout = UMAP(**options, metric="precomputed", random_state=seed, n_jobs=1)
    return _kmeans(np.asarray(layout.fit_transform(table.gower())), n_clusters, seed)


def _with_table(cluster: Callable[[MixedTable, int, int], Labels], table: Any, n_clusters: int, seed: int) -> Labels:
    return cluster(table, n_clusters, seed)


# Methods by the names that stored rows refer to.
MIXED_RIVALS = {
    "one-hot k-means": Rival("one-hot + K-means", partial(_with_table, _one_hot)),
    "k-prototypes": Rival("k-prototypes", partial(_with_table, _prototypes)),
    "gower": Rival("Gower + average linkage", partial(_with_table, _average_linkage), is_random=False),
    "famd": Rival("FAMD + K-means", partial(_with_table, _factors)),
    "umap": Rival("UMAP on Gower + K-means", partial(_with_table, _umap)),
}
