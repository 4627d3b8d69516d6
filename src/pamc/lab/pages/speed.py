"""Parts of the page of speed, `docs/speed.md`, and the tables of training and of the loss that other pages show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pamc.lab.cases.loss import moved_bytes
from pamc.lab.cell import Row
from pamc.lab.pages import Part, joined, origin
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
from pamc.lab.rows import kind_of, machine_of, stored
from pamc.results.table import Table

_TRAINERS = ("dense", "released", "torch", "triton", "encoder", "matmul")
_COLORS = dict(zip(_TRAINERS, (PALETTE[1], PALETTE[4], PALETTE[5], PALETTE[0], "#7F7F7F", PALETTE[6]), strict=True))
_DEVICES = {"cuda": "GPU", "cpu": "CPU"}

# Title, value and unit of a panel.
_MEMORY = ("peak memory (MiB)", "peak_bytes", 2.0**20)

# What training may need beside the bare encoder.
_BYTES_PER_PAIR, _FLOATS_PER_NUMBER = 64, 16

# What was aimed at: times as fast as each.
_TIMES_AIMED_AT = {"dense": 12, "released": 8}


def _good(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["error"] is None]


def training_table(rows: Sequence[Row]) -> str:
    """Return time and memory of training by each provider on each data set, as Markdown."""
    rows = [row for row in rows if row["provider"] in _TRAINERS]
    names = list(dict.fromkeys(row["data_set"] for row in rows))
    cells = {(row["provider"], row["data_set"]): _cell_text(row, ratio_to_pamc(rows, row, "seconds")) for row in rows}
    body = [
        [f"**{name}**" if name == "triton" else name, *(cells.get((name, data_set), MISSING) for data_set in names)]
        for name in _TRAINERS
    ]
    n_epochs = max(row["values"].get("n_epochs", 0) for row in rows)
    head = f"{n_epochs} epochs, {rows[-1]['parameters']['precision']}, {machine_of(rows[-1])}"
    return Table([head, *(name.upper() for name in names)], body).markdown()


def _cell_text(row: Row, times: float | None = None) -> str:
    """Return the time and memory of a row, or its error, and how many times the time of `triton` it is."""
    if row["error"] is not None:
        return str(row["error"])
    text = f"{time_text(row['values']['seconds'])}, {bytes_text(row['values']['peak_bytes'])}"
    return text if times is None or row["provider"] == "triton" else f"{text} ({times:.1f} ×)"


def over_nodes(rows: Sequence[Row], provider: str) -> list[Row]:
    """Return the rows of the sweep over N of a provider of case `loss`, by N, the fitted exponents last."""
    own = [row for row in rows if row["provider"] == provider and row["parameters"]["sweep"] == "n_nodes"]
    return sorted(own, key=lambda row: (isinstance(row["parameters"]["n_nodes"], list), row["parameters"]["n_nodes"]))


def loss_table(rows: Sequence[Row]) -> str:
    """Return time and memory of the loss by N for each provider, as Markdown."""
    names = list(dict.fromkeys(row["provider"] for row in rows))
    points = [row for name in names for row in over_nodes(rows, name) if "time_exponent" not in row["values"]]
    cells = {(row["provider"], row["parameters"]["n_nodes"]): _cell_text(row) for row in points}
    sizes = sorted({size for _, size in cells})
    return Table(
        ["N", *names], [[f"{n:,}", *(cells.get((name, n), MISSING) for name in names)] for n in sizes]
    ).markdown()


def _training(rows: Sequence[Row], folder: Path) -> str:
    _draw_training(rows, folder)
    return joined(training_table(rows), origin(rows))


def _draw_training(rows: Sequence[Row], folder: Path) -> None:
    good = [row for row in _good(rows) if row["provider"] in _TRAINERS]
    names = list(dict.fromkeys(row["data_set"] for row in good))
    cells = by(good, lambda row: (row["provider"], row["data_set"]))
    with drawing(1, 2, size=(9.6, 3.4)) as (figure, axes):
        for panel, (title, key, unit) in zip(axes[0], (("time (s)", "seconds", 1.0), _MEMORY), strict=True):
            bars = {
                provider: [[row["values"][key] / unit for row in cells.get((provider, name), [])][:1] for name in names]
                for provider in _TRAINERS
            }
            bar_groups(panel, names, bars, colors=[_COLORS[provider] for provider in bars])
            panel.set(yscale="log", title=title)
        legend(figure, axes[0, 0])
        save_figure(figure, folder, "epoch", rows=good, note=f"{machine_of(good[0])}. Logarithmic axes.")


def _beyond_encoder(rows: Sequence[Row], folder: Path) -> str:
    """Return what `triton` takes in memory beyond the bare encoder, its features left out on both sides."""
    body = []
    for name, group in by(_good(rows), lambda row: row["data_set"]).items():
        own = {row["provider"]: row["values"] for row in group}
        if not {"triton", "encoder"} <= own.keys():
            continue
        rest = {key: own[key]["peak_bytes"] - own[key]["input_bytes"] for key in ("triton", "encoder")}
        values = own["triton"]
        numbers = 4 * _FLOATS_PER_NUMBER * values["n_nodes"] * values["n_dims"]
        sizes = [rest["triton"] - rest["encoder"], _BYTES_PER_PAIR * values["n_pairs"] + numbers]
        body.append([name.upper(), f"{values['n_pairs']:,}", *map(bytes_text, sizes)])
    return Table(["data set", "pairs", "beyond the encoder", "bound"], body).markdown()


def _loss(rows: Sequence[Row], folder: Path) -> str:
    device = kind_of(rows[0])
    points = [row for row in _good(rows) if row["parameters"]["sweep"] == "n_nodes" and "seconds" in row["values"]]
    with drawing(1, 2, size=(9.6, 3.4)) as (figure, axes):
        for panel, (title, name, unit) in zip(axes[0], (("time (s)", "fastest_s", 1.0), _MEMORY), strict=True):
            for provider, group in by(points, lambda row: str(row["provider"])).items():
                shown = sorted((row["parameters"]["n_nodes"], row["values"][name]) for row in group)
                x, y = [size for size, value in shown if value], [value / unit for _, value in shown if value]
                panel.plot(x, y, marker="o", color=_COLORS[provider], label=provider)
            panel.set(xscale="log", yscale="log", xlabel="N", title=title)
        legend(figure, axes[0, 0])
        save_figure(figure, folder, f"loss-{device}", rows=points, note=f"{machine_of(points[0])}.")
    return joined(*map(_markdown, tables("loss", rows)), origin(rows))


def _plain(rows: Sequence[Row], folder: Path) -> str:
    """Return the tables of a case on each device that has rows."""
    parts = []
    for device, group in by(rows, kind_of).items():
        parts += [f"### {_DEVICES[device]}", *map(_markdown, tables(group[0]["case"], group)), origin(group)]
    return joined(*parts)


def _markdown(table: ShownTable) -> str:
    """Return a table below its title, which says what does not vary in it."""
    text = Table(table.columns, table.rows).markdown()
    _, _, fixed = table.title.partition(": ")
    return f"{fixed[:1].upper()}{fixed[1:]}:\n\n{text}" if fixed else text


def _fits(rows: Sequence[Row], folder: Path) -> str:
    rows = _good(rows)
    phases = list(dict.fromkeys(name for row in rows for name in row["values"]["phases"]))
    body = []
    for row in rows:
        values = row["values"]
        times = [time_text(seconds) for seconds in (values["seconds"], *map(values["phases"].get, phases))]
        body.append([row["data_set"].upper(), machine_of(row), *times, bytes_text(values["peak_bytes"])])
    table = Table(["data set", "on", "whole fit", *phases, "memory"], body, "ll" + "r" * (len(phases) + 2))
    return joined(table.markdown(), origin(rows))


def _cpu_epochs(rows: Sequence[Row], folder: Path) -> str:
    """Return epochs beside the bare encoder's steps, and sparse beside dense input."""
    rows = _good(rows)
    body, parts = [], []
    for row in rows:
        name, values = row["data_set"].upper(), row["values"]
        if "times_encoder" in values:
            times = [time_text(values["seconds"]), time_text(values["encoder_s"])]
            body.append([name, *times, f"{values['times_encoder']:.2f} ×"])
            continue
        kinds = (("whole epoch", "seconds", "dense_s"), ("first layer", "first_layer_s", "first_layer_dense_s"))
        lines = [
            [kind, time_text(values[a]), time_text(values[b]), f"{values[b] / values[a]:.1f} ×"] for kind, a, b in kinds
        ]
        parts.append(Table([name, "sparse input", "dense input", "dense over sparse"], lines).markdown())
    return joined(
        Table(["data set", "epoch", "bare encoder", "epoch over encoder"], body).markdown(), *parts, origin(rows)
    )


