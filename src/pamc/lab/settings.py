"""What cells are made of (data sets, methods, seeds, settings), and the figures that others published."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Any, TypeAlias

import numpy as np

from pamc.config import PAPER_TABLE_1, preset
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.catalog import CATALOG, available, load_dataset
from pamc.data.synthetic import block_model
from pamc.errors import DataError, UnknownNameError
from pamc.lab.cell import Cell, Scope
from pamc.models.method import METHODS
from pamc.runtime import resolve_device

BLOCKS = "blocks"
_QUICK_DIGITS = 450


@lru_cache(maxsize=8)
def load(name: str, quick: bool) -> AttributedGraph:
    """Return a data set with its labels: one of the catalog, or "blocks", a block model of 300 nodes in 4 clusters.

    Sets that come with a list of nearest neighbors keep it, as in SDCN (Bo et al. 2020). A quick run takes a part of
    the digits.
    """
    check_name(name)
    if name == BLOCKS:
        return replace(block_model(300, 4, n_features=16, random_state=0), name=BLOCKS)
    graph = load_dataset(name)
    if quick and name == "digits":
        graph = AttributedGraph(graph.features[:_QUICK_DIGITS], labels=_labels(graph)[:_QUICK_DIGITS], name=name)
    return graph


def load_unlinked(name: str, quick: bool = False) -> AttributedGraph:
    """Return a data set without the list of nearest neighbors that comes with some: a fit finds its own."""
    graph = load(name, quick)
    return graph.without_edges() if graph.edges_are_neighbors else graph


def n_classes(graph: AttributedGraph) -> int:
    """Return the number of classes: how many clusters the experiments look for."""
    return len(np.unique(_labels(graph)))


def check_name(name: str) -> None:
    """Refuse a name that is no data set."""
    if name != BLOCKS and name not in CATALOG:
        raise UnknownNameError("data set", name, [*CATALOG, BLOCKS])


def why_missing(name: str) -> str | None:
    """Return why a data set cannot be loaded and where it was looked for; None where it can."""
    check_name(name)
    if name == BLOCKS or available(name) is not None:
        return None
    try:
        load_dataset(name)
    except DataError as error:
        # The first sentence: what is missing, and where it was looked for.
        return str(error).partition(". Source:")[0]
    return None


def _labels(graph: AttributedGraph) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    if graph.labels is None:
        raise DataError(f"data set {graph.name!r} has no labels: the experiments compare clusters with classes")
    return graph.labels


# Data sets that Table 1 has not, and the row that each of them takes.
_ROW_OF = {"news4": "reut", "reut21578_4": "reut", "digits": "usps", "cora": "cite", "amazon_photo": "acm"}
_ROW_OF[BLOCKS] = "acm"

# What preset "paper" decides beside Table 1: spelled out, so that no later default changes a reproduction.
_OF_THE_PAPER = ("init", "pretrain_epochs", "proxy", "meta_assignment", "self_edges", "kl_reduction")

_TABLE_1_METHODS = ("pamcgc", "pamcgc+ae", "scgc*")

# The README of SCGC's program (gayanku/SCGC) for SCGC*: alpha, beta, n_hops, tau, lr.
_SCGC_STAR = {
    "usps": (4.0, 0.1, 4, 0.25, 1e-3),
    "hhar": (1.0, 10.0, 3, 2.25, 1e-3),
    "reut": (0.5, 0.1, 3, 0.25, 1e-3),
    "acm": (1.0, 0.1, 1, 0.25, 1e-3),
    "dblp": (1.0, 0.1, 1, 0.25, 1e-3),
    "cite": (1.0, 0.1, 1, 0.25, 1e-4),
}

# The same for SCGC: alpha, beta, tau, lr. Its positives are the neighbors.
_SCGC = {
    "usps": (1.0, 0.1, 0.5, 1e-3),
    "hhar": (1.0, 10.0, 2.25, 1e-3),
    "reut": (3.0, 0.1, 1.0, 1e-3),
    "acm": (0.5, 0.1, 0.25, 1e-3),
    "dblp": (0.5, 0.1, 0.25, 1e-3),
    "cite": (1.0, 0.1, 0.25, 1e-4),
}

# Peng et al. (2021), as in the same README: weights of KL(P‖Q) and KL(P‖Z). Elsewhere they are SDCN's.
_AGCN = {"usps": (1000.0, 1000.0), "hhar": (1.0, 0.1), "reut": (10.0, 10.0)}

_QUICK = {"hidden": [24, 16], "n_hidden": 16, "n_dims": 8, "n_epochs": 3, "pretrain_epochs": 2, "n_init": 2}


def table_1_row(data_set: str) -> str:
    """Return the data set whose row of Table 1 a data set takes: its own, or that of the set it is most like."""
    if data_set in PAPER_TABLE_1:
        return data_set
    if data_set not in _ROW_OF:
        raise UnknownNameError("data set", data_set, [*CATALOG, BLOCKS])
    return _ROW_OF[data_set]


def settings_of(method: str, data_set: str, *, own_program: bool = False) -> dict[str, Any]:
    """Return the settings of a method on a data set; what is not named keeps the method's default.

    Features are taken as they are (`preprocessing="none"`). PamCGC has Table 1 and preset "paper", and so has SCGC*,
    which differs from it in the loss alone; `own_program` gives SCGC* the settings of its own program. The rates of
    SDCN and AGCN, and the settings of SCGC and AGCN, are those of their programs. Methods that start from an
    autoencoder all start from the same one. On graphs, whose features are binary words, its rows have root mean square
    1: of the preprocessings tried, K-means of its embedding then comes closest to what the paper has for SDCN's
    autoencoders, which are private, on two of the three graphs.
    """
    entry, row = METHODS[method], table_1_row(data_set)
    paper = preset("paper", data_set=row)
    # A method that names a preprocessing of its own keeps it.
    values: dict[str, Any] = {"preprocessing": "none"} if entry.config().preprocessing == "auto" else {}
    if entry.init == "autoencoder" or method in _TABLE_1_METHODS:
        # SDCN trains at the rate of its pre-training: 1e-4 on Reuters and Citeseer, 1e-3 elsewhere.
        values |= {"pretrain_epochs": 30, "pretrain_lr": paper.pretrain_lr, "lr": paper.pretrain_lr}
        if _has_words(data_set):
            values |= {"preprocessing": "rms", "pretrain_lr": 1e-3}
    base, _, added = method.partition("+")
    if method in _TABLE_1_METHODS and not (method == "scgc*" and own_program):
        values |= {name: getattr(paper, name) for name in (*PAPER_TABLE_1[row], *_OF_THE_PAPER)}
        if _has_words(data_set):
            values |= {"preprocessing": "rms", "pretrain_lr": 1e-3}
    elif method == "scgc*":
        values |= dict(zip(("alpha", "beta", "n_hops", "tau", "lr"), _SCGC_STAR[row], strict=True))
    elif method == "scgc":
        values |= dict(zip(("alpha", "beta", "tau", "lr"), _SCGC[row], strict=True))
    elif base == "agcn" and row in _AGCN:
        values |= dict(zip(("kl_weight", "output_weight"), _AGCN[row], strict=True))
    if added in ("pamc", "contrast"):
        own = ("alpha", "tau", "n_hops", "proxy", "meta_assignment", "self_edges")
        values |= {name: getattr(paper, name) for name in own}
    return _known(method, values)


def _has_words(data_set: str) -> bool:
    """Return whether a set is a graph of the catalog: all of those have binary or count bags of words as features."""
    return data_set in CATALOG and CATALOG[data_set].kind == "graph"


def quick_settings(method: str) -> dict[str, Any]:
    """Return tiny sizes and few epochs for a method: they show that it runs, and nothing else."""
    return _known(method, _QUICK)


def _known(method: str, values: dict[str, Any]) -> dict[str, Any]:
    names = METHODS[method].config.names()
    return {name: value for name, value in values.items() if name in names}


# The paper's sets, and these with the two that stand for Reuters, whose features are not public.
PAPER_SETS = ("dblp", "acm", "cite", "usps", "hhar")
ALL_SETS = (*PAPER_SETS, "news4", "reut21578_4")

# What a quick run takes instead.
QUICK_SETS = ("digits", "blocks")

# Changed settings of a fit, and further parameters of its task.
Variant: TypeAlias = tuple[dict[str, Any], dict[str, Any]]


def data_sets_of(scope: Scope, own: Sequence[str]) -> list[str]:
    """Return those of the experiment's data sets that are asked for; a quick run has digits and blocks instead."""
    names = QUICK_SETS if scope.quick else own
    return [name for name in names if scope.data_sets is None or name in scope.data_sets]


