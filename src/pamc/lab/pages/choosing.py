"""The page of choosing k and of confidence, made of rows: `python -m pamc.lab.pages` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pamc.lab.cases.choosing import PLANTED, SETS, WITHOUT
from pamc.lab.cell import Row
from pamc.lab.pages.style import PALETTE, drawing, save_figure
from pamc.lab.rows import provenance, stored
from pamc.results.table import Table

__all__ = ["choosing_page"]

_HEAD = """\
# How many clusters, and how sure

No label is read by anything on this page but its tables. Every figure is rendered from the rows in
`benchmarks/results/` by `python -m pamc.lab.pages`; none is typed.

```sh
pamc fit customers.csv --n-clusters auto        # shows the table, recommends a number with its margin, fits it
```

```python
from pamc import choose_k

chosen = choose_k(X, adjacency)                 # X as for fit; candidates=range(2, 21)
chosen.n_clusters                               # a number, or None: the data do not say
print(chosen.text())                            # .frame(), .plot(), .svg()
```

## How choose_k decides

Rows are prepared, their graph is found and its leading directions are taken once for all candidates, as the default
start of a fit does. Then:

1. **Stability.** The rows are split in two random halves, eight times. Each half is smoothed along its own edges and
   clustered by itself, by K-means and by merging small groups along edges. The clusters of one half are given to the
   rows of the other by the nearest center and compared with those that were found there (adjusted Rand index). Clusters
   that are there are found in both halves; a cluster cut in two is cut elsewhere in the other half, and two that are
   joined are joined with others there.
2. **Chance.** The same is done with six data sets without clusters: rows of the same spread in every direction,
   Gaussian or uniform, joined by edges that follow the features exactly as far as the given ones do (or by their own
   kNN graph). Two halves of a square agree well on four quarters of it: that is no evidence of four clusters.
3. **Decision.** A number beats chance when halves disagree at most 55 % as much as without clusters, and that by 3.5
   standard deviations between data sets without clusters. Of the numbers that do, the most stable one is recommended;
   of equally stable ones the largest, whose clusters are parts of the others'. The margin is how much more stable it is
   than the next number, with its standard error over splits.

Where no number beats chance, where more than three are equally stable, or where stability has not fallen when the
candidates end, the answer is that **the data do not say**. The command then ends with exit code 3, the table and how to
go on. Modularity, silhouette and the objective stand in the table for a person to look at; they decide nothing:
modularity and silhouette have favorite numbers even on noise.

The rule was made on planted blocks and noise like those at the end of the table: their answers show that it does what
it was made for, not how it does on blocks of other kinds. The data sets were run twice: after the first time K-means
got more starts in each half, because noisy planted groups were missed without them, and the answer for dblp changed
from a number to none. The table has the second run. Their classes had no part in the rule.
"""

_CONFIDENCE = """\
`q` (Eq 9) says which cluster is nearest, not how sure that is: its heavy tails leave the clearest rows far below 1,
and training draws doubtful rows to their centers like all others, so that after 200 epochs it hardly tells them apart.
So every default fit clusters four random halves of its rows anew, with the procedure of its start and few
repeats, matches their clusters with its own, and learns by isotonic regression which share of them agrees with a row,
given the row's margin: by how much log q of its cluster exceeded that of any other before training. The encoder of the
start is kept for that, beside the trained one, so that new rows have a margin too. Rows unlike all others, more than
three times as far from their center as 95 % of the rows are, get less, down to a guess. `confidence_`, `labels.csv` and
`predict_with_confidence` have that share; `predict_proba` is still q, and labels, training and embedding are untouched.
`run.json` says so (`facts.confidence`) and states the error (`facts.confidence_error`): the expected calibration error
on rows and halves that the map was not learnt from.
Methods without such a start, fits with an encoder of your own and fits of fewer than eight rows per cluster keep the
largest q, and `facts.confidence` says "largest q". Of a large store, the halves are those of the sample of its start.

