"""Small inputs with everything that goes wrong in practice, as edge lists and as dense γ."""

from typing import NamedTuple

import torch
from torch import Tensor

from pamc.graph.positives import PositivePairs


class Case(NamedTuple):
    z: Tensor
    edges: Tensor
    weight: Tensor
    gamma: Tensor
    labels: Tensor
    soft: Tensor
    n_clusters: int

    @property
    def pairs(self):
        return PositivePairs.from_edges(self.edges, self.weight, n_nodes=len(self.z), dtype=self.z.dtype)


def spelled_out(even):
    """Return even pairs with one weight per entry."""
    row, indices = even.log_row_weight, even.indices.long()
    return PositivePairs(even.indptr, indices, row[even.rows], row[indices], even.log_self_weight)


def awkward_case(n_nodes=41, n_dims=10, n_clusters=7, *, dtype=torch.float64, seed=0):
    """Return an input with a zero row (1), an isolated node (0), a node with a self-edge alone (2), one with edges of
    weight 0 alone (3), doubled edges, self-edges, edges in one direction, and, from three clusters on, an empty cluster
    in the middle and an empty last one."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n_nodes, n_dims, generator=generator, dtype=torch.float64)
    z[1] = 0
    edges = torch.randint(4, n_nodes, (2, 4 * n_nodes), generator=generator)
    edges[:, 0] = torch.tensor([5, 5])
    edges[:, 1:3] = edges[:, 3:5]
    edges[:, 5] = edges[:, 6].flip(0)
    edges[:, 7] = torch.tensor([1, 4])
    edges[:, 8] = torch.tensor([2, 2])
    edges[:, 9] = torch.tensor([3, 6])
    weight = torch.rand(edges.shape[1], generator=generator, dtype=torch.float64) + 0.1
    weight[9:12] = 0
    z, weight = z.to(dtype), weight.to(dtype)
    gamma = torch.zeros(n_nodes, n_nodes, dtype=torch.float64)
    gamma.index_put_(tuple(edges), weight.double(), accumulate=True)
    labels = torch.randint(n_clusters, (n_nodes,), generator=generator)
    logits = torch.randn(n_nodes, n_clusters, generator=generator, dtype=torch.float64)
    if n_clusters > 2:
        empty = torch.tensor([n_clusters // 2, n_clusters - 1])
        labels[torch.isin(labels, empty)] = 0
        logits[:, empty] = -torch.inf
    return Case(z, edges, weight, gamma, labels, logits.softmax(dim=1).to(dtype), n_clusters)
