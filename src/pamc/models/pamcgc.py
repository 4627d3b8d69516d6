"""PamCGC: an MLP encoder and cluster centers trained on Eq 12."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pamc.config import FitConfig
from pamc.graph.pairs import PositivePairs
from pamc.losses.clustering import kl_loss, log_soft_assignment, log_target_distribution
from pamc.losses.pamc import PamCTerms, pamc_terms
from pamc.models.base import LossTerms, Model
from pamc.ops.scores import uniformity
from pamc.ops.torch_ops import unit_rows

__all__ = ["PamCGCModel"]

# Uniformity is over all pairs; each epoch looks at the pairs of this many rows, spread evenly over the table.
_UNIFORMITY_ROWS = 512


class PamCGCModel(Model):
    r"""The model of the paper's Eq 12.

    .. math:: L = \alpha\,\ell_{Pcontrast}(z; \gamma, \tau) + \beta\,KL(P \,\|\, Q)

    In each epoch q (Eq 9) is computed from z once; p (Eq 10) and the hard labels (argmax of q) are constants of that
    epoch. With ``meta_assignment="soft"`` the gradient also flows through q into the meta-nodes (Eq 8). Departure from
    the paper: known labels, where given, replace the argmax in the meta-nodes.

    Parameters
    ----------
    encoder
        Maps rows (n, d) to z (n, n_dims), each row alone.
    centers
        (C, n_dims) starting centers μ.
    pairs
        Positive pairs γ over the N rows.
    config
        Weights and options.
    known_labels
        (N,) cluster of each row whose cluster is known, −1 elsewhere; None for none known.
    """

    def __init__(
        self,
        encoder: nn.Module,
        centers: Tensor,
        pairs: PositivePairs,
        config: FitConfig,
        *,
        known_labels: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.centers = nn.Parameter(centers.detach().clone())
        self.pairs = pairs
        self.config = config
        self.known_labels = known_labels

    def objective(self, z: Tensor) -> LossTerms:
        """Return Eq 12 for z (N, n_dims). O(E·n_dims + N·C·n_dims) time, O(E + N·(C + n_dims)) memory."""
        config = self.config
        log_q = log_soft_assignment(z, self.centers, eta=config.eta)
        log_p = log_target_distribution(log_q.detach())
        labels = log_q.detach().argmax(dim=1)
        contrast = pamc_terms(
            z,
            self.pairs,
            self._assignment(log_q, labels),
            tau=config.tau,
            n_clusters=len(self.centers),
            proxy=config.proxy,
            self_edges=config.self_edges,
        )
        kl = kl_loss(log_p, log_q, reduction=config.kl_reduction)
        return LossTerms(
            total=config.alpha * contrast.total + config.beta * kl,
            parts={"positive": contrast.positive, "proxy": contrast.proxy, "kl": kl},
            labels=labels,
            monitors=self._monitors(z.detach(), contrast),
        )

    def _assignment(self, log_q: Tensor, labels: Tensor) -> Tensor:
        known = self.known_labels
        if self.config.meta_assignment == "hard":
            return labels if known is None else torch.where(known >= 0, known, labels)
        q = log_q.exp() if self.config.meta_assignment == "soft" else log_q.detach().exp()
        if known is None:
            return q
        certain = nn.functional.one_hot(known.clamp(min=0), q.shape[1]).to(q.dtype)
        return torch.where((known >= 0)[:, None], certain, q)

    @torch.no_grad()
    def _monitors(self, z: Tensor, contrast: PamCTerms) -> dict[str, Tensor]:
        step = max(1, len(z) // _UNIFORMITY_ROWS)
        # Eq 8 divides by N; over its own mass a meta-node is its cluster's mean, which a center can be compared with.
        present = contrast.mass > 0
        means = contrast.meta_nodes[present] * (len(z) / contrast.mass[present])[:, None]
        distances = (self.centers.detach()[present] - means).norm(dim=1)
        return {
            "alignment": contrast.alignment,
            "uniformity": uniformity(unit_rows(z[::step][:_UNIFORMITY_ROWS])),
            "center_distance": distances.mean(),
            "n_nonempty": present.sum(),
        }
