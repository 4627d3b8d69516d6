"""Data sets, methods, seeds and settings of cells, and figures that others published."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pamc.config import PAPER_TABLE_1, preset
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.catalog import CATALOG, available, load_dataset
from pamc.data.readers import read_features
from pamc.data.synthetic import block_model
from pamc.errors import DataError, UnknownNameError
from pamc.lab.cell import Cell, Scope
from pamc.models.method import METHODS
from pamc.runtime import resolve_device

BLOCKS = "blocks"

# Labeled tables without a graph, in the folder `tables` of $PAMC_DATA. Settings are chosen on the first group only, and
# the second checks them. The split was drawn at random among wide, small and large tables and shapes in the plane,
# before any tuning.
CHOICE_TABLES = (
    *("agnews", "worm_neuron", "page_blocks", "satimage"),
    *("dermatology", "g_other_iris", "g_uci_wine", "soybean", "vehicle"),
    *("g_fcps_lsun", "g_fcps_target", "g_graves_zigzag_noisy", "g_sipu_aggregation", "g_sipu_unbalance", "g_wut_x2"),
)
CHECK_TABLES = (
    *("isolet", "pendigits", "waveform5000", "g_uci_glass", "g_uci_ionosphere", "vote"),
    *("g_fcps_chainlink", "g_other_hdbscan", "g_sipu_compound", "g_sipu_s2"),
)
TABLES = (*CHOICE_TABLES, *CHECK_TABLES)

# Tables of mixed types, files NAME.csv in the folder "mixed" of the data, and a random table of customers.
MIXED_TABLES = (*("anneal", "autos", "cmc", "colic", "credit_a", "heart_c", "hepatitis", "lymph", "mushroom", "zoo"),)
CUSTOMERS = "customers"

# Data sets with several relations, and the names of the relations.
RELATION_SETS = {"relations/dblp": ("apa", "apcpa"), "relations/acm": ("pap", "psp")}

# Graphs without features, and the share of the edges that leave their group (mixing) of the generated ones.
KARATE, LES_MISERABLES = "karate", "les-miserables"
GRAPHS_ALONE: dict[str, float | None] = {KARATE: None, LES_MISERABLES: None, "planted-0.3": 0.3, "planted-0.5": 0.5}
_QUICK_DIGITS = 450


@lru_cache(maxsize=8)
def load(name: str, quick: bool) -> AttributedGraph:
    """Return a data set of the catalog or a table with its labels, or "blocks", a block model of 300 nodes.

    Data sets with a list of nearest neighbors keep it, as in SDCN (Bo et al. 2020). A quick run uses a part of the
    digits.
    """
    check_name(name)
    if name == BLOCKS:
        return replace(block_model(300, 4, n_features=16, random_state=0), name=BLOCKS)
    if name in TABLES:
        return replace(read_features(_table_path(name)), name=name)
    graph = load_dataset(name)
    if quick and name == "digits":
        graph = AttributedGraph(graph.features[:_QUICK_DIGITS], labels=_labels(graph)[:_QUICK_DIGITS], name=name)
    return graph


def load_unlinked(name: str, quick: bool = False) -> AttributedGraph:
    """Return a data set without the list of nearest neighbors that some include, so that a fit finds its own."""
    graph = load(name, quick)
    return graph.without_edges() if graph.edges_are_neighbors else graph


def n_classes(graph: AttributedGraph) -> int:
    """Return the number of classes, which is the number of clusters in the experiments; −1 marks noise."""
    labels = _labels(graph)
    return len(np.unique(labels[labels >= 0]))


def check_name(name: str) -> None:
    """Raise UnknownNameError unless a name is that of a data set."""
    known = (*CATALOG, *TABLES, *MIXED_TABLES, *RELATION_SETS, *GRAPHS_ALONE, BLOCKS, CUSTOMERS)
    if name not in known:
        raise UnknownNameError("data set", name, known)


def _table_path(name: str) -> Path:
    return Path(os.environ.get("PAMC_DATA", ".")) / "tables" / f"{name}.npz"


def mixed_path(name: str) -> Path:
    """Return the path of a table of mixed types."""
    return Path(os.environ.get("PAMC_DATA", ".")) / "mixed" / f"{name}.csv"


def relations_path(name: str) -> Path:
    """Return the path of a data set with several relations."""
    return Path(os.environ.get("PAMC_DATA", ".")) / f"{name}.npz"


def why_missing(name: str) -> str | None:
    """Return why a data set cannot be loaded, with the places that were searched; None if it can."""
    check_name(name)
    if name in (*TABLES, *MIXED_TABLES, *RELATION_SETS):
        paths = {**dict.fromkeys(TABLES, _table_path), **dict.fromkeys(MIXED_TABLES, mixed_path)}
        path = paths.get(name, relations_path)(name)
        return None if path.is_file() else f"table {name!r} was not found (searched for {path})"
    if name in (BLOCKS, CUSTOMERS, *GRAPHS_ALONE) or available(name) is not None:
        return None
    try:
        load_dataset(name)
    except DataError as error:
        # The first sentence states what is missing and where it was searched for.
        return str(error).partition(". Source:")[0]
    return None


def _labels(graph: AttributedGraph) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    if graph.labels is None:
        raise DataError(f"data set {graph.name!r} has no labels: the experiments compare clusters with classes")
    return graph.labels


# The row of Table 1 that is used for data sets without their own.
_ROW_OF = {"news4": "reut", "reut21578_4": "reut", "digits": "usps", "cora": "cite", "amazon_photo": "acm"}
_ROW_OF[BLOCKS] = "acm"

# Settings of preset "paper" that are not in Table 1, listed so that new defaults do not change a reproduction.
_PAPER_SETTINGS = ("init", "pretrain_epochs", "proxy", "meta_assignment", "self_edges", "kl_reduction")

_TABLE_1_METHODS = ("pamcgc", "pamcgc+ae", "scgc*")

# Settings of SCGC* in the README of its program (gayanku/SCGC): alpha, beta, n_hops, tau, lr.
_SCGC_STAR = {
    "usps": (4.0, 0.1, 4, 0.25, 1e-3),
    "hhar": (1.0, 10.0, 3, 2.25, 1e-3),
    "reut": (0.5, 0.1, 3, 0.25, 1e-3),
    "acm": (1.0, 0.1, 1, 0.25, 1e-3),
    "dblp": (1.0, 0.1, 1, 0.25, 1e-3),
    "cite": (1.0, 0.1, 1, 0.25, 1e-4),
}

# Settings of SCGC in the same README: alpha, beta, tau, lr. Its positives are the neighbors.
_SCGC = {
    "usps": (1.0, 0.1, 0.5, 1e-3),
    "hhar": (1.0, 10.0, 2.25, 1e-3),
    "reut": (3.0, 0.1, 1.0, 1e-3),
    "acm": (0.5, 0.1, 0.25, 1e-3),
    "dblp": (0.5, 0.1, 0.25, 1e-3),
    "cite": (1.0, 0.1, 0.25, 1e-4),
}

# Weights of KL(P‖Q) and KL(P‖Z) of AGCN (Peng et al. 2021) in the same README; the default is that of SDCN.
_AGCN = {"usps": (1000.0, 1000.0), "hhar": (1.0, 0.1), "reut": (10.0, 10.0)}

_QUICK = {"hidden": [24, 16], "n_hidden": 16, "n_dims": 8, "n_epochs": 3, "pretrain_epochs": 2, "n_init": 2}


def table_1_row(data_set: str) -> str:
    """Return the data set whose row of Table 1 applies to a data set: its own, or that of the most similar one."""
    check_name(data_set)
    return _ROW_OF.get(data_set, data_set)


def settings_of(method: str, data_set: str, *, own_program: bool = False) -> dict[str, Any]:
    """Return the settings of a method on a data set that differ from the method's defaults.

    Features are used without preprocessing. PamCGC uses Table 1 and preset "paper", and so does SCGC*, which differs
    only in the loss; with `own_program`, SCGC* uses the settings of its own program. The learning rates of SDCN and
    AGCN, and the settings of SCGC and AGCN, are those of their programs. All methods that start from an autoencoder
    start from the same one. On graphs, whose features are bags of words, rows are scaled to a root mean square of 1:
    of the preprocessings tried, K-means on the embedding then comes closest to the paper's figures for SDCN's
    autoencoders, which are not public, on two of the three graphs.
    """
    entry, row = METHODS[method], table_1_row(data_set)
    paper = preset("paper", data_set=row)
    # A method whose default is a specific preprocessing keeps it.
    values: dict[str, Any] = {"preprocessing": "none"} if entry.config().preprocessing == "auto" else {}
    if entry.init == "autoencoder" or method in _TABLE_1_METHODS:
        # SDCN trains at the rate of its pre-training: 1e-4 on Reuters and Citeseer, 1e-3 elsewhere.
        values |= {"pretrain_epochs": 30, "pretrain_lr": paper.pretrain_lr, "lr": paper.pretrain_lr}
    base, _, added = method.partition("+")
    if method in _TABLE_1_METHODS and not (method == "scgc*" and own_program):
        values |= {name: getattr(paper, name) for name in (*PAPER_TABLE_1[row], *_PAPER_SETTINGS)}
    elif method == "scgc*":
        values |= dict(zip(("alpha", "beta", "n_hops", "tau", "lr"), _SCGC_STAR[row], strict=True))
    elif method == "scgc":
        values |= dict(zip(("alpha", "beta", "tau", "lr"), _SCGC[row], strict=True))
    elif base == "agcn" and row in _AGCN:
        values |= dict(zip(("kl_weight", "output_weight"), _AGCN[row], strict=True))
    if added in ("pamc", "contrast"):
        names = ("alpha", "tau", "n_hops", "proxy", "meta_assignment", "self_edges")
        values |= {name: getattr(paper, name) for name in names}
    # The features of all graphs of the catalog are bags of words.
    if "pretrain_epochs" in values and data_set in CATALOG and CATALOG[data_set].kind == "graph":
        values |= {"preprocessing": "rms", "pretrain_lr": 1e-3}
    return _known(method, values)


def quick_settings(method: str) -> dict[str, Any]:
    """Return tiny sizes and few epochs for a method, which only show that it runs."""
    return _known(method, _QUICK)


def _known(method: str, values: dict[str, Any]) -> dict[str, Any]:
    names = METHODS[method].config.names()
    return {name: value for name, value in values.items() if name in names}


# The paper's data sets, and all: two of them replace Reuters, whose features are not public.
PAPER_SETS = ("dblp", "acm", "cite", "usps", "hhar")
ALL_SETS = (*PAPER_SETS, "news4", "reut21578_4")

# Data sets of a quick run.
QUICK_SETS = ("digits", "blocks")

# Changed settings of a fit, and further parameters of its task.
Variant: TypeAlias = tuple[dict[str, Any], dict[str, Any]]


def data_sets_of(scope: Scope, usual: Sequence[str]) -> list[str]:
    """Return the requested ones of an experiment's usual data sets, or of digits and blocks in a quick run."""
    names = QUICK_SETS if scope.quick else usual
    return [name for name in names if scope.data_sets is None or name in scope.data_sets]


