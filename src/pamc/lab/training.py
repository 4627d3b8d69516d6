"""Epochs by each provider, from the same weights and centers, and those of the bare encoder, which all need."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from pamc.config import PAPER_TABLE_1, FitConfig, preset
from pamc.data.attributed_graph import Features
from pamc.graph.adjacency import build_adjacency
from pamc.graph.influence import positive_pairs
from pamc.graph.neighbors import nearest
from pamc.graph.positives import PositivePairs
from pamc.initialize.base import initial_centers
from pamc.lab.measure import peak_memory, release, wait
from pamc.lab.problems import normal
from pamc.lab.providers import (
    EdgeList,
    broadcast_assignment,
    dense_contrast,
    dense_weights,
    released_objective,
    target,
)
from pamc.lab.settings import load, n_classes
from pamc.models.layers import MLP
from pamc.models.loader import FeatureLoader, SparseBlock, encode_rows
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.models.products import products_in_tf32
from pamc.ops.cuda_graph import Captured, capturing
from pamc.ops.dispatch import preferring
from pamc.runtime import generator
from pamc.training.trainer import train

__all__ = ["TRAINERS", "Beginning", "Training", "beginning", "encoder_epochs", "pamc_model", "training_values"]

# Runs a number of epochs; nothing waits for the device at the end.
Training: TypeAlias = Callable[[int], None]

# Epochs before the measured ones: they compile kernels, and, where epochs are captured, one of them is.
_WARM_UP_EPOCHS = 6

# As a fit reads its epochs on a GPU.
_READ_EVERY = 20

# Settings on sets that Table 1 does not have: they have no influence on time.
_OTHER_SETS = {"alpha": 1.0, "beta": 1.0, "tau": 1.0, "n_hops": 2}


@dataclass(frozen=True, eq=False)
class Beginning:
    """A data set with the positives of preset "paper", and where training begins: weights as drawn, K-means centers.

    Parameters
    ----------
    features
        (N, d) as they are.
    pairs
        γ, on the host.
    config
        Settings.
    encoder
        On the host; each training copies its weights.
    centers
        (C, n_dims).
    """

    features: Features
    pairs: PositivePairs
    config: FitConfig
    encoder: MLP
    centers: Tensor

    @cached_property
    def dense_features(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """(N, d) float32."""
        features: Any = self.features
        rows = features.toarray() if sp.issparse(features) else features
        return np.ascontiguousarray(rows, dtype=np.float32)


@lru_cache(maxsize=8)
def beginning(data_set: str, quick: bool) -> Beginning:
    """Return where training on a data set begins; a quick one has a small encoder."""
    graph = load(data_set, quick)
    more: dict[str, Any] = {} if data_set in PAPER_TABLE_1 else dict(_OTHER_SETS)
    more |= {"hidden": (50, 50, 200)} if quick else {}
    config = preset("paper", data_set=data_set, n_clusters=n_classes(graph), n_init=1, **more)
    edges = graph.edges
    if edges is None:
        edges = nearest(graph.features, config.n_neighbors, metric=config.metric).edges
    own_list = graph.edges is None or graph.edges_are_neighbors
    adjacency = build_adjacency(edges, n_nodes=graph.n_nodes, expect_directed=own_list)
    pairs, _ = positive_pairs(adjacency, n_hops=int(config.n_hops or 1), max_positives=None, dtype=torch.float32)
    sizes = (graph.n_features, *config.hidden, config.n_dims or 10)
    encoder = MLP(sizes, generator=generator(0, "weights"))
    rows = FeatureLoader(graph.features, device=torch.device("cpu"), dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        centers, _ = initial_centers(encode_rows(encoder, rows), config, seed=0)
    return Beginning(graph.features, pairs, config, encoder, centers)


def pamc_model(
    start: Beginning, device: torch.device, precision: str, *, backend: str, sparse: bool | None = None
) -> tuple[PamCGCModel, FeatureLoader]:
    """Return the model and its rows on a device; `sparse` as of :class:`~pamc.models.loader.FeatureLoader`."""
    rows = FeatureLoader(start.features, device=device, dtype=torch.float32, sparse=sparse)
    rows.block(0, len(rows))
    model = PamCGCModel(
        _copied(start.encoder, device, precision),
        start.centers.to(device),
        start.pairs.to(device=device),
        start.config,
    )
    model.backend = backend
    return model, rows


def pamc_epochs(
    start: Beginning, device: torch.device, precision: str, *, backend: str, captured: bool = False
) -> Training:
    """Return training by pamc's own trainer."""
    model, rows = pamc_model(start, device, precision, backend=backend)
    read_every = _READ_EVERY if device.type == "cuda" else 1

    def run(n_epochs: int) -> None:
        with warnings.catch_warnings(), capturing(captured), preferring(backend):
            warnings.simplefilter("ignore")
            for _ in train(model, rows, n_epochs=n_epochs, lr=start.config.lr, read_every=read_every):
                pass

    return run


