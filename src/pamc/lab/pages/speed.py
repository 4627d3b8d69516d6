"""Generated parts of `docs/speed.md`, and the tables of training and of the loss, which other pages share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pamc.errors import counted
from pamc.lab.cases.loss import moved_bytes
from pamc.lab.cases.whole_fits import FIRST_FIT, TIMED_COLUMNS, TIMED_RIVALS
from pamc.lab.cell import Row
from pamc.lab.pages import Part, joined, origin
from pamc.lab.pages.style import (
    MISSING,
    PALETTE,
    bar_groups,
    by,
    bytes_text,
    data_sets_in,
    drawing,
    legend,
    ratio_to_pamc,
    save_figure,
    tables,
    time_text,
)
from pamc.lab.rivals import RIVALS
from pamc.lab.rows import kind_of, machine_of, stored
from pamc.results.table import Table

_TRAINERS = ("dense", "released", "torch", "triton", "encoder", "matmul")
_COLORS = dict(zip(_TRAINERS, (PALETTE[1], PALETTE[4], PALETTE[5], PALETTE[0], "#7F7F7F", PALETTE[6]), strict=True))
_DEVICES = {"cuda": "GPU", "cpu": "CPU"}

# Title, value and unit of a panel.
_MEMORY = ("peak memory (MiB)", "peak_bytes", 2.0**20)

# Bound on the memory of training in addition to the bare encoder: per pair, and per number of the embedding.
_BYTES_PER_PAIR, _FLOATS_PER_NUMBER = 64, 16

# Intended speedup over other implementations.
_TARGETS = {"dense": 12, "released": 8}


def _good(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["error"] is None]


def training_table(rows: Sequence[Row]) -> str:
    """Return time and memory of training with each provider on each data set, as Markdown."""
    rows = [row for row in rows if row["provider"] in _TRAINERS]
    names = data_sets_in(rows)
    cells = {(row["provider"], row["data_set"]): _cell_text(row, ratio_to_pamc(rows, row, "seconds")) for row in rows}
    body = [
        [f"**{name}**" if name == "triton" else name, *(cells.get((name, data_set), MISSING) for data_set in names)]
        for name in _TRAINERS
    ]
    n_epochs = max(row["values"].get("n_epochs", 0) for row in rows)
    head = f"{n_epochs} epochs, {rows[-1]['parameters']['precision']}, {machine_of(rows[-1])}"
    return Table([head, *(name.upper() for name in names)], body).markdown()


def _cell_text(row: Row, times: float | None = None) -> str:
    """Return the time and memory of a row, or its error, and the ratio of its time to that of `triton`."""
    if row["error"] is not None:
        return str(row["error"])
    text = f"{time_text(row['values']['seconds'])}, {bytes_text(row['values']['peak_bytes'])}"
    return text if times is None or row["provider"] == "triton" else f"{text} ({times:.1f} ×)"


def over_nodes(rows: Sequence[Row], provider: str) -> list[Row]:
    """Return the rows of a provider's sweep over N in case `loss`, ordered by N, with the fitted exponents last."""
    sweep = [row for row in rows if row["provider"] == provider and row["parameters"]["sweep"] == "n_nodes"]
    return sorted(sweep, key=lambda row: (isinstance(row["parameters"]["n_nodes"], list), row["parameters"]["n_nodes"]))


def loss_table(rows: Sequence[Row]) -> str:
    """Return time and memory of the loss by N for each provider, as Markdown."""
    names = list(dict.fromkeys(row["provider"] for row in rows))
    points = [row for name in names for row in over_nodes(rows, name) if "time_exponent" not in row["values"]]
    cells = {(row["provider"], row["parameters"]["n_nodes"]): _cell_text(row) for row in points}
    sizes = sorted({size for _, size in cells})
    body = [[f"{size:,}", *(cells.get((name, size), MISSING) for name in names)] for size in sizes]
    return Table(["N", *names], body).markdown()


def _training(rows: Sequence[Row], folder: Path) -> str:
    """Return the table of training, and draw it."""
    good = [row for row in _good(rows) if row["provider"] in _TRAINERS]
    names = data_sets_in(good)
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
    return joined(training_table(rows), origin(rows))


def _beyond_encoder(rows: Sequence[Row], folder: Path) -> str:
    """Return the memory that `triton` needs in addition to the bare encoder, without the features of either."""
    body = []
    for name, group in by(_good(rows), lambda row: row["data_set"]).items():
        values = {row["provider"]: row["values"] for row in group}
        if not {"triton", "encoder"} <= values.keys():
            continue
        ours, encoder = (values[key]["peak_bytes"] - values[key]["input_bytes"] for key in ("triton", "encoder"))
        n_pairs, n_numbers = values["triton"]["n_pairs"], values["triton"]["n_nodes"] * values["triton"]["n_dims"]
        bound = _BYTES_PER_PAIR * n_pairs + _FLOAT * _FLOATS_PER_NUMBER * n_numbers
        body.append([name.upper(), f"{n_pairs:,}", bytes_text(ours - encoder), bytes_text(bound)])
    return Table(["data set", "pairs", "memory beyond the encoder", "bound"], body).markdown()