def methods_of(scope: Scope, usual: Sequence[str]) -> list[str]:
    """Return the requested ones of an experiment's usual methods."""
    return [method for method in usual if scope.methods is None or method in scope.methods]


def seeds_of(scope: Scope, usual: int) -> range:
    """Return the requested number of seeds, from 0, or else the experiment's usual number; a quick run has one.

    Examples
    --------
    >>> seeds_of(Scope(), 3), seeds_of(Scope(quick=True), 3), seeds_of(Scope(seeds=10), 3)
    (range(0, 3), range(0, 1), range(0, 10))
    """
    return range(scope.seeds if scope.seeds is not None else 1 if scope.quick else usual)


def kind_of_device(device: str) -> str:
    """Return "cuda" or "cpu" for the name of a device, which need not be available."""
    return resolve_device(device).type if device == "auto" else device.split(":")[0]


def run_settings(
    scope: Scope, method: str, data_set: str, *, own_program: bool = False, **changes: Any
) -> dict[str, Any]:
    """Return the settings of a method on a data set, with changes; a quick run has few epochs in any case."""
    usual = settings_of(method, data_set, own_program=own_program)
    if not scope.quick:
        return {**usual, **changes}
    return {**usual, **quick_settings(method), **{n: value for n, value in changes.items() if n != "n_epochs"}}