def released_epochs(start: Beginning, device: torch.device, precision: str) -> Training:
    """Return training as the released program does it: :func:`_two_passes` with per-edge gathers."""
    edges, config = EdgeList.of(start.pairs.to(device=device)), start.config

    def loss(z: Tensor, q: Tensor, p: Tensor) -> Tensor:
        return released_objective(z, q, p, edges, alpha=config.alpha, beta=config.beta, tau=config.tau)

    return _two_passes(start, device, precision, loss)


def dense_epochs(start: Beginning, device: torch.device, precision: str) -> Training:
    """Return training on the N × N loss as SCGC* does it: in the paper's words, it differs in nothing but the loss."""
    gamma, config = dense_weights(start.pairs.to(device=device)), start.config

    def loss(z: Tensor, q: Tensor, p: Tensor) -> Tensor:
        kl = nn.functional.kl_div(q.log(), p, reduction="batchmean")
        return config.alpha * dense_contrast(z, gamma, tau=config.tau) + config.beta * kl

    return _two_passes(start, device, precision, loss)


def _two_passes(
    start: Beginning, device: torch.device, precision: str, loss: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Training:
    """Return training with two forward passes per epoch, plain Adam, kernel by kernel, on a loss of z, q and p.

    The first pass gives the target. Its embedding has a name until the second one takes it, so the activations of both
    are held while the second is computed.
    """
    x, encoder = torch.from_numpy(start.dense_features).to(device), _plain_encoder(start, device)
    centers = nn.Parameter(start.centers.clone().to(device))
    optimizer = torch.optim.Adam([*encoder.parameters(), centers], lr=start.config.lr)

    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        z = encoder(x)
        return z, broadcast_assignment(z, centers, eta=start.config.eta)

    def run(n_epochs: int) -> None:
        with products_in_tf32(precision == "tf32"):
            for _ in range(n_epochs):
                z, first_q = model(x)
                p = target(first_q.detach())
                del first_q
                z, q = model(x)
                value = loss(z, q, p)
                optimizer.zero_grad()
                torch.autograd.backward(value)
                optimizer.step()

    return run


def encoder_epochs(start: Beginning, device: torch.device, precision: str) -> Training:
    """Return forward, backward and Adam step of the bare encoder, captured on a GPU: what every method has to do."""
    x, encoder = torch.from_numpy(start.dense_features).to(device), _plain_encoder(start, device)
    on_gpu = device.type == "cuda"
    optimizer = torch.optim.Adam(encoder.parameters(), lr=start.config.lr, fused=True, capturable=on_gpu)
    slope = normal(len(x), start.centers.shape[1], device=device)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        z: Tensor = encoder(x)
        torch.autograd.backward(z, slope)
        optimizer.step()
        return z.detach()[:1, 0].clone()

    def run(n_epochs: int) -> None:
        with products_in_tf32(precision == "tf32"), capturing(on_gpu):
            captured = Captured(step, device=device)
            for _ in range(n_epochs):
                captured()
            captured.release()

    return run


def matmul_epochs(start: Beginning, device: torch.device, precision: str) -> Training:
    """Return the encoder's matrix products alone, captured on a GPU: forward, and both of the backward pass."""
    sizes, n_nodes = start.encoder.sizes, len(start.dense_features)
    widths = [normal(n_nodes, size, device=device) for size in sizes]
    weights = [normal(b, a, device=device) for a, b in pairwise(sizes)]
    slopes = [torch.empty_like(width) for width in widths]
    changes = [torch.empty_like(weight) for weight in weights]

    def step() -> Tensor:
        for number, weight in enumerate(weights):
            torch.mm(widths[number], weight.T, out=slopes[number + 1])
            torch.mm(slopes[number + 1].T, widths[number], out=changes[number])
            if number:
                torch.mm(slopes[number + 1], weight, out=slopes[number])
        return changes[-1][:1, 0].clone()

    def run(n_epochs: int) -> None:
        on_gpu = device.type == "cuda"
        with torch.no_grad(), products_in_tf32(precision == "tf32"), capturing(on_gpu):
            captured = Captured(step, device=device)
            for _ in range(n_epochs):
                captured()
            captured.release()

    return run


def _torch_epochs(start: Beginning, device: torch.device, precision: str) -> Training:
    return pamc_epochs(start, device, precision, backend="torch")


def _triton_epochs(start: Beginning, device: torch.device, precision: str) -> Training:
    return pamc_epochs(start, device, precision, backend="triton", captured=True)


TRAINERS: Mapping[str, Callable[[Beginning, torch.device, str], Training]] = MappingProxyType(
    {
        "dense": dense_epochs,
        "released": released_epochs,
        "torch": _torch_epochs,
        "triton": _triton_epochs,
        "encoder": encoder_epochs,
        "matmul": matmul_epochs,
    }
)


def training_values(
    provider: str, start: Beginning, device: torch.device, precision: str, *, n_epochs: int
) -> dict[str, Any]:
    """Return time and peak memory of training, both of one run, after a short one of the same shapes.

    Compiling kernels is not in the time, capturing an epoch is. The memory is all that training holds: features, graph,
    weights, the optimizer's buffers, activations, temporaries.
    """
    make = TRAINERS[provider]
    make(start, device, precision)(_WARM_UP_EPOCHS)
    release(device)
    with peak_memory(device) as held:
        run = make(start, device, precision)
        wait(device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        started = time.perf_counter()
        run(n_epochs)
        wait(device)
        seconds = time.perf_counter() - started
    sparse = _is_sparse(start) and provider in ("torch", "triton")
    return {
        "seconds": seconds,
        "n_epochs": n_epochs,
        "peak_bytes": held.n_bytes,
        "n_nodes": len(start.dense_features),
        "n_dims": start.centers.shape[1],
        "n_clusters": len(start.centers),
        "n_pairs": start.pairs.n_pairs,
        "sizes": list(start.encoder.sizes),
        "sparse_input": sparse,
        "input_bytes": _sparse_bytes(start) if sparse else start.dense_features.nbytes,
    }


def _plain_encoder(start: Beginning, device: torch.device) -> nn.Sequential:
    """Return torch's own layers with the weights of the beginning."""
    modules: list[nn.Module] = []
    for (n_in, n_out), layer in zip(pairwise(start.encoder.sizes), start.encoder.layers, strict=True):
        linear = nn.Linear(n_in, n_out, device="meta").to_empty(device="cpu")
        linear.load_state_dict(layer.state_dict())
        modules += [linear, nn.ReLU()]
    return nn.Sequential(*modules[:-1]).to(device)


def _copied(encoder: MLP, device: torch.device, precision: str) -> MLP:
    copy = MLP(encoder.sizes, generator=generator(0, "weights"), tensor_cores=precision == "tf32")
    copy.load_state_dict(encoder.state_dict())
    return copy.to(device)


def _is_sparse(start: Beginning) -> bool:
    return FeatureLoader(start.features, device=torch.device("cpu"), dtype=torch.float32).sparse


def _sparse_bytes(start: Beginning) -> int:
    rows = SparseBlock.from_scipy(start.features, device=torch.device("cpu"), dtype=torch.float32)
    parts = [part for m in (rows.matrix, rows.transposed) for part in (m.crow_indices(), m.col_indices(), m.values())]
    return sum(part.nbytes for part in parts)
