"""Generated parts of `docs/scale.md`, from rows and from the planner."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from pamc.config import preset
from pamc.data.files import size_text
from pamc.distributed.scatter import bytes_per_epoch
from pamc.errors import ConfigError
from pamc.lab.cell import Row
from pamc.lab.pages import Part, joined, origin
from pamc.lab.pages.style import MISSING, PALETTE, bytes_text, drawing, legend, save_figure, time_text
from pamc.lab.rows import machine_of, stored
from pamc.results.table import Table
from pamc.training.plan import plan_fit

_GIB = 1 << 30

# Sizes of the estimate: a billion rows, as many neighbors per row as were measured, machines with eight GPUs.
_PLANNED = {"n_nodes": 10**9, "n_features": 128, "n_neighbors": 28, "n_clusters": 50}
_GPU_BYTES, _MACHINES, _GPUS = 141 * 10**9, 8, 8
_LINK_BYTES_PER_S = 50e9


def _epochs(rows: Sequence[Row], folder: Path) -> str:
    """Return time and memory of epochs over N with their exponents, and draw them."""
    good = [row for row in rows if row["error"] is None]
    points = sorted((row for row in good if "seconds" in row["values"]), key=lambda row: row["parameters"]["n_nodes"])
    n_nodes = [row["parameters"]["n_nodes"] for row in points]
    with drawing(1, 2, size=(9.6, 3.4)) as (figure, ((time, memory),)):
        for name, label, color in (
            ("seconds", "epoch", PALETTE[0]),
            ("encode_s", "first pass of the encoder", PALETTE[1]),
            ("loss_s", "loss and its gradient", PALETTE[4]),
        ):
            time.plot(n_nodes, [row["values"][name] for row in points], marker="o", color=color, label=label)
        memory.plot(n_nodes, [row["values"]["peak_bytes"] / _GIB for row in points], marker="o", color=PALETTE[0])
        for panel, title in ((time, "time (s)"), (memory, "peak memory (GiB)")):
            panel.set(xscale="log", yscale="log", xlabel="N", title=title)
        legend(figure, time)
        save_figure(figure, folder, "epochs", rows=points, note=f"{machine_of(points[0])}.")
    columns = ["rows", "stored neighbors", "epoch", "first pass", "loss", "memory", "initialization", "epochs", "NMI"]
    body = []
    for row in points:
        values = row["values"]
        times = [time_text(values[name]) for name in ("seconds", "encode_s", "loss_s")]
        sizes = [f"{row['parameters']['n_nodes']:,}", f"{values['n_stored']:,}"]
        costs = [f"{values['peak_bytes'] / _GIB:.1f} GiB", time_text(values["seconds_to_start"])]
        body.append([*sizes, *times, *costs, str(values["n_epochs"]), f"{values['nmi']:.2f}"])
    (fitted,) = [row for row in good if "time_exponent" in row["values"]]
    low, high = fitted["parameters"]["n_nodes"]
    growth = (
        f"From {low:,} to {high:,} rows, time grows as N to the power of {fitted['values']['time_exponent']:.2f} and "
        f"memory as N to the power of {fitted['values']['memory_exponent']:.2f}: with few rows, chunks take most of it."
    )
    return joined(Table(columns, body).markdown(), growth, origin(points))


def _whole_fit(rows: Sequence[Row], folder: Path) -> str:
    """Return the time of each phase of a whole fit on one GPU."""
    values, sizes = rows[-1]["values"], rows[-1]["parameters"]
    phases = ", ".join(f"{name} {time_text(seconds)}" for name, seconds in values["phases"].items())
    return (
        f"A whole fit of {sizes['n_nodes']:,} rows with {values['n_stored']:,} neighbors, {values['n_epochs']} epochs, "
        f"took {values['seconds'] / 60:.1f} minutes and {bytes_text(values['peak_bytes'])} ({phases}); NMI "
        f"{values['nmi']:.2f}. `pamc bench scale-fit`"
    )


def _large_fit(rows: Sequence[Row], folder: Path) -> str:
    """Return memory and time of fits to stores that are larger than the memory limit."""
    columns = ["rows", "limit", "planned", "anonymous", "initialization", "graph", "epoch", "run", "200 epochs", "NMI"]
    body = []
    for row in rows:
        sizes, values = row["parameters"], row["values"]
        memory = [bytes_text(values[name]) for name in ("planned_bytes", "peak_anonymous_bytes")]
        phases = [values["phases"]["start"], values["phases"]["graph"], values["epoch_s"]]
        totals = [f"{values['seconds'] / 60:.1f} min", f"{values['whole_fit_s'] / 3600:.1f} h"]
        shape = f"{sizes['n_nodes']:,} × {sizes['n_features']}"
        body.append([shape, sizes["memory"], *memory, *map(time_text, phases), *totals, f"{values['nmi']:.2f}"])
    return joined(Table(columns, body).markdown(), origin(rows))


def _mixed_store(rows: Sequence[Row], folder: Path) -> str:
    """Return time and memory of the ingest and the fit of tables of mixed types, and the throughput of predictions."""
    columns = ["rows", "encoded columns", "limit", "anonymous", "ingest", "fit", "predicted rows per s", "ARI"]
    body = []
    for row in rows:
        sizes, values = row["parameters"], row["values"]
        times = [time_text(values["ingest_s"]), f"{values['fit_s'] / 60:.1f} min"]
        memory = [sizes["memory"], bytes_text(values["peak_anonymous_bytes"])]
        shape = [f"{sizes['n_rows']:,} × {sizes['n_columns']}", str(values["n_features"])]
        body.append([*shape, *memory, *times, f"{values['predicted_rows_per_s']:,.0f}", f"{values['ari']:.2f}"])
    return joined(Table(columns, body).markdown(), origin(rows))


def _ingest(rows: Sequence[Row], folder: Path) -> str:
    """Return time and memory of converting edges to a store, for each program."""
    body = []
    for row in rows:
        values, n_edges = row["values"], row["parameters"]["n_edges"]
        rate, memory = f"{values['edges_per_s'] / 1e6:.2f} M", bytes_text(values["peak_anonymous_bytes"])
        body.append(
            [row["provider"], f"{n_edges:,}", row["parameters"]["memory"], time_text(values["seconds"]), rate, memory]
        )
    columns = ["program", "edges", "limit", "time", "edges per s", "anonymous memory"]
    return joined(Table(columns, body).markdown(), origin(rows))


def _neighbors(rows: Sequence[Row], folder: Path) -> str:
    """Return time and recall of neighbor searches."""
    body = []
    for row in rows:
        sizes, recall = row["parameters"], row["values"].get("recall")
        recall_text = MISSING if recall is None else f"{100 * recall:.1f} %"
        time = time_text(row["values"]["seconds"])
        body.append([f"{sizes['n_nodes']:,}", sizes["rows"], row["provider"], time, recall_text])
    return joined(Table(["rows", "data", "search", "time", "recall"], body).markdown(), origin(rows))


def _processes(rows: Sequence[Row], folder: Path) -> str:
    """Return the throughput of two processes, and what each of them sends."""
    values, sent = rows[-1]["values"], rows[-1]["values"]["bytes_per_epoch"]
    parts = ", ".join(f"{name} {size_text(size)}" for name, size in sent.items() if name != "total")
    return (
        f"Two processes with one thread each reach {values['throughput']:.2f} times the throughput of one process "
        f"with two threads on the same cores ({rows[-1]['parameters']['n_nodes']:,} rows, measured in alternation; "
        "other load on the machine slows down threads that wait for each other more than processes). Each process "
        f"sends {size_text(sent['total'])} per epoch: {parts}. `pamc bench processes`"
    )


def _crashes(rows: Sequence[Row], folder: Path) -> str:
    """Return how many killed runs could not be resumed."""
    values = rows[-1]["values"]
    return (
        f"Fits with one process and with two were killed {values['n_kills']} times by SIGKILL, also in the middle of "
        f"writes; with two processes, one or both were killed. {values['resumes_failed']} of these fits could not be "
        f"resumed, and {values['runs_with_other_labels']} of {values['runs_finished']} finished runs had labels that "
        "differ from those of a run without kills. `pamc bench crashes`"
    )


def _on_paper(rows: Sequence[Row], folder: Path) -> str:
    """Return the planner's estimate for a billion rows with one GPU per machine, and with eight."""
    n_nodes, n_clusters = _PLANNED["n_nodes"], _PLANNED["n_clusters"]
    config = preset("paper", data_set="usps", n_clusters=n_clusters, n_hops=1, precision="bfloat16")
    sizes = (n_nodes, _PLANNED["n_features"], n_nodes * _PLANNED["n_neighbors"])
    n_weights = sum(a * b + b for a, b in pairwise((_PLANNED["n_features"], *(config.hidden or ()), 10)))
    options: dict[str, Any] = {"device": torch.device("cuda"), "limit": _GPU_BYTES, "features_on_device": True}
    body = []
    for n_processes in (_MACHINES, _MACHINES * _GPUS):
        sent = bytes_per_epoch(n_nodes, 10, n_clusters, n_weights, n_processes=n_processes)["total"]
        try:
            plan = plan_fit(*sizes, config, n_processes=n_processes, **options)
            needed = ", ".join(f"{name} {size_text(size)}" for name, size in plan.parts.items())
            total = size_text(plan.total)
        except ConfigError as error:
            needed, total = str(error).partition("(")[2].partition(")")[0], f"more than {size_text(_GPU_BYTES)}"
        body.append([str(n_processes), total, needed, size_text(sent), f"{sent / _LINK_BYTES_PER_S:.1f} s"])
    return Table(["processes", "memory of each", "parts", "sent by each per epoch", "time to send"], body).markdown()


SCALE = {
    "scale": Part(partial(stored, "scale", device="cuda"), _epochs),
    "scale-fit": Part(partial(stored, "scale-fit", device="cuda"), _whole_fit),
    "large-fit": Part(partial(stored, "large-fit"), _large_fit),
    "mixed-store": Part(partial(stored, "mixed-store"), _mixed_store),
    "ingest": Part(partial(stored, "ingest"), _ingest),
    "neighbors": Part(partial(stored, "neighbors"), _neighbors),
    "processes": Part(partial(stored, "processes"), _processes),
    "crashes": Part(partial(stored, "crashes"), _crashes),
    "paper": Part(None, _on_paper),
}