def _loss(rows: Sequence[Row], folder: Path) -> str:
    """Return the tables of the loss on one device, and draw its time and memory over N."""
    points = [row for row in _good(rows) if row["parameters"]["sweep"] == "n_nodes" and "seconds" in row["values"]]
    with drawing(1, 2, size=(9.6, 3.4)) as (figure, axes):
        for panel, (title, name, unit) in zip(axes[0], (("time (s)", "fastest_s", 1.0), _MEMORY), strict=True):
            for provider, group in by(points, lambda row: str(row["provider"])).items():
                pairs = sorted((row["parameters"]["n_nodes"], row["values"][name]) for row in group)
                x, y = [size for size, value in pairs if value], [value / unit for _, value in pairs if value]
                panel.plot(x, y, marker="o", color=_COLORS[provider], label=provider)
            panel.set(xscale="log", yscale="log", xlabel="N", title=title)
        legend(figure, axes[0, 0])
        save_figure(figure, folder, f"loss-{kind_of(rows[0])}", rows=points, note=f"{machine_of(points[0])}.")
    return joined(*_captioned("loss", rows), origin(rows))


def _plain(rows: Sequence[Row], folder: Path) -> str:
    """Return the tables of a case on each device that has rows."""
    parts = []
    for device, group in by(rows, kind_of).items():
        parts += [f"### {_DEVICES[device]}", *_captioned(group[0]["case"], group), origin(group)]
    return joined(*parts)


def _captioned(case: str, rows: Sequence[Row]) -> list[str]:
    """Return the tables of a case as Markdown, each below a caption with the parameters that its rows share."""
    captions = [(title.partition(": ")[2], table.markdown()) for title, table in tables(case, rows)]
    return [f"**{caption}**\n\n{table}" if caption else table for caption, table in captions]


def _fits(rows: Sequence[Row], folder: Path) -> str:
    """Return the time of each phase of complete fits of data sets, and their memory."""
    wanted = [row for row in _good(rows) if row["provider"] in ("pamc", FIRST_FIT)]
    rows = [row for row in wanted if row["data_set"] or kind_of(row) == "cuda"]
    phases = list(dict.fromkeys(name for row in rows for name in row["values"].get("phases", {})))
    body = []
    for row in rows:
        values, of_phase = row["values"], row["values"].get("phases", {})
        times = [time_text(seconds) for seconds in (values["seconds"], *map(of_phase.get, phases))]
        memory = bytes_text(values["peak_bytes"]) if "peak_bytes" in values else MISSING
        body.append([_table_of(row), machine_of(row), *times, memory])
    titles = ["initialization" if name == "start" else name for name in phases]
    table = Table(["data set", "device", "whole fit", *titles, "memory"], body, "ll" + "r" * (len(phases) + 2))
    return joined(table.markdown(), origin(rows))


def _fit_sizes(rows: Sequence[Row], folder: Path) -> str:
    """Return the seconds of complete fits by several methods, of data sets and of tables of growing size."""
    rows = [row for row in _good(rows) if kind_of(row) == "cpu"]
    titles = {"pamc": "**pamc**", **{name: RIVALS[name].title for name in TIMED_RIVALS}}
    columns = {"choose_k": "pamc"}
    seconds = {
        (_table_of(row), columns.get(row["provider"], row["provider"])): row["values"]["seconds"] for row in rows
    }
    names = list(dict.fromkeys(_table_of(row) for row in rows))
    body = [[name, *(time_text(seconds.get((name, provider))) for provider in titles)] for name in names]
    table = Table(["table", *titles.values()], body, "l" + "r" * len(titles))
    sized = [row for row in rows if list(row["parameters"]) == ["n_rows"]]
    if not sized:
        return joined(table.markdown(), origin(rows))
    with drawing(size=(6.4, 3.6)) as (figure, axes):
        (panel,) = axes[0]
        for color, provider in zip(PALETTE, ("pamc", "umap+k-means", "spectral", "hdbscan"), strict=False):
            points = sorted(
                (row["parameters"]["n_rows"], row["values"]["seconds"]) for row in sized if row["provider"] == provider
            )
            label = titles[provider].strip("*")
            panel.plot(*zip(*points, strict=True), marker="o", markersize=3, color=color, label=label)
        panel.set(xscale="log", yscale="log", xlabel=f"rows ({TIMED_COLUMNS} columns, 10 clusters)", ylabel="seconds")
        legend(figure, panel)
        save_figure(figure, folder, "fit-sizes", rows=rows)
    picture = "![Seconds of a complete fit against the number of rows](speed/fit-sizes.png)"
    return joined(picture, table.markdown(), origin(rows))


