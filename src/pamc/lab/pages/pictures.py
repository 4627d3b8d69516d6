"""The figures of `docs/pictures.md`, drawn from real fits of small data: `python -m pamc.lab.pages pictures`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits, make_moons
from sklearn.decomposition import PCA

from pamc import PamCGC
from pamc.graph.neighbors import nearest
from pamc.lab.pages.speed import over_nodes
from pamc.lab.pages.style import CLASS_COLORS, PALETTE, drawing
from pamc.lab.rows import stored

FIGURES = ("neighbors", "negatives", "training", "confidence", "cost")
_DPI = 90

Array = NDArray[Any]


def draw(folder: Path) -> list[Path]:
    """Draw all figures into a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pixels, _ = load_digits(return_X_y=True)
    chosen = np.isin(np.arange(len(pixels)), np.random.default_rng(0).choice(len(pixels), 500, replace=False))
    options: dict[str, Any] = {"random_state": 0, "advanced": {"hidden": (64,)}}
    start = PamCGC(10, n_epochs=0, **options).fit(pixels[chosen])
    model = PamCGC(10, n_epochs=100, **options).fit(pixels[chosen])
    paths = [folder / f"{name}.png" for name in FIGURES]
    _neighbors(paths[0])
    _negatives(model, paths[1])
    _training(start, model, paths[2])
    _confidence(model, paths[3])
    _cost(paths[4])
    return paths


def _neighbors(path: Path) -> None:
    """Draw rows without a graph, and the same rows joined to their nearest neighbors, with one row's reach."""
    rows, _ = make_moons(120, noise=0.08, random_state=0)
    edges = nearest(rows.astype(np.float32), 4).edges
    joined = np.zeros((len(rows), len(rows)))
    joined[edges[0], edges[1]] = joined[edges[1], edges[0]] = 1
    walk = joined + np.eye(len(rows))
    walk /= walk.sum(axis=1, keepdims=True)
    reach = (walk + walk @ walk)[7]
    with drawing(1, 3, size=(8.4, 2.6)) as (figure, ((bare, graph, influence),)):
        for axes, title in (
            (bare, "rows"),
            (graph, "nearest neighbors"),
            (influence, "influence of two hops on one row"),
        ):
            axes.set(title=title, xticks=[], yticks=[])
            axes.grid(visible=False)
        bare.scatter(*rows.T, s=12, color=PALETTE[0])
        for axes in (graph, influence):
            for a, b in edges.T:
                axes.plot(*rows[[a, b]].T, color="#BBBBBB", linewidth=0.7, zorder=0)
        graph.scatter(*rows.T, s=12, color=PALETTE[0])
        influence.scatter(*rows.T, s=8, color="#BBBBBB")
        near = reach > 0
        influence.scatter(*rows[near].T, s=14 + 120 * reach[near], color=PALETTE[1])
        influence.scatter(*rows[7], s=60, color=PALETTE[6], marker="x")
        figure.savefig(path, dpi=_DPI)


def _negatives(model: PamCGC, path: Path) -> None:
    """Draw the cosines of all pairs of rows beside those of the meta-nodes that stand for them."""
    order = np.argsort(model.labels_, kind="stable")
    rows, nodes = _cosines(model.embedding_[order]), _cosines(model.meta_nodes_)
    with drawing(1, 2, size=(7.2, 3.4)) as (figure, ((all_pairs, proxies),)):
        for axes, values, title in (
            (all_pairs, rows, f"N × N = {rows.size:,} pairs of rows"),
            (proxies, nodes, f"C × C = {nodes.size} pairs of meta-nodes"),
        ):
            image = axes.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
            axes.set(title=title, xticks=[], yticks=[])
            axes.grid(visible=False)
        figure.colorbar(image, ax=[all_pairs, proxies], shrink=0.8, label="cosine")
        figure.savefig(path, dpi=_DPI)


def _training(start: PamCGC, model: PamCGC, path: Path) -> None:
    """Draw the embedding at the start and after training, in the same two directions, with centers; and the loss."""
    plane = PCA(2, random_state=0).fit(model.embedding_)
    with drawing(1, 3, size=(9.0, 3.0), width_ratios=(1, 1, 1)) as (figure, ((before, after, curves),)):
        for axes, fitted, title in ((before, start, "after the start"), (after, model, "after 100 epochs")):
            colors = [CLASS_COLORS[label] for label in fitted.labels_]
            axes.scatter(*plane.transform(fitted.embedding_).T, s=5, c=colors)
            axes.scatter(*plane.transform(fitted.cluster_centers_).T, marker="x", s=40, color="black", label="centers")
            axes.set(title=title, xticks=[], yticks=[])
            axes.grid(visible=False)
        before.legend(loc="lower left")
        for name, color in zip(("positive", "proxy", "kl"), PALETTE, strict=False):
            values = np.array(model.history_[name])
            curves.plot(values - values[0], color=color, label=name)
        curves.set(title="terms of the loss, from epoch 0", xlabel="epoch")
        curves.legend()
        figure.savefig(path, dpi=_DPI)


def _confidence(model: PamCGC, path: Path) -> None:
    """Draw the embedding by confidence, and how many rows have which."""
    flat = PCA(2, random_state=0).fit_transform(model.embedding_)
    with drawing(1, 2, size=(7.2, 3.0)) as (figure, ((where, counts),)):
        shown = where.scatter(*flat.T, c=model.confidence_, s=6, cmap="viridis")
        where.set(title="rows by confidence", xticks=[], yticks=[])
        where.grid(visible=False)
        figure.colorbar(shown, ax=where, shrink=0.8)
        counts.hist(model.confidence_, bins=20, color=PALETTE[0])
        counts.set(title="how many rows have which", xlabel="expected share of re-fits that agree", ylabel="rows")
        figure.savefig(path, dpi=_DPI)


def _cost(path: Path) -> None:
    """Draw the measured time of the N × N loss and of the PamC loss by N."""
    rows = stored("loss", device="cpu")
    with drawing(1, 1, size=(5.0, 3.0)) as (figure, ((axes,),)):
        for name, title, color in (("dense", "N × N loss", PALETTE[1]), ("torch", "PamC loss", PALETTE[0])):
            timed = [row for row in over_nodes(rows, name) if "seconds" in row["values"] and row["error"] is None]
            timed = [row for row in timed if not isinstance(row["parameters"]["n_nodes"], list)]
            sizes = [row["parameters"]["n_nodes"] for row in timed]
            axes.loglog(sizes, [row["values"]["seconds"] for row in timed], marker="o", color=color, label=title)
        axes.set(title=f"forward and backward, {rows[-1]['environment']['cpu']}", xlabel="rows", ylabel="seconds")
        axes.legend()
        figure.savefig(path, dpi=_DPI)


def _cosines(rows: Array) -> Array:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(unit @ unit.T)
