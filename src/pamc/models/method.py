"""The definition of a method (its settings, requirements and builder) and the registry of all methods."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from pamc.config import MethodConfig
from pamc.errors import ConfigError, ModelFileError
from pamc.models.base import GraphModel, Model
from pamc.models.layers import MLP
from pamc.models.views import Views
from pamc.registry import Registry

AnyModel: TypeAlias = Model | GraphModel


@dataclass(frozen=True, eq=False, kw_only=True)
class BuildInput:
    """Inputs from which a method builds its model.

    Parameters
    ----------
    n_nodes, n_features
        Shape (N, d) of the preprocessed rows.
    config, seed
        Settings of the method, and random seed (`pamc.runtime.generator(seed, purpose)`).
    device, dtype
        Device and dtype of all tensors.
    adjacency
        (N, N) symmetric weights without diagonal; None for a method without a graph.
    pairs
        Positive pairs γ on the device, for methods whose settings have `n_hops`.
    encoder, decoder
        Initialized encoder on the device, and its decoder, which is None unless the initialization has one.
    pretrained
        Model trained by the method's pretraining; None without one.
    centers
        (C, n_dims) K-means centers of the embedding after initialization and pretraining; None without either.
    known_labels
        (N,) known cluster of each row, −1 if it is unknown; None if no cluster is known.
    views
        Random copies of the rows; None without any.
    sample_weight
        (N,) weights of the rows; None if every row counts once.
    """

    n_nodes: int
    n_features: int
    config: Any
    seed: int
    device: torch.device
    dtype: torch.dtype
    # Any: a method's builder need not check for None the inputs that the method requires.
    adjacency: Any = None
    pairs: Any = None
    encoder: Any = None
    decoder: Any = None
    pretrained: Any = None
    centers: Any = None
    known_labels: Tensor | None = None
    views: Views | None = None
    sample_weight: Tensor | None = None

    def required_decoder(self) -> MLP:
        """Return the decoder of the initialization; raise ModelFileError if pretrained weights have none."""
        if self.decoder is None:
            raise ModelFileError("the pre-trained weights have no decoder (dec_1 …), which this method needs")
        decoder: MLP = self.decoder
        return decoder


Build: TypeAlias = Callable[[BuildInput], AnyModel]
BuildT = TypeVar("BuildT", bound=Build)


@dataclass(frozen=True, kw_only=True)
class Method:
    """A clustering method.

    Parameters
    ----------
    name, title, reference
        Name in the registry, name in tables, and paper.
    config
        Class of its settings; the defaults are one configuration for all data.
    build
        Function that returns the model to be trained, which the pipeline moves to the device.
    uses_graph
        Whether it needs a graph; for data without one, a kNN graph is built.
    uses_features
        Whether it uses the features.
    inductive
        Whether new rows can be assigned without a graph: its model is a :class:`pamc.models.base.Model`.
    init
        Initializer of its encoder, unless its settings have `init`; None for no initialization.
    pretrain
        Function that returns a model that is trained first, for `pretrain_epochs` epochs at `pretrain_lr`.
    uses_known_labels
        Whether its loss uses known clusters of some rows.
    """

    name: str
    title: str
    reference: str
    config: type[MethodConfig]
    build: Build
    uses_graph: bool
    uses_features: bool = True
    inductive: bool = False
    init: str | None = None
    pretrain: Build | None = None
    uses_known_labels: bool = False

    def init_of(self, config: MethodConfig) -> str | None:
        """Return the name of the initializer that the settings select."""
        init: str | None = getattr(config, "init", self.init)
        return init


class _Methods(Registry[Method]):
    """The registry of methods; a method of another package is named like "package.module:Name"."""

    def __getitem__(self, name: str) -> Method:
        """Return a method by its name; a method of another package must have been imported."""
        if ":" in name and name not in self:
            raise ConfigError(
                f"method {name!r} is not imported: pass it as --method to the command, or call "
                f"pamc.clusterer({name!r}) before"
            )
        return super().__getitem__(name)


METHODS: _Methods = _Methods("method", package="pamc.models.methods")


def import_method(name: str) -> None:
    """Import a method of another package by a name such as "package.module:Name", unless it is already imported.

    `Name` is the object that :func:`register_method` decorates. Loading a model never imports a method, because
    importing a module runs its code.
    """
    module_name, separator, attribute = name.partition(":")
    if not separator or name in METHODS:
        return
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"cannot import the module of method {name!r}: {error}") from error
    build = getattr(module, attribute, None)
    found = [METHODS[other] for other in METHODS if METHODS[other].build is build]
    if not found:
        raise ConfigError(
            f"method {name!r} is not registered: {attribute} must be decorated by pamc.models.method.register_method"
        )
    METHODS.register(name)(replace(found[0], name=name))


def register_method(name: str, **facts: Any) -> Callable[[BuildT], BuildT]:
    """Return a decorator that registers a method under a name; it decorates a function that builds the method's model.

    The class of the model can be decorated itself, if its only argument is a :class:`BuildInput`. `facts` are the other
    fields of :class:`Method`.
    """

    def add(build: BuildT) -> BuildT:
        METHODS.register(name)(Method(name=name, build=build, **facts))
        return build

    return add
