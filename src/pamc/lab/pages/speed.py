"""The page `docs/speed.md`, and the README's table of training on a GPU: tables and figures of rows alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pamc.lab.cases.loss import moved_bytes
from pamc.lab.cell import Row
from pamc.lab.pages.style import (
    MISSING,
    PALETTE,
    ShownTable,
    bar_groups,
    by,
    bytes_text,
    drawing,
    legend,
    ratio_to_pamc,
    save_figure,
    tables,
    time_text,
)
from pamc.lab.rows import kind_of, machine_of, provenance, stored
from pamc.results.table import Table

__all__ = ["Ceilings", "Part", "ceilings_of", "parts_of", "speed_page", "training_table"]

_HEAD = """\
# Speed and memory

`pamc bench CASE` measures everything on this page and appends rows; `--quick` tries it out in a minute. Every figure
is rendered from the rows in `benchmarks/results/` by `python -m pamc.lab.pages`; none is typed.

Who is compared:

- **dense**: the N × N loss as SCGC* computes it: products of all rows over products of their lengths, two forward
  passes per epoch, plain Adam. In the paper's words the two programs differ in nothing but the loss.
- **released**: PamC as the paper's released program computes it: two forward passes per epoch, an N × C × d difference
  for the assignment, both ends of each edge gathered, plain Adam.
- **torch**: pamc in plain torch, in its own trainer, kernel by kernel.
- **triton**: pamc with fused kernels, an epoch captured and replayed as one graph: what a fit on a GPU uses.
- **encoder**: forward, backward and Adam step of the bare encoder, captured: what every method has to do. **matmul**:
  its matrix products alone.

