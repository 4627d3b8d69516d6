"""What the shell offers after TAB, found without importing torch.

Settings and presets are those that :mod:`pamc.config` declares. Names of methods, data sets, experiments and cases are
read off the files that register them: importing those would take seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pamc.config import PRESETS, FitConfig

__all__ = [
    "cases_named",
    "datasets_named",
    "devices_named",
    "experiments_named",
    "maps_named",
    "methods_named",
    "presets_named",
    "settings_named",
]

_PACKAGE = Path(__file__).parent.parent
_DEVICES = ("auto", "cpu", "cuda")
_MAPS = ("auto", "pca", "umap")


def methods_named(incomplete: str) -> list[str]:
    """Return the methods whose names begin so.

    Examples
    --------
    >>> methods_named("sdcn")
    ['sdcn', 'sdcn+contrast', 'sdcn+pamc']
    """
    return _matching(_registered("models/methods", "register_method"), incomplete)


def datasets_named(incomplete: str) -> list[str]:
    """Return the known data sets whose names begin so."""
    rows = (_PACKAGE / "data" / "catalog.py").read_text(encoding="utf-8")
    return _matching(re.findall(r'DataSet\(\s*name="([^"]+)"', rows), incomplete)


def experiments_named(incomplete: str) -> list[str]:
    """Return the experiments of `pamc reproduce` whose names begin so."""
    return _matching(["all", *_registered("lab/cases", "register_experiment")], incomplete)


def cases_named(incomplete: str) -> list[str]:
    """Return the cases of `pamc bench` whose names begin so."""
    return _matching(["all", *_registered("lab/cases", "register_case")], incomplete)


def presets_named(incomplete: str) -> list[str]:
    """Return the presets whose names begin so."""
    return _matching(PRESETS, incomplete)


def devices_named(incomplete: str) -> list[str]:
    """Return the devices whose names begin so."""
    return _matching(_DEVICES, incomplete)


def maps_named(incomplete: str) -> list[str]:
    """Return the maps of a report whose names begin so."""
    return _matching(_MAPS, incomplete)


def settings_named(incomplete: str) -> list[str]:
    """Return the settings of PamCGC whose names begin so, each with an equals sign; after it, the choices.

    Examples
    --------
    >>> settings_named("graph"), settings_named("proxy=")
    (['graph_trust='], ['proxy=eq2', 'proxy=eq6'])
    """
    name, equals, _ = incomplete.partition("=")
    declared = {name: setting for name, setting in FitConfig.settings().items() if name != "n_clusters"}
    if equals and name in declared:
        return _matching([f"{name}={choice}" for choice in declared[name].choices], incomplete)
    return _matching([f"{name}=" for name in declared], incomplete)


def _registered(folder: str, decorator: str) -> list[str]:
    """Return the names that the modules of a folder give to a registering decorator."""
    texts = (path.read_text(encoding="utf-8") for path in sorted((_PACKAGE / folder).glob("*.py")))
    return sorted(name for text in texts for name in re.findall(rf'@{decorator}\(\s*"([^"]+)"', text))


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
