"""Training time, inference time and memory of PamCGC beside the methods it is compared with (the paper's Performance).

The paper's times hold the building of γ and an evaluation in every epoch. Here each part is measured on its own, so
that every sum can be had.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pamc.lab.cell import TASKS, Cell, Row, Scope, register_experiment
from pamc.lab.fits import RARELY, EpochWatch, TrainingProbe, fit_cell, inference_s, warm_up
from pamc.lab.measure import release
from pamc.lab.pages.style import (
    MISSING,
    acc_of,
    bar_groups,
    by,
    data_sets_in,
    drawing,
    legend,
    mean_text,
    method_color,
    percent,
    save_figure,
    title_of,
    write_table,
)
from pamc.lab.rows import kind_of, machine_of, machines_of
from pamc.lab.settings import ALL_SETS, fit_cells, kind_of_device, load, n_classes
from pamc.results.metrics import evaluate
from pamc.results.table import Table, mean_std
from pamc.runtime import resolve_device

METHODS_TIMED = ("pamcgc", "scgc*", "scgc", "sdcn", "agcn")
# Epochs of training and runs of inference: as in the paper on a GPU, a twentieth of that on a CPU.
N_REPEATS = {"cuda": 200, "cpu": 10}
_QUICK_INFERENCES = 3
_MIB = 1 << 20

# The start is not timed, and what training costs does not depend on it.
_SHORT_START: dict[str, Any] = {"pretrain_epochs": 1, "n_init": 1}

# Sums of phases, by the name they have in tables; all but the last are what may be counted as training.
SUMS = {
    "training": ("training",),
    "with γ": ("training", "graph"),
    "with evaluation": ("training_with_evaluation",),
    "with both, as in the paper": ("training_with_evaluation", "graph"),
    "inference": ("inference",),
}
_MEASURES = (*SUMS, "memory")


def cells(scope: Scope) -> list[Cell]:
    """Return a cell per data set, method and repeat; each must run alone on its device."""
    device = kind_of_device(scope.device)
    n_repeats = N_REPEATS[device]
    options = {"alone": True, "device": device, "evaluation": True}
    options["n_inferences"] = _QUICK_INFERENCES if scope.quick else n_repeats
    return fit_cells(
        scope,
        "time-memory",
        "time",
        data_sets=ALL_SETS,
        methods=METHODS_TIMED,
        n_seeds=3,
        variants=lambda *_: [({"n_epochs": n_repeats, **_SHORT_START}, options)],
    )


@TASKS.register("time")
def time_cell(cell: Cell, device: str) -> dict[str, Any]:
    """Fit a method after a warm-up, with nothing beside the training, and again with an evaluation in every epoch.

    `seconds` has the phases of the first fit, `training_with_evaluation` of the second (option `evaluation`) and
    `inference`: option `n_inferences` times the labels of all rows, which lie on the device, by the encoder, or by the
    network for methods that need the graph. `peak_training_bytes` is the most that was allocated on the GPU in any
    epoch but the first, data included; None on the CPU.
    """
    graph, resolved = load(cell.data_set, cell.quick), resolve_device(device)
    truth, n_inferences = np.asarray(graph.labels), int(cell.parameters["n_inferences"])
    warm_up(cell, graph, resolved)
    probe = TrainingProbe(resolved, int(cell.settings["n_epochs"]))
    fit = fit_cell(cell, graph, resolved, on_epoch=probe)
    seconds = dict(fit.seconds)
    if n_inferences:
        seconds["inference"] = inference_s(fit, graph, resolved, n_inferences)
    values = {
        "selection": "last",
        "last": evaluate(truth, fit.labels),
        "n_epochs_run": len(fit.history["loss"]),
        "n_inferences": n_inferences,
        "seconds": seconds,
        "peak_training_bytes": probe.peak,
        "n_positive_pairs": fit.facts["n_positive_pairs"],
        "cluster_sizes": np.bincount(fit.labels, minlength=n_classes(graph)).tolist(),
        "config": fit.config.to_dict(),
        "warnings": list(fit.warnings),
    }
    assigns = "changed" in fit.history
    # A fit that is over must not hold memory while another runs.
    del fit
    release(resolved)
    if cell.parameters["evaluation"]:
        watch = EpochWatch(truth, every=1 if assigns else RARELY)
        seconds["training_with_evaluation"] = fit_cell(cell, graph, resolved, on_epoch=watch).seconds["training"]
        values["evaluated_every"] = watch.every
    return values


@register_experiment(
    "time-memory",
    summary="Training time, inference time and memory of PamCGC, SCGC*, SCGC, SDCN and AGCN.",
    cells=cells,
)
def render(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw, for each kind of device, a table of all figures, one of ratios SCGC*/PamCGC, and three panels of bars."""
    paths = []
    for kind, group in by(rows, kind_of).items():
        paths += _tables(group, folder, kind)
        paths += _figure(group, folder, kind)
    return paths


