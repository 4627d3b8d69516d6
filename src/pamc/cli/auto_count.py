"""`--n-clusters auto`: the number of clusters that the data speak for, shown before it is fitted."""

from __future__ import annotations

from typing import Any

from pamc.cli.show import note, print_text
from pamc.config import FitConfig
from pamc.data.attributed_graph import AttributedGraph
from pamc.errors import ConfigError, DataError
from pamc.progress import Progress, terminal
from pamc.selection.choose_k import ChosenK, choose_k
from pamc.selection.picture import as_text

__all__ = ["chosen_count", "refuse_auto"]


def chosen_count(
    graph: AttributedGraph, config: Any, *, seed: int, device: str, progress: Progress, as_json: bool
) -> ChosenK:
    """Return the recommended number of clusters after showing what it was chosen from; an error where there is none.

    With JSON, standard output is left to the one object: the table goes to standard error.
    """
    own = config if isinstance(config, FitConfig) else None
    chosen = choose_k(graph, random_state=seed, device=device, config=own, progress=progress)
    show = note if as_json else print_text
    # A note begins with the name of the command.
    width = terminal(stderr=as_json).width - (len("pamc: ") if as_json else 0)
    # Where there is no number the error says why.
    for line in as_text(chosen, width=width, summary=chosen.n_clusters is not None).splitlines():
        show(line)
    if chosen.n_clusters is None:
        raise DataError(f"{chosen.why}. Name a number yourself to go on: --n-clusters K")
    return chosen


def refuse_auto(*, large: bool, group: bool) -> None:
    """Refuse to choose where that is not done: for a store that is not read whole, and on several processes."""
    if group:
        raise ConfigError(
            "--n-clusters auto is found by one process: choose first, then start torchrun with the number"
        )
    if large:
        raise ConfigError(
            "--n-clusters auto reads all rows into memory, which a store of this size is not: choose on a sample of "
            "its rows (pamc.choose_k), then name the number"
        )
