"""DAEGC: graph attention weighted by proximity, trained to reconstruct edges and to sharpen its clusters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pamc.config import AssigningConfig, GraphConfig, KernelConfig, PretrainConfig
from pamc.declarations import Count, Number, setting
from pamc.graph.adjacency import Adjacency, row_normalize, with_self_loops
from pamc.graph.influence import sums_of_powers
from pamc.losses.clustering import kl_loss, log_soft_assignment, log_target_distribution
from pamc.losses.reconstruction import edge_reconstruction_loss
from pamc.models.base import GraphModel, LossTerms, Reading
from pamc.models.layers import Linear
from pamc.models.loader import SparseBlock
from pamc.models.method import BuildInput, register_method
from pamc.ops.torch.rows import csr_tensor, ordered_sum, row_product, unit_rows
from pamc.runtime import generator

# Negative slope of the leaky ReLU in the attention coefficients.
_SLOPE = 0.2

# Factor of Glorot's bound, as in the program of Velickovic et al. (2018), which DAEGC reused.
_GAIN = 1.414


@dataclass(frozen=True, kw_only=True)
class DAEGCConfig(KernelConfig, PretrainConfig, GraphConfig, AssigningConfig):
    """Settings of DAEGC, which is pretrained on the reconstruction only."""

    n_hidden: int = setting(256, Count(), "Size of the first attention layer.")
    n_dims: int = setting(16, Count(), "Size of the embedding z, the output of the second attention layer.")
    n_orders: int = setting(2, Count(), "Length t of the longest walks that the proximity M counts.")
    kl_weight: float = setting(10.0, Number(), "Weight γ of the clustering term KL(P‖Q).")
    weight_decay: float = setting(
        5e-3, Number(), "Weight decay λ, for a penalty λ/2·‖θ‖² on all weights and centers θ."
    )
    pretrain_lr: float = 5e-3
    lr: float = 1e-4


@dataclass(frozen=True, eq=False)
class Proximity:
    """M on a symmetric pattern that includes the diagonal, so that no row is empty.

    Parameters
    ----------
    matrix
        (N, N) CSR tensor of the E values M_ij.
    rows
        (E,) row i of each entry.
    transposed
        (E,) position of the entry (j, i) for the entry (i, j). With it, sums over columns are computed as sums over
        rows, without atomics.
    """

    matrix: Tensor
    rows: Tensor
    transposed: Tensor

    def reduce(self, values: Tensor, how: str) -> Tensor:
        """Return the (N,) "sum" or "max" of the values (E,) of each row."""
        return torch.segment_reduce(values, how, offsets=self.matrix.crow_indices(), axis=0, unsafe=True)

    def with_values(self, values: Tensor) -> Tensor:
        """Return an (N, N) CSR tensor of the same pattern with values (E,)."""
        matrix = self.matrix.detach().clone()
        matrix.values().copy_(values)
        return matrix


def walk_sums(step: Adjacency, pattern: Adjacency, *, n_steps: int) -> Adjacency:
    """Return Σ_{r=1..n_steps} S^r at the entries of a pattern, for an (N, N) one-step matrix S.

    Powers are computed for blocks of rows and restricted to the pattern immediately, so that memory is that of the
    pattern and one block. O(number of walks of n_steps steps) time. Entries that no walk reaches are not stored.

    Examples
    --------
    >>> path = sp.csr_matrix([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    >>> walk_sums(path, sp.eye(3, format="csr"), n_steps=2).toarray()
    array([[1., 0., 0.],
           [0., 2., 0.],
           [0., 0., 1.]])
    """
    mask = sp.csr_matrix((np.ones(pattern.nnz), pattern.indices, pattern.indptr), shape=pattern.shape)
    blocks = (
        block.multiply(mask[first_row : first_row + block.shape[0]])
        for first_row, block in sums_of_powers(step, n_steps)
    )
    return sp.csr_matrix(sp.vstack(list(blocks), format="csr"))


def proximity(adjacency: Adjacency, *, n_orders: int, device: torch.device, dtype: torch.dtype) -> Proximity:
    r"""Return the proximity M of DAEGC between each node, its neighbors and itself.

    .. math:: M = \frac{1}{t}(B + B^2 + \dots + B^t)

    B is the row-normalized adjacency with self-loops, and M is restricted to the edges and the diagonal: a node attends
    to its neighbors and itself. As in a public program of the method; in the paper, attention is over every j with
    M_ij > 0 and B has no self-loops, so that a node without edges attends to no node. O(E) memory.
    """
    steps = row_normalize(with_self_loops(adjacency))
    matrix = walk_sums(steps, steps, n_steps=n_orders) / n_orders
    matrix.sort_indices()
    position = sp.csr_matrix((np.arange(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape).T.tocsr()
    position.sort_indices()
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return Proximity(
        csr_tensor(matrix, device=device, dtype=dtype),
        *(torch.as_tensor(index, device=device, dtype=torch.int64) for index in (rows, position.data)),
    )


class _Attention(torch.autograd.Function):
    """Σ_j α_ij h_j, where α is the row-wise softmax of the attention coefficients.

    With the gradient g of the result o: ∂α_ij = g_i·h_j at the entries of the pattern, ∂c_ij = α_ij(∂α_ij − g_i·o_i),
    and every sum over columns is a sum over rows of the transposed entries. O(E·d) time, O(E + N·d) memory.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, node_score: Tensor, neighbor_score: Tensor, near: Proximity) -> Tensor:
        h = h.contiguous()
        weight = near.matrix.values()
        score = (node_score[near.rows] + neighbor_score[near.matrix.col_indices()]) * weight
        derivative = torch.where(score > 0, weight, _SLOPE * weight)
        score = torch.where(score > 0, score, _SLOPE * score)
        share = (score - near.reduce(score, "max")[near.rows]).exp()
        share /= near.reduce(share, "sum")[near.rows]
        mean: Tensor = near.with_values(share) @ h
        ctx.save_for_backward(h, share, derivative, mean)
        ctx.near = near
        return mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        h, share, derivative, mean = ctx.saved_tensors
        near, grad = ctx.near, grad.contiguous()
        agreement = near.with_values(torch.zeros_like(share))
        torch.sparse.sampled_addmm(agreement, grad, h.T, beta=0.0, out=agreement)
        centered = agreement.values() - (grad * mean).sum(dim=1)[near.rows]
        grad_score = share * centered * derivative
        grad_h = near.with_values(share[near.transposed]) @ grad
        return grad_h, near.reduce(grad_score, "sum"), near.reduce(grad_score[near.transposed], "sum"), None


class AttentionLayer(nn.Module):
    r"""One layer of graph attention weighted by proximity; sparse x stays sparse.

    .. math:: z_i = \mathrm{elu}\Big(\sum_j \alpha_{ij} W x_j\Big), \quad
              \alpha_{ij} = \mathrm{softmax}_j\,\mathrm{leaky}\big(M_{ij}(a_s^\top W x_i + a_n^\top W x_j)\big)

    leaky is the leaky ReLU with negative slope 0.2. The generator draws the initial weights, uniform on
    ±1.414·√(6/(fan in + fan out)).
    """

    def __init__(self, n_in: int, n_out: int, *, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = Linear(n_in, n_out, generator=generator, dtype=dtype)
        self.attention = nn.Parameter(torch.empty(n_out, 2, dtype=dtype))
        self.linear.redraw_without_bias(_GAIN * math.sqrt(6 / (n_in + n_out)), generator)
        bound = _GAIN * math.sqrt(6 / (n_out + 1))
        nn.init.uniform_(self.attention, -bound, bound, generator=generator)

    def forward(self, x: Tensor | SparseBlock, near: Proximity) -> Tensor:
        """Return (N, n_out) for x (N, n_in). O(E·n_out + N·n_in·n_out) time, O(E + N·n_out) memory."""
        h = self.linear(x)
        # Columns: a_s for the node itself, a_n for its neighbors.
        node_score, neighbor_score = row_product(h, self.attention).unbind(dim=1)
        mean: Tensor = _Attention.apply(h, node_score, neighbor_score, near)  # type: ignore[no-untyped-call]
        # elu is written out, because the rounding of torch's gradient of it depends on the number of threads.
        return torch.where(mean > 0, mean, mean.clamp(max=0).expm1())


class AttentionPretraining(GraphModel):
    r"""Two attention layers trained to reconstruct the edges: the pretraining of DAEGC, without clusters.

    .. math:: L = L_r(\sigma(zz^\top), A + I) + \frac{\lambda}{2}\|\theta\|^2

    Departures from the paper: the rows of z have length 1, the target includes the diagonal and λ > 0, all as in a
    public program of the method (GitHub Tiger101010/DAEGC); and all edges together have the same weight as all other
    pairs together, see :func:`pamc.losses.reconstruction.edge_reconstruction_loss`.

    Parameters
    ----------
    first, second
        Attention layers.
    near
        Proximity M, whose pattern is A + I.
    config
        Settings with the weights of the terms.
    """

    def __init__(self, first: AttentionLayer, second: AttentionLayer, near: Proximity, config: DAEGCConfig) -> None:
        super().__init__()
        self.first = first
        self.second = second
        self.near = near
        self.config = config

    def embed(self, x: Tensor | SparseBlock) -> Tensor:
        """Return z (N, n_dims) with rows of length 1."""
        return unit_rows(self.second(self.first(x, self.near), self.near))

    def shared_terms(self, z: Tensor) -> LossTerms:
        """Return the reconstruction and the penalty. O(N²·n_dims) time, O(N·n_dims + E) memory."""
        reconstruction = edge_reconstruction_loss(z, self.near.matrix)
        # Its gradient λθ equals Adam's weight decay.
        penalty = torch.stack([ordered_sum(p.square()) for p in self.parameters() if p.requires_grad]).sum() / 2
        total = reconstruction + self.config.weight_decay * penalty
        return LossTerms(total=total, parts={"reconstruction": reconstruction, "penalty": penalty})

    def loss(self, x: Tensor | SparseBlock) -> LossTerms:
        """Return the loss of all rows. O(N²·n_dims + E·n_hidden + N·d·n_hidden) time, O(E + N·n_hidden) memory."""
        return self.shared_terms(self.embed(x))

    def read(self, x: Tensor | SparseBlock) -> Reading:
        """Return z (N, n_dims)."""
        return Reading(self.embed(x))


class DAEGCModel(AttentionPretraining):
    r"""The deep attentional embedding of Wang et al. (2019), self-trained towards confident clusters.

    .. math:: L = L_r(\sigma(zz^\top), A + I) + \gamma\,KL(P\,\|\,Q) + \frac{\lambda}{2}\|\theta\|^2

    q is the Student-t assignment and p its target, recomputed in each epoch. Departures from the paper: those of
    :class:`AttentionPretraining` and :func:`proximity`, and KL is divided by N, as in the same program.

    Parameters
    ----------
    pretrained
        Pretrained model, whose layers are reused.
    centers
        (C, n_dims) K-means centers of z.
    """

    def __init__(self, pretrained: AttentionPretraining, centers: Tensor) -> None:
        super().__init__(pretrained.first, pretrained.second, pretrained.near, pretrained.config)
        self.centers: Tensor = nn.Parameter(centers.detach().clone())

    def loss(self, x: Tensor | SparseBlock) -> LossTerms:
        """Return the loss of all rows. O(N²·n_dims + E·n_hidden + N·d·n_hidden) time, O(E + N·n_hidden) memory."""
        z = self.embed(x)
        log_q = log_soft_assignment(z, self.centers, eta=self.config.eta)
        kl = kl_loss(log_target_distribution(log_q.detach()), log_q)
        shared = self.shared_terms(z)
        return LossTerms(
            total=shared.total + self.config.kl_weight * kl,
            parts={**shared.parts, "kl": kl},
            labels=log_q.detach().argmax(dim=1),
        )

    def read(self, x: Tensor | SparseBlock) -> Reading:
        """Return z (N, n_dims) and q (N, C)."""
        z = self.embed(x)
        return Reading(z, log_soft_assignment(z, self.centers, eta=self.config.eta).exp())


def build_daegc_pretraining(inputs: BuildInput) -> AttentionPretraining:
    """Return the untrained layers with the reconstruction loss."""
    config: DAEGCConfig = inputs.config
    weights = generator(inputs.seed, "weights")
    sizes = ((inputs.n_features, config.n_hidden), (config.n_hidden, config.n_dims))
    first, second = (AttentionLayer(*size, generator=weights, dtype=inputs.dtype) for size in sizes)
    near = proximity(inputs.adjacency, n_orders=config.n_orders, device=inputs.device, dtype=inputs.dtype)
    return AttentionPretraining(first, second, near, config)


@register_method(
    "daegc",
    title="DAEGC",
    reference="Wang et al. (2019), IJCAI",
    config=DAEGCConfig,
    uses_graph=True,
    pretrain=build_daegc_pretraining,
)
def build_daegc(inputs: BuildInput) -> DAEGCModel:
    """Return DAEGC with its pretrained layers and the K-means centers of their embedding."""
    return DAEGCModel(inputs.pretrained, inputs.centers)
