"""Generate a random table of customers with planted segments, mixed types and empty cells."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# For each segment: its share; log10 of the yearly revenue, visits per month, age and basket value; the chances of the
# three channels and of the three plans; the chances of a subscription and of the newsletter; the year of the first
# order.
_SEGMENTS = (
    (0.35, (2.5, 2.0, 34.0, 30.0), (0.80, 0.15, 0.05), (0.80, 0.15, 0.05), (0.10, 0.80), 2022.5),
    (0.30, (3.0, 6.0, 47.0, 60.0), (0.15, 0.75, 0.10), (0.15, 0.75, 0.10), (0.80, 0.75), 2019.5),
    (0.20, (3.6, 3.0, 56.0, 130.0), (0.05, 0.20, 0.75), (0.05, 0.20, 0.75), (0.85, 0.15), 2016.5),
    (0.15, (3.2, 12.0, 28.0, 25.0), (0.75, 0.05, 0.20), (0.10, 0.15, 0.75), (0.25, 0.25), 2024.0),
)
_SPREAD = (0.22, 0.30, 5.5, 0.30)
_CHANNELS, _PLANS = ("app", "web", "store"), ("free", "standard", "premium")
_N_CITIES = 40
_YEARS, _DAYS = 1.0, 365.2425
_MISSING = 0.1
# Share of the revenues, visits and basket values that are a thousand times too large.
_OUTLIERS = 0.015


class Customers(NamedTuple):
    """Columns of texts by name, None for empty cells, and the planted segment (N,) of each row."""

    columns: dict[str, NDArray[Any]]
    segments: NDArray[np.int64]


def make_customers(n_rows: int = 2000, *, missing: float = _MISSING, random_state: int = 0) -> Customers:
    """Return random customers from four segments, with 4 numbers, 3 categories, 2 yes/no columns, a date and an id.

    The city, a category with 40 values, is unrelated to the segments. A share of the cells is empty, and a few numbers
    are a thousand times too large, as if the decimal separator were misplaced.

    Parameters
    ----------
    n_rows
        Number of customers.
    missing
        Share of the cells that are empty.
    random_state
        Random seed.

    Examples
    --------
    >>> customers = make_customers(5)
    >>> list(customers.columns)[:4]
    ['customer_id', 'revenue', 'visits', 'age']
    """
    rng = np.random.default_rng(random_state)
    segments = rng.choice(len(_SEGMENTS), n_rows, p=[segment[0] for segment in _SEGMENTS])
    centers = np.array([segment[1] for segment in _SEGMENTS])[segments]
    noise = rng.normal(size=(n_rows, 4)) * _SPREAD
    wrong = np.where(rng.random((3, n_rows)) < _OUTLIERS, 1000, 1)
    revenue = 10 ** (centers[:, 0] + noise[:, 0]) * wrong[0]
    visits, basket = (centers[:, i] * np.exp(noise[:, i]) * wrong[j] for j, i in ((1, 1), (2, 3)))
    channel, plan = (_drawn(rng, segments, [segment[i] for segment in _SEGMENTS]) for i in (2, 3))
    subscriber, newsletter = (rng.random(n_rows) < np.array([s[4][i] for s in _SEGMENTS])[segments] for i in (0, 1))
    years = np.array([segment[5] for segment in _SEGMENTS])[segments] + _YEARS * rng.normal(size=n_rows)
    days = np.datetime64("1970-01-01") + ((years - 1970) * _DAYS).astype("m8[D]")
    columns: dict[str, Any] = {
        "revenue": [f"{value:,.2f}" for value in revenue],
        "visits": [f"{value:.1f}" for value in visits],
        "age": [f"{value:.0f}" for value in centers[:, 2] + noise[:, 2]],
        "basket": [f"{value:.2f}" for value in basket],
        "channel": np.array(_CHANNELS)[channel],
        "plan": np.array(_PLANS)[plan],
        "city": [f"city {number}" for number in rng.integers(_N_CITIES, size=n_rows)],
        "subscriber": np.where(subscriber, "yes", "no"),
        "newsletter": np.where(newsletter, "true", "false"),
        "first_order": days.astype(str),
    }
    cells = {name: np.array(values, dtype=object) for name, values in columns.items()}
    for values in cells.values():
        values[rng.random(n_rows) < missing] = None
    ids = np.array([f"C{number:05d}" for number in rng.permutation(n_rows)], dtype=object)
    return Customers({"customer_id": ids, **cells}, segments.astype(np.int64))


def _drawn(rng: np.random.Generator, segments: NDArray[np.int64], chances: list[Any]) -> NDArray[np.int64]:
    """Return a value (N,) for each row, drawn with the chances of its segment."""
    bounds = np.cumsum(np.array(chances), axis=1)[segments]
    return np.asarray((rng.random(len(segments))[:, None] > bounds[:, :-1]).sum(axis=1))
