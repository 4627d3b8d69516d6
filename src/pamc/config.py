"""Settings of the methods, each declared once, presets, and conversion from and to TOML.

Validation, the estimator's docstring, the command's options, completion and the table of `docs/parameters.md` all read
these declarations. This module does not import torch.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from pamc.declarations import Choice, Count, DeclaredSettings, ImageShape, Number, Sizes, setting
from pamc.errors import ConfigError, UnknownNameError

RENAMED_SETTINGS = MappingProxyType({"start": "init", "preparation": "preprocessing"})

# Each initializer is a file of its name. The files are listed, because importing them would import torch.
_INITIALIZERS = tuple(sorted(path.stem for path in Path(__file__).parent.glob("initialize/initializers/[!_]*.py")))


@dataclass(frozen=True, kw_only=True)
class MethodConfig(DeclaredSettings):
    """Settings that all methods have; a method adds its own in a subclass."""

    n_clusters: int = setting(8, Count(), "Number of clusters C to form.", expert=False)
    preprocessing: str = setting(
        "auto",
        Choice(("auto", "none", "scale", "standardize", "unit", "rms", "tfidf")),
        'How to preprocess the features; "auto" chooses from the data.',
    )
    n_init: int = setting(20, Count(), "Number of K-means runs for the initial centers; the best run is used.")
    precision: str = setting(
        "float32",
        Choice(("auto", "float32", "float64", "bfloat16")),
        'Data type to compute in. "auto" is float32, with matrix products in TF32 on GPUs with tensor cores; '
        '"bfloat16" needs a GPU and stores rows and hidden layers in bfloat16, and everything else in float32.',
    )

    def __post_init__(self) -> None:
        for name, declared in self._settings.items():
            object.__setattr__(self, name, declared.check(name, getattr(self, name)))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all settings."""
        return tuple(cls._settings)

    def with_(self, **changes: Any) -> Self:
        """Return a copy with some settings changed; raise an error if a name is unknown or was renamed.

        Examples
        --------
        >>> FitConfig().with_(tau=0.5).tau
        0.5
        """
        for name in [name for name in changes if name not in self._settings]:
            if name in RENAMED_SETTINGS:
                raise ConfigError(f"the setting {name!r} is called {RENAMED_SETTINGS[name]!r}")
            raise UnknownNameError("setting", name, self._settings)
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values for JSON."""
        values = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the settings from the result of :meth:`to_dict`."""
        return cls().with_(**values)

    def to_toml(self) -> str:
        """Return the settings as a TOML document; settings that are None are left out, because TOML has no null."""
        values = {name: value for name, value in self.to_dict().items() if value is not None}
        # Strings, numbers and lists of numbers are written in the same way in JSON and TOML.
        return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Return the settings from a TOML document; settings that it does not name keep their defaults.

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
    """Settings of the methods that need a graph."""

    n_neighbors: int = setting(
        10,
        Count(),
        "Number of neighbors of each row in the kNN graph, which is built if no graph is given.",
        expert=False,
    )
    metric: str = setting(
        "euclidean",
        Choice(("auto", "euclidean", "cosine")),
        'Metric of the neighbor search. "auto" compares angles in the 50 leading directions of the features; the '
        "others compare the features themselves.",
    )


@dataclass(frozen=True, kw_only=True)
class TrainedConfig(MethodConfig):
    """Settings of the methods that are trained."""

    n_epochs: int = setting(200, Count(0), "Number of epochs to train for.", expert=False)
    lr: float = setting(1e-3, Number(positive=True), "Learning rate of Adam.")


@dataclass(frozen=True, kw_only=True)
class AssigningConfig(TrainedConfig):
    """Settings of the methods that assign rows in every epoch."""

    tol: float = setting(
        0.0,
        Number(),
        "Stop training once the shares of labels that change in ten epochs sum to at most this; 0 never stops.",
    )


@dataclass(frozen=True, kw_only=True)
class ContrastConfig(DeclaredSettings):
    """Settings of a contrastive term."""

    alpha: float = setting(1.0, Number(), "Multiply the contrastive term of Eq 12 by this weight.", expert=False)
    tau: float = setting(
        1.0,
        Number(positive=True),
        "Inverse temperature of the contrastive loss: Eqs 1–3 multiply the cosine by it, where other libraries divide "
        "by a temperature.",
    )
    self_edges: str = setting(
        "drop",
        Choice(("drop", "keep")),
        'Whether a row is one of its own positives. "drop" follows Eq 3 (j ≠ i); "keep" includes γ_ii with similarity '
        "0, as in the released program.",
    )


