"""Large data: exact epochs on planted graphs of up to a hundred million rows, ingest, and a fit of a store.

Ingest and the fit of a store run the command in a process of its own, whose anonymous memory is watched: pages of files
are the system's to give back.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamc.config import FitConfig
from pamc.data.database import load_duckdb
from pamc.graph.positives import PositivePairs
from pamc.initialize.sample import Sample, initialize_from_sample, sampled_rows
from pamc.lab.cell import Cell, Row, Scope, bench_cells, register_case
from pamc.lab.measure import peak_memory, release, reset_peak, timed_s, wait
from pamc.lab.rows import fitted_row
from pamc.lab.settings import kind_of_device
from pamc.models.loader import FeatureLoader, encode_rows
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.progress import SilentProgress
from pamc.results.metrics import nmi_of_table
from pamc.runtime import resolve_row_dtype
from pamc.training.trainer import EpochRecord, train

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
    return [fitted_row(fitted, "n_nodes", "seconds")]


def cells(scope: Scope) -> list[Cell]:
    """Return a cell per size."""
    on_gpu = kind_of_device(scope.device) == "cuda"
    sizes = _QUICK_SIZES if scope.quick else _SIZES if on_gpu else _SIZES_ON_CPU
    parameters = {**_PARAMETERS, **(_QUICK if scope.quick else {}), "precision": "bfloat16" if on_gpu else "auto"}
    return bench_cells(scope, "scale", (("pamc", {"n_nodes": n_nodes, **parameters}) for n_nodes in sizes))


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


# Rows whose features are drawn at a time.
_DRAWN_AT_A_TIME = 1 << 21


class Planted(NamedTuple):
    """Rows (N, d) in blocks, joined mostly inside their block, and (N,) the block of each, for the metrics alone."""

    features: Tensor
    pairs: PositivePairs
    labels: Tensor


def planted(
    n_nodes: int,
    *,
    n_clusters: int,
    n_features: int,
    n_neighbors: int,
    inside: float,
    noise: float,
    device: torch.device,
    dtype: torch.dtype,
    seed: int = 0,
) -> Planted:
    """Return a graph whose every row has `n_neighbors` neighbors, a share `inside` of them in its own block.

    Neighbors come in twos: all rows, or those of each block, are put in a ring of random order, and a row is joined
    with the one before and the one behind it. So the graph is symmetric as it is made, without a sort of all edges, and
    the ends of edges are uniform at random. A pair may be joined by two rings, rarely, and then counts twice. O(N·(d +
    n_neighbors)) time and memory.

    Parameters
    ----------
    n_neighbors
        Even.
    noise
        Standard deviation of each feature around the center of the block, whose own is 1.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    labels = torch.arange(n_nodes, device=device).mul_(n_clusters).div_(n_nodes, rounding_mode="floor")
    first = torch.searchsorted(labels, torch.arange(n_clusters + 1, device=device))
    indices = torch.empty(n_nodes, n_neighbors, dtype=torch.int32, device=device)
    n_rings = n_neighbors // 2
    for number in range(n_rings):
        if number < round(inside * n_rings):
            # Blocks are whole ranges of rows: sorted by block first, the rows of each are only shuffled.
            key = torch.rand(n_nodes, generator=generator, device=device, dtype=torch.float64).add_(labels)
            order = key.argsort()
            del key
            behind = order.roll(-1)
            behind[first[1:] - 1] = order[first[:-1]]
        else:
            order = torch.randperm(n_nodes, generator=generator, device=device)
            behind = order.roll(-1)
        indices[order, 2 * number] = behind.int()
        indices[behind, 2 * number + 1] = order.int()
        del order, behind
    indptr = torch.arange(0, n_nodes * n_neighbors + 1, n_neighbors, device=device)
    centers = torch.randn(n_clusters, n_features, generator=generator, device=device)
    features = torch.empty(n_nodes, n_features, dtype=dtype, device=device)
    for start in range(0, n_nodes, _DRAWN_AT_A_TIME):
        own = slice(start, min(start + _DRAWN_AT_A_TIME, n_nodes))
        drawn = torch.randn(own.stop - own.start, n_features, generator=generator, device=device)
        features[own] = drawn.mul_(noise).add_(centers[labels[own]])
    return Planted(features, PositivePairs.even(indptr, indices.view(-1)), labels)


_PAMC = (sys.executable, "-m", "pamc")

_MEMORY = {"pamc ingest": "2GB", "sort | uniq": "1G"}
_EDGES = {"n_nodes": 2_000_000, "n_edges": 50_000_000, "ids": "strings"}
_QUICK_EDGES = {"n_nodes": 200, "n_edges": 1_000, "ids": "strings"}
_WATCH_EVERY_S = 0.02

_BLOCKS = {"n_nodes": 1_000_000, "n_features": 512, "n_clusters": 10, "n_epochs": 5, "memory": "1.5GB"}
_QUICK_BLOCKS = {**_BLOCKS, "n_nodes": 60_000, "n_features": 8, "n_clusters": 3, "n_epochs": 2}
_WHOLE_FIT_EPOCHS = 200


def ingest_cells(scope: Scope) -> list[Cell]:
    """Return a cell of the ingest and one of the sort."""
    sizes = _QUICK_EDGES if scope.quick else _EDGES
    return bench_cells(scope, "ingest", ((name, {**sizes, "memory": memory}) for name, memory in _MEMORY.items()))


