"""Tables of the README and of the page of parameters, and the page of other programs, `docs/rivals.md`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pamc.config import FitConfig
from pamc.lab.cases.quality import DATA_SETS, DEFAULT, figures_of, summary_table
from pamc.lab.cases.tables import MISSING, Comparison
from pamc.lab.cell import Row
from pamc.lab.pages import DOCS, between_marks
from pamc.lab.pages.speed import training_table
from pamc.lab.pages.style import bytes_text, ratio_to_pamc, time_text
from pamc.lab.published import paper_figure, paper_title, rival_figure
from pamc.lab.rows import CHECKOUT, provenance, rows_of, stored
from pamc.lab.settings import PAPER_SETS
from pamc.results.table import Table, mean_std

__all__ = [
    "PAPER_KMEANS",
    "PARAMETERS",
    "TABLES",
    "accuracy_table",
    "loss_table",
    "rewritten",
    "rivals_page",
    "settings_table",
]

README = CHECKOUT / "README.md"

_SHOWN_METHODS = ("kmeans", "ae", "gae", "sdcn", "agcn", "scgc*", "pamcgc")

# ACC of K-means in Tables 2 and 3 of the paper.
PAPER_KMEANS = {name: figure.mean for name in PAPER_SETS if (figure := paper_figure(name, "kmeans", "acc")) is not None}


def costs() -> str:
    """Return the table of what was measured on a CPU."""
    loss, epochs = stored("loss", device="cpu"), stored("epoch", device="cpu")
    (fitted,) = [row for row in over_nodes(loss, "torch") if "time_exponent" in row["values"]]
    least, most = (f"{size // 1000}k" for size in fitted["parameters"]["n_nodes"])
    dense = [row for row in over_nodes(loss, "dense") if "peak_bytes" in row["values"]][-1]
    times = ratio_to_pamc(loss, dense, "peak_bytes") or 0.0
    rows = [
        [
            f"`pamc_loss`, N from {least} to {most}: exponent of time",
            _number(fitted, "time_exponent"),
        ],
        ["the same: exponent of peak memory", _number(fitted, "memory_exponent")],
        [f"memory of the N × N loss over `pamc_loss`, N = {dense['parameters']['n_nodes'] // 1000}k", f"{times:.0f} ×"],
    ]
    for row in epochs:
        name = row["data_set"].upper()
        if "times_encoder" in row["values"]:
            rows.append([f"training epoch over the bare encoder's step, {name}", f"{_number(row, 'times_encoder')} ×"])
        else:
            rows.append([f"dense input over sparse input, an epoch, {name}", f"{_number(row, 'times_faster')} ×"])
    (imported,) = stored("import")
    rows.append(["what `import pamc` adds to `import torch`", f"{_number(imported, 'added_s')} s"])
    rows += _ingest_rows()
    rows += _neighbor_rows()
    return Table([f"on {epochs[-1]['environment']['cpu']}", "measured"], rows).markdown()


def _ingest_rows() -> list[list[str]]:
    """Return time and memory of the largest ingest, beside sort."""
    found = {row["provider"]: row for row in stored("ingest")}
    ours, sort = found["pamc ingest"], found["sort | uniq"]
    about = ours["parameters"]
    what = f"`pamc ingest --memory {about['memory']}`, {about['n_edges'] / 1e6:.0f} M edges between string ids"
    peak = ours["values"]["peak_anonymous_bytes"] / 1e9
    return [
        [what, f"{ours['values']['seconds']:.0f} s, {peak:.2f} GB"],
        ["`sort | uniq` of the same edges as text", f"{sort['values']['seconds']:.0f} s"],
    ]


def _neighbor_rows() -> list[list[str]]:
    """Return time and recall of approximate neighbors of the most rows, beside exact ones."""
    clusters = [row for row in stored("neighbors", device="cpu") if row["parameters"]["rows"] == "clusters"]
    most = max(row["parameters"]["n_nodes"] for row in clusters)
    found = {row["provider"]: row["values"] for row in clusters if row["parameters"]["n_nodes"] == most}
    ours, exact = found["approximate"], found["blocked top-k"]
    return [
        [f"neighbors of {most // 1000}k rows, exact", f"{exact['seconds']:.0f} s"],
        [
            f"the same, approximate, with {100 * ours['recall']:.1f} % of the exact ones",
            f"{ours['seconds']:.1f} s ({ours['times_faster']:.0f} × faster)",
        ],
    ]


def over_nodes(rows: Sequence[Row], provider: str) -> Sequence[Row]:
    """Return the rows of the sweep over N of a provider of case `loss`, by N, the fitted exponents last."""
    own = [row for row in rows if row["provider"] == provider and row["parameters"]["sweep"] == "n_nodes"]
    return sorted(own, key=lambda row: (isinstance(row["parameters"]["n_nodes"], list), row["parameters"]["n_nodes"]))


def _number(row: Row, name: str) -> str:
    return f"{row['values'][name]:.2f}"


def speed() -> str:
    """Return time and memory of training on a GPU, by each provider on each data set."""
    return training_table(stored("epoch", device="cuda"))


def kmeans() -> str:
    """Return the table that compares K-means on raw features with the paper's row."""
    rows = []
    for name, printed in PAPER_KMEANS.items():
        accuracies = [r["values"]["acc"] for r in stored("kmeans") if r["data_set"] == name]
        mean, std = mean_std(accuracies)
        rows.append([name, f"{100 * mean:.1f} ± {100 * std:.1f}", f"{printed:.1f}"])
    return Table(["K-means, raw features", "ACC here", "ACC in the paper"], rows).markdown()


