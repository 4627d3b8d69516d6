"""AnnData files: the expression matrix, the names of cells and genes, and the neighbors of the cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pamc.data.attributed_graph import label_codes
from pamc.data.cells import cells_graph
from pamc.data.files import naming, reading
from pamc.data.readers.conversion import load_package
from pamc.data.readers.format import FORMATS, Format, Matrix
from pamc.errors import DataError, choices


def _read_features(path: Path, truth: str | None) -> Matrix:
    """Read `X`, the names of cells and genes, `obsp["connectivities"]`, and a column of `obs` as the truth."""
    package = load_package("anndata", "anndata", "AnnData")
    with reading(path):
        data = package.read_h5ad(path)
    labels = None
    if truth is not None:
        if truth not in data.obs:
            raise DataError(f"{path}: has no column {truth!r} in obs for the truth: {choices(truth, data.obs.columns)}")
        labels = label_codes(data.obs[truth].astype(str).to_numpy(dtype=str), what=f"{path}: labels")
    with naming(path):
        graph = cells_graph(data)
    parts: dict[str, Any] = {"edges": graph.edges, "labels": labels, "edge_weight": graph.edge_weight}
    return Matrix(graph.features, **parts, ids=graph.ids, feature_names=graph.feature_names)


FORMATS.register("h5ad")(Format(endings=(".h5ad",), read_features=_read_features))
