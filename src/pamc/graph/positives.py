"""Positive pairs γ in the format that the losses expect: all pairs, or those of consecutive rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from pamc.errors import DataError


class _CsrPairs:
    """Pairs in CSR format: a base class of dataclasses whose floating-point tensors are weights."""

    indices: Tensor

    @property
    def n_pairs(self) -> int:
        """Number of stored entries, E; an unordered pair has two, one in each of its rows."""
        return len(self.indices)

    def to(self, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Return a copy on another device or with another floating-point dtype of the weights."""
        moved = {
            name: value.to(device=device, dtype=dtype if value.is_floating_point() else None)
            for name, value in vars(self).items()
            if isinstance(value, Tensor)
        }
        return replace(self, **moved)  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class PositivePairs(_CsrPairs):
    """The weights γ as one CSR pattern that stores γ_ij and γ_ji for each entry.

    The pattern is symmetric and has no diagonal: a pair with a weight in one direction only is stored in both, with
    γ = 0 (log γ = −∞) in the other. Therefore the backward pass gathers row by row and needs no atomic additions.
    The diagonal γ_ii is stored separately because Eq 3 excludes it and the released program does not.

    Parameters
    ----------
    indptr
        (N + 1,) int64 offsets of the rows' entries.
    indices
        (E,) int64 column j of each entry, ascending within a row; :meth:`even` pairs also allow int32.
    log_weight
        (E,) log γ_ij for the entry (i, j).
    log_weight_t
        (E,) log γ_ji for the entry (i, j).
    log_self_weight
        (N,) log γ_ii, −∞ if a node has no self-loop.
    log_row_weight
        (N,) log of the common weight of all entries of a row, for :meth:`even` pairs only; their `log_weight` and
        `log_weight_t` are zeros that take no memory.
    log_copy_weight
        (N,) log of the weight of the pairs between a row and its other copies if rows are weighted, else None: a row of
        weight w stands for w identical rows. The cosine of these pairs is 1.
    """

    indptr: Tensor
    indices: Tensor
    log_weight: Tensor
    log_weight_t: Tensor
    log_self_weight: Tensor
    log_row_weight: Tensor | None = None
    log_copy_weight: Tensor | None = None

    first_row: ClassVar[int] = 0

    @property
    def n_nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.indptr) - 1

    @property
    def rows(self) -> Tensor:
        """Row i of each entry, int64 of shape (E,)."""
        return torch.repeat_interleave(self.indptr.diff())

    def with_copies(self, *, tau: float, self_edges: str) -> PositivePairs:
        """Return pairs whose γ_ii is the mass of a row's other copies, and of the row itself if self-edges are kept.

        With ``self_edges="keep"``, the inner sum of Eq 3 is then over all copies: a self-edge that is kept has
        similarity 0, and the copies, whose similarity is 1, are weighted by e^τ.
        """
        if self.log_copy_weight is None:
            return self
        copies = self.log_copy_weight + tau
        total = torch.logaddexp(copies, self.log_self_weight) if self_edges == "keep" else copies
        return replace(self, log_self_weight=total, log_copy_weight=None)

    @classmethod
    def even(cls, indptr: Tensor, indices: Tensor, *, dtype: torch.dtype = torch.float32) -> PositivePairs:
        """Return γ of one hop over an unweighted graph: 1/(n_i + 1) for each of the n_i neighbors of row i and itself.

        Only the column of a pair is stored: 4 bytes with 32-bit indices instead of 16.

        Parameters
        ----------
        indptr, indices
            Symmetric CSR pattern without a diagonal; the indices may be int32.

        Examples
        --------
        >>> pairs = PositivePairs.even(torch.tensor([0, 1, 3, 4]), torch.tensor([1, 0, 2, 1], dtype=torch.int32))
        >>> pairs.log_row_weight.exp()
        tensor([0.5000, 0.3333, 0.5000])
        """
        row = -(indptr.diff() + 1).to(dtype).log()
        zeros = row.new_zeros(1).expand(len(indices))
        return cls(indptr, indices, zeros, zeros, row, row)

    @classmethod
    def from_matrix(cls, gamma: sp.csr_matrix, *, dtype: torch.dtype = torch.float32) -> PositivePairs:
        """Return the pairs of an (N, N) sparse matrix of weights ≥ 0 with any pattern. O(E) time and memory."""
        gamma = sp.csr_matrix(gamma, dtype=np.float64)
        if gamma.shape[0] != gamma.shape[1]:
            raise DataError(f"positive pairs need a square matrix, got shape {gamma.shape}")
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
        cls, edges: Tensor, edge_weight: Tensor | None = None, *, n_nodes: int, dtype: torch.dtype = torch.float32
    ) -> PositivePairs:
        """Return the pairs of directed edges i → j with weights γ_ij ≥ 0; weights of repeated edges are added.

        O(E) time and memory. GPU edges are copied to the host once: build the pairs once, not in every step.
        """
        source, target = edges.detach().cpu().numpy()
        weight = np.ones(len(source)) if edge_weight is None else edge_weight.detach().cpu().double().numpy()
        matrix = sp.csr_matrix((weight, (source, target)), shape=(n_nodes, n_nodes))
        return cls.from_matrix(matrix, dtype=dtype).to(device=edges.device)


@dataclass(frozen=True, eq=False)
class PairShard(_CsrPairs):
    """Consecutive rows of γ in the format of :class:`PositivePairs`: the share of one of several processes.

    γ_ji is stored with γ_ij, so a process needs no entry of other rows; of its neighbors it only needs the embeddings
    and the log masses.

    Parameters
    ----------
    first_row, n_nodes
        Index of the first of the n rows, and total number of rows, N.
    indptr
        (n + 1,) int64 offsets of the rows' entries, relative to the first of these rows.
    indices
        (E,) int64 column j of each entry, from 0 to N − 1.
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

    # A shard stores one weight per entry, also for even pairs.
    log_row_weight: ClassVar[None] = None

    @classmethod
    def of(cls, pairs: PositivePairs, rows: slice) -> PairShard:
        """Return some rows of the pairs; entries are views, except that even pairs are expanded for these rows.

        Examples
        --------
        >>> pairs = PositivePairs.from_edges(torch.tensor([[0, 1, 2], [1, 2, 0]]), n_nodes=3)
        >>> PairShard.of(pairs, slice(1, 3)).indices.tolist()
        [0, 2, 0, 1]
        """
        begin, end = int(pairs.indptr[rows.start]), int(pairs.indptr[rows.stop])
        indptr = pairs.indptr[rows.start : rows.stop + 1] - begin
        indices, row_weight = pairs.indices[begin:end], pairs.log_row_weight
        forward, backward = pairs.log_weight[begin:end], pairs.log_weight_t[begin:end]
        if row_weight is not None:
            indices = indices.long()
            forward, backward = torch.repeat_interleave(row_weight[rows], indptr.diff()), row_weight[indices]
        return cls(rows.start, pairs.n_nodes, indptr, indices, forward, backward, pairs.log_self_weight[rows])
