"""The page of large data, made of rows and of the planner: `python -m pamc.lab.pages` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from pamc.config import FitConfig
from pamc.distributed.scatter import bytes_per_epoch
from pamc.errors import ConfigError
from pamc.lab.cell import Row
from pamc.lab.pages.style import PALETTE, bytes_text, drawing, legend, save_figure, time_text
from pamc.lab.rows import machine_of, provenance, stored
from pamc.results.table import Table
from pamc.training.plan import plan_fit, size_text

__all__ = ["scale_page"]

_HEAD = """\
# A hundred million rows

The gradient of every epoch is that of all rows and all positive pairs, at any size: nothing is sampled. Features are
encoded chunk by chunk; what is held is the embedding (N × 10 numbers, a few times) and the neighbors. Every figure is
rendered from the rows in `benchmarks/results/` by `python -m pamc.lab.pages`, or computed by the planner; none is
typed.

```sh
pamc ingest rows.parquet edges.parquet --id user --out users-store     # any size, in 2 GB of memory
pamc fit users-store --n-clusters 50 --memory 8GB --checkpoint-minutes 5
torchrun --nproc-per-node 4 -m pamc fit users-store --n-clusters 50 --out run --checkpoint-minutes 5
pamc synthesize --n-nodes 1e6 --n-features 512 --n-clusters 50 --out blocks-store    # to try it out
```

