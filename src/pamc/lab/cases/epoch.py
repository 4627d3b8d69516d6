"""Time and memory of 200 training epochs by each provider, from the same weights and centers, and of their parts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from statistics import median
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from pamc.config import PAPER_TABLE_1, FitConfig, preset
from pamc.data.attributed_graph import Features
from pamc.graph.adjacency import build_adjacency
from pamc.graph.influence import positive_pairs
from pamc.graph.neighbors import nearest
from pamc.graph.positives import PositivePairs
from pamc.initialize.base import initial_centers
from pamc.lab.cases.whole_fits import NOT_IN_TABLE_1
from pamc.lab.cell import Cell, Scope, register_case
from pamc.lab.measure import interleaved_seconds, peak_memory, release, reset_peak, timed_s
from pamc.lab.providers import broadcast_assignment, normal, plain_objective, target
from pamc.lab.settings import bench_cells, kind_of_device, load, n_classes
from pamc.models.layers import MLP, Linear
from pamc.models.loader import FeatureLoader, SparseBlock, encode_rows
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.models.products import products_in_tf32
from pamc.ops.cuda_graph import Captured, capturing
from pamc.ops.dispatch import preferring, resolve_backend
from pamc.runtime import generator
from pamc.training.trainer import train

# Runs a number of epochs without waiting for the device at the end.
Training: TypeAlias = Callable[[int], None]

_SETS = ("usps", "hhar", "acm", "cite", "dblp")
_CPU_SETS = ("usps", "hhar", "dblp")
_SPARSE_SETS = ("cite",)
_QUICK_SETS = ("blocks",)

_N_EPOCHS, _QUICK_EPOCHS = 200, 8
_PART_CALLS = 50
_MANY = 10_000

# Parts of an epoch that are measured separately on a GPU.
_PARTS = ("positive term", "clustering term")

# Epochs before the measured ones, which compile kernels and capture an epoch.
_WARM_UP_EPOCHS = 6

# Epochs between reads of the loss in a fit on a GPU.
_READ_EVERY = 20


def cells(scope: Scope) -> list[Cell]:
    """Return, on a GPU, a cell per data set and provider; on a CPU, cells that compare epochs with encoder steps."""
    on_gpu = kind_of_device(scope.device) == "cuda"
    parameters = {"preset": "paper", "precision": scope.precision}
    providers = (*TRAINERS, *_PARTS) if on_gpu else ("torch",)
    data_sets = _SETS if on_gpu else _CPU_SETS
    measured = [(provider, parameters) for provider in providers]
    cells = bench_cells(scope, "epoch", measured, data_sets=data_sets, quick_sets=_QUICK_SETS)
    if on_gpu or scope.data_sets or scope.quick:
        return cells
    compared = {**parameters, "compared": "input"}
    return cells + bench_cells(scope, "epoch", [("torch", compared)], data_sets=_SPARSE_SETS)


@register_case(
    "epoch",
    "training on the paper's data sets: released program, N × N loss, pamc, and the encoder alone",
    cells=cells,
)
def epoch_values(cell: Cell, device: str) -> dict[str, Any]:
    """Return time and memory of training or of a part of an epoch; on a CPU, times measured in alternation."""
    place, precision = torch.device(device), cell.parameters["precision"]
    start = beginning(cell.data_set, cell.quick)
    if place.type == "cpu":
        compare = sparse_values if cell.parameters.get("compared") == "input" else _paired_values
        return compare(start, place, precision, quick=cell.quick)
    if cell.provider in _PARTS:
        return part_values(cell.provider, start, place)
    n_epochs = _QUICK_EPOCHS if cell.quick else _N_EPOCHS
    return training_values(cell.provider, start, place, precision, n_epochs=n_epochs)


@dataclass(frozen=True, eq=False)
class Beginning:
    """A data set with the positive pairs of preset "paper", and the initial weights and centers.

    Everything is on the host, and each training copies what it changes.
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
    """Return the initial state of training on a data set, with a small encoder if quick."""
    graph = load(data_set, quick)
    # Settings do not affect the time.
    settings: dict[str, Any] = {} if data_set in PAPER_TABLE_1 else dict(NOT_IN_TABLE_1)
    settings |= {"hidden": (50, 50, 200)} if quick else {}
    config = preset("paper", data_set=data_set, n_clusters=n_classes(graph), n_init=1, **settings)
    edges, is_knn = graph.edges, graph.edges_are_neighbors
    if edges is None:
        edges, is_knn = nearest(graph.features, config.n_neighbors, metric=config.metric).edges, True
    adjacency = build_adjacency(edges, n_nodes=graph.n_nodes, expect_directed=is_knn)
    pairs, _ = positive_pairs(adjacency, n_hops=int(config.n_hops or 1), max_positives=None, dtype=torch.float32)
    sizes = (graph.n_features, *(config.hidden or ()), config.n_dims or 10)
    encoder = MLP(sizes, generator=generator(0, "weights"))
    rows = FeatureLoader(graph.features, device=torch.device("cpu"), dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        centers, _ = initial_centers(encode_rows(encoder, rows), config, seed=0)
    return Beginning(graph.features, pairs, config, encoder, centers)


def _pamc_model(
    start: Beginning, device: torch.device, precision: str, *, backend: str, sparse: bool | None = None
) -> tuple[PamCGCModel, FeatureLoader]:
    """Return the model and its rows on a device; see :class:`~pamc.models.loader.FeatureLoader` for `sparse`."""
    rows = FeatureLoader(start.features, device=device, dtype=torch.float32, sparse=sparse)
    rows.block(0, len(rows))
    encoder = MLP(start.encoder.sizes, generator=generator(0, "weights"), tensor_cores=precision == "tf32")
    encoder.load_state_dict(start.encoder.state_dict())
    pairs = start.pairs.to(device=device)
    model = PamCGCModel(encoder.to(device), start.centers.to(device), pairs, start.config)
    model.backend = backend
    return model, rows


def _pamc_epochs(backend: str, start: Beginning, device: torch.device, precision: str) -> Training:
    """Return training by pamc's trainer, which captures an epoch if it uses Triton kernels."""
    model, rows = _pamc_model(start, device, precision, backend=backend)
    read_every = _READ_EVERY if device.type == "cuda" else 1

    def run(n_epochs: int) -> None:
        with warnings.catch_warnings(), capturing(backend == "triton"), preferring(backend):
            warnings.simplefilter("ignore")
            for _ in train(model, rows, n_epochs=n_epochs, lr=start.config.lr, read_every=read_every):
                pass

    return run


def _two_passes(provider: str, start: Beginning, device: torch.device, precision: str) -> Training:
    """Return training as in the released program and SCGC*, with two forward passes per epoch and plain Adam.

    According to the paper, the two differ only in the loss. The first pass gives the target. As in these programs, its
    embedding is kept until the second pass replaces it, so both passes' activations are in memory.
    """
    loss = plain_objective(provider, start.pairs.to(device=device), start.config)
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


def _captured(step: Callable[[], Tensor], device: torch.device, precision: str) -> Training:
    """Return training by a step that is captured on a GPU and replayed."""

    def run(n_epochs: int) -> None:
        with products_in_tf32(precision == "tf32"), capturing(device.type == "cuda"):
            captured = Captured(step, device=device)
            for _ in range(n_epochs):
                captured()
            captured.release()

    return run


def _encoder_epochs(start: Beginning, device: torch.device, precision: str) -> Training:
    """Return the forward pass, backward pass and Adam step of the encoder alone, which every method needs."""
    x, encoder = torch.from_numpy(start.dense_features).to(device), _plain_encoder(start, device)
    capturable = device.type == "cuda"
    optimizer = torch.optim.Adam(encoder.parameters(), lr=start.config.lr, fused=True, capturable=capturable)
    grad = normal(len(x), start.centers.shape[1], device=device)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        z: Tensor = encoder(x)
        torch.autograd.backward(z, grad)
        optimizer.step()
        return z.detach()[:1, 0].clone()

    return _captured(step, device, precision)


def _matmul_epochs(start: Beginning, device: torch.device, precision: str) -> Training:
    """Return the matrix products of the encoder alone: one per layer forward and two backward."""
    sizes, n_nodes = start.encoder.sizes, len(start.dense_features)
    inputs = [normal(n_nodes, size, device=device) for size in sizes]
    weights = [normal(b, a, device=device) for a, b in pairwise(sizes)]
    grads = [torch.empty_like(layer_input) for layer_input in inputs]
    changes = [torch.empty_like(weight) for weight in weights]

    @torch.no_grad()
    def step() -> Tensor:
        for number, weight in enumerate(weights):
            torch.mm(inputs[number], weight.T, out=grads[number + 1])
            torch.mm(grads[number + 1].T, inputs[number], out=changes[number])
            if number:
                torch.mm(grads[number + 1], weight, out=grads[number])
        return changes[-1][:1, 0].clone()

    return _captured(step, device, precision)


TRAINERS: Mapping[str, Callable[[Beginning, torch.device, str], Training]] = {
    "dense": partial(_two_passes, "dense"),
    "released": partial(_two_passes, "released"),
    "torch": partial(_pamc_epochs, "torch"),
    "triton": partial(_pamc_epochs, "triton"),
    "encoder": _encoder_epochs,
    "matmul": _matmul_epochs,
}


def training_values(
    provider: str, start: Beginning, device: torch.device, precision: str, *, n_epochs: int
) -> dict[str, Any]:
    """Return time and peak memory of one training run, after a short run of the same shapes.

    The time includes capturing an epoch but not compiling kernels. The memory includes features, graph, weights,
    optimizer buffers, activations and temporaries.
    """
    make = TRAINERS[provider]
    make(start, device, precision)(_WARM_UP_EPOCHS)
    release(device)
    with peak_memory(device) as peak:
        run = make(start, device, precision)
        reset_peak(device)
        seconds = timed_s(lambda: run(n_epochs), device)
    loader = FeatureLoader(start.features, device=torch.device("cpu"), dtype=torch.float32)
    sparse = loader.sparse and provider in ("torch", "triton")
    return {
        "seconds": seconds,
        "n_epochs": n_epochs,
        "peak_bytes": peak.n_bytes,
        "n_nodes": len(start.dense_features),
        "n_dims": start.centers.shape[1],
        "n_clusters": len(start.centers),
        "n_pairs": start.pairs.n_pairs,
        "sizes": list(start.encoder.sizes),
        "sparse_input": sparse,
        "input_bytes": _sparse_bytes(start) if sparse else start.dense_features.nbytes,
    }


def _plain_encoder(start: Beginning, device: torch.device) -> nn.Sequential:
    """Return plain torch layers with the initial weights."""
    modules: list[nn.Module] = []
    for (n_in, n_out), layer in zip(pairwise(start.encoder.sizes), start.encoder.layers, strict=True):
        linear = skip_init(nn.Linear, n_in, n_out)  # type: ignore[no-untyped-call]
        linear.load_state_dict(layer.state_dict())
        modules += [linear, nn.ReLU()]
    return nn.Sequential(*modules[:-1]).to(device)


def _sparse_bytes(start: Beginning) -> int:
    rows = SparseBlock.from_scipy(start.features, device=torch.device("cpu"), dtype=torch.float32)
    parts = [part for m in (rows.matrix, rows.transposed) for part in (m.crow_indices(), m.col_indices(), m.values())]
    return sum(part.nbytes for part in parts)


def _paired_values(start: Beginning, device: torch.device, precision: str, *, quick: bool) -> dict[str, Any]:
    """Return the time of an epoch and of a step of the encoder alone, measured in alternation."""
    step = _encoder_epochs(start, device, precision)
    functions = {"epoch": _next_epoch(start, device, precision, None), "encoder": lambda: step(1)}
    seconds = interleaved_seconds(functions, repeats=3 if quick else 20)
    return {
        "seconds": median(seconds["epoch"]),
        "n_epochs": 1,
        "encoder_s": median(seconds["encoder"]),
        "times_encoder": median([a / b for a, b in zip(seconds["epoch"], seconds["encoder"], strict=True)]),
        "n_pairs": start.pairs.n_pairs,
    }


def sparse_values(start: Beginning, device: torch.device, precision: str, *, quick: bool) -> dict[str, Any]:
    """Return the times of an epoch and of its first layer, with sparse and with dense rows, in alternation."""
    functions: dict[str, Callable[[], object]] = {}
    for name, sparse in (("sparse", True), ("dense", False)):
        functions[name] = _next_epoch(start, device, precision, sparse)
        functions[f"{name} layer"] = _first_layer(start, device, sparse)
    seconds = interleaved_seconds(functions, repeats=3 if quick else 12)
    medians = {name: median(values) for name, values in seconds.items()}
    return {
        "seconds": medians["sparse"],
        "n_epochs": 1,
        "dense_s": medians["dense"],
        "times_faster": medians["dense"] / medians["sparse"],
        "first_layer_s": medians["sparse layer"],
        "first_layer_dense_s": medians["dense layer"],
        "first_layer_times_faster": medians["dense layer"] / medians["sparse layer"],
    }


def _next_epoch(start: Beginning, device: torch.device, precision: str, sparse: bool | None) -> Callable[[], object]:
    model, rows = _pamc_model(start, device, precision, backend="torch", sparse=sparse)
    epochs = train(model, rows, n_epochs=_MANY, lr=start.config.lr)
    return lambda: next(epochs)


def _first_layer(start: Beginning, device: torch.device, sparse: bool) -> Callable[[], object]:
    rows = FeatureLoader(start.features, device=device, dtype=torch.float32, sparse=sparse)
    block, sizes = rows.whole(), start.encoder.sizes
    layer = Linear(sizes[0], sizes[1], generator=generator(0, "weights"), dtype=torch.float32).to(device)
    grad = torch.ones(len(rows), sizes[1], device=device)
    return lambda: torch.autograd.grad(layer(block), list(layer.parameters()), grad)


def part_values(part: str, start: Beginning, device: torch.device) -> dict[str, Any]:
    """Return the time of one term of the loss, forward and backward, captured as in training."""
    pairs, centers = start.pairs.to(device=device), start.centers.clone().to(device).requires_grad_()
    z = normal(pairs.n_nodes, centers.shape[1], device=device).requires_grad_()
    config, backend = start.config, resolve_backend("auto", device)

    def positive() -> Tensor:
        log_mass, _ = backend.positive_log_mass(z, pairs, tau=config.tau, self_edges="drop")
        return torch.autograd.grad(log_mass.clamp(min=-100.0).sum(), z)[0][:1, 0].clone()

    def clustering() -> Tensor:
        kl, _ = backend.self_training(z, centers, eta=config.eta)
        return torch.autograd.grad(kl, (z, centers))[0][:1, 0].clone()

    step = {"positive term": positive, "clustering term": clustering}[part]
    with capturing(device.type == "cuda"):
        captured = Captured(step, device=device)

    for _ in range(5):
        captured()
    seconds = timed_s(lambda: [captured() for _ in range(_PART_CALLS)], device) / _PART_CALLS
    captured.release()
    return {"seconds": seconds, "n_epochs": 1}