def _table_of(row: Row) -> str:
    """Return the name of a row's data set, or the size of its table, and what was special about the fit."""
    parameters = row["parameters"]
    if row["data_set"]:
        return f"{row['data_set']}, `choose_k`" if row["provider"] == "choose_k" else str(row["data_set"])
    if row["provider"] == FIRST_FIT:
        return "1,797 × 64, first fit of a process"
    n_columns = parameters.get("n_words") or parameters.get("n_features", TIMED_COLUMNS)
    parts = [f"{parameters['n_rows']:,} × {n_columns:,}"]
    if "n_words" in parameters:
        parts.append("words and a graph")
    if "n_busy" in parameters:
        parts.append(f"{counted(parameters['n_threads'], 'thread')} beside {parameters['n_busy']} busy processes")
    elif "n_clusters" in parameters:
        parts.append(f"{parameters['n_clusters']} clusters")
    return ", ".join(parts)


def _cpu_epochs(rows: Sequence[Row], folder: Path) -> str:
    """Return two comparisons: epochs with steps of the bare encoder, and sparse with dense input."""
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
        parts.append(Table([name, "sparse input", "dense input", "dense / sparse"], lines).markdown())
    epochs = Table(["data set", "epoch", "bare encoder", "epoch / encoder"], body).markdown()
    return joined(epochs, *parts, origin(rows))


def _roofline(rows: Sequence[Row], folder: Path) -> str:
    """Return, for each data set with dense input, the least time of each part of an epoch on this machine."""
    parts = []
    epochs = [row for row in rows if not row["values"].get("sparse_input")]
    for name, group in by(epochs, lambda row: row["data_set"]).items():
        precision = group[0]["parameters"]["precision"]
        ceilings = ceilings_of(stored("ceilings", device="cuda"), precision)
        limits = limits_of(group)
        if ceilings is None or not limits:
            continue
        body = []
        for part in limits:
            least = part.allowed_s(ceilings)
            share = f"{100 * least / part.seconds:.0f} %" if part.seconds else MISSING
            size = [f"{part.n_bytes / 1e6:.1f}", f"{part.n_operations / 1e9:.1f}"]
            body.append([part.name, *size, time_text(least), time_text(part.seconds), share])
        rates = f"{ceilings.bytes_per_s / 1e12:.2f} TB/s, {ceilings.flop_per_s / 1e12:.0f} TFLOP/s ({precision})"
        columns = [f"{name.upper()}: {rates}", "MB", "GFLOP", "least time", "measured", "share reached"]
        parts.append(Table(columns, body).markdown())
    return joined(*parts)


def _short(rows: Sequence[Row], folder: Path) -> str:
    """Return the speedups that fall short of their targets, with the reason that the measurements suggest."""
    seconds = {(row["provider"], row["data_set"]): row["values"]["seconds"] for row in _good(rows)}
    items = []
    for provider, target in _TARGETS.items():
        names = [name for name in ("usps", "hhar") if {(provider, name), ("triton", name)} <= seconds.keys()]
        speedups = {name: seconds[provider, name] / seconds["triton", name] for name in names}
        if not names or min(speedups.values()) >= target:
            continue
        reached = " and ".join(f"{speedup:.1f} × on {name.upper()}" for name, speedup in speedups.items())
        most = " and ".join(f"{seconds[provider, name] / seconds['matmul', name]:.1f} ×" for name in names)
        text = (
            f"- **{provider}**: the target was {target} times its speed; measured: {reached}. The matrix products of "
            f"the encoder, which every implementation computes, limit the speedup to {most}."
        )
        if provider == "released":
            runs = [row for row in stored("epoch", device="cuda", every=True) if row["provider"] == provider]
            times = [row["values"]["seconds"] for row in runs if row["data_set"] == "usps"]
            text += (
                " Its time varies because the host launches its kernels one by one: "
                f"{min(times):.2f} to {max(times):.2f} s on USPS in the stored runs, on GPUs of one kind."
            )
        items.append(text)
    return "\n".join(items) if items else "All targets were reached."


_FLOAT = 4

# Passes over the numbers of a hidden layer outside matrix products: the gradient of ReLU reads twice and writes once.
# ReLU itself can be fused with a product, and the gradient of the bias with the gradient of ReLU.
_HIDDEN_PASSES = 3

# Adam reads weight, gradient and two moments, and writes all but the gradient.
_ADAM_PASSES = 7


