"""Exact full-batch epochs on planted graphs of up to a hundred million rows: time, memory, and what they find."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamc.config import FitConfig
from pamc.initialize.sample import Sample, initialize_from_sample, sampled_rows
from pamc.lab.cell import Cell, Row, Scope, register_case
from pamc.lab.measure import fitted_exponent, peak_memory, release, reset_peak, timed_s, wait
from pamc.lab.problems import Planted, planted
from pamc.lab.rows import derived_row
from pamc.lab.settings import kind_of_device
from pamc.models.loader import FeatureLoader, encode_rows
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.progress import SilentProgress
from pamc.results.metrics import nmi_of_table
from pamc.runtime import resolve_row_dtype
from pamc.training.trainer import EpochRecord, train

__all__ = ["cells", "exponents", "scale_values"]

_SIZES = (10_000, 100_000, 1_000_000, 10_000_000, 111_000_000)
_SIZES_ON_CPU = (10_000, 100_000)
_QUICK_SIZES = (2_000, 4_000)

_PARAMETERS = {"n_features": 128, "n_neighbors": 28, "n_clusters": 50, "inside": 0.8, "noise": 3.0}
_QUICK = {"n_features": 16, "n_clusters": 5}
_HIDDEN, _QUICK_HIDDEN, _N_DIMS = (500, 500, 2000), (32, 32), 10

# Rows encoded at a time: what lies between layers takes 3 GiB in bfloat16.
_CHUNK = 1 << 19

# Epochs before the measured ones, the fewest and the most of those, and the seconds that they may take.
_WARM_UP, _LEAST_EPOCHS, _MOST_EPOCHS, _BUDGET_S = 2, 5, 200, 10.0

# Exponents are fitted from this many rows on, where fixed costs no longer count.
_LEAST_FITTED = 1_000_000


def exponents(rows: Sequence[Row]) -> list[Row]:
    """Return the exponents of time and memory over the larger sizes, where there are three of them."""
    fitted = [row for row in rows if row["parameters"]["n_nodes"] >= _LEAST_FITTED]
    if len(fitted) < 3:
        return []
    sizes = [row["parameters"]["n_nodes"] for row in fitted]
    values = {"time_exponent": fitted_exponent(sizes, [row["values"]["seconds"] for row in fitted])}
    memory = [row["values"]["peak_bytes"] for row in fitted]
    if None not in memory:
        values["memory_exponent"] = fitted_exponent(sizes, memory)
    parameters = {"sweep": "n_nodes", **fitted[0]["parameters"], "n_nodes": [min(sizes), max(sizes)]}
    return [derived_row(fitted[0], parameters=parameters, values=values)]


def cells(scope: Scope) -> list[Cell]:
    """Return a cell per size."""
    on_gpu = kind_of_device(scope.device) == "cuda"
    sizes = _QUICK_SIZES if scope.quick else _SIZES if on_gpu else _SIZES_ON_CPU
    parameters = {**_PARAMETERS, **(_QUICK if scope.quick else {}), "precision": "bfloat16" if on_gpu else "auto"}
    return [
        Cell("scale", "scale", "pamc", parameters={"n_nodes": n_nodes, **parameters}, quick=scope.quick)
        for n_nodes in sizes
    ]


@register_case(
    "scale",
    "exact epochs on planted graphs of up to 111 million rows: time, memory, what is found",
    cells=cells,
    sum_up=exponents,
)
def scale_values(cell: Cell, device_name: str) -> dict[str, Any]:
    """Return the time of an epoch and of its parts, peak memory, and the NMI of labels and planted blocks."""
    device, hidden = torch.device(device_name), _QUICK_HIDDEN if cell.quick else _HIDDEN
    release(device)
    made: dict[str, Any] = dict(cell.parameters)
    precision = made.pop("precision")
    sizes: dict[str, Any] = {"n_clusters": made["n_clusters"], "n_dims": _N_DIMS, "hidden": hidden}
    config = FitConfig(**sizes, n_hops=1, precision=precision, chunk_size=_CHUNK)
    row_dtype = resolve_row_dtype(precision, device)
    with peak_memory(device) as peak:
        started = time.perf_counter()
        graph = planted(**made, device=device, dtype=row_dtype)
        wait(device)
        seconds_to_make = time.perf_counter() - started
        rows = FeatureLoader(graph.features, device=device, dtype=row_dtype)
        model, seconds_to_start = _started(graph, config, device, row_dtype)
        before = _labels(model, rows)
        reset_peak(device)
        records = _trained(model, rows, config, most=_LEAST_EPOCHS if cell.quick else _MOST_EPOCHS)
        wait(device)
    measured = [record.seconds for record in records[_WARM_UP:]]
    parts = _parts(model, rows, device)
    found = _labels(model, rows)
    return {
        "seconds": float(np.median(measured)),
        **parts,
        "seconds_to_make": seconds_to_make,
        "seconds_to_start": seconds_to_start,
        "peak_bytes": peak.n_bytes,
        "n_stored": graph.pairs.n_pairs,
        "n_epochs": len(records),
        "first_loss": records[0].values["loss"],
        "last_loss": records[-1].values["loss"],
        "nmi_at_start": _nmi(graph.labels, before, config.n_clusters),
        "nmi": _nmi(graph.labels, found, config.n_clusters),
        "n_assigned": int((found >= 0).sum()),
        "chunk_size": _CHUNK,
    }


def _started(graph: Planted, config: FitConfig, device: torch.device, dtype: torch.dtype) -> tuple[PamCGCModel, float]:
    """Return the model at the start that a sample of its rows gives, and the seconds it took."""
    started = time.perf_counter()
    numbers = torch.from_numpy(sampled_rows(*graph.features.shape, seed=0)).to(device)
    own = graph.features[numbers].float()
    degree = int(graph.pairs.indptr[1])
    neighbors = graph.pairs.indices.view(-1, degree)[numbers].long()
    around = own.clone()
    for column in range(degree):
        around += graph.features[neighbors[:, column]]
    means = (around / (degree + 1)).cpu().numpy()
    sample = Sample(own.cpu().numpy(), lambda: means, "scale")
    start, centers = initialize_from_sample(
        sample, config, seed=0, device=device, dtype=dtype, progress=SilentProgress()
    )
    model = PamCGCModel(start.encoder, centers, graph.pairs, config)
    wait(device)
    return model, time.perf_counter() - started


def _trained(model: PamCGCModel, rows: FeatureLoader, config: FitConfig, *, most: int) -> list[EpochRecord]:
    """Return the records of as many epochs as there is time for."""
    records = []
    ends_at = time.perf_counter() + _BUDGET_S
    for record in train(model, rows, n_epochs=_WARM_UP + most, lr=config.lr, chunk_size=_CHUNK):
        # Labels of all epochs would be held beside what training needs.
        records.append(replace(record, labels=None))
        if len(records) >= _WARM_UP + _LEAST_EPOCHS and time.perf_counter() > ends_at:
            break
    return records


def _parts(model: PamCGCModel, rows: FeatureLoader, device: torch.device) -> dict[str, float]:
    """Return the seconds of the first pass and of the loss with its gradient, each alone."""
    z = encode_rows(model.encoder, rows, chunk_size=_CHUNK)

    def loss() -> None:
        own = z.requires_grad_()
        own.grad = None
        torch.autograd.backward(model.objective(own).total)

    def encode() -> None:
        encode_rows(model.encoder, rows, chunk_size=_CHUNK)

    values = {}
    for name, step in (("encode_s", encode), ("loss_s", loss)):
        step()
        values[name] = timed_s(step, device)
    z.grad = model.centers.grad = None
    return values


@torch.no_grad()
def _labels(model: PamCGCModel, rows: FeatureLoader) -> Tensor:
    """Return (N,) the nearest center of every row, chunk by chunk."""
    found = [
        torch.cdist(model.encoder(block)[: chunk.stop - chunk.start], model.centers).argmin(dim=1)
        for chunk, block in rows.chunks(_CHUNK)
    ]
    return torch.cat(found)


def _nmi(labels: Tensor, found: Tensor, n_clusters: int) -> float:
    table: NDArray[np.int64] = (
        torch.bincount(labels * n_clusters + found, minlength=n_clusters**2).view(n_clusters, n_clusters).cpu().numpy()
    )
    return nmi_of_table(table)
