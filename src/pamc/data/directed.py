"""A directed graph as several relations, which preserve the information in the directions of its edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.memberships import co_members
from pamc.data.relations import Edges
from pamc.errors import DataError, DataWarning, UnknownNameError, warn

# Relations derived from a directed graph, by the names used to request them.
OUT, IN, CO_CITATION, COUPLING = "out", "in", "co-citation", "coupling"
KINDS = (OUT, IN, CO_CITATION, COUPLING)


@dataclass(frozen=True, eq=False)
class DirectedEdges:
    """A directed graph whose direction is used: it becomes several relations between the same rows.

    Pass it to `fit` as `adjacency`, or as one of several relations; any other graph is symmetrized. The weights of all
    relations are found from the data. In the following, an edge i → j means that row i cites row j.

    Parameters
    ----------
    adjacency
        The graph, in any form that `fit` accepts; an entry (i, j) of a matrix is an edge from i to j.
    kinds
        The relations to use: "out" joins each row to the rows that it cites, with weights that sum to 1; "in" joins
        each row to the rows that cite it, with weights that sum to 1; "co-citation" joins rows that are cited by the
        same row; and "coupling" joins rows that cite the same row.

    Examples
    --------
    >>> cites = DirectedEdges([[0, 2], [1, 2], [2, 3]], kinds=("out", "coupling"))
    >>> parts = directed_relations(np.array([[0, 1, 2], [2, 2, 3]]), None, 4, kinds=cites.kinds)
    >>> {kind: edges.tolist() for kind, (edges, _) in parts.items()}
    {'out': [[0, 1, 2], [2, 2, 3]], 'coupling': [[0], [1]]}
    """

    adjacency: Any
    kinds: tuple[str, ...] = KINDS

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise UnknownNameError("relation of directed edges", kind, KINDS)


def directed_relations(
    edges: NDArray[np.int64], edge_weight: NDArray[Any] | None, n_nodes: int, *, kinds: tuple[str, ...] = KINDS
) -> dict[str, Edges]:
    """Return the edges (2, E_r) and weights (E_r,) of the relations derived from directed edges (2, E), by kind.

    Co-citation and coupling are those of :class:`~pamc.data.memberships.Memberships`, and are left out with a warning
    if they join no rows. O(E log E) time.
    """
    source, target = edges[:, edges[0] != edges[1]]
    weight = np.ones(edges.shape[1]) if edge_weight is None else edge_weight.astype(np.float64)
    matrix = sp.csr_matrix((weight[edges[0] != edges[1]], (source, target)), shape=(n_nodes, n_nodes))
    if matrix.nnz == 0:
        raise DataError("the directed graph has no edges between different rows: leave it out")
    if edge_weight is None:
        # A repeated edge counts once.
        matrix.data[:] = 1.0
    parts: dict[str, Edges] = {}
    for kind in kinds:
        if kind in (OUT, IN):
            parts[kind] = _divided_by_sums(matrix, axis=1 if kind == OUT else 0)
            continue
        rows, groups = (target, source) if kind == CO_CITATION else (source, target)
        try:
            parts[kind] = co_members(rows, groups, n_nodes)
        except DataError:
            warn(DataWarning(f"the directed edges give no {kind}, which is left out: no two rows share a neighbor"))
    return parts


def _divided_by_sums(matrix: Any, *, axis: int) -> Edges:
    """Return the symmetric edges of a matrix whose rows (axis 1) or columns (axis 0) are divided by their sums."""
    total = np.asarray(matrix.sum(axis=axis)).ravel()
    scale = sp.diags_array(np.divide(1.0, total, out=np.zeros_like(total), where=total > 0))
    scaled = sp.csr_matrix(scale @ matrix if axis == 1 else matrix @ scale)
    once: Any = sp.triu(scaled.maximum(scaled.T), k=1, format="coo")
    return np.stack([once.row, once.col]).astype(np.int64), once.data