def fit_cells(
    scope: Scope,
    case: str,
    task: str = "fit",
    *,
    data_sets: Sequence[str] = PAPER_SETS,
    methods: Sequence[str] = ("pamcgc",),
    n_seeds: int | Mapping[str, int] = 3,
    variants: Callable[[Scope, str, str, int], Iterable[Variant]] = lambda *_: [({}, {})],
) -> list[Cell]:
    """Return the cells of an experiment: one per requested data set, method, seed and variant.

    `n_seeds` applies to all methods, or is given by method. `variants` takes scope, data set, method and seed, and
    returns pairs of changed settings and parameters of the task.
    """
    return [
        Cell(case, task, method, name, seed, run_settings(scope, method, name, **changes), parameters, scope.quick)
        for name in data_sets_of(scope, data_sets)
        for method in methods_of(scope, methods)
        for seed in seeds_of(scope, n_seeds if isinstance(n_seeds, int) else n_seeds[method])
        for changes, parameters in variants(scope, name, method, seed)
    ]


def bench_cells(
    scope: Scope,
    case: str,
    measured: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    task: str | None = None,
    data_sets: Sequence[str] = ("",),
    quick_sets: Sequence[str] | None = None,
    n_seeds: int = 1,
) -> list[Cell]:
    """Return the cells of a case of `pamc bench`: one per data set, seed, and provider with its parameters.

    The task is named like the case unless `task` names it. A case with `quick_sets` measures the requested data sets,
    by default `data_sets`, or `quick_sets` in a quick run.
    """
    names = data_sets if quick_sets is None else scope.data_sets or (quick_sets if scope.quick else data_sets)
    return [
        Cell(case, task or case, provider, name, seed, parameters=parameters, quick=scope.quick)
        for name in names
        for seed in seeds_of(scope, n_seeds)
        for provider, parameters in measured
    ]


