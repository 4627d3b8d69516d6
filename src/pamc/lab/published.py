"""What the paper prints in its Tables 2 and 3, and what other programs reach: `paper_tables.toml`, `rivals.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

__all__ = [
    "METRICS",
    "PaperFigure",
    "paper_decimals",
    "paper_figure",
    "paper_methods",
    "paper_sets",
    "paper_title",
    "rival_figure",
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
