"""Embeddings of the methods in two dimensions (the paper's Qualitative Results)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.manifold import TSNE

from pamc.lab.cell import TASKS, Cell, Row, Scope, register_experiment
from pamc.lab.fits import fit_cell
from pamc.lab.pages.style import CLASS_COLORS, data_sets_in, drawing, save_figure
from pamc.lab.settings import Variant, fit_cells, load
from pamc.results.metrics import evaluate
from pamc.runtime import resolve_device, seed_for

Points: TypeAlias = "NDArray[np.float64]"

DATA_SETS = ("usps", "hhar", "news4", "reut21578_4", "acm", "cite", "dblp")
METHODS = ("pamcgc", "scgc*")
STAGES = {
    ("pamcgc", "raw"): "raw features",
    ("pamcgc", "pretrained"): "after AE\npre-training",
    ("scgc*", "trained"): "SCGC*",
    ("pamcgc", "trained"): "PamCGC",
}
MAX_POINTS = 1000
_TSNE_INPUT = 50
_DIGITS = 4


def _stages(scope: Scope, data_set: str, method: str, seed: int) -> list[Variant]:
    return [({}, {"stage": stage}) for name, stage in STAGES if name == method]


@TASKS.register("embed")
def embed(cell: Cell, device: str) -> dict[str, Any]:
    """Return the positions of at most 1000 rows in two dimensions, with their classes, at a stage of a method.

    Parameter `stage` is "raw" for the features, "pretrained" for the embedding of the autoencoder, or "trained". The
    last also returns the positions of the centers and meta-nodes by the same map. Each meta-node is divided by its mass
    instead of N, which gives the mean of its cluster.
    """
    graph, stage = load(cell.data_set, cell.quick), cell.parameters["stage"]
    truth, rows, marks = np.asarray(graph.labels), graph.features, []
    sample = np.unique(np.linspace(0, graph.n_nodes - 1, min(MAX_POINTS, graph.n_nodes)).round().astype(np.int64))
    values: dict[str, Any] = {"stage": stage, "n_nodes": graph.n_nodes, "classes": truth[sample].tolist(), "last": None}
    if stage != "raw":
        epochs = {"n_epochs": 0} if stage == "pretrained" else {}
        fit = fit_cell(cell, graph, resolve_device(device), changes=epochs)
        rows, values["last"] = fit.z.double().cpu().numpy(), evaluate(truth, fit.labels)
    if stage == "trained":
        means = np.stack([rows[fit.labels == label].mean(axis=0) for label in np.unique(fit.labels)])
        marks = [fit.centers.double().cpu().numpy(), means]
    points, *positions = map(_rounded, project(rows, sample, marks, seed=cell.seed))
    centers, meta_nodes = positions or (None, None)
    return {**values, "map": "t-SNE", "points": points, "centers": centers, "meta_nodes": meta_nodes}


def project(rows: Any, sample: NDArray[np.int64], marks: Sequence[Points], *, seed: int) -> list[Points]:
    """Return the positions (n, 2) of the sampled rows, then those of each set of marks, all by one t-SNE.

    Rows with more than 50 columns are first reduced to their 50 leading directions. Departure from the paper, which
    uses UMAP.

    Parameters
    ----------
    rows
        (N, d) array or sparse matrix.
    sample
        (n,) indices of rows.
    marks
        (m, d) arrays.
    """
    together, seed = rows[sample], seed_for(seed, "projection")
    if marks:
        together = np.vstack([together, *marks])
    if together.shape[1] > _TSNE_INPUT:
        together = TruncatedSVD(_TSNE_INPUT, random_state=seed).fit_transform(together)
    dense = together.toarray() if sp.issparse(together) else np.asarray(together)
    perplexity = min(30.0, (len(dense) - 1) / 3)
    positions = TSNE(2, init="pca", perplexity=perplexity, random_state=seed).fit_transform(dense)
    ends = np.cumsum([len(sample), *map(len, marks)])[:-1]
    return np.split(np.asarray(positions, np.float64), ends)


def _rounded(points: Points) -> list[list[float]]:
    return [[float(f"{value:.{_DIGITS}g}") for value in point] for point in points]


@register_experiment(
    "embeddings",
    summary="Raw features and the embeddings of the autoencoder, SCGC* and PamCGC in two dimensions.",
    cells=partial(
        fit_cells, case="embeddings", task="embed", data_sets=DATA_SETS, methods=METHODS, n_seeds=1, variants=_stages
    ),
)
def render(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw a grid of panels with a row per stage and a column per data set, each from the lowest seed."""
    ordered = sorted(rows, key=lambda row: -row["seed"])
    first = {(row["provider"], row["parameters"]["stage"], row["data_set"]): row for row in ordered}
    data_sets = data_sets_in(rows)
    stages = {stage: name for stage, name in STAGES.items() if any(key[:2] == stage for key in first)}
    size = (0.9 + 2.0 * len(data_sets), 0.8 + 2.0 * len(stages))
    with drawing(len(stages), len(data_sets), size=size) as (figure, axes):
        for line, (stage, name) in zip(axes, stages.items(), strict=True):
            for panel, data_set in zip(line, data_sets, strict=True):
                if (*stage, data_set) in first:
                    _panel(panel, first[*stage, data_set]["values"])
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
            f"{maps}, separately for each panel. Colors: true classes. Meta-nodes are drawn at the means of their "
            "clusters, because their length does not affect the loss. ACC is that of the last epoch."
        )
        return save_figure(figure, folder, "embeddings", rows=rows, note=note)


def _panel(panel: Any, values: dict[str, Any]) -> None:
    points, classes = np.array(values["points"]), np.array(values["classes"])
    for number, label in enumerate(np.unique(classes)):
        x, y = points[classes == label].T
        color = CLASS_COLORS[number % len(CLASS_COLORS)]
        # Rasterized, because thousands of vector shapes would make the SVG large and slow.
        panel.scatter(x, y, s=4, color=color, linewidths=0, alpha=0.8, rasterized=True)
    for name, marker, color in (("meta_nodes", "s", "black"), ("centers", "o", "#E00000")):
        if values[name] is not None:
            x, y = np.array(values[name]).T
            panel.scatter(x, y, s=22, marker=marker, color=color, edgecolors="white", linewidths=0.6, zorder=3)
    if values["last"] is not None:
        text = f"ACC {100 * values['last']['acc']:.1f}"
        panel.text(0.03, 0.97, text, transform=panel.transAxes, va="top", fontsize=7, color="#333333")
