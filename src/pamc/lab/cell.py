"""What is measured: cases, the cells that they consist of, and the tasks that turn a cell into values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pamc.errors import ConfigError, UnknownNameError
from pamc.registry import Registry

__all__ = [
    "CASES",
    "TASKS",
    "Case",
    "Cell",
    "Row",
    "Scope",
    "Task",
    "bench_cells",
    "cases_of",
    "register_case",
    "register_experiment",
    "select_cases",
]

Row: TypeAlias = dict[str, Any]

_PACKAGE = "pamc.lab.cases"


@dataclass(frozen=True)
class Scope:
    """How much of a case to run, and where.

    Number of seeds and names of data sets and methods to keep are the case's own where they are None. A quick run has
    small sizes, and digits and a block model as data: it shows that everything runs, and is never published. The
    precision, "float32" or "tf32", is that of the matrix products in the cases of `pamc bench`.
    """

    seeds: int | None = None
    data_sets: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    device: str = "auto"
    quick: bool = False
    precision: str = "float32"


@dataclass(frozen=True)
class Cell:
    """One run of a case: it becomes one row.

    Parameters
    ----------
    case, task
        Name of the case, and of the function that is called, one of :data:`TASKS`.
    provider
        Method that is fitted, or whoever is measured.
    data_set
        Empty where no data set of the catalog is read.
    settings
        Settings of the method that differ from its defaults.
    parameters
        What else the task takes: share of edges dropped, sizes, precision.
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
        """The cell as one line of text: equal cells have equal keys, in any process and on any machine."""
        parts = (self.case, self.task, self.provider, self.data_set, self.seed, self.settings, self.parameters)
        return json.dumps([*parts, self.quick], sort_keys=True)


Task: TypeAlias = Callable[[Cell, str], dict[str, Any]]
Cells: TypeAlias = Callable[[Scope], list[Cell]]
Render: TypeAlias = Callable[[Sequence[Row], Path], list[Path]]
SumUp: TypeAlias = Callable[[Sequence[Row]], list[Row]]


@dataclass(frozen=True)
class Case:
    """A question that rows answer: an experiment of `pamc reproduce`, or a case of `pamc bench`.

    Parameters
    ----------
    name, summary
        Its name on the command line, and one sentence.
    cells
        Returns the cells of a scope, the cheap way: data are made when a cell is measured.
    render
        Writes artefacts (tables, figures) made of rows alone into a folder and returns their paths. An experiment has
        one, a case of `pamc bench` has none.
    sum_up
        Returns further rows made of the measured ones, such as fitted exponents.
    n_rounds
        How often all cells are measured in turn on a CPU, which others may be using; the fastest time of each counts.
    in_all
        Whether "all" includes it: cases that take long or need other programs are run by name.
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
    """Return a decorator that files an experiment under a name; what it decorates renders the rows."""

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
    """Return a decorator that files a case under a name; what it decorates is its task, of the same name or another."""

    def add(measure: Task) -> Task:
        CASES.register(name)(Case(name, summary, cells, None, sum_up, n_rounds, in_all))
        return TASKS.register(task or name)(measure)

    return add


def bench_cells(scope: Scope, case: str, measured: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Cell]:
    """Return a cell of a case, whose task has its name, for each provider and its parameters."""
    return [Cell(case, case, provider, parameters=own, quick=scope.quick) for provider, own in measured]


def cases_of(kind: str) -> dict[str, Case]:
    """Return all cases of a kind by name: each "experiment", which has artefacts, or each "case", which has none."""
    return {name: CASES[name] for name in CASES if (CASES[name].render is not None) == (kind == "experiment")}


def select_cases(kind: str, names: Sequence[str] | None) -> list[Case]:
    """Return the cases of a kind with these names, each once; "all" stands for all that `in_all` has."""
    known = cases_of(kind)
    if not names:
        raise ConfigError(f"name one or more {kind}s, or all: {', '.join(known)}")
    for name in names:
        if name not in (*known, "all"):
            raise UnknownNameError(kind, name, known)
    named = [known[name] for name in dict.fromkeys(names) if name != "all"]
    return [case for case in known.values() if case.in_all or case in named] if "all" in names else named
