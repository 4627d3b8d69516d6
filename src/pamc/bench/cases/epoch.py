"""200 epochs of training by each provider on the paper's data sets, and what of it is the encoder."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pamc.bench.case import Cell, Scope, register_case
from pamc.bench.measure import interleaved_seconds, median
from pamc.bench.problems import normal
from pamc.bench.training import TRAINERS, Beginning, beginning, encoder_epochs, pamc_model, training_values
from pamc.experiments.timing import wait
from pamc.models.layers import Linear
from pamc.models.loader import FeatureLoader
from pamc.ops.cuda_graph import Captured, capturing
from pamc.ops.dispatch import resolve_backend
from pamc.runtime import generator
from pamc.training.trainer import train

__all__ = ["cells", "paired_values", "part_values", "sparse_values"]

_SETS = ("usps", "hhar", "acm", "cite", "dblp")
_CPU_SETS = ("usps", "hhar", "dblp")
_SPARSE_SETS = ("cite",)
_QUICK_SETS = ("blocks",)

_N_EPOCHS, _QUICK_EPOCHS = 200, 8
_PART_CALLS = 50
_MANY = 10_000

# Parts of an epoch that are measured by themselves, on the GPU.
_PARTS = ("positive term", "clustering term")


@register_case(
    "epoch", "training on the paper's data sets: the released program, the N × N loss, pamc, the bare encoder"
)
def cells(scope: Scope) -> list[Cell]:
    """Return, on a GPU, a cell per data set and provider; on a CPU, epochs beside the bare encoder's steps."""
    names = _QUICK_SETS if scope.quick else _SETS
    if scope.device.type == "cuda":
        return [cell for name in scope.data_sets or names for cell in _gpu_cells(name, scope)]
    paired = scope.data_sets or (_QUICK_SETS if scope.quick else _CPU_SETS)
    sparse = () if scope.data_sets or scope.quick else _SPARSE_SETS
    measured: list[tuple[str, dict[str, Any], Callable[[str, Scope], dict[str, Any]]]] = [
        *((name, {}, paired_values) for name in paired),
        *((name, {"compared": "input"}, sparse_values) for name in sparse),
    ]
    return [_cpu_cell(name, more, values, scope) for name, more, values in measured]


def _parameters(data_set: str, scope: Scope) -> dict[str, Any]:
    return {"data_set": data_set, "preset": "paper", "precision": scope.precision}


def _gpu_cells(name: str, scope: Scope) -> list[Cell]:
    n_epochs = _QUICK_EPOCHS if scope.quick else _N_EPOCHS
    parameters = _parameters(name, scope)

    def trained(provider: str) -> dict[str, Any]:
        start = beginning(name, scope.quick)
        return training_values(provider, start, scope.device, scope.precision, n_epochs=n_epochs)

    def part_of(part: str) -> dict[str, Any]:
        return part_values(part, beginning(name, scope.quick), scope.device)

    found = [Cell(provider, parameters, partial(trained, provider)) for provider in TRAINERS]
    return found + [Cell(part, parameters, partial(part_of, part)) for part in _PARTS]


def _cpu_cell(name: str, more: dict[str, Any], values: Callable[[str, Scope], dict[str, Any]], scope: Scope) -> Cell:
    return Cell("torch", {**_parameters(name, scope), **more}, lambda: values(name, scope))


def paired_values(data_set: str, scope: Scope) -> dict[str, Any]:
    """Return the time of an epoch and of the bare encoder's step, taken in turn."""
    start = beginning(data_set, scope.quick)
    step = encoder_epochs(start, scope.device, scope.precision)
    functions = {"epoch": _next_epoch(start, scope, None), "encoder": lambda: step(1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds = interleaved_seconds(functions, repeats=3 if scope.quick else 20)
    return {
        "seconds": median(seconds["epoch"]),
        "n_epochs": 1,
        "encoder_s": median(seconds["encoder"]),
        "times_encoder": median([a / b for a, b in zip(seconds["epoch"], seconds["encoder"], strict=True)]),
        "n_pairs": start.pairs.n_pairs,
    }


def sparse_values(data_set: str, scope: Scope) -> dict[str, Any]:
    """Return the time of an epoch, and of its first layer alone, with sparse rows and with dense ones, in turn."""
    start = beginning(data_set, scope.quick)
    functions: dict[str, Callable[[], object]] = {}
    for name, sparse in (("sparse", True), ("dense", False)):
        functions[name] = _next_epoch(start, scope, sparse)
        functions[f"{name} layer"] = _first_layer(start, scope.device, sparse)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds = interleaved_seconds(functions, repeats=3 if scope.quick else 12)
    middle = {name: median(values) for name, values in seconds.items()}
    return {
        "seconds": middle["sparse"],
        "n_epochs": 1,
        "dense_s": middle["dense"],
        "times_faster": middle["dense"] / middle["sparse"],
        "first_layer_s": middle["sparse layer"],
        "first_layer_dense_s": middle["dense layer"],
        "first_layer_times_faster": middle["dense layer"] / middle["sparse layer"],
    }


def _next_epoch(start: Beginning, scope: Scope, sparse: bool | None) -> Callable[[], object]:
    model, rows = pamc_model(start, scope.device, scope.precision, backend="torch", sparse=sparse)
    epochs = train(model, rows, n_epochs=_MANY, lr=start.config.lr)
    return lambda: next(epochs)


def _first_layer(start: Beginning, device: torch.device, sparse: bool) -> Callable[[], object]:
    rows = FeatureLoader(start.features, device=device, dtype=torch.float32, sparse=sparse)
    block, sizes = rows.block(0, len(rows)), start.encoder.sizes
    layer = Linear(sizes[0], sizes[1], generator=generator(0, "weights"), dtype=torch.float32).to(device)
    slope = torch.ones(len(rows), sizes[1], device=device)
    return lambda: torch.autograd.grad(layer(block), list(layer.parameters()), slope)


def part_values(part: str, start: Beginning, device: torch.device) -> dict[str, Any]:
    """Return the time of one term of the loss alone, forward and backward, captured as in training."""
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
    wait(device)
    started = time.perf_counter()
    for _ in range(_PART_CALLS):
        captured()
    wait(device)
    seconds = (time.perf_counter() - started) / _PART_CALLS
    captured.release()
    return {"seconds": seconds, "n_epochs": 1}
