"""Figures of `docs/pictures.md`, drawn from fits to small data: `python -m pamc.lab.pages pictures`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_moons
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity

from pamc import PamCGC
from pamc.graph.neighbors import nearest
from pamc.lab.pages.speed import over_nodes
from pamc.lab.pages.style import CLASS_COLORS, PALETTE, drawing
from pamc.lab.rows import stored

FIGURES = ("neighbors", "negatives", "training", "confidence", "cost")
_DPI = 90


def draw(folder: Path) -> list[Path]:
    """Draw all figures into a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pixels, _ = load_digits(return_X_y=True)
    sample = pixels[np.sort(np.random.default_rng(0).choice(len(pixels), 500, replace=False))]
    options: dict[str, Any] = {"random_state": 0, "advanced": {"hidden": (64,)}}
    start = PamCGC(10, n_epochs=0, **options).fit(sample)
    model = PamCGC(10, n_epochs=100, **options).fit(sample)
    paths = [folder / f"{name}.png" for name in FIGURES]
    _neighbors(paths[0])
    _negatives(model, paths[1])
    _training(start, model, paths[2])
    _confidence(model, paths[3])
    _cost(paths[4])
    return paths


def _neighbors(path: Path) -> None:
    """Draw rows without a graph, their kNN graph, and the influence of other rows on one row."""
    rows, _ = make_moons(120, noise=0.08, random_state=0)
    edges = nearest(rows.astype(np.float32), 4).edges
    walk = np.eye(len(rows))
    walk[edges[0], edges[1]] = walk[edges[1], edges[0]] = 1
    walk /= walk.sum(axis=1, keepdims=True)
    weight = (walk + walk @ walk)[7]
    with drawing(1, 3, size=(8.4, 2.6)) as (figure, ((bare, graph, influence),)):
        _label(bare, "rows")
        _label(graph, "nearest neighbors")
        _label(influence, "influence of two hops on one row")
        bare.scatter(*rows.T, s=12, color=PALETTE[0])
        for axes in (graph, influence):
            for a, b in edges.T:
                axes.plot(*rows[[a, b]].T, color="#BBBBBB", linewidth=0.7, zorder=0)
        graph.scatter(*rows.T, s=12, color=PALETTE[0])
        influence.scatter(*rows.T, s=8, color="#BBBBBB")
        near = weight > 0
        influence.scatter(*rows[near].T, s=14 + 120 * weight[near], color=PALETTE[1])
        influence.scatter(*rows[7], s=60, color=PALETTE[6], marker="x")
        figure.savefig(path, dpi=_DPI)


def _negatives(model: PamCGC, path: Path) -> None:
    """Draw the cosines of all pairs of rows, and those of the meta-nodes that replace them."""
    order = np.argsort(model.labels_, kind="stable")
    rows, nodes = cosine_similarity(model.embedding_[order]), cosine_similarity(model.meta_nodes_)
    with drawing(1, 2, size=(7.2, 3.4)) as (figure, ((all_pairs, proxies),)):
        for axes, values, title in (
            (all_pairs, rows, f"N × N = {rows.size:,} pairs of rows"),
            (proxies, nodes, f"C × C = {nodes.size} pairs of meta-nodes"),
        ):
            image = axes.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
            _label(axes, title)
        figure.colorbar(image, ax=[all_pairs, proxies], shrink=0.8, label="cosine")
        figure.savefig(path, dpi=_DPI)


def _training(start: PamCGC, model: PamCGC, path: Path) -> None:
    """Draw the embedding with its centers before and after training in the same plane, and the terms of the loss."""
    plane = PCA(2, random_state=0).fit(model.embedding_)
    with drawing(1, 3, size=(9.0, 3.0), width_ratios=(1, 1, 1)) as (figure, ((before, after, curves),)):
        for axes, fitted, title in ((before, start, "after initialization"), (after, model, "after 100 epochs")):
            colors = [CLASS_COLORS[label] for label in fitted.labels_]
            axes.scatter(*plane.transform(fitted.embedding_).T, s=5, c=colors)
            axes.scatter(*plane.transform(fitted.cluster_centers_).T, marker="x", s=40, color="black", label="centers")
            _label(axes, title)
        before.legend(loc="lower left")
        for name, color in zip(("positive", "proxy", "kl"), PALETTE, strict=False):
            values = np.array(model.history_[name])
            curves.plot(values - values[0], color=color, label=name)
        curves.set(title="terms of the loss, from epoch 0", xlabel="epoch")
        curves.legend()
        figure.savefig(path, dpi=_DPI)


def _confidence(model: PamCGC, path: Path) -> None:
    """Draw the embedding colored by confidence, and the histogram of confidence."""
    plane = PCA(2, random_state=0).fit_transform(model.embedding_)
    with drawing(1, 2, size=(7.2, 3.0)) as (figure, ((embedding, counts),)):
        points = embedding.scatter(*plane.T, c=model.confidence_, s=6, cmap="viridis")
        _label(embedding, "rows by confidence")
        figure.colorbar(points, ax=embedding, shrink=0.8)
        counts.hist(model.confidence_, bins=20, color=PALETTE[0])
        counts.set(title="histogram of confidence", xlabel="expected share of re-fits that agree", ylabel="rows")
        figure.savefig(path, dpi=_DPI)


def _cost(path: Path) -> None:
    """Draw the measured time of the N × N loss and of the PamC loss over N."""
    rows = stored("loss", device="cpu")
    with drawing(1, 1, size=(5.0, 3.0)) as (figure, ((axes,),)):
        for name, title, color in (("dense", "N × N loss", PALETTE[1]), ("torch", "PamC loss", PALETTE[0])):
            # Rows of fitted exponents have no time.
            timed = [row for row in over_nodes(rows, name) if "seconds" in row["values"] and row["error"] is None]
            sizes = [row["parameters"]["n_nodes"] for row in timed]
            axes.loglog(sizes, [row["values"]["seconds"] for row in timed], marker="o", color=color, label=title)
        axes.set(title=f"forward and backward, {rows[-1]['environment']['cpu']}", xlabel="rows", ylabel="seconds")
        axes.legend()
        figure.savefig(path, dpi=_DPI)


def _label(axes: Any, title: str) -> None:
    """Set the title of a picture without a scale."""
    axes.set(title=title, xticks=[], yticks=[])
    axes.grid(visible=False)
