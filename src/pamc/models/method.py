"""What makes a method: its settings, what it needs, and how its model is built. One registry of all methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pamc.config import MethodConfig
from pamc.errors import ModelFileError
from pamc.models.base import GraphModel, Model
from pamc.models.layers import MLP
from pamc.registry import Registry

__all__ = ["METHODS", "AnyModel", "BuildInput", "Method", "register_method"]

AnyModel: TypeAlias = Model | GraphModel


@dataclass(frozen=True, eq=False, kw_only=True)
class BuildInput:
    """What a method may use to build its model.

    Parameters
    ----------
    n_nodes, n_features
        N and d of the prepared rows.
    config, seed
        Settings of the method's own class, and the source of randomness (`pamc.runtime.generator(seed, purpose)`).
    device, dtype
        Of all tensors.
    adjacency
        (N, N) symmetric weights without diagonal; None for a method without a graph.
    pairs
        Positive pairs γ on the device, for methods whose settings have `n_hops`.
    encoder, decoder
        Of the init, on the device: the decoder of an autoencoder, None after another init.
    pretrained
        The model of the method's own pre-training, trained.
    centers
        (C, n_dims) K-means centers of the embedding after init and pre-training; None without either.
    known_labels
        (N,) cluster of each row whose cluster is known, −1 elsewhere; None for none known.
    """

    n_nodes: int
    n_features: int
    config: Any
    seed: int
    device: torch.device
    dtype: torch.dtype
    # What a method has asked for is there when its model is built; Any spares each method a check for None.
    adjacency: Any = None
    pairs: Any = None
    encoder: Any = None
    decoder: Any = None
    pretrained: Any = None
    centers: Any = None
    known_labels: Tensor | None = None

    def required_decoder(self) -> MLP:
        """Return the decoder of the init, or say that the pre-trained weights lack one."""
        if self.decoder is None:
            raise ModelFileError("the pre-trained weights have no decoder (dec_1 …), which this method needs")
        decoder: MLP = self.decoder
        return decoder


Build: TypeAlias = Callable[[BuildInput], AnyModel]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A clustering method.

    Parameters
    ----------
    name, title, reference
        Its name in the registry, in tables, and its paper.
    config
        Class of its settings; the defaults are one configuration for all data.
    build
        Returns the model to be trained.
    uses_graph
        Whether it needs a graph; without one given, a kNN graph is built.
    uses_features
        Whether it looks at the features.
    inductive
        Whether new rows can be assigned without a graph: its model is a :class:`pamc.models.base.Model`.
    init
        How its encoder gets its first weights, unless its settings have a `init`; None for no init.
    pretrain
        Returns a model that is trained first, for `pretrain_epochs` epochs at `pretrain_lr`.
    uses_known_labels
        Whether clusters that are known of some rows have a part in its loss.
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
        """Return the name of the init that the settings ask for."""
        init: str | None = getattr(config, "init", self.init)
        return init


METHODS: Registry[Method] = Registry("method", package="pamc.models.methods")


def register_method(name: str, **facts: Any) -> Callable[[Build], Build]:
    """Return a decorator that files a method under a name; what it decorates builds the method's model.

    `facts` are the other fields of :class:`Method`.
    """

    def add(build: Build) -> Build:
        METHODS.register(name)(Method(name=name, build=build, **facts))
        return build

    return add
