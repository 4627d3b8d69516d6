"""The contract between a method and the engine that trains it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn

__all__ = ["LossTerms", "Model"]


@dataclass(frozen=True)
class LossTerms:
    """A loss: its total, its parts before weighting, and what is only watched.

    Parameters
    ----------
    total
        Scalar with a gradient.
    parts
        Scalars by name, as the equations define them.
    monitors
        Scalars by name that no gradient uses: alignment, uniformity, distances.
    labels
        (N,) hard assignment of this epoch.
    """

    total: Tensor
    parts: Mapping[str, Tensor]
    labels: Tensor
    monitors: Mapping[str, Tensor] = field(default_factory=dict)


class Model(nn.Module, ABC):
    """An encoder of rows and an objective of their embedding.

    The engine relies on three promises: `encoder` treats each row alone (no layer mixes rows, none draws random
    numbers), `objective` reads nothing of the rows but z, and neither has side effects. Under them the gradient of any
    chunking is the full-batch gradient.
    """

    encoder: nn.Module

    @abstractmethod
    def objective(self, z: Tensor) -> LossTerms:
        """Return the loss of the embedding z (N, n_dims) of all rows."""
