"""Format numbers, shares and dates as readable text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Integers in this range are treated as years, which have no thousands separator.
_FIRST_YEAR, _LAST_YEAR = 1800, 2199

# Numbers of at least this size, or below its inverse, are written with an exponent.
_LARGEST = 1e15
_MOST_DECIMALS = 9

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


@dataclass(frozen=True)
class NumberFormat:
    """Format of the typical numbers of a column: rounded to two significant digits of the spread of the column.

    `exponent` is the power of ten of the last digit, `least` is its lower bound, and `is_grouped` says whether
    thousands are separated.
    """

    exponent: int
    least: int
    is_grouped: bool = True

    @classmethod
    def of(cls, values: NDArray[Any]) -> NumberFormat:
        """Return the number format for the known values of a column.

        Examples
        --------
        >>> NumberFormat.of(np.array([21_000.0, 38_000.0, 61_250.0])).text(61_250.0)
        '61,000'
        >>> NumberFormat.of(np.array([1.25, 2.5, 3.75])).text(2.5)
        '2.5'
        """
        if not len(values):
            return cls(0, 0)
        low, high = np.quantile(values, (0.25, 0.75))
        spread = float(high - low) or float(values.max() - values.min()) or abs(float(low)) or 1.0
        is_whole = bool((values == np.rint(values)).all())
        is_year = is_whole and values.min() >= _FIRST_YEAR and values.max() <= _LAST_YEAR
        if is_year:
            return cls(0, 0, is_grouped=False)
        return cls(int(np.floor(np.log10(spread))) - 1, 0 if is_whole else -_MOST_DECIMALS)

    def text(self, value: float) -> str:
        """Return a typical value as text, with at least two significant digits."""
        if not np.isfinite(value):
            return "–"
        if abs(value) >= _LARGEST or 0 < abs(value) < 10.0**-_MOST_DECIMALS:
            return f"{value:.3g}".replace("-", "−")
        of_value = int(np.floor(np.log10(abs(value)))) - 1 if value else self.exponent
        exponent = max(min(self.exponent, of_value), self.least)
        rounded = round(value, -exponent) + 0.0
        return f"{rounded:{',' if self.is_grouped else ''}.{max(0, -exponent)}f}".replace("-", "−")

    @staticmethod
    def exact(value: float) -> str:
        """Return the number in a single cell as text, with the digits that single precision preserves.

        Examples
        --------
        >>> NumberFormat.exact(float(np.float32(1234.56))), NumberFormat.exact(7.0)
        ('1234.56', '7')
        """
        return f"{value:.7g}" if abs(value) < 1e7 else f"{value:.0f}" if abs(value) < _LARGEST else f"{value:.7g}"


def share_text(share: float) -> str:
    """Return a share as a whole percentage, which is 0 % only for none and 100 % only for all.

    Examples
    --------
    >>> share_text(0.834), share_text(0.001)
    ('83 %', 'less than 1 %')
    """
    if not np.isfinite(share):
        return "–"
    share = round(share, 9)
    if 0 < share < 0.005:
        return "less than 1 %"
    return "more than 99 %" if 0.995 <= share < 1 else f"{100 * share:.0f} %"


def date_text(date: Any, *, with_time: bool = False) -> str:
    """Return a date such as 2024-01-31, with its time of day if requested.

    Examples
    --------
    >>> date_text(np.datetime64("2024-01-31T15:30:00")), date_text(np.datetime64("2024-01-31T15:30"), with_time=True)
    ('2024-01-31', '2024-01-31 15:30')
    """
    if np.isnat(date):
        return ""
    text = str(np.datetime64(date, "m"))
    return text.replace("T", " ") if with_time else text[:10]


def clock_text(date: Any) -> str:
    """Return the time of day of a date, with seconds if there are any.

    Examples
    --------
    >>> clock_text(np.datetime64("1900-01-01T15:30:00"))
    '15:30'
    """
    return "" if np.isnat(date) else str(np.datetime64(date, "s")).partition("T")[2].removesuffix(":00")


def month_text(month: Any) -> str:
    """Return a month such as "March 2024".

    Examples
    --------
    >>> month_text(np.datetime64("2024-03"))
    'March 2024'
    """
    year, number = str(np.datetime64(month, "M")).rsplit("-", 1)
    return f"{MONTHS[int(number) - 1]} {year}"
