"""Generated parts of each page: README, the paper's experiments, quality, other programs, parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean

from pamc.config import FitConfig
from pamc.data.catalog import CATALOG
from pamc.lab.cases.choosing import CHOOSING
from pamc.lab.cases.quality import DATA_SETS, DEFAULT, figures_of, measured, seconds_of, table_mean
from pamc.lab.cases.tables import Comparison, differences
from pamc.lab.cell import Row
from pamc.lab.pages import DOCS, Part, experiment, joined, origin
from pamc.lab.pages.production import PRODUCTION
from pamc.lab.pages.scale import SCALE
from pamc.lab.pages.speed import SPEED, loss_table, over_nodes, training_table
from pamc.lab.pages.style import MISSING, by, percent, ratio_to_pamc
from pamc.lab.rivals import RIVALS
from pamc.lab.rows import CHECKOUT, kind_of, rows_of, stored
from pamc.lab.settings import PAPER_SETS, TABLES, paper_figure, paper_title, rival_figure
from pamc.results.table import Table, mean_std

_SHOWN_METHODS = ("kmeans", "ae", "gae", "sdcn", "agcn", "scgc*", "pamcgc")

# Data sets in the table at the top of the README: images, sensors, text and graphs.
_FIRST_SETS = ("usps", "hhar", "news4", "dblp", "acm", "cora", "cite", "amazon_photo")

# ACC of K-means in Tables 2 and 3 of the paper.
PAPER_KMEANS = {name: figure.mean for name in PAPER_SETS if (figure := paper_figure(name, "kmeans", "acc")) is not None}


def path_of(page: str) -> Path:
    """Return the file of a page."""
    return CHECKOUT / "README.md" if page == "README" else DOCS / f"{page}.md"


def _first_table(rows: Sequence[Row], folder: Path) -> str:
    """Return the ACC of K-means, of the best other program and of pamc per data set, and the means over the tables."""
    body = []
    for name in measured(rows, ["kmeans none", DEFAULT], _FIRST_SETS):
        data_set = CATALOG[name]
        title = f"{data_set.title}, {data_set.n_nodes:,} × {data_set.n_features:,}"
        kmeans, ours = (percent(figures_of(rows, variant, name)) for variant in ("kmeans none", DEFAULT))
        body.append([title, *_best_in_bold(kmeans, rival_figure(name, "acc"), ours), _seconds(rows, [name])])
    tables = measured(rows, [*RIVALS, DEFAULT], TABLES)
    if tables:
        means = {variant: table_mean(rows, variant, names=tables) for variant in (*RIVALS, DEFAULT)}
        best = max(RIVALS, key=lambda name: means[name])
        rival = f"{means[best]:.1f} ({RIVALS[best].title})"
        title = f"mean of {len(tables)} plain tables"
        kmeans, ours = (f"{means[variant]:.1f}" for variant in ("k-means", DEFAULT))
        body.append([title, *_best_in_bold(kmeans, rival, ours), _seconds(rows, tables)])
    return Table(["ACC (%)", "K-means", "best other program", "pamc", "seconds of pamc"], body).markdown()


def _best_in_bold(*cells: str) -> list[str]:
    """Return the cells, such as "74.7 (MS2CAG)", with those of the largest leading number in bold."""
    values = [-math.inf if cell == MISSING else float(cell.split()[0]) for cell in cells]
    return [f"**{cell}**" if value == max(values) else cell for cell, value in zip(cells, values, strict=True)]


def _seconds(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Return the mean time of the fits with the default on a CPU."""
    on_cpu = [row for row in rows if kind_of(row) == "cpu"]
    seconds = [value for name in names for value in seconds_of(on_cpu, name)]
    return MISSING if not seconds else f"{mean(seconds):.{0 if mean(seconds) >= 10 else 1}f}"