def _roofline(rows: Sequence[Row], folder: Path) -> str:
    """Return, for each data set of dense input, the time that the machine allows for each part of an epoch."""
    parts = []
    epochs = [row for row in rows if not row["values"].get("sparse_input")]
    for name, group in by(epochs, lambda row: row["data_set"]).items():
        precision = group[0]["parameters"]["precision"]
        ceilings = ceilings_of(stored("ceilings", device="cuda"), precision)
        found = limits_of(group)
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
    return joined(*parts)


def _short(rows: Sequence[Row], folder: Path) -> str:
    """Return what was aimed at and not reached, with the reason that the measurements give."""
    seconds = {(row["provider"], row["data_set"]): row["values"]["seconds"] for row in _good(rows)}
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
            every = stored("epoch", device="cuda", every=True)
            own = [
                row["values"]["seconds"] for row in every if (row["provider"], row["data_set"]) == (provider, "usps")
            ]
            text += (
                " It waits for the host to launch its kernels, one by one: on USPS it took "
                f"{min(own):.2f} to {max(own):.2f} s in the runs that are stored, on GPUs of one kind."
            )
        said.append(text)
    return "\n".join(said) if said else "Nothing measured so far falls short of what was aimed at."


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


class Limit(NamedTuple):
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


def limits_of(rows: Sequence[Row]) -> list[Limit]:
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
        Limit("matrix products of the encoder", 0, operations, matmul),
        Limit(
            "its activations, biases and Adam (of the bare encoder)", hidden + _FLOAT * _ADAM_PASSES * weights, 0, rest
        ),
        Limit("positive term", moved_bytes(whole["n_pairs"], n_dims), 0, _epoch_s(by_provider.get("positive term"))),
        Limit("clustering term", thin, 0, _epoch_s(by_provider.get("clustering term"))),
    ]
    totals = (sum(part.n_bytes for part in parts), sum(part.n_operations for part in parts))
    return [*parts, Limit("whole epoch", *totals, _epoch_s(by_provider["triton"]))]


def _epoch_s(row: Row | None) -> float | None:
    return None if row is None else float(row["values"]["seconds"] / row["values"]["n_epochs"])


_GPU_EPOCHS: Callable[[], Sequence[Row]] = partial(stored, "epoch", device="cuda")

SPEED = {
    "training": Part(_GPU_EPOCHS, _training),
    "beyond-encoder": Part(_GPU_EPOCHS, _beyond_encoder),
    **{f"loss-{device}": Part(partial(stored, "loss", device=device), _loss) for device in _DEVICES},
    "positive": Part(partial(stored, "positive"), _plain),
    "fit": Part(partial(stored, "fit"), _fits),
    "inference": Part(partial(stored, "inference"), _plain),
    "cpu-epochs": Part(partial(stored, "epoch", device="cpu"), _cpu_epochs),
    "roofline": Part(_GPU_EPOCHS, _roofline),
    "short": Part(_GPU_EPOCHS, _short),
}
