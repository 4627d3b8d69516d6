"""Tools in the style of `scanpy.tl`, which read an AnnData and write their results to it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pamc.data.cells import cells_graph, genes_of
from pamc.errors import DataError
from pamc.estimator.methods import clusterer
from pamc.estimator.noise import assign, limit_of, noise_names
from pamc.estimator.pamcgc import PamCGC
from pamc.results.run_folder import MODEL_FILE, RECORD_FILE


def pamc(
    adata: Any,
    n_clusters: int,
    *,
    use_rep: str | None = None,
    layer: str | None = None,
    neighbors_key: str | Sequence[str] | None = None,
    key_added: str = "pamc",
    random_state: int = 0,
    copy: bool = False,
    **settings: Any,
) -> Any:
    """Cluster the cells of an AnnData with PamCGC, and write the results to it.

    The results are `obs[key_added]` (clusters, categorical), `obs[key_added + "_confidence"]`,
    `obsm["X_" + key_added]` (the embedding), and `uns[key_added]` with parameters, scores and the model, which
    :func:`predict` applies to new cells. With `min_confidence`, `obs[key_added + "_noise"]` gives the kind of noise of
    each noise cell, whose cluster is "-1".

    Parameters
    ----------
    adata
        The cells, in scanpy's layout.
    n_clusters
        Number of clusters to form.
    use_rep
        Key of a representation in `obsm`, such as "X_pca". By default, or with "X", the genes are used, so that
        :func:`pamc.explain` describes the clusters by genes.
    layer
        Layer of the genes to use instead of `X`.
    neighbors_key
        Key of neighbors in `uns`, such as "neighbors" or squidpy's "spatial_neighbors", or of a matrix in `obsp`; or a
        list of keys, whose graphs are weighed by how well they agree. By default, `obsp["connectivities"]` is used if
        it exists, else a kNN graph of the cells.
    key_added
        Key under which the results are stored.
    random_state
        Random seed.
    copy
        Whether to return a copy with the results instead of writing to `adata`.
    settings
        Other parameters and expert settings of PamCGC.

    Returns
    -------
    A copy of `adata` with the results, or None if they were written to `adata`.
    """
    adata = adata.copy() if copy else adata
    graph = cells_graph(adata, use_rep=use_rep, layer=layer, neighbors_key=neighbors_key)
    model = clusterer(PamCGC.method_name, n_clusters, random_state=random_state, **settings).fit_graph(graph)
    noise = model.noise_ if model.noise_ is None else model.noise_.astype(object)
    _write(adata, key_added, model.labels_, model.confidence_, noise, model.embedding_, n_clusters)
    keys = neighbors_key if neighbors_key is None or isinstance(neighbors_key, str) else list(neighbors_key)
    about = {"use_rep": use_rep, "layer": layer, "neighbors_key": keys, "random_state": random_state, **settings}
    adata.uns[key_added] = {
        "params": {
            "n_clusters": n_clusters,
            **{name: _plain(value) for name, value in about.items() if value is not None},
        },
        "scores": {name: float(value) for name, value in model.scores_.items()},
        "model": _stored(model),
    }
    return adata if copy else None


def predict(adata: Any, reference: Any, *, key_added: str = "pamc", copy: bool = False) -> Any:
    """Assign new cells to the clusters of a reference by their genes or representation; no graph is needed.

    The results are those of :func:`pamc`, except for `uns`. Genes are matched by name and may be in any order.

    Parameters
    ----------
    adata
        The new cells.
    reference
        The AnnData to which :func:`pamc` wrote its results; it may have been saved and read again.
    key_added
        Key of the results, in both AnnData objects.
    copy
        Whether to return a copy with the results instead of writing to `adata`.
    """
    if key_added not in reference.uns or "model" not in reference.uns[key_added]:
        raise DataError(f"uns of the reference has no key {key_added!r}: run pamc.sc.tl.pamc on the reference first")
    adata = adata.copy() if copy else adata
    params, model = reference.uns[key_added]["params"], _restored(reference.uns[key_added]["model"])
    if params.get("use_rep") in (None, "X"):
        rows = genes_of(adata, model.feature_names_in_, layer=params.get("layer"))
    else:
        rows = cells_graph(adata, use_rep=params["use_rep"]).features
    cells = _named(rows, model)
    labels, confidence, codes = assign(model, cells, limit_of(model, None))
    noise = None if codes is None else noise_names(codes).astype(object)
    categories: Any = reference.obs[key_added].cat.categories
    _write(adata, key_added, labels, confidence, noise, model.transform(cells), model.n_clusters, categories)
    return adata if copy else None


def _named(rows: Any, model: Any) -> Any:
    """Return rows as an AnnData whose variables are named like the features of the model."""
    import anndata
    import pandas as pd

    return anndata.AnnData(rows, var=pd.DataFrame(index=list(model.feature_names_in_)))


def _write(
    adata: Any,
    key: str,
    labels: Any,
    confidence: Any,
    noise: Any,
    z: Any,
    n_clusters: int,
    categories: Any = None,
) -> None:
    import pandas as pd

    numbers = range(min(0, int(labels.min())), n_clusters)
    names = [str(number) for number in numbers] if categories is None else list(categories)
    missing = sorted({str(label) for label in labels} - set(names))
    adata.obs[key] = pd.Categorical(labels.astype(str), categories=[*missing, *names])
    adata.obs[f"{key}_confidence"] = confidence
    if noise is not None:
        adata.obs[f"{key}_noise"] = pd.Categorical(noise)
    adata.obsm[f"X_{key}"] = np.asarray(z)


def _plain(value: Any) -> Any:
    """Return a parameter as a value that an .h5ad file can hold."""
    value = list(value) if isinstance(value, tuple) else value
    return value if isinstance(value, str | int | float | list) else str(value)


def _stored(model: Any) -> dict[str, Any]:
    """Return a model without training rows as values that an .h5ad file can hold."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "run", slim=True)
        weights = np.frombuffer((Path(folder) / "run" / MODEL_FILE).read_bytes(), dtype=np.uint8)
        return {"weights": weights, "record": (Path(folder) / "run" / RECORD_FILE).read_text(encoding="utf-8")}


def _restored(stored: Any) -> Any:
    """Return the model that :func:`_stored` stored."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / MODEL_FILE).write_bytes(np.asarray(stored["weights"], dtype=np.uint8).tobytes())
        (Path(folder) / RECORD_FILE).write_text(str(stored["record"]), encoding="utf-8")
        return PamCGC.load(folder)
