"""How many clusters choose_k finds beside the truth, what confidence is worth, and the parts of `docs/choosing.md`.

Classes, and the agreement of re-fits with other seeds, are compared with what a fit said; no fit sees them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from pamc.data.attributed_graph import AttributedGraph
from pamc.data.synthetic import block_model
from pamc.estimator import PamCGC
from pamc.initialize.calibration import calibration_error, matched_clusters
from pamc.lab.cell import Cell, Row, Scope, register_case
from pamc.lab.pages import Part, joined, origin
from pamc.lab.pages.style import MISSING, PALETTE, by, drawing, save_figure
from pamc.lab.rows import stored
from pamc.lab.settings import load_unlinked, n_classes, seeds_of
from pamc.results.table import Table
from pamc.selection.choose_k import choose_k

SETS = ("dblp", "acm", "cite", "cora", "usps", "hhar", "amazon_photo")

_NOISE: dict[str, dict[str, float]] = {"clear": {}, "noisy": {"homophily": 0.65, "feature_noise": 2.0}}


def _groups(n_groups: int, options: dict[str, Any], seed: int) -> AttributedGraph:
    return block_model(100 * n_groups if n_groups > 5 else 600, n_groups, random_state=seed, **options)


# Planted groups, clear and noisy.
PLANTED: dict[str, Callable[[int], AttributedGraph]] = {
    f"{n_groups} groups, {noise}": partial(_groups, n_groups, options)
    for n_groups in (3, 7, 15)
    for noise, options in _NOISE.items()
}

# Data without clusters, or whose clusters overlap.
WITHOUT: dict[str, Callable[[int], AttributedGraph]] = {
    "Gaussian noise": lambda seed: AttributedGraph(np.random.default_rng(seed).normal(size=(800, 16))),
    "a uniform square": lambda seed: AttributedGraph(np.random.default_rng(seed).uniform(size=(800, 2))),
    "a random graph": lambda seed: block_model(800, 1, random_state=seed),
    "overlapping blocks, sizes 1:20": lambda seed: block_model(
        1050, 2, sizes=[50, 1000], homophily=0.5, feature_noise=4, random_state=seed
    ),
}

# Epochs that are timed; the others take as long.
_TIMED_EPOCHS = 4

_N_BINS = 10
_N_REFITS, _QUICK_EPOCHS = 3, 5


def _graph(name: str, seed: int) -> AttributedGraph:
    made = PLANTED.get(name) or WITHOUT.get(name)
    return load_unlinked(name) if made is None else made(seed)


def choose_k_cells(scope: Scope) -> list[Cell]:
    """Return a cell per data set, planted groups or data without clusters, and seed."""
    names = scope.data_sets or (("blocks",) if scope.quick else (*SETS, *PLANTED, *WITHOUT))
    return [
        Cell("choose_k", "choose_k", "choose_k", name, seed, quick=scope.quick)
        for name in names
        for seed in seeds_of(scope, 1)
    ]


@register_case(
    "choose_k", "how many clusters choose_k finds, and what it costs beside a fit", cells=choose_k_cells, in_all=False
)
def answer(cell: Cell, device: str) -> dict[str, Any]:
    """Return an answer and its cost in fits of the default settings, on the CPU.

    Both in seconds of the processor, which other work on the machine does not change.
    """
    graph = _graph(cell.data_set, cell.seed)
    truth = 0 if cell.data_set in WITHOUT else n_classes(graph)
    began = time.process_time()
    chosen = choose_k(graph, candidates=range(2, 6) if cell.quick else None, random_state=cell.seed, device="cpu")
    seconds = time.process_time() - began
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
    """Return the seconds of a fit of the default settings, in all ("fit") and by phases.

    All but some epochs are reckoned from those that were run.
    """
    model = PamCGC(n_clusters, n_epochs=_TIMED_EPOCHS, random_state=seed, device="cpu")
    began, wall_began = time.process_time(), time.perf_counter()
    model.fit_graph(graph)
    seconds, wall = time.process_time() - began, time.perf_counter() - wall_began
    # Of the processor's time a phase has the share that it has of the clock's.
    phases = {name: seconds * spent / wall for name, spent in model.record().seconds.items()}
    return {**phases, "fit": seconds + (PamCGC().n_epochs / _TIMED_EPOCHS - 1) * phases["training"]}


def confidence_cells(scope: Scope) -> list[Cell]:
    """Return, per data set, a cell of what confidence is worth and one of what calibration costs."""
    names = scope.data_sets or (("3 groups, noisy",) if scope.quick else SETS)
    fits = {"n_refits": 1, "n_epochs": _QUICK_EPOCHS} if scope.quick else {"n_refits": _N_REFITS, "n_epochs": 200}
    return [
        Cell("confidence", "confidence", provider, name, parameters=parameters, quick=scope.quick)
        for name in names
        for provider, parameters in (("pamcgc", fits), ("calibration", {}))
    ]


@register_case(
    "confidence",
    "what confidence is worth against accuracy and re-fits, and what it costs",
    cells=confidence_cells,
    in_all=False,
)
def confidence(cell: Cell, device: str) -> dict[str, Any]:
    """Return how near confidence comes to accuracy and to the agreement of re-fits, or what calibration costs."""
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
    others = [matched_clusters(fitted(seed).labels_, model.labels_, n_clusters) for seed in range(1, 1 + n_refits)]
    agreed = np.mean([labels == model.labels_ for labels in others], axis=0)
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
        "refits_agree": float(agreed.mean()),
        "error_to_refits": calibration_error(model.confidence_, agreed),
        "error_to_refits_of_q": calibration_error(q, agreed),
    }


def _cost(graph: AttributedGraph) -> dict[str, Any]:
    """Return what calibration takes of a fit of the default settings, in seconds of the processor."""
    seconds = _fit_seconds(graph, n_classes(graph), 0)
    fit_s, calibration_s = seconds["fit"], seconds["confidence"]
    return {"n_nodes": graph.n_nodes, "calibration_s": calibration_s, "fit_s": fit_s, "share": calibration_s / fit_s}


def _bins(confidence: NDArray[np.floating[Any]], correct: NDArray[np.bool_]) -> list[dict[str, float]]:
    """Return the mean confidence and accuracy of bins of equal counts, the least confident first."""
    parts = np.array_split(np.argsort(confidence, kind="stable"), _N_BINS)
    return [
        {"n_rows": len(part), "confidence": float(confidence[part].mean()), "accuracy": float(correct[part].mean())}
        for part in parts
        if len(part)
    ]


def _answers(rows: Sequence[Row], folder: Path) -> str:
    """Return the answers of choose_k beside the truth, a line for each data set."""
    by_name = by(rows, lambda row: str(row["data_set"]))
    body = [_answer(name, by_name[name]) for name in (*SETS, *PLANTED, *WITHOUT) if name in by_name]
    columns = ["data", "rows", "classes", "answers", "stability", "by chance", "margin", "as stable"]
    return joined(Table(columns, body).markdown(), origin(rows))


def _answer(name: str, rows: Sequence[Row]) -> list[str]:
    values = rows[0]["values"]
    table, numbers = values["table"], values["table"]["n_clusters"]
    best = max(range(len(numbers)), key=table["stability"].__getitem__)
    place = best if values["n_clusters"] is None else numbers.index(values["n_clusters"])
    answers = ", ".join(str(row["values"]["n_clusters"] or MISSING) for row in rows)
    margin = MISSING if values["rival"] is None else f"{values['margin']:.2f} ± {values['margin_error']:.2f}"
    scores = [f"{table[kind][place]:.2f}" for kind in ("stability", "chance")]
    stable = ", ".join(map(str, values["also_stable"])) or MISSING
    return [name, f"{values['n_nodes']:,}", str(values["truth"] or "none"), answers, *scores, margin, stable]


def _costs(rows: Sequence[Row], folder: Path) -> str:
    body = []
    for row in (row for row in rows if row["seed"] == 0):
        values = row["values"]
        seconds = [f"{values[name]:.0f} s" for name in ("seconds", "fit_s")]
        body.append([row["data_set"], *seconds, f"{values['cost']:.2f}", f"{values['allowed_cost']:.1f}"])
    return Table(["data", "choose_k", "one fit", "fits", "2 + 0.2 per candidate"], body).markdown()


# Column and value of the table of confidence.
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
    """Return what confidence is worth on each data set, and draw accuracy over it."""
    # The newest of each data set; rows without AUC are of a confidence that followed from q.
    fits = list({row["data_set"]: row for row in rows if "auc" in row["values"]}.values())
    _draw(fits, folder)
    body = []
    for row in fits:
        found = [row["values"].get(name) for _, name in _COLUMNS]
        body.append([row["data_set"], *(MISSING if value is None else f"{100 * value:.1f}" for value in found)])
    epochs = ", ".join(sorted({str(row["parameters"]["n_epochs"]) for row in fits}))
    spent = [100 * row["values"]["share"] for row in rows if row["provider"] == "calibration"]
    cost = f"Calibration takes {min(spent):.1f} to {max(spent):.1f} % of a fit of the default settings on a CPU."
    table = Table(["data", *(title for title, _ in _COLUMNS)], body)
    return joined(f"Percent. Fits of {epochs} epochs.", table.markdown(), cost, origin(fits))


def _draw(rows: Sequence[Row], folder: Path) -> None:
    with drawing(1, 1, size=(6.4, 4.4)) as (figure, axes):
        ax = axes[0, 0]
        ax.plot([0, 1], [0, 1], color="#888888", linestyle=":", linewidth=1)
        for row, color in zip(rows, [*PALETTE] * (1 + len(rows) // len(PALETTE)), strict=False):
            bins = row["values"]["bins"]
            x, y = [each["confidence"] for each in bins], [each["accuracy"] for each in bins]
            ax.plot(x, y, marker="o", markersize=3, linewidth=1, color=color, label=row["data_set"])
        ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.02), ylim=(0, 1.02))
        ax.legend(fontsize=7)
        save_figure(figure, folder, "reliability", rows=rows)


CHOOSING = {
    "answers": Part(partial(stored, "choose_k"), _answers),
    "costs": Part(partial(stored, "choose_k"), _costs),
    "confidence": Part(partial(stored, "confidence"), _confidence),
}
