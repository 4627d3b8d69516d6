"""Facts about the clusters of a fit, and a check that given rows are those of the fit."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import AttributedGraph, Features
from pamc.data.store import Store
from pamc.errors import ConfigError, DataError, DataWarning
from pamc.graph.adjacency import build_adjacency
from pamc.report.differences import feature_columns
from pamc.report.noise import with_noise_group
from pamc.report.outliers import outlier_columns
from pamc.report.profile import cell_columns, profile_columns
from pamc.report.traits import trait_columns
from pamc.report.variables import RawVariable, outlier_features, raw_variables

# A tidy table: equal-length columns by name.
Columns: TypeAlias = dict[str, NDArray[Any]]

# Rows with at least this confidence are clear.
CLEAR = 0.8

# Number of rows whose distances to all centers are computed at a time.
_ROWS_PER_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class ClusterFacts:
    """Facts about the clusters of a fit, as tables of columns. Noise, if any, is one more group after the clusters.

    Parameters
    ----------
    clusters
        One row per cluster, including empty ones: `cluster`, `n_rows`, `share` (of all rows), `confidence` (mean; NaN
        for an empty cluster), `edges_inside` (share of its edge ends whose other end is inside; NaN without edges). For
        a table of mixed types, `name` is a short name made from the most distinctive traits.
    features
        Distinctive features of each cluster, the strongest first: `cluster`, `feature` (its column), `name`,
        `difference`, `inside`, `elsewhere`, `kind`. For kind "difference", `inside` and `elsewhere` are the means over
        the cluster and the other rows, and `difference` is their difference in standard deviations of the column. For
        kind "term" (few nonzero values, none negative), they are the shares of rows with the term, and `difference` is
        the difference of their log-odds in standard errors, with a prior against chance results for rare terms. Kind
        "share" is "difference" for a column of zeros and ones, whose means are the shares of ones.

        For a table of mixed types, a feature is a column of the table as the user knows it, and `kind` is its type, or
        "missing" if the cells are missing unusually often or rarely. `trait` and `text` say what is different, such as
        "city = Köln" and "83 % (12 % of all rows)". `value` is the value, word or period meant, if any; `inside`,
        `elsewhere` and `overall` are shares, or medians of numbers, of ranks of ordered categories, and of dates in
        years. `difference` is that of the shares, or of mean ranks, in standard deviations. Missing cells are left out.
    rows
        Example rows of each cluster: `cluster`, `role` ("central": closest to the center, from the more confident half;
        "border": almost as close to another center, from the other half), `rank` from 0, `row`, `id`, `confidence`,
        `leans_to` (the other cluster of a border row; −1 for a central row).
    odd
        Outliers, the most extreme first within each reason: `row`, `id`, `cluster`, `confidence`, `reason`, `feature`,
        `value`. The reasons are "isolated" (no edge; the value is 0), "extreme value" (in the column `feature`; the
        value is its distance from the median divided by that of the farthest other value, see
        :func:`~pamc.report.outliers.extreme_rows`), "far from all centers" (the value is the distance to the nearest
        center relative to the typical one) and "low confidence" (the value is the confidence relative to the median).
    flows
        (C, C) symmetric weight of the edges between clusters. Each edge counts at both ends, so each row sums to the
        total degree of the cluster's rows, and its diagonal divided by that sum is `edges_inside`.
    similarity
        (C, C) cosine similarity of the meta-nodes; 0 for an empty cluster.
    leaning
        (C, C) share of the rows of each cluster (first axis) that have a confidence below 0.8 and are closest to the
        center of each other cluster (second axis).
    profile
        Typical value of each column of a table of mixed types, None for plain numbers: `cluster` (−1 for all rows),
        `column`, `type`, `typical` (as text: the median, the most frequent value, or the most frequent words), `share`
        (of a most frequent value among the cells that are filled; else NaN), `missing` (share of missing cells).
    cells
        The cells of the rows in `rows` and `odd` for a table of mixed types, else None: `row`, `id`, `column`, `cell`
        (as text, "" if missing).
    """

    clusters: Columns
    features: Columns
    rows: Columns
    odd: Columns
    flows: NDArray[np.float64]
    similarity: NDArray[np.float64]
    leaning: NDArray[np.float64]
    profile: Columns | None = None
    cells: Columns | None = None


def cluster_facts(
    model: Any, graph: AttributedGraph, *, n_features: int = 8, n_rows: int = 5, n_odd: int | None = 50
) -> ClusterFacts:
    """Return facts about the clusters of a fitted model. O(N·(d + C·n_dims) + E) time.

    Parameters
    ----------
    model
        A fitted estimator of any method.
    graph
        The rows of the fit, with their edges if there are any; its labels are not used.
    n_features, n_rows
        Maximum number of features and of rows of each role per cluster.
    n_odd
        Maximum number of outliers; None returns all of them.

    Examples
    --------
    >>> from pamc import PamCGC
    >>> from pamc.data.synthetic import block_model
    >>> graph = block_model(90, 3, random_state=0)
    >>> model = PamCGC(3, n_epochs=5, advanced={"hidden": (16,)}, random_state=0, device="cpu").fit_graph(graph)
    >>> facts = cluster_facts(model, graph)
    >>> facts.clusters["n_rows"].sum(), facts.flows.shape
    (np.int64(90), (3, 3))
    """
    n_odd = graph.n_nodes if n_odd is None else n_odd
    counts: dict[str, Any] = {"n_features": n_features, "n_rows": n_rows, "n_odd": n_odd}
    for name, value in counts.items():
        if not isinstance(value, Integral) or value < 0:
            raise ConfigError(f"{name} must be an integer of at least 0, got {value!r}")
    model = with_noise_group(model)
    labels = _checked_labels(model, graph)
    n_clusters = len(model.cluster_centers_)
    confidence = np.asarray(model.confidence_, dtype=np.float64)
    adjacency = None
    if graph.edges is not None:
        with warnings.catch_warnings():
            # The fit already warned about what it dropped.
            warnings.simplefilter("ignore", DataWarning)
            adjacency = build_adjacency(graph.edges, graph.edge_weight, n_nodes=graph.n_nodes, expect_directed=True)
    flows, degree = np.zeros((n_clusters, n_clusters)), None
    if adjacency is not None:
        flows = edge_flows(adjacency.indptr, adjacency.indices, adjacency.data, labels, n_clusters)
        degree = np.diff(adjacency.indptr)
    to_center, to_nearest, to_other, other = _center_distances(model, labels, n_clusters)
    ids = graph.row_ids.astype(str)
    clusters = cluster_columns(labels, confidence, n_clusters, flows)
    unclear = np.flatnonzero((confidence < CLEAR) & (other >= 0))
    pairs = np.bincount(labels[unclear] * n_clusters + other[unclear], minlength=n_clusters**2)
    variables = raw_variables(graph)
    if variables:
        features, names = trait_columns(variables, labels, n_clusters, n_features)
        clusters["name"] = np.array(names, dtype=str)
    else:
        features = feature_columns(graph.features, labels, n_clusters, n_features, graph.feature_names)
    values, names_of_values = _possibly_extreme(graph)
    rows = _example_rows(labels, n_clusters, to_center, to_other, other, confidence, ids, n_rows)
    odd = outlier_columns(labels, confidence, to_nearest, degree, values, names_of_values, ids, n_odd)
    return ClusterFacts(
        clusters=clusters,
        features=features,
        rows=rows,
        odd=odd,
        flows=flows,
        similarity=_cosines(np.asarray(model.meta_nodes_, dtype=np.float64)),
        leaning=pairs.reshape(n_clusters, n_clusters) / np.maximum(clusters["n_rows"], 1)[:, None],
        profile=profile_columns(variables, labels, n_clusters) if variables else None,
        cells=_cells(variables, rows, odd, ids) if variables else None,
    )


def _possibly_extreme(graph: AttributedGraph) -> tuple[Features, tuple[str, ...] | None]:
    """Return the features among which extreme values are searched, and their names."""
    encoding = graph.encoding
    if encoding is None:
        return graph.features, graph.feature_names
    columns = outlier_features(encoding)
    names = tuple(encoding.variables[encoding.variable_of[column]].name for column in columns)
    return graph.features[:, columns], names


def _cells(variables: list[RawVariable], rows: Columns, odd: Columns, ids: NDArray[Any]) -> Columns:
    return cell_columns(variables, np.concatenate([rows["row"], odd["row"]]), ids)


def edge_flows(
    indptr: NDArray[Any], indices: NDArray[Any], weight: NDArray[Any] | None, labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float64]:
    """Return the (C, C) weights of the edges of a CSR matrix between clusters, read in blocks."""
    flows = np.zeros(n_clusters**2)
    for start in range(0, len(labels), _ROWS_PER_BLOCK):
        stop = min(start + _ROWS_PER_BLOCK, len(labels))
        entries = slice(int(indptr[start]), int(indptr[stop]))
        source = np.repeat(labels[start:stop], np.diff(indptr[start : stop + 1]))
        weights = None if weight is None else np.asarray(weight[entries], dtype=np.float64)
        flows += np.bincount(source * n_clusters + labels[indices[entries]], weights, minlength=len(flows))
    square = flows.reshape(n_clusters, n_clusters)
    return np.asarray((square + square.T) / 2)


def cluster_columns(
    labels: NDArray[np.int64],
    confidence: NDArray[np.float64],
    n_clusters: int,
    flows: NDArray[np.float64] | None = None,
) -> Columns:
    """Return the table of clusters; without `flows`, values about edges are NaN."""
    count = np.bincount(labels, minlength=n_clusters)
    sums = np.bincount(labels, confidence, minlength=n_clusters)
    inside, volume = (np.zeros(n_clusters),) * 2 if flows is None else (np.diag(flows), flows.sum(axis=1))
    undefined = np.full(n_clusters, np.nan)
    return {
        "cluster": np.arange(n_clusters),
        "n_rows": count,
        "share": count / len(labels),
        "confidence": np.divide(sums, count, out=undefined.copy(), where=count > 0),
        "edges_inside": np.divide(inside, volume, out=undefined, where=volume > 0),
    }


def _checked_labels(model: Any, graph: AttributedGraph | Store) -> NDArray[np.int64]:
    """Return the cluster (N,) of each row; raise an error if the model was not fitted on this graph."""
    labels = getattr(model, "labels_", None)
    if labels is None:
        if getattr(model, "_slim_record", None) is not None:
            raise ConfigError("this model has no training rows, because it was saved with slim=True: load a whole run")
        raise ConfigError(f"{type(model).__name__} is not fitted yet: call fit first")
    if len(labels) != graph.n_nodes:
        raise DataError(
            f"the model was fitted on {len(labels)} rows, these data have {graph.n_nodes}: pass the rows of the fit"
        )
    encoding = getattr(model, "columns_", None)
    n_columns = getattr(model, "n_features_in_", graph.n_features) if encoding is None else len(encoding.feature_names)
    if n_columns != graph.n_features:
        raise DataError(f"the model was fitted on {n_columns} feature columns, these data have {graph.n_features}")
    return np.asarray(labels, dtype=np.int64)


def _center_distances(
    model: Any, labels: NDArray[np.int64], n_clusters: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return distances of the rows (N,): to the center of their cluster, to the nearest center, to the next cluster.

    The next cluster, returned last, is the nonempty other one with the nearest center; if there is none, it is −1 at
    distance ∞.
    """
    z = np.asarray(model.embedding_)
    centers = np.asarray(model.cluster_centers_, dtype=np.float64)
    empty = np.bincount(labels, minlength=n_clusters) == 0
    to_center, to_nearest, to_other = np.empty((3, len(labels)))
    other = np.empty(len(labels), dtype=np.int64)
    for start in range(0, len(labels), _ROWS_PER_BLOCK):
        block = slice(start, start + _ROWS_PER_BLOCK)
        rows, cluster = z[block].astype(np.float64), labels[block, None]
        squared = np.square(rows).sum(axis=1)[:, None] - 2 * rows @ centers.T + np.square(centers).sum(axis=1)
        distance = np.sqrt(np.maximum(squared, 0.0))
        to_center[block] = np.take_along_axis(distance, cluster, axis=1)[:, 0]
        to_nearest[block] = distance.min(axis=1)
        distance[:, empty] = np.inf
        np.put_along_axis(distance, cluster, np.inf, axis=1)
        to_other[block] = distance.min(axis=1)
        other[block] = np.where(np.isfinite(to_other[block]), distance.argmin(axis=1), -1)
    return to_center, to_nearest, to_other, other


