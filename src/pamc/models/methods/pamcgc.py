"""PamCGC: an MLP encoder and cluster centers trained on Eq 12; and the base class it shares with SCGC."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pamc.config import FitConfig
from pamc.declarations import Number, setting
from pamc.errors import ConfigError
from pamc.graph.positives import PairShard, PositivePairs
from pamc.losses.clustering import kl_loss, log_soft_assignment, log_target_distribution
from pamc.losses.pamc import PamCTerms, pamc_terms
from pamc.models.base import LossTerms, Model
from pamc.models.layers import MLP
from pamc.models.loader import SparseBlock
from pamc.models.method import BuildInput, register_method
from pamc.models.views import Views
from pamc.ops.dispatch import NUMBERS, Backend, over_processes, resolve_backend
from pamc.ops.group import SINGLE_PROCESS, ProcessGroup
from pamc.ops.torch.clustering import self_training, soft_self_training

_REFERENCE = (
    "Kulatilleke, Portmann and Chandra (2022), "
    "Efficient block contrastive learning via parameter-free meta-node approximation"
)
_FACTS: dict[str, Any] = {
    "reference": _REFERENCE,
    "uses_graph": True,
    "inductive": True,
    "uses_known_labels": True,
}

# Number of evenly spaced rows over whose pairs the uniformity is computed in each epoch.
_UNIFORMITY_ROWS = 512

_PARTS = ("positive", "proxy", "kl")


class BlockContrastModel(Model):
    r"""An encoder, centers, and the sum of a contrastive and a clustering term.

    .. math:: L = \alpha\,\ell_{contrast}(z; \gamma, \tau) + \beta\,KL(P \,\|\, Q)
              \; [{} + w\,\tfrac{1}{N}\textstyle\sum_i \|x_i - \hat x_i\|^2/d]

    In each epoch q (Eq 9) is computed from z once; p (Eq 10) and the hard labels (argmax of q) are constant within that
    epoch. The term in brackets is present if there is a decoder. `backend` selects the implementation of contrast and
    clustering, as in :func:`pamc.losses.pamc.pamc_loss`.

    In a process group, each process has a model with the pairs of its rows. Its objective takes the embedding of these
    rows, and its value is that of all rows.

    Parameters
    ----------
    encoder
        Module that maps rows (n, d) to z (n, n_dims), each row independently.
    centers
        (C, n_dims) initial centers μ.
    pairs
        Positive pairs γ of all rows, or of those of this process.
    config
        Settings with weights and options: `alpha`, `beta`, `eta`, `kl_reduction` and those of the contrast.
    decoder
        Module that maps z back to rows; None omits the reconstruction.
    group
        Processes that share the rows.
    """

    backend: str | Backend = "auto"
    sample_weight: Tensor | None = None

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
        """Return the contrastive term of z (N, n_dims), from labels (N,), or from log q (N, C) for soft meta-nodes."""

    def objective(self, z: Tensor) -> LossTerms:
        """Return α·contrast + β·KL for z (N, n_dims)."""
        config = self.config
        kl, labels, log_q = self._assign(z)
        kl = kl / self.total_weight if config.kl_reduction == "mean" else kl
        contrast = self.contrast(z, labels, log_q)
        return LossTerms(
            total=config.alpha * contrast.total + config.beta * kl,
            parts={**contrast.parts, "kl": kl},
            labels=labels,
            monitors=contrast.monitors,
        )

    @property
    def total_weight(self) -> Tensor | int:
        """Sum of the weights of all rows; N without weights."""
        n_nodes: int = self.pairs.n_nodes
        return n_nodes if self.sample_weight is None else self.sample_weight.sum()

    def _assign(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return KL summed over rows, labels (N,), and log q (N, C) if the meta-nodes are soft, else None."""
        eta, how = self.config.eta, getattr(self.config, "meta_assignment", "hard")
        weight = self.sample_weight
        if how == "hard" and weight is not None:
            return *self_training(z, self.centers, eta=eta, sample_weight=weight), None
        if how == "hard":
            return *resolve_backend(self.backend, z.device).self_training(z, self.centers, eta=eta), None
        if how == "soft":
            # The gradient also flows through q into the meta-nodes.
            log_q = log_soft_assignment(z, self.centers, eta=eta)
            log_p = log_target_distribution(log_q.detach(), sample_weight=weight)
            kl = kl_loss(log_p, log_q, reduction="sum", sample_weight=weight)
        else:
            kl, log_q = soft_self_training(z, self.centers, eta=eta, sample_weight=weight)
        return kl, log_q.detach().argmax(dim=1), log_q


