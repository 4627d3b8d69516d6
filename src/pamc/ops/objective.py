"""The whole of Eq 12 as one operation: what goes into it and what comes out."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["NUMBERS", "ObjectiveSettings", "ObjectiveValues"]

# What :attr:`ObjectiveValues.numbers` holds, in its order.
NUMBERS = (
    "loss",
    "positive",
    "proxy",
    "kl",
    "alignment",
    "uniformity",
    "center_distance",
    "n_nonempty",
)


@dataclass(frozen=True)
class ObjectiveSettings:
    """The constants of Eq 12, named as :class:`pamc.config.FitConfig` names them.

    Parameters
    ----------
    alpha, beta
        Weights of the contrastive and of the clustering term.
    tau, eta
        τ of Eq 3 and η of Eq 9.
    proxy, self_edges, kl_reduction
        "eq2" or "eq6"; "drop" or "keep"; "mean" or "sum".
    step, n_rows
        Uniformity is that of `n_rows` rows, every `step`-th.
    """

    alpha: float
    beta: float
    tau: float
    eta: float
    proxy: str
    self_edges: str
    kl_reduction: str
    step: int
    n_rows: int


@dataclass(frozen=True, eq=False)
class ObjectiveValues:
    """Eq 12 and what is watched of it.

    Parameters
    ----------
    total
        () α·contrast + β·KL, with a gradient.
    numbers
        (8,) what :data:`NUMBERS` names, without a gradient.
    labels
        (N,) int64, the argmax of q.
    """

    total: Tensor
    numbers: Tensor
    labels: Tensor
