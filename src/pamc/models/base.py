"""The interface between a method and the engine that trains it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn

from pamc.losses.reconstruction import feature_reconstruction
from pamc.models.loader import SparseBlock
from pamc.ops.group import SINGLE_PROCESS, ProcessGroup


@dataclass(frozen=True)
class LossTerms:
    """The value of a loss: its total, its unweighted parts, and monitored quantities.

    Parameters
    ----------
    total
        Scalar with a gradient.
    parts
        Scalars by name, as defined in the equations.
    labels
        (N,) hard assignment of this epoch; None for methods that assign once, at the end.
    monitors
        Scalars by name that are not differentiated: alignment, uniformity, distances.
    numbers
        (k,) total, parts and monitors, in this order, if they were computed together.
    """

    total: Tensor
    parts: Mapping[str, Tensor]
    labels: Tensor | None = None
    monitors: Mapping[str, Tensor] = field(default_factory=dict)
    numbers: Tensor | None = None


@dataclass(frozen=True)
class Reading:
    """The output of a network of the whole graph.

    Parameters
    ----------
    z
        (N, n_dims) embedding.
    q
        (N, C) cluster probabilities, if the network outputs them; if None, rows are assigned by the centers.
    """

    z: Tensor
    q: Tensor | None = None


class Model(nn.Module, ABC):
    """An encoder of rows and an objective of their embedding.

    The engine relies on three guarantees: `encoder` processes each row independently (no layer mixes rows or draws
    random numbers), `objective` depends on the rows only through z, and neither has side effects. Then the gradient of
    any chunking is the full-batch gradient. Rows are assigned by the `centers` (C, n_dims) or, if they are None, by
    K-means of the final z. `capturable` guarantees that neither encoder nor objective synchronizes with the device, so
    that a GPU can replay an epoch. If several processes form the `group`, each has a share of the rows, and the loss is
    that of all rows.
    """

    draws: ClassVar[bool] = False
    capturable: bool = False
    group: ProcessGroup = SINGLE_PROCESS
    encoder: nn.Module
    decoder: nn.Module | None
    centers: Tensor | None
    row_weight: float = 1.0
    row_term: str = "reconstruction"

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("centers", None)
        self.decoder = None

    @abstractmethod
    def objective(self, z: Tensor) -> LossTerms:
        """Return the loss of the embedding z (N, n_dims) of all rows."""

    def row_loss(self, z: Tensor, block: Tensor | SparseBlock) -> Tensor | None:
        """Return the sum over some rows of a term that also needs their features, such as reconstruction, or None.

        The default is the squared error of the decoder's reconstruction, if there is a decoder. The engine computes it
        after the objective, divides it by N, multiplies it by `row_weight` and calls it `row_term`. z is (n, n_dims);
        the block may have additional zero rows at its end.
        """
        return None if self.decoder is None else feature_reconstruction(self.decoder(z), block)


class GraphModel(nn.Module, ABC):
    """A network that mixes rows along the graph, so that all rows form one chunk.

    `draws` is True if the loss draws random numbers. It is then computed in each epoch with a separate seed of torch's
    global generators, whose state is restored afterwards.
    """

    draws: ClassVar[bool] = False
    group: ClassVar[ProcessGroup] = SINGLE_PROCESS
    centers: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("centers", None)

    @abstractmethod
    def loss(self, x: Tensor | SparseBlock) -> LossTerms:
        """Return the loss of all rows x (N, d)."""

    @abstractmethod
    def read(self, x: Tensor | SparseBlock) -> Reading:
        """Return the embedding and, if the network outputs it, the assignment of all rows x (N, d)."""
