"""One measurement of a loss in a process of its own: `python -m benchmarks.probe_loss JSON` prints a JSON object."""

from __future__ import annotations

import json
import sys

import torch

from benchmarks.measure import interleaved_seconds, median, peak_bytes
from pamc import pamc_loss
from pamc.graph.pairs import PositivePairs
from pamc.losses.contrastive import contrastive_loss


def main(loss: str, n_nodes: int, degree: int, n_dims: int, n_clusters: int, repeats: int) -> dict[str, float]:
    """Return peak bytes and seconds of forward + backward on a random graph; the edge ends are uniform at random."""
    generator = torch.Generator().manual_seed(0)
    source = torch.arange(n_nodes).repeat_interleave(degree)
    target = torch.randint(n_nodes, (n_nodes * degree,), generator=generator)
    pairs = PositivePairs.from_edges(torch.stack([source, target]), n_nodes=n_nodes)
    z = torch.randn(n_nodes, n_dims, generator=generator, requires_grad=True)
    labels = torch.randint(n_clusters, (n_nodes,), generator=generator)
    del source, target

    def step() -> None:
        value = pamc_loss(z, pairs, labels, tau=0.5) if loss == "pamc" else contrastive_loss(z, pairs, tau=0.5)
        value.backward()
        z.grad = None

    def small() -> None:
        few = torch.randn(64, n_dims, requires_grad=True)
        ring = torch.stack([torch.arange(64), torch.arange(64).roll(1)])
        pamc_loss(few, ring, torch.arange(64) % n_clusters).backward()

    small()
    peak = peak_bytes(step)
    seconds = interleaved_seconds({"step": step}, repeats=repeats)["step"]
    return {"n_pairs": pairs.n_pairs, "peak_bytes": peak, "seconds": median(seconds), "fastest_s": min(seconds)}


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
