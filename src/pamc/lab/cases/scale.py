"""Large data: exact epochs on planted graphs of up to a hundred million rows, ingest, and a fit of a store.

Ingest and the fit of a store run the command in its own process. Their anonymous memory is measured, because the system
can reclaim the pages of files.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from pamc.config import FitConfig
from pamc.data.customers import make_customers
from pamc.data.database import load_duckdb
from pamc.data.preprocessing import Preprocessing
from pamc.data.store import open_store
from pamc.estimator.pamcgc import PamCGC
from pamc.graph.positives import PositivePairs
from pamc.initialize.sample import Sample, initialize_from_sample, sampled_rows
from pamc.lab.cell import Cell, Row, Scope, register_case
from pamc.lab.measure import peak_memory, release, reset_peak, timed_s, wait
from pamc.lab.rows import fitted_row
from pamc.lab.settings import bench_cells, kind_of_device
from pamc.models.loader import FeatureLoader, encode_rows
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.ops.scores import adjusted_rand
from pamc.progress import SilentProgress
from pamc.results.metrics import nmi_of_table
from pamc.runtime import resolve_row_dtype
from pamc.training.trainer import EpochRecord, train

Result = TypeVar("Result")

_SIZES = (10_000, 100_000, 1_000_000, 10_000_000, 111_000_000)
_SIZES_ON_CPU = (10_000, 100_000)
_QUICK_SIZES = (2_000, 4_000)

_PARAMETERS = {"n_features": 128, "n_neighbors": 28, "n_clusters": 50, "inside": 0.8, "noise": 3.0}
_QUICK = {"n_features": 16, "n_clusters": 5}
_HIDDEN, _QUICK_HIDDEN, _N_DIMS = (500, 500, 2000), (32, 32), 10

# Number of rows encoded at a time, with activations of 3 GiB in bfloat16.
_CHUNK = 1 << 19

# Number of warm-up epochs, minimum and maximum number of measured epochs, and their time budget in seconds.
_WARM_UP, _LEAST_EPOCHS, _MOST_EPOCHS, _BUDGET_S = 2, 5, 200, 10.0

# Number of epochs of a whole fit, as with the default settings.
_EPOCHS, _QUICK_EPOCHS = 50, 4

# Exponents are fitted to sizes of at least this many rows, where fixed costs are negligible.
_LEAST_FITTED = 1_000_000


def exponents(rows: Sequence[Row]) -> list[Row]:
    """Return the exponents of time and memory over the larger sizes if there are at least three."""
    larger = [row for row in rows if row["parameters"]["n_nodes"] >= _LEAST_FITTED]
    return [fitted_row(larger, "n_nodes", "seconds")] if len(larger) >= 3 else []


def cells(
    scope: Scope,
    *,
    case: str = "scale",
    sizes_on_gpu: Sequence[int] = _SIZES,
    sizes_on_cpu: Sequence[int] = _SIZES_ON_CPU,
) -> list[Cell]:
    """Return a cell per size."""
    on_gpu = kind_of_device(scope.device) == "cuda"
    sizes = _QUICK_SIZES if scope.quick else sizes_on_gpu if on_gpu else sizes_on_cpu
    parameters = {**_PARAMETERS, **(_QUICK if scope.quick else {}), "precision": "bfloat16" if on_gpu else "auto"}
    return bench_cells(scope, case, [("pamc", {"n_nodes": n_nodes, **parameters}) for n_nodes in sizes])


@register_case(
    "scale",
    "exact epochs on planted graphs of up to 111 million rows: time, memory and NMI",
    cells=cells,
    sum_up=exponents,
)
def scale_values(cell: Cell, device_name: str) -> dict[str, Any]:
    """Return the time of an epoch and of its parts, peak memory, and the NMI of labels and planted blocks."""
    device = torch.device(device_name)
    options, config, row_dtype = _problem(cell, device)
    n_clusters = config.n_clusters
    with peak_memory(device) as peak:
        started = time.perf_counter()
        graph = planted(**options, device=device, dtype=row_dtype)
        wait(device)
        created = time.perf_counter()
        rows = FeatureLoader(graph.features, device=device, dtype=row_dtype)
        model = _initialized(graph, config, device, row_dtype)
        wait(device)
        initialized = time.perf_counter()
        nmi_at_start = _nmi(graph.labels, _labels(model, rows), n_clusters)
        reset_peak(device)
        records = _trained(model, rows, config, most=_LEAST_EPOCHS if cell.quick else _MOST_EPOCHS)
        wait(device)
    parts = _parts(model, rows, device)
    labels = _labels(model, rows)
    return {
        "seconds": float(np.median([record.seconds for record in records[_WARM_UP:]])),
        **parts,
        "seconds_to_make": created - started,
        "seconds_to_start": initialized - created,
        "peak_bytes": peak.n_bytes,
        "n_stored": graph.pairs.n_pairs,
        "n_epochs": len(records),
        "first_loss": records[0].values["loss"],
        "last_loss": records[-1].values["loss"],
        "nmi_at_start": nmi_at_start,
        "nmi": _nmi(graph.labels, labels, n_clusters),
        "n_assigned": int((labels >= 0).sum()),
        "chunk_size": _CHUNK,
    }


@register_case(
    "scale-fit",
    "a whole fit of 111 million rows on one GPU, by phase",
    cells=partial(cells, case="scale-fit", sizes_on_gpu=_SIZES[-1:], sizes_on_cpu=_SIZES_ON_CPU[:1]),
    in_all=False,
)
def scale_fit(cell: Cell, device_name: str) -> dict[str, Any]:
    """Return the times of initialization, of all epochs and of the labels, peak memory, and the NMI of the labels."""
    device = torch.device(device_name)
    options, config, row_dtype = _problem(cell, device)
    graph = planted(**options, device=device, dtype=row_dtype)
    rows = FeatureLoader(graph.features, device=device, dtype=row_dtype)
    phases: dict[str, float] = {}

    def timed(name: str, step: Callable[[], Result]) -> Result:
        started = time.perf_counter()
        result = step()
        wait(device)
        phases[name] = time.perf_counter() - started
        return result

    with peak_memory(device) as peak:
        wait(device)
        model = timed("initialization", lambda: _initialized(graph, config, device, row_dtype))
        n_epochs = _QUICK_EPOCHS if cell.quick else _EPOCHS
        records = timed("training", lambda: _trained(model, rows, config, most=n_epochs - _WARM_UP, budget_s=math.inf))
        labels = timed("labels", lambda: _labels(model, rows))
    nmi = _nmi(graph.labels, labels, config.n_clusters)
    shape = {"n_stored": graph.pairs.n_pairs, "n_epochs": len(records), "peak_bytes": peak.n_bytes}
    return {"seconds": sum(phases.values()), "phases": phases, **shape, "nmi": nmi}


def _problem(cell: Cell, device: torch.device) -> tuple[dict[str, Any], FitConfig, torch.dtype]:
    """Return the options of the planted graph of a cell, the settings of its fit, and the type of its rows."""
    release(device)
    options: dict[str, Any] = dict(cell.parameters)
    precision = options.pop("precision")
    sizes: dict[str, Any] = {"n_clusters": options["n_clusters"], "n_dims": _N_DIMS, "chunk_size": _CHUNK}
    sizes["hidden"] = _QUICK_HIDDEN if cell.quick else _HIDDEN
    config = FitConfig(**sizes, n_hops=1, batch_size=256, precision=precision, alpha=1.0, embedding_scale=2.0)
    return options, config, resolve_row_dtype(precision, device)


def _initialized(graph: Planted, config: FitConfig, device: torch.device, dtype: torch.dtype) -> PamCGCModel:
    """Return the model, initialized from a sample of the rows."""
    numbers = torch.from_numpy(sampled_rows(*graph.features.shape, seed=0)).to(device)
    features = graph.features[numbers].float()
    degree = int(graph.pairs.indptr[1])
    neighbors = graph.pairs.indices.view(-1, degree)[numbers].long()
    sums = features.clone()
    for column in range(degree):
        sums += graph.features[neighbors[:, column]]
    means = (sums / (degree + 1)).cpu().numpy()
    sample = Sample(features.cpu().numpy(), lambda: means, Preprocessing("scale"))
    start, centers = initialize_from_sample(
        sample, config, seed=0, device=device, dtype=dtype, progress=SilentProgress()
    )
    return PamCGCModel(start.encoder, centers, graph.pairs, config)


def _trained(
    model: PamCGCModel, rows: FeatureLoader, config: FitConfig, *, most: int, budget_s: float = _BUDGET_S
) -> list[EpochRecord]:
    """Return the records of as many epochs as fit into the time budget."""
    records = []
    ends_at = time.perf_counter() + budget_s
    for record in train(model, rows, n_epochs=_WARM_UP + most, lr=config.lr, chunk_size=_CHUNK):
        # Drop the labels, which would add up over the epochs.
        records.append(replace(record, labels=None))
        if len(records) >= _WARM_UP + _LEAST_EPOCHS and time.perf_counter() > ends_at:
            break
    return records


def _parts(model: PamCGCModel, rows: FeatureLoader, device: torch.device) -> dict[str, float]:
    """Return the separate times of encoding all rows and of the loss with its gradient."""
    z = encode_rows(model.encoder, rows, chunk_size=_CHUNK).requires_grad_()

    def loss() -> None:
        z.grad = None
        torch.autograd.backward(model.objective(z).total)

    values = {}
    for name, step in (("encode_s", lambda: encode_rows(model.encoder, rows, chunk_size=_CHUNK)), ("loss_s", loss)):
        step()
        values[name] = timed_s(step, device)
    z.grad = model.centers.grad = None
    return values


@torch.no_grad()
def _labels(model: PamCGCModel, rows: FeatureLoader) -> Tensor:
    """Return (N,) the nearest center of every row, computed in chunks."""
    chunks = [
        torch.cdist(model.encoder(block)[: chunk.stop - chunk.start], model.centers).argmin(dim=1)
        for chunk, block in rows.chunks(_CHUNK)
    ]
    return torch.cat(chunks)


def _nmi(truth: Tensor, labels: Tensor, n_clusters: int) -> float:
    counts = torch.bincount(truth * n_clusters + labels, minlength=n_clusters**2)
    return nmi_of_table(counts.view(n_clusters, n_clusters).cpu().numpy())


# Number of rows whose features are drawn at a time.
_DRAWN_AT_A_TIME = 1 << 21


class Planted(NamedTuple):
    """Features (N, d) of rows in blocks, pairs mostly within blocks, and (N,) the true blocks, used only in metrics."""

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
    """Return a graph in which every row has `n_neighbors` neighbors, a share `inside` of them in its own block.

    Neighbors come in pairs: all rows, or those of each block, form a ring in random order, and each row is connected to
    its predecessor and its successor. The graph is therefore symmetric without sorting all edges, and the ends of edges
    are uniformly random. Rarely, two rings connect the same pair, which then counts twice. O(N·(d + n_neighbors)) time
    and memory.

    Parameters
    ----------
    n_neighbors
        Number of neighbors per row; must be even.
    noise
        Standard deviation of each feature around the center of the block; that of the centers is 1.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    labels = torch.arange(n_nodes, device=device).mul_(n_clusters).div_(n_nodes, rounding_mode="floor")
    first = torch.searchsorted(labels, torch.arange(n_clusters + 1, device=device))
    indices = torch.empty(n_nodes, n_neighbors, dtype=torch.int32, device=device)
    n_rings = n_neighbors // 2
    for number in range(n_rings):
        if number < round(inside * n_rings):
            # Blocks are contiguous ranges, so sorting by block and a random number only shuffles within blocks.
            key = torch.rand(n_nodes, generator=generator, device=device, dtype=torch.float64).add_(labels)
            order = key.argsort()
            del key
            successor = order.roll(-1)
            successor[first[1:] - 1] = order[first[:-1]]
        else:
            order = torch.randperm(n_nodes, generator=generator, device=device)
            successor = order.roll(-1)
        indices[order, 2 * number] = successor.int()
        indices[successor, 2 * number + 1] = order.int()
        del order, successor
    indptr = torch.arange(0, n_nodes * n_neighbors + 1, n_neighbors, device=device)
    centers = torch.randn(n_clusters, n_features, generator=generator, device=device)
    features = torch.empty(n_nodes, n_features, dtype=dtype, device=device)
    for start in range(0, n_nodes, _DRAWN_AT_A_TIME):
        block = slice(start, min(start + _DRAWN_AT_A_TIME, n_nodes))
        drawn = torch.randn(block.stop - block.start, n_features, generator=generator, device=device)
        features[block] = drawn.mul_(noise).add_(centers[labels[block]])
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
    """Return a cell for the ingest and one for the sort."""
    sizes = _QUICK_EDGES if scope.quick else _EDGES
    return bench_cells(scope, "ingest", [(name, {**sizes, "memory": memory}) for name, memory in _MEMORY.items()])