def _values(rows: Sequence[Row], measure: str) -> list[float]:
    """Return a sum of phases in seconds, or the peak of memory in MiB, of the rows in which all of it was measured."""
    if measure == "memory":
        peaks = [row["values"]["peak_training_bytes"] for row in rows]
        return [peak / _MIB for peak in peaks if peak is not None]
    found = [[row["values"]["seconds"].get(phase) for phase in SUMS[measure]] for row in rows]
    return [sum(seconds) for seconds in found if None not in seconds]


def _tables(rows: Sequence[Row], folder: Path, kind: str) -> list[Path]:
    groups = by(rows, lambda row: (str(row["data_set"]), str(row["provider"])))
    body = [
        [data_set, title_of(method), *(_text(_values(group, name), 0 if name == "memory" else 2) for name in _MEASURES)]
        for (data_set, method), group in groups.items()
    ]
    units = ["memory (MiB)" if name == "memory" else f"{name} (s)" for name in _MEASURES]
    n_epochs, n_inferences = (rows[0]["values"][name] for name in ("n_epochs_run", "n_inferences"))
    note = (
        f"Mean ± standard deviation of the repeats on {machines_of(rows)}. Training is "
        f"{n_epochs} epochs after pre-training; γ is everything that builds the graph and its positive pairs; "
        f"evaluation is that of the labels in every epoch. Inference is {n_inferences} assignments of all rows. Memory "
        "is the peak of GPU memory allocated in an epoch, data included; it is not measured on a CPU."
    )
    table = Table(["data set", "method", *units], body, "ll" + "r" * len(units))
    title = f"Training time, inference time and memory ({kind})"
    paths = write_table(table, folder, f"time-memory-{kind}", title=title, rows=rows, note=note)
    if not (ratios := _ratios(groups)):
        return paths
    note = (
        "Ratio of the means over the repeats; the last row is the geometric mean over the data sets. The "
        "paper, on a T4: 3.6 for training with both, 1.8 for inference and 5.3 for memory over its data sets; "
        "memory 5.2 on USPS, 7.7 on HHAR, 8.7 on Reuters. Here both methods label rows with the same network."
    )
    table = Table(["data set", *_MEASURES], ratios)
    title = f"How many times SCGC* needs what PamCGC needs ({kind})"
    return paths + write_table(table, folder, f"time-memory-{kind}-ratios", title=title, rows=rows, note=note)


def _text(values: Sequence[float], decimals: int) -> str:
    mean = mean_text(values, decimals)
    return f"{mean} ± {mean_std(values).std:.{decimals}f}" if len(values) > 1 else mean


def _ratios(groups: dict[tuple[str, str], list[Row]]) -> list[list[str]]:
    """Return what SCGC* needs over what PamCGC needs on the sets that have both, and the geometric means."""
    both = ("scgc*", "pamcgc")
    data_sets = dict.fromkeys(name for name, _ in groups if all((name, method) in groups for method in both))
    columns = []
    for measure in _MEASURES:
        pairs = [[_values(groups[name, method], measure) for method in both] for name in data_sets]
        ratios = [mean_std(a).mean / mean_std(b).mean if a and b else None for a, b in pairs]
        known = [ratio for ratio in ratios if ratio is not None]
        overall = math.exp(np.mean(np.log(known))) if known else None
        columns.append([MISSING if ratio is None else f"{ratio:.2f}" for ratio in (*ratios, overall)])
    return [[*line] for line in zip([*data_sets, "geometric mean"], *columns, strict=True)] if data_sets else []


def _figure(rows: Sequence[Row], folder: Path, kind: str) -> list[Path]:
    data_sets, methods = data_sets_in(rows), list(by(rows, lambda row: str(row["provider"])))
    groups = by(rows, lambda row: (row["provider"], row["data_set"]))

    def bars(name: str) -> dict[str, list[list[float]]]:
        return {title_of(m): [_values(groups.get((m, data_set), []), name) for data_set in data_sets] for m in methods}

    paper = bars("with both, as in the paper")
    tops = {
        name: [
            [mean_std(p).mean - mean_std(a).mean] if p and a else [0.0] for p, a in zip(paper[name], own, strict=True)
        ]
        for name, own in bars("training").items()
    }
    values = rows[0]["values"]
    panels: list[tuple[str, str, dict[str, Any]]] = [
        ("training", f"training, {values['n_epochs_run']} epochs (s)", {"tops": tops}),
        ("inference", f"inference, {values['n_inferences']} runs (s)", {}),
        ("memory", "peak GPU memory of an epoch (MiB)", {}),
    ]
    shown = [panel for panel in panels if any(value for group in bars(panel[0]).values() for value in group)]
    with drawing(1, len(shown), size=(1.2 + 3.9 * len(shown), 3.4)) as (figure, axes):
        for panel, (name, label, options) in zip(axes[0], shown, strict=True):
            bar_groups(panel, data_sets, bars(name), colors=[method_color(method) for method in methods], **options)
            panel.set_title(label)
        legend(figure, axes[0, 0])
        note = "Hatched: building γ and evaluating every epoch, which the paper's times include."
        return save_figure(figure, folder, f"time-memory-{kind}", rows=rows, note=f"{machine_of(rows[0])}. {note}")


