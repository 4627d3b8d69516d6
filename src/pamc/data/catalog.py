"""The catalog of known data sets: their statistics, their sources, and how to load them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.files import sha256_of
from pamc.data.readers import read_features
from pamc.data.readers.formats.npz import NPZ_LAYOUT
from pamc.errors import DataError, UnknownNameError


@dataclass(frozen=True)
class DataSet:
    """A known data set with its source and its statistics, which are checked on loading.

    ``n_edges`` counts the edges as listed in the file. A "table" has features only; any edge list in its file is a
    k-nearest-neighbor graph computed from the features.
    """

    name: str
    title: str
    n_nodes: int
    n_features: int
    n_classes: int
    n_edges: int
    kind: Literal["graph", "table"]
    modality: Literal["image", "record", "text", "graph"]
    sparse: bool
    source: str
    sha256: str | None = None
    note: str = ""


# fmt: off
_ROWS = (
    DataSet(
        name="usps", title="USPS handwritten digits",
        n_nodes=9298, n_features=256, n_classes=10, n_edges=27894, kind="table", modality="image", sparse=False,
        source="usps.h5 (train, then test), in the row order of SDCN (Bo et al. 2020); 3 nearest neighbors as in SDCN",
        sha256="ec6852c09dec945d235b6c10cee58aba64462d754c1132e55b2b34b42af77e78",
    ),
    DataSet(
        name="hhar", title="Human activity recognition with smartphones",
        n_nodes=10299, n_features=561, n_classes=6, n_edges=51495, kind="table", modality="record", sparse=False,
        source="UCI HAR (Anguita et al. 2013), train then test rows as in SDCN; 5 nearest neighbors as in SDCN",
        sha256="149a11ecc58f2997d074b5221a4a10a37ada110012487e7de7c4cc31d649a5e4",
        note="rows 7352 to 10298 were recomputed from the raw windows, and differ slightly from the published ones",
    ),
    DataSet(
        name="reut", title="Reuters RCV1, 10,000 documents",
        n_nodes=10000, n_features=2000, n_classes=4, n_edges=30006, kind="table", modality="text", sparse=True,
        source="reuters10k: 10,000 documents of RCV1 (Lewis et al. 2004), 2,000 tf-idf terms, in the row order of SDCN",
        note=(
            "the features are not public, and reut_graph_only.npz has labels and edges without them; news4 and "
            "reut21578_4 are stand-ins, to be reported under their own names"
        ),
    ),
    DataSet(
        name="acm", title="ACM papers, co-author graph",
        n_nodes=3025, n_features=1870, n_classes=3, n_edges=26256, kind="graph", modality="graph", sparse=True,
        source="ACM3025.mat (feature, label, PAP) of O2MAC (Fan et al. 2020), equal to SDCN's set",
        sha256="16deec3a24167ea5f51ad19c0ad0f8bd0af0bf69f8b08bdcf0293f6833ef9728",
    ),
    DataSet(
        name="cite", title="Citeseer citations",
        n_nodes=3327, n_features=3703, n_classes=6, n_edges=9104, kind="graph", modality="graph", sparse=True,
        source="ind.citeseer.* of tkipf/gcn (Planetoid), equal to SDCN's labels and graph",
        sha256="9e782ff70a25696e650544bf11e294ad01cceba7cfe3bee4420461c13c052904",
        note="15 nodes have neither features nor a label and are counted as class 0",
    ),
    DataSet(
        name="dblp", title="DBLP authors, co-author graph",
        n_nodes=4057, n_features=334, n_classes=4, n_edges=7056, kind="graph", modality="graph", sparse=True,
        source="a_feat.npz of HeCo (Wang et al. 2021) in the author order of MAGNN, equal to SDCN's set",
        sha256="ceb4db3d4d1c27d12cfd29597a2722f4a7645d7e2ee70351547f06f72d1d87ad",
    ),
    DataSet(
        name="cora", title="Cora citations",
        n_nodes=2708, n_features=1433, n_classes=7, n_edges=10556, kind="graph", modality="graph", sparse=True,
        source="ind.cora.* of tkipf/gcn (Planetoid)",
        sha256="4511339b9e2086a28b53dbb3fda3dd3f05e4551cd76ff8318852e901e7301547",
    ),
    DataSet(
        name="amazon_photo", title="Amazon photo products bought together",
        n_nodes=7650, n_features=745, n_classes=8, n_edges=119081, kind="graph", modality="graph", sparse=True,
        source="amazon_photo.npz of EdisonLeeeee/GraphData, each undirected pair once",
        sha256="3f49fdf17c588cdc05e8627ad90770b0065119984c91665034ff56db0461329f",
    ),
    DataSet(
        name="news4", title="20 Newsgroups, four topics",
        n_nodes=10000, n_features=2000, n_classes=4, n_edges=30087, kind="table", modality="text", sparse=True,
        source="20 Newsgroups (roots comp, rec, sci, talk), 2,000 tf-idf terms, 3 nearest neighbors",
        sha256="63e233a83fed1258815e50a75e294540ccae76e5eb39dc09db323ca257bbf6c2",
        note="a stand-in for reut, made in the same way from another corpus, with the same N, d and class sizes",
    ),
    DataSet(
        name="reut21578_4", title="Reuters-21578, four largest classes",
        n_nodes=6915, n_features=2000, n_classes=4, n_edges=21548, kind="table", modality="text", sparse=True,
        source="Reuters-21578 R52 (earn, acq, crude, trade), 2,000 tf-idf terms, 3 nearest neighbors",
        sha256="23f3518d137d24aa60d78f4ae73f293a333f4bcd48e5480d10d7542e074b7fa0",
        note="a stand-in for reut with another corpus and other classes",
    ),
    DataSet(
        name="digits", title="Optical recognition of handwritten digits",
        n_nodes=1797, n_features=64, n_classes=10, n_edges=0, kind="table", modality="image", sparse=False,
        source="scikit-learn",
        note="included in scikit-learn; pixel counts 0 to 16",
    ),
)
# fmt: on

CATALOG: dict[str, DataSet] = {row.name: row for row in _ROWS}


def load_dataset(name: str, *, root: str | PathLike[str] | None = None) -> AttributedGraph:
    """Return a data set of the catalog, with labels, after checking its checksum and statistics.

    ``NAME.npz`` is looked up in ``root`` or ``$PAMC_DATA``, then in the cache (see `cache_folder`).

    Examples
    --------
    >>> graph = load_dataset("digits")
    >>> graph.n_nodes, graph.n_features, graph.edges is None
    (1797, 64, True)
    """
    row = _row(name)
    if row.source == "scikit-learn":
        from sklearn.datasets import load_digits

        pixels, classes = load_digits(return_X_y=True)
        graph = AttributedGraph(pixels.astype(np.float32), labels=classes, name=name)
    else:
        path = _checked_file(row, root)
        try:
            graph = replace(read_features(path), name=name, edges_are_neighbors=row.kind == "table")
        except DataError as error:
            raise DataError(f"data set {name!r}: {error}" + (f". Note: {row.note}" if row.note else "")) from error
    _check_statistics(row, graph)
    return graph


def available(name: str, *, root: str | PathLike[str] | None = None) -> str | None:
    """Return the source or file from which a data set would be loaded, or None if it is not available.

    Examples
    --------
    >>> available("digits")
    'scikit-learn'
    """
    row = _row(name)
    if row.source == "scikit-learn":
        return row.source
    return next((str(path) for path in _candidate_paths(row, root) if path.is_file()), None)


def cache_folder() -> Path:
    """Return ``$PAMC_CACHE`` if set, else the folder ``pamc`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    if configured := os.environ.get("PAMC_CACHE"):
        return Path(configured)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pamc"


def _row(name: str) -> DataSet:
    if name not in CATALOG:
        raise UnknownNameError("data set", name, CATALOG)
    return CATALOG[name]


def _candidate_paths(row: DataSet, root: str | PathLike[str] | None) -> list[Path]:
    user_folder = root if root is not None else os.environ.get("PAMC_DATA")
    return [Path(folder) / f"{row.name}.npz" for folder in (user_folder, cache_folder()) if folder]


def _checked_file(row: DataSet, root: str | PathLike[str] | None) -> str:
    """Return the file of a data set; raise DataError if it is missing or does not match the catalog's checksum."""
    path = available(row.name, root=root)
    if path is None:
        searched = " and ".join(str(path) for path in _candidate_paths(row, root))
        note = f" Note: {row.note}." if row.note else ""
        raise DataError(
            f"data set {row.name!r} was not found (searched for {searched}); pamc does not distribute it. "
            f"Source: {row.source}.{note} To use your copy, put {row.name}.npz into a folder and set $PAMC_DATA to "
            f"that folder; the file must contain {NPZ_LAYOUT}"
        )
    if row.sha256 is not None and (checksum := sha256_of(path)) != row.sha256:
        raise DataError(
            f"data set {row.name!r}: {path} is damaged, or is not the file that the catalog describes: its sha256 is "
            f"{checksum}, expected {row.sha256}. Restore it, or pass a file of your own by its path (pamc fit FILE)"
        )
    return path


def _check_statistics(row: DataSet, graph: AttributedGraph) -> None:
    n_classes = 0 if graph.labels is None else len(np.unique(graph.labels))
    loaded = {name: getattr(graph, name) for name in ("n_nodes", "n_features", "n_edges")} | {"n_classes": n_classes}
    for statistic, value in loaded.items():
        if value != getattr(row, statistic):
            raise DataError(
                f"data set {row.name!r} has {statistic} = {value}, expected {getattr(row, statistic)}: "
                "the file is not the one that the catalog describes"
            )