@dataclass(frozen=True, kw_only=True)
class InfluenceConfig(DeclaredSettings):
    """Settings of the positive pairs, which are defined by influence along the edges."""

    n_hops: int | None = setting(
        None,
        Count(),
        "Order of the cumulative influence γ = Σ_r Ā^r that defines the positive pairs: the number of steps along "
        "edges. The default, None, is 2, or 1 for more than 50,000 rows or several relations.",
        optional=True,
        expert=False,
    )
    max_positives: int | None = setting(
        None, Count(), "Keep only this many of the largest γ_ij per row; None keeps all.", optional=True
    )


@dataclass(frozen=True, kw_only=True)
class ProxyConfig(DeclaredSettings):
    """Settings of the PamC loss besides those of every contrastive term."""

    proxy: str = setting(
        "eq2",
        Choice(("eq2", "eq6")),
        'Equation of the proxy that replaces the negative pairs: "eq2", or "eq6" as in the released program.',
    )
    meta_assignment: str = setting(
        "hard",
        Choice(("hard", "soft", "soft_detached")),
        'Assignment that defines the meta-nodes of Eq 8: "hard" labels, "soft" q with its gradient, or "soft_detached" '
        "q without its gradient.",
    )


@dataclass(frozen=True, kw_only=True)
class ClusteringTermConfig(DeclaredSettings):
    """Settings of the clustering term of Eq 12."""

    beta: float = setting(1.0, Number(), "Multiply the clustering term of Eq 12 by this weight.", expert=False)
    kl_reduction: str = setting(
        "mean",
        Choice(("mean", "sum")),
        'Whether to divide the clustering term by the number of rows ("mean") or not ("sum", exactly as in Eq 11).',
    )


@dataclass(frozen=True, kw_only=True)
class KernelConfig(DeclaredSettings):
    """Settings of the Student-t kernel that assigns rows to centers."""

    eta: float = setting(1.0, Number(positive=True), "Degrees of freedom of the Student-t kernel of Eq 9.")


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(DeclaredSettings):
    """Settings of pre-training, which precedes training on the method's loss."""

    pretrain_epochs: int = setting(30, Count(0), "Number of epochs to pre-train for.")
    pretrain_lr: float = setting(1e-3, Number(positive=True), "Learning rate of pre-training.")


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(KernelConfig, PretrainConfig):
    """Settings of an MLP encoder that is pre-trained in batches."""

    hidden: tuple[int, ...] = setting((500, 500, 2000), Sizes(), "Sizes of the encoder's hidden layers.")
    batch_size: int = setting(256, Count(), "Number of rows per batch in pre-training.")
    chunk_size: int | None = setting(
        None,
        Count(),
        "Number of rows to encode at a time; None encodes all at once. The gradient is the same either way.",
        optional=True,
    )