def methods_of(scope: Scope, own: Sequence[str]) -> list[str]:
    """Return those of the experiment's methods that are asked for."""
    return [method for method in own if scope.methods is None or method in scope.methods]


def seeds_of(scope: Scope, own: int) -> range:
    """Return the seeds asked for, else the experiment's own number of them, from 0; a quick run has one.

    Examples
    --------
    >>> seeds_of(Scope(), 3), seeds_of(Scope(quick=True), 3), seeds_of(Scope(seeds=10), 3)
    (range(0, 3), range(0, 1), range(0, 10))
    """
    return range(scope.seeds if scope.seeds is not None else 1 if scope.quick else own)


def kind_of_device(device: str) -> str:
    """Return "cuda" or "cpu" for the name of a device; a GPU need not be there to be named."""
    return resolve_device(device).type if device == "auto" else device.split(":")[0]


def run_settings(
    scope: Scope, method: str, data_set: str, *, own_program: bool = False, **changes: Any
) -> dict[str, Any]:
    """Return the settings of a method on a data set, some of them changed; a quick run has tiny ones and few epochs."""
    tiny = quick_settings(method) if scope.quick else {}
    kept = {name: value for name, value in changes.items() if not (scope.quick and name == "n_epochs")}
    return {**settings_of(method, data_set, own_program=own_program), **tiny, **kept}