def _costs(loss: Sequence[Row], folder: Path) -> str:
    """Return time and memory of parts of pamc on a CPU."""
    (fitted,) = [row for row in over_nodes(loss, "torch") if "time_exponent" in row["values"]]
    exponents, sizes = fitted["values"], [f"{size // 1000}k" for size in fitted["parameters"]["n_nodes"]]
    dense = [row for row in over_nodes(loss, "dense") if "peak_bytes" in row["values"]][-1]
    ratio = ratio_to_pamc(loss, dense, "peak_bytes") or 0.0
    body = [
        [f"`pamc_loss`, N from {' to '.join(sizes)}: exponent of time", f"{exponents['time_exponent']:.2f}"],
        ["`pamc_loss`: exponent of peak memory", f"{exponents['memory_exponent']:.2f}"],
        [f"memory of the N × N loss / `pamc_loss`, N = {dense['parameters']['n_nodes'] // 1000}k", f"{ratio:.0f} ×"],
    ]
    epochs = stored("epoch", device="cpu")
    for row in epochs:
        name, values = row["data_set"].upper(), row["values"]
        if "times_encoder" in values:
            body.append([f"time of an epoch / a step of the bare encoder, {name}", f"{values['times_encoder']:.2f} ×"])
        else:
            body.append([f"time of an epoch with dense / sparse input, {name}", f"{values['times_faster']:.2f} ×"])
    (imported,) = stored("import")
    ingest = {row["provider"]: row for row in stored("ingest")}
    ours, sort = ingest["pamc ingest"], ingest["sort | uniq"]["values"]["seconds"]
    seconds, peak = ours["values"]["seconds"], ours["values"]["peak_anonymous_bytes"] / 1e9
    command = f"`pamc ingest --memory {ours['parameters']['memory']}`"
    body += [
        ["`import pamc`, in addition to `import torch`", f"{imported['values']['added_s']:.2f} s"],
        [
            f"{command}, {ours['parameters']['n_edges'] / 1e6:.0f} M edges with string ids",
            f"{seconds:.0f} s, {peak:.2f} GB",
        ],
        ["`sort | uniq` on the same edges as text", f"{sort:.0f} s"],
    ]
    for row in (row for row in stored("relation-cost") if "time_exponent" in row["values"]):
        sizes = [f"{size // 1000}k" for size in row["parameters"]["n_edges"]]
        title = f"weighing and combining three relations, {' to '.join(sizes)} edges together: exponent of time"
        body.append([title, f"{row['values']['time_exponent']:.2f}"])
    clusters = [row for row in stored("neighbors", device="cpu") if row["parameters"]["rows"] == "clusters"]
    n_rows = max(row["parameters"]["n_nodes"] for row in clusters)
    search = {row["provider"]: row["values"] for row in clusters if row["parameters"]["n_nodes"] == n_rows}
    exact, fast = search["blocked top-k"], search["approximate"]
    times = f"{fast['seconds']:.1f} s ({fast['times_faster']:.0f} × faster)"
    body += [
        [f"exact neighbor search, {n_rows // 1000}k rows", f"{exact['seconds']:.0f} s"],
        [f"approximate neighbor search, with {100 * fast['recall']:.1f} % of the exact neighbors", times],
    ]
    return Table([f"on {epochs[-1]['environment']['cpu']}", "measured"], body).markdown()


def _kmeans(rows: Sequence[Row], folder: Path) -> str:
    """Return the ACC of K-means on raw features, here and in the paper."""
    groups = by(rows, lambda row: str(row["data_set"]))
    ours = {name: percent([row["values"]["acc"] for row in group]) for name, group in groups.items()}
    body = [[name, ours[name], f"{printed:.1f}"] for name, printed in PAPER_KMEANS.items()]
    return Table(["K-means, raw features", "ACC here", "ACC in the paper"], body).markdown()


def _systems() -> list[Row]:
    return [*rows_of("table2"), *rows_of("table3")]


def _systems_table(rows: Sequence[Row]) -> str:
    """Return the ACC of some methods: the paper's figure, and ours at the last epoch."""
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