Stores of more than 50,000 rows are fitted from their files: `fit` says what it will need before it begins, and refuses
what cannot fit. Its start is that of a sample of up to 100,000 rows, each seen beside the mean of its neighbors; γ is
that of one hop, where `--n-hops` does not ask for more (then at most 32 positives a row are kept, and the kept share is
told).
"""

_NOT_YET = "*Not measured yet.*\n"
_GIB = 1 << 30

# On paper: a billion rows, as many neighbors a row as measured, machines of eight GPUs.
_PAPER = {"n_nodes": 10**9, "n_features": 128, "n_neighbors": 28, "n_clusters": 50}
_GPU_BYTES, _MACHINES, _GPUS = 141 * 10**9, 8, 8
_LINK_BYTES_PER_S = 50e9


def scale_page(folder: Path) -> str:
    """Return the page, and draw its figure into a folder."""
    sections = {
        "Epochs on one GPU": _curve(folder),
        "A store on two cores": _on_cpu(),
        "Into a store": _ingest(),
        "Neighbors of rows without a graph": _neighbors(),
        "Several processes": _processes(),
        "A billion rows, on paper": _on_paper(),
    }
    return "\n".join([_HEAD, *(f"## {title}\n\n{text.rstrip()}\n" for title, text in sections.items())])


def _curve(folder: Path) -> str:
    rows = [row for row in stored("scale", device="cuda") if row["error"] is None]
    points = sorted((row for row in rows if "seconds" in row["values"]), key=lambda row: row["parameters"]["n_nodes"])
    if not points:
        return _NOT_YET
    _draw(points, folder)
    shape = points[0]["parameters"]
    about = (
        f"Planted blocks made on the device: {shape['n_features']} features in {shape['precision']}, "
        f"{shape['n_neighbors']} neighbors a row, {100 * shape['inside']:.0f} % of them in its own block, "
        f"{shape['n_clusters']} blocks, the 500-500-2000-10 encoder, one hop. An epoch encodes all rows, takes the "
        "loss and its gradient by z, and encodes them again with a tape. NMI is that of the blocks, which training "
        "does not see, after the epochs shown; of the smallest size all rows are in the sample of the start. "
        "`pamc bench scale`"
    )
    columns = ["rows", "stored neighbors", "epoch", "first pass", "loss", "memory", "start", "epochs", "NMI"]
    body = []
    for row in points:
        values = row["values"]
        body.append(
            [
                f"{row['parameters']['n_nodes']:,}",
                f"{values['n_stored']:,}",
                *(time_text(values[name]) for name in ("seconds", "encode_s", "loss_s")),
                f"{values['peak_bytes'] / _GIB:.1f} GiB",
                time_text(values["seconds_to_start"]),
                str(values["n_epochs"]),
                f"{values['nmi']:.2f}",
            ]
        )
    parts = [about, "![Epochs on one GPU](scale/epochs.png)", Table(columns, body).markdown()]
    for row in rows:
        if "time_exponent" in row["values"]:
            low, high = row["parameters"]["n_nodes"]
            parts.append(
                f"From {low:,} to {high:,} rows, time grows with N to the power of "
                f"{row['values']['time_exponent']:.2f}, memory of {row['values']['memory_exponent']:.2f}: of fewer "
                "rows the chunk takes most of it."
            )
    return "\n\n".join([*parts, f"Rows: {provenance(points)}."])


def _draw(points: Sequence[Row], folder: Path) -> None:
    sizes = [row["parameters"]["n_nodes"] for row in points]
    with drawing(1, 2, size=(9.6, 3.4)) as (figure, axes):
        time, memory = axes[0]
        for name, label, color in (
            ("seconds", "epoch", PALETTE[0]),
            ("encode_s", "first pass of the encoder", PALETTE[1]),
            ("loss_s", "loss and its gradient", PALETTE[4]),
        ):
            time.plot(sizes, [row["values"][name] for row in points], marker="o", color=color, label=label)
        memory.plot(sizes, [row["values"]["peak_bytes"] / _GIB for row in points], marker="o", color=PALETTE[0])
        for panel, title in ((time, "time (s)"), (memory, "peak memory (GiB)")):
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_xlabel("N")
            panel.set_title(title)
        legend(figure, time)
        save_figure(figure, folder, "epochs", rows=points, note=f"{machine_of(points[0])}.")


def _on_cpu() -> str:
    rows = stored("large-fit")
    if not rows:
        return _NOT_YET
    body = []
    for row in rows:
        sizes, values = row["parameters"], row["values"]
        phases = values["phases"]
        body.append(
            [
                f"{sizes['n_nodes']:,} × {sizes['n_features']}",
                f"{sizes['memory']}",
                bytes_text(values["planned_bytes"]),
                bytes_text(values["peak_anonymous_bytes"]),
                *(time_text(phases[name]) for name in ("start", "graph")),
                time_text(values["epoch_s"]),
                f"{values['seconds'] / 60:.1f} min",
                f"{values['whole_fit_s'] / 3600:.1f} h",
                f"{values['nmi']:.2f}",
            ]
        )
    columns = ["rows", "allowed", "planned", "anonymous", "start", "graph", "epoch", "whole run", "200 epochs", "NMI"]
    about = (
        f"`pamc fit` of a streamed block model with {rows[-1]['parameters']['n_epochs']} epochs, from files to labels. "
        "Anonymous memory is what the process cannot give back: pages of the store's files are not in it. "
        "`pamc bench large-fit`"
    )
    return f"{about}\n\n{Table(columns, body).markdown()}\n\nRows: {provenance(rows)}."


def _ingest() -> str:
    rows = stored("ingest")
    if not rows:
        return _NOT_YET
    body = [
        [
            row["provider"],
            f"{row['parameters']['n_edges']:,}",
            row["parameters"]["memory"],
            time_text(row["values"]["seconds"]),
            f"{row['values']['edges_per_s'] / 1e6:.2f} M",
            bytes_text(row["values"]["peak_anonymous_bytes"]),
        ]
        for row in rows
    ]
    about = (
        "Edges between string ids into a symmetric, sorted CSR, beside `sort | uniq` on the same file, which finds "
        "repeated lines and nothing more. `pamc bench ingest`"
    )
    columns = ["", "edges", "allowed", "time", "edges per s", "anonymous memory"]
    return f"{about}\n\n{Table(columns, body).markdown()}\n\nRows: {provenance(rows)}."


def _neighbors() -> str:
    rows = stored("neighbors")
    if not rows:
        return _NOT_YET
    body = []
    for row in rows:
        sizes, values = row["parameters"], row["values"]
        recall = values.get("recall")
        body.append(
            [
                f"{sizes['n_nodes']:,}",
                sizes["rows"],
                row["provider"],
                time_text(values["seconds"]),
                "–" if recall is None else f"{100 * recall:.1f} %",
            ]
        )
    about = (
        "The graph of a table of more than 50,000 rows is nearly the kNN graph: rows are compared with those of the "
        "nearest cells of an inverted file, and the share of true neighbors that was found is measured and kept in the "
        "run's record. `pamc bench neighbors`"
    )
    columns = ["rows", "data", "", "time", "recall"]
    return f"{about}\n\n{Table(columns, body).markdown()}\n\nRows: {provenance(rows)}."


def _processes() -> str:
    parts = []
    for row in stored("processes")[-1:]:
        values, sent = row["values"], row["values"]["bytes_per_epoch"]
        shown = ", ".join(f"{name} {size_text(size)}" for name, size in sent.items() if name != "total")
        parts.append(
            f"Two processes of one thread each do {values['throughput']:.2f} times what one process of two threads "
            f"does on the same cores ({row['parameters']['n_nodes']:,} rows, taken in turn; other work on the machine "
            "costs threads that wait for each other more than processes). Each sends "
            f"{size_text(sent['total'])} an epoch: {shown}. `pamc bench processes`"
        )
    for row in stored("crashes")[-1:]:
        values = row["values"]
        parts.append(
            f"Of {values['n_kills']} kills by SIGKILL, of one process and of one or both of two, in the middle of "
            f"writes too, {values['resumes_failed']} could not be resumed, and {values['runs_with_other_labels']} of "
            f"{values['runs_finished']} runs ended with other labels than without kills. `pamc bench crashes`"
        )
    more = "How to run on several machines and under Slurm, and what checkpoints hold: {doc}`distributed`."
    return "\n\n".join([*(parts or [_NOT_YET]), more])


def _on_paper() -> str:
    config = FitConfig(n_clusters=_PAPER["n_clusters"], n_dims=10, n_hops=1, precision="bfloat16")
    sizes = (_PAPER["n_nodes"], _PAPER["n_features"], _PAPER["n_nodes"] * _PAPER["n_neighbors"])
    layers = (_PAPER["n_features"], *config.hidden, 10)
    n_weights = sum(a * b + b for a, b in pairwise(layers))
    options: dict[str, Any] = {"device": torch.device("cuda"), "limit": _GPU_BYTES, "features_there": True}
    body = []
    for n_processes in (_MACHINES, _MACHINES * _GPUS):
        sent = bytes_per_epoch(_PAPER["n_nodes"], 10, _PAPER["n_clusters"], n_weights, n_processes=n_processes)["total"]
        try:
            plan = plan_fit(*sizes, config, n_processes=n_processes, **options)
            needed = ", ".join(f"{name} {size_text(size)}" for name, size in plan.parts.items())
            total = size_text(plan.total)
        except ConfigError as error:
            needed, total = str(error).partition("(")[2].partition(")")[0], f"more than {size_text(_GPU_BYTES)}"
        seconds = sent / _LINK_BYTES_PER_S
        body.append([str(n_processes), total, needed, size_text(sent), f"{seconds:.1f} s"])
    about = (
        f"{_PAPER['n_nodes']:,} rows of {_PAPER['n_features']} features and {_PAPER['n_neighbors']} stored neighbors "
        f"each on {_MACHINES} machines, with one GPU of {size_text(_GPU_BYTES)} each or with {_GPUS}: what the planner "
        "says that a process needs, what it sends in an epoch, and the time that takes at "
        f"{_LINK_BYTES_PER_S / 1e9:.0f} GB/s, each process on a link of its own. Nothing of this was run."
    )
    columns = ["processes", "memory of each", "of which", "sent by each", "on its link"]
    return f"{about}\n\n{Table(columns, body).markdown()}"
