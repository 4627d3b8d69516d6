"""The constants that affect the result of a fit but are not settings.

They are defined in the modules that use them. All of them are part of the record of a fit, and a fit resumes from
checkpoints only if all of them match. They are read from the modules, so that none can be forgotten.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType
from typing import Any

# Modules and packages whose constants affect the result, in the order in which a fit uses them.
_MODULES = (
    "pamc.data.preprocessing",
    "pamc.data.completion",
    "pamc.graph",
    "pamc.ops.kmeans",
    "pamc.initialize",
    "pamc.training.sources",
    "pamc.training.pipeline",
    "pamc.training.trainer",
    "pamc.training.assign",
    "pamc.training.fallback",
    "pamc.training.optimizer",
)


def fit_constants() -> dict[str, Any]:
    """Return the constants of all modules that affect the result of a fit, as plain values by module and name.

    Examples
    --------
    >>> fit_constants()["training.sources.LARGE_ROWS"]
    50000
    """
    return {
        f"{module.__name__.removeprefix('pamc.')}.{name}": _plain(value)
        for module in _modules()
        for name, value in vars(module).items()
        if name.isupper() and _is_plain(value)
    }


@cache
def _modules() -> tuple[ModuleType, ...]:
    modules = []
    for name in _MODULES:
        module = importlib.import_module(name)
        submodules = pkgutil.walk_packages(getattr(module, "__path__", ()), name + ".")
        modules += [module, *(importlib.import_module(submodule.name) for submodule in submodules)]
    return tuple(modules)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(_is_plain(item) for item in (*value.keys(), *value.values()))
    return isinstance(value, int | float | str)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
