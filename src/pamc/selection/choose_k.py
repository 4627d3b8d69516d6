"""How many clusters there are, where the data say so."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pamc.config import FitConfig
from pamc.data.adapters import as_graph
from pamc.data.attributed_graph import AttributedGraph, Features
from pamc.data.preprocessing import fit_preprocessing
from pamc.errors import BackendError, ConfigError, DataError
from pamc.initialize.base import mean_centers
from pamc.initialize.consensus import InputSource
from pamc.initialize.inputs import graph_and_inputs, positives
from pamc.models.method import METHODS
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.ops.scores import comparable_proxy, modularity, silhouette
from pamc.progress import Progress, SilentProgress
from pamc.runtime import one_thread, resolve_device, resolve_dtype, seed_for, seed_of
from pamc.selection.picture import as_svg, as_text, draw
from pamc.selection.split_half import WAYS, Decision, clusters_of, decide, null_reference, split_half_agreement
from pamc.training.checks import check_enough_rows, count_distinct
from pamc.training.pipeline import settled

__all__ = ["ChosenK", "choose_k"]

_DEFAULT_CANDIDATES = range(2, 21)

# Splits of the data in halves; data sets without clusters, of either shape in turn; and splits of each of those.
_N_SPLITS, _N_NULLS, _N_NULL_SPLITS = 8, 6, 2
_SHAPES = ("gaussian", "uniform")

# Half of the rows has to hold this many per cluster.
_LEAST_ROWS_PER_CLUSTER = 8

_SILHOUETTE_ROWS = 2000


@dataclass(frozen=True, eq=False, repr=False)
class ChosenK:
    """A recommended number of clusters, or the honest answer that the data do not say.

    Parameters
    ----------
    n_clusters
        The recommendation; None where the data do not say.
    why
        One sentence.
    margin, margin_error, rival
        How much more stable it is than the next candidate, the standard error of that, and which candidate that is.
    also_stable
        Other candidates that are equally stable.
    table
        A line per candidate: `n_clusters`, `stability` (agreement of clusters found in two halves of the rows, mean
        adjusted Rand index), `error` (its standard error), `chance` (stability of data of the same spread without
        clusters), `beats_chance`, `modularity`, `silhouette`, `objective` (of Eq 12 at the start, lower is better, not
        to be compared closely between numbers of clusters), `clusters_by`.
    inputs
        What clusters were sought in: "features and graph", "features" or "graph".
    seconds
        Wall-clock time by phase.
    """

    n_clusters: int | None
    why: str
    margin: float
    margin_error: float
    rival: int | None
    also_stable: tuple[int, ...]
    table: dict[str, NDArray[Any]]
    inputs: str
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The recommendation with its margin, or why there is none."""
        if self.n_clusters is None:
            return self.why
        text = self.why
        if self.rival is not None:
            text += f"; margin {self.margin:.2f} ± {self.margin_error:.2f} to k = {self.rival}"
        if self.also_stable:
            text += f"; as stable, but coarser: {', '.join(f'k = {k}' for k in self.also_stable)}"
        return text

    def frame(self) -> Any:
        """Return the table as a pandas DataFrame."""
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise BackendError('frame() needs pandas: pip install "pamc[explain]"; table has the columns') from error
        return DataFrame(self.table)

    def plot(self, ax: Any = None) -> Any:
        """Draw stability against the number of clusters, beside what chance gives, with matplotlib; return its axes."""
        return draw(self, ax)

    def svg(self) -> str:
        """Return the same picture as an SVG element, drawn without any further package."""
        return as_svg(self)

    def text(self) -> str:
        """Return the same as lines of plain text."""
        return as_text(self)

    def facts(self) -> dict[str, Any]:
        """Return what a record keeps: plain values, None for numbers that are not finite."""
        table = {
            name: [
                None if isinstance(value, float) and not math.isfinite(value) else value for value in column.tolist()
            ]
            for name, column in self.table.items()
        }
        return {**asdict(self), "also_stable": list(self.also_stable), "table": table}

    def __repr__(self) -> str:
        return f"ChosenK(n_clusters={self.n_clusters}): {self.summary}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.summary)}</p>{self.svg()}"


