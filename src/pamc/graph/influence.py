"""The influence of neighbors up to n_hops away on each node: the weights γ of the positive pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from pamc.errors import ConfigError
from pamc.graph.adjacency import Adjacency, row_normalize, with_self_loops
from pamc.graph.positives import PositivePairs

# Maximum number of entries of γ in memory before pruning, about 0.4 GB.
_BLOCK_ENTRIES = 1 << 25


@dataclass(frozen=True)
class InfluenceReport:
    """The effect of pruning on γ; pairs are directed, i ≠ j.

    Parameters
    ----------
    n_pairs_before, n_pairs_after
        Number of pairs with nonzero weight before and after pruning.
    kept_mass
        Fraction of Σ_{i≠j} γ_ij that remains after pruning; 1 if there are no pairs.
    """

    n_pairs_before: int
    n_pairs_after: int
    kept_mass: float


def influence(adjacency: Adjacency, *, n_hops: int = 1, max_positives: int | None = None) -> Adjacency:
    """Return γ = Σ_{r=1..n_hops} Ā^r, where Ā is the row-normalized adjacency with self-loops.

    As in the paper, except for ``max_positives``, which keeps only the largest weights of each row. γ is computed and
    pruned in blocks of rows, so the unpruned γ is in memory only if there is no pruning. O(number of walks of n_hops
    steps) time.

    Parameters
    ----------
    adjacency
        (N, N) weights ≥ 0, usually symmetric. The diagonal is replaced by self-loops of weight 1.
    n_hops
        Maximum length of a walk, at least 1.
    max_positives
        Number of largest off-diagonal weights kept per row, with ties broken by the lower column; None keeps all. The
        diagonal is always kept. The pattern of a pruned γ may be asymmetric.

    Examples
    --------
    >>> influence(sp.csr_matrix([[0.0, 1.0], [1.0, 0.0]]), n_hops=2).toarray()
    array([[1., 1.],
           [1., 1.]])
    """
    return _build(adjacency, n_hops=n_hops, max_positives=max_positives)[0]


def positive_pairs(
    adjacency: Adjacency, *, n_hops: int = 1, max_positives: int | None = None, dtype: torch.dtype = torch.float32
) -> tuple[PositivePairs, InfluenceReport]:
    """Return the positive pairs of a graph as the losses expect them, and a report of the pruning.

    Examples
    --------
    >>> pairs, report = positive_pairs(sp.csr_matrix([[0.0, 1.0], [1.0, 0.0]]))
    >>> pairs.n_pairs, report
    (2, InfluenceReport(n_pairs_before=2, n_pairs_after=2, kept_mass=1.0))
    """
    gamma, report = _build(adjacency, n_hops=n_hops, max_positives=max_positives)
    return PositivePairs.from_matrix(gamma, dtype=dtype), report


def repeated_pairs(
    adjacency: Adjacency,
    sample_weight: NDArray[np.float64],
    *,
    n_hops: int = 1,
    max_positives: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[PositivePairs, InfluenceReport]:
    r"""Return the positive pairs of a graph in which a row of weight w stands for w identical rows, and a report.

    All copies of i are joined to all copies of j with weight A_ij, and to each other with weight A_ii. The influence of
    a copy of i on all copies of j together follows from the lumped random walk

    .. math:: \Gamma = \sum_{r=1}^{n\_hops} L^r, \quad L_{ij} = (w_j A_{ij} + \delta_{ij}(1 - A_{ii}))/d_i, \quad
              d_i = 1 - A_{ii} + \textstyle\sum_j w_j A_{ij}

    The influence of a copy on itself exceeds that on each other copy by s_i = Σ_r ((1 − A_ii)/d_i)^r, so that the other
    copies of i receive κ_i = (1 − 1/w_i)(Γ_ii − s_i). For integer weights, these are exactly the sums over the copies
    in the graph with repeated rows; weights below 1 have no other copies. The cost is that of :func:`influence`.

    Parameters
    ----------
    adjacency
        (N, N) symmetric weights ≥ 0. The diagonal is the weight of an edge between two copies of the same row.
    sample_weight
        (N,) weights w ≥ 0. A row of weight 0 is not a positive of any row.
    n_hops, max_positives
        As in :func:`influence`.

    Examples
    --------
    >>> pairs, _ = repeated_pairs(sp.csr_matrix([[0.0, 1.0], [1.0, 0.0]]), np.array([2.0, 1.0]), n_hops=2)
    >>> [round(value, 3) for value in pairs.log_weight.exp().tolist()]
    [0.917, 1.222]
    >>> [round(value, 3) for value in pairs.log_copy_weight.exp().tolist()]
    [0.167, 0.0]
    """
    own = adjacency.diagonal()
    weighted = adjacency @ sp.diags_array(sample_weight) + sp.diags_array(1.0 - own)
    weighted = sp.csr_matrix(weighted)
    weighted.eliminate_zeros()
    gamma, report = _build(weighted, n_hops=n_hops, max_positives=max_positives, is_complete=True)
    degree = np.asarray(weighted.sum(axis=1)).ravel()
    stays = np.divide(1.0 - own, degree, out=np.zeros_like(own), where=degree > 0)
    excess = np.sum([stays**step for step in range(1, n_hops + 1)], axis=0)
    others = np.maximum(1.0 - 1.0 / np.maximum(sample_weight, 1.0), 0.0) * (gamma.diagonal() - excess)
    pairs = PositivePairs.from_matrix(gamma, dtype=dtype)
    with np.errstate(divide="ignore"):
        copies, itself = np.log(np.maximum(others, 0.0)), np.log(np.maximum(gamma.diagonal() - others, 0.0))
    logs = {
        "log_copy_weight": torch.from_numpy(copies).to(dtype),
        "log_self_weight": torch.from_numpy(itself).to(dtype),
    }
    return replace(pairs, **logs), report


def _build(
    adjacency: Adjacency, *, n_hops: int, max_positives: int | None, is_complete: bool = False
) -> tuple[Adjacency, InfluenceReport]:
    """Return γ and a report of the pruning; an adjacency that `is_complete` already has its self-loops."""
    for name, value in (("n_hops", n_hops), ("max_positives", max_positives)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")
    transition = row_normalize(adjacency if is_complete else with_self_loops(adjacency))
    blocks: list[Adjacency] = []
    before, after = np.zeros(2), np.zeros(2)
    for first_row, block in sums_of_powers(transition, n_hops):
        before += _pairs_and_mass(block, first_row)
        if max_positives is not None:
            block = _prune_rows(block, max_positives, first_row=first_row)
        after += _pairs_and_mass(block, first_row)
        blocks.append(block)
    kept_mass = float(after[1] / before[1]) if before[1] else 1.0
    gamma = sp.csr_matrix(sp.vstack(blocks, format="csr"))
    return gamma, InfluenceReport(int(before[0]), int(after[0]), kept_mass)


def sums_of_powers(step: Adjacency, n_steps: int) -> Iterator[tuple[int, Adjacency]]:
    """Yield blocks of rows of Σ_{r=1..n_steps} S^r for an (N, N) one-step matrix S, each with its first row.

    A block has at most ``_BLOCK_ENTRIES`` entries, estimated by the number of walks from each row, or a single row.
    """
    n_nodes = step.shape[0]
    pattern = sp.csr_matrix((np.ones(step.nnz), step.indices, step.indptr), step.shape)
    n_walks, n_entries = np.ones(n_nodes), np.zeros(n_nodes)
    for _ in range(n_steps):
        n_walks = np.minimum(pattern @ n_walks, n_nodes)
        n_entries = np.minimum(n_entries + n_walks, n_nodes)
    ends = np.cumsum(n_entries)
    first_row = 0
    while first_row < n_nodes:
        done = ends[first_row - 1] if first_row else 0.0
        last_row = max(int(np.searchsorted(ends, done + _BLOCK_ENTRIES, side="right")), first_row + 1)
        power = total = step[first_row:last_row]
        for _ in range(n_steps - 1):
            power = power @ step
            total = total + power
        total.sort_indices()
        yield first_row, total
        first_row = last_row


def _prune_rows(gamma: Adjacency, max_positives: int, *, first_row: int) -> Adjacency:
    rows = _rows(gamma)
    on_diagonal = gamma.indices == rows + first_row
    # The sort is stable and puts the diagonal at the end of each row; entries of equal weight stay in column order.
    order = np.lexsort((np.where(on_diagonal, np.inf, -gamma.data), rows))
    rank = np.empty(gamma.nnz, dtype=np.int64)
    rank[order] = np.arange(gamma.nnz) - gamma.indptr[rows]
    keep = on_diagonal | (rank < max_positives)
    return sp.csr_matrix((gamma.data[keep], (rows[keep], gamma.indices[keep])), shape=gamma.shape)


def _pairs_and_mass(gamma: Adjacency, first_row: int) -> NDArray[np.float64]:
    off_diagonal = gamma.indices != _rows(gamma) + first_row
    return np.array([off_diagonal.sum(), gamma.data[off_diagonal].sum()])


def _rows(matrix: Adjacency) -> NDArray[np.int64]:
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
