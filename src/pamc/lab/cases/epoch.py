"""200 epochs of training by each provider on the paper's data sets, and what of it is the encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pamc.lab.cell import Cell, Scope, register_case
from pamc.lab.measure import interleaved_seconds, median, timed_s
from pamc.lab.problems import normal
from pamc.lab.settings import kind_of_device
from pamc.lab.training import TRAINERS, Beginning, beginning, encoder_epochs, pamc_model, training_values
from pamc.models.layers import Linear
from pamc.models.loader import FeatureLoader
from pamc.ops.cuda_graph import Captured, capturing
from pamc.ops.dispatch import resolve_backend
from pamc.runtime import generator
from pamc.training.trainer import train

__all__ = ["cells", "epoch_values", "paired_values", "part_values", "sparse_values"]

_SETS = ("usps", "hhar", "acm", "cite", "dblp")
_CPU_SETS = ("usps", "hhar", "dblp")
_SPARSE_SETS = ("cite",)
_QUICK_SETS = ("blocks",)

_N_EPOCHS, _QUICK_EPOCHS = 200, 8
_PART_CALLS = 50
_MANY = 10_000

# Parts of an epoch that are measured by themselves, on the GPU.
_PARTS = ("positive term", "clustering term")


def cells(scope: Scope) -> list[Cell]:
    """Return, on a GPU, a cell per data set and provider; on a CPU, epochs beside the bare encoder's steps."""
    on_gpu = kind_of_device(scope.device) == "cuda"
    names = scope.data_sets or (_QUICK_SETS if scope.quick else _SETS if on_gpu else _CPU_SETS)
    parameters = {"preset": "paper", "precision": scope.precision}
    if on_gpu:
        measured = [(provider, name, parameters) for name in names for provider in (*TRAINERS, *_PARTS)]
    else:
        sparse = () if scope.data_sets or scope.quick else _SPARSE_SETS
        measured = [("torch", name, parameters) for name in names]
        measured += [("torch", name, {**parameters, "compared": "input"}) for name in sparse]
    return [
        Cell("epoch", "epoch", provider, name, parameters=more, quick=scope.quick) for provider, name, more in measured
    ]


@register_case(
    "epoch",
    "training on the paper's data sets: the released program, the N × N loss, pamc, the bare encoder",
    cells=cells,
)
def epoch_values(cell: Cell, device: str) -> dict[str, Any]:
    """Return time and memory of training by a provider or of a part of an epoch; on a CPU, times taken in turn."""
    place, precision = torch.device(device), cell.parameters["precision"]
    start = beginning(cell.data_set, cell.quick)
    if place.type == "cpu":
        compare = sparse_values if cell.parameters.get("compared") == "input" else paired_values
        return compare(start, place, precision, quick=cell.quick)
    if cell.provider in _PARTS:
        return part_values(cell.provider, start, place)
    n_epochs = _QUICK_EPOCHS if cell.quick else _N_EPOCHS
    return training_values(cell.provider, start, place, precision, n_epochs=n_epochs)


def paired_values(start: Beginning, device: torch.device, precision: str, *, quick: bool) -> dict[str, Any]:
    """Return the time of an epoch and of the bare encoder's step, taken in turn."""
    step = encoder_epochs(start, device, precision)
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
    """Return the time of an epoch, and of its first layer alone, with sparse rows and with dense ones, in turn."""
    functions: dict[str, Callable[[], object]] = {}
    for name, sparse in (("sparse", True), ("dense", False)):
        functions[name] = _next_epoch(start, device, precision, sparse)
        functions[f"{name} layer"] = _first_layer(start, device, sparse)
    seconds = interleaved_seconds(functions, repeats=3 if quick else 12)
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


def _next_epoch(start: Beginning, device: torch.device, precision: str, sparse: bool | None) -> Callable[[], object]:
    model, rows = pamc_model(start, device, precision, backend="torch", sparse=sparse)
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

    def repeated(n_times: int) -> None:
        for _ in range(n_times):
            captured()

    repeated(5)
    seconds = timed_s(lambda: repeated(_PART_CALLS), device) / _PART_CALLS
    captured.release()
    return {"seconds": seconds, "n_epochs": 1}
