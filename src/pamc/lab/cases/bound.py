"""Where the negatives over nodes are certain to exceed those over clusters: the paper's Eq 7, and its correction.

Both are closed forms: there is nothing to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pamc.config import PAPER_TABLE_1
from pamc.data.catalog import CATALOG
from pamc.lab.cell import Cell, Row, Scope, register_experiment
from pamc.lab.pages.style import PALETTE, drawing, save_figure, write_table
from pamc.lab.settings import ALL_SETS, table_1_row
from pamc.losses.pamc import bound_holds, bound_ratio
from pamc.results.table import Table

Values: TypeAlias = "NDArray[np.float64]"

TAUS = (0.25, 0.5, 1.0, 2.0)
_N_NODES = (2, 1_000_000)
_N_CLUSTERS = (2, 1_000)
_POINTS = 81
_LETTERS = "abcdefghijklmnop"


def cells(scope: Scope) -> list[Cell]:
    """Return no cells: nothing is run."""
    return []


def bound_surface(n_nodes: Any, n_clusters: Any, tau: float) -> Values:
    r"""Return the paper's lower bound of loss_NN / loss_CC, Eq 7, for arrays N and C ≥ 2 that are broadcast.

    .. math:: \frac{\log N}{\log[1 + (C - 1)e^\tau]}

    As in the paper: :func:`pamc.losses.pamc.bound_ratio` for many N and C at once.
    """
    n, c = np.asarray(n_nodes, dtype=np.float64), np.asarray(n_clusters, dtype=np.float64)
    return np.asarray(np.log(n) / np.logaddexp(0.0, np.log(c - 1) + tau))


def bound_margin(n_nodes: Any, n_clusters: Any, tau: float, *, proxy: str) -> Values:
    r"""Return by how much loss_NN exceeds the proxy at least, for every embedding; the bound holds where it is above 0.

    .. math:: \log[1 + (N - 1)e^{-\tau/(N - 1)}] - \max \ell_{proxy}

    where the most that the proxy can be is log[1 + (C − 1)e^τ] for Eq 6 and log[C(C − 1)e^τ] for Eq 2. Departure from
    the paper: cosines may be negative, see :func:`pamc.losses.pamc.bound_holds`. N and C ≥ 2 are broadcast.
    """
    n, c = np.asarray(n_nodes, dtype=np.float64), np.asarray(n_clusters, dtype=np.float64)
    nodes = np.logaddexp(0.0, np.log(n - 1) - tau / (n - 1))
    clusters = np.logaddexp(0.0, np.log(c - 1) + tau) if proxy == "eq6" else np.log(c * (c - 1)) + tau
    return np.asarray(nodes - clusters)


def least_nodes(n_clusters: int, tau: float, *, proxy: str) -> int:
    """Return the least N from which on the corrected bound holds.

    Examples
    --------
    >>> least_nodes(10, 0.5, proxy="eq2"), least_nodes(10, 0.5, proxy="eq6")
    (149, 17)
    """
    low, high = 1, 2
    while not bound_holds(high, n_clusters, tau, proxy=proxy):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bound_holds(middle, n_clusters, tau, proxy=proxy) else (middle, high)
    return high


@register_experiment(
    "bound",
    summary="When the negatives over nodes bound those over clusters: Eq 7 of the paper and its correction.",
    cells=cells,
)
def render(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw the ratio of Eq 7 over N and C for several τ with the boundaries, and a table of the real data sets."""
    return [*_figure(folder), *_table(folder)]


def _figure(folder: Path) -> list[Path]:
    n = np.geomspace(*_N_NODES, _POINTS)
    c = np.geomspace(*_N_CLUSTERS, _POINTS)
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
            _mark_sets(panel)
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
        named = ", ".join(f"{letter} {name}" for letter, name in zip(_LETTERS, ALL_SETS, strict=False))
        note = f"Data sets: {named}. But for few nodes, the paper's boundary and that of Eq 6 are one line."
        return save_figure(figure, folder, "bound", note=note)


def _mark_sets(panel: Any) -> None:
    for letter, name in zip(_LETTERS, ALL_SETS, strict=False):
        place = CATALOG[name].n_nodes, CATALOG[name].n_classes
        panel.plot(*place, "o", color="white", mec="black", mew=0.6, markersize=7)
        panel.annotate(letter, place, ha="center", va="center_baseline", fontsize=6)


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
        "The ratio is the paper's lower bound of loss_NN / loss_CC, which takes no cosine to be negative. Certain "
        "means for every embedding, with cosines from −1 to 1: loss_NN is at least log[1 + (N − 1)exp(−τ/(N − 1))] "
        "by Jensen's inequality, Eq 6 is at most log[1 + (C − 1)exp τ], Eq 2 at most log[C(C − 1)exp τ]. τ as in "
        "Table 1."
    )
    return write_table(Table(columns, body), folder, "bound", title="The bound on real data sets", rows=(), note=note)
