"""Raw columns of a table, as read from a file or a data frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Texts that mark a missing cell: in any column, and in columns of numbers and dates. In other columns, "none" is an
# ordinary value.
MISSING_ANYWHERE = frozenset({"", "nan", "na", "n/a", "#n/a", "null", "nat", "<na>", "?"})
MISSING_NUMBERS = MISSING_ANYWHERE | {"none", "-", "--", "."}

# Integers of at least this size are identifiers: floating-point numbers do not represent all of them.
LONG_INTEGER = 10**15


class Distinct(NamedTuple):
    """The distinct texts of a column in order of first appearance, and the index of each row's text, −1 if missing."""

    texts: list[str]
    codes: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RawColumn:
    """One column of a table; exactly one of `texts`, `numbers` and `dates` is given.

    Parameters
    ----------
    name
        Name of the column.
    texts
        (N,) stripped strings, None for empty cells.
    numbers
        (N,) float64, NaN for empty cells.
    dates
        (N,) datetime64[s], NaT for empty cells.
    declared
        The type that the source declares, such as "category" for a pandas categorical; if None, the type is inferred.
    order
        The values of an ordered category, lowest first.
    coded
        The distinct texts and their codes; None if they are not known yet.
    """

    name: str
    texts: NDArray[Any] | None = None
    numbers: NDArray[np.float64] | None = None
    dates: NDArray[np.datetime64] | None = None
    declared: str | None = None
    order: tuple[str, ...] | None = None
    coded: Distinct | None = None

    @classmethod
    def of_texts(cls, name: str, cells: list[str | None]) -> RawColumn:
        """Return a column of stripped texts, None for empty cells. Equal cells share their memory. O(N) time."""
        coded = _distinct(cells)
        return cls(name, texts=np.array([*coded.texts, None], dtype=object)[coded.codes], coded=coded)

    def __len__(self) -> int:
        return len(getattr(self, self._kind))

    @property
    def _kind(self) -> str:
        """Name of the field with the cells."""
        return next(name for name in ("texts", "numbers", "dates") if getattr(self, name) is not None)

    @cached_property
    def distinct(self) -> Distinct:
        """The distinct texts and their codes; numbers are written without a trailing ".0". O(N) time."""
        if self.coded is not None or self.texts is not None:
            return self.coded or _distinct(self.as_texts().tolist())
        values: Any = self.dates if self.numbers is None else self.numbers
        is_missing = np.isnat(values) if self.numbers is None else np.isnan(values)
        different, first, place = np.unique(values[~is_missing], return_index=True, return_inverse=True)
        order = np.argsort(first)
        # Numbers that differ only in their last digits have the same text.
        part: dict[str, Any] = {self._kind: different[order]}
        texts, code_of = _distinct(RawColumn(self.name, **part).as_texts().tolist())
        codes = np.full(len(values), -1, dtype=np.int64)
        codes[~is_missing] = code_of[np.argsort(order)[place]]
        return Distinct(texts, codes)

    def as_texts(self) -> NDArray[Any]:
        """Return (N,) texts, None for empty cells."""
        if self.texts is not None:
            return self.texts
        if self.numbers is not None:
            cells = [None if np.isnan(number) else number_text(number) for number in self.numbers.tolist()]
        else:
            dates: Any = self.dates
            cells = [None if np.isnat(date) else str(date) for date in dates]
        return np.array(cells, dtype=object)


def _distinct(cells: list[str | None]) -> Distinct:
    # Only distinct cells are processed in Python bytecode; `dict.fromkeys` and `map` iterate over the rows in C.
    index: dict[str | None, int] = dict.fromkeys(cells, -1)
    texts = [cell for cell in index if cell is not None and cell.lower() not in MISSING_ANYWHERE]
    index |= {text: code for code, text in enumerate(texts)}
    return Distinct(texts, np.fromiter(map(index.__getitem__, cells), dtype=np.int64, count=len(cells)))


def number_text(number: float) -> str:
    """Return a number as text: integers with all digits, other numbers with at most 15 significant digits.

    Examples
    --------
    >>> number_text(1234567890123456.0), number_text(0.1)
    ('1234567890123456', '0.1')
    """
    return str(int(number)) if abs(number) < 2.0**63 and number == int(number) else f"{number:.15g}"


def _row_number(row: int) -> str:
    return f"row {row}"


@dataclass(frozen=True, eq=False)
class RawTable:
    """Raw columns of equal length.

    Parameters
    ----------
    columns
        The columns, with different names.
    n_rows
        Number of rows, N.
    source
        Name of the file or object, for messages.
    where
        Function that returns the location of a row, for messages.
    """

    columns: Sequence[RawColumn]
    n_rows: int
    source: str = "X"
    where: Callable[[int], str] = _row_number

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    def __getitem__(self, name: str) -> RawColumn:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    @cached_property
    def _by_name(self) -> dict[str, RawColumn]:
        return {column.name: column for column in self.columns}
