"""The positive pairs of some consecutive rows: what one of several processes holds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pamc.graph.positives import PositivePairs

__all__ = ["PairShard"]


@dataclass(frozen=True, eq=False)
class PairShard:
    """Rows first_row … of γ, as :class:`~pamc.graph.positives.PositivePairs` holds all of them.

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