def _example_rows(
    labels: NDArray[np.int64],
    n_clusters: int,
    to_center: NDArray[np.float64],
    to_other: NDArray[np.float64],
    other: NDArray[np.int64],
    confidence: NDArray[np.float64],
    ids: NDArray[Any],
    n_rows: int,
) -> Columns:
    """Return at most `n_rows` central and border rows of each cluster."""
    lines: list[tuple[int, str, int, int, int]] = []
    ends = np.cumsum(np.bincount(labels, minlength=n_clusters))
    for number, members in enumerate(np.split(np.argsort(labels, kind="stable"), ends[:-1])):
        # In a small cluster, split the rows: none is both central and border.
        n_central = min(n_rows, (len(members) + 1) // 2)
        # Training pulls doubtful rows to the center too, so central rows must also be confident.
        median = np.median(confidence[members]) if len(members) else 0.0
        sure = members[confidence[members] >= median]
        central = sure[np.argsort(to_center[sure], kind="stable")[:n_central]]
        rest = np.setdiff1d(members[confidence[members] <= median], central)
        rest = rest[other[rest] >= 0]
        border = rest[np.argsort(to_other[rest] - to_center[rest], kind="stable")[:n_rows]]
        lines += [(number, "central", rank, row, -1) for rank, row in enumerate(central.tolist())]
        lines += [(number, "border", rank, row, int(other[row])) for rank, row in enumerate(border.tolist())]
    cluster, rank, row, leans_to = (np.array([line[i] for line in lines], dtype=np.int64) for i in (0, 2, 3, 4))
    return {
        "cluster": cluster,
        "role": np.array([line[1] for line in lines], dtype=str),
        "rank": rank,
        "row": row,
        "id": ids[row],
        "confidence": confidence[row],
        "leans_to": leans_to,
    }


def _cosines(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0)
    return np.asarray(np.clip(unit @ unit.T, -1.0, 1.0))


# Number of rows that are encoded again, evenly spaced.
_ENCODED_ROWS = 4096

# Tolerances on z relative to its typical distance from the median and to its own norm, and the share of rows that must
# meet them. Rounding stays below them, also in half precision; reordered rows do not.
_NEAR, _ROUNDED, _MOST = 0.05, 0.01, 0.98


def are_rows_of_fit(model: Any, features: Any) -> bool:
    """Return whether a fitted model gives rows the same embedding as in the fit.

    Returns True if this cannot be decided: for methods without a row-wise encoder, for a graph without features, and
    for a user's encoder, whose output may change after training, as with batch normalization. O(d + n_dims) for each of
    at most 4,096 rows.

    Examples
    --------
    >>> from pamc import PamCGC
    >>> from pamc.data.synthetic import block_model
    >>> X = block_model(90, 3, random_state=0).features
    >>> model = PamCGC(3, n_epochs=5, advanced={"hidden": (16,)}, random_state=0, device="cpu").fit(X)
    >>> are_rows_of_fit(model, X), are_rows_of_fit(model, X[::-1])
    (True, False)
    """
    is_alone = getattr(model, "n_features_in_", None) == 0
    if not hasattr(model, "transform") or getattr(model, "encoder", None) is not None or is_alone:
        return True
    embedding = np.asarray(model.embedding_)
    rows = np.unique(np.linspace(0, len(embedding) - 1, min(_ENCODED_ROWS, len(embedding))).astype(np.int64))
    embedding = embedding[rows].astype(np.float64)
    with warnings.catch_warnings():
        # Unnamed columns are assumed to be those of the fit.
        warnings.simplefilter("ignore", UserWarning)
        try:
            encoded = np.asarray(model.transform(features[rows]), dtype=np.float64)
        except DataError:
            # The rows are too far from those of the fit to be encoded.
            return False
    # Medians are used so that a single outlier does not hide all other differences.
    typical = np.median(np.linalg.norm(embedding - np.median(embedding, axis=0), axis=1))
    allowed = _NEAR * typical + _ROUNDED * np.linalg.norm(embedding, axis=1)
    return bool((np.linalg.norm(encoded - embedding, axis=1) <= allowed).mean() >= _MOST)


def check_rows_of_fit(model: Any, data: AttributedGraph | Store) -> None:
    """Raise an error if the data are not those of the fit: another size, other rows, or another order."""
    _checked_labels(model, data)
    if not are_rows_of_fit(model, data.features):
        raise DataError(
            "these are not the rows of the fit, or they or their columns are in another order: pass X as it was "
            "fitted, or fit again"
        )