def fit_cells(
    scope: Scope,
    case: str,
    task: str = "fit",
    *,
    data_sets: Sequence[str],
    methods: Sequence[str],
    n_seeds: int | Mapping[str, int],
    variants: Callable[[str, str, int], Iterable[Variant]] = lambda data_set, method, seed: [({}, {})],
) -> list[Cell]:
    """Return a cell per data set, method, seed and variant: those of the names given that are asked for.

    `n_seeds` is the same for all methods or by method. `variants` returns, for a data set, a method and a seed, the
    settings that change and the parameters of the task.
    """
    return [
        Cell(case, task, method, name, seed, run_settings(scope, method, name, **changes), parameters, scope.quick)
        for name in data_sets_of(scope, data_sets)
        for method in methods_of(scope, methods)
        for seed in seeds_of(scope, n_seeds if isinstance(n_seeds, int) else n_seeds[method])
        for changes, parameters in variants(name, method, seed)
    ]


METRICS = ("acc", "nmi", "ari", "f1")
_TABLES = ("table2", "table3")


@dataclass(frozen=True)
class PaperFigure:
    """A mean and a standard deviation as the paper has them, in percent, and how many decimals it prints.

    A hidden figure stands in a column that the paper's source has and its print has not.
    """

    mean: float
    std: float
    decimals: int
    hidden: bool = False

    def __str__(self) -> str:
        return f"{self.mean:.{self.decimals}f} ± {self.std:.{self.decimals}f}" + ("†" if self.hidden else "")


@lru_cache(maxsize=2)
def _document(name: str = "paper_tables") -> dict[str, Any]:
    text = resources.files("pamc.lab").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def paper_methods() -> tuple[str, ...]:
    """Return the names of the sixteen methods of Table 2, in its order."""
    return tuple(_document()["titles"])


def paper_title(method: str) -> str:
    """Return a method's name as the paper writes it, and the name itself where the paper has none."""
    return str(_document()["titles"].get(method, method))


def paper_sets(table: str) -> tuple[str, ...]:
    """Return the data sets of "table2" or "table3", in its order."""
    return tuple(_document()[table])


def paper_decimals(table: str) -> int:
    """Return how many decimals "table2" or "table3" has."""
    return int(_document()["decimals"][table])


def paper_figure(data_set: str, method: str, metric: str) -> PaperFigure | None:
    """Return the figure of one method on one data set; None where the paper has none."""
    for table in _TABLES:
        row = _document()[table].get(data_set, {}).get(method)
        if row is not None:
            mean, std = row[metric]
            return PaperFigure(mean, std, paper_decimals(table), bool(row.get("hidden", False)))
    return None


def rival_figure(data_set: str, metric: str) -> str:
    """Return the best label-free figure of another program, as "93.6 (MS2CAG)"; "–" where none is known."""
    found = _document("rivals").get(data_set, {}).get(metric)
    return "–" if found is None else f"{found[0]:.1f} ({found[1]})"
