"""The `pamc` command: its welcome text, help panels, error messages and exit codes."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import sys
import textwrap
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

import pamc
from pamc.cli import show
from pamc.cli.launch import own_rank
from pamc.cli.options import CLUSTER, COMMANDS, LABORATORY, LOOK_UP
from pamc.cli.show import EXIT_INTERRUPTED, Interrupted, note, print_text
from pamc.config import RENAMED_SETTINGS, FitConfig
from pamc.errors import OutputError, PamcError, PamcWarning

# Seconds that the other processes wait before they exit, so that under torchrun the first one reports a usage error.
_FIRST_SPEAKS_WITHIN_S = 10.0

_ABOUT = "Cluster tables, images, text vectors and attributed graphs with the PamC loss."

_EXAMPLES = (
    ("pamc demo", "cluster handwritten digits offline and compare with K-means"),
    ("pamc fit customers.csv --id customer -k 5", "cluster a table; write labels, model and a report to pamc-run-1"),
    ("pamc fit papers.csv --id doi --edges cites.csv -k 7", "cluster rows that have a graph"),
    ("pamc predict pamc-run-1 new.csv --out clusters.csv", "assign new rows to the clusters"),
)

_WIDEST = 100


class GroupedCommands(TyperGroup):
    """A command group whose help lists the commands by panel."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the name of a command.

        Typer's own flags default to None; converting None would import pydantic (0.1 s).
        """
        for parameter in self.get_params(ctx):
            if getattr(parameter, "is_flag", False) and parameter.default is None:
                parameter.default = False
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, one section per panel."""
        for panel, rows in _panels(self, ctx).items():
            with formatter.section(panel):
                formatter.write_dl(rows)


class PanelCommand(TyperCommand):
    """A command whose help lists arguments and options by panel, in the order of their declaration."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options; during completion, skip the conversion of their values, which would import pydantic."""
        if not ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        values, ctx.args, _ = self.make_parser(ctx).parse_args(args=args)
        ctx.params.update(values)
        return ctx.args  # type: ignore[no-any-return]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, one section per panel."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            row = parameter.get_help_record(ctx)
            if row is not None:
                panels.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(row)
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