def reproduce() -> str:
    """Return ACC of some systems: the paper's figure and ours at the last epoch, from the rows of both tables."""
    rows = [*rows_of("table2"), *rows_of("table3")]
    comparison = Comparison(rows, PAPER_SETS, 1)
    body = []
    for method in _SHOWN_METHODS:
        line = [paper_title(method)]
        for data_set in PAPER_SETS:
            paper, ours = paper_figure(data_set, method, "acc"), comparison.ours(data_set, method, "acc", "last")
            printed = MISSING if paper is None else f"{paper.mean:.1f}"
            line.append(f"{printed} → {MISSING if ours is None else ours.percent()}")
        body.append(line)
    return Table(["ACC: paper → here", *(name.upper() for name in PAPER_SETS)], body).markdown()


def quality() -> str:
    """Return ACC without labels and settings beside K-means, the paper and the best other program."""
    return summary_table(rows_of("quality"), DATA_SETS, ("acc",)).markdown()


TABLES: dict[str, Callable[[], str]] = {
    "quality": quality,
    "speed": speed,
    "costs": costs,
    "kmeans": kmeans,
    "reproduce": reproduce,
}


def rewritten(text: str) -> str:
    """Return a document with the table between each pair of marks rendered anew."""
    for name, render in TABLES.items():
        text = between_marks(text, name, render())
    return text


_HEAD = """\
# Beside other programs

What was measured, when and on what. Every figure of pamc, of the released program and of the N × N loss is rendered
from the rows in `benchmarks/results/` by `python -m pamc.lab.pages`; those of other programs are kept, with what was
run and when, in `src/pamc/lab/rivals.toml`. What has no row is not claimed.
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
    quality, epochs, loss = rows_of("quality"), stored("epoch", device="cuda"), stored("loss", device="cpu")
    systems = [*rows_of("table2"), *rows_of("table3")]
    parts = [_HEAD, _ACCURACY, *(accuracy_table(quality, metric) for metric in ("acc", "nmi"))]
    parts.append(f"pamc: {provenance([row for row in quality if row['parameters']['variant'] == DEFAULT])}.\n")
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


def loss_table(rows: Sequence[Row]) -> str:
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
    if row["error"] is not None:
        return str(row["error"])
    return f"{time_text(row['values']['seconds'])}, {bytes_text(row['values']['peak_bytes'])}"


def _dated(rows: Sequence[Row]) -> str:
    dates = sorted({row["date"][:10] for row in rows})
    machines = dict.fromkeys(row["environment"]["gpu"] or row["environment"]["cpu"] for row in rows)
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"{len(rows)} rows; {when}; {', '.join(machines)}.\n"


PARAMETERS = DOCS / "parameters.md"


def settings_table() -> str:
    """Return a line for each setting, parameters first: its name, its default, what it does, what it may be."""
    settings = FitConfig.settings().items()
    body = []
    for name, declared in sorted(settings, key=lambda setting: setting[1].expert):
        default = list(declared.default) if isinstance(declared.default, tuple) else declared.default
        allowed = ", ".join(f"`{choice}`" for choice in declared.choices) or declared.describe()
        where = "`advanced`" if declared.expert else "parameter"
        body.append([f"`{name}`", where, f"`{default}`", declared.about, allowed])
    return Table(["setting", "in Python", "default", "what it does", "may be"], body, "lllll").markdown()


def with_settings(text: str) -> str:
    """Return the page of parameters with its table made anew."""
    return between_marks(text, "settings", settings_table())