class PamCGCModel(BlockContrastModel):
    r"""The model of the paper's Eq 12.

    .. math:: L = \alpha\,\ell_{Pcontrast}(z; \gamma, \tau) + \beta\,KL(P \,\|\, Q)

    With ``meta_assignment="soft"`` the gradient also flows through q into the meta-nodes (Eq 8). Departures from the
    paper: known labels replace the argmax in the meta-nodes, and the reconstruction of a decoder is added as a third
    term; both are optional.

    Parameters
    ----------
    encoder, centers, pairs, config, decoder, group
        As in :class:`~pamc.models.methods.pamcgc.BlockContrastModel`.
    known_labels
        (N,) known cluster of each row, −1 if it is unknown; None if no cluster is known.
    views
        Random copies of the rows. A row and its copy are a positive pair, whose term −τ cos(z, z′) is added to that of
        the other pairs; every epoch draws other copies.
    sample_weight
        (N,) weights: a row of weight w counts as w rows. None counts every row once.
    """

    view_step: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        centers: Tensor,
        pairs: PositivePairs | PairShard,
        config: FitConfig,
        *,
        decoder: MLP | None = None,
        known_labels: Tensor | None = None,
        group: ProcessGroup = SINGLE_PROCESS,
        views: Views | None = None,
        sample_weight: Tensor | None = None,
    ) -> None:
        super().__init__(encoder, centers, pairs, config, decoder=decoder, group=group)
        self.known_labels = known_labels
        self.sample_weight = sample_weight
        self.views = views
        if views is not None:
            # A fit has replaced None by a number.
            self.row_weight, self.row_term = float(config.alpha or 0.0), "views"
            # Part of the state of training, so that a resumed fit draws the same copies.
            self.register_buffer("view_step", torch.zeros((), dtype=torch.int64))
            self._n_seen = 0
        # A user-defined encoder may not be capturable.
        self.capturable = isinstance(encoder, MLP) and group.size == 1 and views is None

    def objective(self, z: Tensor) -> LossTerms:
        """Return α·contrast + β·KL for z (N, n_dims).

        If a backend computes it as a whole, the gradient flows through the total only.
        """
        config, backend = self.config, resolve_backend(self.backend, z.device)
        if self.views is not None:
            self.view_step += 1
            self._n_seen = 0
        fused = None
        if backend.objective is not None and config.meta_assignment == "hard" and self.sample_weight is None:
            known, watched = self.known_labels, watched_rows(len(z))
            fused = backend.objective(z, self.centers, self.pairs, config, watched=watched, known_labels=known)
        if fused is None:
            return super().objective(z)
        named = dict(zip(NUMBERS, fused.numbers.unbind(), strict=True))
        return LossTerms(
            total=fused.total,
            parts={name: named[name] for name in _PARTS},
            labels=fused.labels,
            monitors={name: value for name, value in named.items() if name not in ("loss", *_PARTS)},
            numbers=fused.numbers,
        )

    def row_loss(self, z: Tensor, block: Tensor | SparseBlock) -> Tensor | None:
        """Return the sum of −τ cos(z, z′) over rows and their copies, or None without views; blocks come in order.

        In a process group, the sum is over the rows of this process.
        """
        if self.views is None or isinstance(block, SparseBlock):
            return super().row_loss(z, block)
        first = self.views.first_row + self._n_seen
        rows = torch.arange(first, first + len(z), device=z.device)
        self._n_seen += len(z)
        copies = self.encoder(self.views.of(block[: len(z)], rows, self.view_step))
        similarity: Tensor = nn.functional.cosine_similarity(z, copies, dim=1).sum()
        loss: Tensor = -self.config.tau * similarity
        return loss

    def contrast(self, z: Tensor, labels: Tensor, log_q: Tensor | None) -> LossTerms:
        """Return Eq 3 for z (N, n_dims). O(E·n_dims + N·C·n_dims) time, O(E + N·(C + n_dims)) memory."""
        config = self.config
        terms = pamc_terms(
            z,
            self.pairs,
            self._assignment(labels, log_q),
            tau=config.tau,
            n_clusters=len(self.centers),
            proxy=config.proxy,
            self_edges=config.self_edges,
            backend=self.backend,
            trusted=True,
            sample_weight=self.sample_weight,
        )
        return LossTerms(
            total=terms.total,
            parts={"positive": terms.positive, "proxy": terms.proxy},
            monitors=self._monitors(z.detach(), terms),
        )

    def _assignment(self, labels: Tensor, log_q: Tensor | None) -> Tensor:
        """Return the labels (N,) or, for soft meta-nodes, q (N, C), with known labels in place of computed ones."""
        known = self.known_labels
        if log_q is None:
            return labels if known is None else torch.where(known >= 0, known, labels)
        q = log_q.exp() if self.config.meta_assignment == "soft" else log_q.detach().exp()
        if known is None:
            return q
        certain = nn.functional.one_hot(known.clamp(min=0), q.shape[1]).to(q.dtype)
        return torch.where((known >= 0)[:, None], certain, q)

    @torch.no_grad()
    def _monitors(self, z: Tensor, contrast: PamCTerms) -> dict[str, Tensor]:
        """Return alignment and uniformity, the mean distance of centers to cluster means, and the nonempty clusters."""
        # Eq 8 divides by N; divided by its mass, a meta-node is its cluster's mean, which is comparable to a center.
        present = contrast.mass > 0
        means = contrast.meta_nodes * (self.total_weight / torch.where(present, contrast.mass, 1.0))[:, None]
        distances = torch.where(present, (self.centers.detach() - means).norm(dim=1), 0.0)
        step, n_rows = watched_rows(self.pairs.n_nodes)
        return {
            "alignment": contrast.alignment,
            "uniformity": resolve_backend(self.backend, z.device).uniformity(z, step=step, n_rows=n_rows),
            "center_distance": distances.sum() / present.sum(),
            "n_nonempty": present.sum(),
        }


