"""The expert settings of PamCGC in one object."""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeVar

from sklearn.base import BaseEstimator, clone

from pamc.config import RENAMED_SETTINGS, FitConfig
from pamc.errors import ConfigError, choices

BASIC = tuple(name for name, declared in FitConfig.settings().items() if not declared.expert)
EXPERT = tuple(name for name, declared in FitConfig.settings().items() if declared.expert)

_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {**{name: FitConfig.settings()[name].default for name in EXPERT}, "pretrained": None}
)

P = ParamSpec("P")
T = TypeVar("T")


class Advanced(BaseEstimator):  # type: ignore[misc]
    """Expert settings of :class:`pamc.PamCGC`, for its parameter `advanced`.

    The defaults suit nearly all data. As in scikit-learn, the constructor only stores the values; `fit` checks them.

    Parameters
    ----------
    SETTINGS
    pretrained : str, default=None
        File of pre-trained encoder weights in SDCN's layout, which replaces the initialization.

    Examples
    --------
    >>> from pamc import Advanced, PamCGC
    >>> PamCGC(3, advanced=Advanced(tau=0.25)).config.tau
    0.25
    >>> PamCGC(3, advanced={"tau": 0.25}).set_params(advanced__eta=2.0).advanced
    Advanced(eta=2.0, tau=0.25)
    """

    def __init__(self, **settings: Any) -> None:
        for name in settings:
            if name not in _DEFAULTS:
                raise TypeError(_why_unknown(name))
        for name, default in _DEFAULTS.items():
            setattr(self, name, settings.get(name, default))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Advanced) and self.get_params() == other.get_params()

    __hash__ = None  # type: ignore[assignment]


def init_signature(defaults: Mapping[str, Any], *, positional: str | None = None) -> inspect.Signature:
    """Return the signature of an `__init__` that takes these parameters by keyword, and one also by position."""
    by_keyword, by_both = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(name, by_both if name == positional else by_keyword, default=default)
        for name, default in defaults.items()
    ]
    return inspect.Signature([inspect.Parameter("self", by_both), *parameters])


Advanced.__init__.__signature__ = init_signature(_DEFAULTS)  # type: ignore[attr-defined]


def with_settings(cls: type[T]) -> type[T]:
    """Replace SETTINGS in the docstring of a class by the declarations of its settings, and return the class."""
    declared, parameters = FitConfig.settings(), inspect.signature(cls).parameters
    entries = "\n".join(declared[name].documented(name) for name in parameters if name in declared)
    cls.__doc__ = (cls.__doc__ or "").replace("    SETTINGS", textwrap.indent(entries, "    "))
    return cls


with_settings(Advanced)


def as_advanced(advanced: Advanced | Mapping[str, Any] | None) -> Advanced:
    """Return the parameter `advanced`, which may be an object, a dict of some settings, or None, as an object."""
    if isinstance(advanced, Advanced):
        return advanced
    if not isinstance(advanced, Mapping | None):
        raise ConfigError(f"advanced must be a pamc.Advanced, a dict of settings, or None, got {advanced!r}")
    try:
        return Advanced(**(advanced or {}))
    except TypeError as error:
        raise ConfigError(f"advanced: {error}") from None


def nested(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Move the expert settings among the parameters of PamCGC into `advanced`, and return the parameters.

    Examples
    --------
    >>> nested({"n_hops": 1, "tau": 0.25})
    {'n_hops': 1, 'advanced': Advanced(tau=0.25)}
    """
    expert = {name: value for name, value in parameters.items() if name in _DEFAULTS}
    others = {name: value for name, value in parameters.items() if name not in _DEFAULTS}
    if expert:
        others["advanced"] = clone(as_advanced(others.get("advanced"))).set_params(**expert)
    return others


def why_misplaced(name: str, value: Any) -> str | None:
    """Return how to write a misplaced or renamed keyword of PamCGC, or None if it is unknown.

    Examples
    --------
    >>> why_misplaced("tau", 0.25)
    'tau is an expert setting: PamCGC(advanced={"tau": 0.25})'
    >>> why_misplaced("start", "autoencoder")
    "start is called init: PamCGC(init='autoencoder')"
    """
    current = RENAMED_SETTINGS.get(name, name)
    if current not in _DEFAULTS and current == name:
        return None
    usage = f'PamCGC(advanced={{"{current}": {value!r}}})' if current in _DEFAULTS else f"PamCGC({current}={value!r})"
    return f"{name} is {'an expert setting' if current == name else f'called {current}'}: {usage}"


def refuses_misplaced(init: Callable[Concatenate[Any, P], None]) -> Callable[Concatenate[Any, P], None]:
    """Wrap an `__init__` so that the error for an unknown keyword says where the setting belongs."""
    known = inspect.signature(init).parameters

    @functools.wraps(init)
    def initialize(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
        for name, value in kwargs.items():
            if name not in known:
                allowed = [parameter for parameter in known if parameter != "self"]
                raise TypeError(why_misplaced(name, value) or f"unknown parameter {name!r}: {choices(name, allowed)}")
        init(self, *args, **kwargs)

    return initialize


def _why_unknown(name: str) -> str:
    if name in BASIC:
        return f"{name} is a parameter of PamCGC itself: PamCGC({name}=…)"
    if name in RENAMED_SETTINGS:
        return f"{name} is called {RENAMED_SETTINGS[name]}"
    return f"unknown expert setting {name!r}: {choices(name, _DEFAULTS)}"
