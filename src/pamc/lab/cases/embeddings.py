"""The spaces in which the methods cluster, drawn in two dimensions (the paper's Qualitative Results)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.manifold import TSNE

from pamc.lab.cell import TASKS, Cell, Row, Scope, register_experiment
from pamc.lab.fits import fit_cell
from pamc.lab.pages.style import CLASS_COLORS, by, drawing, save_figure
from pamc.lab.settings import fit_cells, load
from pamc.results.metrics import evaluate
from pamc.runtime import resolve_device, seed_for

Points: TypeAlias = "NDArray[np.float64]"

DATA_SETS = ("usps", "hhar", "news4", "reut21578_4", "acm", "cite", "dblp")
STAGES = {
    ("pamcgc", "raw"): "raw features",
    ("pamcgc", "pretrained"): "after AE\npre-training",
    ("scgc*", "trained"): "SCGC*",
    ("pamcgc", "trained"): "PamCGC",
}
MAX_POINTS = 1000
_TSNE_INPUT = 50
_DIGITS = 4


def cells(scope: Scope) -> list[Cell]:
    """Return a cell per data set and stage, for one seed: a picture shows one run."""
    return fit_cells(
        scope,
        "embeddings",
        "embed",
        data_sets=DATA_SETS,
        methods=("pamcgc", "scgc*"),
        n_seeds=1,
        variants=lambda name, method, seed: [({}, {"stage": stage}) for own, stage in STAGES if own == method],
    )


@TASKS.register("embed")
def embed(cell: Cell, device: str) -> dict[str, Any]:
    """Return the places of at most 1000 rows in two dimensions, with their classes, at a stage of a method.

    Parameter `stage`: "raw" features, the embedding of the "pretrained" autoencoder, or the "trained" one. The last
    also has the places of the centers and, divided by their own mass and not by N, which makes each the mean of its
    cluster, of the meta-nodes, put there by the same map.
    """
    graph, stage = load(cell.data_set, cell.quick), cell.parameters["stage"]
    truth, rows, marks = np.asarray(graph.labels), graph.features, []
    shown = np.unique(np.linspace(0, graph.n_nodes - 1, min(MAX_POINTS, graph.n_nodes)).round().astype(np.int64))
    values: dict[str, Any] = {"stage": stage, "n_nodes": graph.n_nodes, "classes": truth[shown].tolist(), "last": None}
    if stage != "raw":
        epochs = {"n_epochs": 0} if stage == "pretrained" else {}
        fit = fit_cell(cell, graph, resolve_device(device), changes=epochs)
        rows, values["last"] = fit.z.double().cpu().numpy(), evaluate(truth, fit.labels)
    if stage == "trained":
        means = np.stack([rows[fit.labels == label].mean(axis=0) for label in np.unique(fit.labels)])
        marks = [fit.centers.double().cpu().numpy(), means]
    points, *placed = map(_rounded, project(rows, shown, marks, seed=cell.seed))
    centers, meta_nodes = placed or (None, None)
    return {**values, "map": "t-SNE", "points": points, "centers": centers, "meta_nodes": meta_nodes}


def project(rows: Any, shown: NDArray[np.int64], marks: Sequence[Points], *, seed: int) -> list[Points]:
    """Return the places (n, 2) of the rows shown, then those of each set of marks, all by one t-SNE.

    The paper has UMAP. Wide rows are first cut to their 50 leading directions.

    Parameters
    ----------
    rows
        (N, d) array or sparse matrix.
    shown
        (n,) indices of rows.
    marks
        (m, d) arrays.
    """
    together, seed = rows[shown], seed_for(seed, "projection")
    if marks:
        together = np.vstack([together, *marks])
    if together.shape[1] > _TSNE_INPUT:
        together = TruncatedSVD(_TSNE_INPUT, random_state=seed).fit_transform(together)
    dense = together.toarray() if sp.issparse(together) else np.asarray(together)
    perplexity = min(30.0, (len(dense) - 1) / 3)
    placed = TSNE(2, init="pca", perplexity=perplexity, random_state=seed).fit_transform(dense)
    ends = np.cumsum([len(shown), *(len(points) for points in marks)])[:-1]
    return np.split(np.asarray(placed, np.float64), ends)


def _rounded(points: Points) -> list[list[float]]:
    return [[float(f"{value:.{_DIGITS}g}") for value in point] for point in points]


@register_experiment(
    "embeddings",
    summary="Raw features and the embeddings of the autoencoder, SCGC* and PamCGC in two dimensions.",
    cells=cells,
)
def render(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw a grid of panels: a row per stage, a column per data set; of several seeds the lowest."""
    first = {
        key: min(group, key=lambda row: row["seed"])
        for key, group in by(rows, lambda row: (row["provider"], row["parameters"]["stage"], row["data_set"])).items()
    }
    data_sets = list(dict.fromkeys(row["data_set"] for row in rows))
    stages = {stage: name for stage, name in STAGES.items() if any(key[:2] == stage for key in first)}
    size = (0.9 + 2.0 * len(data_sets), 0.8 + 2.0 * len(stages))
    with drawing(len(stages), len(data_sets), size=size) as (figure, axes):
        for line, (stage, name) in zip(axes, stages.items(), strict=True):
            for panel, data_set in zip(line, data_sets, strict=True):
                row = first.get((*stage, data_set))
                if row is not None:
                    _panel(panel, row["values"])
                panel.set(xticks=[], yticks=[])
                panel.grid(visible=False)
                panel.spines[["top", "right"]].set_visible(True)
            line[0].set_ylabel(name, fontsize=10)
        for panel, data_set in zip(axes[0], data_sets, strict=True):
            panel.set_title(data_set, pad=12)
        from matplotlib.lines import Line2D

        square = Line2D([], [], linestyle="none", marker="s", color="black", mec="white", label="meta-nodes μ̂")
        dot = Line2D([], [], linestyle="none", marker="o", color="#E00000", mec="white", label="centers μ")
        figure.legend(handles=[square, dot], loc="outside upper right", ncols=2)
        maps = " and ".join(sorted({row["values"]["map"].upper() for row in first.values()}))
        note = (
            f"{maps}, each panel its own. Colors: true classes. A meta-node is shown as the mean of its cluster: its "
            "length does not matter to the loss. ACC at the last epoch, without a choice of epoch."
        )
        return save_figure(figure, folder, "embeddings", rows=rows, note=note)


def _panel(panel: Any, values: dict[str, Any]) -> None:
    points, classes = np.array(values["points"]), np.array(values["classes"])
    for number, label in enumerate(np.unique(classes)):
        own = points[classes == label]
        color = CLASS_COLORS[number % len(CLASS_COLORS)]
        # As an image inside the SVG: thousands of points as shapes would make it large and slow.
        panel.scatter(own[:, 0], own[:, 1], s=4, color=color, linewidths=0, alpha=0.8, rasterized=True)
    for name, marker, color in (("meta_nodes", "s", "black"), ("centers", "o", "#E00000")):
        if values[name] is not None:
            x, y = np.array(values[name]).T
            panel.scatter(x, y, s=22, marker=marker, color=color, edgecolors="white", linewidths=0.6, zorder=3)
    if values["last"] is not None:
        text = f"ACC {100 * values['last']['acc']:.1f}"
        panel.text(0.03, 0.97, text, transform=panel.transAxes, va="top", fontsize=7, color="#333333")
