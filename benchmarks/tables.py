"""Tables of the README, rendered from result rows: `python -m benchmarks.tables` rewrites them in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.pages import rows_of
from benchmarks.rows import Rows, latest
from benchmarks.speed_page import training_table
from pamc.bench.rows import Row
from pamc.bench.shown import ratio_to_pamc
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


def costs() -> str:
    """Return the table of what was measured on a CPU."""
    loss, epochs = latest("loss", device="cpu"), latest("epoch", device="cpu")
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
        name = row["parameters"]["data_set"].upper()
        if "times_encoder" in row["values"]:
            rows.append([f"training epoch over the bare encoder's step, {name}", f"{_number(row, 'times_encoder')} ×"])
        else:
            rows.append([f"dense input over sparse input, an epoch, {name}", f"{_number(row, 'times_faster')} ×"])
    (imported,) = latest("import")
    rows.append(["what `import pamc` adds to `import torch`", f"{_number(imported, 'added_s')} s"])
    rows += _ingest_rows()
    rows += _neighbor_rows()
    return Table([f"on {epochs[-1]['environment']['cpu']}", "measured"], rows).markdown()


def _ingest_rows() -> list[list[str]]:
    """Return time and memory of the largest ingest, beside sort."""
    found = {row["provider"]: row for row in latest("ingest")}
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
    clusters = [row for row in latest("neighbors", device="cpu") if row["parameters"]["rows"] == "clusters"]
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


def over_nodes(rows: Rows, provider: str) -> Rows:
    """Return the rows of the sweep over N of a provider of case `loss`, by N, the fitted exponents last."""
    own = [row for row in rows if row["provider"] == provider and row["parameters"]["sweep"] == "n_nodes"]
    return sorted(own, key=lambda row: (isinstance(row["parameters"]["n_nodes"], list), row["parameters"]["n_nodes"]))


def _number(row: Row, name: str) -> str:
    return f"{row['values'][name]:.2f}"


def speed() -> str:
    """Return time and memory of training on a GPU, by each provider on each data set."""
    return training_table(latest("epoch", device="cuda"))


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
        before, after = f"<!-- table {name} -->\n", f"<!-- end {name} -->"
        start, end = text.index(before) + len(before), text.index(after)
        text = text[:start] + render().strip() + "\n" + text[end:]
    return text


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text(encoding="utf-8")), encoding="utf-8")
