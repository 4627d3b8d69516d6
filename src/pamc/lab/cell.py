"""Cases, the cells they consist of, and the tasks that measure a cell."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pamc.errors import ConfigError, UnknownNameError
from pamc.registry import Registry

Row: TypeAlias = dict[str, Any]

_PACKAGE = "pamc.lab.cases"


@dataclass(frozen=True)
class Scope:
    """How much of a case to run, and where.

    None for seeds, data sets or methods means those of the case. A quick run uses small sizes, the digits and a block
    model: it checks that everything runs and is never published. `precision`, "float32" or "tf32", is that of the
    matrix products in the cases of `pamc bench`.
    """

    seeds: int | None = None
    data_sets: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    device: str = "auto"
    quick: bool = False
    precision: str = "float32"


@dataclass(frozen=True)
class Cell:
    """One run of a case, which becomes one row.

    Parameters
    ----------
    case, task
        Name of the case, and of the task that runs it, one of :data:`TASKS`.
    provider
        Method to fit, or implementation to measure.
    data_set
        Name of a data set of the catalog; empty if none is used.
    settings
        Settings of the method that differ from its defaults.
    parameters
        Further arguments of the task: share of dropped edges, sizes, precision.
    """

    case: str
    task: str
    provider: str
    data_set: str = ""
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    quick: bool = False

    @property
    def key(self) -> str:
        """The cell as one line of JSON: equal cells have equal keys, in any process and on any machine."""
        parts = (self.case, self.task, self.provider, self.data_set, self.seed, self.settings, self.parameters)
        return json.dumps([*parts, self.quick], sort_keys=True)


Task: TypeAlias = Callable[[Cell, str], dict[str, Any]]
Cells: TypeAlias = Callable[[Scope], list[Cell]]
Render: TypeAlias = Callable[[Sequence[Row], Path], list[Path]]
SumUp: TypeAlias = Callable[[Sequence[Row]], list[Row]]


@dataclass(frozen=True)
class Case:
    """A set of measurements: an experiment of `pamc reproduce`, or a case of `pamc bench`.

    Parameters
    ----------
    name, summary
        Name on the command line, and a one-sentence description.
    cells
        Returns the cells of a scope; must be cheap, so data are created only when a cell is measured.
    render
        Renders tables and figures from the rows into a folder and returns their paths. Experiments define it, cases of
        `pamc bench` do not.
    sum_up
        Returns rows derived from the measured ones, such as fitted exponents.
    n_rounds
        Number of rounds over all cells on a CPU, which may be shared; the fastest round of each cell counts.
    in_all
        Whether "all" includes the case; slow cases and those that need other programs must be named.
    """

    name: str
    summary: str
    cells: Cells
    render: Render | None = None
    sum_up: SumUp | None = None
    n_rounds: int = 1
    in_all: bool = True


CASES: Registry[Case] = Registry("case", package=_PACKAGE)
TASKS: Registry[Task] = Registry("task", package=_PACKAGE)


def register_experiment(name: str, *, summary: str, cells: Cells) -> Callable[[Render], Render]:
    """Return a decorator that registers an experiment; the decorated function renders the rows."""

    def add(render: Render) -> Render:
        CASES.register(name)(Case(name, summary, cells, render))
        return render

    return add


def register_case(
    name: str,
    summary: str,
    *,
    cells: Cells,
    task: str | None = None,
    sum_up: SumUp | None = None,
    n_rounds: int = 1,
    in_all: bool = True,
) -> Callable[[Task], Task]:
    """Return a decorator that registers a case; the decorated function is its task, named like the case or `task`."""

    def add(measure: Task) -> Task:
        CASES.register(name)(Case(name, summary, cells, None, sum_up, n_rounds, in_all))
        return TASKS.register(task or name)(measure)

    return add


def cases_of(kind: str) -> dict[str, Case]:
    """Return all cases of a kind by name: "experiment" (with tables and figures) or "case" (rows only)."""
    return {name: CASES[name] for name in CASES if (CASES[name].render is not None) == (kind == "experiment")}


def select_cases(kind: str, names: Sequence[str] | None) -> list[Case]:
    """Return the cases of a kind with these names, without duplicates; "all" selects every case with `in_all`."""
    known = cases_of(kind)
    if not names:
        raise ConfigError(f"name one or more {kind}s, or all: {', '.join(known)}")
    for name in names:
        if name not in (*known, "all"):
            raise UnknownNameError(kind, name, known)
    named = [known[name] for name in dict.fromkeys(names) if name != "all"]
    return [case for case in known.values() if case.in_all or case in named] if "all" in names else named
