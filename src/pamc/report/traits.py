"""Distinctive traits and names of the clusters of a table of mixed types, in terms of its original columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata

from pamc.data.columns.types import BOOLEAN, CATEGORY, DATE, NUMBER, ORDERED, TEXT, TIME
from pamc.report.variables import SEASON, RawVariable
from pamc.report.wording import MONTHS, date_text, month_text, share_text

MISSING = "missing"

# Significance level: the share of columns without a real difference for which a difference is listed by chance.
_BY_CHANCE = 0.05

# Minimum difference, in standard deviations, of a trait in the name of a cluster; and maximum length of a column name.
_NAMED, _LONGEST = 0.5, 24

# Further values or words are listed if their difference is at least this share of the largest one, up to a maximum.
_ALSO, _MOST_VALUES, _MOST_WORDS = 0.6, 3, 4

# A value that at least this share of a cluster has is typical of it.
_MOSTLY = 0.5

_PARTS_OF_DAY = ("from 0 to 6 h", "from 6 to 12 h", "from 12 to 18 h", "from 18 to 24 h")

# Dates are described by months if nine tenths of them lie within this many days, otherwise by years.
_DAYS_OF_MONTHS = 730

CLOSE_TO_AVERAGE = "close to the average"


@dataclass(frozen=True)
class Trait:
    """A row of the table of distinctive features; see :class:`~pamc.report.facts.ClusterFacts`."""

    cluster: int
    feature: int
    name: str
    difference: float
    inside: float
    elsewhere: float
    kind: str
    value: str
    overall: float
    trait: str
    text: str
    phrase: str


# Names of the columns; the phrase becomes a part of the name of the cluster.
_COLUMNS = tuple(field.name for field in fields(Trait) if field.name != "phrase")
_INTEGERS, _TEXTS = ("cluster", "feature"), ("name", "kind", "value", "trait", "text")


class Members:
    """The rows of each cluster."""

    def __init__(self, labels: NDArray[np.int64], n_clusters: int) -> None:
        self.labels, self.n_clusters = labels, n_clusters
        self.count = np.bincount(labels, minlength=n_clusters)

    @cached_property
    def rows(self) -> list[NDArray[np.int64]]:
        """Rows of each cluster."""
        return np.split(np.argsort(self.labels, kind="stable"), np.cumsum(self.count)[:-1])

    def counts(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the (C,) number of rows of each cluster for which a mask (N,) is True."""
        return np.bincount(self.labels[mask], minlength=self.n_clusters)


@dataclass(frozen=True, eq=False)
class _Compared:
    """Means or shares of m quantities, compared between each cluster and the other rows.

    `inside` and `elsewhere` (C, m) are the means or shares in the cluster and in the other rows, and `difference`
    (C, m) is their difference in standard deviations. `overall` (m,) is the mean or share of all rows, and `least`
    (C,) the smallest difference that is significant.
    """

    inside: NDArray[np.float64]
    elsewhere: NDArray[np.float64]
    overall: NDArray[np.float64]
    difference: NDArray[np.float64]
    least: NDArray[np.float64]

    @classmethod
    def of(
        cls, sums: NDArray[Any], known: NDArray[np.int64], deviation: NDArray[np.float64] | None = None
    ) -> _Compared:
        """Compare (C, m) sums over the (C,) numbers of known rows; without a deviation (m,), the sums are counts."""
        total, n_known = sums.sum(axis=0), max(int(known.sum()), 1)
        n_inside, n_outside = known[:, None], (known.sum() - known)[:, None]
        overall = total / n_known
        inside = sums / np.maximum(n_inside, 1)
        elsewhere = (total - sums) / np.maximum(n_outside, 1)
        spread = np.sqrt(overall * (1 - overall)) if deviation is None else deviation
        usable = (n_inside > 0) & (n_outside > 0) & (spread > 0)
        difference = np.divide(inside - elsewhere, spread, out=np.zeros_like(inside), where=usable)
        errors = np.sqrt(1 / np.maximum(n_inside, 1) + 1 / np.maximum(n_outside, 1))[:, 0]
        least = norm.isf(_BY_CHANCE / 2 / max(sums.shape[1], 1)) * errors
        return cls(inside, elsewhere, overall, difference, least)

    def best(self, cluster: int, most: int = 1) -> list[int]:
        """Return the distinctive values of a cluster: the overrepresented ones, else the most underrepresented one."""
        difference, least = self.difference[cluster], self.least[cluster]
        order = np.argsort(-difference, kind="stable")[:most]
        if difference[order[0]] > least:
            also = max(least, _ALSO * difference[order[0]])
            return [int(i) for i in order if difference[i] >= also]
        lowest = int(difference.argmin())
        return [lowest] if -difference[lowest] > least else []


