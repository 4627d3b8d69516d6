"""Memberships of rows in groups (baskets, tags, authors) as a graph that joins the rows of a group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.relations import Edges
from pamc.errors import DataError, DataWarning, warn

# Number of rows before and after a row, in a random circular order of its group, that it is joined to. Groups of up to
# one row more than twice this number are joined completely.
_REACH = 32

# Maximum number of other rows of a group to which a row is joined.
MOST_JOINED = 2 * _REACH


@dataclass(frozen=True, eq=False)
class Memberships:
    """Pairs (row, group), which are a relation between the rows of the same groups.

    Pass it to `fit` as `adjacency`, or as one of several relations. A directed graph has two such relations: rows that
    cite the same rows are ``Memberships(source, target)``, and rows that are cited by the same rows are
    ``Memberships(target, source)``.

    Parameters
    ----------
    rows
        (M,) row numbers, or names of the rows.
    groups
        (M,) name or number of the group of each pair.

    Examples
    --------
    >>> baskets = Memberships([0, 1, 2, 2, 3], ["a", "a", "a", "b", "b"])
    >>> edges, weight = baskets.edges(4)
    >>> edges.tolist(), weight.tolist()
    ([[0, 0, 1, 2], [1, 2, 2, 3]], [0.5, 0.5, 0.5, 1.0])
    """

    rows: Any
    groups: Any

    def edges(self, n_nodes: int, *, row_names: Any = None) -> Edges:
        """Return (2, E) edges between rows that share groups, and (E,) weights, after checking the pairs.

        A row is joined to the g − 1 other rows of a group with weights 1 / (g − 1), so every group adds 1 to the degree
        of each of its rows. In a group of more than 65 rows, each row is joined to 64 others at random with weights
        1 / 64. Groups of all rows are left out. O(M) time and memory.

        Parameters
        ----------
        n_nodes
            Number of rows, N.
        row_names
            (N,) names of the rows, or None.
        """
        rows, groups = np.ravel(np.asarray(self.rows)), np.ravel(np.asarray(self.groups))
        if len(rows) != len(groups):
            raise DataError(f"memberships have {len(rows)} rows for {len(groups)} groups")
        numbers = _row_numbers(rows, n_nodes, row_names)
        codes = np.unique(groups.astype(str) if groups.dtype == object else groups, return_inverse=True)[1]
        return co_members(numbers, codes.astype(np.int64), n_nodes)


def _row_numbers(rows: NDArray[Any], n_nodes: int, row_names: Any) -> NDArray[np.int64]:
    """Return the number of each row, given by number or by name."""
    if rows.dtype.kind not in "iu":
        position = {} if row_names is None else {str(name): number for number, name in enumerate(row_names)}
        numbers = np.array([position.get(str(name), -1) for name in rows], dtype=np.int64)
    else:
        numbers = rows.astype(np.int64)
    unknown = np.flatnonzero((numbers < 0) | (numbers >= n_nodes))
    if len(unknown):
        first = ", ".join(map(repr, rows[unknown[:3]].tolist()))
        raise DataError(
            f"{len(unknown)} of {len(rows)} memberships refer to rows that do not exist; the first: {first}"
        )
    return numbers


def co_members(rows: NDArray[np.int64], groups: NDArray[np.int64], n_nodes: int) -> Edges:
    """Return the edges and weights between rows that share groups (see :meth:`Memberships.edges`).

    Parameters
    ----------
    rows, groups
        (M,) row number and group number of each pair; repeated pairs count once.
    n_nodes
        Number of rows, N.
    """
    pairs = joining_pairs(rows, groups, n_nodes)
    low, high, weight = (np.concatenate(part) for part in zip(*circles(*pairs), strict=True))
    # The weights of rows that share several groups are added.
    joined: Any = sp.csr_matrix((weight, (low, high)), shape=(n_nodes, n_nodes)).tocoo()
    return np.stack([joined.row, joined.col]).astype(np.int64), joined.data


def joining_pairs(
    rows: NDArray[np.int64], groups: NDArray[np.int64], n_nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct rows and groups (M,) of groups that join some rows but not all, sorted by group and row."""
    pairs = np.unique(np.stack([groups, rows]), axis=1)
    sizes = np.bincount(pairs[0])
    if n_all := int((sizes == n_nodes).sum()):
        warn(DataWarning(f"{n_all} of {len(sizes)} groups contain all rows and are left out"), stacklevel=4)
    if n_large := int(((sizes > MOST_JOINED + 1) & (sizes < n_nodes)).sum()):
        warn(
            DataWarning(
                f"{n_large} of {len(sizes)} groups have more than {MOST_JOINED + 1} rows: each of their rows is joined "
                f"to {MOST_JOINED} others of the group, chosen at random"
            ),
            stacklevel=4,
        )
    pairs = pairs[:, (sizes[pairs[0]] > 1) & (sizes[pairs[0]] < n_nodes)]
    if pairs.shape[1] == 0:
        raise DataError("the memberships join no rows: every group has one row only, or all rows")
    return pairs[1], pairs[0]


def circles(rows: NDArray[np.int64], groups: NDArray[np.int64]) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield the ends and weights of the edges to the next, second next, … row in a random circular order of each group.

    The pairs are sorted by group.
    """
    order = np.lexsort((np.random.default_rng(0).random(len(rows)), groups))
    rows = rows[order]
    first, size = (np.unique(groups, return_index=True)[1], np.unique(groups, return_counts=True)[1])
    start, length = np.repeat(first, size), np.repeat(size, size)
    place = np.arange(len(rows)) - start
    for step in range(1, min(_REACH, int(size.max()) // 2) + 1):
        # Half a circle away, both ends of an edge have the same distance: it counts from the first half only.
        used = (2 * step < length) | ((2 * step == length) & (place < step))
        here, there = rows[used], rows[(start + (place + step) % length)[used]]
        weight = 1.0 / np.minimum(length[used] - 1, MOST_JOINED)
        yield np.minimum(here, there), np.maximum(here, there), weight
