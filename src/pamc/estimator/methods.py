"""An estimator for every method, by name."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from pamc.errors import ConfigError
from pamc.estimator.advanced import init_signature, nested
from pamc.estimator.base import Clusterer
from pamc.estimator.pamcgc import PamCGC
from pamc.estimator.row_clusterer import RowClusterer
from pamc.models.method import METHODS, Method, import_method
from pamc.results.run_folder import MODEL_FILE
from pamc.results.saved_fit import read_model

_OTHERS = {"random_state": None, "device": "auto", "verbose": False}


def load_model(folder: Path, *, device: str = "auto") -> tuple[Any, str | None]:
    """Return the model of a run folder and its id column; raise ConfigError if it cannot label new rows."""
    _, about = read_model(folder / MODEL_FILE)
    model_class = estimator_class(about["method"])
    if not hasattr(model_class, "predict"):
        raise ConfigError(
            f"{folder} was fitted by method {about['method']!r}, which cannot label new rows: fit the new rows "
            "together with the old ones"
        )
    return model_class.load(folder, device=device), about["id_column"]


def clusterer(name: str, n_clusters: int = 8, **parameters: Any) -> Any:
    """Return the estimator of a method by its name; the name of your own method is like "package.module:Name".

    Its parameters are the settings of the method, with the method's own defaults, and `random_state`, `device`,
    `verbose`; for PamCGC, expert settings among them are moved into `advanced`. Methods with a row-wise encoder also
    have `predict`, `predict_proba`, `transform` and `score`; methods that mix rows along the graph only label the
    training rows, as scikit-learn's SpectralClustering does.

    Examples
    --------
    >>> clusterer("pamcgc", 3, random_state=0)
    PamCGC(n_clusters=3, random_state=0)
    >>> clusterer("kmeans", 3)
    KMeansClusterer(n_clusters=3)
    """
    if name == PamCGC.method_name:
        parameters = nested(parameters)
    import_method(name)
    return estimator_class(name)(n_clusters, **parameters)


@cache
def estimator_class(name: str) -> Any:
    """Return the estimator class of a method."""
    if name == PamCGC.method_name:
        return PamCGC
    method = METHODS[name]
    base = RowClusterer if method.inductive else Clusterer
    members = {
        "__init__": _initializer(method),
        "__doc__": f"{method.title}: {method.reference}.\n\nParameters are those of `{method.config.__name__}`.",
        "__module__": __name__,
        "method_name": name,
    }
    return type(_class_name(method), (base,), members)


def __getattr__(attribute: str) -> Any:
    """Return the estimator class of that name, which pickle looks up in this module."""
    # Full names of own methods first, because a method may be registered under a short name too.
    for name in sorted(METHODS, key=lambda name: ":" not in name):
        if attribute == _class_name(METHODS[name]):
            return estimator_class(name)
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


def _initializer(method: Method) -> Any:
    """Return an `__init__` that takes each setting by name and stores it, as scikit-learn requires."""
    defaults = method.config()
    values = {setting: getattr(defaults, setting) for setting in method.config.names()}
    others = {**_OTHERS, **({"pretrained": None} if method.init is not None else {})}
    signature = init_signature({"n_clusters": 8, **values, **others}, positional="n_clusters")

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        unknown = [setting for setting in kwargs if setting not in signature.parameters]
        if unknown:
            allowed = ", ".join(list(signature.parameters)[1:])
            raise TypeError(f"{method.name} has no parameter {unknown[0]!r}; its parameters are {allowed}")
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        for setting, value in list(bound.arguments.items())[1:]:
            setattr(self, setting, value)

    initialize.__signature__ = signature  # type: ignore[attr-defined]
    return initialize


def _class_name(method: Method) -> str:
    """Return the name of an estimator class: "K-means" gives "KMeansClusterer", "SCGC*" "SCGCStarClusterer"."""
    words = method.title.replace("*", " Star").replace("-", " ").replace("+", " ").split()
    return "".join(word[0].upper() + word[1:] for word in words) + "Clusterer"