METRICS = ("acc", "nmi", "ari", "f1")


@dataclass(frozen=True)
class PaperFigure:
    """A mean and standard deviation in the paper, in percent, with the number of printed decimals.

    A hidden figure is in a column of the paper's source that is not printed.
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
    """Return the names of the sixteen methods of Table 2, in order."""
    return tuple(_document()["titles"])


def paper_title(method: str) -> str:
    """Return a method's name in the paper, or the name itself if the paper does not include the method."""
    return str(_document()["titles"].get(method, method))


def paper_sets(table: str) -> tuple[str, ...]:
    """Return the data sets of "table2" or "table3", in order."""
    return tuple(_document()[table])


def paper_decimals(table: str) -> int:
    """Return the number of decimals in "table2" or "table3"."""
    return int(_document()["decimals"][table])


def paper_figure(data_set: str, method: str, metric: str) -> PaperFigure | None:
    """Return the figure of one method on one data set; None if the paper does not include it."""
    for table in ("table2", "table3"):
        row = _document()[table].get(data_set, {}).get(method)
        if row is not None:
            mean, std = row[metric]
            return PaperFigure(mean, std, paper_decimals(table), bool(row.get("hidden", False)))
    return None


def rival_figure(data_set: str, metric: str) -> str:
    """Return the best figure of another program without labels, such as "93.6 (MS2CAG)"; "–" if none is known."""
    figure, *program = _document("rivals").get(data_set, {}).get(metric, [None])
    return "–" if figure is None else " ".join([f"{figure:.1f}", *(f"({name})" for name in program)])
