"""The data sets of the experiments, each loaded once per process."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.catalog import CATALOG, available, load_dataset
from pamc.data.synthetic import block_model
from pamc.errors import DataError, UnknownNameError

__all__ = ["BLOCKS", "check_name", "load", "n_classes", "why_missing"]

BLOCKS = "blocks"
_QUICK_DIGITS = 450


@lru_cache(maxsize=8)
def load(name: str, quick: bool) -> AttributedGraph:
    """Return a data set with its labels: one of the catalog, or "blocks", a block model of 300 nodes in 4 clusters.

    Sets that come with a list of nearest neighbors keep it, as in SDCN (Bo et al. 2020). "digits" has no edges: methods
    that need a graph build one. A quick run takes a part of the digits.

    Examples
    --------
    >>> load("blocks", quick=True).n_nodes
    300
    """
    check_name(name)
    if name == BLOCKS:
        return replace(block_model(300, 4, n_features=16, random_state=0), name=BLOCKS)
    graph = load_dataset(name)
    if quick and name == "digits":
        graph = AttributedGraph(graph.features[:_QUICK_DIGITS], labels=_labels(graph)[:_QUICK_DIGITS], name=name)
    return graph


def n_classes(graph: AttributedGraph) -> int:
    """Return the number of classes: how many clusters the experiments look for."""
    return len(np.unique(_labels(graph)))


def check_name(name: str) -> None:
    """Refuse a name that is no data set."""
    if name != BLOCKS and name not in CATALOG:
        raise UnknownNameError("data set", name, [*CATALOG, BLOCKS])


def why_missing(name: str) -> str | None:
    """Return why a data set cannot be loaded and where it was looked for; None where it can."""
    check_name(name)
    if name == BLOCKS or available(name) is not None:
        return None
    try:
        load_dataset(name)
    except DataError as error:
        # The first sentence: what is missing, and where it was looked for.
        return str(error).partition(". Source:")[0]
    return None


def _labels(graph: AttributedGraph) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    if graph.labels is None:
        raise DataError(f"data set {graph.name!r} has no labels: the experiments compare clusters with classes")
    return graph.labels
