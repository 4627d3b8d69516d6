"""Start a fit from a previous one: find the clusters that appeared, split or merged, and continue with its encoder.

An update starts from the encoder, the centers and the cluster numbers of the previous fit. Clusters change only where
rows did. A group of new rows, or of rows with new values, becomes a cluster of its own if nearly all nearest neighbors
of its rows are in the group. Two clusters are merged if their rows have become neighbors of each other nearly as often
as in a random mixture of both. No labels are used, and rows that resemble the previous ones change nothing.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from pamc.data.preprocessing import Preprocessing
from pamc.graph.neighbors import nearest
from pamc.graph.smoothing import Floats
from pamc.initialize.base import InitContext, InitResult, mean_centers
from pamc.initialize.calibration import Calibration, matched_clusters
from pamc.initialize.consensus import InputSource, agreed_clusters
from pamc.initialize.family import MIDDLE, smoothed_embeddings
from pamc.initialize.fitting import fitted_to, labeled_targets
from pamc.models.layers import MLP
from pamc.ops.kmeans import Labels
from pamc.runtime import one_thread, quiet_libraries

# Number of nearest rows that determine whether a row belongs to a new group, and the minimum number of rows of a group.
_N_NEIGHBORS, _LEAST_ROWS = 10, 12

# If more than this share of the rows is new, only rows unlike the previous ones can form new clusters.
_MOSTLY_NEW = 0.5

# Minimum size of a group, as a share of the mean cluster size.
_LEAST_SHARE = 0.05

# A row is novel if the share of new rows among its nearest rows is at least this far from the share expected by chance
# (0) to all (1). A group must contain at least the second share of the nearest rows of its rows.
_NOVEL, _INSIDE = 0.6, 0.75

# Two clusters are merged if their rows are neighbors at least this often, relative to a random mixture of both.
_MIXED = 0.7

# The confidence is calibrated again if there are more rows than this multiple of the number at the last calibration.
_CALIBRATED_TIMES = 1.5

# The clusters are compared with quick clusterings if there are more rows than the first number times those at the last
# comparison. Then: the number of repeats, the maximum share of old rows that move, and the minimum gain of the score.
_COMPARED_TIMES, _N_REPEATS, _MOST_MOVED, _BETTER = 1.15, 3, 0.015, 0.0

# Factor on the number of epochs for which the encoder is fitted if no cluster is new.
_TIMES_SHORTER = 0.25

# A cluster with fewer rows than this has vanished.
_LEAST_IN_CLUSTER = 2

# Centers of retired numbers are moved to this multiple of the largest norm of the other centers.
_FAR = 1000.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Previous:
    """What a fit takes over from a previous one, for the rows of the new fit.

    Parameters
    ----------
    encoder, centers, preprocessing
        Parts of the previous model; centers (C, n_dims).
    old
        (N,) cluster of each row in the previous fit; for a new row, the prediction of the previous model.
    predicted
        (N,) prediction of the previous model for each row.
    is_known
        (N,) whether the row was in the previous fit, possibly with other values.
    is_new
        (N,) whether the row is new, or has new values that no longer fit its cluster.
    is_unlike
        (N,) whether the row is unlike the training rows of its predicted cluster.
    retired, empty
        Numbers that are no longer used, and clusters without rows in the previous fit.
    family
        Family of clusterings that found the initial clusters of the first fit; None if unknown.
    calibration, calibrated_rows
        Calibration of the confidence, or None, and the number of rows that it was fitted to.
    compared_rows
        Number of rows when the clusters were last compared with quick clusterings.
    graph_trust
        How much the previous fit trusted its graph; None if this was not measured.
    """

    encoder: MLP
    centers: Tensor
    preprocessing: Preprocessing
    old: Labels
    predicted: Labels
    is_known: NDArray[np.bool_]
    is_new: NDArray[np.bool_]
    is_unlike: NDArray[np.bool_]
    retired: tuple[int, ...] = ()
    empty: tuple[int, ...] = ()
    family: str | None = None
    calibration: Calibration | None = None
    calibrated_rows: int = 0
    compared_rows: int = 0
    graph_trust: float | None = None

    def settings(self) -> dict[str, Any]:
        """Return the settings that the new model shares with the previous one."""
        sizes = tuple(self.encoder.sizes)
        return {"n_clusters": len(self.centers), "hidden": sizes[1:-1], "n_dims": sizes[-1]}

    def valid_calibration(self, n_clusters: int) -> Calibration | None:
        """Return the calibration if it is still valid: same number of clusters, and not many more rows; else None."""
        if self.calibration is None or len(self.calibration.before.centers) != n_clusters:
            return None
        return self.calibration if len(self.old) <= _CALIBRATED_TIMES * self.calibrated_rows else None


@dataclass(frozen=True)
class Change:
    """A cluster that appeared, split, merged or vanished.

    Parameters
    ----------
    kind
        "appeared", "split", "merged" or "vanished".
    cluster
        Number of the cluster that is new or no longer has rows.
    other
        The cluster from which it was split or into which it was merged; None for other kinds.
    n_rows
        Number of rows of the new cluster, or of the one that was merged or vanished.
    """

    kind: str
    cluster: int
    other: int | None
    n_rows: int


@dataclass(frozen=True, eq=False)
class Regrouped:
    """The clusters with which an update starts.

    Parameters
    ----------
    labels
        (N,) clusters, with the numbers of the previous fit.
    n_clusters
        Number of clusters, including new clusters and retired numbers.
    retired
        Numbers of merged clusters, which are not used again.
    changes
        Clusters that appeared, split, merged or vanished.
    points
        (N, r) smoothed rows, scaled to length 1.
    compared_rows
        Number of rows when the clusters were last compared with quick clusterings.
    """

    labels: Labels
    n_clusters: int
    retired: tuple[int, ...]
    changes: tuple[Change, ...]
    points: Floats
    compared_rows: int


def regroup(previous: Previous, inputs: InputSource, *, seed: int, device: torch.device) -> Regrouped:
    """Return the clusters of the rows after clusters have appeared, split, merged or vanished.

    New rows join the cluster of their neighbors. When the number of rows has grown enough, the clusters are compared
    with quick clusterings; if these are better, a small share of the rows moves to their clusters. The search for
    neighbors of r-dimensional rows takes O(N²·r) time, or less with an index if there are many rows.
    """
    with one_thread(), quiet_libraries:
        n_clusters = len(previous.centers)
        points = smoothed_embeddings(inputs.rows, inputs.adjacency, n_clusters, device)[MIDDLE]
        graph = _neighbor_graph(points, device)
    numbers = _Numbers(previous)
    in_group = np.zeros(len(points), dtype=bool)
    for group in _new_groups(previous, graph):
        numbers.add_group(group)
        in_group[group] = True
    numbers.merge(graph)
    # A known row that left its cluster alone, not with a group, joins the cluster predicted from its new values.
    alone = previous.is_known & previous.is_new & ~in_group & ~numbers.has_merged(previous.old)
    numbers.labels[alone] = previous.predicted[alone]
    newcomers = ~previous.is_known & ~in_group
    votes = graph @ _one_hot(numbers.labels, numbers.n_clusters, rows=~newcomers)
    has_votes = newcomers & (np.asarray(votes.sum(axis=1)).ravel() > 0)
    numbers.labels[has_votes] = np.asarray(votes.argmax(axis=1)).ravel()[has_votes]
    labels, n_compared = numbers.labels, previous.compared_rows
    if not numbers.changes and len(labels) > _COMPARED_TIMES * previous.compared_rows:
        labels, n_compared = improved(labels, newcomers, inputs, graph, seed=seed, device=device), len(labels)
    numbers.note_vanished()
    retired, changes = tuple(numbers.retired), tuple(numbers.changes)
    return Regrouped(labels, numbers.n_clusters, retired, changes, points, n_compared)


def improved(
    labels: Labels,
    newcomers: NDArray[np.bool_],
    inputs: InputSource,
    graph: sp.csr_matrix,
    *,
    seed: int,
    device: torch.device,
) -> Labels:
    """Return the clusters (N,) after all new rows, and a small share of the old ones, have moved to better clusters.

    The consensus of quick clusterings of all rows is compared with the current clusters by the label-free score. If its
    score is higher, rows move to the matched clusters, starting with the rows whose neighbors agree most.
    """
    present = np.unique(labels)
    agreed = agreed_clusters(inputs, len(present), seed=seed, device=device, n_repeats=_N_REPEATS)
    judge = agreed.judge
    if judge is None or len(np.unique(agreed.labels)) < len(present):
        return labels
    if judge.score(agreed.labels).value <= judge.score(labels).value + _BETTER:
        return labels
    better = present[matched_clusters(agreed.labels, np.searchsorted(present, labels), len(present))]
    agrees = np.asarray((graph @ _one_hot(better, int(present.max()) + 1)).todense())[np.arange(len(labels)), better]
    is_moving = (better != labels) & ~newcomers
    n_moving = int(_MOST_MOVED * (~newcomers).sum())
    order = np.flatnonzero(is_moving)[np.argsort(-agrees[is_moving], kind="stable")]
    moving = np.concatenate([order[:n_moving], np.flatnonzero(newcomers)])
    result = labels.copy()
    result[moving] = better[moving]
    return result


def _one_hot(labels: Labels, n_clusters: int, *, rows: NDArray[np.bool_] | None = None) -> sp.csr_matrix:
    """Return the one-hot matrix (N, C) of the clusters; rows that are not among `rows` are zero."""
    ones = np.ones(len(labels)) if rows is None else rows.astype(np.float64)
    return sp.csr_matrix((ones, (np.arange(len(labels)), labels)), shape=(len(labels), n_clusters))


def _neighbor_graph(points: Floats, device: torch.device) -> sp.csr_matrix:
    """Return the directed graph (N, N) from each row to its nearest rows."""
    sources, targets = nearest(points, min(_N_NEIGHBORS, len(points) - 1), device=device).edges
    return sp.csr_matrix((np.ones(len(sources)), (sources, targets)), shape=(len(points), len(points)))


def _new_groups(previous: Previous, graph: sp.csr_matrix) -> list[NDArray[np.int64]]:
    """Return the groups of new rows whose nearest rows are nearly all in the group, the largest group first."""
    is_new = previous.is_new
    if is_new.mean() > _MOSTLY_NEW:
        # If nearly all rows are new, the neighbors of a row say nothing about its novelty.
        is_new = is_new & previous.is_unlike
    by_chance = float(is_new.mean())
    share = graph @ is_new.astype(np.float64) / graph.sum(axis=1).A1
    novel = np.flatnonzero(is_new & (share >= by_chance + _NOVEL * (1 - by_chance)))
    least = max(_LEAST_ROWS, round(_LEAST_SHARE * len(is_new) / len(previous.centers)))
    among = graph[novel][:, novel]
    n_parts, part_of = connected_components(among, directed=False)
    groups = []
    for part in range(n_parts):
        group = novel[part_of == part]
        inside = among[part_of == part].sum() / max(graph[group].sum(), 1)
        if len(group) >= least and inside >= _INSIDE:
            groups.append(group)
    return sorted(groups, key=len, reverse=True)


class _Numbers:
    """The numbers of clusters while they change."""

    def __init__(self, previous: Previous) -> None:
        self.previous = previous
        self.labels = previous.old.copy()
        self.n_clusters = len(previous.centers)
        self.retired = list(previous.retired)
        self.changes: list[Change] = []

    def add_group(self, group: NDArray[np.int64]) -> None:
        """Give a group of rows the number of a cluster that moved as a whole or came back, or else a new number."""
        known = group[self.previous.is_known[group]]
        if 2 * len(known) < len(group):
            returned = int(np.bincount(self.previous.predicted[group]).argmax())
            if returned in self.previous.empty and returned not in self.retired:
                # A cluster that had vanished is back.
                self.labels[group] = returned
                self.changes.append(Change("appeared", returned, None, len(group)))
            else:
                self._add("appeared", group, None)
            return
        origin = int(np.bincount(self.previous.old[known]).argmax())
        rest = np.flatnonzero((self.labels == origin) & ~np.isin(np.arange(len(self.labels)), group))
        if len(rest) < _LEAST_ROWS:
            self.labels[group] = origin
        elif len(rest) >= len(group):
            self._add("split", group, origin)
        else:
            self.labels[group] = origin
            self._add("split", rest, origin)

    def merge(self, graph: sp.csr_matrix) -> None:
        """Merge clusters whose rows have new values and are neighbors nearly as often as in a random mixture."""
        is_changed = self.previous.is_known & self.previous.is_new
        of_cluster = sp.csr_matrix((np.ones(len(self.labels)), (self.labels, np.arange(len(self.labels)))))
        between = (of_cluster @ graph @ of_cluster.T).toarray()
        sizes = between.sum(axis=1)
        for one in np.unique(self.labels[is_changed]).tolist():
            members = self.labels == one
            if len(sizes) <= one or 2 * is_changed[members].sum() < members.sum():
                continue
            others = between[one].copy()
            others[one] = 0
            other = int(others.argmax())
            if min(_mixing(between, one, other), _mixing(between, other, one)) >= _MIXED:
                self._join(*sorted((one, other), key=lambda cluster: -int((self.labels == cluster).sum())))

    def has_merged(self, labels: Labels) -> NDArray[np.bool_]:
        """Return whether the cluster of each row (N,) was merged into another one."""
        return np.isin(labels, [change.cluster for change in self.changes if change.kind == "merged"])

    def note_vanished(self) -> None:
        """Record the clusters that no longer have rows."""
        counts = np.bincount(self.labels, minlength=self.n_clusters)
        for cluster in np.flatnonzero(counts < _LEAST_IN_CLUSTER).tolist():
            if cluster not in self.retired and cluster not in self.previous.empty:
                self.changes.append(Change("vanished", cluster, None, int(counts[cluster])))

    def _add(self, kind: str, rows: NDArray[np.int64], other: int | None) -> None:
        self.labels[rows] = self.n_clusters
        self.changes.append(Change(kind, self.n_clusters, other, len(rows)))
        self.n_clusters += 1

    def _join(self, kept: int, gone: int) -> None:
        rows = self.labels == gone
        self.labels[rows] = kept
        self.retired.append(gone)
        self.changes.append(Change("merged", gone, kept, int(rows.sum())))


def _mixing(between: NDArray[np.float64], one: int, other: int) -> float:
    """Return how often the neighbors of a cluster are in another cluster, relative to a random mixture of both."""
    own, foreign = between[one, one], between[one, other]
    sizes = between.sum(axis=1)
    expected = sizes[other] / max(sizes[one] + sizes[other], 1)
    return float(foreign / max(own + foreign, 1) / max(expected, 1e-12))


def continued(previous: Previous, regrouped: Regrouped, context: InitContext) -> InitResult:
    """Return the previous encoder, fitted further so that it separates the clusters of the rows."""
    encoder = copy.deepcopy(previous.encoder).to(context.rows.device).requires_grad_(True)
    config, is_new = context.config, regrouped.n_clusters > len(previous.centers)
    if config.n_dims > config.n_clusters:
        targets = labeled_targets(regrouped.points, regrouped.labels, config.n_clusters, config.n_dims)
        times = 1.0 if is_new else _TIMES_SHORTER
        encoder = fitted_to(targets, context, start=encoder, dropout=0.0, times_longer=times)
    facts: dict[str, object] = {"encoder_fitted_to": "previous clusters"}
    facts["clusters_by"] = previous.family or "previous clusters"
    if context.inputs is not None:
        facts["inputs"] = context.inputs.kind
    if previous.graph_trust is not None:
        facts["graph_trust"] = previous.graph_trust
    return InitResult(encoder, labels=regrouped.labels, facts=facts)


def continued_centers(z: Tensor, previous: Previous, regrouped: Regrouped) -> Tensor:
    """Return centers (C, n_dims): the means of the clusters in z (N, n_dims), or the previous centers without rows.

    The center of a retired number is so far away that no row is assigned to it.
    """
    centers = mean_centers(z, regrouped.labels, regrouped.n_clusters)
    counts = np.bincount(regrouped.labels, minlength=regrouped.n_clusters)
    for cluster in np.flatnonzero(counts[: len(previous.centers)] < _LEAST_IN_CLUSTER).tolist():
        centers[cluster] = previous.centers[cluster].to(centers)
    retired = list(regrouped.retired)
    near = centers[np.setdiff1d(np.arange(regrouped.n_clusters), retired)]
    centers[retired] = _FAR * torch.linalg.vector_norm(near, dim=1).max() / centers.shape[1] ** 0.5
    return centers


def regrouped_facts(regrouped: Regrouped | None) -> dict[str, object]:
    """Return the changes of the clusters and the retired numbers as plain values, for the record of a fit."""
    if regrouped is None:
        return {}
    changes = [vars(change) for change in regrouped.changes]
    numbers = {"retired_clusters": list(regrouped.retired), "compared_rows": regrouped.compared_rows}
    return {"changes": changes, **numbers}
