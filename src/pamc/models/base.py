"""The contract between a method and the engine that trains it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn

from pamc.losses.reconstruction import feature_reconstruction
from pamc.models.loader import SparseBlock
from pamc.ops.group import SINGLE_PROCESS, ProcessGroup

__all__ = ["GraphModel", "LossTerms", "Model", "Reading"]


@dataclass(frozen=True)
class LossTerms:
    """A loss: its total, its parts before weighting, and what is only watched.

    Parameters
    ----------
    total
        Scalar with a gradient.
    parts
        Scalars by name, as the equations define them.
    labels
        (N,) hard assignment of this epoch; None for methods that assign once, at the end.
    monitors
        Scalars by name that no gradient uses: alignment, uniformity, distances.
    numbers
        (k,) total, parts and monitors, in this order, where they were made together.
    """

    total: Tensor
    parts: Mapping[str, Tensor]
    labels: Tensor | None = None
    monitors: Mapping[str, Tensor] = field(default_factory=dict)
    numbers: Tensor | None = None


@dataclass(frozen=True)
class Reading:
    """What a network of the whole graph says of its rows.

    Parameters
    ----------
    z
        (N, n_dims) embedding.
    q
        (N, C) probability of each cluster, where the network has an output for it; None leaves it to the centers.
    """

    z: Tensor
    q: Tensor | None = None


class Model(nn.Module, ABC):
    """An encoder of rows and an objective of their embedding.

    The engine relies on three promises: `encoder` treats each row alone (no layer mixes rows, none draws random
    numbers), `objective` reads nothing of the rows but z, and neither has side effects. Under them the gradient of any
    chunking is the full-batch gradient. `centers` (C, n_dims) assigns rows; None asks for K-means of z at the end.
    `capturable` promises that neither encoder nor objective waits for the device, so that a GPU can replay an epoch.
    Where several processes form the `group`, each has the rows of its own and the loss is that of all rows.
    """

    draws: ClassVar[bool] = False
    capturable: bool = False
    group: ProcessGroup = SINGLE_PROCESS
    encoder: nn.Module
    decoder: nn.Module | None
    centers: Tensor | None
    row_weight: float = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("centers", None)
        self.decoder = None

    @abstractmethod
    def objective(self, z: Tensor) -> LossTerms:
        """Return the loss of the embedding z (N, n_dims) of all rows."""

    def row_loss(self, z: Tensor, block: Tensor | SparseBlock) -> Tensor | None:
        """Return the sum over some rows of a term that needs their features too, such as reconstruction, or None.

        Here it is the squared error of a decoder's reconstruction, where there is a decoder. The engine divides it by N
        and multiplies it by `row_weight`. z is (n, n_dims); the block may have further zero rows at its end.
        """
        return None if self.decoder is None else feature_reconstruction(self.decoder(z), block)


class GraphModel(nn.Module, ABC):
    """A network that mixes rows along the graph: all rows are one chunk.

    `draws` says that the loss draws random numbers: it is then computed under a seed of its own in each epoch, from
    torch's global generators, whose state is put back.
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
        """Return embedding and, where the network has an output for it, assignment of all rows x (N, d)."""
