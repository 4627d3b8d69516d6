"""Run settings: one frozen record, its presets, TOML in and out."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Self

from pamc.errors import ConfigError, UnknownNameError
from pamc.runtime import PRECISIONS

__all__ = [
    "CHOICES",
    "PAPER_TABLE_1",
    "PRESETS",
    "AssigningConfig",
    "FitConfig",
    "GraphConfig",
    "MethodConfig",
    "TrainedConfig",
    "preset",
]

CHOICES = MappingProxyType(
    {
        "preprocessing": ("auto", "none", "scale", "standardize", "unit", "rms", "tfidf"),
        "metric": ("auto", "euclidean", "cosine"),
        "graph_trust": ("auto", "always"),
        "init": ("consensus", "propagated_svd", "propagated_autoencoder", "spectral", "autoencoder"),
        "proxy": ("eq2", "eq6"),
        "meta_assignment": ("hard", "soft", "soft_detached"),
        "self_edges": ("drop", "keep"),
        "kl_reduction": ("mean", "sum"),
        "precision": tuple(PRECISIONS),
    }
)


def _check_count(name: str, value: object, *, minimum: int) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < minimum:
        raise ConfigError(f"{name} must be an integer of at least {minimum}, got {value!r}")


def _check_number(name: str, value: object, *, positive: bool) -> None:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0 or (positive and number == 0):
        raise ConfigError(f"{name} must be a finite number {'above' if positive else 'of at least'} 0, got {value!r}")
    if name in _SHARES and number >= 1:
        raise ConfigError(f"{name} is a share and must be below 1, got {value!r}")


# Settings that may be None, and numbers that must be above 0; every other number may be 0.
_OPTIONAL = ("max_positives", "chunk_size", "n_dims")
_POSITIVE = ("tau", "eta", "lr", "pretrain_lr", "embedding_scale")
_SHARES = ("pretrain_dropout",)


@dataclass(frozen=True, kw_only=True)
class MethodConfig:
    """Settings that every method has; a method adds its own in a subclass.

    What a setting may be follows from its name: a choice of `CHOICES`, a count (`n_…`, `…_epochs`, `…_size`), a list of
    sizes where the default is one, else a number.

    Parameters
    ----------
    n_clusters
        C, the number of clusters.
    preprocessing
        How features are prepared; "auto" decides from the data.
    n_init
        K-means starts.
    precision
        "float32", "float64", "auto": float32, whose products a GPU takes on its tensor cores, in TF32; or, on a GPU,
        "bfloat16": rows and what stands between the encoder's layers in that type, all else in float32.
    """

    n_clusters: int = 8
    preprocessing: str = "auto"
    n_init: int = 20
    precision: str = "float32"

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check(field.name, getattr(self, field.name), field.default)

    def _check(self, name: str, value: Any, default: Any) -> None:
        if name in CHOICES:
            if value not in CHOICES[name]:
                raise UnknownNameError(name, value, CHOICES[name])
        elif isinstance(default, tuple):
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise ConfigError(f"{name} must list the sizes of the layers, such as [500, 500, 2000], got {value!r}")
            object.__setattr__(self, name, tuple(value))
            for size in getattr(self, name):
                _check_count(name, size, minimum=1)
        elif name.endswith("epochs"):
            _check_count(name, value, minimum=0)
        elif name.startswith("n_") or name.endswith("_size") or name in _OPTIONAL:
            if value is not None or name not in _OPTIONAL:
                _check_count(name, value, minimum=1)
        else:
            _check_number(name, value, positive=name in _POSITIVE)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all settings."""
        return tuple(field.name for field in fields(cls))

    def with_(self, **changes: Any) -> Self:
        """Return a copy with some settings changed; an unknown name is refused.

        Examples
        --------
        >>> FitConfig().with_(tau=0.5).tau
        0.5
        """
        for name in changes:
            if name not in self.names():
                raise UnknownNameError("setting", name, self.names())
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values for JSON."""
        values = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the settings of :meth:`to_dict`."""
        return cls().with_(**values)

    def to_toml(self) -> str:
        """Return the settings as a TOML document; None, which TOML lacks, is left out."""
        return "".join(f"{name} = {_toml(value)}\n" for name, value in self.to_dict().items() if value is not None)

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Return the settings of a TOML document; what it does not name keeps its default.

        Examples
        --------
        >>> FitConfig.from_toml(FitConfig(tau=0.25).to_toml()) == FitConfig(tau=0.25)
        True
        """
        try:
            return cls.from_dict(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"settings are not valid TOML: {error}") from None


@dataclass(frozen=True, kw_only=True)
class GraphConfig(MethodConfig):
    """Settings of the methods that need a graph.

    Parameters
    ----------
    n_neighbors, metric
        Of the kNN graph that is built when no graph is given. "auto" is the angle in the 50 leading directions of the
        features; "euclidean" and "cosine" compare the features themselves.
    """

    n_neighbors: int = 10
    metric: str = "euclidean"


@dataclass(frozen=True, kw_only=True)
class TrainedConfig(MethodConfig):
    """Settings of the methods that are trained.

    Parameters
    ----------
    n_epochs, lr
        Of the training.
    """

    n_epochs: int = 200
    lr: float = 1e-3


@dataclass(frozen=True, kw_only=True)
class AssigningConfig(TrainedConfig):
    """Settings of the methods that assign rows in every epoch.

    Parameters
    ----------
    tol
        Stop when the share of labels that changed in an epoch is at most this, 0 to run all epochs.
    """

    tol: float = 0.0


@dataclass(frozen=True, kw_only=True)
class FitConfig(GraphConfig, AssigningConfig):
    """Everything that decides a fit of PamCGC, apart from the data, the seed and the device.

    The names are the paper's symbols as pamc spells them; the estimator takes each as a parameter of the same name.

    Parameters
    ----------
    n_clusters
        C, the number of clusters.
    alpha, beta
        Weights of the contrastive and of the clustering term in Eq 12.
    tau
        Multiplies the cosine in Eqs 1–3 (other libraries divide by a temperature).
    eta
        Degrees of freedom of the Student-t kernel of Eq 9.
    proxy
        "eq2", or "eq6" as the released program has it.
    meta_assignment
        What the meta-nodes of Eq 8 sum over: "hard" labels, "soft" q with its gradient, or "soft_detached".
    self_edges
        "drop" (j ≠ i, Eq 3) or "keep" (γ_ii counts with similarity 0, as the released program has it).
    kl_reduction
        "mean" (divided by N) or "sum" (Eq 11 to the letter).
    n_neighbors, metric
        Of the kNN graph that is built when no graph is given. "auto" is the angle in the 50 leading directions of the
        features; "euclidean" and "cosine" compare the features themselves.
    graph_trust
        With init "consensus": "auto" leaves out the graph or the features where the two have nothing to do with each
        other, "always" uses both.
    n_hops
        Order of the cumulative influence γ = Σ_r Ā^r.
    max_positives
        Keep this many of the largest γ_ij per row, None for all.
    preprocessing
        How features are prepared; "auto" decides from the data.
    hidden, n_dims
        Sizes of the encoder's hidden layers and of the embedding z. None is 10 for init "autoencoder", as in the
        paper, and else two dimensions per cluster, at most 32.
    init
        How the encoder gets its first weights, and the clusters their first centers. "consensus" fits it to the
        features smoothed over the graph and takes the clusters that many quick clusterings agree on; "propagated_svd"
        fits it to a truncated SVD of Ã²X; "propagated_autoencoder" trains it to reconstruct Ã²X; "spectral" trains it
        to bring neighbors together and to keep the directions of z apart; "autoencoder" trains it to reconstruct the
        features, as in the paper.
    embedding_scale
        Length of a row of z after an init other than "autoencoder". The kernel of Eq 9 has width 1, so this decides how
        sharp the first assignment is.
    pretrain_epochs, pretrain_lr, batch_size
        Of the start. An encoder that learns the place of fewer than 1,200 rows gets up to three times the epochs.
    pretrain_dropout
        Share of the features that is hidden, other ones for each row and batch, from an encoder that learns the place
        of rows among their neighbors ("consensus", "propagated_svd"): it learns not to rely on single ones.
    n_init
        K-means starts for the centers.
    n_epochs, lr
        Of the training on Eq 12.
    tol
        Stop when the share of labels that changed in an epoch is at most this, 0 to run all epochs.
    chunk_size
        Rows encoded at a time; None for all at once. The gradient is the same.
    precision
        "float32", "float64", "auto": float32, whose products a GPU takes on its tensor cores, in TF32; or, on a GPU,
        "bfloat16": rows and what stands between the encoder's layers in that type, all else in float32.
    """

    n_clusters: int = 8
    alpha: float = 1.0
    beta: float = 10.0
    tau: float = 0.5
    eta: float = 1.0
    proxy: str = "eq2"
    meta_assignment: str = "hard"
    self_edges: str = "drop"
    kl_reduction: str = "mean"
    n_neighbors: int = 10
    metric: str = "auto"
    graph_trust: str = "auto"
    n_hops: int = 2
    max_positives: int | None = None
    preprocessing: str = "auto"
    hidden: tuple[int, ...] = (500, 500, 2000)
    n_dims: int | None = None
    init: str = "consensus"
    embedding_scale: float = 2.0
    pretrain_epochs: int = 30
    pretrain_dropout: float = 0.3
    pretrain_lr: float = 1e-3
    batch_size: int = 256
    n_init: int = 20
    n_epochs: int = 200
    lr: float = 1e-4
    tol: float = 0.0
    chunk_size: int | None = None
    precision: str = "auto"


# Table 1 of the paper, and the rates of its pre-training.
_TABLE_1_COLUMNS = ("alpha", "beta", "n_hops", "tau", "lr", "pretrain_lr")
PAPER_TABLE_1: MappingProxyType[str, dict[str, Any]] = MappingProxyType(
    {
        name: dict(zip(_TABLE_1_COLUMNS, row, strict=True))
        for name, row in {
            "usps": (2.0, 2.0, 4, 0.5, 1e-3, 1e-3),
            "hhar": (0.5, 12.5, 2, 1.5, 1e-3, 1e-3),
            "reut": (1.0, 0.2, 1, 0.25, 1e-4, 1e-4),
            "acm": (0.5, 0.5, 1, 0.5, 1e-3, 1e-3),
            "cite": (2.0, 2.0, 1, 1.0, 1e-3, 1e-4),
            "dblp": (2.0, 2.5, 3, 0.5, 1e-3, 1e-3),
        }.items()
    }
)

# The README of the released program has the rows of DBLP and CITE the other way round (apart from the rates).
_SWAPPED = {"dblp": "cite", "cite": "dblp"}
_RATES = ("lr", "pretrain_lr")

_PAPER = FitConfig(
    preprocessing="none",
    metric="euclidean",
    graph_trust="always",
    n_dims=10,
    init="autoencoder",
    pretrain_epochs=30,
    lr=1e-3,
    proxy="eq2",
    meta_assignment="hard",
    self_edges="drop",
    kl_reduction="mean",
)

PRESETS: MappingProxyType[str, FitConfig] = MappingProxyType(
    {
        "default": FitConfig(),
        "paper": _PAPER,
        "released": _PAPER.with_(proxy="eq6", self_edges="keep"),
    }
)


def preset(name: str, *, data_set: str | None = None, **changes: Any) -> FitConfig:
    """Return the settings of a preset, with some of them changed.

    "default" is one configuration for all data. "paper" follows Table 1, "released" the README of the authors' program;
    both have settings per data set and, for any other data, ask for `alpha`, `beta`, `tau` and `n_hops`.

    Examples
    --------
    >>> preset("paper", data_set="acm", n_clusters=3).alpha
    0.5
    """
    if name not in PRESETS:
        raise UnknownNameError("preset", name, PRESETS)
    config = PRESETS[name]
    if name == "default":
        return config.with_(**changes)
    if data_set is not None and data_set in PAPER_TABLE_1:
        row = PAPER_TABLE_1[data_set]
        if name == "released":
            rates = {key: row[key] for key in _RATES}
            row = {**PAPER_TABLE_1[_SWAPPED.get(data_set, data_set)], **rates}
        return config.with_(**{**row, **changes})
    missing = [key for key in ("alpha", "beta", "tau", "n_hops") if key not in changes]
    if missing:
        raise ConfigError(
            f"preset {name!r} has settings for {', '.join(sorted(PAPER_TABLE_1))}; for other data give "
            f"alpha, beta, tau and n_hops (missing: {', '.join(missing)})"
        )
    return config.with_(**changes)


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)
