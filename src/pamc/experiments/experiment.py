"""What an experiment is: cells to run, each one row, and artefacts to draw from the rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pamc.registry import Registry

__all__ = ["EXPERIMENTS", "Cell", "Experiment", "Row", "Scope", "register_experiment"]

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Scope:
    """How much of an experiment to run.

    Parameters
    ----------
    seeds
        Number of seeds, counted from 0; None for the experiment's own number.
    datasets, methods
        Names to keep, None for the experiment's own.
    device
        "auto", "cpu", "cuda", ….
    quick
        Tiny settings on digits and a block model: shows that everything runs, and is never published.
    """

    seeds: int | None = None
    datasets: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    device: str = "auto"
    quick: bool = False


@dataclass(frozen=True)
class Cell:
    """One run of an experiment: it becomes one row.

    Parameters
    ----------
    experiment
        Name of the experiment.
    task
        What is done, by name: "fit" and others.
    method, data_set, seed
        On what.
    settings
        Settings of the method that differ from its defaults.
    options
        What else the task takes: share of edges dropped, known labels, per-epoch evaluation.
    quick
        See :class:`Scope`.
    """

    experiment: str
    task: str
    method: str
    data_set: str
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    quick: bool = False

    @property
    def key(self) -> str:
        """The cell as one line of text: equal cells have equal keys, in any process and on any machine."""
        parts = (self.experiment, self.task, self.method, self.data_set, self.seed, self.settings, self.options)
        return json.dumps([*parts, self.quick], sort_keys=True)


@dataclass(frozen=True)
class Experiment:
    """An experiment by its two halves.

    Parameters
    ----------
    name, summary
        Its name on the command line, and one sentence.
    cells
        Returns the cells of a scope.
    render
        Writes artefacts (tables, figures) made of rows alone into a folder and returns their paths.
    """

    name: str
    summary: str
    cells: Callable[[Scope], list[Cell]]
    render: Callable[[Sequence[Row], Path], list[Path]]


EXPERIMENTS: Registry[Experiment] = Registry("experiment", package="pamc.experiments.paper")


def register_experiment(
    name: str, *, summary: str, cells: Callable[[Scope], list[Cell]]
) -> Callable[[Callable[[Sequence[Row], Path], list[Path]]], Callable[[Sequence[Row], Path], list[Path]]]:
    """Return a decorator that files an experiment under a name; what it decorates renders the rows."""

    def add(render: Callable[[Sequence[Row], Path], list[Path]]) -> Callable[[Sequence[Row], Path], list[Path]]:
        EXPERIMENTS.register(name)(Experiment(name, summary, cells, render))
        return render

    return add
