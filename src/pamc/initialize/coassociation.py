"""Consensus of several labelings of the same rows, from the number of rows that any two of their clusters share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from scipy.linalg import eigh
from torch import Tensor

from pamc.graph.smoothing import Floats
from pamc.ops.kmeans import Labels, kmeans
from pamc.runtime import quiet_libraries

_KMEANS_STARTS = 10

# Number of leading directions of the coassociation matrix, per cluster, on which K-means runs.
_DIRECTIONS_PER_CLUSTER = 2

# Number of rows on which `agreement` compares labelings; more rows would hardly change it.
_COMPARED_ROWS = 20_000

# Up to this many clusters, the dense product is faster on a CPU.
_FEW_CLUSTERS = 12

# Maximum number of entries of a temporary. In float32, sums of this many ones are exact.
_NUMBERS_AT_A_TIME = 1 << 24

_CPU = torch.device("cpu")


class ConsensusAndAgreement(NamedTuple):
    """The consensus clusters (N,) of several labelings, and the mean NMI between the labelings."""

    labels: Labels
    agreement: float


def consensus_and_agreement(
    labelings: Sequence[Labels], n_clusters: int, *, seed: int, device: torch.device = _CPU
) -> ConsensusAndAgreement:
    """Return :func:`consensus` and :func:`agreement`, both on all rows, from one table.

    Examples
    --------
    >>> both = consensus_and_agreement([np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0])], 2, seed=0)
    >>> both.labels.tolist() in ([0, 0, 1, 1], [1, 1, 0, 0]), both.agreement
    (True, 1.0)
    """
    table = coassociation(labelings, n_clusters, device)
    find = consensus if device.type == "cpu" else consensus_on
    return ConsensusAndAgreement(find(labelings, n_clusters, seed=seed, table=table), mean_nmi(table, n_clusters))


def coassociation(labelings: Sequence[Labels], n_clusters: int, device: torch.device = _CPU) -> Tensor:
    """Return the (R·C, R·C) numbers of rows that any two clusters of R labelings share: MᵀM, memberships M (N, R·C).

    Examples
    --------
    >>> coassociation([np.array([0, 0, 1]), np.array([1, 1, 1])], 2)
    tensor([[2., 0., 0., 2.],
            [0., 1., 0., 1.],
            [0., 0., 0., 0.],
            [2., 1., 0., 3.]], dtype=torch.float64)
    """
    if device.type != "cpu" or n_clusters <= _FEW_CLUSTERS:
        return coassociation_on(labelings, n_clusters, device=device)
    return sparse_coassociation(labelings, n_clusters)


def sparse_coassociation(labelings: Sequence[Labels], n_clusters: int) -> Tensor:
    """Return :func:`coassociation`, computed by a sparse product in O(N·R²) time."""
    members = _members(labelings, n_clusters)
    return torch.from_numpy((members.T @ members).toarray())


def coassociation_on(labelings: Sequence[Labels], n_clusters: int, *, device: torch.device) -> Tensor:
    """Return :func:`coassociation`, computed exactly by dense products of row blocks in O(N·(R·C)²) time on the device.

    Needs memory for one block of 64 MiB, the table, and half the size of the table for each product.
    """
    n_columns = len(labelings) * n_clusters
    table = torch.zeros(n_columns, n_columns, dtype=torch.float64, device=device)
    for columns in _column_blocks(labelings, n_clusters, _NUMBERS_AT_A_TIME // n_columns):
        members = torch.zeros(len(columns), n_columns, dtype=torch.float32, device=device)
        members.scatter_(1, columns.to(device), 1.0)
        table += members.T @ members
    return table


def consensus(labelings: Sequence[Labels], n_clusters: int, *, seed: int, table: Tensor | None = None) -> Labels:
    """Return the consensus clusters (N,) of several labelings of the same rows.

    This is evidence accumulation: the N × N coassociation matrix counts how often two rows share a cluster. Its leading
    directions are those of the (N, R·C) membership matrix M, which follow exactly from MᵀM; K-means on them gives the
    clusters. O(N·(R² + R·C + C²) + (R·C)³) time.

    Parameters
    ----------
    table
        (R·C, R·C) :func:`coassociation` of the labelings, if it is already known.

    Examples
    --------
    >>> one, other = np.array([0, 0, 0, 1, 1, 1]), np.array([1, 1, 0, 0, 0, 0])
    >>> consensus([one, one, other], 2, seed=0).tolist() in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    True
    """
    table = coassociation(labelings, n_clusters) if table is None else table
    with quiet_libraries:
        points = coordinates(labelings, n_clusters, table)
        return kmeans(points, n_clusters, seeds=[seed], n_init=_KMEANS_STARTS)[0].labels


def consensus_on(labelings: Sequence[Labels], n_clusters: int, *, seed: int, table: Tensor) -> Labels:
    """Return :func:`consensus`, computed on the device of the table, where K-means runs in float32."""
    points = coordinates_on(labelings, n_clusters, table)
    return kmeans(points, n_clusters, seeds=[seed], n_init=_KMEANS_STARTS, device=table.device)[0].labels


def coordinates(labelings: Sequence[Labels], n_clusters: int, table: Tensor) -> Floats:
    """Return the centered coordinates (N, 2C) of the rows in the leading directions of the coassociation matrix."""
    spread, share = _spread(table, n_clusters)
    n_columns, n_directions = len(share), _n_directions(len(share), n_clusters)
    _, directions = eigh(spread.numpy(), subset_by_index=[n_columns - n_directions, n_columns - 1])
    return np.asarray(_members(labelings, n_clusters) @ directions - share.numpy() @ directions)


def coordinates_on(labelings: Sequence[Labels], n_clusters: int, table: Tensor) -> Tensor:
    """Return :func:`coordinates`, up to the sign of each column, computed on the device of the table."""
    spread, share = _spread(table, n_clusters)
    n_directions = _n_directions(len(share), n_clusters)
    directions: Tensor = torch.linalg.eigh(spread)[1][:, -n_directions:]
    blocks = _column_blocks(labelings, n_clusters, _NUMBERS_AT_A_TIME // (len(labelings) * n_directions))
    projected = [directions[columns.to(table.device)].sum(dim=1) for columns in blocks]
    return torch.cat(projected) - share @ directions


def _spread(table: Tensor, n_clusters: int) -> tuple[Tensor, Tensor]:
    """Return the (R·C, R·C) scatter of the memberships around their mean, and the mean (R·C,)."""
    n_rows = _n_rows(table, n_clusters)
    share = table.diagonal() / n_rows
    return table - n_rows * torch.outer(share, share), share


def _n_directions(n_columns: int, n_clusters: int) -> int:
    return min(_DIRECTIONS_PER_CLUSTER * n_clusters, n_columns)


def agreement(labelings: Sequence[Labels], n_clusters: int, device: torch.device = _CPU) -> float:
    """Return the mean NMI over all pairs of labelings, on at most 20,000 evenly spaced rows; it is 1 if all agree.

    The contingency tables of all pairs are the blocks of :func:`coassociation`.

    Examples
    --------
    >>> agreement([np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0])], 2)
    1.0
    """
    step = -(-len(labelings[0]) // _COMPARED_ROWS)
    return mean_nmi(coassociation([labels[::step] for labels in labelings], n_clusters, device), n_clusters)


def mean_nmi(table: Tensor, n_clusters: int) -> float:
    """Return the mean NMI over all pairs of R labelings from their :func:`coassociation`, O((R·C)²) time."""
    n_labelings = len(table) // n_clusters
    shares = table / _n_rows(table, n_clusters)
    entropy = -torch.xlogy(shares.diagonal(), shares.diagonal()).reshape(n_labelings, n_clusters).sum(dim=1)
    joint = -torch.xlogy(shares, shares).reshape(n_labelings, n_clusters, n_labelings, n_clusters).sum(dim=(1, 3))
    both = entropy[:, None] + entropy
    nmi = torch.where(both > 0, 2 * (both - joint) / both, 1.0)
    one, other = torch.triu_indices(n_labelings, n_labelings, offset=1, device=table.device)
    return float(nmi[one, other].mean())


def _n_rows(table: Tensor, n_clusters: int) -> Tensor:
    """Return N, the sum of the cluster sizes of the first labeling."""
    return table.diagonal()[:n_clusters].sum()


def _members(labelings: Sequence[Labels], n_clusters: int) -> sp.csr_matrix:
    """Return the (N, R·C) membership matrix, with a 1 for the cluster of each row in each of the R labelings."""
    columns = np.stack(labelings, axis=1) + n_clusters * np.arange(len(labelings))
    n_rows, n_labelings = columns.shape
    starts = np.arange(0, columns.size + 1, n_labelings)
    return sp.csr_matrix((np.ones(columns.size), columns.ravel(), starts), shape=(n_rows, n_labelings * n_clusters))


def _column_blocks(labelings: Sequence[Labels], n_clusters: int, at_a_time: int) -> Iterator[Tensor]:
    """Yield the column indices (n, R) of the ones in the membership matrix, for blocks of rows."""
    offsets, at_a_time = n_clusters * np.arange(len(labelings)), max(1, at_a_time)
    for first in range(0, len(labelings[0]), at_a_time):
        block = np.stack([labels[first : first + at_a_time] for labels in labelings], axis=1)
        yield torch.from_numpy(block + offsets)