@register_case("ingest", "ingest of edges between string ids, compared with sort", cells=ingest_cells, in_all=False)
def ingest(cell: Cell, device: str) -> dict[str, Any]:
    """Return time and memory of `pamc ingest`, or of sort and uniq, which only find repeated lines."""
    n_edges, memory = cell.parameters["n_edges"], cell.parameters["memory"]
    folder = _files(cell.parameters["n_nodes"], n_edges)
    rows, edges, store = (Path(folder.name, name) for name in ("rows.csv", "edges.csv", "store"))
    if cell.provider == "pamc ingest":
        command = [*_PAMC, "ingest", str(rows), str(edges), "--id", "id", "--out", str(store)]
        values, text = _watched([*command, "--memory", memory, "--quiet", "--json"])
        summary = json.loads(text)
        values |= {"n_stored": summary["n_stored"], "store_bytes": summary["bytes"]}
        shutil.rmtree(store)
    else:
        sort = f"export LC_ALL=C; sort -S {memory} --parallel=2 -T {folder.name} {edges} | uniq | wc -l"
        values, text = _watched(["sh", "-c", sort])
        values |= {"n_lines": int(text)}
    return {**values, "edges_per_s": n_edges / values["seconds"], "edge_file_bytes": edges.stat().st_size}


@lru_cache(maxsize=1)
def _files(n_nodes: int, n_edges: int) -> tempfile.TemporaryDirectory[str]:
    """Return a folder with rows and random edges for both providers; it is removed when the process ends."""
    folder = tempfile.TemporaryDirectory()
    rows, edges = Path(folder.name, "rows.csv"), Path(folder.name, "edges.csv")
    name = "'user-' || lpad(({})::VARCHAR, 8, '0')"
    # The prime is coprime to round numbers of nodes, so the ids are not in alphabetical order.
    shuffled = name.format(f"i * 7919 % {n_nodes}")
    end = name.format(f"floor(random() * {n_nodes})::BIGINT")
    limits = {"threads": 2, "memory_limit": "1GB", "temp_directory": folder.name}
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
    return folder


