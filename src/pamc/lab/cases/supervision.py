"""PamC with the true classes of some nodes known: what the paper calls possible and leaves open.

Known nodes count for the meta-node of their class (`known_labels`); nothing else of the fit sees them. A fifth of the
nodes is never known, whatever the share, so that all shares can be compared on the same nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pamc.errors import ConfigError
from pamc.lab.cell import TASKS, Cell, Row, Scope, register_experiment
from pamc.lab.fits import fit_cell
from pamc.lab.pages.style import PALETTE, by, drawing, legend, line_with_band, percent, save_figure, write_table
from pamc.lab.settings import PAPER_SETS, fit_cells, load, n_classes
from pamc.results.metrics import evaluate
from pamc.results.table import Table
from pamc.runtime import resolve_device, seed_for

__all__ = ["HELD_OUT", "cells", "fit_with_known_labels", "render", "reveal", "stratified_order"]

Integers: TypeAlias = "NDArray[np.int64]"

SHARES = (0.0, 0.01, 0.05, 0.1, 1.0)

# Share of the nodes that is never known.
HELD_OUT = 0.2


def stratified_order(labels: Integers, *, seed: int) -> Integers:
    """Return (N,) the nodes in a random order over which each class is spread evenly: parts have the classes' shares.

    The i-th drawn node of a class of n stands at the place (i − ½)/n, and chance decides between equal places.
    """
    chance = np.random.default_rng(seed_for(seed, "known labels")).permutation(len(labels))
    place = np.empty(len(labels))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        members = members[np.argsort(chance[members])]
        place[members] = (np.arange(len(members)) + 0.5) / len(members)
    return np.lexsort((chance, place))


def reveal(labels: Integers, share: float, *, seed: int) -> tuple[Integers, NDArray[np.bool_]]:
    """Return known labels (N,), −1 where unknown, and which nodes (N,) are held out.

    A share of all N nodes is known, rounded to whole nodes, but never the held-out fifth: a share of 1 is all others.
    Of one seed, the nodes known at a share are known at every larger one, and the held-out nodes are the same.

    Parameters
    ----------
    labels
        (N,) classes; they become 0 … C−1 in ascending order.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"share must lie between 0 and 1, got {share}")
    order = stratified_order(labels, seed=seed)
    n_nodes = len(labels)
    n_held_out = round(HELD_OUT * n_nodes)
    n_known = min(round(share * n_nodes), n_nodes - n_held_out)
    known = np.full(n_nodes, -1, dtype=np.int64)
    known[order[:n_known]] = np.unique(labels, return_inverse=True)[1][order[:n_known]]
    held_out = np.zeros(n_nodes, dtype=bool)
    held_out[order[n_nodes - n_held_out :]] = True
    return known, held_out


def cells(scope: Scope) -> list[Cell]:
    """Return a fit of PamCGC per data set, share of known labels and seed."""
    return fit_cells(
        scope,
        "supervision",
        "known-labels",
        data_sets=PAPER_SETS,
        methods=("pamcgc",),
        n_seeds=3,
        variants=lambda *_: [({}, {"share": share}) for share in SHARES],
    )


@TASKS.register("known-labels")
def fit_with_known_labels(cell: Cell, device: str) -> dict[str, Any]:
    """Fit a method with the classes of some nodes known and evaluate it on the others.

    `unknown` has the metrics of all nodes that were not known, `held_out` those of the fifth that is known at no share.
    `agreement` is the share of nodes whose cluster has the number of their class, with no matching: the fit numbers its
    clusters by the known labels. It is None where none were known.
    """
    graph = load(cell.data_set, cell.quick)
    labels = np.unique(np.asarray(graph.labels), return_inverse=True)[1].astype(np.int64)
    known, held_out = reveal(labels, cell.parameters["share"], seed=cell.seed)
    given = known if (known >= 0).any() else None
    fit = fit_cell(cell, graph, resolve_device(device), known_labels=given)

    def measured(nodes: NDArray[np.bool_]) -> dict[str, float | None]:
        agreement = None if given is None else float((fit.labels[nodes] == labels[nodes]).mean())
        return {**evaluate(labels[nodes], fit.labels[nodes]), "agreement": agreement}

    return {
        "selection": "last",
        "n_known": int((known >= 0).sum()),
        "n_held_out": int(held_out.sum()),
        "unknown": measured(known < 0),
        "held_out": measured(held_out),
        "seconds": fit.seconds,
        "cluster_sizes": np.bincount(fit.labels, minlength=n_classes(graph)).tolist(),
        "warnings": list(fit.warnings),
    }