def accuracy_table(rows: Sequence[Row], metric: str) -> str:
    """Return a metric of pamc and of the best other program on each data set that has both, as Markdown."""
    body, ahead = [], 0
    for name in DATA_SETS:
        rival, ours = rival_figure(name, metric), figures_of(rows, DEFAULT, name, metric)
        if rival == MISSING or not ours:
            continue
        figure, _, program = rival.partition(" ")
        center, std = mean_std([100 * value for value in ours])
        difference = center - float(figure)
        ahead += difference > 0
        body.append([name, program.strip("()") or MISSING, figure, f"{center:.1f} ± {std:.1f}", f"{difference:+.1f}"])
    head = ["data set", "best other program", f"its {metric.upper()}", f"{metric.upper()} of pamc", "difference"]
    return f"{Table(head, body, 'llrrr').markdown()}\nAhead on {ahead} of {len(body)}.\n"


def _rivals(rows: Sequence[Row], folder: Path) -> str:
    defaults = [row for row in rows if row["parameters"]["variant"] == DEFAULT]
    return joined(*(accuracy_table(rows, metric) for metric in ("acc", "nmi")), origin(defaults))


def _settings_table(rows: Sequence[Row], folder: Path) -> str:
    """Return name, default, description and allowed values of each setting, parameters of the estimator first."""
    settings = FitConfig.settings().items()
    body = []
    for name, declared in sorted(settings, key=lambda setting: setting[1].expert):
        default = list(declared.default) if isinstance(declared.default, tuple) else declared.default
        allowed = ", ".join(f"`{choice}`" for choice in declared.choices) or declared.describe()
        where = "`advanced`" if declared.expert else "parameter"
        body.append([f"`{name}`", where, f"`{default}`", declared.about, allowed])
    return Table(["setting", "in Python", "default", "description", "allowed values"], body, "lllll").markdown()


def _with_origin(table: Callable[[Sequence[Row]], str]) -> Callable[[Sequence[Row], Path], str]:
    return lambda rows, folder: joined(table(rows), origin(rows))


_LOSS, _EPOCHS = partial(stored, "loss", device="cpu"), partial(stored, "epoch", device="cuda")
_TIMES = [f"time-memory-{kind}" for kind in ("cuda-ratios", "cuda", "cpu-ratios", "cpu")]
_KNOWN = [f"quality{part}" for part in ("", "-starts", "-decisions", "-ablations", "-scores")]
_QUALITY = ["quality-tables", "quality-parts", *_KNOWN, "quality-constants"]

# The parts of each page by the name of their markers.
PAGES: dict[str, dict[str, Part]] = {
    "README": {"first": Part(partial(rows_of, "quality"), _first_table)},
    "reproduce": {
        "kmeans": Part(partial(stored, "kmeans"), _kmeans),
        "table2": experiment("table2", "table2-short", "table2-tests", titled=True),
        "table3": experiment("table3", "table3-short", "table3-tests", titled=True),
        "reasons": Part(_systems, lambda rows, folder: differences(rows, rows_of("differences"))),
        "differences": experiment("differences", "differences"),
        "time-memory": experiment("time-memory", *_TIMES, titled=True),
        "embeddings": experiment("embeddings"),
        "ablation": experiment("ablation", "ablation-cuda"),
        **{
            name: experiment(name, name)
            for name in ("hyper", "bound", "edge-drop", "edge-noise", "supervision", "assignment")
        },
    },
    "quality": {
        "quality": experiment("quality", *_QUALITY, titled=True),
        "mixed": experiment("mixed", "mixed", "emptied", titled=True),
        "relations": experiment("relations", "relations", "graphs-alone", "images", titled=True),
    },
    "speed": {**SPEED, "costs": Part(_LOSS, _costs)},
    "scale": SCALE,
    "choosing": CHOOSING,
    "production": PRODUCTION,
    "rivals": {
        "accuracy": Part(partial(rows_of, "quality"), _rivals),
        "training": Part(_EPOCHS, _with_origin(training_table)),
        "loss": Part(_LOSS, _with_origin(loss_table)),
        "systems": Part(_systems, _with_origin(_systems_table)),
    },
    "parameters": {"settings": Part(None, _settings_table)},
}
