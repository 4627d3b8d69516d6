"""Common base of SDCN and AGCN: an autoencoder and a graph network in parallel, trained on one target."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from pamc.config import ContrastConfig, GraphConfig, InfluenceConfig, ProxyConfig
from pamc.declarations import Number, setting
from pamc.errors import ConfigError
from pamc.losses.clustering import kl_loss, log_soft_assignment, log_target_distribution
from pamc.losses.contrastive import contrastive_loss
from pamc.losses.pamc import pamc_terms
from pamc.losses.reconstruction import feature_reconstruction
from pamc.models.base import GraphModel, LossTerms, Reading
from pamc.models.layers import MLP, GraphConvolution, normalized_adjacency
from pamc.models.loader import SparseBlock
from pamc.models.method import BuildInput
from pamc.models.methods.autoencoders import AutoencoderConfig
from pamc.runtime import generator

# Facts common to all methods of this kind, and the source of their contrastive terms.
DUAL: dict[str, Any] = {"uses_graph": True, "init": "autoencoder"}
CONTRAST = "contrast as in Kulatilleke, Portmann and Chandra (2022)"


@dataclass(frozen=True, kw_only=True)
class DualConfig(GraphConfig, AutoencoderConfig):
    """Settings of SDCN and AGCN. `chunk_size` affects the pretraining only: the network processes all rows at once.

    There are more pretraining epochs than in the papers, because rows of length 1 need them to spread z to the width of
    the kernel of Eq 9.
    """

    kl_weight: float = setting(
        0.1, Number(), "Weight λ₁ of KL(P‖Q), the clustering term of the autoencoder's embedding."
    )
    output_weight: float = setting(
        0.01, Number(), "Weight λ₂ of KL(P‖Z), the clustering term of the graph network's output."
    )
    pretrain_epochs: int = 100


@dataclass(frozen=True, kw_only=True)
class ContrastSettings(ContrastConfig, InfluenceConfig):
    """Settings mixin that adds the classic contrastive loss (Eq 1) to a method."""

    n_hops: int = 1


@dataclass(frozen=True, kw_only=True)
class PamCSettings(ProxyConfig, ContrastSettings):
    """Settings mixin that adds the PamC loss (Eq 3) to a method."""


class DualNetwork(GraphModel):
    r"""An autoencoder and a graph network that receives its activations, trained on one target.

    .. math:: L = \tfrac{1}{Nd}\|X - \hat X\|^2 + \lambda_1\,KL(P \,\|\, Q) + \lambda_2\,KL(P \,\|\, Z)
              \; [{} + \alpha\,\ell_{contrast}(z; \gamma, \tau)]

    z is the autoencoder's embedding, q its Student-t assignment (Eq 9), p the target computed from q (Eq 10), constant
    within an epoch, and Z the softmax of the graph network; both divergences are divided by N. Labels are the argmax of
    Z. The term in brackets is present if the settings have it: Eq 1, or Eq 3 with the argmax of q in the meta-nodes. As
    in the papers, with Ã = D^(−½)(A + I)D^(−½); their programs use D⁻¹(A + I). Encoder and decoder are those of a
    pretrained autoencoder and are trained further.
    """

    centers: nn.Parameter

    def __init__(self, inputs: BuildInput) -> None:
        super().__init__()
        if not isinstance(inputs.encoder, MLP) or inputs.decoder is None:
            raise ConfigError(
                "SDCN and AGCN read the hidden layers of an autoencoder and train its decoder: they cannot start from "
                "an encoder of another kind"
            )
        self.encoder, self.decoder = inputs.encoder, inputs.decoder
        self.centers = nn.Parameter(inputs.centers.detach().clone())
        self.normalized = normalized_adjacency(inputs.adjacency, device=inputs.device, dtype=inputs.dtype)
        self.config, self.pairs = inputs.config, inputs.pairs
        weights = generator(inputs.seed, "graph network")
        self.add_graph_network(self.encoder.sizes, generator=weights, dtype=self.centers.dtype)

    @abstractmethod
    def add_graph_network(self, sizes: Sequence[int], *, generator: torch.Generator, dtype: torch.dtype) -> None:
        """Initialize the graph network of an encoder with these layer sizes, the input size first."""

    @abstractmethod
    def output(self, x: Tensor | SparseBlock, hidden: Sequence[Tensor], z: Tensor) -> Tensor:
        """Return the graph network's output (N, C) before its softmax.

        Parameters
        ----------
        x
            (N, d) rows.
        hidden, z
            Hidden activations of the encoder, each (N, n), and its embedding (N, n_dims).
        """

    def loss(self, x: Tensor | SparseBlock) -> LossTerms:
        """Return the loss of all rows x (N, d).

        With w the sum of the layers' widths and W the number of weights: O(N·W + E·w) time, O(N·w + E) memory; Eq 1
        adds O(N²) to both.
        """
        config = self.config
        hidden, z = self.encode(x)
        log_q = log_soft_assignment(z, self.centers, eta=config.eta)
        log_p = log_target_distribution(log_q)
        log_output = torch.log_softmax(self.output(x, hidden, z), dim=1)
        reconstruction = feature_reconstruction(self.decoder(z), x) / len(z)
        kl, output_kl = kl_loss(log_p, log_q), kl_loss(log_p, log_output)
        total = reconstruction + config.kl_weight * kl + config.output_weight * output_kl
        parts = {"reconstruction": reconstruction, "kl": kl, "output_kl": output_kl}
        contrast = self.contrast(z, log_q)
        if contrast is not None:
            total = total + config.alpha * contrast.total
            parts.update(contrast.parts)
        return LossTerms(total=total, parts=parts, labels=log_output.detach().argmax(dim=1))

    def read(self, x: Tensor | SparseBlock) -> Reading:
        """Return z (N, n_dims) of the autoencoder and Z (N, C) of the graph network."""
        hidden, z = self.encode(x)
        return Reading(z=z, q=torch.softmax(self.output(x, hidden, z), dim=1))

    def encode(self, x: Tensor | SparseBlock) -> tuple[list[Tensor], Tensor]:
        """Return the encoder's hidden activations, each (N, n), and its embedding (N, n_dims)."""
        *inner, last = self.encoder.layers
        hidden: list[Tensor] = []
        for layer in inner:
            hidden.append(relu(layer(hidden[-1] if hidden else x)))
        return hidden, last(hidden[-1] if hidden else x)

    def contrast(self, z: Tensor, log_q: Tensor) -> LossTerms | None:
        """Return the contrastive term of z (N, n_dims) and log q (N, C); None for settings without one."""
        config, pairs = self.config, self.pairs
        if pairs is None or not isinstance(config, ContrastSettings):
            return None
        if not isinstance(config, PamCSettings):
            loss = contrastive_loss(z, pairs, tau=config.tau, self_edges=config.self_edges)
            return LossTerms(total=loss, parts={"contrast": loss})
        soft = log_q if config.meta_assignment == "soft" else log_q.detach()
        terms = pamc_terms(
            z,
            pairs,
            soft.argmax(dim=1) if config.meta_assignment == "hard" else soft.exp(),
            tau=config.tau,
            n_clusters=len(self.centers),
            proxy=config.proxy,
            self_edges=config.self_edges,
        )
        return LossTerms(total=terms.total, parts={"positive": terms.positive, "proxy": terms.proxy})


def graph_convolutions(sizes: Sequence[int], *, generator: torch.Generator, dtype: torch.dtype) -> nn.ModuleList:
    """Return a graph convolution from each size to the next."""
    return nn.ModuleList(
        GraphConvolution(n_in, n_out, generator=generator, dtype=dtype) for n_in, n_out in pairwise(sizes)
    )
