"""Statistics of many runs, and tables of them in Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from pamc.errors import ConfigError, DataError

# Relative difference up to which values are considered equal.
_ROUNDING = 1e-12


class MeanStd(NamedTuple):
    """Mean and sample standard deviation."""

    mean: float
    std: float

    def percent(self, *, decimals: int = 1) -> str:
        """Return "79.6 ± 0.3" for a share of 0.796 ± 0.003."""
        return f"{100 * self.mean:.{decimals}f} ± {100 * self.std:.{decimals}f}"


class PairedTTest(NamedTuple):
    """t statistic of the mean of paired differences, and its two-sided p-value."""

    statistic: float
    p_value: float


def mean_std(values: Sequence[float]) -> MeanStd:
    """Return the mean and the sample standard deviation (divisor n − 1; 0 for one value).

    Examples
    --------
    >>> mean_std([0.7, 0.8, 0.9]).percent()
    '80.0 ± 10.0'
    """
    if len(values) == 0:
        raise DataError("mean_std needs at least one value, got none")
    return MeanStd(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0)


def paired_t_test(a: Sequence[float], b: Sequence[float]) -> PairedTTest:
    """Return the paired t-test of a against b, which contain the results of the same seeds in the same order.

    If all differences are equal up to rounding, t is infinite and p is 0; if they are all 0, t is 0 and p is 1.

    Examples
    --------
    >>> round(paired_t_test([0.80, 0.82, 0.81], [0.78, 0.79, 0.80]).p_value, 4)
    0.0742
    """
    if len(a) != len(b) or len(a) < 2:
        raise DataError(
            f"a paired t-test needs two lists of equal length of at least 2, got {len(a)} and {len(b)} values"
        )
    difference = np.subtract(a, b)
    rounding = _ROUNDING * np.abs([a, b]).max()
    if np.ptp(difference) <= rounding:
        mean = float(difference.mean())
        return PairedTTest(0.0, 1.0) if abs(mean) <= rounding else PairedTTest(math.copysign(math.inf, mean), 0.0)
    result = stats.ttest_rel(a, b)
    return PairedTTest(float(result.statistic), float(result.pvalue))


_LATEX = str.maketrans(
    {
        **{mark: f"\\{mark}" for mark in "{}&%$#_"},
        "\\": r"\textbackslash{}",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "±": r"$\pm$",
        "\n": " ",
    }
)
_MARKDOWN = str.maketrans({"\\": r"\\", "|": r"\|", "\n": " "})


@dataclass(frozen=True)
class Table:
    r"""A table of strings that can be rendered as Markdown, LaTeX or CSV.

    Parameters
    ----------
    columns
        Names of the columns.
    rows
        Rows, each with one string per column.
    align
        One letter per column: l, c or r. None aligns the first column left and the others right.

    Examples
    --------
    >>> table = Table(["method", "ACC"], [["K-means", "66.8 ± 0.1"]])
    >>> print(table.markdown(), end="")
    | method | ACC |
    |:---|---:|
    | K-means | 66.8 ± 0.1 |
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str | None = None

    def __post_init__(self) -> None:
        n_columns = len(self.columns)
        for number, row in enumerate(self.rows):
            if len(row) != n_columns:
                raise DataError(f"row {number} of the table has {len(row)} cells for {n_columns} columns")
        if self.align is None:
            object.__setattr__(self, "align", ("l" + "r" * n_columns)[:n_columns])
        elif len(self.align) != n_columns or set(self.align) - set("lcr"):
            raise ConfigError(f"align must be {n_columns} letters out of l, c and r, got {self.align!r}")

    def markdown(self) -> str:
        """Return a GitHub-flavored Markdown table."""
        marks = {"l": ":---", "c": ":---:", "r": "---:"}
        head, *body = (
            "| " + " | ".join(cell.translate(_MARKDOWN) for cell in row) + " |" for row in (self.columns, *self.rows)
        )
        rule = "|" + "|".join(marks[letter] for letter in self.align or "") + "|"
        return "\n".join([head, rule, *body]) + "\n"

    def latex(self) -> str:
        """Return a LaTeX tabular with the rules of the booktabs package."""
        head, *body = (
            " & ".join(cell.translate(_LATEX) for cell in row) + r" \\" for row in (self.columns, *self.rows)
        )
        begin = rf"\begin{{tabular}}{{{self.align}}}"
        return "\n".join([begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def csv(self) -> str:
        """Return comma-separated values with a header line."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()
