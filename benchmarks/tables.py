"""Tables of the README, rendered from result rows: `python -m benchmarks.tables` rewrites them in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.pages import rows_of
from benchmarks.rows import latest
from pamc.experiments.comparison import MISSING, Comparison
from pamc.experiments.paper.quality import DATA_SETS, summary_table
from pamc.experiments.published import paper_figure, paper_title
from pamc.results.table import Table, mean_std

__all__ = ["PAPER_KMEANS", "TABLES", "rewritten"]

README = Path(__file__).parents[1] / "README.md"

_SHOWN_SETS = ("dblp", "acm", "cite", "usps", "hhar")
_SHOWN_METHODS = ("kmeans", "ae", "gae", "sdcn", "agcn", "scgc*", "pamcgc")

# ACC of K-means in Tables 2 and 3 of the paper.
PAPER_KMEANS = {
    name: figure.mean for name in _SHOWN_SETS if (figure := paper_figure(name, "kmeans", "acc")) is not None
}


def _values(case: str, **matching: Any) -> dict[str, Any]:
    """Return the values of the newest row of a case whose provider or values match."""
    rows = [row for row in latest(case) if all(row.get(k) == v or k in row["values"] for k, v in matching.items())]
    values: dict[str, Any] = rows[-1]["values"]
    return values


def costs() -> str:
    """Return the table of measured costs."""
    scaling = _values("loss-scaling", time_exponent=None)
    memory = _values("loss-memory", provider="torch")
    epoch = _values("epoch", provider="torch")
    imported = _values("import")
    device = latest("epoch")[-1]["environment"]["cpu"]
    rows = [
        ["`pamc_loss`, N from 80k to 320k: exponent of time", f"{scaling['time_exponent']:.2f}"],
        ["the same: exponent of peak memory", f"{scaling['memory_exponent']:.2f}"],
        ["memory of the N × N loss over that of `pamc_loss`, N = 20k", f"{memory['times_less_memory']:.0f} ×"],
        ["training epoch over the bare encoder's step, USPS", f"{epoch['times_encoder']:.2f} ×"],
        ["what `import pamc` adds to `import torch`", f"{imported['added_s']:.2f} s"],
    ]
    return Table([f"on {device}", "measured"], rows).markdown()


def kmeans() -> str:
    """Return the table that compares K-means on raw features with the paper's row."""
    rows = []
    for name, printed in PAPER_KMEANS.items():
        accuracies = [r["values"]["acc"] for r in latest("kmeans") if r["parameters"]["data_set"] == name]
        mean, std = mean_std(accuracies)
        rows.append([name, f"{100 * mean:.1f} ± {100 * std:.1f}", f"{printed:.1f}"])
    return Table(["K-means, raw features", "ACC here", "ACC in the paper"], rows).markdown()


def reproduce() -> str:
    """Return ACC of some systems: the paper's figure and ours at the last epoch, from the rows of both tables."""
    rows = [*rows_of("table2"), *rows_of("table3")]
    comparison = Comparison(rows, _SHOWN_SETS, 1)
    body = []
    for method in _SHOWN_METHODS:
        line = [paper_title(method)]
        for data_set in _SHOWN_SETS:
            paper, ours = paper_figure(data_set, method, "acc"), comparison.ours(data_set, method, "acc", "last")
            printed = MISSING if paper is None else f"{paper.mean:.1f}"
            line.append(f"{printed} → {MISSING if ours is None else ours.percent()}")
        body.append(line)
    return Table(["ACC: paper → here", *(name.upper() for name in _SHOWN_SETS)], body).markdown()


def quality() -> str:
    """Return ACC without labels and settings beside K-means, the paper and the best other program."""
    return summary_table(rows_of("quality"), DATA_SETS, ("acc",)).markdown()


TABLES: dict[str, Callable[[], str]] = {"quality": quality, "costs": costs, "kmeans": kmeans, "reproduce": reproduce}


def rewritten(text: str) -> str:
    """Return a document with the table between each pair of marks rendered anew."""
    for name, render in TABLES.items():
        before, after = f"<!-- table {name} -->\n", f"<!-- end {name} -->"
        start, end = text.index(before) + len(before), text.index(after)
        text = text[:start] + render().strip() + "\n" + text[end:]
    return text


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text(encoding="utf-8")), encoding="utf-8")