_LINES = {
    "ACC by matching, unknown nodes": ("unknown", "acc"),
    "agreement without matching, unknown nodes": ("unknown", "agreement"),
    "ACC by matching, the same fifth of nodes": ("held_out", "acc"),
}


@register_experiment(
    "supervision",
    summary="PamCGC with the classes of 0 to 100 % of the nodes known, measured on the unknown ones.",
    cells=cells,
)
def render(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw accuracy on unknown nodes over the share of known ones, one panel per data set, and a table."""
    return [*_figure(rows, folder), *_table(rows, folder)]


def _share(share: float) -> str:
    return f"{100 * share:g}" if share < 1 else f"{100 * (1 - HELD_OUT):g}"


def _values(rows: Sequence[Row], nodes: str, metric: str) -> list[float]:
    return [value for row in rows if (value := row["values"][nodes][metric]) is not None]


def _figure(rows: Sequence[Row], folder: Path) -> list[Path]:
    data_sets = by(rows, lambda row: str(row["data_set"]))
    shares = sorted({row["parameters"]["share"] for row in rows})
    styles = zip(PALETTE, "osD", ("solid", "dashed", "dotted"), strict=False)
    looks = dict(zip(_LINES, styles, strict=False))
    with drawing(1, len(data_sets), size=(0.6 + 2.7 * len(data_sets), 3.4)) as (figure, axes):
        for panel, (data_set, own) in zip(axes[0], data_sets.items(), strict=True):
            for name, (nodes, metric) in _LINES.items():
                points = {}
                for place, share in enumerate(shares):
                    found = _values([row for row in own if row["parameters"]["share"] == share], nodes, metric)
                    if found:
                        points[float(place)] = [100 * value for value in found]
                color, marker, style = looks[name]
                line_with_band(panel, points, label=name, color=color, marker=marker, linestyle=style)
            panel.set_xticks(range(len(shares)), [_share(share) for share in shares])
            panel.set(title=data_set, xlabel="nodes of known class (%)")
        axes[0, 0].set_ylabel("%")
        legend(figure, axes[0, 0], loc="outside upper center", ncols=3 if len(data_sets) > 3 else 1)
        note = (
            "Last epoch; bands: one standard deviation over the seeds. The last point: all but a held-out fifth known."
        )
        return save_figure(figure, folder, "supervision", rows=rows, note=note)


def _table(rows: Sequence[Row], folder: Path) -> list[Path]:
    body = []
    for (data_set, share), group in by(rows, lambda row: (row["data_set"], row["parameters"]["share"])).items():
        n_known = f"{group[0]['values']['n_known']}"
        metrics = [("unknown", name) for name in ("acc", "agreement", "nmi", "ari", "f1")]
        metrics += [("held_out", name) for name in ("acc", "agreement")]
        body.append([data_set, _share(share), n_known, *(percent(_values(group, *metric)) for metric in metrics)])
    columns = ["data set", "known (%)", "known", "ACC", "agreement", "NMI", "ARI", "F1", "ACC, same fifth"]
    columns.append("agreement, same fifth")
    note = (
        "Percent, mean ± standard deviation over the seeds, last epoch, on the nodes that were not known; the last two "
        "columns on a fifth of the nodes that is known at no share. ACC matches clusters with classes; agreement does "
        "not: the fit numbers its clusters by the known labels. Known nodes are drawn at random, class by class in "
        "proportion."
    )
    table = Table(columns, body)
    return write_table(table, folder, "supervision", title="Known classes", rows=rows, note=note)
