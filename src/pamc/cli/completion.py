"""Shell completion without importing torch.

Settings and presets come from :mod:`pamc.config`. Names of methods, data sets, experiments and cases are parsed from
the source files that register them, because importing those would take seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from pamc.config import PRESETS, FitConfig

_PACKAGE = Path(__file__).parent.parent


def _offering(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a completion function for some names, which are looked up when it is called."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def _registered(files: str, call: str) -> list[str]:
    """Return the names that some source files pass to a registering call."""
    texts = (path.read_text(encoding="utf-8") for path in _PACKAGE.glob(files))
    return sorted(name for text in texts for name in re.findall(rf'{call}\(\s*(?:name=)?"([^"]+)"', text))


methods_named = _offering(lambda: _registered("models/methods/*.py", "@register_method"))
datasets_named = _offering(lambda: _registered("data/catalog.py", "DataSet"))
experiments_named = _offering(lambda: ["all", *_registered("lab/cases/*.py", "@register_experiment")])
cases_named = _offering(lambda: ["all", *_registered("lab/cases/*.py", "@register_case")])
presets_named = _offering(lambda: PRESETS)
devices_named = _offering(lambda: ("auto", "cpu", "cuda"))
maps_named = _offering(lambda: ("auto", "layout", "pca", "umap"))


def settings_named(incomplete: str) -> list[str]:
    """Return the settings of PamCGC that match, each with an equals sign; after the sign, the choices.

    Examples
    --------
    >>> settings_named("graph"), settings_named("proxy=")
    (['graph_trust='], ['proxy=eq2', 'proxy=eq6'])
    """
    name, equals, _ = incomplete.partition("=")
    declared = {name: setting for name, setting in FitConfig.settings().items() if name != "n_clusters"}
    if equals and name in declared:
        names = [f"{name}={choice}" for choice in declared[name].choices]
    else:
        names = [f"{name}=" for name in declared]
    return [name for name in names if name.startswith(incomplete)]