All in the same precision, from the same weights and centers, each in a fresh state after a short run of the same
shapes. Compiling kernels is not in the times, capturing an epoch is. In training, time and memory are
of one and the same run.
Before anything is timed, value and gradient of each loss are compared with the float64 reference, and one that is off
is refused.
"""

_NOT_YET = "*Not measured yet.*\n"

_TRAINERS = ("dense", "released", "torch", "triton", "encoder", "matmul")
_COLORS = dict(zip(_TRAINERS, (PALETTE[1], PALETTE[4], PALETTE[5], PALETTE[0], "#7F7F7F", PALETTE[6]), strict=True))
_DEVICES = {"cuda": "GPU", "cpu": "CPU"}

# What training may need beside the bare encoder.
_BYTES_PER_PAIR, _FLOATS_PER_NUMBER = 64, 16


def speed_page(folder: Path) -> str:
    """Return the page, and draw its figures into a folder."""
    sections: dict[str, Callable[[Path], str]] = {
        "Training on a GPU": _training,
        "The loss alone": _loss,
        "The positive term alone": lambda folder: _plain("positive"),
        "Whole fits": lambda folder: _fits(),
        "Labels for new rows": lambda folder: _plain("inference"),
        "Training on a CPU": lambda folder: _cpu_epochs(),
        "How near to what the machine can do": lambda folder: _roofline(),
        "Where it falls short": lambda folder: _short(),
    }
    parts = [_HEAD]
    parts += [f"## {title}\n\n{section(folder).rstrip()}\n" for title, section in sections.items()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


def training_table(rows: Sequence[Row]) -> str:
    """Return time and memory of training by each provider on each data set, as Markdown."""
    rows = [row for row in rows if row["provider"] in _TRAINERS]
    if not rows:
        return _NOT_YET
    names = list(dict.fromkeys(row["data_set"] for row in rows))
    cells = {(row["provider"], row["data_set"]): row for row in rows}
    body = []
    for provider in _TRAINERS:
        line = [_cell_text(rows, cells.get((provider, name))) for name in names]
        body.append([f"**{provider}**" if provider == "triton" else provider, *line])
    row = rows[-1]
    n_epochs = max(row["values"].get("n_epochs", 0) for row in rows)
    head = f"{n_epochs} epochs, {row['parameters']['precision']}, {machine_of(row)}"
    return Table([head, *(name.upper() for name in names)], body).markdown()


def _cell_text(rows: Sequence[Row], row: Row | None) -> str:
    if row is None or row["error"] is not None:
        return MISSING if row is None else str(row["error"])
    text = f"{time_text(row['values']['seconds'])}, {bytes_text(row['values']['peak_bytes'])}"
    times = ratio_to_pamc(rows, row, "seconds")
    return text if times is None or row["provider"] == "triton" else f"{text} ({times:.1f} ×)"


def _training(folder: Path) -> str:
    rows = stored("epoch", device="cuda")
    about = (
        "Settings and graphs of preset `paper`; the start is not timed and nothing is evaluated. In brackets, the time "
        "over that of `triton`. `pamc bench epoch`"
    )
    text = f"{about}\n\n{training_table(rows)}\n"
    if not rows:
        return text
    _draw_training(rows, folder)
    return f"{text}{_from(rows)}\n\n![Training on a GPU](speed/epoch.png)\n\n{_beyond_encoder(rows)}"


def _draw_training(rows: Sequence[Row], folder: Path) -> None:
    good = [row for row in rows if row["provider"] in _TRAINERS and row["error"] is None]
    names = list(dict.fromkeys(row["data_set"] for row in good))
    measures: dict[str, Callable[[dict[str, Any]], float]] = {
        "time (s)": lambda values: values["seconds"],
        "peak memory (MiB)": lambda values: values["peak_bytes"] / 2**20,
    }
    with drawing(1, 2, size=(9.6, 3.4)) as (figure, axes):
        for panel, (title, measure) in zip(axes[0], measures.items(), strict=True):
            bars = {
                provider: [[measure(row["values"]) for row in good if _is(row, provider, name)][:1] for name in names]
                for provider in _TRAINERS
            }
            bar_groups(panel, names, bars, colors=[_COLORS[provider] for provider in bars])
            panel.set_yscale("log")
            panel.set_title(title)
        legend(figure, axes[0, 0])
        save_figure(figure, folder, "epoch", rows=good, note=f"{machine_of(good[0])}. Logarithmic axes.")


def _is(row: Row, provider: str, data_set: str) -> bool:
    return bool(row["provider"] == provider and row["data_set"] == data_set)


def _beyond_encoder(rows: Sequence[Row]) -> str:
    """Return what `triton` takes in memory beyond the bare encoder, its features left out on both sides."""
    body = []
    for name, group in by(rows, lambda row: row["data_set"]).items():
        own = {row["provider"]: row["values"] for row in group if row["error"] is None}
        if not {"triton", "encoder"} <= own.keys():
            continue
        rest = {key: own[key]["peak_bytes"] - own[key]["input_bytes"] for key in ("triton", "encoder")}
        values = own["triton"]
        numbers = 4 * _FLOATS_PER_NUMBER * values["n_nodes"] * values["n_dims"]
        allowed = _BYTES_PER_PAIR * values["n_pairs"] + numbers
        more = rest["triton"] - rest["encoder"]
        body.append([name.upper(), f"{values['n_pairs']:,}", bytes_text(more), bytes_text(allowed)])
    about = (
        "What `triton` takes beyond the bare encoder, which has the same weights, optimizer and activations; features "
        f"are left out on both sides. The bound is {_BYTES_PER_PAIR} bytes per stored pair and {_FLOATS_PER_NUMBER} "
        "floats per node and dimension."
    )
    table = Table(["data set", "pairs", "beyond the encoder", "bound"], body)
    return f"{about}\n\n{table.markdown()}\n"


def _loss(folder: Path) -> str:
    about = (
        "Forward and backward, edge ends uniform at random, nothing reordered; memory is what a pass adds to the graph "
        "it is given, without the 12 bytes per pair that the fused kernels hold of it in a form of their own. On a GPU "
        "a call is captured and replayed, as an epoch is in training. Exponents are fitted to the sizes from a "
        "sixteenth of the largest on. `pamc bench loss`"
    )
    parts = [about]
    for device, title in _DEVICES.items():
        rows = stored("loss", device=device)
        parts.append(f"### {title}")
        if not rows:
            parts.append(_NOT_YET)
            continue
        _draw_loss([row for row in rows if row["error"] is None], folder, device)
        parts.append(f"![The loss alone over N](speed/loss-{device}.png)")
        parts += [_markdown(table) for table in tables("loss", rows)]
        parts.append(_from(rows))
    return "\n\n".join(parts)


def _draw_loss(rows: Sequence[Row], folder: Path, device: str) -> None:
    points = [row for row in rows if row["parameters"]["sweep"] == "n_nodes" and "seconds" in row["values"]]
    measures = {"time (s)": ("fastest_s", 1.0), "peak memory (MiB)": ("peak_bytes", 2.0**20)}
    with drawing(1, 2, size=(9.6, 3.4)) as (figure, axes):
        for panel, (title, (name, unit)) in zip(axes[0], measures.items(), strict=True):
            for provider, group in by(points, lambda row: str(row["provider"])).items():
                shown = sorted((row["parameters"]["n_nodes"], row["values"][name]) for row in group)
                x, y = [size for size, value in shown if value], [value / unit for _, value in shown if value]
                panel.plot(x, y, marker="o", color=_COLORS[provider], label=provider)
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_xlabel("N")
            panel.set_title(title)
        legend(figure, axes[0, 0])
        save_figure(figure, folder, f"loss-{device}", rows=points, note=f"{machine_of(points[0])}.")


def _plain(case: str) -> str:
    """Return the tables of a case on each device that has rows."""
    parts = []
    for device, title in _DEVICES.items():
        rows = stored(case, device=device)
        if rows:
            parts += [f"### {title}", *(_markdown(table) for table in tables(case, rows)), _from(rows)]
    about = _ABOUT[case]
    return "\n\n".join([f"{about} `pamc bench {case}`", *(parts or [_NOT_YET])])


_ABOUT = {
    "positive": (
        "Forward and backward at a million nodes. A pass reads for each pair one index, its weights and one row of z; "
        "the bandwidth counts these bytes and nothing else, and is shown beside that of a copy in the same run. The "
        "error is that of the gradient against float64. Memory comes in sectors of 32 bytes, and rows are gathered at "
        "random: ten float32 numbers are two sectors, so the kernels keep unit rows of that length in fixed point with "
        "24 bits behind the point, which takes one."
    ),
    "inference": (
        "What `predict` does, in chunks: encoder, assignment, labels. Rows lie in the device's memory, or are copied "
        "from the host's on the way. Memory is what is needed beside the rows."
    ),
}


def _fits() -> str:
    about = "From raw rows, with the defaults, after a short fit of the same shapes. `pamc bench fit`"
    rows = [row for row in stored("fit") if row["error"] is None]
    if not rows:
        return f"{about}\n\n{_NOT_YET}"
    phases = list(dict.fromkeys(name for row in rows for name in row["values"]["phases"]))
    body = []
    for row in rows:
        values = row["values"]
        line = [row["data_set"].upper(), machine_of(row), time_text(values["seconds"])]
        line += [time_text(values["phases"].get(name)) for name in phases]
        body.append([*line, bytes_text(values["peak_bytes"])])
    table = Table(["data set", "on", "whole fit", *phases, "memory"], body, "ll" + "r" * (len(phases) + 2))
    return f"{about}\n\n{table.markdown()}\n{_from(rows)}"


def _cpu_epochs() -> str:
    rows = [row for row in stored("epoch", device="cpu") if row["error"] is None]
    about = "An epoch and the bare encoder's step, or sparse and dense input, taken in turn. `pamc bench epoch`"
    if not rows:
        return f"{about}\n\n{_NOT_YET}"
    columns = ["data set", "epoch", "bare encoder", "epoch over encoder"]
    paired = [row for row in rows if "times_encoder" in row["values"]]
    body = [
        [
            row["data_set"].upper(),
            time_text(row["values"]["seconds"]),
            time_text(row["values"]["encoder_s"]),
            f"{row['values']['times_encoder']:.2f} ×",
        ]
        for row in paired
    ]
    parts = [about, Table(columns, body).markdown()]
    for row in rows:
        values = row["values"]
        if "times_faster" in values:
            kinds = (("whole epoch", "seconds", "dense_s"), ("first layer", "first_layer_s", "first_layer_dense_s"))
            lines = [
                [name, time_text(values[a]), time_text(values[b]), f"{values[b] / values[a]:.1f} ×"]
                for name, a, b in kinds
            ]
            head = [row["data_set"].upper(), "sparse input", "dense input", "dense over sparse"]
            parts.append(Table(head, lines).markdown())
    return "\n\n".join([*parts, _from(rows)])


def _roofline() -> str:
    about = (
        "Bytes and operations that an epoch cannot avoid, the time that they take at the measured rates (a copy of a "
        "gibibyte, a large matrix product), and the time that was measured. Activations count the passes outside the "
        "matrix products; the positive term counts its pairs; the clustering term counts z, q and their gradients. The "
        "whole epoch has the share of the capture in it. `pamc bench ceilings epoch`"
    )
    parts = [about]
    epochs = [row for row in stored("epoch", device="cuda") if not row["values"].get("sparse_input")]
    for name, group in by(epochs, lambda row: row["data_set"]).items():
        precision = group[0]["parameters"]["precision"]
        ceilings = ceilings_of(stored("ceilings", device="cuda"), precision)
        found = parts_of(group)
        if ceilings is None or not found:
            continue
        body = []
        for part in found:
            allowed, measured = part.allowed_s(ceilings), part.seconds
            share = MISSING if not measured else f"{100 * allowed / measured:.0f} %"
            size = [f"{part.n_bytes / 1e6:.1f}", f"{part.n_operations / 1e9:.1f}"]
            body.append([part.name, *size, time_text(allowed), time_text(measured), share])
        rates = f"{ceilings.bytes_per_s / 1e12:.2f} TB/s, {ceilings.flop_per_s / 1e12:.0f} TFLOP/s ({precision})"
        columns = [f"{name.upper()}: {rates}", "MB", "GFLOP", "allowed", "measured", "share reached"]
        parts.append(Table(columns, body).markdown())
    return "\n\n".join(parts if len(parts) > 1 else [*parts, _NOT_YET])


# What was aimed at: times as fast as each.
_TIMES_AIMED_AT = {"dense": 12, "released": 8}


def _short() -> str:
    """Return what was aimed at and not reached, with the reason that the measurements give."""
    parts = _short_of_times()
    return "\n".join(parts) if parts else "Nothing measured so far falls short of what was aimed at."


def _short_of_times() -> list[str]:
    seconds = {
        (row["provider"], row["data_set"]): row["values"]["seconds"]
        for row in stored("epoch", device="cuda")
        if row["error"] is None and row["provider"] in _TRAINERS
    }
    said = []
    for provider, aim in _TIMES_AIMED_AT.items():
        sets = [name for name in ("usps", "hhar") if {(provider, name), ("triton", name)} <= seconds.keys()]
        times = {name: seconds[provider, name] / seconds["triton", name] for name in sets}
        if not sets or min(times.values()) >= aim:
            continue
        reached = ", ".join(f"{time:.1f} × on {name.upper()}" for name, time in times.items())
        least = ", ".join(f"{seconds[provider, name] / seconds['matmul', name]:.1f} ×" for name in sets)
        text = (
            f"- **{provider}.** Aimed at: {aim} times as fast. Reached: {reached}. The encoder's matrix products "
            f"alone, which both do, allow {least}."
        )
        if provider == "released":
            all_times = [
                row["values"]["seconds"]
                for row in stored("epoch", every=True)
                if row["provider"] == provider and kind_of(row) == "cuda" and row["data_set"] == "usps"
            ]
            text += (
                " It waits for the host to launch its kernels, one by one: on USPS it took "
                f"{min(all_times):.2f} to {max(all_times):.2f} s in the runs that are stored, on GPUs of one kind."
            )
        said.append(text)
    return said


def _markdown(table: ShownTable) -> str:
    """Return a table below its title, which says what does not vary in it."""
    text = Table(table.columns, table.rows).markdown()
    _, _, fixed = table.title.partition(": ")
    return f"{fixed[:1].upper()}{fixed[1:]}:\n\n{text}" if fixed else text


def _from(rows: Sequence[Row]) -> str:
    return f"Rows: {provenance(rows)}.\n"


_FLOAT = 4

# Passes over a hidden layer's numbers outside the products: the gradient of ReLU reads twice and writes. ReLU itself
# can be the last step of a product, and the gradient of the bias comes of the same pass.
_HIDDEN_PASSES = 3

# Adam reads weight, gradient and two moments, and writes all but the gradient.
_ADAM_PASSES = 7


class Ceilings(NamedTuple):
    """Measured rates of a machine."""

    bytes_per_s: float
    flop_per_s: float


class Part(NamedTuple):
    """A part of an epoch: bytes outside matrix products, operations inside them, seconds that were measured."""

    name: str
    n_bytes: float
    n_operations: float
    seconds: float | None

    def allowed_s(self, ceilings: Ceilings) -> float:
        """Return the seconds that the ceilings allow."""
        return self.n_bytes / ceilings.bytes_per_s + self.n_operations / ceilings.flop_per_s


def ceilings_of(rows: Sequence[Row], precision: str) -> Ceilings | None:
    """Return the ceilings out of the rows of case `ceilings` of one device; None where they were not measured."""
    copies = [row["values"]["bytes_per_s"] for row in rows if row["provider"] == "copy" and row["error"] is None]
    products = [
        row["values"]["flop_per_s"]
        for row in rows
        if row["provider"] == "matmul" and row["parameters"]["precision"] == precision and row["error"] is None
    ]
    return Ceilings(copies[-1], products[-1]) if copies and products else None


def parts_of(rows: Sequence[Row]) -> list[Part]:
    """Return the parts of an epoch out of the rows of one data set of case `epoch`; the whole epoch comes last."""
    by_provider = {row["provider"]: row for row in rows if row["error"] is None}
    if "triton" not in by_provider:
        return []
    whole = by_provider["triton"]["values"]
    n_nodes, n_dims, n_clusters, sizes = (whole[name] for name in ("n_nodes", "n_dims", "n_clusters", "sizes"))
    products = [2 * n_nodes * a * b for a, b in pairwise(sizes)]
    weights = sum(a * b + b for a, b in pairwise(sizes))
    # Each layer has a product forward and two backward, but nobody asks for the gradient of the features.
    operations = 3 * sum(products) - products[0]
    hidden = _FLOAT * _HIDDEN_PASSES * n_nodes * sum(sizes[1:-1])
    thin = _FLOAT * 3 * n_nodes * (n_dims + n_clusters)
    encoder, matmul = (_epoch_s(by_provider.get(name)) for name in ("encoder", "matmul"))
    rest = None if encoder is None or matmul is None else encoder - matmul
    parts = [
        Part("matrix products of the encoder", 0, operations, matmul),
        Part(
            "its activations, biases and Adam (of the bare encoder)", hidden + _FLOAT * _ADAM_PASSES * weights, 0, rest
        ),
        Part("positive term", moved_bytes(whole["n_pairs"], n_dims), 0, _epoch_s(by_provider.get("positive term"))),
        Part("clustering term", thin, 0, _epoch_s(by_provider.get("clustering term"))),
    ]
    totals = (sum(part.n_bytes for part in parts), sum(part.n_operations for part in parts))
    return [*parts, Part("whole epoch", *totals, _epoch_s(by_provider["triton"]))]


def _epoch_s(row: Row | None) -> float | None:
    return None if row is None else float(row["values"]["seconds"] / row["values"]["n_epochs"])
