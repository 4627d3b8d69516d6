"""Training time, inference time and memory of PamCGC and the methods it is compared with (the paper's Performance).

The paper's times include building γ and evaluating every epoch. Here each part is measured separately, so that any sum
can be computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import gmean

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
from pamc.lab.settings import ALL_SETS, Variant, fit_cells, kind_of_device, load, n_classes
from pamc.results.metrics import evaluate
from pamc.results.table import Table, mean_std
from pamc.runtime import resolve_device

METHODS_TIMED = ("pamcgc", "scgc*", "scgc", "sdcn", "agcn")
# Number of training epochs and of inference runs: as in the paper on a GPU, a twentieth of that on a CPU.
N_REPEATS = {"cuda": 200, "cpu": 10}
_QUICK_INFERENCES = 3
_MIB = 1 << 20

# Initialization is not timed, and the cost of training does not depend on it.
_SHORT_INIT: dict[str, Any] = {"pretrain_epochs": 1, "n_init": 1}

# Sums of phases by their names in tables. All but the last may be counted as training.
SUMS = {
    "training": ("training",),
    "with γ": ("training", "graph"),
    "with evaluation": ("training_with_evaluation",),
    "with both, as in the paper": ("training_with_evaluation", "graph"),
    "inference": ("inference",),
}
_MEASURES = (*SUMS, "memory")


def _timed(scope: Scope, data_set: str, method: str, seed: int) -> list[Variant]:
    """Return one variant, which must run alone on its device."""
    device = kind_of_device(scope.device)
    parameters = {"alone": True, "device": device, "evaluation": True}
    parameters["n_inferences"] = _QUICK_INFERENCES if scope.quick else N_REPEATS[device]
    return [({"n_epochs": N_REPEATS[device], **_SHORT_INIT}, parameters)]


@TASKS.register("time")
def time_cell(cell: Cell, device: str) -> dict[str, Any]:
    """Fit a method after a warm-up without any evaluation, and again with an evaluation in every epoch.

    `seconds` has the phases of the first fit, `training_with_evaluation` of the second (if parameter `evaluation` is
    set), and `inference`, the time of assigning all rows `n_inferences` times by the encoder, or by the network for
    methods that need the graph; the rows are on the device. `peak_training_bytes` is the peak of allocated GPU memory
    in all epochs but the first, data included; None on the CPU.
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
    # Free the memory of the first fit before the second.
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
    cells=partial(
        fit_cells, case="time-memory", task="time", data_sets=ALL_SETS, methods=METHODS_TIMED, variants=_timed
    ),
)
def render(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw three panels of bars and write tables of all values and of the ratios SCGC*/PamCGC, per kind of device."""
    groups = by(rows, kind_of)
    return [path for kind, group in groups.items() for make in (_tables, _figure) for path in make(group, folder, kind)]


def measured(rows: Sequence[Row], measure: str) -> list[float]:
    """Return a sum of phases in seconds or the peak memory in MiB, for the rows in which it was measured."""
    if measure == "memory":
        peaks = [row["values"]["peak_training_bytes"] for row in rows]
        return [peak / _MIB for peak in peaks if peak is not None]
    phases = [[row["values"]["seconds"].get(phase) for phase in SUMS[measure]] for row in rows]
    return [sum(seconds) for seconds in phases if None not in seconds]


def _tables(rows: Sequence[Row], folder: Path, kind: str) -> list[Path]:
    groups = by(rows, lambda row: (str(row["data_set"]), str(row["provider"])))
    body = []
    for (data_set, method), group in groups.items():
        texts = [_text(measured(group, name), 0 if name == "memory" else 2) for name in _MEASURES]
        body.append([data_set, title_of(method), *texts])
    units = ["memory (MiB)" if name == "memory" else f"{name} (s)" for name in _MEASURES]
    n_epochs, n_inferences = (rows[0]["values"][name] for name in ("n_epochs_run", "n_inferences"))
    note = (
        f"Mean ± standard deviation over the repeats on {machines_of(rows)}. Training is {n_epochs} epochs after "
        "pre-training; γ is the construction of the graph and its positive pairs; evaluation is that of the labels in "
        f"every epoch. Inference is {n_inferences} assignments of all rows. Memory is the peak of allocated GPU memory "
        "in an epoch, data included; it is not measured on a CPU."
    )
    table = Table(["data set", "method", *units], body, "ll" + "r" * len(units))
    title = f"Training time, inference time and memory ({kind})"
    paths = write_table(table, folder, f"time-memory-{kind}", title=title, rows=rows, note=note)
    if not (ratios := _ratios(groups)):
        return paths
    note = (
        "Ratio of the means over the repeats; the last row is the geometric mean over the data sets. The paper, on a "
        "T4 and over its data sets: 3.6 for training with both, 1.8 for inference and 5.3 for memory; memory is 5.2 on "
        "USPS, 7.7 on HHAR and 8.7 on Reuters. Here both methods assign rows with the same network."
    )
    table = Table(["data set", *_MEASURES], ratios)
    title = f"Cost of SCGC* relative to PamCGC ({kind})"
    return paths + write_table(table, folder, f"time-memory-{kind}-ratios", title=title, rows=rows, note=note)


def _text(values: Sequence[float], decimals: int) -> str:
    mean = mean_text(values, decimals)
    return f"{mean} ± {mean_std(values).std:.{decimals}f}" if len(values) > 1 else mean


def _ratios(groups: dict[tuple[str, str], list[Row]]) -> list[list[str]]:
    """Return the costs of SCGC* divided by those of PamCGC on the data sets that have both, and geometric means."""
    both = ("scgc*", "pamcgc")
    data_sets = dict.fromkeys(name for name, _ in groups if all((name, method) in groups for method in both))
    columns = []
    for measure in _MEASURES:
        pairs = [[measured(groups[name, method], measure) for method in both] for name in data_sets]
        ratios = [mean_std(a).mean / mean_std(b).mean if a and b else None for a, b in pairs]
        known = [ratio for ratio in ratios if ratio is not None]
        overall = float(gmean(known)) if known else None
        columns.append([MISSING if ratio is None else f"{ratio:.2f}" for ratio in (*ratios, overall)])
    return [[*line] for line in zip([*data_sets, "geometric mean"], *columns, strict=True)] if data_sets else []


def _figure(rows: Sequence[Row], folder: Path, kind: str) -> list[Path]:
    data_sets, methods = data_sets_in(rows), list(by(rows, lambda row: str(row["provider"])))
    groups = by(rows, lambda row: (row["provider"], row["data_set"]))

    def bars(measure: str) -> dict[str, list[list[float]]]:
        return {title_of(m): [measured(groups.get((m, name), []), measure) for name in data_sets] for m in methods}

    def added(training: Sequence[float], paper: Sequence[float]) -> list[float]:
        return [mean_std(paper).mean - mean_std(training).mean] if training and paper else [0.0]

    paper = bars("with both, as in the paper")
    tops = {title: list(map(added, values, paper[title])) for title, values in bars("training").items()}
    values = rows[0]["values"]
    panels: dict[str, tuple[str, dict[str, Any]]] = {
        "training": (f"training, {values['n_epochs_run']} epochs (s)", {"tops": tops}),
        "inference": (f"inference, {values['n_inferences']} runs (s)", {}),
        "memory": ("peak GPU memory of an epoch (MiB)", {}),
    }
    measures = [measure for measure in panels if measured(rows, measure)]
    with drawing(1, len(measures), size=(1.2 + 3.9 * len(measures), 3.4)) as (figure, axes):
        for panel, measure in zip(axes[0], measures, strict=True):
            title, options = panels[measure]
            bar_groups(panel, data_sets, bars(measure), colors=list(map(method_color, methods)), **options)
            panel.set_title(title)
        legend(figure, axes[0, 0])
        note = "Hatched: building γ and evaluating every epoch, which the paper's times include."
        return save_figure(figure, folder, f"time-memory-{kind}", rows=rows, note=f"{machine_of(rows[0])}. {note}")


NETWORKS = ("sdcn", "agcn")
N_EPOCHS = 200

# Methods with one hue per network, darker from the plain network to PamC.
_ABLATION_COLORS = {
    "sdcn": "#A6D5C4",
    "sdcn+contrast": "#009E73",
    "sdcn+pamc": "#00523B",
    "agcn": "#EBC4DA",
    "agcn+contrast": "#CC79A7",
    "agcn+pamc": "#7A3A5E",
}
METHODS_COMPARED = tuple(_ABLATION_COLORS)


def _ablated(scope: Scope, data_set: str, method: str, seed: int) -> list[Variant]:
    """Return one variant, which is timed and must run alone on its device for seed 0."""
    parameters = {"device": kind_of_device(scope.device), "evaluation": False, "n_inferences": 0, "alone": seed == 0}
    return [({"n_epochs": N_EPOCHS}, parameters)]


@register_experiment(
    "ablation",
    summary="SDCN and AGCN unmodified, with the N × N contrastive loss, and with PamC: training time and accuracy.",
    cells=partial(
        fit_cells, case="ablation", task="time", data_sets=ALL_SETS, methods=METHODS_COMPARED, variants=_ablated
    ),
)
def render_ablation(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw training times and ACC differences between PamC and N × N and write a table, per kind of device."""
    paths = []
    for kind, group in by(rows, kind_of).items():
        paths += _ablation_table(group, folder, kind) + _ablation_figure(group, folder, kind)
    return paths


def training_s(rows: Sequence[Row]) -> list[float]:
    """Return the training times of the runs that had the device to themselves."""
    return measured([row for row in rows if row["parameters"]["alone"]], "training")


def acc_differences(rows: Sequence[Row], network: str, data_set: str) -> list[float]:
    """Return the ACC with PamC minus the ACC with the N × N loss, in percent, for each seed that has both."""
    pamc, contrast = (
        {row["seed"]: acc_of(row) for row in rows if (row["provider"], row["data_set"]) == (method, data_set)}
        for method in (f"{network}+pamc", f"{network}+contrast")
    )
    return [pamc[seed] - contrast[seed] for seed in sorted(pamc.keys() & contrast.keys())]


def _ablation_table(rows: Sequence[Row], folder: Path, kind: str) -> list[Path]:
    body = []
    for (data_set, method), group in by(rows, lambda row: (row["data_set"], row["provider"])).items():
        times = training_s(group)
        network, _, added = method.partition("+")
        gain = _text(acc_differences(rows, network, data_set), 2) if added == "pamc" else ""
        acc = percent([row["values"]["last"]["acc"] for row in group])
        body.append([data_set, title_of(method), mean_text(times, 2), acc, gain])
    columns = ["data set", "method", "training (s)", "ACC", "ACC of PamC − N × N"]
    note = (
        f"Training is {rows[0]['values']['n_epochs_run']} epochs without γ and without evaluation, on "
        f"{machines_of(rows)}. ACC in percent, last epoch; differences are between runs of the same seed. Mean ± "
        "standard deviation; times are those of one run that had the device to itself."
    )
    title = f"PamC and the N × N contrastive loss in SDCN and AGCN ({kind})"
    return write_table(Table(columns, body, "llrrr"), folder, f"ablation-{kind}", title=title, rows=rows, note=note)


def _ablation_figure(rows: Sequence[Row], folder: Path, kind: str) -> list[Path]:
    data_sets = data_sets_in(rows)
    methods = [method for method in METHODS_COMPARED if any(row["provider"] == method for row in rows)]
    groups = by(rows, lambda row: (row["provider"], row["data_set"]))
    times = {title_of(method): [training_s(groups.get((method, name), [])) for name in data_sets] for method in methods}
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