class Ceilings(NamedTuple):
    """Measured peak rates of a machine."""

    bytes_per_s: float
    flop_per_s: float


class Limit(NamedTuple):
    """A part of an epoch: bytes moved outside matrix products, operations inside them, and the measured seconds."""

    name: str
    n_bytes: float
    n_operations: float
    seconds: float | None

    def allowed_s(self, ceilings: Ceilings) -> float:
        """Return the seconds that the part takes at the peak rates."""
        return self.n_bytes / ceilings.bytes_per_s + self.n_operations / ceilings.flop_per_s


def ceilings_of(rows: Sequence[Row], precision: str) -> Ceilings | None:
    """Return the peak rates from the rows of case `ceilings` on one device; None if they were not measured."""
    rows = [row for row in _good(rows) if row["parameters"].get("precision", precision) == precision]
    values = {row["provider"]: row["values"] for row in rows}
    if not {"copy", "matmul"} <= values.keys():
        return None
    return Ceilings(values["copy"]["bytes_per_s"], values["matmul"]["flop_per_s"])


def limits_of(rows: Sequence[Row]) -> list[Limit]:
    """Return the parts of an epoch from the rows of case `epoch` on one data set; the whole epoch comes last."""
    values = {row["provider"]: row["values"] for row in _good(rows)}
    if "triton" not in values:
        return []
    seconds = {name: float(one["seconds"] / one["n_epochs"]) for name, one in values.items()}
    ours = values["triton"]
    n_nodes, n_dims, n_clusters, sizes = (ours[name] for name in ("n_nodes", "n_dims", "n_clusters", "sizes"))
    products = [2 * n_nodes * a * b for a, b in pairwise(sizes)]
    n_weights = sum(a * b + b for a, b in pairwise(sizes))
    # Each layer has one product forward and two backward, except that the gradient of the features is not needed.
    operations = 3 * sum(products) - products[0]
    encoder_bytes = _FLOAT * (_HIDDEN_PASSES * n_nodes * sum(sizes[1:-1]) + _ADAM_PASSES * n_weights)
    clustering_bytes = _FLOAT * 3 * n_nodes * (n_dims + n_clusters)
    encoder_s = seconds["encoder"] - seconds["matmul"] if {"encoder", "matmul"} <= seconds.keys() else None
    parts = [
        Limit("matrix products of the encoder", 0, operations, seconds.get("matmul")),
        Limit("activations, biases and Adam of the bare encoder", encoder_bytes, 0, encoder_s),
        Limit("positive term", moved_bytes(ours["n_pairs"], n_dims), 0, seconds.get("positive term")),
        Limit("clustering term", clustering_bytes, 0, seconds.get("clustering term")),
    ]
    totals = (sum(part.n_bytes for part in parts), sum(part.n_operations for part in parts))
    return [*parts, Limit("whole epoch", *totals, seconds["triton"])]


def _exports(rows: Sequence[Row], folder: Path) -> str:
    """Return the throughput of an ONNX file on one core, and the sizes of saved models."""
    values = {row["provider"]: row["values"] for row in _good(rows)}
    speed, sizes = values.get("onnx"), values.get("pamc")
    body = []
    if speed is not None:
        body += [["label of a row with 64 columns, rows per second of one core", f"{speed['rows_per_cpu_s']:,.0f}"]]
        body += [["all outputs, rows per second of one core", f"{speed['rows_per_cpu_s_all_outputs']:,.0f}"]]
    if sizes is not None:
        names = {"whole": "run folder of the digits", "slim": "the same with `slim=True`", "onnx": "ONNX file"}
        body += [[text, f"{sizes[f'{name}_bytes'] / 1e6:.2f} MB"] for name, text in names.items()]
    return Table(["exported model", "measured"], body).markdown()


_GPU_EPOCHS: Callable[[], Sequence[Row]] = partial(stored, "epoch", device="cuda")

SPEED = {
    "training": Part(_GPU_EPOCHS, _training),
    "beyond-encoder": Part(_GPU_EPOCHS, _beyond_encoder),
    **{f"loss-{device}": Part(partial(stored, "loss", device=device), _loss) for device in _DEVICES},
    "positive": Part(partial(stored, "positive"), _plain),
    "fit": Part(partial(stored, "fit"), _fits),
    "fit-sizes": Part(partial(stored, "fit"), _fit_sizes),
    "inference": Part(partial(stored, "inference"), _plain),
    "exports": Part(partial(stored, "export"), _exports),
    "cpu-epochs": Part(partial(stored, "epoch", device="cpu"), _cpu_epochs),
    "roofline": Part(_GPU_EPOCHS, _roofline),
    "short": Part(_GPU_EPOCHS, _short),
}