@dataclass(frozen=True, kw_only=True)
class FitConfig(
    ProxyConfig,
    ClusteringTermConfig,
    ContrastConfig,
    EncoderConfig,
    InfluenceConfig,
    GraphConfig,
    AssigningConfig,
):
    """All settings of PamCGC, which determine a fit together with the data, the seed and the device.

    The names spell out the symbols of the paper.
    """

    # A fit replaces None by a number before anything is computed from it.
    alpha: float | None = setting(  # type: ignore[assignment]
        None,
        Number(),
        "Multiply the contrastive term of Eq 12 by this weight. The default, None, is 1 for a kNN graph. For a given "
        "graph, it is chosen from the data: the better the graph predicts the initial clusters, the larger the weight. "
        "It is also 1 for a store, for more than 64 clusters, and for fewer than 5 rows per cluster.",
        optional=True,
        expert=False,
    )
    beta: float = 10.0
    tau: float = 0.5
    metric: str = "auto"
    image_shape: tuple[int, ...] | None = setting(
        None,
        ImageShape(),
        "Treat each row as an image of this shape: (height, width) or (height, width, channels), with the pixels line "
        "by line. Neighbors are then found by tangent distance, and the encoder also sees images that are slightly "
        "shifted, turned and zoomed.",
        optional=True,
        expert=False,
    )
    n_epochs: int | None = setting(  # type: ignore[assignment]
        None,
        Count(0),
        'Number of epochs to train for. The default, None, is 50, or 200 for init "autoencoder", as in the paper.',
        optional=True,
        expert=False,
    )
    lr: float = 4e-4
    tol: float | None = setting(  # type: ignore[assignment]
        None,
        Number(),
        "Stop training once the shares of labels that change in ten epochs sum to at most this; 0 never stops early. "
        'The default, None, is 0.001, or 0 for init "autoencoder", as in the paper.',
        optional=True,
    )
    hidden: tuple[int, ...] | None = setting(  # type: ignore[assignment]
        None,
        Sizes(),
        "Sizes of the encoder's hidden layers. The default, None, is 256 and 256, or 500, 500 and 2000 for init "
        '"autoencoder", as in the paper.',
        optional=True,
    )
    precision: str = "auto"
    init: str = setting(
        "consensus",
        Choice(_INITIALIZERS),
        'How to initialize the encoder and the cluster centers. "consensus" clusters the rows in several ways, chooses '
        "the clusters on which these agree best, and fits the encoder so that it separates them; "
        '"propagated_svd" fits it to a truncated SVD of Ã²X; "autoencoder" trains it to reconstruct the features, as '
        "in the paper.",
        expert=False,
    )
    n_dims: int | None = setting(
        None,
        Count(),
        'Number of dimensions of the embedding z. None is 10 for init "autoencoder", as in the paper, and otherwise '
        "two per cluster, or 16 more than clusters if that is less, at most 80.",
        optional=True,
    )
    min_confidence: float | None = setting(
        None,
        Number(at_most=1),
        "Label rows −1 (noise) if their confidence is lower than this or if they are unlike all other rows. Training "
        "does not depend on it. The default, None, assigns every row to a cluster.",
        optional=True,
        expert=False,
    )
    graph_trust: str = setting(
        "auto",
        Choice(("auto", "always")),
        'Whether init "consensus" always uses features and graph ("always"), or leaves one of them out if the two are '
        'unrelated ("auto").',
    )
    embedding_scale: float | None = setting(
        None,
        Number(positive=True),
        'Length of the rows of z after any init other than "autoencoder". The kernel of Eq 9 has width 1, so a larger '
        "scale makes the initial assignment sharper. The default, None, is 2 for a given graph and 8 for a kNN graph.",
        optional=True,
    )
    pretrain_epochs: int | None = setting(  # type: ignore[assignment]
        None,
        Count(0),
        'Number of epochs to pre-train the encoder for. The default, None, is 30 for init "autoencoder". Otherwise, it '
        "is 20, or as many epochs as have 600 to 2,400 batches.",
        optional=True,
    )
    batch_size: int | None = setting(  # type: ignore[assignment]
        None,
        Count(),
        "Number of rows per batch in pre-training. The default, None, is 64, or 256 with more than 1,024 columns or "
        'for init "autoencoder".',
        optional=True,
    )
    pretrain_dropout: float = setting(
        0.3,
        Number(below=1),
        "Dropout rate of the features, drawn anew for each row and batch, while the encoder is initialized "
        '(init "consensus" and "propagated_svd").',
    )


# The allowed values of each setting of PamCGC with choices.
CHOICES: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {name: declared.choices for name, declared in FitConfig.settings().items() if declared.choices}
)

# Table 1 of the paper, and its pre-training learning rates.
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

_PAPER = FitConfig(
    preprocessing="none",
    metric="euclidean",
    graph_trust="always",
    n_dims=10,
    init="autoencoder",
    hidden=(500, 500, 2000),
    pretrain_epochs=30,
    batch_size=256,
    n_epochs=200,
    tol=0.0,
    lr=1e-3,
    proxy="eq2",
    meta_assignment="hard",
    self_edges="drop",
    kl_reduction="mean",
)

PRESETS: MappingProxyType[str, FitConfig] = MappingProxyType(
    {"default": FitConfig(), "paper": _PAPER, "released": _PAPER.with_(proxy="eq6", self_edges="keep")}
)


def preset(name: str, *, data_set: str | None = None, **changes: Any) -> FitConfig:
    """Return the settings of a preset, with some of them changed.

    "default" is one configuration for all data. "paper" follows Table 1, "released" the README of the authors' program;
    both have settings per data set and, for any other data, require `alpha`, `beta`, `tau` and `n_hops`.

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
            # The README of the released program swaps the rows of DBLP and CITE except for the learning rates.
            swapped = {"dblp": "cite", "cite": "dblp"}.get(data_set, data_set)
            row = {**PAPER_TABLE_1[swapped], "lr": row["lr"], "pretrain_lr": row["pretrain_lr"]}
        return config.with_(**{**row, **changes})
    missing = [key for key in ("alpha", "beta", "tau", "n_hops") if key not in changes]
    if missing:
        raise ConfigError(
            f"preset {name!r} has settings for {', '.join(sorted(PAPER_TABLE_1))}; for other data give "
            f"alpha, beta, tau and n_hops (missing: {', '.join(missing)})"
        )
    return config.with_(**changes)