def choose_k(
    X: Any,
    adjacency: Any = None,
    candidates: Iterable[int] | None = None,
    *,
    random_state: Any = None,
    device: str = "auto",
    config: FitConfig | None = None,
    progress: Progress | None = None,
) -> ChosenK:
    """Return how many clusters the rows have, found without labels, or that the data do not say.

    The rows are prepared, their graph is built and smoothed along once for all candidates. For each candidate, clusters
    are found in two random halves of the rows, apart, and compared: clusters that are there are found in both. What
    data without clusters would give is found in the same way from rows of the same spread and a graph that follows them
    as far as the given one. See `docs/choosing.md`.

    Parameters
    ----------
    X
        Rows, in any form that :func:`pamc.explain` takes.
    adjacency
        The graph, in any form that `fit` takes; what X has without it, and a kNN graph where there is none.
    candidates
        Numbers of clusters from 2, a list or range; 2 to 20 without, as far as there are 16 rows per cluster and as
        many distinct rows.
    random_state
        Source of all randomness.
    device
        Where neighbors are sought.
    config
        Settings of the fit that is to follow: how rows are prepared and the graph is built.

    Examples
    --------
    >>> from pamc.data.synthetic import block_model
    >>> chosen = choose_k(block_model(240, 3, random_state=0), candidates=range(2, 6), random_state=0, device="cpu")
    >>> chosen.n_clusters
    3
    """
    graph = as_graph(X, adjacency)
    numbers = _checked_candidates(candidates, graph.features)
    seed, where = seed_of(random_state), resolve_device(device)
    steps = progress or SilentProgress()
    settings = (config or FitConfig()).with_(init="consensus", n_clusters=numbers[len(numbers) // 2], n_dims=None)
    settings = settings.with_(n_hops=settled(settings, graph.n_nodes).n_hops)

    def dims(n_clusters: int) -> int:
        return int(settled(settings.with_(n_clusters=n_clusters), graph.n_nodes).n_dims)

    began = time.perf_counter()
    with steps.phase("graph"):
        inputs, own_graph = _evidence(graph, settings, seed, where)
    seconds = {"graph": time.perf_counter() - began}
    began = time.perf_counter()
    with steps.phase("halves", 1 + _N_NULLS) as phase, one_thread():
        compare = partial(split_half_agreement, candidates=numbers, dims=dims)
        agreement = compare(inputs, n_splits=_N_SPLITS, seed=seed_for(seed, "halves"))
        phase.advance()
        make_null = partial(null_reference, inputs, own_graph=own_graph, n_neighbors=settings.n_neighbors, device=where)
        nulls = []
        for number in range(_N_NULLS):
            shape = _SHAPES[number % len(_SHAPES)]
            null = make_null(shape=shape, seed=seed_for(seed, f"without clusters {number}"))
            found = compare(null, n_splits=_N_NULL_SPLITS, seed=seed_for(seed, f"halves without clusters {number}"))
            nulls.append(found.mean(axis=1))
            phase.advance()
    decision = decide(numbers, agreement, np.stack(nulls, axis=1), most=_most_clusters(graph.n_nodes))
    seconds["halves"] = time.perf_counter() - began
    began = time.perf_counter()
    with steps.phase("scores"), one_thread():
        scores = list(_scores(inputs, numbers, decision, settings, dims, seed))
    seconds["scores"] = time.perf_counter() - began
    return _answer(numbers, decision, scores, inputs.kind, seconds)


def _most_clusters(n_nodes: int) -> int:
    return n_nodes // (2 * _LEAST_ROWS_PER_CLUSTER)


def _checked_candidates(candidates: Iterable[int] | None, features: Features) -> list[int]:
    n_nodes = features.shape[0]
    most = _most_clusters(n_nodes)
    if most < 2:
        raise DataError(
            f"{n_nodes} rows are too few to say how many clusters they have: at least {4 * _LEAST_ROWS_PER_CLUSTER}"
        )
    if candidates is None:
        check_enough_rows(features, _DEFAULT_CANDIDATES[0])
        n_distinct = count_distinct(features, at_most=_DEFAULT_CANDIDATES[-1])
        return [k for k in _DEFAULT_CANDIDATES if k <= min(most, n_distinct)]
    listed = isinstance(candidates, Iterable) and not isinstance(candidates, str)
    given: list[Any] = list(candidates) if listed else [candidates]
    are_whole = all(isinstance(k, Real) and float(k).is_integer() for k in given)
    numbers = sorted({int(k) for k in given}) if are_whole else []
    if not listed or not numbers or numbers[0] < 2 or numbers[-1] > most:
        raise ConfigError(
            f"candidates must be a list or range of whole numbers from 2 to {most} ({2 * _LEAST_ROWS_PER_CLUSTER} rows "
            f"per cluster), such as range(2, {min(most, 10) + 1}), got {', '.join(map(repr, given)) or 'none'}"
        )
    check_enough_rows(features, numbers[-1])
    return numbers


def _evidence(graph: AttributedGraph, config: Any, seed: int, device: torch.device) -> tuple[InputSource, bool]:
    """Return what clusters are sought in, and whether its graph is the kNN graph of its rows."""
    preprocessing = fit_preprocessing(graph.features, config.preprocessing)
    features = preprocessing.apply(graph.features)
    _, inputs, _ = graph_and_inputs(
        METHODS["pamcgc"], graph, features, config, seed=seed, preprocessing=preprocessing.kind, device=device
    )
    if inputs is None:
        raise DataError("there is no graph to compare halves of the rows along")
    return inputs, graph.edges is None or inputs.kind == "features"


def _scores(
    inputs: InputSource, numbers: list[int], decision: Decision, config: Any, dims: Any, seed: int
) -> Iterator[dict[str, float]]:
    """Yield the label-free scores of quick clusters of all rows, for each candidate."""
    cpu, dtype = torch.device("cpu"), resolve_dtype(config.precision)
    pairs, _ = positives(inputs.adjacency, config, cpu, dtype)
    for place, k in enumerate(numbers):
        way = WAYS[int(decision.way[place])]
        labels, points = clusters_of(inputs, k, n_dims=dims(k), way=way, seed=seed_for(seed, "clusters of all rows"))
        z = torch.from_numpy(config.embedding_scale * points).to(dtype)
        own: Any = config.with_(n_clusters=k)
        with torch.no_grad():
            model = PamCGCModel(torch.nn.Identity(), mean_centers(z, labels, k), pairs, own)  # type: ignore[arg-type]
            terms = model.objective(z)
        parts = {name: float(value) for name, value in terms.parts.items()}
        proxy = comparable_proxy(parts["proxy"], int(terms.monitors["n_nonempty"]))
        yield {
            "modularity": modularity(inputs.adjacency, labels),
            "silhouette": silhouette(points, labels, sample_size=_SILHOUETTE_ROWS, random_state=seed),
            "objective": own.alpha * (parts["positive"] + proxy) + own.beta * parts["kl"],
        }


def _answer(
    numbers: list[int], decision: Decision, scores: list[dict[str, float]], kind: str, seconds: dict[str, float]
) -> ChosenK:
    return ChosenK(
        n_clusters=None if decision.chosen is None else numbers[decision.chosen],
        why=decision.why,
        margin=decision.margin,
        margin_error=decision.margin_error,
        rival=None if decision.rival is None else numbers[decision.rival],
        also_stable=tuple(numbers[place] for place in decision.equal),
        table={
            "n_clusters": np.array(numbers),
            "stability": decision.stability,
            "error": decision.error,
            "chance": decision.chance,
            "beats_chance": decision.beats_chance,
            **{name: np.array([each[name] for each in scores]) for name in scores[0]},
            "clusters_by": np.array([WAYS[way] for way in decision.way]),
        },
        inputs=kind,
        seconds=seconds,
    )