Confidence is about the data, not about the classes a person has in mind: rows that every half puts together count as
sure, though a person may see two classes there.
"""

_NOT_YET = "*Not measured yet.*\n"


def choosing_page(folder: Path) -> str:
    """Return the page, and draw its figure into a folder."""
    sections = {
        "Its answers beside the truth": _answers(),
        "What it costs": _costs(),
        "Confidence": "\n".join([_CONFIDENCE, _confidence(folder)]),
    }
    return "\n".join([_HEAD, *(f"## {title}\n\n{text.rstrip()}\n" for title, text in sections.items())])


def _answers() -> str:
    rows = stored("choose_k")
    if not rows:
        return _NOT_YET
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row["data_set"], []).append(row)
    body = [_answer(name, by_name[name]) for name in (*SETS, *PLANTED, *WITHOUT) if name in by_name]
    columns = ["data", "rows", "classes", "answers", "stability", "by chance", "margin", "as stable"]
    about = (
        "Of planted and random data, one answer for each seed. “–” is “the data do not say”. Stability and chance are "
        "those of the recommended number, or of the most stable one. Classes are what people named the rows; a data "
        "set may have other clusters than those."
    )
    return "\n\n".join([about, Table(columns, body).markdown(), f"Rows: {provenance(rows)}."])


def _answer(name: str, rows: Sequence[Row]) -> list[str]:
    values = rows[0]["values"]
    table = values["table"]
    numbers = table["n_clusters"]
    best = max(range(len(numbers)), key=table["stability"].__getitem__)
    place = best if values["n_clusters"] is None else numbers.index(values["n_clusters"])
    margin = "–" if values["rival"] is None else f"{values['margin']:.2f} ± {values['margin_error']:.2f}"
    return [
        name,
        f"{rows[0]['values']['n_nodes']:,}",
        str(values["truth"] or "none"),
        ", ".join(str(row["values"]["n_clusters"] or "–") for row in rows),
        f"{table['stability'][place]:.2f}",
        f"{table['chance'][place]:.2f}",
        margin,
        ", ".join(map(str, values["also_stable"])) or "–",
    ]


def _costs() -> str:
    rows = stored("choose_k")
    if not rows:
        return _NOT_YET
    body = [
        [
            row["data_set"],
            f"{row['values']['seconds']:.0f} s",
            f"{row['values']['fit_s']:.0f} s",
            f"{row['values']['cost']:.2f}",
            f"{row['values']['allowed_cost']:.1f}",
        ]
        for row in rows
        if row["seed"] == 0
    ]
    columns = ["data", "choose_k", "one fit", "fits", "2 + 0.2 per candidate"]
    about = (
        "Seconds of the processor on one thread, for all candidates together, beside one fit of the default settings "
        "(epochs beyond the first are reckoned from those that were run)."
    )
    return "\n\n".join([about, Table(columns, body).markdown()])


def _confidence(folder: Path) -> str:
    # The newest of each data set; rows without AUC are of a confidence that followed from q.
    newest = {row["data_set"]: row for row in stored("confidence") if "auc" in row["values"]}
    rows = list(newest.values())
    if not rows:
        return _NOT_YET
    _draw(rows, folder)
    columns = ["data", "ACC", "confidence", "error to ACC", "of q", "AUC", "of q", "error to re-fits", "of q", "stated"]
    body = [[row["data_set"], *_figures(row)] for row in rows]
    epochs = ", ".join(sorted({str(row["parameters"]["n_epochs"]) for row in rows}))
    about = (
        "The expected calibration error (ten bins of equal counts) against accuracy, and against the share of re-fits "
        "with other seeds that give a row the same cluster, of the confidence and of the largest q; AUC is how often a "
        "right row is surer than a wrong one; “stated” is what the fit itself said of its error. Percent. Fits of "
        f"{epochs} epochs."
    )
    spent = [row["values"]["share"] for row in stored("confidence") if row["provider"] == "calibration"]
    cost = "What calibration costs: not measured yet."
    if spent:
        low, high = min(spent), max(spent)
        cost = f"Calibration takes {100 * low:.1f} to {100 * high:.1f} % of a fit of the default settings on a CPU."
    parts = [about, Table(columns, body).markdown(), "![Accuracy against confidence](choosing/reliability.png)"]
    return "\n\n".join([*parts, cost, f"Rows: {provenance(rows)}."])


def _figures(row: Row) -> list[str]:
    names = (
        "acc",
        "confidence",
        "error_to_accuracy",
        "error_to_accuracy_of_q",
        "auc",
        "auc_of_q",
        "error_to_refits",
        "error_to_refits_of_q",
        "stated_error",
    )
    found = [row["values"].get(name) for name in names]
    return ["–" if value is None else f"{100 * value:.1f}" for value in found]


def _draw(rows: Sequence[Row], folder: Path) -> None:
    with drawing(1, 1, size=(6.4, 4.4)) as (figure, axes):
        ax = axes[0, 0]
        ax.plot([0, 1], [0, 1], color="#888888", linestyle=":", linewidth=1)
        for row, color in zip(rows, [*PALETTE] * (1 + len(rows) // len(PALETTE)), strict=False):
            bins = row["values"]["bins"]
            x, y = [each["confidence"] for each in bins], [each["accuracy"] for each in bins]
            ax.plot(x, y, marker="o", markersize=3, linewidth=1, color=color, label=row["data_set"])
        ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.02), ylim=(0, 1.02))
        ax.legend(fontsize=7)
        save_figure(figure, folder, "reliability", rows=rows)
