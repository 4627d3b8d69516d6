"""Several relations over the same rows, stored as one edge list with the relation of each edge."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pamc.errors import ConfigError, DataError, UnknownNameError

Edges: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.floating[Any]] | None]"


@dataclass(frozen=True, eq=False)
class Relations:
    """The relations of an edge list.

    Parameters
    ----------
    names
        Names of the relations.
    of_edge
        (E,) index of the relation of each edge; the edges of a relation are adjacent.
    has_weights
        Whether the edges of each relation have weights; the others count 1.
    weights
        Weight of each relation that the user chose, or None to find the weights from the data.
    """

    names: tuple[str, ...]
    of_edge: NDArray[np.int64]
    has_weights: tuple[bool, ...]
    weights: tuple[float, ...] | None = None

    def only(self, is_kept: NDArray[np.bool_]) -> Relations:
        """Return the relations of some of the edges."""
        return replace(self, of_edge=self.of_edge[is_kept])

    def split(self, edges: NDArray[np.int64], edge_weight: NDArray[Any] | None) -> dict[str, Edges]:
        """Return the edges and the edge weights of each relation, by name."""
        ends = np.searchsorted(self.of_edge, np.arange(len(self.names) + 1))
        parts = {}
        for index, name in enumerate(self.names):
            part = slice(int(ends[index]), int(ends[index + 1]))
            weight = edge_weight[part] if edge_weight is not None and self.has_weights[index] else None
            parts[name] = edges[:, part], weight
        return parts


def joined(parts: Mapping[str, Edges], weights: Mapping[str, Any] | None = None) -> tuple[*Edges, Relations]:
    """Return the edges of all relations as one list, their weights (None if all are 1), and the relation of each edge.

    Parameters
    ----------
    parts
        Edges (2, E_r) and edge weights (E_r,) or None of each relation, by name.
    weights
        Weights of the relations that the user chose; None to find them from the data.

    Examples
    --------
    >>> ends = np.array([[0, 1], [1, 2]])
    >>> edges, _, relations = joined({"cites": (ends, None), "shares an author": (ends[:, :1], None)})
    >>> edges.tolist(), relations.names, relations.of_edge.tolist()
    ([[0, 1, 0], [1, 2, 1]], ('cites', 'shares an author'), [0, 0, 1])
    """
    if not parts:
        raise DataError("adjacency is an empty dict: pass at least one relation, or leave adjacency out")
    for name, (edges, _) in parts.items():
        if edges.shape[1] == 0:
            raise DataError(f"relation {name!r} has no edges: leave it out")
    sizes = [edges.shape[1] for edges, _ in parts.values()]
    has_weights = tuple(weight is not None for _, weight in parts.values())
    edge_weight = None
    if any(has_weights):
        edge_weight = np.concatenate([np.ones(edges.shape[1]) if w is None else w for edges, w in parts.values()])
    names = tuple(str(name) for name in parts)
    relations = Relations(names, np.repeat(np.arange(len(parts)), sizes), has_weights, checked_weights(weights, names))
    return np.concatenate([edges for edges, _ in parts.values()], axis=1), edge_weight, relations


def same_name(name: str) -> DataError:
    """Return the DataError for two relations with the same name."""
    return DataError(f"two relations have the name {name!r}: give each file a different name")


def needs_relations() -> DataError:
    """Return the DataError for weights of relations without relations."""
    return DataError("relation_weights needs relations: pass adjacency as a dict, such as {'cites': A, 'tags': B}")


def checked_weights(weights: Any, names: Iterable[str]) -> tuple[float, ...] | None:
    """Return the weights in the order of the names; raise an error for a wrong name or number."""
    if weights is None:
        return None
    if not isinstance(weights, Mapping):
        raise ConfigError(f"relation_weights must be a dict of a number for each relation, got {weights!r}")
    names = list(names)
    for name in weights:
        if name not in names:
            raise UnknownNameError("relation in relation_weights", name, names)
    missing = [name for name in names if name not in weights]
    if missing:
        raise ConfigError(f"relation_weights has no weight for {', '.join(map(repr, missing))}; 0 leaves one out")
    for name, weight in weights.items():
        if not isinstance(weight, Real) or not 0 <= float(weight) < math.inf:
            raise ConfigError(
                f"relation_weights: the weight of {name!r} must be a number of at least 0, got {weight!r}"
            )
    if not any(weights.values()):
        raise ConfigError("relation_weights are all 0: give at least one relation a positive weight")
    return tuple(float(weights[name]) for name in names)
