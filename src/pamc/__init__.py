"""pamc: clustering with the PamC loss, every negative counted in linear time.

Public names load when they are first used, so that importing the package is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pamc.config import FitConfig as FitConfig
    from pamc.config import preset as preset
    from pamc.data.attributed_graph import AttributedGraph as AttributedGraph
    from pamc.data.catalog import load_dataset as load_dataset
    from pamc.data.directed import DirectedEdges as DirectedEdges
    from pamc.data.ingest import ingest as ingest
    from pamc.data.memberships import Memberships as Memberships
    from pamc.data.readers import read_graph as read_graph
    from pamc.data.store import open_store as open_store
    from pamc.estimator import Advanced as Advanced
    from pamc.estimator import PamCGC as PamCGC
    from pamc.estimator import clusterer as clusterer
    from pamc.losses.pamc import PamCLoss as PamCLoss
    from pamc.losses.pamc import pamc_loss as pamc_loss
    from pamc.report.explain import explain as explain
    from pamc.report.writing import write_report as write_report
    from pamc.results.metrics import evaluate as evaluate
    from pamc.selection.choose_k import choose_k as choose_k

__version__ = "0.1.0"

_MODULES = {
    "Advanced": "pamc.estimator",
    "AttributedGraph": "pamc.data.attributed_graph",
    "DirectedEdges": "pamc.data.directed",
    "FitConfig": "pamc.config",
    "Memberships": "pamc.data.memberships",
    "PamCGC": "pamc.estimator",
    "PamCLoss": "pamc.losses.pamc",
    "choose_k": "pamc.selection.choose_k",
    "clusterer": "pamc.estimator",
    "evaluate": "pamc.results.metrics",
    "explain": "pamc.report.explain",
    "ingest": "pamc.data.ingest",
    "load_dataset": "pamc.data.catalog",
    "open_store": "pamc.data.store",
    "pamc_loss": "pamc.losses.pamc",
    "preset": "pamc.config",
    "read_graph": "pamc.data.readers",
    "write_report": "pamc.report.writing",
}

__all__ = list(_MODULES)


# Modules that are used as attributes of the package, such as pamc.sc.tl.pamc.
_SUBMODULES = ("callbacks", "sc")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"pamc.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'pamc' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
