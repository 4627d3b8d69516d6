"""PamC in other networks: SDCN and AGCN as they are, with the N × N contrastive loss, and with PamC."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pamc.experiments.experiment import Cell, Row, Scope, register_experiment
from pamc.experiments.figures import bar_groups, by, drawing, percent, save_figure, title_of, write_table
from pamc.experiments.rows import machine_of
from pamc.experiments.scopes import ALL_SETS, data_sets_of, kind_of_device, methods_of, run_settings, seeds_of
from pamc.results.table import Table, mean_std

__all__ = ["cells", "render"]

NETWORKS = ("sdcn", "agcn")
_KINDS = ("", "+contrast", "+pamc")
METHODS_COMPARED = tuple(network + kind for network in NETWORKS for kind in _KINDS)
N_EPOCHS = 200

# One hue per network, darker from the plain network to PamC.
_COLORS = {
    "sdcn": "#A6D5C4",
    "sdcn+contrast": "#009E73",
    "sdcn+pamc": "#00523B",
    "agcn": "#EBC4DA",
    "agcn+contrast": "#CC79A7",
    "agcn+pamc": "#7A3A5E",
}


def cells(scope: Scope) -> list[Cell]:
    """Return a cell per data set, method and seed; those of seed 0 run alone on their device: their times count."""
    options = {"device": kind_of_device(scope.device), "evaluation": False, "n_inferences": 0}
    return [
        Cell(
            "ablation",
            "time",
            method,
            data_set,
            seed,
            run_settings(scope, method, data_set, n_epochs=N_EPOCHS),
            {**options, "alone": seed == 0},
            scope.quick,
        )
        for data_set in data_sets_of(scope, ALL_SETS)
        for method in methods_of(scope, METHODS_COMPARED)
        for seed in seeds_of(scope, 3)
    ]


@register_experiment(
    "ablation",
    summary="SDCN and AGCN as they are, with the N × N contrastive loss, and with PamC: training time and accuracy.",
    cells=cells,
)
def render(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw, for each kind of device, training times, differences of ACC between PamC and N × N, and a table of both."""
    paths = []
    for kind, group in by(rows, lambda row: str(row["device"]).split(":")[0]).items():
        paths += _table(group, folder, kind) + _figure(group, folder, kind)
    return paths


def _acc(row: Row) -> float:
    return float(row["values"]["last"]["acc"])


def _training_s(rows: Sequence[Row]) -> list[float]:
    """Return the seconds of training of the runs that were alone."""
    return [float(row["values"]["seconds"]["training"]) for row in rows if row["options"]["alone"]]


def acc_differences(rows: Sequence[Row], network: str, data_set: str) -> list[float]:
    """Return ACC with PamC minus ACC with the N × N loss, seed by seed, for the seeds that have both."""
    found = {(row["method"], row["seed"]): _acc(row) for row in rows if row["data_set"] == data_set}
    seeds = sorted({seed for _, seed in found})
    pairs = [(found.get((f"{network}+pamc", seed)), found.get((f"{network}+contrast", seed))) for seed in seeds]
    return [a - b for a, b in pairs if a is not None and b is not None]


def _table(rows: Sequence[Row], folder: Path, kind: str) -> list[Path]:
    body = []
    for (data_set, method), group in by(rows, lambda row: (row["data_set"], row["method"])).items():
        times = _training_s(group)
        network, _, added = method.partition("+")
        gain = percent(acc_differences(rows, network, data_set), decimals=2) if added == "pamc" else ""
        seconds = f"{mean_std(times).mean:.2f}" if times else "–"
        body.append([data_set, title_of(method), seconds, percent([_acc(row) for row in group]), gain])
    columns = ["data set", "method", "training (s)", "ACC", "ACC of PamC − N × N"]
    note = (
        f"Training is {rows[0]['values']['n_epochs_run']} epochs without γ and without evaluation, on "
        f"{', '.join(dict.fromkeys(map(machine_of, rows)))}. ACC in percent, last epoch; the difference is that of the "
        "same seeds. Mean ± standard deviation; times are those of one run, which was alone."
    )
    title = f"PamC and the N × N contrastive loss in SDCN and AGCN ({kind})"
    return write_table(Table(columns, body, "llrrr"), folder, f"ablation-{kind}", title=title, rows=rows, note=note)


def _figure(rows: Sequence[Row], folder: Path, kind: str) -> list[Path]:
    data_sets = list(dict.fromkeys(row["data_set"] for row in rows))
    methods = [method for method in METHODS_COMPARED if any(row["method"] == method for row in rows)]
    groups = by(rows, lambda row: (row["method"], row["data_set"]))
    times = {
        title_of(method): [_training_s(groups.get((method, name), [])) for name in data_sets] for method in methods
    }
    gains = {
        title_of(network): [[100 * d for d in acc_differences(rows, network, name)] for name in data_sets]
        for network in NETWORKS
    }
    with drawing(1, 2, size=(11.5, 3.6), width_ratios=[1.7, 1]) as (figure, axes):
        left, right = axes[0]
        bar_groups(left, data_sets, times, colors=[_COLORS[method] for method in methods])
        left.set_title(f"training, {rows[0]['values']['n_epochs_run']} epochs (s)")
        bar_groups(right, data_sets, gains, colors=[_COLORS[f"{network}+pamc"] for network in NETWORKS])
        right.axhline(0, color="black", linewidth=0.8)
        right.set_title("ACC with PamC − ACC with N × N (points)")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center")
        return save_figure(figure, folder, f"ablation-{kind}", rows=rows, note=f"{machine_of(rows[0])}. Last epoch.")