@register_case("ingest", "ingest of edges between string ids, beside sort", cells=ingest_cells, in_all=False)
def ingest(cell: Cell, device: str) -> dict[str, Any]:
    """Return time and memory of `pamc ingest`, or of sort and uniq, which find repeated lines and nothing more."""
    n_edges, memory = cell.parameters["n_edges"], cell.parameters["memory"]
    place = _files(cell.parameters["n_nodes"], n_edges)
    rows, edges, store, printed = (Path(place.name, name) for name in ("rows.csv", "edges.csv", "store", "printed"))
    if cell.provider == "pamc ingest":
        command = [*_PAMC, "ingest", str(rows), str(edges), "--id", "id", "--out", str(store)]
        values, text = _watched([*command, "--memory", memory, "--quiet", "--json"], printed)
        found = json.loads(text)
        values |= {"n_stored": found["n_stored"], "store_bytes": found["bytes"]}
        shutil.rmtree(store)
    else:
        sort = f"sort -S {memory} --parallel=2 -T {place.name} {edges} | uniq | wc -l"
        values, text = _watched(["sh", "-c", sort], printed, {"LC_ALL": "C"})
        values |= {"n_lines": int(text)}
    rate = n_edges / values["seconds"]
    return {**values, "edges_per_s": rate, "edge_file_bytes": edges.stat().st_size}


@lru_cache(maxsize=1)
def _files(n_nodes: int, n_edges: int) -> tempfile.TemporaryDirectory[str]:
    """Return a folder with rows and random edges, which both providers read; it is removed when the process ends."""
    place = tempfile.TemporaryDirectory()
    folder = Path(place.name)
    rows, edges = folder / "rows.csv", folder / "edges.csv"
    name = "'user-' || lpad(({})::VARCHAR, 8, '0')"
    # A prime that divides no round number of nodes: names are in another order than in the alphabet.
    shuffled = name.format(f"i * 7919 % {n_nodes}")
    end = name.format(f"floor(random() * {n_nodes})::BIGINT")
    limits = {"threads": 2, "memory_limit": "1GB", "temp_directory": str(folder)}
    with load_duckdb("edge files are written").connect(config=limits) as connection:
        connection.execute("SET preserve_insertion_order = false")
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            f"COPY (SELECT {shuffled} AS id, random()::FLOAT AS f0, random()::FLOAT AS f1 FROM range({n_nodes}) t(i)) "
            f"TO '{rows}' (HEADER)"
        )
        connection.execute(
            f"COPY (SELECT {end} AS source, {end} AS target FROM range({n_edges}) t(i)) TO '{edges}' (HEADER)"
        )
    return place


def _watched(command: list[str], output: Path, environment: dict[str, str] | None = None) -> tuple[dict[str, Any], str]:
    """Run a command and return its time and the most anonymous memory of all its processes, and what it printed."""
    started, peak = time.perf_counter(), 0
    with output.open("w") as file:
        process = subprocess.Popen(command, stdout=file, env={**os.environ, **(environment or {})})
        while process.poll() is None:
            peak = max(peak, _anonymous_bytes(process.pid))
            time.sleep(_WATCH_EVERY_S)
    seconds = time.perf_counter() - started
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return {"seconds": seconds, "peak_anonymous_bytes": peak}, output.read_text()


def _anonymous_bytes(pid: int) -> int:
    """Return the anonymous memory of a process and its children, 0 for one that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    own = next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon")), 0)
    return own + sum(_anonymous_bytes(int(child)) for child in children)


@register_case(
    "large-fit",
    "a fit of a store that is never in memory",
    cells=lambda scope: bench_cells(scope, "large-fit", [("pamc fit", _QUICK_BLOCKS if scope.quick else _BLOCKS)]),
    in_all=False,
)
def large_fit(cell: Cell, device: str) -> dict[str, Any]:
    """Stream a block model into a store, and return time and memory of a few epochs of `pamc fit` on it."""
    sizes, n_epochs = cell.parameters, cell.parameters["n_epochs"]
    with tempfile.TemporaryDirectory() as place:
        store, run = Path(place, "store"), Path(place, "run")
        shape = [f"--{name.replace('_', '-')}={sizes[name]}" for name in ("n_nodes", "n_features", "n_clusters")]
        subprocess.run([*_PAMC, "synthesize", *shape, "--out", str(store)], check=True, capture_output=True)
        command = [*_PAMC, "fit", str(store), "--n-clusters", str(sizes["n_clusters"]), "--epochs", str(n_epochs)]
        command += ["--memory", sizes["memory"], "--device", "cpu", "--out", str(run), "--quiet", "--json"]
        values, text = _watched(command, Path(place, "printed"))
        found, record = json.loads(text), json.loads((run / "run.json").read_text(encoding="utf-8"))
    phases: dict[str, Any] = found["seconds"]
    epoch_s = phases["training"] / n_epochs
    return {
        **values,
        "phases": phases,
        "epoch_s": epoch_s,
        "whole_fit_s": values["seconds"] + (_WHOLE_FIT_EPOCHS - n_epochs) * epoch_s,
        "planned_bytes": record["facts"]["planned_bytes"],
        "nmi": found["metrics"]["nmi"],
        "acc": found["metrics"]["acc"],
    }
