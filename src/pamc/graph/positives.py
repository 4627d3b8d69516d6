"""Positive pairs γ in the one form that the losses take: all of them, or those of some consecutive rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from pamc.errors import DataError

__all__ = ["PairShard", "PositivePairs"]


@dataclass(frozen=True, eq=False)
class PositivePairs:
    """γ as one CSR pattern that holds γ_ij and γ_ji side by side.

    The pattern is symmetric and has no diagonal: a pair that has a weight in one direction only is stored in both, with
    γ = 0 (log γ = −∞) in the other. So the backward pass over the positives is a gather, row by row, with no atomics.
    The diagonal γ_ii is kept apart because Eq 3 leaves it out and the released program does not.

    Parameters
    ----------
    indptr
        (N + 1,) int64, where each row's entries begin.
    indices
        (E,) int64, the column j of each entry, ascending inside a row; int32 may do for :meth:`even` pairs.
    log_weight
        (E,) log γ_ij for the entry (i, j).
    log_weight_t
        (E,) log γ_ji for the entry (i, j).
    log_self_weight
        (N,) log γ_ii, −∞ where a node has no self-edge.
    log_row_weight
        (N,) for :meth:`even` pairs, log of the one weight that all entries of a row have; their `log_weight` and
        `log_weight_t` are zeros that take no memory.
    """

    indptr: Tensor
    indices: Tensor
    log_weight: Tensor
    log_weight_t: Tensor
    log_self_weight: Tensor
    log_row_weight: Tensor | None = None

    first_row: ClassVar[int] = 0

    @property
    def n_nodes(self) -> int:
        """N."""
        return len(self.indptr) - 1

    @property
    def n_pairs(self) -> int:
        """E, the number of stored entries: each unordered pair counts twice."""
        return len(self.indices)

    @cached_property
    def rows(self) -> Tensor:
        """(E,) int64, the row i of each entry."""
        return torch.repeat_interleave(self.indptr.diff())

    def to(self, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> PositivePairs:
        """Return the pairs on a device, with weights of a floating-point type."""
        row = self.log_row_weight
        return PositivePairs(
            self.indptr.to(device=device),
            self.indices.to(device=device),
            self.log_weight.to(device=device, dtype=dtype),
            self.log_weight_t.to(device=device, dtype=dtype),
            self.log_self_weight.to(device=device, dtype=dtype),
            None if row is None else row.to(device=device, dtype=dtype),
        )

    def spelled_out(self) -> PositivePairs:
        """Return the same pairs with a weight for every entry: themselves, where they have one."""
        row = self.log_row_weight
        if row is None:
            return self
        indices = self.indices.long()
        return PositivePairs(self.indptr, indices, row[self.rows], row[indices], self.log_self_weight)

    @classmethod
    def even(cls, indptr: Tensor, indices: Tensor, *, dtype: torch.dtype = torch.float32) -> PositivePairs:
        """Return γ of one hop over an unweighted graph: 1/(n_i + 1) for each of the n_i neighbors of row i, and itself.

        Nothing is stored per pair but its column: 4 bytes each, with 32-bit indices, instead of 16.

        Parameters
        ----------
        indptr, indices
            A symmetric CSR pattern without a diagonal; the indices may have 32 bits.

        Examples
        --------
        >>> pairs = PositivePairs.even(torch.tensor([0, 1, 3, 4]), torch.tensor([1, 0, 2, 1], dtype=torch.int32))
        >>> pairs.spelled_out().log_weight.exp()
        tensor([0.5000, 0.3333, 0.3333, 0.5000])
        """
        row = -(indptr.diff() + 1).to(dtype).log()
        nothing = row.new_zeros(1).expand(len(indices))
        return cls(indptr, indices, nothing, nothing, row, row)

    @classmethod
    def from_matrix(cls, gamma: sp.csr_matrix, *, dtype: torch.dtype = torch.float32) -> PositivePairs:
        """Return the pairs of an (N, N) sparse matrix of weights ≥ 0, whatever its pattern. O(E) time and memory."""
        gamma = sp.csr_matrix(gamma)
        if gamma.shape[0] != gamma.shape[1]:
            raise DataError(f"positive pairs need a square matrix, got shape {gamma.shape}")
        gamma = gamma.astype(np.float64)
        diagonal = gamma.diagonal()
        gamma = gamma - sp.diags(diagonal, format="csr", dtype=np.float64)
        gamma.eliminate_zeros()
        # One sum of sparse matrices merges both directions: γ_ij in the real part, γ_ji in the imaginary part.
        both = gamma + 1j * gamma.T.tocsr()
        both.sort_indices()
        with np.errstate(divide="ignore"):
            weights = [np.log(values) for values in (both.data.real, both.data.imag, diagonal)]
        return cls(
            torch.from_numpy(both.indptr.astype(np.int64)),
            torch.from_numpy(both.indices.astype(np.int64)),
            *(torch.from_numpy(weight).to(dtype) for weight in weights),
        )

    @classmethod
    def from_edges(
        cls,
        edges: Tensor,
        edge_weight: Tensor | None = None,
        *,
        n_nodes: int,
        dtype: torch.dtype = torch.float32,
    ) -> PositivePairs:
        """Return the pairs of directed edges i → j with weights γ_ij ≥ 0; the weights of repeated edges add up.

        O(E) time and memory. On a GPU the edges make one trip through host memory: build the pairs once, not per step.
        """
        source, target = edges.detach().cpu().numpy()
        weight = np.ones(len(source)) if edge_weight is None else edge_weight.detach().cpu().double().numpy()
        matrix = sp.csr_matrix((weight, (source, target)), shape=(n_nodes, n_nodes))
        return cls.from_matrix(matrix, dtype=dtype).to(device=edges.device)


@dataclass(frozen=True, eq=False)
class PairShard:
    """Rows first_row … of γ, as :class:`PositivePairs` holds all of them: what one of several processes holds.

    γ_ji stands beside γ_ij, so a process that has these rows needs no entry of another row: of its neighbors it asks
    for two things only, their embedding and their mass.

    Parameters
    ----------
    first_row, n_nodes
        The first of the n rows, and N, the number of all of them.
    indptr
        (n + 1,) int64, where each row's entries begin, counted from the first of these rows.
    indices
        (E,) int64, the column j of each entry, among all N.
    log_weight, log_weight_t
        (E,) log γ_ij and log γ_ji for the entry (i, j).
    log_self_weight
        (n,) log γ_ii.
    """

    first_row: int
    n_nodes: int
    indptr: Tensor
    indices: Tensor
    log_weight: Tensor
    log_weight_t: Tensor
    log_self_weight: Tensor

    # The weights of even pairs are spelled out for these rows.
    log_row_weight: ClassVar[None] = None

    @property
    def n_rows(self) -> int:
        """The number n of these rows."""
        return len(self.indptr) - 1

    @property
    def n_pairs(self) -> int:
        """E, the number of stored entries of these rows."""
        return len(self.indices)

    @classmethod
    def of(cls, pairs: PositivePairs, rows: slice) -> PairShard:
        """Return rows of the pairs; their entries are views, but for even pairs, which are spelled out for these rows.

        Examples
        --------
        >>> pairs = PositivePairs.from_edges(torch.tensor([[0, 1, 2], [1, 2, 0]]), n_nodes=3)
        >>> PairShard.of(pairs, slice(1, 3)).indices.tolist()
        [0, 2, 0, 1]
        """
        begin, end = int(pairs.indptr[rows.start]), int(pairs.indptr[rows.stop])
        indptr = pairs.indptr[rows.start : rows.stop + 1] - begin
        indices, of_row = pairs.indices[begin:end], pairs.log_row_weight
        there, back = pairs.log_weight[begin:end], pairs.log_weight_t[begin:end]
        if of_row is not None:
            indices = indices.long()
            there, back = torch.repeat_interleave(of_row[rows], indptr.diff()), of_row[indices]
        return cls(rows.start, pairs.n_nodes, indptr, indices, there, back, pairs.log_self_weight[rows])

    def to(self, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> PairShard:
        """Return the rows on a device, with weights of a floating-point type."""
        weights = (self.log_weight, self.log_weight_t, self.log_self_weight)
        return PairShard(
            self.first_row,
            self.n_nodes,
            self.indptr.to(device=device),
            self.indices.to(device=device),
            *(weight.to(device=device, dtype=dtype) for weight in weights),
        )
