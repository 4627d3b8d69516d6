"""From a scope to cells: which data sets, methods, seeds and settings are run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pamc.experiments.experiment import Scope
from pamc.experiments.settings import quick_settings, settings_of
from pamc.runtime import resolve_device

__all__ = ["ALL_SETS", "QUICK_SETS", "data_sets_of", "kind_of_device", "methods_of", "run_settings", "seeds_of"]

# The paper's sets, with the two that stand for Reuters, whose features are not public.
ALL_SETS = ("dblp", "acm", "cite", "usps", "hhar", "news4", "reut21578_4")

# What a quick run takes instead.
QUICK_SETS = ("digits", "blocks")


def data_sets_of(scope: Scope, own: Sequence[str]) -> list[str]:
    """Return those of the experiment's data sets that are asked for; a quick run has digits and blocks in their place.

    Examples
    --------
    >>> data_sets_of(Scope(datasets=("acm",)), ["dblp", "acm"]), data_sets_of(Scope(quick=True), ["dblp", "acm"])
    (['acm'], ['digits', 'blocks'])
    """
    names = QUICK_SETS if scope.quick else own
    return [name for name in names if scope.datasets is None or name in scope.datasets]


def methods_of(scope: Scope, own: Sequence[str]) -> list[str]:
    """Return those of the experiment's methods that are asked for.

    Examples
    --------
    >>> methods_of(Scope(methods=("sdcn", "ae")), ["pamcgc", "sdcn"])
    ['sdcn']
    """
    return [method for method in own if scope.methods is None or method in scope.methods]


def seeds_of(scope: Scope, own: int) -> range:
    """Return the seeds asked for, else the experiment's own number of them, from 0; a quick run has one.

    Examples
    --------
    >>> seeds_of(Scope(), 3), seeds_of(Scope(quick=True), 3), seeds_of(Scope(seeds=10), 3)
    (range(0, 3), range(0, 1), range(0, 10))
    """
    if scope.seeds is not None:
        return range(scope.seeds)
    return range(1 if scope.quick else own)


def kind_of_device(device: str) -> str:
    """Return "cuda" or "cpu" for the name of a device; a GPU need not be there to be named.

    Examples
    --------
    >>> kind_of_device("cuda:1")
    'cuda'
    """
    return resolve_device(device).type if device == "auto" else device.split(":")[0]


def run_settings(
    scope: Scope, method: str, data_set: str, *, own_program: bool = False, **changes: Any
) -> dict[str, Any]:
    """Return the settings of a method on a data set, some of them changed; tiny ones for a quick run.

    The number of epochs is not changed in a quick run.

    Examples
    --------
    >>> run_settings(Scope(), "pamcgc", "acm", tau=2.0)["tau"]
    2.0
    """
    tiny = quick_settings(method) if scope.quick else {}
    kept = {name: value for name, value in changes.items() if not (scope.quick and name == "n_epochs")}
    return {**settings_of(method, data_set, own_program=own_program), **tiny, **kept}
