"""Sentences that say why a figure of ours differs from the paper's, made of measured rows."""

from __future__ import annotations

from collections.abc import Sequence

from pamc.experiments.experiment import Row
from pamc.experiments.published import paper_figure, paper_methods, paper_title
from pamc.models.method import METHODS
from pamc.results.table import Table, mean_std

__all__ = ["LARGE", "differences", "reason"]

# Points of ACC from which a difference is explained.
LARGE = 3.0
_SETS = ("dblp", "acm", "cite", "usps", "hhar")


def _acc(rows: Sequence[Row], method: str, data_set: str, epoch: str, variant: str | None = None) -> float | None:
    """Return the mean ACC in percent of a system on a set, None without rows."""
    values = [
        row["values"][epoch]["acc"]
        for row in rows
        if (row["method"], row["data_set"], row["options"].get("variant")) == (method, data_set, variant)
    ]
    return 100 * mean_std(values).mean if values else None


def differences(tables: Sequence[Row], others: Sequence[Row]) -> str:
    """Return the section that lists every difference of ACC, with a reason for each of more than three points."""
    body = []
    for method in paper_methods():
        for data_set in _SETS:
            paper = paper_figure(data_set, method, "acc")
            last, oracle = (_acc(tables, method, data_set, epoch) for epoch in ("last", "oracle"))
            if paper is None or last is None or oracle is None:
                continue
            gaps = [last - paper.mean, oracle - paper.mean]
            why = reason(tables, others, method, data_set) if max(map(abs, gaps)) > LARGE else ""
            texts = [f"{value:.1f}" for value in (paper.mean, last, oracle)]
            body.append([paper_title(method), data_set.upper(), *texts, *(f"{gap:+.1f}" for gap in gaps), why])
    columns = ["method", "data set", "paper", "last", "oracle", "last − paper", "oracle − paper", "why"]
    table = Table(columns, body, "llrrrrrl")
    note = (
        f"ACC in percent, means over the seeds. A reason is given where a difference exceeds {LARGE:g} points; it is "
        "made of the rows of `differences`, in which one setting was changed at a time."
    )
    return f"### Differences to the paper\n\n{note}\n\n{table.markdown()}"


def reason(tables: Sequence[Row], others: Sequence[Row], method: str, data_set: str) -> str:
    """Return one or two sentences on what the difference of a system on a set is due to, as far as it was measured."""
    figure = paper_figure(data_set, method, "acc")
    last, oracle = (_acc(tables, method, data_set, epoch) for epoch in ("last", "oracle"))
    if figure is None or last is None or oracle is None:
        return ""
    paper, parts = figure.mean, []
    if abs(oracle - paper) <= LARGE:
        parts.append(f"The epoch: {oracle:.1f} at the oracle epoch.")
    tried = _variants(others, method, data_set)
    if tried and abs(oracle - paper) > LARGE:
        parts.append(_about_the_settings(tried, oracle, paper))
    if abs(oracle - paper) > LARGE and METHODS[method].init_of(METHODS[method].config()) is not None:
        parts += _about_the_start(tables, method, data_set)
    if abs(oracle - paper) > LARGE and not parts:
        parts.append(_spread(tables, method, data_set))
    return " ".join(parts)


def _variants(others: Sequence[Row], method: str, data_set: str) -> dict[str, float]:
    names = dict.fromkeys(
        row["options"]["variant"] for row in others if row["method"] == method and row["data_set"] == data_set
    )
    found = {name: _acc(others, method, data_set, "oracle", name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _about_the_settings(tried: dict[str, float], ours: float, paper: float) -> str:
    """Return what the settings that were tried out say: that one of them explains the difference, or that none does."""
    closest = min(tried, key=lambda name: abs(tried[name] - paper))
    if abs(tried[closest] - paper) < abs(ours - paper) / 2:
        return f"The settings: with {closest} it is {tried[closest]:.1f} at the oracle epoch."
    lowest, highest = min(tried, key=tried.__getitem__), max(tried, key=tried.__getitem__)
    if min(tried[lowest], ours) <= paper <= max(tried[highest], ours):
        other = lowest if abs(tried[lowest] - ours) > abs(tried[highest] - ours) else highest
        return f"The settings, which swing it past the paper's figure: with {other} it is {tried[other]:.1f}."
    listed = ", ".join(f"{value:.1f} with {name}" for name, value in tried.items())
    return f"Not the settings tried: {listed}."


def _about_the_start(tables: Sequence[Row], method: str, data_set: str) -> list[str]:
    """Return how the autoencoder that a system starts from compares with the paper's, which is private."""
    paper, ours = paper_figure(data_set, "ae", "acc"), _acc(tables, "ae", data_set, "last")
    if method == "ae" or paper is None or ours is None:
        return []
    both = f"K-means on its autoencoder is {ours:.1f}, on the paper's, which is private, {paper.mean:.1f}"
    apart = abs(ours - paper.mean) > LARGE
    return [f"The start: {both}." if apart else f"Not the start, as far as K-means can tell: {both}."]


def _spread(tables: Sequence[Row], method: str, data_set: str) -> str:
    values = [
        100 * row["values"]["oracle"]["acc"] for row in tables if (row["method"], row["data_set"]) == (method, data_set)
    ]
    return f"The seeds: {min(values):.1f} to {max(values):.1f} over {len(values)} of them."
