"""What a case is: cells to measure, each by one provider at some parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pamc.bench.rows import Row
from pamc.registry import Registry

__all__ = ["CASES", "Case", "Cell", "Scope", "no_more_rows", "register_case"]


@dataclass(frozen=True)
class Scope:
    """How much of a case to run, and where.

    Parameters
    ----------
    device
        Where.
    quick
        Small sizes: shows that all of it runs, and is no result.
    precision
        Of the matrix products of all providers alike: "float32" or "tf32".
    data_sets
        Only these; None for those of the case.
    """

    device: torch.device
    quick: bool = False
    precision: str = "float32"
    data_sets: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Parameters
    ----------
    provider
        Who is measured.
    parameters
        What identifies the cell beside its provider.
    measure
        Returns the values; builds what it needs, and leaves nothing on the device.
    """

    provider: str
    parameters: dict[str, Any]
    measure: Callable[[], dict[str, Any]]


def no_more_rows(rows: Sequence[Row]) -> list[Row]:
    """Return no rows: there is nothing to sum up."""
    return []


@dataclass(frozen=True)
class Case:
    """A question of speed or memory.

    Parameters
    ----------
    name, about
        What it is called, and a line on what it shows.
    cells
        Returns the cells of a scope, the cheap way: data are made when a cell is measured.
    sum_up
        Returns further rows made of the measured ones, such as fitted exponents.
    n_rounds
        How often all cells are measured in turn on a CPU, which others may be using; the fastest time of each counts.
    """

    name: str
    about: str
    cells: Callable[[Scope], list[Cell]]
    sum_up: Callable[[Sequence[Row]], list[Row]] = no_more_rows
    n_rounds: int = 1


CASES: Registry[Case] = Registry("case", package="pamc.bench.cases")


def register_case(
    name: str, about: str, *, sum_up: Callable[[Sequence[Row]], list[Row]] = no_more_rows, n_rounds: int = 1
) -> Callable[[Callable[[Scope], list[Cell]]], Callable[[Scope], list[Cell]]]:
    """Return a decorator that files the function of a case's cells."""

    def add(cells: Callable[[Scope], list[Cell]]) -> Callable[[Scope], list[Cell]]:
        CASES.register(name)(Case(name, about, cells, sum_up, n_rounds))
        return cells

    return add
