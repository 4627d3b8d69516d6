"""The number of clusters that choose_k finds, the calibration of confidence, and the parts of `docs/choosing.md`.

Results are compared with classes and with re-fits of other seeds, which no fit uses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from pamc.config import FitConfig
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.synthetic import block_model
from pamc.estimator import PamCGC
from pamc.initialize.calibration import calibration_error, matched_clusters
from pamc.lab.cell import Cell, Row, Scope, register_case
from pamc.lab.pages import Part, joined, origin
from pamc.lab.pages.style import MISSING, PALETTE, by, drawing, save_figure
from pamc.lab.rows import stored
from pamc.lab.settings import bench_cells, load_unlinked, n_classes
from pamc.results.table import Table
from pamc.selection.choose_k import choose_k
from pamc.training.pipeline import settled

SETS = ("dblp", "acm", "cite", "cora", "usps", "hhar", "amazon_photo")


def _groups(n_groups: int, options: dict[str, Any], seed: int) -> AttributedGraph:
    return block_model(100 * n_groups if n_groups > 5 else 600, n_groups, random_state=seed, **options)


# Planted groups, clear and noisy.
PLANTED: dict[str, Callable[[int], AttributedGraph]] = {
    f"{n_groups} groups, {noise}": partial(_groups, n_groups, options)
    for n_groups in (3, 7, 15)
    for noise, options in (("clear", {}), ("noisy", {"homophily": 0.65, "feature_noise": 2.0}))
}

# Data without clusters or with overlapping clusters.
WITHOUT: dict[str, Callable[[int], AttributedGraph]] = {
    "Gaussian noise": lambda seed: AttributedGraph(np.random.default_rng(seed).normal(size=(800, 16))),
    "a uniform square": lambda seed: AttributedGraph(np.random.default_rng(seed).uniform(size=(800, 2))),
    "a random graph": lambda seed: block_model(800, 1, random_state=seed),
    "overlapping blocks, sizes 1:20": lambda seed: block_model(
        1050, 2, sizes=[50, 1000], homophily=0.5, feature_noise=4, random_state=seed
    ),
}

ALL_DATA = (*SETS, *PLANTED, *WITHOUT)

# Number of timed epochs; the time of the others is extrapolated.
_TIMED_EPOCHS = 4
_N_BINS = 10


def _graph(name: str, seed: int) -> AttributedGraph:
    create = PLANTED.get(name) or WITHOUT.get(name)
    return load_unlinked(name) if create is None else create(seed)


@register_case(
    "choose_k",
    "number of clusters that choose_k finds, and its cost relative to a fit",
    cells=partial(
        bench_cells, case="choose_k", measured=[("choose_k", {})], data_sets=ALL_DATA, quick_sets=("blocks",)
    ),
    in_all=False,
)
def answer(cell: Cell, device: str) -> dict[str, Any]:
    """Return the answer of choose_k, and its cost relative to a fit with default settings on the CPU.

    Both are measured in processor time, which does not depend on other load.
    """
    graph = _graph(cell.data_set, cell.seed)
    truth = 0 if cell.data_set in WITHOUT else n_classes(graph)
    started = time.process_time()
    chosen = choose_k(graph, candidates=range(2, 6) if cell.quick else None, random_state=cell.seed, device="cpu")
    seconds = time.process_time() - started
    fit_s = _fit_seconds(graph, max(2, truth), cell.seed)["fit"]
    n_candidates = len(chosen.table["n_clusters"])
    return {
        "truth": truth or None,
        **chosen.facts(),
        "seconds": seconds,
        "fit_s": fit_s,
        "cost": seconds / fit_s,
        "allowed_cost": 2 + 0.2 * n_candidates,
        "n_nodes": graph.n_nodes,
        "n_candidates": n_candidates,
    }


def _fit_seconds(graph: AttributedGraph, n_clusters: int, seed: int) -> dict[str, float]:
    """Return the processor time of a fit with default settings, in total ("fit") and by phases.

    Only some epochs are run; the total is extrapolated from them.
    """
    model = PamCGC(n_clusters, n_epochs=_TIMED_EPOCHS, random_state=seed, device="cpu")
    started, wall_started = time.process_time(), time.perf_counter()
    model.fit_graph(graph)
    seconds, wall = time.process_time() - started, time.perf_counter() - wall_started
    # Divide the processor time among the phases in proportion to their wall time.
    phases = {name: seconds * spent / wall for name, spent in model.record().seconds.items()}
    n_epochs = settled(FitConfig(), graph.n_nodes).n_epochs
    return {**phases, "fit": seconds + (n_epochs / _TIMED_EPOCHS - 1) * phases["training"]}


def confidence_cells(scope: Scope) -> list[Cell]:
    """Return two cells per data set, for the calibration of confidence and for its cost."""
    fits = {"n_refits": 1, "n_epochs": 5} if scope.quick else {"n_refits": 3, "n_epochs": 200}
    measured = [("pamcgc", fits), ("calibration", {})]
    return bench_cells(scope, "confidence", measured, data_sets=SETS, quick_sets=("3 groups, noisy",))


@register_case(
    "confidence",
    "confidence compared with accuracy and re-fits, and its cost",
    cells=confidence_cells,
    in_all=False,
)
def confidence(cell: Cell, device: str) -> dict[str, Any]:
    """Return how well confidence predicts accuracy and the agreement of re-fits, or the cost of calibration."""
    graph = _graph(cell.data_set, 0)
    if cell.provider == "calibration":
        return _cost(graph)
    n_clusters, (n_refits, n_epochs) = n_classes(graph), (cell.parameters[key] for key in ("n_refits", "n_epochs"))
    truth = np.unique(np.asarray(graph.labels), return_inverse=True)[1]

    def fitted(seed: int) -> PamCGC:
        return PamCGC(n_clusters, n_epochs=n_epochs, random_state=seed, device=device).fit_graph(graph)

    model = fitted(0)
    q = model.predict_proba(graph.features).max(axis=1)
    correct = matched_clusters(model.labels_, truth, n_clusters) == truth
    refits = [matched_clusters(fitted(seed).labels_, model.labels_, n_clusters) for seed in range(1, 1 + n_refits)]
    agreement = np.mean([labels == model.labels_ for labels in refits], axis=0)
    return {
        "n_nodes": graph.n_nodes,
        "acc": float(correct.mean()),
        "confidence": float(model.confidence_.mean()),
        "largest_q": float(q.mean()),
        "stated_error": model.record().facts.get("confidence_error"),
        "error_to_accuracy": calibration_error(model.confidence_, correct),
        "error_to_accuracy_of_q": calibration_error(q, correct),
        "auc": float(roc_auc_score(correct, model.confidence_)),
        "auc_of_q": float(roc_auc_score(correct, q)),
        "bins": _bins(model.confidence_, correct),
        "refits_agree": float(agreement.mean()),
        "error_to_refits": calibration_error(model.confidence_, agreement),
        "error_to_refits_of_q": calibration_error(q, agreement),
    }


def _cost(graph: AttributedGraph) -> dict[str, Any]:
    """Return the processor time of calibration and its share of a fit with default settings."""
    seconds = _fit_seconds(graph, n_classes(graph), 0)
    fit_s, calibration_s = seconds["fit"], seconds["confidence"]
    return {"n_nodes": graph.n_nodes, "calibration_s": calibration_s, "fit_s": fit_s, "share": calibration_s / fit_s}


def _bins(confidence: NDArray[np.floating[Any]], correct: NDArray[np.bool_]) -> list[dict[str, float]]:
    """Return the mean confidence and accuracy of bins of equal size, in ascending order of confidence."""
    parts = np.array_split(np.argsort(confidence, kind="stable"), _N_BINS)
    return [
        {"n_rows": len(part), "confidence": float(confidence[part].mean()), "accuracy": float(correct[part].mean())}
        for part in parts
        if len(part)
    ]


def _answers(rows: Sequence[Row], folder: Path) -> str:
    """Return a table of the answers of choose_k and the true number of classes, one line per data set."""
    by_name = by(rows, lambda row: str(row["data_set"]))
    body = []
    for name in (name for name in ALL_DATA if name in by_name):
        values = by_name[name][0]["values"]
        table, numbers = values["table"], values["table"]["n_clusters"]
        most_stable = int(np.argmax(table["stability"]))
        position = most_stable if values["n_clusters"] is None else numbers.index(values["n_clusters"])
        answers = ", ".join(str(row["values"]["n_clusters"] or MISSING) for row in by_name[name])
        margin = MISSING if values["rival"] is None else f"{values['margin']:.2f} ± {values['margin_error']:.2f}"
        scores = [f"{table[kind][position]:.2f}" for kind in ("stability", "chance")]
        stable = ", ".join(map(str, values["also_stable"])) or MISSING
        counts = [f"{values['n_nodes']:,}", str(values["truth"] or "none")]
        body.append([name, *counts, answers, *scores, margin, stable])
    columns = ["data", "rows", "classes", "answers", "stability", "by chance", "margin", "as stable"]
    return joined(Table(columns, body).markdown(), origin(rows))


def _costs(rows: Sequence[Row], folder: Path) -> str:
    body = []
    for row in (row for row in rows if row["seed"] == 0):
        values = row["values"]
        seconds = [f"{values[name]:.0f} s" for name in ("seconds", "fit_s")]
        body.append([row["data_set"], *seconds, f"{values['cost']:.2f}", f"{values['allowed_cost']:.1f}"])
    return Table(["data", "choose_k", "one fit", "fits", "2 + 0.2 per candidate"], body).markdown()


# Columns of the table of confidence and their values.
_COLUMNS = (
    ("ACC", "acc"),
    ("confidence", "confidence"),
    ("error to ACC", "error_to_accuracy"),
    ("of q", "error_to_accuracy_of_q"),
    ("AUC", "auc"),
    ("of q", "auc_of_q"),
    ("error to re-fits", "error_to_refits"),
    ("of q", "error_to_refits_of_q"),
    ("stated", "stated_error"),
)


def _confidence(rows: Sequence[Row], folder: Path) -> str:
    """Return a table of the calibration of confidence on each data set, and draw accuracy over confidence."""
    # The newest row of each data set; rows without AUC are from an older definition of confidence.
    fits = list({row["data_set"]: row for row in rows if "auc" in row["values"]}.values())
    _draw(fits, folder)
    body = []
    for row in fits:
        values = [row["values"].get(name) for _, name in _COLUMNS]
        body.append([row["data_set"], *(MISSING if value is None else f"{100 * value:.1f}" for value in values)])
    epochs = ", ".join(sorted({str(row["parameters"]["n_epochs"]) for row in fits}))
    shares = [100 * row["values"]["share"] for row in rows if row["provider"] == "calibration"]
    cost = f"Calibration takes {min(shares):.1f} to {max(shares):.1f} % of a fit with default settings on a CPU."
    table = Table(["data", *(title for title, _ in _COLUMNS)], body)
    return joined(f"Percent, for fits of {epochs} epochs.", table.markdown(), cost, origin(fits))


def _draw(rows: Sequence[Row], folder: Path) -> None:
    with drawing(1, 1, size=(6.4, 4.4)) as (figure, axes):
        ax = axes[0, 0]
        ax.plot([0, 1], [0, 1], color="#888888", linestyle=":", linewidth=1)
        for row, color in zip(rows, cycle(PALETTE), strict=False):
            x, y = ([part[name] for part in row["values"]["bins"]] for name in ("confidence", "accuracy"))
            ax.plot(x, y, marker="o", markersize=3, linewidth=1, color=color, label=row["data_set"])
        ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.02), ylim=(0, 1.02))
        ax.legend(fontsize=7)
        save_figure(figure, folder, "reliability", rows=rows)


CHOOSING = {
    "answers": Part(partial(stored, "choose_k"), _answers),
    "costs": Part(partial(stored, "choose_k"), _costs),
    "confidence": Part(partial(stored, "confidence"), _confidence),
}
