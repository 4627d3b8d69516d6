"""What `pamc` alone says, and the panels in which help shows commands and options."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

import pamc

__all__ = ["ABOUT", "CLUSTER", "LABORATORY", "LOOK_UP", "GroupedCommands", "PanelCommand", "welcome"]

ABOUT = "Cluster tables, images, text vectors and attributed graphs with the PamC loss."

# The panels of commands, in the order in which they are shown.
CLUSTER, LOOK_UP, LABORATORY = "Cluster your data", "Look up", "Laboratory"

_EXAMPLES = (
    ("pamc demo", "handwritten digits, offline, K-means beside it"),
    ("pamc fit customers.csv --id customer -k 5", "a table; writes labels, model and a report to pamc-run-1"),
    ("pamc fit papers.csv --id doi --edges cites.csv -k 7", "rows and a graph between them"),
    ("pamc predict pamc-run-1 new.csv --out clusters.csv", "the clusters of new rows"),
)

_WIDEST = 100


class GroupedCommands(TyperGroup):
    """A group of commands that shows them by their panels."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, a section for each panel."""
        for panel, rows in _panels(self, ctx).items():
            with formatter.section(panel):
                formatter.write_dl(rows)


class PanelCommand(TyperCommand):
    """A command that shows its arguments and options by their panels, in the order of their declaration."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, a section for each panel."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            row = parameter.get_help_record(ctx)
            if row is not None:
                panels.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(row)
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


def welcome(context: typer.Context) -> str:
    """Return what the command can do: examples, and the commands in groups, as wide as the terminal."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    lines = [*textwrap.wrap(f"pamc {pamc.__version__}. {ABOUT}", width), "", "Try:"]
    longest = max(len(command) for command, _ in _EXAMPLES)
    for command, about in _EXAMPLES:
        lines += _entry(command, about, longest, width)
    for panel, rows in _panels(context.command, context).items():
        lines += ["", f"{panel}:"]
        longest = max(len(name) for name, _ in rows)
        for name, about in rows:
            lines += _entry(name, about, longest, width)
    more = (
        "pamc COMMAND --help says more and has examples; pamc --install-completion makes the TAB key complete "
        "commands, options and names."
    )
    return "\n".join([*lines, "", *textwrap.wrap(more, width, break_on_hyphens=False)])


def _panels(group: Any, context: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the commands and the first sentences of their help, by panel."""
    panels: dict[str, list[tuple[str, str]]] = {CLUSTER: [], LOOK_UP: [], LABORATORY: []}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        about = (command.help or "").partition("\n")[0].removesuffix(".")
        panels.setdefault(str(command.rich_help_panel or LABORATORY), []).append((name, about))
    return {panel: rows for panel, rows in panels.items() if rows}


def _entry(name: str, about: str, longest: int, width: int) -> list[str]:
    """Return a name and what it stands for: side by side where there is room, else one below the other."""
    column = 2 + longest + 2
    if width - column < 30:
        return [f"  {name}", *textwrap.wrap(about, width, initial_indent=" " * 6, subsequent_indent=" " * 6)]
    first = f"  {name}".ljust(column)
    return textwrap.wrap(about, width, initial_indent=first, subsequent_indent=" " * column)
