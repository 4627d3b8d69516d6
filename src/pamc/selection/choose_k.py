"""Selection of the number of clusters by stability, if the data support one, and its plots."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
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
from pamc.graph.smoothing import on_sphere
from pamc.initialize.base import mean_centers
from pamc.initialize.consensus import InputSource
from pamc.initialize.inputs import described_by_edges, graph_and_inputs, positives
from pamc.models.method import METHODS
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.ops.scores import comparable_proxy, modularity, silhouette
from pamc.progress import Progress, SilentProgress
from pamc.runtime import one_thread, quiet_libraries, resolve_device, resolve_dtype, seed_for, seed_of
from pamc.selection.clusterings import WAYS, Points, clusterings
from pamc.selection.comparison import Comparison, dims
from pamc.selection.split_half import Decision
from pamc.training.phases import Clock, check_enough_rows, count_distinct
from pamc.training.pipeline import scaled, settled, weighted

# Default candidates; those for which there are too few rows are left out.
_DEFAULT_CANDIDATES = range(2, 201)

# Rows without a graph are sampled if there are more than this many, and more than twice as many as the candidates need.
_MOST_ROWS = 5000

# Minimum number of rows per cluster; each half of the rows has half as many.
LEAST_ROWS_PER_CLUSTER = 16

_SILHOUETTE_ROWS = 2000

# Longest list in an error message.
_MOST_LISTED = 8

# The inputs are chosen for a typical number of clusters: the median of this many of the smallest candidates.
_TYPICAL = 19


@dataclass(frozen=True, eq=False, repr=False)
class ChosenK:
    """A recommended number of clusters, or None if the data do not support one.

    Parameters
    ----------
    n_clusters
        The recommended number; None if the data do not support one.
    why
        The reason, in one sentence.
    margin, margin_error, rival
        How much more stable the recommended number is than the next candidate, the standard error of this margin, and
        the next candidate.
    also_stable
        Other candidates that are equally stable.
    table
        A row per candidate: `n_clusters`, `stability` (mean adjusted Rand index between clusterings of two halves of
        the rows), `error` (its standard error), `chance` (stability of data of the same spread without clusters),
        `beats_chance`, `modularity`, `silhouette`, `objective` (Eq 12 at the initialization; lower is better, but it is
        only roughly comparable between numbers of clusters), `clusters_by`.
    inputs
        The data that were clustered: "features and graph", "features" or "graph".
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
        """The recommendation with its margin, or the reason why there is none."""
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
        """Plot stability and its chance level against the number of clusters with matplotlib; return the axes."""
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise BackendError(
                'plot() needs matplotlib: pip install "pamc[explain]"; svg() and text() do not'
            ) from error
        if ax is None:
            _, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
        table = self.table
        ax.errorbar(table["n_clusters"], table["stability"], yerr=table["error"], marker="o", label="stability")
        ax.plot(table["n_clusters"], table["chance"], linestyle="--", label="without clusters")
        if self.n_clusters is not None:
            ax.axvline(self.n_clusters, linestyle=":", color="gray")
        ax.set(xlabel="number of clusters", ylabel="agreement of halves", xticks=table["n_clusters"])
        ax.legend()
        return ax

    def svg(self) -> str:
        """Return the same plot as an SVG element in the text color of the page around it; needs no other package."""
        table = self.table
        k = table["n_clusters"].astype(np.float64)
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * (k - k[0]) / max(k[-1] - k[0], 1.0)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img" '
            f'aria-label="Stability for {k[0]:.0f} to {k[-1]:.0f} clusters" font-family="sans-serif" font-size="12" '
            'fill="currentColor">'
        ]
        for value in (0.0, 0.5, 1.0):
            y = float(_height(np.float64(value)))
            parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="currentColor" stroke-opacity="0.2"/>')
            parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        if self.n_clusters is not None:
            start = f"M{x[table['n_clusters'] == self.n_clusters][0]:.1f} {_TOP}"
            parts.append(f'<path d="{start}V{_HEIGHT - _BOTTOM}" stroke="currentColor" stroke-dasharray="2 3"/>')
        lines = (("stability", "stability", "#2563eb", ""), ("chance", "without clusters", "#9a6700", "5 4"))
        for number, (name, label, color, dashes) in enumerate(lines):
            corners = list(zip(x.tolist(), _height(table[name]).tolist(), strict=True))
            points = " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)
            stroke = f'stroke="{color}" stroke-width="2" stroke-dasharray="{dashes}"'
            parts.append(f'<polyline points="{points}" fill="none" {stroke}/>')
            parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{color}"/>' for a, b in corners]
            legend = _WIDTH - 130 * (len(lines) - number)
            parts.append(f'<circle cx="{legend}" cy="{_TOP + 4}" r="4" fill="{color}"/>')
            parts.append(f'<text x="{legend + 8}" y="{_TOP + 8}">{label}</text>')
        step = max(1, -(-len(k) // 20))
        for a, number in zip(x[::step].tolist(), table["n_clusters"][::step].tolist(), strict=True):
            parts.append(f'<text x="{a:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{number}</text>')
        parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 4}" text-anchor="middle">number of clusters</text>')
        return "".join([*parts, "</svg>"])

    def text(self, *, width: int | None = None, summary: bool = True) -> str:
        """Return the table as text, a line per candidate with a bar for its stability, followed by the recommendation.

        If `width` characters are not enough, the bars are left out first, then columns from the right, which are listed
        below the table.
        """
        table = self.table
        names, bar, mark = _fitting(width)
        sizes = {name: max(len(name), 10 if bar else 6) for name in names}
        lines = ["  ".join([f"{'k':>4}", *(f"{name:>{size}}" for name, size in sizes.items())])]
        for row, k in enumerate(table["n_clusters"]):
            numbers = "  ".join([f"{k:>4}", *(f"{table[name][row]:{size}.3f}" for name, size in sizes.items())])
            marks = "#" * round(bar * max(0.0, float(table["stability"][row])))
            line = numbers + (f"  {marks:<{bar}}" if bar else "") + (mark if k == self.n_clusters else "")
            lines.append(line.rstrip())
        below = [self.summary] if summary else []
        if len(names) < len(_COLUMNS):
            below.insert(0, f"(no room for {', '.join(_COLUMNS[len(names) :])})")
        for text in below:
            lines += [text] if width is None else textwrap.wrap(text, max(width, _NARROWEST)) or [""]
        return "\n".join(lines)

    def facts(self) -> dict[str, Any]:
        """Return the plain values for a record, with None for numbers that are not finite."""
        table = {name: column.tolist() for name, column in self.table.items()}
        for values in table.values():
            values[:] = [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]
        return {**asdict(self), "also_stable": list(self.also_stable), "table": table}

    def __repr__(self) -> str:
        return f"ChosenK(n_clusters={self.n_clusters}): {self.summary}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.summary)}</p>{self.svg()}"


def choose_k(
    X: Any = None,
    adjacency: Any = None,
    candidates: Iterable[int] | None = None,
    *,
    random_state: Any = None,
    device: str = "auto",
    config: FitConfig | None = None,
    progress: Progress | None = None,
) -> ChosenK:
    """Choose the number of clusters by split-half stability, without labels.

    The rows are preprocessed, and their graph is built and used for smoothing, once for all candidates. For each
    candidate, two random halves of the rows are clustered separately and compared: real clusters are found in both. The
    chance level is computed in the same way on data without clusters: rows with the same spread, and a graph that is
    related to them as strongly as the given one. For a graph without features, halves of its edges are compared,
    and the data without clusters are random graphs with nearly the same degrees. See `docs/choosing.md`.

    Parameters
    ----------
    X
        The rows, in any form that :func:`pamc.explain` accepts; None for a graph without features.
    adjacency
        The graph, in any form that `fit` accepts; by default the graph of X, or a kNN graph if it has none.
    candidates
        Numbers of clusters to compare: a list or range of integers of at least 2. The default is 2 to 200, limited to
        one cluster per 16 rows and to the number of distinct rows. All numbers up to 20 are compared. If there are more
        than eight larger ones, only those around the most stable one are compared, or none if a small number is clearly
        more stable.
    random_state
        Random seed.
    device
        Device of the neighbor search.
    config
        Settings of the subsequent fit, which determine the preprocessing and the graph.
    progress
        Object that displays the progress; by default, nothing is displayed.

    Examples
    --------
    >>> from pamc.data.synthetic import block_model
    >>> chosen = choose_k(block_model(240, 3, random_state=0), candidates=range(2, 6), random_state=0, device="cpu")
    >>> chosen.n_clusters
    3
    """
    graph = as_graph(X, adjacency)
    is_alone = graph.n_features == 0
    numbers = _checked_candidates(candidates, np.arange(graph.n_nodes)[:, None] if is_alone else graph.features)
    seed, where = seed_of(random_state), resolve_device(device)
    clock = Clock(progress or SilentProgress())
    typical = numbers[min(len(numbers) - 1, _TYPICAL) // 2]
    settings = (config or FitConfig()).with_(init="consensus", n_clusters=typical, n_dims=None)
    settings = settings.with_(n_hops=settled(settings, graph.n_nodes).n_hops)

    with clock.phase("graph"):
        if is_alone:
            graph = described_by_edges(graph, numbers[-1], seed=seed)
        graph = _sampled(graph, 2 * LEAST_ROWS_PER_CLUSTER * numbers[-1], seed)
        inputs, is_knn_graph = _inputs(graph, settings, seed, where)
    settings = weighted(scaled(settings, is_given=not is_knn_graph), None)
    n_steps = Comparison.n_steps(numbers)
    with clock.timed("halves"), clock.progress.phase("halves", n_steps) as phase, one_thread():
        compared = Comparison(inputs, is_knn_graph, settings.n_neighbors, seed, where, phase).of(numbers)
    decision = compared.decide(most=most_clusters(graph.n_nodes))
    with clock.phase("scores"), one_thread():
        scores = list(_scores(inputs, compared.numbers, decision, settings, seed))
    return _answer(compared.numbers, decision, scores, inputs.kind, clock.seconds)


def _sampled(graph: AttributedGraph, n_needed: int, seed: int) -> AttributedGraph:
    """Return a random sample of rows that have no edges, if there are more than are needed to compare candidates."""
    n_rows = max(_MOST_ROWS, n_needed)
    if graph.edges is not None or graph.n_nodes <= n_rows:
        return graph
    rng = np.random.default_rng(seed_for(seed, "sample of rows"))
    return AttributedGraph(graph.features[np.sort(rng.choice(graph.n_nodes, n_rows, replace=False))])


def most_clusters(n_rows: int) -> int:
    """Return the largest number of clusters that can be compared on this many rows."""
    return n_rows // LEAST_ROWS_PER_CLUSTER


def _checked_candidates(candidates: Iterable[int] | None, features: Features) -> list[int]:
    n_nodes = features.shape[0]
    most = most_clusters(n_nodes)
    if most < 2:
        needed = f"at least {2 * LEAST_ROWS_PER_CLUSTER} are needed"
        raise DataError(f"{n_nodes} rows are too few to choose the number of clusters: {needed}")
    if candidates is None:
        check_enough_rows(features, _DEFAULT_CANDIDATES[0])
        n_distinct = count_distinct(features, at_most=_DEFAULT_CANDIDATES[-1])
        return [k for k in _DEFAULT_CANDIDATES if k <= min(most, n_distinct)]
    listed = isinstance(candidates, Iterable) and not isinstance(candidates, str)
    values: list[Any] = list(candidates) if listed else [candidates]
    are_integers = all(isinstance(k, Real) and float(k).is_integer() for k in values)
    numbers = sorted({int(k) for k in values}) if are_integers else []
    if not listed or not numbers or numbers[0] < 2 or numbers[-1] > most:
        raise ConfigError(
            f"candidates must be a list or range of integers from 2 to {most} ({LEAST_ROWS_PER_CLUSTER} rows "
            f"per cluster), such as range(2, {min(most, 10) + 1}), got {_listed(values)}"
        )
    check_enough_rows(features, numbers[-1])
    return numbers


def _listed(values: list[Any]) -> str:
    """Return the values as text; if there are many, only the first two and the last."""
    texts = [repr(value) for value in values]
    return ", ".join(texts if len(texts) <= _MOST_LISTED else [*texts[:2], "…", texts[-1]]) or "none"


def _inputs(graph: AttributedGraph, config: Any, seed: int, device: torch.device) -> tuple[InputSource, bool]:
    """Return the features and graph to cluster, and whether the graph is the kNN graph of the features."""
    preprocessing = fit_preprocessing(graph.features, config.preprocessing, table=graph.encoding)
    features = preprocessing.apply(graph.features)
    _, inputs, _ = graph_and_inputs(
        METHODS["pamcgc"], graph, features, config, seed=seed, preprocessing=preprocessing, device=device
    )
    if inputs is None:
        raise DataError("there is no graph along which to compare halves of the rows")
    return inputs, graph.edges is None or inputs.kind == "features"


def _scores(
    inputs: InputSource, numbers: list[int], decision: Decision, config: Any, seed: int
) -> Iterator[dict[str, float]]:
    """Yield, for each candidate, the label-free scores of a quick clustering of all rows."""
    cpu, dtype = torch.device("cpu"), resolve_dtype(config.precision)
    pairs, _ = positives(inputs.adjacency, config, cpu, dtype)
    points = Points.of(on_sphere(inputs.rows), inputs.adjacency, n_dims=dims(numbers[-1]))
    with quiet_libraries:
        by_way = clusterings(points, numbers, dims=dims, seed=seed_for(seed, "clusters of all rows"))
    for index, k in enumerate(numbers):
        clusters = by_way[decision.way[index]][index]
        labels, embedded = clusters.labels, points.embedded(clusters.n_dims)
        z = torch.from_numpy(config.embedding_scale * embedded).to(dtype)
        k_config: Any = config.with_(n_clusters=k)
        with torch.no_grad():
            centers = mean_centers(z, labels, k)
            model = PamCGCModel(torch.nn.Identity(), centers, pairs, k_config)  # type: ignore[arg-type]
            terms = model.objective(z)
        parts = {name: float(value) for name, value in terms.parts.items()}
        proxy = comparable_proxy(parts["proxy"], int(terms.monitors["n_nonempty"]))
        yield {
            "modularity": modularity(inputs.adjacency, labels),
            "silhouette": silhouette(embedded, labels, sample_size=_SILHOUETTE_ROWS, random_state=seed),
            "objective": k_config.alpha * (parts["positive"] + proxy) + k_config.beta * parts["kl"],
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
        also_stable=tuple(numbers[index] for index in decision.equal),
        table={
            "n_clusters": np.array(numbers),
            "stability": decision.stability,
            "error": decision.error,
            "chance": decision.chance,
            "beats_chance": decision.beats_chance,
            **{name: np.array([values[name] for values in scores]) for name in scores[0]},
            "clusters_by": np.array([WAYS[way] for way in decision.way]),
        },
        inputs=kind,
        seconds=seconds,
    )


_COLUMNS = ("stability", "error", "chance", "modularity", "silhouette", "objective")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 560, 260, 44, 40, 14, 12
_BAR = 20
_NARROWEST = 20
_MARKS = (" <- recommended", " <-")


def _fitting(width: int | None) -> tuple[tuple[str, ...], int, str]:
    """Return the columns, the length of the bars and the mark of the recommended number that fit in a line."""
    if width is None or width >= 4 + 12 * len(_COLUMNS) + 2 + _BAR + len(_MARKS[0]):
        return _COLUMNS, _BAR, _MARKS[0]
    for n_columns in range(len(_COLUMNS), 1, -1):
        used = 4 + sum(2 + max(len(name), 6) for name in _COLUMNS[:n_columns])
        for mark in _MARKS:
            if used + len(mark) <= width:
                return _COLUMNS[:n_columns], 0, mark
    return _COLUMNS[:1], 0, _MARKS[1]


def _height(values: NDArray[np.float64] | np.float64) -> NDArray[np.float64]:
    return np.asarray(_HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * np.clip(values, 0.0, 1.0))
