"""When the negatives over nodes exceed those over clusters: Eq 7 of the paper and its correction.

Both are closed forms, so there are no cells to run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.config import PAPER_TABLE_1
from pamc.data.catalog import CATALOG
from pamc.lab.cell import Row, register_experiment
from pamc.lab.pages.style import PALETTE, drawing, save_figure, write_table
from pamc.lab.settings import ALL_SETS, table_1_row
from pamc.losses.pamc import bound_holds, bound_ratio
from pamc.results.table import Table

TAUS = (0.25, 0.5, 1.0, 2.0)
_LETTERS = dict(zip(ALL_SETS, "abcdefghijklmnop", strict=False))

# Eq 7 for arrays of N and C ≥ 2 that broadcast.
bound_surface = np.vectorize(bound_ratio)


def bound_margin(n_nodes: Any, n_clusters: Any, tau: float, *, proxy: str) -> NDArray[np.float64]:
    r"""Return a lower bound on the difference between loss_NN and the proxy, valid for every embedding.

    .. math:: \log[1 + (N - 1)e^{-\tau/(N - 1)}] - \max \ell_{proxy}

    The maximum of the proxy is log[1 + (C − 1)e^τ] for Eq 6 and log[C(C − 1)e^τ] for Eq 2. Departure from the paper:
    cosines may be negative, see :func:`pamc.losses.pamc.bound_holds`, which is True where the margin is positive. N
    and C ≥ 2 broadcast.
    """
    n, c = np.asarray(n_nodes, dtype=np.float64), np.asarray(n_clusters, dtype=np.float64)
    nodes = np.logaddexp(0.0, np.log(n - 1) - tau / (n - 1))
    clusters = np.logaddexp(0.0, np.log(c - 1) + tau) if proxy == "eq6" else np.log(c * (c - 1)) + tau
    return np.asarray(nodes - clusters)


def least_nodes(n_clusters: int, tau: float, *, proxy: str) -> int:
    """Return the smallest N for which the corrected bound holds.

    Examples
    --------
    >>> least_nodes(10, 0.5, proxy="eq2"), least_nodes(10, 0.5, proxy="eq6")
    (149, 17)
    """
    sizes = range(2, 1 << 60)
    return sizes[bisect_left(sizes, True, key=lambda n_nodes: bound_holds(n_nodes, n_clusters, tau, proxy=proxy))]


@register_experiment(
    "bound",
    summary="When the negatives over nodes bound those over clusters: Eq 7 of the paper and its correction.",
    cells=lambda scope: [],
)
def render(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw the ratio of Eq 7 over N and C for several τ with the boundaries, and write a table of the data sets."""
    n, c = np.geomspace(2, 1_000_000, 81), np.geomspace(2, 1_000, 81)
    grid_n, grid_c = np.meshgrid(n, c)
    levels = np.array([0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16])
    lines = {"eq6": (PALETTE[1], "dashed"), "eq2": ("white", "dashdot")}
    with drawing(1, len(TAUS), size=(3.2 * len(TAUS), 4.1), sharey=True) as (figure, axes):
        from matplotlib.colors import BoundaryNorm
        from matplotlib.lines import Line2D

        norm = BoundaryNorm(levels, 256)
        for panel, tau in zip(axes[0], TAUS, strict=True):
            ratio = bound_surface(grid_n, grid_c, tau)
            surface = panel.contourf(n, c, ratio, levels, norm=norm, cmap="cividis", extend="both")
            panel.contour(n, c, ratio, [1.0], colors="black", linewidths=2)
            for proxy, (color, style) in lines.items():
                margin = bound_margin(grid_n, grid_c, tau, proxy=proxy)
                panel.contour(n, c, margin, [0.0], colors=color, linestyles=style, linewidths=1.6)
            for name, letter in _LETTERS.items():
                point = CATALOG[name].n_nodes, CATALOG[name].n_classes
                panel.plot(*point, "o", color="white", mec="black", mew=0.6, markersize=7)
                panel.annotate(letter, point, ha="center", va="center_baseline", fontsize=6)
            panel.set(xscale="log", yscale="log", xlabel="nodes N", title=f"τ = {tau:g}")
            panel.grid(visible=False)
        axes[0, 0].set_ylabel("clusters C")
        label = r"$\log N\;/\;\log\,(1 + (C - 1)\,e^{\tau})$"
        figure.colorbar(surface, ax=list(axes[0]), label=label, ticks=levels, format="%g", pad=0.01)
        handles = [Line2D([], [], color="black", linewidth=2, label="ratio 1, the paper's boundary (cosines ≥ 0)")]
        names = {"eq6": "certain to the right, Eq 6", "eq2": "certain to the right, Eq 2"}
        handles += [Line2D([], [], color=lines[p][0], linestyle=lines[p][1], label=names[p]) for p in names]
        handles.append(Line2D([], [], linestyle="none", marker="o", color="white", mec="black", label="data sets"))
        figure.legend(handles=handles, loc="outside upper center", ncols=4, facecolor="#8C8C8C", frameon=True)
        named = ", ".join(f"{letter} {name}" for name, letter in _LETTERS.items())
        note = f"Data sets: {named}. Except for few nodes, the boundaries of the paper and of Eq 6 coincide."
        return save_figure(figure, folder, "bound", note=note) + _table(folder)


def _table(folder: Path) -> list[Path]:
    body = []
    for name in ALL_SETS:
        entry, tau = CATALOG[name], float(PAPER_TABLE_1[table_1_row(name)]["tau"])
        shape = entry.n_nodes, entry.n_classes, tau
        texts = [name, f"{entry.n_nodes}", f"{entry.n_classes}", f"{tau:g}", f"{bound_ratio(*shape):.2f}"]
        for proxy in ("eq6", "eq2"):
            holds = "yes" if bound_holds(*shape, proxy=proxy) else "no"
            texts += [holds, f"{least_nodes(entry.n_classes, tau, proxy=proxy)}"]
        body.append(texts)
    columns = ["data set", "N", "C", "τ", "ratio of Eq 7", "Eq 6 certain", "from N", "Eq 2 certain", "from N"]
    note = (
        "The ratio is the paper's lower bound on loss_NN / loss_CC, which assumes nonnegative cosines. Certain means "
        "that the bound holds for every embedding, with cosines from −1 to 1: loss_NN is at least "
        "log[1 + (N − 1)exp(−τ/(N − 1))] by Jensen's inequality, Eq 6 is at most log[1 + (C − 1)exp τ], and Eq 2 is at "
        "most log[C(C − 1)exp τ]. τ is that of Table 1."
    )
    return write_table(Table(columns, body), folder, "bound", title="The bound on real data sets", rows=(), note=note)