def watched_rows(n_nodes: int) -> tuple[int, int]:
    """Return the sample of rows for the uniformity: its stride and its size."""
    step = max(1, n_nodes // _UNIFORMITY_ROWS)
    return step, min(_UNIFORMITY_ROWS, -(-n_nodes // step))


@dataclass(frozen=True, kw_only=True)
class PamCGCAutoencoderConfig(FitConfig):
    """Settings of PamCGC with an autoencoder."""

    init: str = "autoencoder"
    reconstruction_weight: float = setting(1.0, Number(), "Weight of the mean squared error of the reconstruction.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.init != "autoencoder":
            raise ConfigError(f"pamcgc+ae needs a decoder: init must be 'autoencoder', got {self.init!r}")


@register_method("pamcgc+ae", title="PamCGC + AE", config=PamCGCAutoencoderConfig, **_FACTS)
@register_method("pamcgc", title="PamCGC", config=FitConfig, **_FACTS)
def build_pamcgc(inputs: BuildInput) -> PamCGCModel:
    """Return PamCGC with its initialized encoder, and with the decoder for "pamcgc+ae"."""
    reconstructs = isinstance(inputs.config, PamCGCAutoencoderConfig)
    return PamCGCModel(
        inputs.encoder,
        inputs.centers,
        inputs.pairs,
        inputs.config,
        decoder=inputs.required_decoder() if reconstructs else None,
        known_labels=inputs.known_labels,
        views=inputs.views,
        sample_weight=inputs.sample_weight,
    )
