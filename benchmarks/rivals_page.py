"""The page `docs/rivals.md`: what was measured of other programs beside pamc, and nothing that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.pages import rows_of
from benchmarks.rows import Rows, latest
from benchmarks.speed_page import training_table
from benchmarks.tables import over_nodes, reproduce
from pamc.bench.shown import bytes_text, time_text
from pamc.experiments.paper.quality import DATA_SETS, DEFAULT, figures_of
from pamc.experiments.published import rival_figure
from pamc.experiments.rows import provenance
from pamc.results.table import Table, mean_std

__all__ = ["accuracy_table", "loss_table", "rivals_page"]

_HEAD = """\
# Beside other programs

What was measured, when and on what. Every figure of pamc, of the released program and of the N × N loss is rendered
from the rows in `benchmarks/results/` by `python -m benchmarks.pages`; those of other programs are kept, with what was
run and when, in `src/pamc/experiments/rivals.toml`. What has no row is not claimed.
"""

_ACCURACY = """\
## Accuracy without labels

The best of the other programs on each data set, whichever that was, beside pamc with no settings. Each program ran on
the very files that pamc read, without labels and with one fixed setting for all sets; measured in November 2026. The
comparison favors the rivals in one way (the best of several programs is taken per data set, with labels) and pamc in
another (its constants were chosen by accuracy over these sets together, never for one of them). See the
[page of quality](quality.md).
"""

_SPEED = """\
## Time and memory of training

One training by the program that the authors released, by the N × N contrastive loss, and by pamc in plain torch and
with fused kernels; the bare encoder and its matrix products are the floor. See the [page of speed](speed.md).
"""

_LOSS = """\
## The loss alone, by the number of rows

Forward and backward on a CPU.
"""

_SYSTEMS = """\
## The systems of the paper, run by one trainer

ACC in percent, the paper's figure → ours at the last epoch, which no label chose. All systems, seeds and the reasons
for differences are on the [page of the paper's experiments](reproduce.md).
"""


def rivals_page(_: Path) -> str:
    """Return the text of the page."""
    quality, epochs, loss = rows_of("quality"), latest("epoch", device="cuda"), latest("loss", device="cpu")
    systems = [*rows_of("table2"), *rows_of("table3")]
    parts = [_HEAD, _ACCURACY, *(accuracy_table(quality, metric) for metric in ("acc", "nmi"))]
    parts.append(f"pamc: {provenance([row for row in quality if row['options']['variant'] == DEFAULT])}.\n")
    parts += [_SPEED, training_table(epochs), _dated(epochs)]
    parts += [_LOSS, loss_table(loss), _dated(loss)]
    parts += [_SYSTEMS, reproduce(), f"{provenance(systems)}.\n"]
    return "\n".join(parts)


def accuracy_table(rows: Any, metric: str) -> str:
    """Return pamc's metric beside the best of the other programs, a line per data set that has both, as Markdown."""
    body, ahead = [], 0
    for name in DATA_SETS:
        rival, ours = rival_figure(name, metric), figures_of(rows, DEFAULT, name, metric)
        if rival == "–" or not ours:
            continue
        figure, _, program = rival.partition(" ")
        mean, std = mean_std([100 * value for value in ours])
        difference = mean - float(figure)
        ahead += difference > 0
        body.append([name, program.strip("()"), figure, f"{mean:.1f} ± {std:.1f}", f"{difference:+.1f}"])
    head = [metric.upper(), "best other program", "its figure", "pamc", "difference"]
    return f"{Table(head, body, 'llrrr').markdown()}\nAhead on {ahead} of {len(body)}.\n"


def loss_table(rows: Rows) -> str:
    """Return time and memory of the loss by N for each provider, as Markdown."""
    names = [name for name in dict.fromkeys(row["provider"] for row in rows) if over_nodes(rows, name)]
    cells: dict[tuple[str, int], str] = {}
    for name in names:
        for row in over_nodes(rows, name):
            n_nodes = row["parameters"]["n_nodes"]
            if not isinstance(n_nodes, list):
                cells[name, n_nodes] = _cell(row)
    sizes = sorted({size for _, size in cells})
    body = [[f"{size:,}", *(cells.get((name, size), "–") for name in names)] for size in sizes]
    return Table(["N", *names], body).markdown()


def _cell(row: Any) -> str:
    if "error" in row:
        return str(row["error"])
    return f"{time_text(row['values']['seconds'])}, {bytes_text(row['values']['peak_bytes'])}"


def _dated(rows: Rows) -> str:
    dates = sorted({row["date"][:10] for row in rows})
    machines = dict.fromkeys(row["environment"]["gpu"] or row["environment"]["cpu"] for row in rows)
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"{len(rows)} rows; {when}; {', '.join(machines)}.\n"