NETWORKS = ("sdcn", "agcn")
_KINDS = ("", "+contrast", "+pamc")
METHODS_COMPARED = tuple(network + kind for network in NETWORKS for kind in _KINDS)
N_EPOCHS = 200

# One hue per network, darker from the plain network to PamC.
_ABLATION_COLORS = {
    "sdcn": "#A6D5C4",
    "sdcn+contrast": "#009E73",
    "sdcn+pamc": "#00523B",
    "agcn": "#EBC4DA",
    "agcn+contrast": "#CC79A7",
    "agcn+pamc": "#7A3A5E",
}


def ablation_cells(scope: Scope) -> list[Cell]:
    """Return a cell per data set, method and seed; those of seed 0 run alone on their device: their times count."""
    options = {"device": kind_of_device(scope.device), "evaluation": False, "n_inferences": 0}
    return fit_cells(
        scope,
        "ablation",
        "time",
        data_sets=ALL_SETS,
        methods=METHODS_COMPARED,
        n_seeds=3,
        variants=lambda name, method, seed: [({"n_epochs": N_EPOCHS}, {**options, "alone": seed == 0})],
    )


@register_experiment(
    "ablation",
    summary="SDCN and AGCN unmodified, with the N × N contrastive loss, and with PamC: training time and accuracy.",
    cells=ablation_cells,
)
def render_ablation(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw, for each kind of device, training times, differences of ACC between PamC and N × N, and a table of both."""
    paths = []
    for kind, group in by(rows, kind_of).items():
        paths += _ablation_table(group, folder, kind) + _ablation_figure(group, folder, kind)
    return paths


def _training_s(rows: Sequence[Row]) -> list[float]:
    """Return the seconds of training of the runs that were alone."""
    return [float(row["values"]["seconds"]["training"]) for row in rows if row["parameters"]["alone"]]


def acc_differences(rows: Sequence[Row], network: str, data_set: str) -> list[float]:
    """Return ACC in percent with PamC minus that with the N × N loss, of each seed that has both."""
    found = {(row["provider"], row["seed"]): acc_of(row) for row in rows if row["data_set"] == data_set}
    seeds = sorted({seed for _, seed in found})
    pairs = [(found.get((f"{network}+pamc", seed)), found.get((f"{network}+contrast", seed))) for seed in seeds]
    return [a - b for a, b in pairs if a is not None and b is not None]


def _ablation_table(rows: Sequence[Row], folder: Path, kind: str) -> list[Path]:
    body = []
    for (data_set, method), group in by(rows, lambda row: (row["data_set"], row["provider"])).items():
        times = _training_s(group)
        network, _, added = method.partition("+")
        gain = _text(acc_differences(rows, network, data_set), 2) if added == "pamc" else ""
        acc = percent([row["values"]["last"]["acc"] for row in group])
        body.append([data_set, title_of(method), mean_text(times, 2), acc, gain])
    columns = ["data set", "method", "training (s)", "ACC", "ACC of PamC − N × N"]
    note = (
        f"Training is {rows[0]['values']['n_epochs_run']} epochs without γ and without evaluation, on "
        f"{machines_of(rows)}. ACC in percent, last epoch; the difference is that of the "
        "same seeds. Mean ± standard deviation; times are those of one run, which was alone."
    )
    title = f"PamC and the N × N contrastive loss in SDCN and AGCN ({kind})"
    return write_table(Table(columns, body, "llrrr"), folder, f"ablation-{kind}", title=title, rows=rows, note=note)


def _ablation_figure(rows: Sequence[Row], folder: Path, kind: str) -> list[Path]:
    data_sets = data_sets_in(rows)
    methods = [method for method in METHODS_COMPARED if any(row["provider"] == method for row in rows)]
    groups = by(rows, lambda row: (row["provider"], row["data_set"]))
    times = {
        title_of(method): [_training_s(groups.get((method, name), [])) for name in data_sets] for method in methods
    }
    gains = {title_of(network): [acc_differences(rows, network, name) for name in data_sets] for network in NETWORKS}
    with drawing(1, 2, size=(11.5, 3.6), width_ratios=[1.7, 1]) as (figure, axes):
        left, right = axes[0]
        bar_groups(left, data_sets, times, colors=[_ABLATION_COLORS[method] for method in methods])
        left.set_title(f"training, {rows[0]['values']['n_epochs_run']} epochs (s)")
        bar_groups(right, data_sets, gains, colors=[_ABLATION_COLORS[f"{network}+pamc"] for network in NETWORKS])
        right.axhline(0, color="black", linewidth=0.8)
        right.set_title("ACC with PamC − ACC with N × N (points)")
        legend(figure, left)
        return save_figure(figure, folder, f"ablation-{kind}", rows=rows, note=f"{machine_of(rows[0])}. Last epoch.")