app = typer.Typer(
    name="pamc",
    help=_ABOUT,
    cls=GroupedCommands,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _name in sorted(COMMANDS, key=lambda name: COMMANDS[name].place):
    app.command(_name, cls=PanelCommand, rich_help_panel=COMMANDS[_name].panel)(COMMANDS[_name].run)


@app.callback()
def options(
    context: typer.Context,
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    """Cluster tables, images, text vectors and attributed graphs with the PamC loss."""
    show.debugging = debug or bool(os.environ.get("PAMC_DEBUG"))
    if version:
        print_text(f"pamc {pamc.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print_text(_welcome(context))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code: 2 usage, 3 data, 4 backend, 130 interrupted.

    Errors and notes are single lines on standard error; results go to standard output.
    """
    debug = "--debug" in arguments
    ordered = [argument for argument in arguments if argument != "--debug"]
    if ordered[:1] == ["help"]:
        ordered = [*ordered[1:], "--help"]
    ordered = ["--debug", *ordered] if debug else ordered
    with warnings.catch_warnings():
        warnings.showwarning = _show_once()
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", PamcWarning)
        try:
            code = int(app(ordered, standalone_mode=False, prog_name="pamc") or 0)
        except (KeyboardInterrupt, typer.Abort):
            code = EXIT_INTERRUPTED
        except Interrupted as stop:
            note(f"interrupted: {stop}")
            return EXIT_INTERRUPTED
        except BrokenPipeError:
            sys.stderr.close()
            return 0
        except Exception as error:
            if isinstance(error, PamcError) and getattr(error, "reported", False):
                # Another process failed and has already reported it.
                return error.exit_code
            if debug:
                traceback.print_exc()
            code = _report(error)
    if code == EXIT_INTERRUPTED and own_rank() == 0:
        note("interrupted: nothing was written")
    return code


def _report(error: Exception) -> int:
    """Report an error in one line and return the exit code."""
    where = f"process {own_rank()}: " if own_rank() else ""
    if hasattr(error, "format_message"):
        if where:
            # Let the first process report it: torchrun would kill that one if another exited earlier.
            time.sleep(_FIRST_SPEAKS_WITHIN_S)
        else:
            note(f"error: {_usage(error)}")
        return int(getattr(error, "exit_code", 2))
    text = _one_line(str(error))
    if isinstance(error, PamcError | OSError):
        note(f"error: {where}{text}")
        return getattr(error, "exit_code", OutputError.exit_code)
    hint = "this is a bug: please report it with the output of `pamc doctor`; --debug shows the traceback"
    note(f"error: {where}{type(error).__name__}: {text} ({hint})")
    return 1


def _usage(error: Any) -> str:
    """Return the description of a usage error, with the closest match and where to read more."""
    text = _one_line(error.format_message())
    context = getattr(error, "ctx", None)
    if wrong := getattr(error, "option_name", None):
        known = {name: name for name in getattr(error, "possibilities", None) or ()}
        if context is not None and context.info_name == "fit":
            settings = {name: name for name in FitConfig.names()} | RENAMED_SETTINGS
            known |= {f"--{name.replace('_', '-')}": f"--set {new}=VALUE" for name, new in settings.items()} | known
        near = difflib.get_close_matches(wrong, known, n=1)
        if near:
            text = f"{_one_line(error.message)}; did you mean {known[near[0]]}?"
    unknown = re.match(r"No such command '(.+?)'", text)
    if unknown and Path(unknown[1]).is_file():
        text += f" To cluster that file: pamc fit {shlex.quote(unknown[1])} --n-clusters K"
    return f"{text} (see {'pamc' if context is None else context.command_path} --help)"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _show_once() -> Callable[..., None]:
    """Return a `showwarning` hook that prints each distinct warning once, as a note."""
    printed: set[str] = set()

    def showwarning(message: Any, *_: Any, **__: Any) -> None:
        text = _one_line(str(message))
        if text not in printed:
            printed.add(text)
            note(f"note: {text}")

    return showwarning


def _welcome(context: typer.Context) -> str:
    """Return the welcome text: examples and the commands by panel, wrapped to the terminal width."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    lines = textwrap.wrap(f"pamc {pamc.__version__}. {_ABOUT}", width)
    for panel, rows in {"Try": _EXAMPLES, **_panels(context.command, context)}.items():
        lines += ["", f"{panel}:"]
        longest = max(len(name) for name, _ in rows)
        for name, about in rows:
            lines += _entry(name, about, longest, width)
    more = (
        "Run pamc COMMAND --help for options and examples, and pamc --install-completion to enable TAB completion of "
        "commands, options and names."
    )
    return "\n".join([*lines, "", *textwrap.wrap(more, width, break_on_hyphens=False)])


def _panels(group: Any, context: Any) -> dict[str, list[tuple[str, str]]]:
    """Return each command with the first line of its help, by panel."""
    panels: dict[str, list[tuple[str, str]]] = {CLUSTER: [], LOOK_UP: [], LABORATORY: []}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        about = (command.help or "").partition("\n")[0].removesuffix(".")
        panels.setdefault(command.rich_help_panel, []).append((name, about))
    return panels


def _entry(name: str, about: str, longest: int, width: int) -> list[str]:
    """Return the lines of a name and its description: side by side if there is room, else stacked."""
    column = 2 + longest + 2
    if width - column < 30:
        return [f"  {name}", *textwrap.wrap(about, width, initial_indent=" " * 6, subsequent_indent=" " * 6)]
    first = f"  {name}".ljust(column)
    return textwrap.wrap(about, width, initial_indent=first, subsequent_indent=" " * column)