Described = Callable[["RawVariable", _Compared, int, list[int], "Members"], dict[str, Any]]


def trait_columns(
    variables: Sequence[RawVariable], labels: NDArray[np.int64], n_clusters: int, n_features: int
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return the `n_features` most distinctive traits of each cluster as columns, and the name of each cluster.

    Each column of the table is listed once, with its most distinctive value or values, and once more if it is missing
    unusually often. Numbers, dates and ordered categories are compared by their mean ranks, which outliers hardly
    affect, and all others by shares; differences are in standard deviations. O(N·d) time.
    """
    members = Members(labels, n_clusters)
    traits = [trait for variable in variables for trait in _traits(variable, members)]
    listed: list[Trait] = []
    names = []
    for cluster in range(n_clusters):
        ranked = sorted(
            (trait for trait in traits if trait.cluster == cluster), key=lambda trait: -abs(trait.difference)
        )
        listed += ranked[:n_features]
        names.append(_phrases(ranked) if members.count[cluster] else [])
    columns: dict[str, NDArray[Any]]
    columns = {name: np.array([getattr(trait, name) for trait in listed], dtype=_dtype(name)) for name in _COLUMNS}
    return columns, _cluster_names(names)


def _dtype(name: str) -> type:
    return np.int64 if name in _INTEGERS else str if name in _TEXTS else np.float64


def _phrases(traits: Sequence[Trait]) -> list[str]:
    distinct = [trait for trait in traits if abs(trait.difference) >= _NAMED]
    # Underrepresented values are used only if there is no other distinctive trait.
    has = [trait for trait in distinct if trait.kind in (NUMBER, ORDERED, DATE) or trait.difference > 0]
    return [trait.phrase for trait in has or distinct] or [CLOSE_TO_AVERAGE]


def _cluster_names(phrases: Sequence[Sequence[str]]) -> list[str]:
    """Return the first two phrases of each cluster, or three if two clusters would have the same name."""
    short = [", ".join(texts[:2]) for texts in phrases]
    return [
        text if short.count(text) == 1 else ", ".join(texts[:3]) for text, texts in zip(short, phrases, strict=True)
    ]


def _traits(variable: RawVariable, members: Members) -> Iterator[Trait]:
    """Yield the traits of all clusters that concern one column."""
    for compared, most, describe in _aspects(variable, members):
        for cluster in np.flatnonzero(members.count).tolist():
            places = compared.best(cluster, most)
            if not places:
                continue
            first = places[0]
            about: dict[str, Any] = {
                "cluster": cluster,
                "feature": variable.number,
                "name": variable.name,
                "kind": variable.kind,
                "value": "",
                "difference": compared.difference[cluster, first],
                "inside": compared.inside[cluster, first],
                "elsewhere": compared.elsewhere[cluster, first],
                "overall": compared.overall[first],
            }
            yield Trait(**(about | describe(variable, compared, cluster, places, members)))


def _aspects(variable: RawVariable, members: Members) -> Iterator[tuple[_Compared, int, Described]]:
    """Yield comparisons of a column, each with the number of values to list and a function that describes them."""
    known = ~variable.missing
    if variable.kind in (NUMBER, ORDERED, DATE):
        yield _ranks(variable, members), 1, _ORDERED[variable.kind]
    elif variable.kind == TEXT and variable.levels:
        sums = np.stack([variable.values[rows].sum(axis=0) for rows in members.rows])
        yield _Compared.of(sums, members.counts(known)), _MOST_WORDS, _describe_words
    elif variable.kind not in (TEXT, TIME):
        compared = _shares(variable.values, len(variable.levels), members)
        if variable.kind == CATEGORY:
            yield compared, _MOST_VALUES, _describe_values
        else:
            yield _only_second(compared), 1, _describe_yes if variable.kind == BOOLEAN else _describe_given
    if variable.kind in (DATE, TIME):
        yield from _cycles(variable, members)
    if variable.missing.any():
        yield _Compared.of(members.counts(variable.missing)[:, None], members.count), 1, _describe_missing


def _ranks(variable: RawVariable, members: Members) -> _Compared:
    known = ~variable.missing
    values = variable.values[known].astype(np.float64)
    ranks = (rankdata(values) - (len(values) + 1) / 2) / max(len(values), 1)
    sums = np.bincount(members.labels[known], ranks, minlength=members.n_clusters)
    return _Compared.of(sums[:, None], members.counts(known), np.array([ranks.std()]))


def _shares(codes: NDArray[np.int64], n_levels: int, members: Members) -> _Compared:
    known = codes >= 0
    cells = np.bincount(members.labels[known] * n_levels + codes[known], minlength=members.n_clusters * n_levels)
    return _Compared.of(cells.reshape(members.n_clusters, n_levels), members.counts(known))


def _only_second(compared: _Compared) -> _Compared:
    """Return the comparison of the second of two values, such as yes."""
    inside, elsewhere, difference = (
        array[:, 1:] for array in (compared.inside, compared.elsewhere, compared.difference)
    )
    return _Compared(inside, elsewhere, compared.overall[1:], difference, compared.least)


def _cycles(variable: RawVariable, members: Members) -> Iterator[tuple[_Compared, int, Described]]:
    """Yield the months and the times of day of dates, if the encoding has them."""
    seconds = np.where(variable.missing, 0, variable.values.astype(np.int64))
    if SEASON in variable.parts:
        months = variable.values.astype("M8[M]").astype(np.int64) % 12
        codes = np.where(variable.missing, -1, months)
        yield _shares(codes, 12, members), _MOST_VALUES, _described_cycle(MONTHS)
    if variable.has_times:
        codes = np.where(variable.missing, -1, seconds % 86400 // 21600)
        yield _shares(codes, 4, members), 1, _described_cycle(_PARTS_OF_DAY)


# Functions that describe a trait in words.


def _against(inside: float, overall: float) -> str:
    return f"{share_text(inside)} ({share_text(overall)} of all rows)"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _adverb(difference: float, inside: float, *, mostly: str = "mostly ") -> str:
    return "rarely " if difference < 0 else mostly if inside >= _MOSTLY else "often "


def _listed(compared: _Compared, cluster: int, places: list[int], names: Sequence[str]) -> str:
    """Return the shares of several values as text; the name of the first is part of the trait."""
    first, *others = places
    text = _against(compared.inside[cluster, first], compared.overall[first])
    also = (f"{names[i]} {share_text(compared.inside[cluster, i])} ({share_text(compared.overall[i])})" for i in others)
    return "; ".join([text, *also])


def _describe_values(
    variable: RawVariable, compared: _Compared, cluster: int, places: list[int], _: Members
) -> dict[str, Any]:
    level, inside = variable.levels[places[0]], compared.inside[cluster, places[0]]
    adverb = _adverb(compared.difference[cluster, places[0]], inside, mostly="")
    return {
        "value": level,
        "trait": f"{variable.name} = {level}",
        "text": _listed(compared, cluster, places, variable.levels),
        "phrase": f"{adverb}{_cut(variable.name)} = {_cut(level)}",
    }


def _describe_yes(
    variable: RawVariable, compared: _Compared, cluster: int, _: list[int], __: Members
) -> dict[str, Any]:
    inside, yes = compared.inside[cluster, 0], variable.levels[1]
    return {
        "value": yes,
        "trait": f"{variable.name} = {yes}",
        "text": _against(inside, compared.overall[0]),
        "phrase": _adverb(compared.difference[cluster, 0], inside) + _cut(variable.name),
    }


def _describe_given(
    variable: RawVariable, compared: _Compared, cluster: int, _: list[int], __: Members
) -> dict[str, Any]:
    return {
        "trait": f"{variable.name} is given",
        "text": _against(compared.inside[cluster, 0], compared.overall[0]),
        "phrase": ("with " if compared.difference[cluster, 0] > 0 else "without ") + _cut(variable.name),
    }


def _describe_missing(
    variable: RawVariable, compared: _Compared, cluster: int, _: list[int], __: Members
) -> dict[str, Any]:
    is_more = compared.difference[cluster, 0] > 0
    return {
        "kind": MISSING,
        "trait": f"{variable.name} is missing",
        "text": _against(compared.inside[cluster, 0], compared.overall[0]),
        "phrase": f"{_cut(variable.name)} {'missing' if is_more else 'rarely missing'}",
    }


def _describe_words(
    variable: RawVariable, compared: _Compared, cluster: int, places: list[int], _: Members
) -> dict[str, Any]:
    quoted = [f"“{word}”" for word in variable.levels]
    word = quoted[places[0]]
    adverb = "without" if compared.difference[cluster, places[0]] < 0 else "with"
    return {
        "value": variable.levels[places[0]],
        "trait": f"{variable.name}: {word}",
        "text": _listed(compared, cluster, places, quoted),
        "phrase": f"{_cut(variable.name)} {adverb} {word}",
    }


def _described_cycle(names: Sequence[str]) -> Described:
    def describe(
        variable: RawVariable, compared: _Compared, cluster: int, places: list[int], _: Members
    ) -> dict[str, Any]:
        name = names[places[0]]
        when = name if names is _PARTS_OF_DAY else f"in {name}"
        adverb = _adverb(compared.difference[cluster, places[0]], compared.inside[cluster, places[0]], mostly="")
        return {
            "value": name,
            "trait": f"{variable.name} {when}",
            "text": _listed(compared, cluster, places, names),
            "phrase": f"{_cut(variable.name)} {adverb}{when}",
        }

    return describe


def _medians(variable: RawVariable, cluster: int, members: Members) -> tuple[float, float, float]:
    """Return the median of the known values in a cluster, in the other rows, and in all rows."""
    values, known = variable.values.astype(np.float64), ~variable.missing
    in_cluster = members.labels == cluster
    return tuple(float(np.median(values[rows])) for rows in (known & in_cluster, known & ~in_cluster, known))  # type: ignore[return-value]


def _describe_number(
    variable: RawVariable, compared: _Compared, cluster: int, _: list[int], members: Members
) -> dict[str, Any]:
    inside, elsewhere, overall = _medians(variable, cluster, members)
    is_high = compared.difference[cluster, 0] > 0
    write = variable.format.text
    text = f"median {write(inside)} ({write(overall)} in all rows)"
    if write(inside) == write(overall):
        text = _beyond_median(variable, members.rows[cluster], overall, is_high=is_high)
    return {
        "inside": inside,
        "elsewhere": elsewhere,
        "overall": overall,
        "trait": variable.name,
        "text": text,
        "phrase": f"{'high' if is_high else 'low'} {_cut(variable.name)}",
    }


def _beyond_median(variable: RawVariable, rows: NDArray[np.int64], median: float, *, is_high: bool) -> str:
    """Return the share of a cluster above or below the median of all rows, for a cluster with the same median."""
    known = ~variable.missing
    beyond = variable.values > median if is_high else variable.values <= median
    inside, overall = beyond[rows][known[rows]].mean(), beyond[known].mean()
    return f"{'above' if is_high else 'at most'} {variable.format.text(median)} in {_against(inside, overall)}"


def _describe_ordered(
    variable: RawVariable, compared: _Compared, cluster: int, _: list[int], members: Members
) -> dict[str, Any]:
    inside, elsewhere, overall = _medians(variable, cluster, members)
    levels, is_high = variable.levels, compared.difference[cluster, 0] > 0
    return {
        "inside": inside,
        "elsewhere": elsewhere,
        "overall": overall,
        "value": levels[int(inside)],
        "trait": variable.name,
        "text": f"median {levels[int(inside)]} ({levels[int(overall)]} in all rows)",
        "phrase": f"{'high' if is_high else 'low'} {_cut(variable.name)}",
    }


def _describe_date(
    variable: RawVariable, compared: _Compared, cluster: int, _: list[int], members: Members
) -> dict[str, Any]:
    inside, elsewhere, overall = _medians(variable, cluster, members)
    middle, usual = (np.datetime64(int(seconds), "s") for seconds in (inside, overall))
    is_late = compared.difference[cluster, 0] > 0
    when = f"{'late' if is_late else 'early'} {_cut(variable.name)}"
    text = f"median {date_text(middle)} ({date_text(usual)} in all rows)"
    period, share, of_all = _period(variable, members.rows[cluster])
    if share >= max(_MOSTLY, of_all):
        text, when = f"mostly in {period}: {_against(share, of_all)}", f"{_cut(variable.name)} in {period}"
    years = (1970 + seconds / (86400 * 365.2425) for seconds in (inside, elsewhere, overall))
    return {
        **dict(zip(("inside", "elsewhere", "overall"), years, strict=True)),
        "value": date_text(middle),
        "trait": variable.name,
        "text": text,
        "phrase": when,
    }


def _period(variable: RawVariable, rows: NDArray[np.int64]) -> tuple[str, float, float]:
    """Return the most frequent year or month of a cluster, and its share in the cluster and in all rows."""
    known = variable.values[~variable.missing]
    low, high = np.quantile(known.astype(np.int64), (0.05, 0.95))
    unit = "M" if high - low <= _DAYS_OF_MONTHS * 86400 else "Y"
    dates = variable.values[rows]
    periods, counts = np.unique(dates[~np.isnat(dates)].astype(f"M8[{unit}]"), return_counts=True)
    period = periods[counts.argmax()]
    text = month_text(period) if unit == "M" else str(period)
    return text, counts.max() / counts.sum(), float((known.astype(f"M8[{unit}]") == period).mean())


_ORDERED: dict[str, Described] = {NUMBER: _describe_number, ORDERED: _describe_ordered, DATE: _describe_date}
