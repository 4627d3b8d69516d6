"""Contrast and clustering on one embedding: what PamCGC and SCGC share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor, nn

from pamc.graph.positives import PairShard, PositivePairs
from pamc.losses.clustering import kl_loss, log_soft_assignment, log_target_distribution
from pamc.models.base import LossTerms, Model
from pamc.models.layers import MLP
from pamc.ops.dispatch import Backend, over_processes, resolve_backend
from pamc.ops.group import SINGLE_PROCESS, ProcessGroup
from pamc.ops.torch.clustering import soft_self_training

__all__ = ["BlockContrastModel"]


class BlockContrastModel(Model):
    r"""An encoder, centers, and the sum of a contrastive and a clustering term.

    .. math:: L = \alpha\,\ell_{contrast}(z; \gamma, \tau) + \beta\,KL(P \,\|\, Q)
              \; [{} + w\,\tfrac{1}{N}\textstyle\sum_i \|x_i - \hat x_i\|^2/d]

    In each epoch q (Eq 9) is computed from z once; p (Eq 10) and the hard labels (argmax of q) are constants of that
    epoch. The term in brackets exists where a decoder is given. `backend` names what computes contrast and clustering,
    as in :func:`pamc.losses.pamc.pamc_loss`.

    Of several processes each has a model with the pairs of its own rows. Its objective takes the embedding of these
    rows, and its value is that of all rows.

    Parameters
    ----------
    encoder
        Maps rows (n, d) to z (n, n_dims), each row alone.
    centers
        (C, n_dims) starting centers μ.
    pairs
        Positive pairs γ of all rows, or of those of this process.
    config
        Weights and options: `alpha`, `beta`, `eta`, `kl_reduction` and those of the contrast.
    decoder
        Maps z back to rows; None leaves reconstruction out.
    group
        The processes that share the rows.
    """

    backend: str | Backend = "auto"

    def __init__(
        self,
        encoder: nn.Module,
        centers: Tensor,
        pairs: PositivePairs | PairShard,
        config: Any,
        *,
        decoder: MLP | None = None,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        super().__init__()
        if isinstance(pairs, PairShard):
            self.backend = over_processes(group, pairs)
        self.group = group
        self.encoder = encoder
        self.centers: nn.Parameter = nn.Parameter(centers.detach().clone())
        self.pairs: Any = pairs
        self.config = config
        self.decoder = decoder
        self.row_weight = 0.0 if decoder is None else config.reconstruction_weight

    @abstractmethod
    def contrast(self, z: Tensor, labels: Tensor, log_q: Tensor | None) -> LossTerms:
        """Return the contrastive term of z (N, n_dims), given labels (N,), and log q (N, C) where it is asked for."""

    def objective(self, z: Tensor) -> LossTerms:
        """Return α·contrast + β·KL for z (N, n_dims)."""
        config = self.config
        kl, labels, log_q = self._assign(z)
        kl = kl / self.pairs.n_nodes if config.kl_reduction == "mean" else kl
        contrast = self.contrast(z, labels, log_q)
        return LossTerms(
            total=config.alpha * contrast.total + config.beta * kl,
            parts={**contrast.parts, "kl": kl},
            labels=labels,
            monitors=contrast.monitors,
        )

    def _assign(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return KL summed over rows, labels (N,), and, where the meta-nodes are soft, log q (N, C)."""
        eta, how = self.config.eta, getattr(self.config, "meta_assignment", "hard")
        if how == "hard":
            return *resolve_backend(self.backend, z.device).self_training(z, self.centers, eta=eta), None
        if how == "soft":
            # The gradient flows through q into the meta-nodes too.
            log_q = log_soft_assignment(z, self.centers, eta=eta)
            kl = kl_loss(log_target_distribution(log_q.detach()), log_q, reduction="sum")
        else:
            kl, log_q = soft_self_training(z, self.centers, eta=eta)
        return kl, log_q.detach().argmax(dim=1), log_q
