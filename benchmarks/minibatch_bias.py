"""How far the mean gradient of mini-batches is from the full-batch gradient: `python -m benchmarks.minibatch_bias`.

The meta-nodes are those of all rows, given to every batch. The proxy's gradient is then exact; the positive term misses
the pairs that leave a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pamc.data.synthetic import block_model
from pamc.losses.pamc import meta_nodes, pamc_terms

__all__ = ["main"]

N_BLOCKS = 10
BATCHES = (40, 10, 4, 2, 1)
TERMS = ("positive", "proxy", "total")


def main(n_nodes: int = 4000, *, n_dims: int = 10, tau: float = 1.0, seed: int = 0) -> list[dict[str, Any]]:
    """Return and print one row per kind and size of batches: the share of pairs kept, the relative gradient errors.

    Parameters
    ----------
    n_nodes
        Rows of the block model, a multiple of 40, so that all batches are equal.
    """
    graph = block_model(n_nodes, N_BLOCKS, random_state=seed)
    edges, labels = torch.from_numpy(graph.edges), torch.from_numpy(graph.labels)
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(N_BLOCKS, n_dims, generator=generator, dtype=torch.float64)
    z = centers[labels] + torch.randn(n_nodes, n_dims, generator=generator, dtype=torch.float64)

    order = torch.randperm(n_nodes, generator=generator)
    kinds = [("random", order.split(n_nodes // n_batches)) for n_batches in BATCHES]
    kinds.append(("one block each", [(labels == block).nonzero()[:, 0] for block in range(N_BLOCKS)]))
    full, _ = mean_gradients(z, edges, labels, [torch.arange(n_nodes)], tau=tau)
    rows = []
    for kind, batches in kinds:
        mean, kept = mean_gradients(z, edges, labels, batches, tau=tau)
        errors = {f"{name}_error": float((mean[name] - full[name]).norm() / full[name].norm()) for name in TERMS}
        rows.append({"batches": kind, "batch_size": len(batches[0]), "kept_pairs": kept, **errors})
    show(rows)
    return rows


def mean_gradients(
    z: Tensor, edges: Tensor, labels: Tensor, batches: Sequence[Tensor], *, tau: float
) -> tuple[dict[str, Tensor], float]:
    """Return the mean over the batches of the gradient of each term, and the share of edges inside batches."""
    nodes = meta_nodes(z, labels)
    means = {name: torch.zeros_like(z) for name in TERMS}
    place = torch.empty(len(z), dtype=torch.int64)
    n_kept = 0
    for batch in batches:
        place.fill_(-1)
        place[batch] = torch.arange(len(batch))
        inside = place[edges]
        inside = inside[:, (inside >= 0).all(dim=0)]
        n_kept += inside.shape[1]
        own = z[batch].requires_grad_()
        terms = pamc_terms(own, inside, labels[batch], tau=tau, meta_nodes=nodes)
        for name in TERMS:
            gradient = torch.autograd.grad(getattr(terms, name), own, retain_graph=True)[0]
            means[name][batch] = gradient / len(batches)
    return means, n_kept / edges.shape[1]


def show(rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table."""
    print("batches         size  pairs kept  gradient error: positive     proxy     total")
    for row in rows:
        errors = "  ".join(f"{row[f'{name}_error']:8.1e}" for name in TERMS)
        print(f"{row['batches']:14} {row['batch_size']:5d}  {row['kept_pairs']:10.3f}  {'':15}{errors}")


if __name__ == "__main__":
    main()