def _watched(command: list[str]) -> tuple[dict[str, Any], str]:
    """Run a command and return its time, the peak anonymous memory of all its processes, and its short output."""
    started, peak = time.perf_counter(), 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            peak = max(peak, _anonymous_bytes(process.pid))
            time.sleep(_WATCH_EVERY_S)
        seconds = time.perf_counter() - started
        output, _ = process.communicate()
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return {"seconds": seconds, "peak_anonymous_bytes": peak}, output


def _anonymous_bytes(pid: int) -> int:
    """Return the anonymous memory of a process and its children, or 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    anonymous = next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon")), 0)
    return anonymous + sum(_anonymous_bytes(int(child)) for child in children)


@register_case(
    "large-fit",
    "fit of a store that is larger than memory",
    cells=lambda scope: bench_cells(scope, "large-fit", [("pamc fit", _QUICK_BLOCKS if scope.quick else _BLOCKS)]),
    in_all=False,
)
def large_fit(cell: Cell, device: str) -> dict[str, Any]:
    """Return time and memory of a few epochs of `pamc fit` on a store of a synthetic block model."""
    sizes, n_epochs = cell.parameters, cell.parameters["n_epochs"]
    with tempfile.TemporaryDirectory() as folder:
        store, run = Path(folder, "store"), Path(folder, "run")
        shape = [f"--{name.replace('_', '-')}={sizes[name]}" for name in ("n_nodes", "n_features", "n_clusters")]
        subprocess.run([*_PAMC, "synthesize", *shape, "--out", str(store)], check=True, capture_output=True)
        command = [*_PAMC, "fit", str(store), "--n-clusters", str(sizes["n_clusters"]), "--epochs", str(n_epochs)]
        command += ["--memory", sizes["memory"], "--device", "cpu", "--out", str(run), "--quiet", "--json"]
        values, text = _watched(command)
        result, record = json.loads(text), json.loads((run / "run.json").read_text(encoding="utf-8"))
    epoch_s = result["seconds"]["training"] / n_epochs
    return {
        **values,
        "phases": result["seconds"],
        "epoch_s": epoch_s,
        "whole_fit_s": values["seconds"] + (_WHOLE_FIT_EPOCHS - n_epochs) * epoch_s,
        "planned_bytes": record["facts"]["planned_bytes"],
        "nmi": result["metrics"]["nmi"],
        "acc": result["metrics"]["acc"],
    }


_TABLE = {"n_columns": 20, "n_clusters": 4, "memory": "2GB"}
_TABLE_ROWS, _QUICK_TABLE_ROWS = (100_000, 1_000_000), (400,)
_FEW_ROWS = 100


@register_case(
    "mixed-store",
    "ingest, fit and prediction of a large table of mixed types",
    cells=lambda scope: bench_cells(scope, "mixed-store", [("pamc", size) for size in _tables(scope.quick)]),
    in_all=False,
)
def mixed_store(cell: Cell, device: str) -> dict[str, Any]:
    """Return time and memory of `pamc ingest` and `pamc fit`, the throughput of `pamc predict`, and the ARI.

    Half of the columns describe customers with planted segments; the other half are shuffled column by column. The
    ingested CSV file has texts in all columns, and the Parquet file whose rows are assigned has numbers, Boolean values
    and dates. The throughput excludes the time that the command takes for a few rows.
    """
    sizes = cell.parameters
    with tempfile.TemporaryDirectory() as folder:
        texts, table, few, store, run = (
            Path(folder, name) for name in ("rows.csv", "rows.parquet", "few.parquet", "store", "run")
        )
        segments = _write_customers(texts, table, few, sizes["n_rows"])
        options = ["--memory", sizes["memory"], "--quiet", "--json"]
        ingested, _ = _watched([*_PAMC, "ingest", str(texts), "--out", str(store), *options])
        fitting = [*_PAMC, "fit", str(store), "--n-clusters", str(sizes["n_clusters"]), "--out", str(run)]
        fitted, text = _watched([*fitting, "--device", "cpu", "--no-report", *options])
        predicting = [*_PAMC, "predict", str(run)]
        predicted, started = (
            _watched([*predicting, str(rows), "--out", str(rows.with_suffix(".labels.csv"))])[0]
            for rows in (table, few)
        )
        labels = PamCGC.load(run).labels_
        n_features = len(open_store(store).feature_names or ())
    return {
        "seconds": ingested["seconds"] + fitted["seconds"],
        "ingest_s": ingested["seconds"],
        "fit_s": fitted["seconds"],
        "phases": json.loads(text)["seconds"],
        "n_features": n_features,
        "peak_anonymous_bytes": max(ingested["peak_anonymous_bytes"], fitted["peak_anonymous_bytes"]),
        "predict_peak_anonymous_bytes": predicted["peak_anonymous_bytes"],
        "predicted_rows_per_s": sizes["n_rows"] / max(predicted["seconds"] - started["seconds"], 1e-3),
        "ari": adjusted_rand(segments, labels),
    }


# The types of the columns of customers that are not texts.
_STORED_AS = {
    "age": "DOUBLE",
    "basket": "DOUBLE",
    "first_order": "DATE",
    "newsletter": "BOOLEAN",
    "subscriber": "BOOLEAN",
    "visits": "DOUBLE",
}


def _tables(quick: bool) -> list[dict[str, Any]]:
    return [{"n_rows": n_rows, **_TABLE} for n_rows in (_QUICK_TABLE_ROWS if quick else _TABLE_ROWS)]


def _write_customers(texts: Path, table: Path, few: Path, n_rows: int) -> np.ndarray[Any, Any]:
    """Write customers with as many unrelated columns to three files, and return their segments.

    The columns of the file `texts` are texts; those of `table`, and of `few`, which has only a few rows, have types.
    """
    customers, others = make_customers(n_rows, random_state=0), make_customers(n_rows, random_state=1)
    # Each column is shuffled separately; otherwise these columns would have clusters of their own.
    rng = np.random.default_rng(2)
    unrelated = {
        f"other_{name}": rng.permutation(texts) for name, texts in others.columns.items() if name != "customer_id"
    }
    columns = {**customers.columns, **unrelated, "customer_id": np.array([f"C{i:08d}" for i in range(n_rows)])}
    with load_duckdb("files are written").connect() as connection:
        connection.register("columns", columns)
        connection.execute(f"COPY (SELECT * FROM columns) TO '{texts}'")
        typed = ", ".join(_typed_sql(name) for name in columns)
        connection.execute(f"COPY (SELECT {typed} FROM columns) TO '{table}'")
        connection.execute(f"COPY (SELECT {typed} FROM columns LIMIT {_FEW_ROWS}) TO '{few}'")
    return customers.segments


def _typed_sql(name: str) -> str:
    """Return a SQL expression for a column of customers with its type."""
    column = name.removeprefix("other_")
    if column == "revenue":
        return f"CAST(replace({name}, ',', '') AS DOUBLE) AS {name}"
    return f"CAST({name} AS {_STORED_AS.get(column, 'VARCHAR')}) AS {name}"
