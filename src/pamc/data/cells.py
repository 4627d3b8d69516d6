"""Cells of an AnnData object, in scanpy's layout, as a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from pamc.data.attributed_graph import AttributedGraph, check_edges
from pamc.data.relations import Edges, joined
from pamc.data.rows import as_features
from pamc.errors import DataError, choices

# Names of the expression matrix and of the weights of neighbors in scanpy's layout.
_X, _CONNECTIVITIES = "X", "connectivities"


def cells_graph(
    data: Any,
    *,
    use_rep: str | None = None,
    layer: str | None = None,
    neighbors_key: str | Sequence[str] | None = None,
) -> AttributedGraph:
    """Return the cells of an AnnData as the rows of a graph, with their names and the names of the genes.

    Parameters
    ----------
    data
        The AnnData.
    use_rep
        Key of the representation in `obsm` to use instead of the genes; None or "X" for the genes.
    layer
        Layer to use instead of `X`; None for `X`.
    neighbors_key
        Key of the neighbors in `uns`, as in scanpy, or of a matrix in `obsp`; several keys give several relations. By
        default, `obsp["connectivities"]` is used if it exists.
    """
    data = data.to_memory() if data.isbacked else data
    features, names = _features(data, use_rep, layer)
    keys = neighbors_key
    if keys is None and _CONNECTIVITIES in data.obsp:
        keys = _CONNECTIVITIES
    parts: dict[str, Edges] = {}
    for key in [] if keys is None else [keys] if isinstance(keys, str) else keys:
        parts[key] = _edges(data.obsp[_key_in_obsp(data, key)], data.n_obs)
    about: dict[str, Any] = {"ids": data.obs_names.to_numpy(dtype=str), "feature_names": names}
    if len(parts) > 1:
        edges, weight, relations = joined(parts)
        return AttributedGraph(features, edges=edges, edge_weight=weight, relations=relations, **about)
    for edges, weight in parts.values():
        about |= {"edges": edges, "edge_weight": weight}
    return AttributedGraph(features, **about)


def genes_of(data: Any, names: Sequence[str], *, layer: str | None = None) -> Any:
    """Return the expression (n, d) of the named genes; raise DataError if the AnnData does not have all of them."""
    data = data.to_memory() if data.isbacked else data
    places = data.var_names.get_indexer(list(names))
    missing = [name for name, place in zip(names, places, strict=True) if place < 0]
    if missing:
        raise DataError(
            f"the AnnData lacks {len(missing)} of the {len(names)} genes that the model was fitted on, such as "
            f"{', '.join(map(repr, missing[:3]))}: add them, or fit a model to the genes that both data sets contain"
        )
    return _features(data, None, layer)[0][:, places]


def _features(data: Any, use_rep: str | None, layer: str | None) -> tuple[Any, tuple[str, ...]]:
    """Return the matrix (N, d) of a representation or of the genes, and the names of its columns."""
    if use_rep is not None and use_rep != _X:
        if use_rep not in data.obsm:
            raise DataError(f"the AnnData has no representation {use_rep!r} in obsm: {choices(use_rep, data.obsm)}")
        matrix = as_features(data.obsm[use_rep])[0]
        return matrix, tuple(f"{use_rep}{column + 1}" for column in range(matrix.shape[1]))
    if layer is not None and layer not in data.layers:
        raise DataError(f"the AnnData has no layer {layer!r}: {choices(layer, data.layers)}")
    matrix = data.X if layer is None else data.layers[layer]
    if matrix is None:
        raise DataError("the AnnData has no X: there are no features to cluster")
    return as_features(matrix)[0], tuple(map(str, data.var_names))


def _key_in_obsp(data: Any, key: str) -> str:
    """Return the key in `obsp` for a key of neighbors, whose parameters are in `uns`, or of a matrix in `obsp`."""
    about = data.uns.get(key)
    name = about.get("connectivities_key", key) if isinstance(about, Mapping) else key
    if name not in data.obsp:
        raise DataError(f"the AnnData has no neighbors {key!r} in uns or obsp: {choices(key, data.obsp)}")
    return str(name)


def _edges(matrix: Any, n_nodes: int) -> Edges:
    entries = sp.coo_matrix(matrix)
    entries.eliminate_zeros()
    weight = None if (entries.data == 1).all() else entries.data
    return check_edges(np.stack([entries.row, entries.col]), weight, n_nodes=n_nodes)
